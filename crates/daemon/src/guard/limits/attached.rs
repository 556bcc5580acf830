//! The limits programs while they are in force: which accounts are near, when to scan next, who is dying.

use super::{
    coarse::Coarse,
    early::Early,
    groups::Groups,
    jobs::{JOBS_EVERY, Jobs},
    shared::Shared,
    surveys::Surveys,
    weights::Weights,
};
use crate::guard::{
    context::Context,
    kernel::{Kernel, Programs as _},
};
use plimsoll_policy::{
    account::{Action, Counted},
    limits::LimitState,
    reading::Reading,
    reservation::{ALLOWANCE, Tier},
    selection::{Candidate, Protection, Standing},
    units::{Nanos, Pages},
    victim::VictimId,
};
use plimsoll_sys::bpf::{AccountFacts, AddressSpace, BpfError, Holder, Pins};
use plimsoll_wire::abi;
use std::collections::{BTreeMap, BTreeSet};

/// While an account is near, somebody is dying or entries run out, all tasks are walked this often: counters settled exactly,
/// lost exits swept, users that changed without an event followed, and entered who found no room.
const SCAN_EVERY: Nanos = Nanos(1_000_000_000);

/// Between two walks there is at least this many times as long as one takes.
const WALK_REST: u64 = 8;

/// Where records alone ask for one, that many times: whoever has them written keeps this thread busy for no more than a
/// thirty-second of the time.
const WANTED_REST: u64 = 32;

/// Room for this many processes of one account before the list of candidates has to grow.
const CANDIDATES_ROOM: usize = 4096;

/// What the daemon knows of one account.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) state: LimitState,
    pub(crate) action: Action,
}

impl Watch {
    pub(crate) fn new(action: Action) -> Self {
        Self { state: LimitState::default(), action }
    }

    /// Whether a victim of it is on its way out.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.state.in_flight().is_empty()
    }
}

/// Which accounts have kills that the programs only counted.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    /// Their number is to be written down later.
    pub(crate) owed: BTreeSet<Counted>,
    /// When it was written down last.
    pub(crate) told: BTreeMap<Counted, Nanos>,
}

impl Folds {
    /// Whether there is something to be written down yet.
    pub(crate) fn are_owed(&self) -> bool {
        !self.owed.is_empty()
    }
}

/// Whether a process was sent SIGTERM, which was only counted.
pub(crate) const fn is_asked_untold(space: &AddressSpace) -> bool {
    space.folded && space.dying && !space.condemned && !space.left
}

/// For whose line an address space was claimed, as far as that is there still: else its user's.
pub(crate) fn claimed_for(accounts: &[AccountFacts], space: &AddressSpace) -> Counted {
    let is_its = |one: &&AccountFacts| one.index == space.claimed && space.claimed != 0;
    let charged = || accounts.iter().find(|one| one.index == space.account);
    let claimed = accounts.iter().find(is_its);
    // It may have become another's since.
    let claimed =
        claimed.filter(|one| charged().is_some_and(|own| own.index == one.index || own.is_below(one.index)));
    claimed.map_or(space.user.into(), |one| one.whose)
}

/// The programs in force.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is so, or not, of the programs")]
pub(crate) struct Attached<K: Kernel> {
    pub(crate) limits: K::Programs,
    pub(crate) events: K::Records,
    pub(crate) watched: BTreeMap<Counted, Watch>,
    /// Accounts at or above their soft limit.
    pub(crate) near: BTreeSet<Counted>,
    /// When the largest processes of those were introduced last: to who reads names, who judges, and the last defence.
    pub(crate) introduced: BTreeMap<Counted, Nanos>,
    /// Accounts to decide about again without being asked.
    pub(crate) unfinished: BTreeSet<Counted>,
    pub(crate) candidates: Vec<Candidate>,
    /// Of those, where in the list who shares pages since a fork is, with whom, and what of its family's copies may be its own.
    shared: Vec<(usize, u64, Pages)>,
    pub(crate) holders: Vec<Holder>,
    /// Groups with a line for all their members together.
    pub(crate) groups: Groups,
    pub(super) jobs: Jobs,
    /// Processes of accounts near their line, held for the case of a crossing.
    pub(crate) early: Early<K>,
    /// What their processes count when the largest is looked for.
    pub(crate) weights: Weights,
    /// Accounts that copies could bring near their line.
    pub(crate) surveys: Surveys,
    /// Memory that no event tells of.
    pub(crate) shared_memory: Shared,
    /// Kills that the programs only counted.
    pub(crate) folds: Folds,
    /// Whether each event is looked at.
    pub(crate) coarse: Coarse,
    /// Taken over and not looked through yet for what an earlier daemon left dying.
    pub(crate) inherited: bool,
    next_scan: Option<Nanos>,
    /// A record asked for it.
    wanted: bool,
    /// Few entries for address spaces were left after the last scan.
    crowded: bool,
    scanned: Nanos,
    pub(crate) walk_number: u32,
    walk_took: Nanos,
    /// Accounts past their line when that was last looked at.
    pub(crate) over: BTreeSet<Counted>,
    /// All tasks were walked since it was looked which accounts are near.
    pub(crate) near_is_old: bool,
    /// The account listed last holds an address space that the last walk did not see, and that is not known to be dying.
    pub(crate) unseen: bool,
    /// Records that were lost, when that was last looked at.
    pub(crate) lost: u64,
    /// Until then the peers of a kernel-side victim are not listed again.
    pub(crate) compared_until: Nanos,
}

