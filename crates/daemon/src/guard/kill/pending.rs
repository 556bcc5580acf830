//! Victims that were signalled and are not gone: each held by pidfd until its memory is back, reaped from outside,
//! and reported on when it ends.

use super::ledger::Ledger;
use crate::guard::{
    host::Host,
    kernel::{Held as _, Kernel, Reaps as _},
};
use plimsoll_policy::{
    account::Counted,
    reading::Reading,
    reap::Rates,
    units::{Nanos, Pages, Pid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::{
    bpf::AddressSpace,
    process::{ProcessError, page_size},
};
use std::os::fd::{AsFd as _, BorrowedFd};

/// After this the incident stands as it is: what is known of the victim's end by then is all that is told.
const REPORT_DEADLINE: Nanos = Nanos(30_000_000_000);

/// A smaller victim is gone before waking somebody for it pays: 64 MiB.
const EXPECTED_BYTES_MIN: u64 = 64 << 20;

/// The incident of a victim that is not written down yet, or of which only its number was told: its record was dropped.
pub(crate) const UNRECORDED: u64 = 0;

/// Whose victim it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The line of a user, or of a group.
    Line(Counted),
    /// The line of a cgroup, or of the machine: the guard's number for it.
    Measured(u32),
    /// The machine guard.
    Machine,
    /// The floor of working-set protection.
    WorkingSet,
}

/// One victim on its way out.
#[derive(Debug)]
pub(crate) struct PendingKill<K: Kernel> {
    /// Who.
    pub(crate) victim: VictimId,
    /// Who wanted it.
    pub(crate) owner: Owner,
    /// The address space in the accounting; 0: not accounted.
    pub(crate) mm: u64,
    /// `None`: gone before it could be held.
    pub(crate) pidfd: Option<K::Held>,
    /// The incident it belongs to.
    pub(crate) incident: u64,
    /// What it was sent last.
    pub(crate) signal: Signal,
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) signalled: Nanos,
    /// What it held then.
    pub(crate) pages: Pages,
    /// When the accounting saw its address space torn down.
    pub(crate) freed: Option<Nanos>,
    /// The process is gone.
    pub(crate) exited: bool,
}

impl<K: Kernel> PendingKill<K> {
    /// Of a process that is not held, in no address space of the accounting, and in no incident yet.
    pub(crate) const fn new(victim: VictimId, owner: Owner, signal: Signal, signalled: Nanos) -> Self {
        Self {
            victim,
            owner,
            mm: 0,
            pidfd: None,
            incident: UNRECORDED,
            signal,
            signalled,
            pages: Pages(0),
            freed: None,
            exited: false,
        }
    }

    /// Whether there is nothing more to learn.
    fn is_over(&self, now: Nanos) -> bool {
        let late = now.0.saturating_sub(self.signalled.0) >= REPORT_DEADLINE.0;
        // Without accounting the exit is all there is; an address space that others use outlives the process.
        (self.exited && (self.mm == 0 || self.freed.is_some()))
            || (self.freed.is_some() && self.pidfd.is_none())
            || (late && self.is_told_late())
    }

    /// What it held when it was sent SIGKILL, and how long after that it was back; `None`: it was asked only, or is not back.
    pub(crate) fn took(&self) -> Option<(Pages, Nanos)> {
        let freed = self.freed.filter(|_| self.signal == Signal::Kill)?;
        Some((self.pages, freed.saturating_sub(self.signalled)))
    }

    /// Whether its incident is told as it is after so long. A user can hold thousands of victims: they are not kept for ever.
    const fn is_told_late(&self) -> bool {
        self.exited || matches!(self.owner, Owner::Line(_) | Owner::Measured(_))
    }
}

/// All victims on their way out, of all guards.
#[derive(Debug)]
pub(crate) struct PendingKills<K: Kernel> {
    pending: Vec<PendingKill<K>>,
    reaper: K::Reaper,
}

