//! Ends the cgroup of a victim: off the guard thread, because the kernel makes whoever kills a cgroup wait for others that
//! change the tree of cgroups, and one with somebody to spare in it takes up to a second. Few at a time, for most of such a
//! wait is for one lock of the kernel.

use super::unit_marks::{UnitMarks, mark_unit_of};
use crate::{
    facts::cgroups::{Group, mark_in},
    guard::selection::eligibility::Eligibility,
    journal::Journal,
    offload::{Haste, Lane, Offload},
};
use plimsoll_policy::{
    human::escaped,
    selection::Standing,
    units::{Nanos, Pid},
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{CgroupError, CgroupRoot, KillOrders, Killer},
    process::{HeldFolder, Portrait, ProcRoot, ProcessError, ReaperHandle, clock_monotonic_ns},
};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    time::Duration,
};

pub(crate) use super::unit_marks::UnitMark;

/// Cgroups that can wait their turn.
const QUEUE_MAX: usize = 16;

/// Cgroups that are ended at the same time.
const LANES: usize = 3;

/// How many of the largest processes go to the reaper; the others free their memory themselves.
const HELD_MAX: usize = 16;

/// How long to go on signalling one by one, where somebody is spared or the kernel cannot kill them together.
const PATIENCE: Duration = Duration::from_secs(1);

/// An order this old is not carried out: the cgroup may have been made again, or the shortage be over.
const ORDER_AGE_MAX: Nanos = Nanos(2_000_000_000);

/// A cgroup that is to end.
#[derive(Debug)]
pub(crate) struct Order {
    /// Which.
    pub(crate) cgroup: Group,
    /// When that was decided.
    pub(crate) ordered: Nanos,
    /// Who in it lives on.
    pub(crate) eligibility: Eligibility,
    /// Only says what would be done.
    pub(crate) dry_run: bool,
}

/// Has cgroups ended.
#[derive(Debug)]
pub(crate) struct CgroupKiller {
    orders: SyncSender<Order>,
    /// Each takes the next order, whichever that is: one that is held up holds up no order but its own.
    lanes: Vec<Lane<()>>,
    marks: UnitMarks,
    /// Orders that are not carried out yet.
    waiting: Arc<AtomicUsize>,
}

impl CgroupKiller {
    /// Tells the journal what came of each order.
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub(crate) fn new(
        offload: &Offload,
        journal: &Journal,
        reaper: &ReaperHandle,
    ) -> Result<Self, ProcessError> {
        let (orders, queue) = sync_channel(QUEUE_MAX);
        let (queue, waiting) = (Arc::new(Mutex::new(queue)), Arc::new(AtomicUsize::new(0)));
        let lane = |_| {
            let proc = ProcRoot::open(Path::new("/proc"))?;
            let mut hand = Hand { killer: Killer::new(), proc, reaper: reaper.clone() };
            let (queue, done, journal) = (Arc::clone(&queue), Arc::clone(&waiting), journal.clone());
            let next = move || queue.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
            Ok(offload.lane(Haste::Ordinary, QUEUE_MAX, move |()| {
                if let Ok(order) = next() {
                    journal.line(told(&order, hand.end(&order)));
                    done.fetch_sub(1, Ordering::Release);
                }
            }))
        };
        let lanes = (0..LANES).map(lane).collect::<Result<_, _>>()?;
        Ok(Self { orders, lanes, marks: UnitMarks::new(offload), waiting })
    }

