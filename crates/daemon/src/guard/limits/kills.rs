//! Kills for a line: each victim is claimed from the programs before it is signalled; and what the programs killed themselves.

use super::attached::{Attached, claimed_for};
use crate::guard::{
    context::Context,
    kernel::{Kernel, Programs as _},
    kill::{
        self, Kill,
        ledger::{Entry, told},
        pending::{Owner, PendingKill, UNRECORDED},
    },
    selection::census::TREE_MAX,
};
use plimsoll_policy::{
    account::{Action, Counted},
    incident::{Trigger, Victim},
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Decision, Standing, Weight, company, select},
    units::{Nanos, Uid},
    victim::{Signal, SignalFault, SignalOutcome, VictimId},
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError, Holder, VictimMark};
use plimsoll_wire::{abi, record::Record};

/// Between two lists of peers of kernel-side victims: at least this long, and so many times what the last one took.
const PEERS_REST: Nanos = Nanos(100_000_000);
const PEERS_PARTS: u64 = 16;

/// How old a claim may be when its signal is sent. The programs let one go that has had none for 100 ms (`unanswered_ns` in
/// bpf/limits/maps.h), and take another; and one on who has become another user's, which takes some microseconds.
const CLAIM_HOLDS: Nanos = Nanos(1_000_000);

/// When peers are listed again at the earliest, after a list that took this long.
fn peers_again(began: Nanos, ended: Nanos) -> Nanos {
    let took = ended.0.saturating_sub(began.0);
    ended.saturating_add(Nanos(took.saturating_mul(PEERS_PARTS)).max(PEERS_REST))
}

impl<K: Kernel> Attached<K> {
    /// Signals the first victim, those that share its memory, and where one ended in vain for a file those that hold it.
    pub(crate) fn send(
        &mut self,
        account: &AccountFacts,
        decision: &Decision,
        signal: Signal,
        context: &mut Context<K>,
    ) -> Result<bool, BpfError> {
        let entry = Entry::of_decision(account.whose, decision);
        let mut kill = Kill::new(Owner::Line(account.whose), signal, entry);
        let company = self.company_of(decision, context);
        let ends = decision.together().chain(&company);
        let sent = self.send_each(account, ends, &mut kill, context);
        // Whoever was signalled is followed, whatever went wrong with the next.
        kill.conclude(context.ledger.peers(decision), context);
        sent.map(|()| true)
    }

