//! Records of the ring buffer, checked before anything believes them.

use crate::{
    abi,
    text::{Printable, printable_cmdline},
};
use plimsoll_policy::{
    selection::Weight,
    units::{Nanos, Pages, Pid, Uid},
};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// A record that was not one of ours, or not of this schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Not as long as a record.
    #[error("a record of {0} bytes, expected {expected}", expected = size_of::<abi::plimsoll_record>())]
    Length(usize),
    /// A kind this version does not know.
    #[error("a record of unknown kind {0}")]
    Kind(u32),
}

/// What the kernel side reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Usage may be near the soft limit: a scan makes it exact.
    Exact,
    /// Usage rose above the soft limit.
    Near,
    /// Usage fell below it again.
    Far,
    /// The line was crossed and nobody was taken: select and act.
    Crossed,
    /// A signal was sent by the programs, or they tried to.
    Acted,
    /// A dying address space was torn down.
    Freed,
    /// The line was crossed and its action is to notify.
    Notify,
    /// Copy-on-write, which no event tells, may bring usage near: measure.
    Copies,
    /// A process that nobody has weighed came to be among the largest of an account that is near.
    Judge,
}

/// One record. Page counts that the programs may see below 0 for an instant arrive as 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, as the programs set them")]
pub struct Record {
    /// What it reports.
    pub kind: RecordKind,
    /// The event, on `CLOCK_MONOTONIC`.
    pub time: Nanos,
    /// When the signal had been sent; `None` where none was.
    pub signal_time: Option<Nanos>,
    /// Whose account.
    pub uid: Uid,
    /// The account's usage after the event.
    pub usage: Pages,
    /// The line as set.
    pub hard: Pages,
    /// The line in force.
    pub effective: Pages,
    /// What of the usage is dying.
    pub dying: Pages,
    /// What the event charged; 0 where it released.
    pub charged: Pages,
    /// The process.
    pub process: RecordProcess,
    /// The signal of the account's action.
    pub signal: u32,
    /// Why the signal could not be sent: a positive errno.
    pub signal_errno: Option<i32>,
    /// The process taken was the account's largest.
    pub largest: bool,
    /// The process taken is not the one that allocated.
    pub other: bool,
    /// It was taken because nobody answered.
    pub unanswered: bool,
    /// Other processes use the same address space.
    pub mm_shared: bool,
    /// It was taken because the table of address spaces is almost full and its account has most of them. Others may have been
    /// too, within a tenth of a second.
    pub turned_away: bool,
    /// Its account's action is SIGTERM, and no more of it is asked to end and left alone.
    pub no_grace: bool,
}

/// The process of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordProcess {
    /// The address space's opaque key.
    pub mm: u64,
    /// Thread-group leader, in the initial pid namespace.
    pub pid: Pid,
    /// Start since boot in nanoseconds.
    pub start_ns: u64,
    /// Its pages, inherited ones among them.
    pub pages: Pages,
    /// What each of its pages counts; neutral where nobody has said anything.
    pub weight: Weight,
    /// Its cgroup v2 id.
    pub cgroup_id: Option<u64>,
    /// Printable `comm`; `None` where the charge came from outside the process.
    pub comm: Option<String>,
    /// Printable start of the command line; `None` where it could not be read at that instant.
    pub cmdline: Option<String>,
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..offset.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
}

macro_rules! field {
    ($read:ident, $bytes:expr, $field:ident) => {
        $read($bytes, core::mem::offset_of!(abi::plimsoll_record, $field))
    };
}

fn pages(raw: u64) -> Pages {
    // The programs count in signed numbers: a charge and a release seen in the other order dip below 0.
    Pages(u64::try_from(raw.cast_signed()).unwrap_or_default())
}

fn kind(raw: u32) -> Result<RecordKind, RecordError> {
    match raw {
        abi::PLIMSOLL_RECORD_EXACT => Ok(RecordKind::Exact),
        abi::PLIMSOLL_RECORD_NEAR => Ok(RecordKind::Near),
        abi::PLIMSOLL_RECORD_FAR => Ok(RecordKind::Far),
        abi::PLIMSOLL_RECORD_CROSSED => Ok(RecordKind::Crossed),
        abi::PLIMSOLL_RECORD_ACTED => Ok(RecordKind::Acted),
        abi::PLIMSOLL_RECORD_FREED => Ok(RecordKind::Freed),
        abi::PLIMSOLL_RECORD_NOTIFY => Ok(RecordKind::Notify),
        abi::PLIMSOLL_RECORD_COPIES => Ok(RecordKind::Copies),
        abi::PLIMSOLL_RECORD_JUDGE => Ok(RecordKind::Judge),
        other => Err(RecordError::Kind(other)),
    }
}