impl<K: Kernel> Attached<K> {
    /// Takes over what is pinned.
    pub(crate) fn adopt(kernel: &K, pins: &Pins) -> Result<Self, BpfError> {
        kernel.adopt(pins).map(Self::of)
    }

    /// Takes over what is pinned and will be replaced, for what it has still to tell.
    pub(crate) fn adopt_replaced(kernel: &K, pins: &Pins) -> Option<Self> {
        kernel.adopt_replaced(pins).map(Self::of)
    }

    fn of((limits, events): (K::Programs, K::Records)) -> Self {
        Self {
            limits,
            events,
            watched: BTreeMap::new(),
            near: BTreeSet::new(),
            introduced: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            candidates: Vec::with_capacity(CANDIDATES_ROOM),
            shared: Vec::with_capacity(CANDIDATES_ROOM),
            holders: Vec::new(),
            groups: Groups::default(),
            jobs: Jobs::default(),
            early: Early::default(),
            weights: Weights::with_room(CANDIDATES_ROOM),
            surveys: Surveys::default(),
            shared_memory: Shared::default(),
            folds: Folds::default(),
            coarse: Coarse::default(),
            inherited: true,
            // The first look tells what an earlier daemon left near or dying.
            next_scan: Some(Nanos(0)),
            wanted: false,
            crowded: false,
            scanned: Nanos(0),
            walk_number: 0,
            walk_took: Nanos(0),
            over: BTreeSet::new(),
            near_is_old: false,
            unseen: false,
            lost: 0,
            compared_until: Nanos(0),
        }
    }

    /// When the next scan is due.
    pub(crate) const fn next_scan(&self) -> Option<Nanos> {
        self.next_scan
    }

    /// Walks all tasks now, and removes what two walks did not find alive; the holders of dying address spaces are in
    /// `holders` then.
    pub(crate) fn scan(&mut self, kernel: &K) -> Result<(), BpfError> {
        self.wanted = false;
        self.walk(kernel)?;
        self.limits.sweep()?;
        self.crowded = self.limits.counters()?.entries >= self.limits.meta().entries_for_most().into();
        Ok(())
    }

    /// Walks all tasks now: every counter is settled, and every living address space seen.
    pub(crate) fn walk(&mut self, kernel: &K) -> Result<(), BpfError> {
        let began = kernel.now();
        self.holders.clear();
        let holders = &mut self.holders;
        self.walk_number = self.limits.walk(|holder| holders.push(holder))?;
        self.near_is_old = true;
        self.scanned = kernel.now();
        self.walk_took = Nanos(self.scanned.0.saturating_sub(began.0));
        Ok(())
    }

    /// Whether the last walk is recent enough to decide by: one that takes long is not made more often than it can be.
    pub(crate) fn is_walked(&self, now: Nanos) -> bool {
        self.last_scan_ago(now).0 <= SCAN_EVERY.0.max(self.walk_took.0.saturating_mul(WALK_REST))
    }

    /// Whether the last walk was so long ago that another one takes little of this thread's time.
    pub(crate) fn has_rested(&self, now: Nanos) -> bool {
        self.last_scan_ago(now).0 >= self.walk_took.0.saturating_mul(WALK_REST)
    }

    /// Has a scan made as soon as walks have rested from the last one.
    pub(crate) fn want_scan(&mut self) {
        let rested = self.scanned.saturating_add(Nanos(self.walk_took.0.saturating_mul(WANTED_REST)));
        self.next_scan = Some(self.next_scan.map_or(rested, |planned| planned.min(rested)));
        self.wanted = true;
    }