    fn send_each<'a>(
        &mut self,
        account: &AccountFacts,
        ends: impl Iterator<Item = &'a Candidate>,
        kill: &mut Kill<K>,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        for candidate in ends {
            // First, so that the kernel side does not take another meanwhile; it may just have.
            let (claimed, claim) = (context.now(), VictimMark::Dying { account: account.index });
            if !self.limits.mark(candidate.mm, candidate.pid, claim)? {
                continue;
            }
            let note = kill.intend(candidate, context);
            if !self.claim_holds(candidate, claim, claimed, context)? {
                continue;
            }
            let held = self.early.take(account.whose, candidate.id());
            let (outcome, moment) = kill.send(candidate, note, held, context);
            let action = Action::of(Some(kill.signal));
            self.watch(account.whose, action).state.outcome(candidate.id(), outcome, moment);
            if !matches!(outcome, SignalOutcome::Sent(_)) {
                // Nothing is dying that was not signalled; one that is not tracked any more has gone.
                self.limits.mark(candidate.mm, candidate.pid, VictimMark::Spared)?;
            }
        }
        Ok(())
    }

    /// All others that hold the largest file that the first victim has in common with them, where one of its holders was ended
    /// before and the file is there still: one after the other they could fork anew as fast. No more are claimed once
    /// the account is back under its line, and of very many the next round ends more.
    fn company_of(&mut self, decision: &Decision, context: &mut Context<K>) -> Vec<Candidate> {
        let Some(first) = decision.victims.first() else { return Vec::new() };
        let memory = &mut self.shared_memory;
        let Some(file) = memory.in_common(first.mm).filter(|file| !memory.bereft.insert(*file)) else {
            return Vec::new();
        };
        company(&self.candidates, first, |one| memory.in_common(one.mm) == Some(file))
            .filter(|one| context.pending.find(one.id()).is_none())
            .take(TREE_MAX)
            .copied()
            .collect()
    }

    /// Whether a claim made at this moment is good for a signal. Where the daemon got no CPU for long, it is made anew: the
    /// programs may have signalled the victim meanwhile, or taken another.
    fn claim_holds(
        &self,
        candidate: &Candidate,
        claim: VictimMark,
        mut claimed: Nanos,
        context: &Context<K>,
    ) -> Result<bool, BpfError> {
        loop {
            let now = context.now();
            if now.0.saturating_sub(claimed.0) <= CLAIM_HOLDS.0 {
                return Ok(true);
            }
            claimed = now;
            if !self.limits.mark(candidate.mm, candidate.pid, VictimMark::Spared)?
                || !self.limits.mark(candidate.mm, candidate.pid, claim)?
            {
                return Ok(false);
            }
        }
    }

    pub(crate) fn only_tell(&self, account: &AccountFacts, decision: &Decision, context: &mut Context<K>) {
        // In a dry run the victim is named though nothing was sent to it.
        let victims = decision.together().map(|candidate| context.ledger.victim(candidate)).collect();
        let peers = context.ledger.peers(decision);
        context.ledger.record(Entry { victims, peers, ..Entry::of_decision(account.whose, decision) });
    }

    pub(crate) fn escalate(
        &mut self,
        account: &AccountFacts,
        victim: VictimId,
        reason: Reason,
        context: &mut Context<K>,
    ) -> Result<bool, BpfError> {
        // For the line of another user, whose it became.
        if context.pending.was_killed(victim) {
            self.watch(account.whose, Action::Term).state.outcome(
                victim,
                SignalOutcome::Sent(Signal::Kill),
                context.now(),
            );
            return Ok(true);
        }
        // It may be another user's by now, or have left what it was selected for.
        let known = self.candidates.iter().find(|one| one.id() == victim).copied();
        let candidate = known.or_else(|| {
            let uid =
                context.kernel.process(victim.pid).map_or(Uid(abi::PLIMSOLL_NO_UID), |process| process.uid);
            context.pending.find(victim).map(|flight| Candidate {
                mm: flight.mm,
                usage: Reading::Known(flight.pages),
                standing: Standing::Dying,
                ..Candidate::of(victim, uid)
            })
        });
        let entry = Entry {
            usage: account.usage,
            hard: account.effective,
            ..Entry::of_line(account.whose, Trigger::Daemon, reason)
        };
        let mut kill = Kill::new(Owner::Line(account.whose), Signal::Kill, entry);
        let (outcome, moment) = kill.escalate(victim, candidate, context);
        self.watch(account.whose, Action::Term).state.outcome(victim, outcome, moment);
        let mut marked = Ok(true);
        if matches!(outcome, SignalOutcome::Sent(_)) {
            if let Some(candidate) = candidate {
                marked = self.limits.mark(candidate.mm, candidate.pid, VictimMark::Condemned);
            }
            context.pending.escalated(victim, moment);
        }
        kill.conclude(Vec::new(), context);
        marked.map(|_is_tracked| true)
    }

    /// The kernel side took a victim, or could not.
    pub(crate) fn on_acted(&mut self, record: &Record, context: &mut Context<K>) -> Result<(), BpfError> {
        let process = &record.process;
        let victim = VictimId { pid: process.pid, start_ns: process.start_ns };
        if record.turned_away {
            if let Some(signalled) = record.signal_time
                && context.ledger.inherited(victim, Signal::Kill).is_none()
            {
                self.record_acted(record, Signal::Kill, signalled, context);
            }
            // Not for its line: nothing of that waits for it.
            return Ok(());
        }
        let signal = Signal::numbered(record.signal).unwrap_or(Signal::Kill);
        let action = Action::of(Some(signal));
        let Some(signalled) = record.signal_time else {
            let fault = SignalFault::Other(record.signal_errno.unwrap_or_default());
            self.watch(record.whose, action).state.outcome(
                victim,
                SignalOutcome::Failed(fault),
                context.now(),
            );
            context.notices.signal_failed(process.pid, signal);
            return self.judge(record.whose, Some(record), context);
        };
        // Nothing that takes time before this: it hands the victim to the reaper.
        match context.pending.find(victim).map(|flight| flight.signal) {
            // It went on allocating between our own signal to it and the mark: one victim, and written down already. Nothing
            // takes a SIGKILL back.
            Some(before) if before == signal || before == Signal::Kill => return Ok(()),
            Some(_) => context.pending.escalated(victim, signalled),
            None => context.pending.add(PendingKill {
                mm: process.mm,
                // Gone already is the best that can happen: then there is nothing to hold.
                pidfd: context.kernel.hold(process.pid, process.start_ns).ok(),
                pages: process.pages,
                ..PendingKill::new(victim, Owner::Line(record.whose), signal, signalled)
            }),
        }
        self.watch(record.whose, action).state.outcome(victim, SignalOutcome::Sent(signal), signalled);
        if record.mm_shared {
            // Those who share its memory are found by a walk, which anybody could have made without end.
            self.want_scan();
        }
        // An earlier daemon died with the record in its hands.
        let inherited = context.ledger.inherited(victim, signal);
        let incident = inherited.unwrap_or_else(|| self.record_acted(record, signal, signalled, context));
        context.pending.told(victim, signal, incident);
        Ok(())
    }

    /// Writes down whom the kernel side took.
    fn record_acted(
        &mut self,
        record: &Record,
        signal: Signal,
        signalled: Nanos,
        context: &mut Context<K>,
    ) -> u64 {
        let process = &record.process;
        let peers = self.peers_of(record, context);
        context.ledger.record(Entry {
            signal: Some(signal),
            crossed: Some(record.time),
            signalled: Some(signalled),
            usage: record.usage,
            hard: Some(record.effective),
            victims: vec![Victim {
                pid: process.pid,
                start_ns: process.start_ns,
                uid: process.uid,
                comm: process.comm.clone().unwrap_or_default(),
                cmdline: process.cmdline.clone(),
                cgroup: None,
                usage_bytes: context.ledger.page_size().to_bytes(process.pages).0,
                weight_permille: told(process.weight),
                session: false,
                jobs: Vec::from_iter(process.job),
            }],
            peers,
            ..Entry::of_line(record.whose, Trigger::InKernel, in_kernel_reason(record, signal))
        })
    }

    /// Whom the programs compared their victim with, as far as it is not told by its size alone why it was taken. Of a storm
    /// only now and then: each time all address spaces are listed. Where a cgroup protects is not asked of `/proc`, which can
    /// wait: what the programs themselves knew of it is in the list.
    fn peers_of(&mut self, record: &Record, context: &mut Context<K>) -> Vec<Victim> {
        if record.process.weight == Weight::NEUTRAL && !self.weights.has_uneven(record.whose) {
            return Vec::new();
        }
        let began = context.now();
        if began < self.compared_until {
            return Vec::new();
        }
        let listed = match self.limits.account(record.whose) {
            Ok(Some(account)) => self.list_spaces(&account, context),
            Ok(None) => return Vec::new(),
            Err(error) => Err(error),
        };
        self.compared_until = peers_again(began, context.now());
        if let Err(error) = listed {
            // The incident is told without them.
            context.notices.once("limits", &error);
            return Vec::new();
        }
        let peers = select(&self.candidates, |_| true).peers;
        let others = peers.iter().filter(|one| one.mm != record.process.mm);
        others.map(|one| context.ledger.victim(one)).collect()
    }

    /// What an earlier daemon left dying. Who was asked to end is ended: its grace period died with that daemon. Who was
    /// claimed and never signalled lives, and is selected again if it must.
    pub(crate) fn finish_inherited(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let (walk, mut left) = (self.walk_number, Vec::new());
        let accounts = self.limits.accounts()?;
        self.limits.address_spaces(|space| {
            // Who left one behind may run something else by now.
            if (space.dying || space.condemned) && !space.left && space.walk >= walk {
                left.push(*space);
            }
        })?;
        // The programs may have sent a signal to one of these, or to another process in its memory, and told of it.
        self.take_records(context);
        for space in left {
            let whose = claimed_for(&accounts, &space);
            let victim = VictimId { pid: space.pid, start_ns: space.start_ns };
            let told = context.pending.find(victim).is_some()
                || context.pending.signal_of_mm(space.mm, space.tracked_ns, space.pid).is_some();
            // On its way out already; one that cannot be looked at any more, too.
            if space.protected || space.never || told {
                continue;
            }
            if context.kernel.process(space.pid).map_or(true, |process| process.dying) {
                context.pending.reap(context.kernel.hold(space.pid, space.start_ns).ok(), space.pid);
                // It may be stuck: its deadline runs from now on, not from when its line is crossed next.
                self.unfinished.insert(whose);
                continue;
            }
            if let Some(flight) = flight_of_other(whose, &space, context) {
                context.pending.add(flight);
            } else if context.ledger.inherited(victim, Signal::Term).is_some() {
                self.end_inherited(whose, &space, context)?;
            } else if self.limits.mark(space.mm, space.pid, VictimMark::Spared)? {
                self.unfinished.insert(whose);
            }
        }
        Ok(())
    }

    fn end_inherited(
        &mut self,
        whose: Counted,
        space: &AddressSpace,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let victim = VictimId { pid: space.pid, start_ns: space.start_ns };
        let candidate =
            Candidate { mm: space.mm, usage: Reading::Known(space.own), ..Candidate::of(victim, space.uid) };
        let account = self.limits.account(whose)?;
        let entry = Entry {
            usage: account.map_or(space.own, |account| account.usage),
            hard: account.and_then(|account| account.effective),
            ..Entry::of_line(whose, Trigger::Daemon, Reason::TermDeadlinePassed)
        };
        let mut kill = Kill::new(Owner::Line(whose), Signal::Kill, entry);
        let note = kill.intend(&candidate, context);
        let (outcome, moment) = kill.send(&candidate, note, None, context);
        let mut marked = Ok(true);
        if matches!(outcome, SignalOutcome::Sent(_)) {
            marked = self.limits.mark(space.mm, space.pid, VictimMark::Condemned);
            self.watch(whose, Action::Term).state.outcome(victim, outcome, moment);
        }
        kill.conclude(Vec::new(), context);
        marked.map(drop)
    }

    /// An address space goes when the last process that uses it goes: the others of a victim's are ended with it.
    pub(crate) fn end_holders(&mut self, context: &mut Context<K>) {
        for holder in core::mem::take(&mut self.holders) {
            if let Some(signal) = self.owed(&holder, context) {
                let victim = VictimId { pid: holder.pid, start_ns: holder.start_ns };
                kill::signal(&Candidate::of(victim, holder.uid), None, signal, context);
            }
        }
    }

    /// The signal that a holder has not had yet. Its own victim is dying already; another of the same address space is
    /// sent what the victim was.
    fn owed(&self, holder: &Holder, context: &Context<K>) -> Option<Signal> {
        let signal = context.pending.signal_of_mm(holder.mm, holder.tracked_ns, holder.pid)?;
        (holder.pid.0 > 1 && holder.pid != context.kernel.own_pid()).then_some(signal)
    }
}

