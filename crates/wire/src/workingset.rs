//! What the working-set programs tell: uses of the page cache, files that are executed, events of the floor; and what they are
//! told. Checked before anything believes it.

mod floor;

pub use floor::{FLOOR_BYTES, FloorCounts, FloorSettings, VICTIMS_MAX};

use crate::abi;
use core::mem::offset_of;
use plimsoll_policy::{
    units::{Nanos, Pages, Pid},
    victim::VictimId,
    workingset::{BLOCK_PAGES, Barred, Blocks, CHUNK_PAGES, ChunkId, FileId, Use},
};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// Bytes of a use's key, and of its counts.
pub const CHUNK_BYTES: usize = size_of::<abi::plimsoll_chunk>();
/// As [`CHUNK_BYTES`].
pub const USE_BYTES: usize = size_of::<abi::plimsoll_use>();
/// Bytes of a file.
pub const FILE_BYTES: usize = size_of::<abi::plimsoll_file>();
/// Bytes of an event.
pub const EVENT_BYTES: usize = size_of::<abi::plimsoll_workingset_record>();

const _: () =
    assert!(CHUNK_PAGES == 1 << abi::PLIMSOLL_CHUNK_SHIFT && BLOCK_PAGES == 1 << abi::PLIMSOLL_BLOCK_SHIFT);

/// File systems whose files are held: on a disk of this machine, never waiting for anybody else (include/uapi/linux/magic.h,
/// `f2fs` from its own header).
const HELD: [u32; 6] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
];

/// Bytes that are none of these programs'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WorkingSetError {
    /// Not as long as it should be.
    #[error("{what} of {found} bytes, expected {expected}")]
    Length {
        /// What of.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// As the programs write it.
        expected: usize,
    },
    /// A field that nothing real can have.
    #[error("{what} with an impossible {field}")]
    Field {
        /// What of.
        what: &'static str,
        /// Which.
        field: &'static str,
    },
}

/// What the kernel side reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingSetEvent {
    /// When, on `CLOCK_MONOTONIC`.
    pub time: Nanos,
    /// The memory cgroup of the process in reclaim, by its inode; `None` where there is none.
    pub cgroup: Option<u64>,
    /// That process; a kernel thread for the machine's own reclaim.
    pub reclaimer: Pid,
    /// What happened.
    pub kind: WorkingSetEventKind,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkingSetEventKind {
    /// Reclaim ended with next to nothing, or is about to find less than [`FloorSettings::reserve`]: the OOM killer is
    /// next, unless the soft tier goes. At most one each millisecond.
    NoProgress {
        /// It was for a cgroup's limit, not for the machine.
        limited: bool,
        /// What it found; 0 where it has only begun.
        reclaimed: Pages,
    },
    /// Below the floor, or near it with nothing that reclaim can take: this process has to be taken, and the programs cannot
    /// do it.
    Ask(Crossing, VictimId),
    /// Likewise: this process was sent SIGKILL.
    Taken(Crossing, VictimId),
    /// Likewise: nobody of the table lives.
    Nobody(Crossing),
    /// The floor is near and the programs know of nobody to take. At most one in 10 ms.
    Near(Crossing),
}

/// With what the floor was crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// Clean file memory, locked pages among it.
    pub clean: Pages,
    /// The line.
    pub line: Pages,
    /// What was locked, as the programs were told.
    pub locked: Pages,
    /// Free memory.
    pub free: Pages,
}

/// A field of a structure of the programs, by its place.
macro_rules! field {
    ($type:ty, $bytes:expr, $structure:ident, $($field:ident).+) => {
        $bytes
            .get(offset_of!(abi::$structure, $($field).+)..)
            .and_then(|rest| rest.first_chunk().copied())
            .map(<$type>::from_ne_bytes)
            .unwrap_or_default()
    };
}
use field;

/// Their length is checked once, so that each field is there.
const fn sized(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), WorkingSetError> {
    if bytes.len() == expected {
        Ok(())
    } else {
        Err(WorkingSetError::Length { what, found: bytes.len(), expected })
    }
}

