//! Records of the programs at `oom/mark_victim`: whom the kernel's OOM killer marked. Checked before anything believes them.

use crate::{
    RecordError, abi, read,
    task::{self, Looseness, TaskFacts},
    text::{Comm, Printable},
};
use plimsoll_policy::units::{Nanos, Pid, Uid};

#[cfg(test)]
mod tests;

/// Bytes of one record.
pub const MARKED_BYTES: usize = size_of::<abi::plimsoll_marked>();

/// One process that the kernel's OOM killer marked: killed, or found on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// When, on `CLOCK_MONOTONIC`.
    pub time: Nanos,
    /// Counts up from 1 for as long as the programs stay pinned.
    pub number: u64,
    /// The thread that was marked: the number that the kernel log has.
    pub thread: Pid,
    /// The whole process; `None` where the kernel tells no more than the number, and it was not the current one.
    pub victim: Option<TaskFacts>,
    /// It was exiting before: it was marked to let it finish, not killed.
    pub exiting: bool,
    /// Its cgroup, from `/`, every name in it made printable. `None` where nothing of it could be read.
    pub cgroup: Option<String>,
    /// Who needed memory when there was none.
    pub invoker: Invoker,
}

/// The process in whose name the kernel looked for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoker {
    /// Its number; 0 for the idle task of a CPU.
    pub pid: Pid,
    /// Its thread's number.
    pub thread: Pid,
    /// Its real uid, in the initial user namespace.
    pub uid: Uid,
    /// Its thread's name.
    pub comm: Comm,
}

/// Decodes one record.
///
/// # Errors
/// [`RecordError`] when no process can be like that; the caller counts and drops it.
pub fn decode(bytes: &[u8], looseness: Looseness) -> Result<Marked, RecordError> {
    const WHAT: &str = "a record of a victim";
    let record: abi::plimsoll_marked = read(WHAT, bytes)?;
    let impossible = |field| RecordError::Field { what: WHAT, field };
    if record.flags & !abi::PLIMSOLL_MARKED_FLAGS != 0 {
        return Err(impossible("flag"));
    }
    if record.thread == 0 {
        return Err(impossible("number"));
    }
    let has = |flag: u32| record.flags & flag != 0;
    let known = has(abi::PLIMSOLL_MARKED_KNOWN);
    let victim = known.then(|| task::check(&record.victim, looseness)).transpose()?;
    let names = record.path.get(..record.path_bytes as usize).ok_or(impossible("path"))?;
    Ok(Marked {
        time: Nanos(record.time_ns),
        number: record.number,
        thread: Pid(record.thread),
        cgroup: victim.and_then(|_| path(names, has(abi::PLIMSOLL_MARKED_PATH_CUT))),
        victim,
        exiting: has(abi::PLIMSOLL_MARKED_EXITING),
        invoker: Invoker {
            pid: Pid(record.invoker),
            thread: Pid(record.invoker_thread),
            uid: Uid(record.invoker_uid),
            comm: Comm::from_bytes(&record.invoker_comm),
        },
    })
}

/// The names, the innermost first, as a path; what is missing at its beginning is shown as `...`.
fn path(names: &[u8], cut: bool) -> Option<String> {
    let names: Vec<&[u8]> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return (!cut).then(|| String::from("/"));
    }
    let mut path = String::from(if cut { "..." } else { "" });
    for name in names.iter().rev() {
        path.push('/');
        path.push_str(&Printable(name).to_string());
    }
    Some(path)
}
