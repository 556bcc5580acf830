//! Records of the walks of shared memory: its files, and who holds them. Checked before anything believes them.

use crate::{RecordError, abi, pages, read, text::Printable};
use plimsoll_policy::{
    shared::{Holding, Kind, SharedFile},
    units::{Pages, Pid, Uid},
};

const WHAT: &str = "a record of shared memory";

/// Bits of a mode that let others than the owner read or write. Whoever reads a hole that is mapped has it filled.
const OTHERS: u32 = 0o066;

/// What a file of shared memory is called: by the end of its path, as much of it as is told, in the file system of this device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedName {
    /// What it is.
    pub kind: Kind,
    /// In printable characters.
    pub text: String,
    /// `stat`'s `st_ino`.
    pub number: u64,
    /// The device of its file system, as `/proc/PID/mountinfo` writes it.
    pub device: (u32, u32),
    /// No directory has it any more.
    pub is_unlinked: bool,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedRecord {
    /// A file.
    File {
        /// It.
        file: SharedFile<SharedName>,
        /// As of small ones.
        telling: u32,
        /// When it was made, or somewhat earlier, in nanoseconds of `CLOCK_REALTIME`; 0: unknown.
        born_ns: u64,
    },
    /// Who holds one.
    Held(Holding),
    /// A pipe, and who has it open.
    Pipe {
        /// It, as what it holds would be that of a file.
        file: SharedFile<SharedName>,
        /// Who.
        held: Holding,
    },
    /// Not all that this user holds was looked at.
    Partly(Uid),
    /// Not all files of this user were.
    Unlisted(Uid),
    /// A thread of this user, by its number, with more open than fits: to be walked by itself.
    Cut(u32, Uid),
    /// Small files of one user.
    Small {
        /// Tells their file system.
        key: u64,
        /// Whose they are.
        uid: Uid,
        /// All of them are told anew where it is higher.
        telling: u32,
        /// So many together.
        pages: Pages,
    },
}

/// Decodes one record.
///
/// # Errors
/// [`RecordError`] when the bytes are no such record; the caller counts and drops it.
pub fn decode(bytes: &[u8]) -> Result<SharedRecord, RecordError> {
    let record: abi::plimsoll_shared = read(WHAT, bytes)?;
    let has = |flag: u32| record.flags & flag != 0;
    if record.mm != 0 {
        let held = Holding {
            key: record.inode,
            mm: record.mm,
            pid: Pid(record.telling),
            uid: Uid(record.uid),
            user: Uid(record.owner),
            is_contained: has(abi::PLIMSOLL_SHARED_CONTAINED),
        };
        return Ok(if has(abi::PLIMSOLL_SHARED_PIPE) {
            SharedRecord::Pipe { file: pipe(&record), held }
        } else {
            SharedRecord::Held(held)
        });
    }
    if has(abi::PLIMSOLL_SHARED_PARTLY) {
        let user = Uid(record.owner);
        let of_files = has(abi::PLIMSOLL_SHARED_FILE);
        return Ok(if of_files { SharedRecord::Unlisted(user) } else { SharedRecord::Partly(user) });
    }
    if has(abi::PLIMSOLL_SHARED_CUT) {
        let number = u32::try_from(record.number).ok().filter(|number| *number != 0);
        let cut = number.map(|number| SharedRecord::Cut(number, Uid(record.owner)));
        return cut.ok_or(RecordError::Field { what: WHAT, field: "number" });
    }
    let telling = record.telling;
    if has(abi::PLIMSOLL_SHARED_SMALL) {
        let (key, uid) = (record.inode, Uid(record.uid));
        return Ok(SharedRecord::Small { key, uid, telling, pages: pages(record.pages) });
    }
    let kinds = [
        (abi::PLIMSOLL_SHARED_FILE, Kind::File),
        (abi::PLIMSOLL_SHARED_MEMFD, Kind::Memfd),
        (abi::PLIMSOLL_SHARED_ANONYMOUS, Kind::Anonymous),
        (abi::PLIMSOLL_SHARED_SEGMENT, Kind::Segment),
    ];
    let kind = kinds.into_iter().find(|(flag, _)| has(*flag)).map(|(_, kind)| kind);
    let kind = kind.ok_or(RecordError::Field { what: WHAT, field: "kind" })?;
    let file = SharedFile {
        key: record.inode,
        number: record.number,
        kind,
        pages: pages(record.pages),
        before: Pages(0),
        uid: Uid(record.uid),
        owner: Uid(record.owner),
        stays: match kind {
            Kind::File => !has(abi::PLIMSOLL_SHARED_UNLINKED),
            Kind::Segment | Kind::Small => true,
            Kind::Memfd | Kind::Anonymous | Kind::Pipe => false,
        },
        is_open_to_others: match kind {
            Kind::File => {
                record.mode & OTHERS != 0 || has(abi::PLIMSOLL_SHARED_ACL) || has(abi::PLIMSOLL_SHARED_HANDED)
            }
            // No path leads there.
            Kind::Memfd | Kind::Anonymous | Kind::Pipe => has(abi::PLIMSOLL_SHARED_HANDED),
            // Whom its permissions let in is not known here.
            Kind::Segment | Kind::Small => true,
        },
        is_crowded: has(abi::PLIMSOLL_SHARED_CROWDED),
        name: SharedName {
            kind,
            text: Printable(ended(&record.name)).to_string(),
            number: record.number,
            device: (record.device >> 20, record.device & 0xf_ffff),
            is_unlinked: has(abi::PLIMSOLL_SHARED_UNLINKED),
        },
    };
    Ok(SharedRecord::File { file, telling, born_ns: record.born_ns })
}

/// What a pipe holds. A FIFO is opened by its path; the others through `/proc`, by who may trace a process that has it.
fn pipe(record: &abi::plimsoll_shared) -> SharedFile<SharedName> {
    let has = |flag: u32| record.flags & flag != 0;
    let user = Uid(record.device);
    SharedFile {
        key: record.inode,
        number: record.number,
        kind: Kind::Pipe,
        pages: pages(record.pages),
        before: Pages(0),
        uid: user,
        owner: user,
        stays: false,
        is_open_to_others: record.mode & OTHERS != 0 || has(abi::PLIMSOLL_SHARED_HANDED),
        is_crowded: has(abi::PLIMSOLL_SHARED_CROWDED),
        name: SharedName { number: record.number, ..SharedName::of(Kind::Pipe) },
    }
}

/// Up to the end of a name of the kernel's.
fn ended(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}

impl SharedName {
    /// What many small files are called.
    pub const SMALL: Self = Self::of(Kind::Small);

    const fn of(kind: Kind) -> Self {
        Self { kind, text: String::new(), number: 0, device: (0, 0), is_unlinked: false }
    }
}

#[cfg(test)]
mod tests;
