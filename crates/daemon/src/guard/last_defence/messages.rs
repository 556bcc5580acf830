//! What the guard and the worker of the last defence tell each other.

use plimsoll_policy::{
    account::Action,
    last_defence::{LastDefenceConfig, MemoryMaxState, ranking::COMPARED_MAX},
    lines::NO_LINE,
    reason::Reason,
    selection::{self, Candidate},
    units::{Bytes, PageSize, Pages, Uid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::bpf::AccountFacts;
use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU32, Ordering},
};

/// A line as the last defence needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineFacts {
    pub(crate) uid: Uid,
    /// The hard limit.
    pub(crate) hard: Bytes,
    /// The line in force; `None` while it is open.
    pub(crate) effective: Option<Bytes>,
    pub(crate) action: Action,
}

impl LineFacts {
    /// Of an account as the programs have it; `None`: of no user, or without a line.
    pub(crate) fn new(account: &AccountFacts, page_size: PageSize) -> Option<Self> {
        let uid = account.whose.user().filter(|_| account.hard != NO_LINE)?;
        Some(Self {
            uid,
            hard: page_size.to_bytes(account.hard),
            effective: account.effective.map(|pages| page_size.to_bytes(pages)),
            action: Action::of(Signal::numbered(account.signal)),
        })
    }
}

/// One of the largest processes of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Large {
    pub(crate) id: VictimId,
    pub(crate) usage: Pages,
    pub(crate) protected: bool,
}

/// An account that is near.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearFacts {
    pub(crate) line: LineFacts,
    /// Its largest processes.
    pub(crate) largest: [Option<Large>; COMPARED_MAX],
}

impl NearFacts {
    /// Of candidates that are sorted, the largest first. Allocates nothing.
    pub(crate) fn new(line: LineFacts, candidates: &[Candidate]) -> Self {
        let mut largest = [None; COMPARED_MAX];
        let known = candidates.iter().filter_map(|one| Some((one, one.usage.latest()?)));
        let living = known.filter(|(one, _)| one.standing != selection::Standing::Dying);
        for (place, (one, usage)) in largest.iter_mut().zip(living) {
            let protected = matches!(one.standing, selection::Standing::Protected(_));
            *place = Some(Large { id: one.id(), usage, protected });
        }
        Self { line, largest }
    }
}

/// What the guard tells the worker.
#[derive(Debug)]
pub(super) enum Message {
    /// These are all lines there are.
    Lines(Vec<LineFacts>),
    Near(Box<NearFacts>),
    Far(Uid),
    Configure(LastDefenceConfig),
    /// The end; whether everything is put back.
    Stop {
        undo: bool,
    },
}

/// What the worker tells the guard: the kernel's own OOM killer took somebody of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrangedKill {
    pub(crate) uid: Uid,
    pub(crate) reason: Reason,
    /// Who, and what it was charged when last looked at; `None`: the kernel's counters do not tell.
    pub(crate) victim: Option<(VictimId, Pages)>,
}

/// What is in force, for `status`: written by the worker, read by the guard, without a lock.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory_max: AtomicU8,
    pub(super) slices: AtomicU32,
    pub(super) raised: AtomicU32,
}

const STATES: [MemoryMaxState; 4] = [
    MemoryMaxState::Possible,
    MemoryMaxState::NoSystemd,
    MemoryMaxState::NoController,
    MemoryMaxState::NoAnswer,
];

impl Shared {
    pub(super) fn set_memory_max(&self, state: MemoryMaxState) {
        let index = STATES.iter().position(|one| *one == state).and_then(|index| u8::try_from(index).ok());
        self.memory_max.store(index.unwrap_or(u8::MAX), Ordering::Relaxed);
    }

    pub(super) fn memory_max(&self) -> MemoryMaxState {
        let index = usize::from(self.memory_max.load(Ordering::Relaxed));
        STATES.get(index).copied().unwrap_or(MemoryMaxState::NoAnswer)
    }
}

/// Whether anything is arranged now, for another thread to know.
#[derive(Debug, Clone)]
pub(crate) struct Arrangements(pub(super) Arc<Shared>);

impl Arrangements {
    /// So that a kill of the kernel's may be one.
    pub(crate) fn any(&self) -> bool {
        self.0.slices.load(Ordering::Relaxed) > 0 || self.0.raised.load(Ordering::Relaxed) > 0
    }
}