/// Decodes one record of the ring buffer.
///
/// # Errors
/// [`RecordError`] when the bytes are no record of this schema; the caller counts and drops it.
pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
    // The ring buffer rounds a record's length up to 8 bytes; ours is a multiple of 8.
    if bytes.len() != size_of::<abi::plimsoll_record>() {
        return Err(RecordError::Length(bytes.len()));
    }
    decode_fields(bytes).ok_or(RecordError::Length(bytes.len()))?
}

fn decode_fields(bytes: &[u8]) -> Option<Result<Record, RecordError>> {
    let kind = match kind(field!(u32_at, bytes, kind)?) {
        Ok(kind) => kind,
        Err(error) => return Some(Err(error)),
    };
    let flags = field!(u32_at, bytes, flags)?;
    let signal_ns = field!(u64_at, bytes, signal_ns)?;
    let signal_error = field!(u32_at, bytes, signal_error)?.cast_signed();
    Some(Ok(Record {
        kind,
        time: Nanos(field!(u64_at, bytes, time_ns)?),
        signal_time: (signal_ns != 0).then_some(Nanos(signal_ns)),
        uid: Uid(field!(u32_at, bytes, uid)?),
        usage: pages(field!(u64_at, bytes, usage_pages)?),
        hard: pages(field!(u64_at, bytes, hard_pages)?),
        effective: pages(field!(u64_at, bytes, effective_pages)?),
        dying: pages(field!(u64_at, bytes, dying_pages)?),
        charged: pages(field!(u64_at, bytes, delta_pages)?),
        process: decode_process(bytes, flags)?,
        signal: field!(u32_at, bytes, signal)?,
        signal_errno: (signal_error != 0).then(|| signal_error.saturating_neg()),
        largest: flags & abi::PLIMSOLL_RECORD_LARGEST != 0,
        other: flags & abi::PLIMSOLL_RECORD_OTHER != 0,
        unanswered: flags & abi::PLIMSOLL_RECORD_UNANSWERED != 0,
        mm_shared: flags & abi::PLIMSOLL_RECORD_MM_SHARED != 0,
        turned_away: flags & abi::PLIMSOLL_RECORD_TURNED_AWAY != 0,
        no_grace: flags & abi::PLIMSOLL_RECORD_NO_GRACE != 0,
    }))
}

fn decode_process(bytes: &[u8], flags: u32) -> Option<RecordProcess> {
    let comm_at = core::mem::offset_of!(abi::plimsoll_record, comm);
    let comm = bytes.get(comm_at..comm_at.checked_add(abi::PLIMSOLL_COMM_BYTES as usize)?)?;
    let comm_bytes = comm.split(|byte| *byte == 0).next()?;
    let args_at = core::mem::offset_of!(abi::plimsoll_record, args);
    let filled = usize::try_from(field!(u32_at, bytes, args_bytes)?).ok()?;
    let args = bytes.get(args_at..args_at.checked_add(filled.min(abi::PLIMSOLL_ARGS_BYTES as usize))?)?;
    let cgroup_id = field!(u64_at, bytes, cgroup_id)?;
    let own = flags & abi::PLIMSOLL_RECORD_REMOTE == 0;
    Some(RecordProcess {
        mm: field!(u64_at, bytes, mm)?,
        pid: Pid(field!(u32_at, bytes, tgid)?),
        start_ns: field!(u64_at, bytes, start_ns)?,
        pages: pages(field!(u64_at, bytes, mm_pages)?),
        weight: u16::try_from(field!(u32_at, bytes, weight)?)
            .ok()
            .and_then(Weight::from_permille)
            .unwrap_or_default(),
        cgroup_id: (cgroup_id != 0).then_some(cgroup_id),
        comm: own.then(|| Printable(comm_bytes).to_string()),
        cmdline: if own { printable_cmdline(args) } else { None },
    })
}