    /// How long ago the last scan ended.
    pub(crate) fn last_scan_ago(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.scanned.0))
    }

    /// How long the last walk took, and when it began.
    pub(super) const fn last_walk(&self) -> (Nanos, Nanos) {
        (self.walk_took, Nanos(self.scanned.0.saturating_sub(self.walk_took.0)))
    }

    /// Puts the next scan off by its usual time.
    pub(crate) fn postpone_scan(&mut self, now: Nanos) {
        self.next_scan = Some(now.saturating_add(SCAN_EVERY));
    }

    /// Has a scan made at once: what was told is not all there was to tell.
    pub(crate) fn hasten_scan(&mut self) {
        self.next_scan = Some(Nanos(0));
    }

    /// Plans the next scan: one while anything is near or dying, or entries run out; a late one while there are jobs, which
    /// finds those that have ended; none else. One that is due stays so.
    pub(crate) fn plan_scan(&mut self, now: Nanos) {
        // The first look is due whatever there is.
        if self.inherited {
            return;
        }
        let busy = self.wanted
            || self.crowded
            || self.jobs.are_in_doubt()
            || !self.near.is_empty()
            || self.folds.are_owed()
            || self.watched.values().any(Watch::is_waiting);
        let latest = match busy {
            true => Some(SCAN_EVERY),
            false => self.jobs.any.then_some(JOBS_EVERY),
        };
        let latest = latest.map(|every| now.saturating_add(every));
        match self.next_scan {
            Some(planned) if planned <= now => {}
            Some(planned) => self.next_scan = latest.map(|latest| latest.min(planned)),
            None => self.next_scan = latest,
        }
    }

    /// The state of an account's ladder.
    pub(crate) fn watch(&mut self, whose: Counted, action: Action) -> &mut Watch {
        let watch = self.watched.entry(whose).or_insert_with(|| Watch::new(action));
        watch.action = action;
        watch
    }

    /// Lists the processes of an account into `candidates`, with what protects them.
    pub(crate) fn list_candidates(
        &mut self,
        account: &AccountFacts,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        self.list_spaces(account, context)?;
        context.eligibility.shield.by_cgroup(&mut context.kernel, &mut self.candidates);
        Ok(())
    }

    /// Lists the processes of an account into `candidates` as the programs have them.
    pub(crate) fn list_spaces(
        &mut self,
        account: &AccountFacts,
        context: &Context<K>,
    ) -> Result<(), BpfError> {
        let (own, candidates, shared) = (context.kernel.own_pid(), &mut self.candidates, &mut self.shared);
        let (walk, mut unseen) = (self.walk_number, false);
        let allowance = context.ledger.page_size().to_pages(ALLOWANCE);
        // Nobody hides a hog in a session.
        let bound = Pages(account.hard.0 >> abi::PLIMSOLL_SESSION_SHIFT);
        candidates.clear();
        shared.clear();
        let (weights, memory, groups) = (&mut self.weights, &self.shared_memory, &self.groups);
        weights.begin_list();
        self.limits.address_spaces(|space| {
            // Whoever was asked to end and not told of is taken in by the next look, and ends or is ended from then on.
            if !groups.is_charged(space.account, account)
                || (is_asked_untold(space) && !context.pending.has(space))
            {
                return;
            }
            // Nobody runs in it: there is nobody to signal.
            if !space.dying && space.walk < walk {
                unseen = true;
                return;
            }
            let (weight, never) = weights.list(space);
            let standing = if space.pid == own {
                Standing::Protected(Protection::Daemon)
            } else if space.condemned
                || (space.dying && !context.pending.was_asked(space.pid, space.start_ns))
            {
                // Also who is protected by now, where another that shares its memory was taken: it has a deadline.
                Standing::Dying
            } else if space.protected {
                Standing::Protected(Protection::Executable)
            } else if let Some(protection) = never {
                Standing::Protected(protection)
            } else {
                Standing::Free
            };
            let held = Pages(space.own.0.saturating_add(space.shared.0));
            // Who dies gives back what is its own; what it has from a fork others may have as well.
            let ending = space.dying || space.condemned;
            let others = if ending { space.copied } else { space.shared };
            let in_common = memory.held(space.mm);
            let usage = space.own.saturating_add(others).saturating_add(in_common.pages);
            if space.family != 0 {
                shared.push((candidates.len(), space.family, space.copied));
            }
            let id = VictimId { pid: space.pid, start_ns: space.start_ns };
            candidates.push(Candidate {
                mm: space.mm,
                usage: Reading::Known(usage),
                gives_back: space.own.saturating_add(space.reserved).saturating_add(in_common.part),
                weight,
                tier: if space.session && held <= bound {
                    Tier::Session
                } else {
                    Tier::of(held, space.granted, allowance)
                },
                standing,
                ..Candidate::of(id, space.uid)
            });
        })?;
        self.unseen = unseen;
        self.add_copies(account)
    }

    /// Of what its family is charged, what comes back with each of those listed: as the programs have it (`gives_back`).
    fn add_copies(&mut self, account: &AccountFacts) -> Result<(), BpfError> {
        for (place, family, copied) in self.shared.drain(..) {
            let Some(facts) = self.limits.family(family)? else { continue };
            let is_last = facts.living <= 1 && self.groups.is_charged(facts.account, account);
            let last = if is_last { facts.pages } else { Pages(0) };
            if let Some(one) = self.candidates.get_mut(place) {
                let more = copied.min(facts.copied).0.saturating_add(last.0);
                one.gives_back = Pages(one.gives_back.0.saturating_add(more));
            }
        }
        Ok(())
    }
}