impl<K: Kernel> PendingKills<K> {
    pub(crate) fn new(reaper: K::Reaper) -> Self {
        Self { pending: Vec::with_capacity(64), reaper }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn count_of(&self, ours: impl Fn(Owner) -> bool) -> u64 {
        self.pending
            .iter()
            .filter(|flight| ours(flight.owner) && !flight.exited)
            .fold(0, |sum: u64, _| sum.saturating_add(1))
    }

    /// Takes a victim in, and has it reaped if it was killed.
    pub(crate) fn add(&mut self, flight: PendingKill<K>) {
        if flight.signal == Signal::Kill {
            let copy = flight.pidfd.as_ref().map(K::Held::try_clone);
            self.reap(copy.and_then(Result::ok), flight.victim.pid);
        }
        self.pending.push(flight);
    }

    /// Says which incident a victim belongs to that was taken in before it was written down.
    pub(crate) fn told(&mut self, victim: VictimId, signal: Signal, incident: u64) {
        let unrecorded = |flight: &&mut PendingKill<K>| {
            (flight.victim, flight.signal, flight.incident) == (victim, signal, UNRECORDED)
        };
        if let Some(flight) = self.pending.iter_mut().find(unrecorded) {
            flight.incident = incident;
        }
    }

    /// Has the reaper awake for a large victim that is about to be killed: see [`plimsoll_sys::process::Reaper::expect`].
    pub(crate) fn expect(&self, victim: &K::Held, usage: Reading<Pages>) {
        if usage.known().is_some_and(|pages| page_size().to_bytes(pages).0 >= EXPECTED_BYTES_MIN) {
            self.reaper.expect(victim);
        }
    }

    /// Sends SIGKILL to a victim in flight; what the kernel said. `None`: no such victim is held.
    pub(crate) fn kill(&self, victim: VictimId) -> Option<Result<(), ProcessError>> {
        let flight = self.pending.iter().find(|flight| flight.victim == victim)?;
        let pidfd = flight.pidfd.as_ref()?;
        self.expect(pidfd, Reading::Known(flight.pages));
        Some(pidfd.send_signal(Signal::Kill))
    }

    /// Has a killed process's memory freed. Not held, or with the reaper's queue full (which it counts), it frees its
    /// memory itself.
    pub(crate) fn reap(&self, victim: Option<K::Held>, pid: Pid) {
        if let Some(victim) = victim {
            drop(self.reaper.submit(victim, u64::from(pid.0)));
        }
    }

    /// Those killed since a moment who held so much and are not gone: what they hold comes back by itself.
    pub(crate) fn killed_with(&self, least: Pages, since: Nanos) -> impl Iterator<Item = VictimId> {
        let kills = move |flight: &&PendingKill<K>| {
            let holds = !flight.exited && flight.freed.is_none() && flight.pages >= least;
            flight.signal == Signal::Kill && holds && flight.signalled >= since
        };
        self.pending.iter().filter(kills).map(|flight| flight.victim)
    }

    /// Those who were sent SIGKILL for the machine and have not ended, and what each held then.
    pub(crate) fn ending(&self) -> impl Iterator<Item = (VictimId, Pages)> {
        let ends = |flight: &&PendingKill<K>| {
            flight.owner == Owner::Machine && flight.signal == Signal::Kill && flight.freed.is_none()
        };
        self.pending.iter().filter(ends).map(|flight| (flight.victim, flight.pages))
    }

    /// Whether a process was sent SIGKILL, and that is written down.
    pub(crate) fn was_killed(&self, victim: VictimId) -> bool {
        self.pending.iter().any(|flight| flight.victim == victim && flight.signal == Signal::Kill)
    }

    /// The address spaces of those who were killed and are not known to be gone; 0 where one is not accounted.
    pub(crate) fn killed_spaces(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().filter(|flight| flight.signal == Signal::Kill).map(|flight| flight.mm)
    }

    /// The flight of a victim.
    pub(crate) fn find(&mut self, victim: VictimId) -> Option<&mut PendingKill<K>> {
        self.pending.iter_mut().find(|flight| flight.victim == victim)
    }

    /// Whether the process of an address space is a victim in flight, or another in the same memory is.
    pub(crate) fn has(&self, space: &AddressSpace) -> bool {
        let victim = VictimId { pid: space.pid, start_ns: space.start_ns };
        self.pending.iter().any(|flight| flight.victim == victim)
            || self.signal_of_mm(space.mm, space.tracked_ns, space.pid).is_some()
    }

    /// Whether a process was sent SIGTERM and no more: it may not end by itself.
    pub(crate) fn was_asked(&self, pid: Pid, start_ns: u64) -> bool {
        let victim = VictimId { pid, start_ns };
        self.pending.iter().any(|flight| flight.victim == victim && flight.signal == Signal::Term)
    }

    /// Victims that were sent SIGTERM and no more, and have not ended: whose, who, and since when.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (Owner, VictimId, Nanos)> {
        let asked = self.pending.iter().filter(|flight| flight.signal == Signal::Term && !flight.exited);
        asked.map(|flight| (flight.owner, flight.victim, flight.signalled))
    }

