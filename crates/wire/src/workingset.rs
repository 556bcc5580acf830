//! What the working-set programs tell: uses of the page cache, files that are executed, events of the floor; and what they are
//! told. Checked before anything believes it.

mod floor;

pub use floor::{FLOOR_BYTES, FloorCounts, FloorSettings, VICTIMS_MAX};

use crate::{RecordError, abi, pages, read};
use plimsoll_policy::{
    units::{Nanos, Pages, Pid},
    victim::VictimId,
    workingset::{BLOCK_PAGES, Barred, Blocks, CHUNK_PAGES, ChunkId, FileId, Use},
};

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

/// Decodes one entry of `uses`.
///
/// # Errors
/// [`RecordError`] when the programs write no entry like that; the caller counts and drops it.
pub fn decode_use(key: &[u8], value: &[u8]) -> Result<Use, RecordError> {
    const WHAT: &str = "a use of a file";
    let abi::plimsoll_chunk { file, chunk, .. } = read(WHAT, key)?;
    let counts: abi::plimsoll_use = read(WHAT, value)?;
    if counts.flags & !abi::PLIMSOLL_USE_FLAGS != 0 {
        return Err(RecordError::Field { what: WHAT, field: "flag" });
    }
    if i64::try_from(counts.file_bytes).is_err() {
        return Err(RecordError::Field { what: WHAT, field: "size" });
    }
    Ok(Use {
        chunk: ChunkId { file: file_id(&file), chunk },
        accessed: counts.accessed,
        blocks: Blocks(counts.blocks),
        mapped: counts.mapped != 0,
        added: counts.added,
        evicted: counts.evicted,
        file_bytes: counts.file_bytes,
        barred: barred(counts.flags, counts.magic),
    })
}

/// Decodes a file.
///
/// # Errors
/// As [`decode_use`].
pub fn decode_file(bytes: &[u8]) -> Result<FileId, RecordError> {
    read("a file", bytes).map(|file| file_id(&file))
}

const fn file_id(file: &abi::plimsoll_file) -> FileId {
    FileId { device: file.device, inode: file.inode, generation: file.generation }
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
pub fn decode_event(bytes: &[u8]) -> Result<WorkingSetEvent, RecordError> {
    const WHAT: &str = "a working-set record";
    let record: abi::plimsoll_workingset_record = read(WHAT, bytes)?;
    let impossible = |field| RecordError::Field { what: WHAT, field };
    let crossing = Crossing {
        clean: pages(record.clean_pages),
        line: pages(record.line_pages),
        locked: pages(record.locked_pages),
        free: pages(record.free_pages),
    };
    let victim = VictimId { pid: Pid(record.victim.tgid), start_ns: record.victim.start_ns };
    let whom = || if victim.pid.0 > 1 { Ok(victim) } else { Err(impossible("victim")) };
    let kind = match record.kind {
        abi::PLIMSOLL_WORKINGSET_SOFT => WorkingSetEventKind::NoProgress {
            limited: record.limited != 0,
            reclaimed: Pages(record.reclaimed.into()),
        },
        abi::PLIMSOLL_WORKINGSET_ASK => WorkingSetEventKind::Ask(crossing, whom()?),
        abi::PLIMSOLL_WORKINGSET_TAKEN => WorkingSetEventKind::Taken(crossing, whom()?),
        abi::PLIMSOLL_WORKINGSET_NOBODY => WorkingSetEventKind::Nobody(crossing),
        abi::PLIMSOLL_WORKINGSET_NEAR => WorkingSetEventKind::Near(crossing),
        _ => return Err(impossible("kind")),
    };
    Ok(WorkingSetEvent {
        time: Nanos(record.time_ns),
        cgroup: (record.cgroup != 0).then_some(record.cgroup),
        reclaimer: Pid(record.reclaimer),
        kind,
    })
}
