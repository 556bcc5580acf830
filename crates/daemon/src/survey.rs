//! How much of what forked processes share they have copied: a thread of its own has it read, because the kernel walks
//! their page tables for it.

use crate::{
    guard::{Caller, Request},
    patient::{PATIENCE, PatientReaders},
};
use plimsoll_policy::{
    units::{Nanos, PageSize, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{ProcRoot, ProcessError, clock_monotonic_ns, tick_ns};
use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

/// Processes read in one survey; others come next.
pub(crate) const MEMBERS_MAX: usize = 1024;

/// So long one account's processes are read in one survey; others come next. A page takes 60 ns (6.18).
const SHARE: Nanos = Nanos(100_000_000);

/// One member of a family, as its charge was before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) user: Uid,
    pub(crate) family: u64,
    pub(crate) mm: u64,
    pub(crate) pid: Pid,
    pub(crate) start_ns: u64,
    pub(crate) own: Pages,
}

impl Member {
    const fn id(&self) -> VictimId {
        VictimId { pid: self.pid, start_ns: self.start_ns }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Each member that it came to, and its anonymous and swapped pages, each parted among those who have it; `None`: it did
    /// not let itself be read.
    pub(crate) members: Vec<(Member, Option<Pages>)>,
    /// How long was read, without the waiting for those that did not answer.
    pub(crate) took: Nanos,
}

/// Has surveys made, one at a time.
#[derive(Debug)]
pub(crate) struct Surveyor {
    requests: SyncSender<Vec<Member>>,
}

impl Surveyor {
    /// Starts the thread; it sleeps until it is asked, and tells `caller` what it found.
    pub(crate) fn start(readers: PatientReaders, page_size: PageSize, caller: Caller) -> io::Result<Self> {
        let (requests, queue): (_, Receiver<Vec<Member>>) = sync_channel(1);
        thread::Builder::new().name("surveyor".into()).spawn(move || {
            for members in queue {
                let survey = read(&readers, page_size, members);
                if caller.send(Request::Surveyed(survey)).is_err() {
                    // The guard is busy: it asks again when it has waited long enough.
                }
            }
        })?;
        Ok(Self { requests })
    }

    /// One that answers nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: sync_channel(0).0 }
    }

    /// Asks for a survey; false while one is waiting already.
    pub(crate) fn ask(&self, members: Vec<Member>) -> bool {
        self.requests.try_send(members).is_ok()
    }
}

fn read(readers: &PatientReaders, page_size: PageSize, members: Vec<Member>) -> Survey {
    let mut survey = Survey::default();
    let (mut user, mut spent) = (None, Nanos(0));
    for member in members {
        if user.replace(member.user) != Some(member.user) {
            spent = Nanos(0);
        } else if spent > SHARE {
            continue;
        }
        let id = member.id();
        let began = clock_monotonic_ns();
        let read = move |proc: &mut ProcRoot| Some(proportional(proc, page_size, id));
        let Some(found) = readers.read((id, member.user), PATIENCE, read) else {
            survey.members.push((member, None));
            continue;
        };
        // Who has ended meanwhile is not asked after.
        survey.members.push((member, found.ok()));
        let took = clock_monotonic_ns().saturating_sub(began);
        spent = spent.saturating_add(Nanos(took));
        survey.took = survey.took.saturating_add(Nanos(took));
    }
    survey
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
