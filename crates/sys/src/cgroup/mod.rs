//! Cgroups as what is killed together, marked by their owners, and pushed out: cgroup v2 only, but for [`MemoryCgroup`], which
//! is read in either version.
//!
//! A [`Cgroup`] is held by descriptor and told from others by its [`CgroupId`]: one that was removed and made again
//! by the same name is another one, and what is held says [`CgroupErrorKind::Gone`]. A path is resolved below the
//! tree's root name by name, without leaving it, without links and without crossing mounts, so that no path that
//! somebody else sent can name anything but a cgroup (systemd-oomd took such a path as it came: CVE-2026-15059).
//!
//! Nothing here decides. What may be killed is asked of the caller as numbers to spare; what must never be killed
//! ([`Refusal`]) is refused here, whoever asks.

mod error;
mod handle;
mod kill;
mod mark;
mod members;
mod memory;
mod mounts;
mod read;
mod reclaim;
mod root;
mod scope;

pub use error::{CgroupError, CgroupErrorKind, Refusal};
pub use handle::CgroupId;
pub(crate) use handle::open_by_id;
pub use kill::{Held, KILL_HELD_MAX, KILL_PROCESSES_MAX, KillMeans, KillOrders, Killed, Killer, Spares};
pub use mark::{Marks, SetBy};
pub use memory::{MemoryCgroup, Programs};
pub(crate) use mounts::{CgroupMount, has_memory};
pub use reclaim::{RECLAIM_STEP_BYTES, Reclaim, ReclaimEnd, ReclaimOrder};
pub use root::{Cgroup, CgroupRoot};

#[cfg(test)]
mod testing;