/// The process that the programs sent SIGKILL in an address space, while it has not ended.
pub(crate) fn ending_in<K: Kernel>(space: &AddressSpace, context: &mut Context<K>) -> Option<VictimId> {
    let process = context.kernel.process(space.sent?).ok().filter(|process| process.dying)?;
    Some(VictimId { pid: process.pid, start_ns: process.start_ns })
}

/// Another process than the one that an address space is entered for, which the programs sent SIGKILL in it and which has not
/// ended: those that share its memory are ended with it.
fn flight_of_other<K: Kernel>(
    whose: Counted,
    space: &AddressSpace,
    context: &mut Context<K>,
) -> Option<PendingKill<K>> {
    let victim = ending_in(space, context)?;
    Some(PendingKill {
        mm: space.mm,
        pidfd: context.kernel.hold(victim.pid, victim.start_ns).ok(),
        incident: context.ledger.inherited(victim, Signal::Kill).unwrap_or(UNRECORDED),
        pages: space.own,
        ..PendingKill::new(victim, Owner::Line(whose), Signal::Kill, context.now())
    })
}

const fn in_kernel_reason(record: &Record, signal: Signal) -> Reason {
    if record.turned_away {
        return Reason::TableFullMostProcesses;
    }
    if record.no_grace {
        return Reason::OverHardLimitNoGrace;
    }
    match (record.unanswered, signal) {
        (true, _) => Reason::OverHardLimitUnanswered,
        (false, Signal::Term) => Reason::OverHardLimitTerm,
        (false, Signal::Kill) if record.other => Reason::OverHardLimitOther,
        (false, Signal::Kill) if record.largest => Reason::OverHardLimitLargest,
        (false, Signal::Kill) => Reason::OverHardLimitAllocating,
    }
}
