//! Exact counts of one process at a time: by a call where the kernel finds a task by its number, else by an iterator over that
//! task alone.

use super::{
    super::{
        error::BpfError,
        link::{begin_walk, iterate_task},
        program::SyscallProgram,
        site::Call as _,
    },
    read_on,
};
use crate::process::tick_ns;
use plimsoll_policy::{units::Pid, victim::VictimId};
use plimsoll_wire::{
    abi,
    task::{Looseness, TaskFacts, check},
};
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};
use zerocopy::IntoBytes as _;

/// A process that changes its memory while it is measured (exec, the exit of the thread that was looked at) is measured
/// again, so often.
const MEASURE_TRIES: u32 = 4;

/// What became of a process that was to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// It lives. [`TaskFacts::errors`] is 0, unless its counts were folded again and again meanwhile (then they are as
    /// good as a sweep's), or, on Linux 6.1, other processes share its memory.
    Known(TaskFacts),
    /// Its number belongs to another process by now.
    Another,
    /// There is no such process, or only its number is left.
    Gone,
}

#[derive(Debug)]
pub(super) enum Measure {
    Call(SyscallProgram),
    Iterate(OwnedFd),
}

impl Measure {
    /// `None`: there is no such process, or it has no memory.
    pub(super) fn facts(&self, pid: Pid, looseness: Looseness) -> Result<Option<TaskFacts>, BpfError> {
        let mut answer = abi::plimsoll_measure { tgid: pid.0, ..Default::default() };
        for _ in 0..MEASURE_TRIES {
            if !self.ask(pid, &mut answer)? {
                return Ok(None);
            }
            match answer.result.saturating_neg() {
                0 => {
                    return check(&answer.task, looseness)
                        .map(Some)
                        .map_err(|error| failed(io::Error::other(error)));
                }
                libc::ESRCH => return Ok(None),
                libc::EAGAIN => {}
                errno => return Err(failed(io::Error::from_raw_os_error(errno))),
            }
        }
        Err(failed(io::Error::from_raw_os_error(libc::EAGAIN)))
    }

    /// False: no answer, as there is no such task.
    fn ask(&self, pid: Pid, answer: &mut abi::plimsoll_measure) -> Result<bool, BpfError> {
        match self {
            Self::Call(program) => program.run(answer).map(|_| true),
            Self::Iterate(program) => {
                let link = match iterate_task(program.as_fd(), pid.0) {
                    Ok(link) => link,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
                    Err(error) => return Err(failed(error)),
                };
                let walk = begin_walk(link.as_fd()).map_err(failed)?;
                read_on(&walk, answer.as_mut_bytes()).map(|got| got == size_of_val(answer))
            }
        }
    }
}

fn failed(source: io::Error) -> BpfError {
    BpfError::Run { program: "measure", source }
}

/// Start times of `/proc` are in clock ticks: compared as [`crate::process::PidFd::open_verified`] does.
pub(super) fn judge(id: VictimId, facts: Option<TaskFacts>) -> Measured {
    let ticks = |start_ns: u64| start_ns.checked_div(tick_ns()).unwrap_or(start_ns);
    match facts {
        Some(facts) if ticks(facts.start_ns) == ticks(id.start_ns) => Measured::Known(facts),
        Some(_) => Measured::Another,
        None => Measured::Gone,
    }
}
