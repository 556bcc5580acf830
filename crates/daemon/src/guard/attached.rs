//! The limits programs while they are in force: which accounts are near, when to scan next, who is dying.

use super::hands::{Hands, now};
use plimsoll_policy::{
    account::Action,
    limits::LimitState,
    reading::Reading,
    selection::{Candidate, Protection, Standing},
    units::{Nanos, Pages, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, BpfError, Events, Holder, Limits, Pins};
use std::collections::{BTreeMap, BTreeSet};

/// While an account is near, or somebody is dying, all tasks are walked this often: counters settled exactly, lost exits
/// swept, users that changed without an event followed.
const SCAN_EVERY: Nanos = Nanos(1_000_000_000);

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

/// The programs in force.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) limits: Limits,
    pub(crate) events: Events,
    pub(crate) watched: BTreeMap<Uid, Watch>,
    /// Accounts at or above their soft limit.
    pub(crate) near: BTreeSet<Uid>,
    /// Accounts to decide about again without being asked.
    pub(crate) unfinished: BTreeSet<Uid>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) holders: Vec<Holder>,
    /// Taken over and not looked through yet for what an earlier daemon left dying.
    pub(crate) inherited: bool,
    next_scan: Option<Nanos>,
    scanned: Nanos,
}

impl Attached {
    /// Takes over what is pinned.
    pub(crate) fn adopt(pins: &Pins) -> Result<Self, BpfError> {
        let limits = Limits::open(pins)?;
        let events = limits.events()?;
        Ok(Self {
            limits,
            events,
            watched: BTreeMap::new(),
            near: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            candidates: Vec::with_capacity(CANDIDATES_ROOM),
            holders: Vec::new(),
            inherited: true,
            // The first look tells what an earlier daemon left near or dying.
            next_scan: Some(Nanos(0)),
            scanned: Nanos(0),
        })
    }

    /// When the next scan is due.
    pub(crate) const fn next_scan(&self) -> Option<Nanos> {
        self.next_scan
    }

    /// Walks all tasks now; the holders of dying address spaces are in `holders` then.
    pub(crate) fn scan(&mut self) -> Result<(), BpfError> {
        self.holders.clear();
        let holders = &mut self.holders;
        self.limits.scan(|holder| holders.push(holder))?;
        self.scanned = now();
        Ok(())
    }

    /// How long ago the last scan ended.
    pub(crate) fn last_scan_ago(&self) -> Nanos {
        Nanos(now().0.saturating_sub(self.scanned.0))
    }

    /// Puts the next scan off by its usual time.
    pub(crate) fn postpone_scan(&mut self, now: Nanos) {
        self.next_scan = Some(Nanos(now.0.saturating_add(SCAN_EVERY.0)));
    }

    /// Plans the next scan: one while anything is near or dying, none else.
    pub(crate) fn plan_scan(&mut self, now: Nanos) {
        let busy = !self.near.is_empty() || self.watched.values().any(Watch::is_waiting);
        let due = Nanos(now.0.saturating_add(SCAN_EVERY.0));
        self.next_scan = busy.then(|| self.next_scan.filter(|planned| planned.0 > now.0).unwrap_or(due));
    }

    /// The state of an account's ladder.
    pub(crate) fn watch(&mut self, uid: Uid, action: Action) -> &mut Watch {
        let watch = self.watched.entry(uid).or_insert_with(|| Watch::new(action));
        watch.action = action;
        watch
    }

    /// Lists the processes of an account into `candidates`.
    pub(crate) fn list_candidates(
        &mut self,
        account: &AccountFacts,
        hands: &mut Hands<'_>,
    ) -> Result<(), BpfError> {
        let (own, candidates) = (std::process::id(), &mut self.candidates);
        candidates.clear();
        self.limits.address_spaces(|space| {
            if space.account != account.index {
                return;
            }
            let standing = if space.pid.0 == own {
                Standing::Protected(Protection::Daemon)
            } else if space.protected {
                Standing::Protected(Protection::Executable)
            } else if space.expired || (space.dying && !hands.flights.was_asked(space.pid, space.start_ns)) {
                Standing::Dying
            } else {
                Standing::Free
            };
            let usage = Pages(space.own.0.saturating_add(space.shared.0));
            candidates.push(Candidate {
                pid: space.pid,
                start_ns: space.start_ns,
                uid: space.uid,
                mm: space.mm,
                usage: Reading::Known(usage),
                standing,
            });
        })?;
        hands.shield.by_cgroup(hands.proc, &mut self.candidates);
        Ok(())
    }
}
