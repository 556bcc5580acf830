//! To make a cgroup give memory back without killing anything: `memory.reclaim`.

use super::{Cgroup, CgroupError, CgroupErrorKind};
use crate::process::clock_monotonic_ns;
use plimsoll_policy::units::Bytes;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, write},
};
use std::{os::fd::OwnedFd, time::Duration};

/// What the kernel is asked for at a time, in bytes: between two askings the budget is looked at.
pub const RECLAIM_STEP_BYTES: u64 = 16 << 20;

/// The longest line: 20 digits, ` swappiness=` and 3 digits.
const LINE_BYTES: usize = 48;

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ReclaimOrder {
    /// How much to ask for.
    pub bytes: Bytes,
    /// How readily to swap, from 0 (page cache only) to 200, where the kernel can be told (6.12 can, 6.1 cannot);
    /// `None` leaves it to the kernel.
    pub swappiness: Option<u8>,
    /// No new step is begun after this. One step can take long when the disk is slow.
    pub budget: Duration,
}

/// Why reclaim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimEnd {
    /// The kernel says that all that was asked for was freed.
    Whole,
    /// The kernel found less than a step's worth (`EAGAIN`): there is nothing left that it would take.
    Exhausted,
    /// The budget was used up, or a signal came.
    Stopped,
}

/// What reclaim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// Why it ended.
    pub end: ReclaimEnd,
    /// Of what was asked for, what the kernel says it freed, to the step: the last step may have freed a part more.
    pub freed: Bytes,
}

impl Cgroup {
    /// Makes the kernel reclaim from a cgroup and those below it, in steps. Works in the caller's time, as slowly
    /// as the disk is: for a thread that may wait, never for the one that guards. The kernel may free more than it
    /// was asked for: asked for 48 MiB of 68, 6.12 and 7.2 freed 48, 6.1 freed 61.
    ///
    /// # Errors
    /// [`CgroupErrorKind::Unsupported`] without `memory.reclaim`, or with a `swappiness` that this kernel does not
    /// know; otherwise by what the kernel says.
    pub fn reclaim(&self, order: &ReclaimOrder) -> Result<Reclaim, CgroupError> {
        self.check_there()?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(self.dir(), c"memory.reclaim", flags, Mode::empty()).map_err(|errno| match errno {
                Errno::NOENT => self.lacks("there is no memory.reclaim here: no memory controller"),
                other => self.failed("open memory.reclaim", other),
            })?;
        let budget_ns = u64::try_from(order.budget.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = clock_monotonic_ns().saturating_add(budget_ns);
        let mut freed = 0_u64;
        let end = loop {
            let left = order.bytes.0.saturating_sub(freed);
            if left == 0 {
                break ReclaimEnd::Whole;
            }
            if clock_monotonic_ns() >= end_ns {
                break ReclaimEnd::Stopped;
            }
            let step = left.min(RECLAIM_STEP_BYTES);
            match ask(&file, step, order.swappiness) {
                Ok(()) => freed = freed.saturating_add(step),
                Err(Errno::AGAIN) => break ReclaimEnd::Exhausted,
                Err(Errno::INTR) => break ReclaimEnd::Stopped,
                Err(Errno::INVAL) if order.swappiness.is_some() => {
                    return Err(self.lacks("memory.reclaim takes no such swappiness here"));
                }
                Err(errno) => return Err(self.failed("reclaim memory", errno)),
            }
        };
        Ok(Reclaim { end, freed: Bytes(freed) })
    }

    fn lacks(&self, what: &'static str) -> CgroupError {
        CgroupError::new("reclaim memory", self.path(), CgroupErrorKind::Unsupported(what))
    }
}

fn ask(file: &OwnedFd, bytes: u64, swappiness: Option<u8>) -> Result<(), Errno> {
    use std::io::Write as _;
    let mut line = [0; LINE_BYTES];
    let mut rest = line.as_mut_slice();
    match swappiness {
        Some(swappiness) => write!(rest, "{bytes} swappiness={swappiness}"),
        None => write!(rest, "{bytes}"),
    }
    .map_err(|_full| Errno::NAMETOOLONG)?;
    let left = rest.len();
    let used = line.len().saturating_sub(left);
    write(file, line.get(..used).unwrap_or(&[])).map(drop)
}

#[cfg(test)]
mod tests;
