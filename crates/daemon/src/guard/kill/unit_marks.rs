//! Tells the service manager of kills in its units, by marks on their cgroups ([`plimsoll_sys::cgroup`]). They are set off the
//! guard thread, in the order in which that was asked, because whoever lists or changes a cgroup's folder holds that up for as
//! long as they like.

use crate::offload::{Haste, Lane, Offload};
use plimsoll_sys::cgroup::{Cgroup, CgroupRoot};
use std::{
    cell::RefCell,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    time::Duration,
};

/// Marks that can wait their turn.
const QUEUE_MAX: usize = 16;

/// How long the guard waits for a mark: as a rule that takes some fifty microseconds.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the service manager is told of a unit.
#[derive(Debug, Clone)]
pub(crate) struct UnitMark {
    /// A cgroup of the unit.
    pub(crate) cgroup: Vec<u8>,
    /// Only where this cgroup is all of the unit.
    pub(crate) whole: bool,
    /// How many were killed; `None`: a kill begins.
    pub(crate) killed: Option<u64>,
}

/// Sets one mark, and may take as long as the kernel likes.
type Marker = dyn FnMut(&UnitMark) + Send;

/// Has units marked.
#[derive(Debug)]
pub(crate) struct UnitMarks {
    asked: Lane<(UnitMark, SyncSender<()>)>,
    /// The one that the guard waited for in vain last: until it is set, nobody waits for another.
    late: RefCell<Option<Receiver<()>>>,
    patience: Duration,
}

impl UnitMarks {
    pub(crate) fn new(offload: &Offload) -> Self {
        // Held: to look for it among the mounts waits for whoever mounts.
        let mut root = CgroupRoot::open().ok();
        Self::with(offload, Box::new(move |unit| mark(&mut root, unit)), PATIENCE)
    }

    fn with(offload: &Offload, mut marker: Box<Marker>, patience: Duration) -> Self {
        // Behind the reapers and what is dying it would be set when the victim is gone.
        let asked = offload.lane(Haste::Urgent, QUEUE_MAX, move |(unit, heard): (_, SyncSender<()>)| {
            marker(&unit);
            // Whoever asked may not be waiting any more.
            heard.try_send(()).ok();
        });
        Self { asked, late: RefCell::default(), patience }
    }

    /// One that marks nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { asked: Lane::closed(), late: RefCell::default(), patience: PATIENCE }
    }

    /// Has a unit marked; that a kill begins is waited for. Whether the service manager is told in time: who is to be killed
    /// is killed, marked or not.
    pub(crate) fn set(&self, unit: UnitMark) -> bool {
        let (heard, marked) = sync_channel(1);
        let begins = unit.killed.is_none();
        if !self.asked.hand((unit, heard)) {
            return false;
        }
        if !begins {
            return true;
        }
        let mut late = self.late.borrow_mut();
        if late.as_ref().is_some_and(|earlier| earlier.try_recv() == Err(TryRecvError::Empty)) {
            return false;
        }
        *late = None;
        match marked.recv_timeout(self.patience) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                *late = Some(marked);
                false
            }
        }
    }
}

fn mark(root: &mut Option<CgroupRoot>, unit: &UnitMark) {
    if root.is_none() {
        *root = CgroupRoot::open().ok();
    }
    if let Some(root) = root
        && let Ok(own) = root.cgroup(&unit.cgroup)
    {
        mark_unit_of(root, &own, unit.whole, unit.killed);
    }
}

/// As [`UnitMark`] says, for a cgroup that is held.
pub(crate) fn mark_unit_of(root: &CgroupRoot, own: &Cgroup, whole: bool, killed: Option<u64>) {
    let unit = root.unit_of(own).ok().flatten().filter(|unit| !whole || unit.id() == own.id());
    let marked = unit.map(|unit| match killed {
        None => unit.note_oom_kill_begins(),
        Some(processes) => unit.note_oom_kill(processes),
    });
    if let Some(Err(_)) = marked {
        // The unit has gone, or somebody wrote something else there: the result will be `signal`, as without us.
    }
}

#[cfg(test)]
mod tests;
