//! Records of the programs of strict jobs: which request for memory they refused. Checked before anything believes them.

use crate::{RecordError, abi, read, text::Comm};
use plimsoll_policy::units::{JobId, Nanos, Pages, Pid, Uid};

#[cfg(test)]
mod tests;

/// Bytes of one record.
pub const REFUSAL_BYTES: usize = size_of::<abi::plimsoll_refusal>();

/// One request that did not fit below a job's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// When, by the monotonic clock.
    pub time: Nanos,
    /// The job whose line it was: the one that the process is in, or one around it.
    pub job: JobId,
    /// Who asked.
    pub pid: Pid,
    /// When that process began, in nanoseconds since boot.
    pub start_ns: u64,
    /// Its real uid.
    pub uid: Uid,
    /// What the thread that asked is called.
    pub comm: Comm,
    /// What was asked for.
    pub asked: Pages,
    /// What the job has committed without it.
    pub committed: Pages,
    /// The line.
    pub limit: Pages,
    /// How many of the job were refused since the record before, and are in none.
    pub untold: u64,
    /// It asked for a child, which would have had as much as it has.
    pub forks: bool,
}

/// Decodes one record.
///
/// # Errors
/// [`RecordError`] when no request can be like that; the caller counts and drops it.
pub fn decode(bytes: &[u8]) -> Result<Refusal, RecordError> {
    const WHAT: &str = "a record of a refused request";
    let field = |field| RecordError::Field { what: WHAT, field };
    let record: abi::plimsoll_refusal = read(WHAT, bytes)?;
    if record.tgid == 0 || record.tgid > i32::MAX.unsigned_abs() {
        return Err(field("process"));
    }
    if record.job == 0 {
        return Err(field("job"));
    }
    if record.call > abi::PLIMSOLL_REFUSED_FORK {
        return Err(field("call"));
    }
    Ok(Refusal {
        time: Nanos(record.time_ns),
        job: JobId(record.job),
        pid: Pid(record.tgid),
        start_ns: record.start_ns,
        uid: Uid(record.uid),
        comm: Comm::from_bytes(&record.comm),
        asked: Pages(record.asked_pages),
        committed: Pages(record.committed_pages),
        limit: Pages(record.limit_pages),
        untold: record.untold,
        forks: record.call == abi::PLIMSOLL_REFUSED_FORK,
    })
}
