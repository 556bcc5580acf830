//! `/proc/PID/stat`: identity and state of a process in one line.

use super::{
    Comm, WireError,
    field::{decimal, decimal_u32, words},
};
use plimsoll_policy::units::Pid;

const FILE: &str = "/proc/PID/stat";

/// `PF_EXITING` (include/linux/sched.h): in `do_exit`.
const FLAG_EXITING: u32 = 0x0000_0004;
/// `PF_KTHREAD` (include/linux/sched.h): a thread of the kernel's own.
const FLAG_KERNEL_THREAD: u32 = 0x0020_0000;

/// The state letter of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// `R`: running or ready to.
    Running,
    /// `S`: asleep, signals wake it.
    Sleeping,
    /// `D`: asleep, and most signals have to wait.
    Uninterruptible,
    /// `I`: an idle kernel thread.
    Idle,
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped by a tracer.
    Traced,
    /// `P`: a parked kernel thread.
    Parked,
    /// `Z`: exited, not yet waited for. A leader that exited before its threads shows it too.
    Zombie,
    /// `X` or `x`: on its way out of the process table.
    Dead,
    /// A letter of another kernel.
    Other(u8),
}

impl From<u8> for ProcessState {
    fn from(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' => Self::Sleeping,
            b'D' => Self::Uninterruptible,
            b'I' => Self::Idle,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'P' => Self::Parked,
            b'Z' => Self::Zombie,
            b'X' | b'x' => Self::Dead,
            other => Self::Other(other),
        }
    }
}

/// What is used of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The process, as the reader's pid namespace numbers it.
    pub pid: Pid,
    /// Its name.
    pub comm: Comm,
    /// The state of its leading thread.
    pub state: ProcessState,
    /// Its parent; 0 where the parent is outside the reader's pid namespace, or there is none.
    pub parent: Pid,
    /// It leads a session that has a terminal.
    pub leads_terminal: bool,
    /// The leading thread's `PF_` flags.
    pub flags: u32,
    /// Processor time of all its threads, in user and in kernel mode, in clock ticks.
    pub cpu_ticks: u64,
    /// Threads it has, the leader included; 0 once it has been reaped.
    pub threads: u64,
    /// When it started, in clock ticks since boot (`start_boottime`, rounded down).
    pub start_ticks: u64,
}

impl Stat {
    /// A thread of the kernel's own, which has no memory to give back.
    #[must_use]
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & FLAG_KERNEL_THREAD != 0
    }

    /// Its leading thread is exiting.
    #[must_use]
    pub const fn is_exiting(&self) -> bool {
        self.flags & FLAG_EXITING != 0
    }

    /// The leading thread exited and others go on: the process lives and holds its memory, although its state
    /// letter is that of a zombie and its own files show no memory.
    #[must_use]
    pub fn leader_left_threads(&self) -> bool {
        self.state == ProcessState::Zombie && self.threads > 1
    }
}

/// Reads `/proc/PID/stat`. The name is what lies between the first `(` and the last `)`, whatever it holds: only
/// numbers follow it.
///
/// # Errors
/// [`WireError::Missing`] for a line that ends before the start time, [`WireError::Malformed`] for a field that is
/// no number.
pub fn parse_stat(text: &[u8]) -> Result<Stat, WireError> {
    let missing = |field| WireError::missing(FILE, field);
    let open = text.iter().position(|byte| *byte == b'(').ok_or(missing("comm"))?;
    let close = text.iter().rposition(|byte| *byte == b')').ok_or(missing("comm"))?;
    let pid = text.get(..open).ok_or(missing("pid"))?.trim_ascii();
    let comm = text.get(open..close).and_then(|comm| comm.strip_prefix(b"(")).ok_or(missing("comm"))?;
    let after = text.get(close..).and_then(|rest| rest.strip_prefix(b")")).ok_or(missing("state"))?;
    let mut fields = Fields { words: words(after.trim_ascii_end()) };
    let state = fields.words.next().ok_or(missing("state"))?;
    let [letter] = state else {
        return Err(WireError::malformed(FILE, "state", "one letter", state));
    };
    let pid = decimal_u32(pid).ok_or_else(|| not_a_number("pid", pid))?;
    // Field numbers of proc_pid_stat(5): state is 3, so the next word is 4.
    Ok(Stat {
        pid: Pid(pid),
        comm: Comm::from_bytes(comm),
        state: ProcessState::from(*letter),
        parent: Pid(fields.number_u32("ppid", 0)?),
        leads_terminal: {
            // 4 -> 6: past pgrp; 7 follows, whose bits may make a negative number.
            let (session, terminal) = (fields.number("session", 1)?, fields.word("tty_nr", 0)?);
            session == u64::from(pid) && terminal != b"0"
        },
        // 7 -> 9: past tpgid.
        flags: fields.number_u32("flags", 1)?,
        // 9 -> 14: past minflt, cminflt, majflt, cmajflt; 15 follows.
        cpu_ticks: fields.number("utime", 4)?.saturating_add(fields.number("stime", 0)?),
        // 15 -> 20: past cutime, cstime, priority, nice.
        threads: fields.number("num_threads", 4)?,
        // 20 -> 22: past itrealvalue.
        start_ticks: fields.number("starttime", 1)?,
    })
}

struct Fields<I> {
    words: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Fields<I> {
    fn word(&mut self, field: &'static str, skipped: usize) -> Result<&'a [u8], WireError> {
        self.words.nth(skipped).ok_or(WireError::missing(FILE, field))
    }

    fn number(&mut self, field: &'static str, skipped: usize) -> Result<u64, WireError> {
        let word = self.word(field, skipped)?;
        decimal(word).ok_or_else(|| not_a_number(field, word))
    }

    fn number_u32(&mut self, field: &'static str, skipped: usize) -> Result<u32, WireError> {
        let word = self.word(field, skipped)?;
        decimal_u32(word).ok_or_else(|| not_a_number(field, word))
    }
}

fn not_a_number(field: &'static str, found: &[u8]) -> WireError {
    WireError::malformed(FILE, field, "a number in its range", found)
}

#[cfg(test)]
mod tests;
