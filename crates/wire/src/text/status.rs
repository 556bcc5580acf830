//! `/proc/PID/status`: owner and memory of a process.

use super::{
    ProcessState, WireError,
    field::{decimal_u32, hexadecimal, key_value, lines, set_kilobytes, words},
};
use plimsoll_policy::units::{Bytes, Pid, Uid};

const FILE: &str = "/proc/PID/status";

/// What is used of `/proc/PID/status`. `None` where the line is not there: a process without an address space
/// (kernel thread, zombie) has no memory lines. Bytes, to the kernel's own kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The real uid: whose account it is charged to.
    pub real_uid: Option<Uid>,
    /// The effective uid: whose rights it has.
    pub effective_uid: Option<Uid>,
    /// The process that the thread belongs to.
    pub thread_group: Option<Pid>,
    /// Its number in the innermost pid namespace it is in, the last of `NSpid`.
    pub namespace_pid: Option<Pid>,
    /// Who traces its leading thread (`TracerPid`), as far as the reader can see it.
    pub tracer: Option<Pid>,
    /// The state of its leading thread.
    pub state: Option<ProcessState>,
    /// Resident anonymous memory. From 6.2 on it may miss a few pages per CPU; `smaps_rollup` does not.
    pub rss_anonymous: Option<Bytes>,
    /// Resident shared memory, tmpfs included.
    pub rss_shmem: Option<Bytes>,
    /// Resident pages of files.
    pub rss_file: Option<Bytes>,
    /// Anonymous memory in swap.
    pub swap: Option<Bytes>,
    /// Locked memory (`VmLck`), resident or not.
    pub locked: Option<Bytes>,
    /// Huge pages of hugetlbfs (`HugetlbPages`).
    pub hugetlb: Option<Bytes>,
    /// A core is being written.
    pub core_dumping: Option<bool>,
    /// Signals waiting for the leading thread, signal n as bit n - 1 (`SigPnd`).
    pub thread_pending: Option<u64>,
    /// Signals waiting for the process (`ShdPnd`).
    pub process_pending: Option<u64>,
}

/// SIGKILL's bit in a mask of signals; its number is 9 on every architecture.
const SIGKILL_BIT: u64 = 1 << 8;

impl Status {
    /// SIGKILL was sent and not yet obeyed.
    #[must_use]
    pub fn kill_is_pending(&self) -> bool {
        [self.thread_pending, self.process_pending].iter().flatten().any(|mask| mask & SIGKILL_BIT != 0)
    }

    /// Takes in one line, without its end. For a reader that has the file in pieces: `Groups` alone may be 700 KiB
    /// long (65,536 groups), and a reader that stopped there would miss the memory lines behind it.
    ///
    /// # Errors
    /// [`WireError::Malformed`] when a line that it knows is not of the documented form.
    pub fn take_line(&mut self, line: &[u8]) -> Result<(), WireError> {
        let Some((key, value)) = key_value(line) else {
            return Ok(());
        };
        match key {
            b"Uid" => self.take_uids(value),
            b"Tgid" => set_pid(&mut self.thread_group, "Tgid", value),
            b"NSpid" => set_pid(&mut self.namespace_pid, "NSpid", words(value).last().unwrap_or(value)),
            b"TracerPid" if value == b"0" => Ok(()),
            b"TracerPid" => set_pid(&mut self.tracer, "TracerPid", value),
            b"State" => {
                let letter =
                    value.first().ok_or_else(|| WireError::malformed(FILE, "State", "a letter", value))?;
                self.state.get_or_insert(ProcessState::from(*letter));
                Ok(())
            }
            b"RssAnon" => set_kilobytes(&mut self.rss_anonymous, FILE, "RssAnon", value),
            b"RssShmem" => set_kilobytes(&mut self.rss_shmem, FILE, "RssShmem", value),
            b"RssFile" => set_kilobytes(&mut self.rss_file, FILE, "RssFile", value),
            b"VmLck" => set_kilobytes(&mut self.locked, FILE, "VmLck", value),
            b"HugetlbPages" => set_kilobytes(&mut self.hugetlb, FILE, "HugetlbPages", value),
            b"CoreDumping" => self.take_core_dumping(value),
            b"VmSwap" => set_kilobytes(&mut self.swap, FILE, "VmSwap", value),
            b"SigPnd" => set_mask(&mut self.thread_pending, "SigPnd", value),
            b"ShdPnd" => set_mask(&mut self.process_pending, "ShdPnd", value),
            _ => Ok(()),
        }
    }

    fn take_core_dumping(&mut self, value: &[u8]) -> Result<(), WireError> {
        let dumping = match value {
            b"0" => false,
            b"1" => true,
            _ => return Err(WireError::malformed(FILE, "CoreDumping", "0 or 1", value)),
        };
        self.core_dumping.get_or_insert(dumping);
        Ok(())
    }

    fn take_uids(&mut self, value: &[u8]) -> Result<(), WireError> {
        let mut uids = words(value).map(decimal_u32);
        let (Some(Some(real)), Some(Some(effective))) = (uids.next(), uids.next()) else {
            return Err(WireError::malformed(FILE, "Uid", "the real and the effective uid", value));
        };
        self.real_uid.get_or_insert(Uid(real));
        self.effective_uid.get_or_insert(Uid(effective));
        Ok(())
    }
}

fn set_pid(slot: &mut Option<Pid>, field: &'static str, value: &[u8]) -> Result<(), WireError> {
    let pid =
        decimal_u32(value).ok_or_else(|| WireError::malformed(FILE, field, "a process number", value))?;
    slot.get_or_insert(Pid(pid));
    Ok(())
}

fn set_mask(slot: &mut Option<u64>, field: &'static str, value: &[u8]) -> Result<(), WireError> {
    let mask = hexadecimal(value)
        .ok_or_else(|| WireError::malformed(FILE, field, "a mask of signals in hexadecimal", value))?;
    slot.get_or_insert(mask);
    Ok(())
}

/// Reads `/proc/PID/status`. The name's line comes first and cannot forge another: the kernel writes a line end in a
/// name as `\n`.
///
/// # Errors
/// [`WireError::Malformed`] as [`Status::take_line`]; [`WireError::Missing`] when there is no `Uid`, which every
/// kernel has.
pub fn parse_status(text: &[u8]) -> Result<Status, WireError> {
    let mut status = Status::default();
    for line in lines(text) {
        status.take_line(line)?;
    }
    status.real_uid.map(|_| status).ok_or(WireError::missing(FILE, "Uid"))
}

#[cfg(test)]
mod tests;