    /// One that ends nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        let lanes = Vec::new();
        Self { orders: sync_channel(0).0, lanes, marks: UnitMarks::mute(), waiting: Arc::default() }
    }

    /// As if an order were being carried out, or not any more.
    #[cfg(test)]
    pub(crate) fn occupy(&self, busy: bool) {
        self.waiting.store(usize::from(busy), Ordering::Release);
    }

    /// Gives an order; false where there is no room for it. Never waits.
    pub(crate) fn order(&self, order: Order) -> bool {
        self.waiting.fetch_add(1, Ordering::Release);
        let taken = self.orders.try_send(order).is_ok();
        if taken {
            for lane in &self.lanes {
                // One without room has as many to look for already.
                let _is_told = lane.hand(());
            }
        } else {
            self.waiting.fetch_sub(1, Ordering::Release);
        }
        taken
    }

    /// Whether some orders are not carried out yet.
    pub(crate) fn busy(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Has a unit marked, so that the service manager does not take its end for a crash. Waits for 20 ms at most, and not
    /// at all while an earlier one is held up: who is to be killed is killed, marked or not. Whether it is told in time.
    pub(crate) fn mark(&self, unit: UnitMark) -> bool {
        self.marks.set(unit)
    }
}

fn told(order: &Order, ended: Result<Ended, String>) -> String {
    let cgroup = escaped(&String::from_utf8_lossy(&order.cgroup.path));
    match ended {
        Ok(Ended { processes, spared, .. }) if order.dry_run => {
            format!(
                "dry run: would have killed {processes} processes of cgroup {cgroup}, {spared} of it spared"
            )
        }
        Ok(Ended { processes, spared, took }) => format!(
            "killed {processes} processes of cgroup {cgroup} with the victim, {spared} of it spared, in {} us",
            took.0 / 1000
        ),
        Err(error) => format!("cgroup {cgroup} was not killed with its victim: {error}"),
    }
}

struct Ended {
    processes: u64,
    spared: u64,
    took: Nanos,
}

/// What one thread ends cgroups with.
struct Hand {
    killer: Killer,
    proc: ProcRoot,
    reaper: ReaperHandle,
}

impl Hand {
    fn end(&mut self, order: &Order) -> Result<Ended, String> {
        let failed = |error: CgroupError| error.to_string();
        let began = clock_monotonic_ns();
        if began.saturating_sub(order.ordered.0) > ORDER_AGE_MAX.0 {
            return Err("that was decided too long ago".to_owned());
        }
        let root = CgroupRoot::open().map_err(failed)?;
        let cgroup = root.cgroup(&order.cgroup.path).map_err(failed)?;
        if cgroup.id() != order.cgroup.id {
            return Err("it was made again meanwhile".to_owned());
        }
        let orders = KillOrders {
            reaper: Some(&self.reaper),
            hold: HELD_MAX,
            patience: PATIENCE,
            dry_run: order.dry_run,
        };
        let mut portrait = Portrait::default();
        let mut spares =
            |proc: &mut ProcRoot, pid| spares(&root, proc, pid, &order.eligibility, &mut portrait);
        let killed = self.killer.kill(&cgroup, &mut self.proc, &orders, &mut spares).map_err(failed)?;
        let took = Nanos(clock_monotonic_ns().saturating_sub(began));
        if !order.dry_run {
            // The guard has had it noted that this begins.
            mark_unit_of(&root, &cgroup, true, Some(killed.processes));
        }
        Ok(Ended { processes: killed.processes, spared: killed.spared, took })
    }
}

/// Whether somebody in a cgroup is never selected. Whoever cannot be looked at is taken for one of these.
fn spares(
    root: &CgroupRoot,
    proc: &mut ProcRoot,
    pid: Pid,
    eligibility: &Eligibility,
    portrait: &mut Portrait,
) -> bool {
    let portrayed = proc.process(pid).and_then(|process| {
        let held = HeldFolder::open(proc, VictimId { pid, start_ns: process.start_ns })?;
        held.portray(None, portrait)?;
        Ok(process)
    });
    match portrayed {
        Ok(process) => match portrait.cgroup().map(|path| mark_in(root, path)).transpose() {
            Ok(mark) => {
                matches!(eligibility.standing(&process, portrait, mark.flatten()), Standing::Protected(_))
            }
            Err(_) => true,
        },
        Err(ProcessError::Vanished(_)) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