    /// What the victim of an address space was sent, where `pid` was not itself the one. What is tracked since after that is
    /// another one at the same address, whose end was not heard of yet.
    pub(crate) fn signal_of_mm(&self, mm: u64, tracked_ns: u64, pid: Pid) -> Option<Signal> {
        let its = |flight: &&PendingKill<K>| {
            flight.mm == mm && flight.freed.is_none() && tracked_ns <= flight.signalled.0
        };
        let mut sharing = self.pending.iter().filter(its);
        let first = sharing.next()?;
        (first.victim.pid != pid && sharing.all(|flight| flight.victim.pid != pid)).then_some(first.signal)
    }

    /// A victim in flight was sent SIGKILL after SIGTERM: that is an incident of its own, which is not written down yet.
    pub(crate) fn escalated(&mut self, victim: VictimId, now: Nanos) {
        if let Some(index) = self.pending.iter().position(|flight| flight.victim == victim) {
            let mut flight = self.pending.swap_remove(index);
            flight.signal = Signal::Kill;
            flight.signalled = now;
            flight.incident = UNRECORDED;
            self.add(flight);
        }
    }

    /// The accounting saw an address space torn down.
    pub(crate) fn freed(&mut self, mm: u64, when: Nanos) {
        // One that was signalled since is of another address space, which had the address next.
        let its = |flight: &&mut PendingKill<K>| {
            flight.mm == mm && flight.freed.is_none() && flight.signalled <= when
        };
        self.pending.iter_mut().filter(its).for_each(|flight| flight.freed = Some(when));
    }

    /// The address spaces of victims that have exited, and of whose end no record came: it may have been lost.
    pub(crate) fn unheard_of(&mut self) -> impl Iterator<Item = &mut PendingKill<K>> {
        self.pending.iter_mut().filter(|one| one.exited && one.freed.is_none() && one.mm != 0)
    }

    /// Looks which victims have exited, reports what is complete, and shows `gone` each that will not be waited for
    /// any longer.
    pub(crate) fn settle(&mut self, ledger: &Ledger, now: Nanos, mut gone: impl FnMut(&PendingKill<K>)) {
        for flight in &mut self.pending {
            let ended = flight.pidfd.as_ref().is_none_or(|pidfd| pidfd.has_exited().unwrap_or(false));
            if ended && !flight.exited {
                flight.exited = true;
                if flight.mm == 0 {
                    flight.freed = Some(now);
                }
            }
        }
        self.pending.retain(|flight| {
            if !flight.is_over(now) {
                return true;
            }
            let span = flight.freed.map(|freed| Nanos(freed.0.saturating_sub(flight.signalled.0)));
            if flight.incident != UNRECORDED {
                ledger.outcome(flight.incident, span, flight.freed.map(|_| flight.pages));
            }
            if flight.exited || flight.freed.is_some() {
                gone(flight);
            }
            false
        });
    }

    /// The victims whose exit is waited for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &K::Held> {
        self.pending.iter().filter(|flight| !flight.exited).filter_map(|flight| flight.pidfd.as_ref())
    }

    /// When to look again though nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.pending
            .iter()
            .filter(|flight| flight.is_told_late())
            .map(|flight| flight.signalled.saturating_add(REPORT_DEADLINE))
            .min()
    }

    /// How fast memory came back from those that were reaped.
    pub(crate) fn rates(&self) -> Rates {
        self.reaper.rates()
    }

    /// Ends the reaper's thread when it has finished what it has.
    pub(crate) fn stop(self) -> std::io::Result<()> {
        self.reaper.stop()
    }
}

impl PendingKills<Host> {
    /// What to wait on.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.awaited().map(|pidfd| pidfd.as_fd())
    }
}
