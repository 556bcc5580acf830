//! The name of a process, which it chose itself.

use super::{Printable, WireError};
use core::fmt;

/// The longest name kept, in bytes. A user process has at most 15 (`TASK_COMM_LEN` less its NUL); `/proc` shows
/// up to 63 for kernel workers, whose names it completes (`proc_task_name`, fs/proc/array.c).
pub const COMM_BYTES_MAX: usize = 63;

/// A process name: any bytes but NUL. Shown with `Display`, as [`Printable`] text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm {
    bytes: [u8; COMM_BYTES_MAX],
    length: usize,
}

impl Comm {
    /// From bytes that end at the first NUL, as the kernel keeps them, or at the slice's end; longer ones are cut
    /// at [`COMM_BYTES_MAX`].
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Self {
        let mut bytes = [0; COMM_BYTES_MAX];
        let mut length = 0;
        for (slot, byte) in bytes.iter_mut().zip(name.iter().take_while(|byte| **byte != 0)) {
            *slot = *byte;
            length += 1;
        }
        Self { bytes, length }
    }

    /// The name as the process set it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&self.bytes)
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(self.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({self})")
    }
}

/// Reads `/proc/PID/comm`: the name and one line end, which is not part of it (the name may hold others).
///
/// # Errors
/// [`WireError::Missing`] when the line end is not there, so that the text was cut.
pub fn parse_comm(text: &[u8]) -> Result<Comm, WireError> {
    text.strip_suffix(b"\n").map(Comm::from_bytes).ok_or(WireError::missing("/proc/PID/comm", "line end"))
}

#[cfg(test)]
mod tests;
