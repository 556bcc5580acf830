//! `/dev/kmsg`, read on from where it was read last. Nothing is woken by it unless it is polled.

use plimsoll_wire::text::{KernelRecord, parse_kernel_record};
use rustix::{
    fs::{Mode, OFlags, SeekFrom, open, seek},
    io::{Errno, read},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// Where the kernel shows its log.
pub const KMSG_PATH: &str = "/dev/kmsg";

/// The longest record (`CONSOLE_EXT_LOG_MAX`, kernel/printk/internal.h, 6.1; `PRINTKRB_RECORD_MAX` is less).
const RECORD_BYTES_MAX: usize = 8192;

/// The kernel's log. The right to read it (`CAP_SYSLOG` with `kernel.dmesg_restrict`) is asked for when it is opened, and
/// never again.
#[derive(Debug)]
pub struct KernelLog {
    file: OwnedFd,
}

/// What a reading met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounts {
    /// Records shown to the visitor.
    pub records: u64,
    /// The log had moved on: records before these were overwritten unread.
    pub gaps: u64,
}

impl KernelLog {
    /// Opens the log at its end.
    ///
    /// # Errors
    /// What the kernel said: `EPERM` without the right to read it, `ENOENT` where there is no such device.
    pub fn open() -> io::Result<Self> {
        Self::open_at(Path::new(KMSG_PATH))
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = Self { file: open(path, flags, Mode::empty())? };
        seek(&log.file, SeekFrom::End(0))?;
        Ok(log)
    }

    /// Goes back to the oldest record there is.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn rewind(&mut self) -> io::Result<()> {
        seek(&self.file, SeekFrom::Start(0)).map(|_| ()).map_err(io::Error::from)
    }

    /// Shows every record since the last reading to `visit`, oldest first. One that cannot be understood is left out.
    ///
    /// # Errors
    /// What the kernel said; those before were shown.
    pub fn read(&mut self, mut visit: impl FnMut(KernelRecord<'_>)) -> io::Result<LogCounts> {
        let mut counts = LogCounts::default();
        let mut room = [0; RECORD_BYTES_MAX];
        loop {
            match read(&self.file, &mut room) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(counts),
                Ok(length) => {
                    if let Ok(record) = parse_kernel_record(room.get(..length).unwrap_or_default()) {
                        counts.records = counts.records.saturating_add(1);
                        visit(record);
                    }
                }
                Err(Errno::INTR) => {}
                // The next one to be read was overwritten: the kernel goes on with the oldest.
                Err(Errno::PIPE) => counts.gaps = counts.gaps.saturating_add(1),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests;
