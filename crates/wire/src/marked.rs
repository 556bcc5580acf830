//! Records of the programs at `oom/mark_victim`: whom the kernel's OOM killer marked. Checked before anything believes them.

use crate::{
    abi,
    task::{self, Looseness, TaskError, TaskFacts},
    text::{Comm, Printable},
};
use core::mem::offset_of;
use plimsoll_policy::units::{Nanos, Pid, Uid};

#[cfg(test)]
mod tests;

/// Bytes of one record.
pub const MARKED_BYTES: usize = size_of::<abi::plimsoll_marked>();

const PATH_BYTES: usize = abi::PLIMSOLL_CGROUP_PATH_BYTES as usize;

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

macro_rules! number {
    ($type:ty, $bytes:expr, $field:ident) => {
        $bytes
            .get(offset_of!(abi::plimsoll_marked, $field)..)
            .and_then(|rest| rest.first_chunk().copied())
            .map(<$type>::from_ne_bytes)
    };
}

/// Decodes one record.
///
/// # Errors
/// [`TaskError`] when no process can be like that; the caller counts and drops it.
pub fn decode(bytes: &[u8], looseness: Looseness) -> Result<Marked, TaskError> {
    if bytes.len() != MARKED_BYTES {
        return Err(TaskError::Length(bytes.len()));
    }
    let short = || TaskError::Length(bytes.len());
    let flags = number!(u32, bytes, flags).ok_or_else(short)?;
    if flags & !abi::PLIMSOLL_MARKED_FLAGS != 0 {
        return Err(TaskError::Field("flag"));
    }
    let thread = number!(u32, bytes, thread).ok_or_else(short)?;
    if thread == 0 {
        return Err(TaskError::Field("number"));
    }
    let victim = if flags & abi::PLIMSOLL_MARKED_KNOWN == 0 {
        None
    } else {
        let start = offset_of!(abi::plimsoll_marked, victim);
        let end = start.saturating_add(size_of::<abi::plimsoll_task>());
        Some(task::decode(bytes.get(start..end).ok_or_else(short)?, looseness)?)
    };
    let names = name(bytes, offset_of!(abi::plimsoll_marked, path), PATH_BYTES).ok_or_else(short)?;
    let length = number!(u32, bytes, path_bytes).ok_or_else(short)?;
    let names = names.get(..length as usize).ok_or(TaskError::Field("path"))?;
    let comm = offset_of!(abi::plimsoll_marked, invoker_comm);
    let comm = name(bytes, comm, abi::PLIMSOLL_TASK_COMM_BYTES as usize).ok_or_else(short)?;
    Ok(Marked {
        time: Nanos(number!(u64, bytes, time_ns).ok_or_else(short)?),
        number: number!(u64, bytes, number).ok_or_else(short)?,
        thread: Pid(thread),
        cgroup: victim.and_then(|_| path(names, flags & abi::PLIMSOLL_MARKED_PATH_CUT != 0)),
        victim,
        exiting: flags & abi::PLIMSOLL_MARKED_EXITING != 0,
        invoker: Invoker {
            pid: Pid(number!(u32, bytes, invoker).ok_or_else(short)?),
            thread: Pid(number!(u32, bytes, invoker_thread).ok_or_else(short)?),
            uid: Uid(number!(u32, bytes, invoker_uid).ok_or_else(short)?),
            comm: Comm::from_bytes(comm),
        },
    })
}

fn name(bytes: &[u8], start: usize, length: usize) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(length)?)
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
