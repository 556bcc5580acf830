//! The working set, kept in memory: files opened by their inodes alone, their cached pages mapped and locked.
//!
//! [`Mounts`] finds the mount of a device and holds it by a private clone, so that nobody's `umount` is held up;
//! a [`Way`] opens a file on it, once it is sure that this disturbs nobody; a [`HotFile`] locks chunks of it in one of
//! the two tiers of [`Locks`]; the soft one is let go as a whole by one call, from any thread. Nothing is read from the
//! disk for it: what is in the page cache is locked, what comes in later is locked by [`HotFile::capture`].
//! No lock outlives the process.
//!
//! Opening can wait for a disk, or for a scanner that has to permit it: for a thread that nobody waits for. What it needs:
//!
//! | Capability | For |
//! | --- | --- |
//! | `CAP_DAC_READ_SEARCH` | `open_by_handle_at(2)` |
//! | `CAP_SYS_ADMIN` | private clones of mounts, `/proc/self/pagemap` and `/proc/kpagecgroup` with their numbers |
//! | `CAP_IPC_LOCK` | locking more than `RLIMIT_MEMLOCK` |
//! | `CAP_DAC_OVERRIDE` | `mincore(2)` on files of other owners, which otherwise calls every page resident |
//! | `CAP_SYS_PTRACE`, `CAP_SYS_CHROOT` | mounts of other mount namespaces alone; without, these are refused |

mod anonymous;
mod arena;
mod clone;
mod file;
mod foreign;
mod handle;
mod knobs;
mod lru_gen;
mod mapped;
mod mounts;
mod open;
mod owners;
mod refusal;

pub use anonymous::{SwapHold, SwapKnobs};
pub use arena::{Locks, SoftRelease};
pub use file::HotFile;
pub use knobs::{KnobError, PutBack, Undo, plan as plan_knob, read as read_knob, write as write_knob};
pub use lru_gen::LruGen;
pub use mounts::{Mounts, Refreshed};
pub use open::Way;
pub use owners::{Charged, Limited, Owners, Sampling};
pub use refusal::Refusal;

#[cfg(test)]
mod testing;
