//! Records of the ring buffer, checked before anything believes them.

use crate::{
    RecordError, abi, counted, pages, read,
    text::{Printable, printable_cmdline},
};
use plimsoll_policy::{
    account::Counted,
    selection::Weight,
    units::{JobId, Nanos, Pages, Pid, Uid},
};

#[cfg(test)]
mod tests;

const WHAT: &str = "a record";

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
    pub whose: Counted,
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
    /// Real uid.
    pub uid: Uid,
    /// Its pages, inherited ones among them.
    pub pages: Pages,
    /// What each of its pages counts; neutral where nobody has said anything.
    pub weight: Weight,
    /// The job that it is in.
    pub job: Option<JobId>,
    /// Its cgroup v2 id.
    pub cgroup_id: Option<u64>,
    /// Printable `comm`; `None` where the charge came from outside the process.
    pub comm: Option<String>,
    /// Printable start of the command line; `None` where it could not be read at that instant.
    pub cmdline: Option<String>,
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
        _ => Err(RecordError::Field { what: WHAT, field: "kind" }),
    }
}

/// Decodes one record of the ring buffer.
///
/// # Errors
/// [`RecordError`] when the bytes are no record of this schema; the caller counts and drops it.
pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
    // The ring buffer rounds a record's length up to 8 bytes; ours is a multiple of 8.
    let record: abi::plimsoll_record = read(WHAT, bytes)?;
    let has = |flag: u32| record.flags & flag != 0;
    Ok(Record {
        kind: kind(record.kind)?,
        time: Nanos(record.time_ns),
        signal_time: (record.signal_ns != 0).then_some(Nanos(record.signal_ns)),
        whose: counted(record.of, record.id).ok_or(RecordError::Field { what: WHAT, field: "of" })?,
        usage: pages(record.usage_pages),
        hard: pages(record.hard_pages),
        effective: pages(record.effective_pages),
        dying: pages(record.dying_pages),
        charged: pages(record.delta_pages),
        process: process(&record),
        signal: record.signal,
        signal_errno: (record.signal_error != 0).then(|| record.signal_error.saturating_neg()),
        largest: has(abi::PLIMSOLL_RECORD_LARGEST),
        other: has(abi::PLIMSOLL_RECORD_OTHER),
        unanswered: has(abi::PLIMSOLL_RECORD_UNANSWERED),
        mm_shared: has(abi::PLIMSOLL_RECORD_MM_SHARED),
        turned_away: has(abi::PLIMSOLL_RECORD_TURNED_AWAY),
        no_grace: has(abi::PLIMSOLL_RECORD_NO_GRACE),
    })
}

fn process(record: &abi::plimsoll_record) -> RecordProcess {
    let comm = record.comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let args = record.args.get(..record.args_bytes as usize).unwrap_or(&record.args);
    let own = record.flags & abi::PLIMSOLL_RECORD_REMOTE == 0;
    RecordProcess {
        mm: record.mm,
        pid: Pid(record.tgid),
        start_ns: record.start_ns,
        uid: Uid(record.uid),
        pages: pages(record.mm_pages),
        weight: u16::try_from(record.weight).ok().and_then(Weight::from_permille).unwrap_or_default(),
        job: (record.job != 0).then_some(JobId(record.job)),
        cgroup_id: (record.cgroup_id != 0).then_some(record.cgroup_id),
        comm: own.then(|| Printable(comm).to_string()),
        cmdline: if own { printable_cmdline(args) } else { None },
    }
}