/// Decodes one entry of `uses`.
///
/// # Errors
/// [`WorkingSetError`] when the programs write no entry like that; the caller counts and drops it.
pub fn decode_use(key: &[u8], value: &[u8]) -> Result<Use, WorkingSetError> {
    const WHAT: &str = "a use of a file";
    sized(WHAT, key, CHUNK_BYTES)?;
    sized(WHAT, value, USE_BYTES)?;
    let flags = field!(u32, value, plimsoll_use, flags);
    if flags & !abi::PLIMSOLL_USE_FLAGS != 0 {
        return Err(WorkingSetError::Field { what: WHAT, field: "flag" });
    }
    let file_bytes = field!(u64, value, plimsoll_use, file_bytes);
    if i64::try_from(file_bytes).is_err() {
        return Err(WorkingSetError::Field { what: WHAT, field: "size" });
    }
    let file = decode_file(key.get(..FILE_BYTES).unwrap_or_default())?;
    Ok(Use {
        chunk: ChunkId { file, chunk: field!(u32, key, plimsoll_chunk, chunk) },
        accessed: field!(u64, value, plimsoll_use, accessed),
        blocks: Blocks(field!(u32, value, plimsoll_use, blocks)),
        mapped: field!(u32, value, plimsoll_use, mapped) != 0,
        added: field!(u64, value, plimsoll_use, added),
        evicted: field!(u64, value, plimsoll_use, evicted),
        file_bytes,
        barred: barred(flags, field!(u32, value, plimsoll_use, magic)),
    })
}

/// Decodes a file.
///
/// # Errors
/// As [`decode_use`].
pub fn decode_file(bytes: &[u8]) -> Result<FileId, WorkingSetError> {
    sized("a file", bytes, FILE_BYTES)?;
    Ok(FileId {
        device: field!(u32, bytes, plimsoll_file, device),
        inode: field!(u64, bytes, plimsoll_file, inode),
        generation: field!(u32, bytes, plimsoll_file, generation),
    })
}

/// The bar that stays longest comes first.
fn barred(flags: u32, magic: u32) -> Option<Barred> {
    if !HELD.contains(&magic) {
        Some(Barred::FileSystem)
    } else if flags & abi::PLIMSOLL_USE_UNLINKED != 0 {
        Some(Barred::Unlinked)
    } else if flags & abi::PLIMSOLL_USE_SWAPFILE != 0 {
        Some(Barred::SwapFile)
    } else if flags & abi::PLIMSOLL_USE_WRITERS != 0 {
        Some(Barred::OpenForWriting)
    } else {
        None
    }
}

/// Decodes one record of the ring buffer.
///
/// # Errors
/// As [`decode_use`].
pub fn decode_event(bytes: &[u8]) -> Result<WorkingSetEvent, WorkingSetError> {
    const WHAT: &str = "a working-set record";
    sized(WHAT, bytes, EVENT_BYTES)?;
    let impossible = |field| WorkingSetError::Field { what: WHAT, field };
    let crossing = Crossing {
        clean: pages(field!(i64, bytes, plimsoll_workingset_record, clean_pages)),
        line: pages(field!(i64, bytes, plimsoll_workingset_record, line_pages)),
        locked: pages(field!(i64, bytes, plimsoll_workingset_record, locked_pages)),
        free: pages(field!(i64, bytes, plimsoll_workingset_record, free_pages)),
    };
    let victim = VictimId {
        pid: Pid(field!(u32, bytes, plimsoll_workingset_record, victim.tgid)),
        start_ns: field!(u64, bytes, plimsoll_workingset_record, victim.start_ns),
    };
    let whom = || if victim.pid.0 > 1 { Ok(victim) } else { Err(impossible("victim")) };
    let kind = match field!(u32, bytes, plimsoll_workingset_record, kind) {
        abi::PLIMSOLL_WORKINGSET_SOFT => WorkingSetEventKind::NoProgress {
            limited: field!(u32, bytes, plimsoll_workingset_record, limited) != 0,
            reclaimed: Pages(field!(u32, bytes, plimsoll_workingset_record, reclaimed).into()),
        },
        abi::PLIMSOLL_WORKINGSET_ASK => WorkingSetEventKind::Ask(crossing, whom()?),
        abi::PLIMSOLL_WORKINGSET_TAKEN => WorkingSetEventKind::Taken(crossing, whom()?),
        abi::PLIMSOLL_WORKINGSET_NOBODY => WorkingSetEventKind::Nobody(crossing),
        abi::PLIMSOLL_WORKINGSET_NEAR => WorkingSetEventKind::Near(crossing),
        _ => return Err(impossible("kind")),
    };
    let cgroup = field!(u64, bytes, plimsoll_workingset_record, cgroup);
    Ok(WorkingSetEvent {
        time: Nanos(field!(u64, bytes, plimsoll_workingset_record, time_ns)),
        cgroup: (cgroup != 0).then_some(cgroup),
        reclaimer: Pid(field!(u32, bytes, plimsoll_workingset_record, reclaimer)),
        kind,
    })
}

/// A count that the programs may see below 0 for an instant.
fn pages(count: i64) -> Pages {
    Pages(u64::try_from(count).unwrap_or_default())
}
