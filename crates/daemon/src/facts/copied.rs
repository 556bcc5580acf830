//! How much of what forked processes share they have copied: read off the guard thread, because the kernel walks their page
//! tables for it.

use super::patient::{self, PatientReaders, Unread};
use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::{
    units::{Nanos, PageSize, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{ProcRoot, ProcessError, clock_monotonic_ns, tick_ns};
use std::{collections::BTreeMap, time::Duration};

/// Processes read in one survey; others come next.
pub(crate) const MEMBERS_MAX: usize = 1024;

/// So long one account's processes are read in one survey, those among them that do not answer; others come next. A page takes
/// 60 ns (6.18).
const SHARE: Nanos = Nanos(100_000_000);

/// What was found is told this often while others are read.
const PART: Nanos = Nanos(50_000_000);

/// So long one survey takes, and one waiting more; accounts that it did not come to are first in the next.
const IN_ALL: Nanos = Nanos(1_000_000_000);

/// So long one process is read: others wait meanwhile. Whoever took longer once has [`patient::PATIENCE`].
const PATIENCE: Duration = Duration::from_millis(100);

/// One member of a family, as its charge was before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) user: Uid,
    pub(crate) family: u64,
    pub(crate) mm: u64,
    pub(crate) pid: Pid,
    pub(crate) start_ns: u64,
    pub(crate) own: Pages,
    /// It did not answer in time once.
    pub(crate) is_slow: bool,
}

impl Member {
    const fn id(&self) -> VictimId {
        VictimId { pid: self.pid, start_ns: self.start_ns }
    }
}

/// A part of what was found, of whole accounts.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// When it was asked for.
    pub(crate) asked: Nanos,
    /// Nothing more comes of it.
    pub(crate) is_last: bool,
    /// Each member that it came to, and its anonymous and swapped pages, each parted among those who have it; `None`: it did
    /// not let itself be read.
    pub(crate) members: Vec<(Member, Option<Pages>)>,
    /// How long it took for each account.
    pub(crate) spent: BTreeMap<Uid, Spent>,
}

/// How long a survey took.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) reading: Nanos,
    /// For those that did not answer.
    pub(crate) waiting: Nanos,
}

/// Has surveys made, one at a time.
#[derive(Debug)]
pub(crate) struct CopiedReader {
    /// When each was asked for, and whose processes are read, those of each account together.
    requests: Lane<(Nanos, Vec<Member>)>,
}

impl CopiedReader {
    /// Has `tell` told what was found.
    pub(crate) fn new(
        offload: &Offload,
        readers: PatientReaders,
        page_size: PageSize,
        tell: impl Fn(Survey) + Send + 'static,
    ) -> Self {
        let requests = offload.lane(Haste::Ordinary, 1, move |(asked, members)| {
            read(&readers, page_size, asked, members, &tell);
        });
        Self { requests }
    }

    /// One that answers nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed() }
    }

    /// Asks for a survey; false while one is waiting already.
    pub(crate) fn ask(&self, asked: Nanos, members: Vec<Member>) -> bool {
        self.requests.hand((asked, members))
    }
}

fn read(
    readers: &PatientReaders,
    page_size: PageSize,
    asked: Nanos,
    members: Vec<Member>,
    tell: impl Fn(Survey),
) {
    let mut survey = Survey { asked, ..Survey::default() };
    let mut told = clock_monotonic_ns();
    let end = told.saturating_add(IN_ALL.0);
    for member in members {
        let began = clock_monotonic_ns();
        if began > end {
            break;
        }
        if began.saturating_sub(told) > PART.0 && !survey.spent.contains_key(&member.user) {
            tell(core::mem::replace(&mut survey, Survey { asked, ..Survey::default() }));
            told = began;
        }
        let spent = survey.spent.entry(member.user).or_default();
        if spent.reading.saturating_add(spent.waiting) > SHARE {
            continue;
        }
        let id = member.id();
        let read = move |proc: &mut ProcRoot| Some(proportional(proc, page_size, id));
        let patience = if member.is_slow { patient::PATIENCE } else { PATIENCE };
        let found = readers.read_whoever(id, member.user, patience, read);
        let took = Nanos(clock_monotonic_ns().saturating_sub(began));
        match found {
            Ok(found) => {
                spent.reading = spent.reading.saturating_add(took);
                // Who has ended meanwhile is not asked after.
                survey.members.push((member, found.ok()));
            }
            Err(Unread::Hindered) => {
                spent.waiting = spent.waiting.saturating_add(took);
                survey.members.push((member, None));
            }
            // As one that it did not come to.
            Err(Unread::Crowded) => {}
        }
    }
    tell(Survey { is_last: true, ..survey });
}

fn proportional(proc: &mut ProcRoot, page_size: PageSize, id: VictimId) -> Result<Pages, ProcessError> {
    let rollup = proc.smaps_rollup(id.pid)?;
    // After the reading: a process that started by then cannot have been what was read.
    let start_ns = proc.start_ticks(id.pid)?.saturating_mul(tick_ns());
    if start_ns != id.start_ns.saturating_sub(id.start_ns.checked_rem(tick_ns()).unwrap_or_default()) {
        return Err(ProcessError::Vanished(id.pid));
    }
    // It has no memory any more.
    let rollup = rollup.ok_or(ProcessError::Vanished(id.pid))?;
    let anonymous = rollup.proportional_anonymous.ok_or(ProcessError::Vanished(id.pid))?;
    let swapped = rollup.proportional_swap.unwrap_or_default();
    Ok(Pages(page_size.to_pages(anonymous).0.saturating_add(page_size.to_pages(swapped).0)))
}
