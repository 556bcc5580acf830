//! Moves pages that are not in use to swap before memory runs out: off the guard thread, because it takes as long as the disk
//! does.

use crate::{
    facts::patient::PatientReaders,
    journal::Journal,
    offload::{Haste, Lane, Offload},
};
use plimsoll_policy::{
    human::bytes,
    units::{Bytes, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{CgroupErrorKind, CgroupRoot, ReclaimOrder},
    process::{PageOut, PageOutOrder, PidFd, ProcRoot, Process, page_size},
};
use std::{collections::BTreeMap, time::Duration};

/// How long one asking may take: the guard asks every 2 s.
const BUDGET: Duration = Duration::from_secs(2);

/// As `memory.reclaim` takes it where it does (6.12 and later): the most there is, anonymous pages before those of files.
const ANONYMOUS_FIRST: u8 = 200;

/// How long one process is waited for: its last batch is begun within the budget, and takes as long as the disk does.
const PROCESS_PATIENCE: Duration = Duration::from_secs(5);

/// Whoever has less is not worth the walk over their mappings.
const WORTH_BYTES: Bytes = Bytes(16 << 20);

/// Processes paged out at one asking.
const PROCESSES_MAX: usize = 8;

/// Has memory reclaimed, one asking at a time.
#[derive(Debug)]
pub(crate) struct Reclaimer {
    requests: Lane<Bytes>,
}

impl Reclaimer {
    /// Tells the journal what came of it.
    pub(crate) fn new(
        offload: &Offload,
        mut proc: ProcRoot,
        readers: PatientReaders,
        journal: Journal,
    ) -> Self {
        let mut idle = Idle { seen: BTreeMap::new(), readers };
        let requests = offload.lane(Haste::Ordinary, 1, move |asked| {
            journal.line(reclaim(asked, &mut proc, &mut idle));
        });
        Self { requests }
    }

    /// One that does nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed() }
    }

    /// Asks for so much; false while it is still busy with what was asked before. Never waits.
    pub(crate) fn ask(&self, bytes: Bytes) -> bool {
        self.requests.hand(bytes)
    }
}

/// What came of it, in words.
fn reclaim(asked: Bytes, proc: &mut ProcRoot, idle: &mut Idle) -> String {
    match of_all(asked) {
        Ok(freed) => format!("memory runs short: {} of the least used pages were reclaimed", bytes(freed)),
        Err(why) => match idle.page_out(proc, asked) {
            Some((0, _)) | None => format!("memory runs short, and nothing was reclaimed: {why}"),
            Some((count, freed)) => format!(
                "memory runs short: {} of {count} idle processes were moved to swap ({why})",
                bytes(freed)
            ),
        },
    }
}

/// The kernel's own choice among all pages (`memory.reclaim` of the root cgroup).
fn of_all(asked: Bytes) -> Result<Bytes, String> {
    let told = |error: plimsoll_sys::cgroup::CgroupError| error.to_string();
    let root = CgroupRoot::open().and_then(|root| root.cgroup(b"/")).map_err(told)?;
    // Page cache counts as available already: giving it up makes no room.
    let order = ReclaimOrder { bytes: asked, swappiness: Some(ANONYMOUS_FIRST), budget: BUDGET };
    let done = match root.reclaim(&order) {
        Err(error) if matches!(error.kind, CgroupErrorKind::Unsupported(_)) => {
            root.reclaim(&ReclaimOrder { swappiness: None, ..order })
        }
        done => done,
    };
    done.map(|done| done.freed).map_err(told)
}

/// Who used no processor time between two askings.
#[derive(Debug)]
struct Idle {
    seen: BTreeMap<Pid, (u64, u64)>,
    readers: PatientReaders,
}

impl Idle {
    /// Moves the largest idle processes to swap: how many, and how much of them. `None`: there is no list of processes.
    fn page_out(&mut self, proc: &mut ProcRoot, asked: Bytes) -> Option<(usize, Bytes)> {
        let mut left = asked;
        let mut count = 0_usize;
        for (process, user) in self.largest(proc)? {
            if left == Bytes(0) || count == PROCESSES_MAX {
                break;
            }
            // One that cannot be paged out leaves it to the next.
            let Some(done) = self.page_out_one(process, user, left) else {
                continue;
            };
            let before = done.before.latest().map(|memory| memory.anonymous).unwrap_or_default();
            let after = done.after.latest().map(|memory| memory.anonymous).unwrap_or(before);
            let moved = page_size().to_bytes(before.saturating_sub(after));
            left = left.saturating_sub(moved);
            count = count.saturating_add(usize::from(moved > Bytes(0)));
        }
        Some((count, asked.saturating_sub(left)))
    }

    fn page_out_one(&self, id: VictimId, user: Uid, bytes: Bytes) -> Option<PageOut> {
        let page_out = move |proc: &mut ProcRoot| {
            let pidfd = PidFd::open_verified(proc, id.pid, id.start_ns).ok()?;
            proc.page_out(&pidfd, &PageOutOrder { bytes, budget: BUDGET / 8 }).ok()
        };
        self.readers.read(id, user, PROCESS_PATIENCE, page_out)
    }

    /// Those who were there at the last asking and have not run since, the largest first.
    fn largest(&mut self, proc: &mut ProcRoot) -> Option<Vec<(VictimId, Uid)>> {
        let mut now = BTreeMap::new();
        let mut idle = Vec::new();
        let worth = page_size().to_pages(WORTH_BYTES);
        proc.processes(|process| {
            let Some(resident) = resident(process).filter(|resident| *resident >= worth.0) else {
                return;
            };
            let ran = (process.start_ns, process.cpu_ticks);
            if self.seen.get(&process.pid) == Some(&ran) {
                let id = VictimId { pid: process.pid, start_ns: process.start_ns };
                idle.push((resident, id, process.uid));
            }
            now.insert(process.pid, ran);
        })
        .ok()?;
        self.seen = now;
        idle.sort_unstable_by(|a, b| b.cmp(a));
        Some(idle.into_iter().map(|(_, id, user)| (id, user)).collect())
    }
}

/// What could go to swap.
fn resident(process: &Process) -> Option<u64> {
    let dying = process.dying || process.pid == Pid(std::process::id());
    process.memory.known().filter(|_| !dying).map(|memory| memory.anonymous.0)
}

#[cfg(test)]
mod tests;
