//! Varlink messages on a stream: JSON ended by a NUL byte, bounded in size and in time.
//!
//! A client can send nothing, half a message, one byte a second or megabytes: each costs it its connection and the
//! daemon a bounded amount of memory and time. Every deadline is for the whole message, so that dripping bytes does not
//! extend it.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// The largest request that is read, its closing NUL included, in bytes. The largest real one is under 1 KiB.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// How long each step of a conversation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Between two requests, and before the first.
    pub idle: Duration,
    /// From the first byte of a message to its last.
    pub message: Duration,
}

impl Patience {
    /// The daemon's own: 30 s of silence, 5 s for a message in either direction.
    pub const SERVER: Self = Self { idle: Duration::from_secs(30), message: Duration::from_secs(5) };
}

/// Why no message came.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side closed the connection in the middle of a message.
    #[error("the connection was closed in the middle of a message")]
    Truncated,
    /// Silence, or a message that did not come to its end in time.
    #[error("nothing more came in time")]
    TimedOut,
    /// No NUL byte within the size allowed.
    #[error("a message may hold {max_bytes} bytes, this one is longer")]
    TooLong {
        /// The size allowed.
        max_bytes: usize,
    },
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Cuts a stream into messages.
#[derive(Debug)]
pub struct Frames<'a> {
    stream: &'a UnixStream,
    max_bytes: usize,
    pending: Vec<u8>,
    /// Bytes of `pending` known to hold no NUL, so that a long message is searched once and not once a read.
    searched_bytes: usize,
}

impl<'a> Frames<'a> {
    /// Messages of `stream`, each at most `max_bytes` long with its NUL.
    #[must_use]
    pub const fn new(stream: &'a UnixStream, max_bytes: usize) -> Self {
        Self { stream, max_bytes, pending: Vec::new(), searched_bytes: 0 }
    }

    /// The next message without its NUL; `None` when the other side closed the connection between two messages.
    ///
    /// # Errors
    /// [`FrameError`]; the stream is of no further use then.
    pub fn read(&mut self, patience: Patience) -> Result<Option<Vec<u8>>, FrameError> {
        let wait = if self.pending.is_empty() { patience.idle } else { patience.message };
        let mut deadline = Instant::now() + wait;
        loop {
            if let Some(message) = self.take_complete() {
                return Ok(Some(message));
            }
            if self.pending.len() >= self.max_bytes {
                return Err(FrameError::TooLong { max_bytes: self.max_bytes });
            }
            let began = self.pending.is_empty();
            if self.read_some(deadline)? == 0 {
                return if self.pending.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
            }
            if began {
                deadline = Instant::now() + patience.message;
            }
        }
    }

    /// Splits the first complete message off what has been read.
    fn take_complete(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.pending.get(self.searched_bytes..).unwrap_or_default();
        let Some(offset) = unsearched.iter().position(|byte| *byte == 0) else {
            self.searched_bytes = self.pending.len();
            return None;
        };
        let rest = self.pending.split_off(self.searched_bytes + offset + 1);
        let mut message = std::mem::replace(&mut self.pending, rest);
        self.searched_bytes = 0;
        message.pop();
        Some(message)
    }

    /// Reads once, never past `max_bytes`; the number of bytes read, 0 at the end of the stream.
    fn read_some(&mut self, deadline: Instant) -> Result<usize, FrameError> {
        let mut chunk = [0_u8; 4096];
        let room = self.max_bytes.saturating_sub(self.pending.len()).min(chunk.len());
        let chunk = chunk.get_mut(..room).unwrap_or_default();
        loop {
            self.stream.set_read_timeout(Some(remaining(deadline).ok_or(FrameError::TimedOut)?))?;
            let mut stream = self.stream;
            match stream.read(chunk) {
                Ok(count) => {
                    self.pending.extend_from_slice(chunk.get(..count).unwrap_or_default());
                    return Ok(count);
                }
                Err(error) => retry_or_fail(error)?,
            }
        }
    }
}

/// Writes all of `message` within `patience`.
///
/// # Errors
/// [`FrameError::TimedOut`] when the other side does not take it in time, [`FrameError::Io`] when the socket fails.
pub fn write_within(stream: &UnixStream, message: &[u8], patience: Duration) -> Result<(), FrameError> {
    let deadline = Instant::now() + patience;
    let mut rest = message;
    while !rest.is_empty() {
        stream.set_write_timeout(Some(remaining(deadline).ok_or(FrameError::TimedOut)?))?;
        let mut writer = stream;
        match writer.write(rest) {
            Ok(0) => return Err(FrameError::Io(io::ErrorKind::WriteZero.into())),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) => retry_or_fail(error)?,
        }
    }
    Ok(())
}

/// What is left until `deadline`; `None` when it has passed (a socket timeout of 0 would mean 'for ever').
fn remaining(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// A signal and a timeout are for the caller's deadline to judge; all else ends the conversation.
fn retry_or_fail(error: io::Error) -> Result<(), FrameError> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    if matches!(error.kind(), Interrupted | WouldBlock | TimedOut) {
        Ok(())
    } else {
        Err(FrameError::Io(error))
    }
}

#[cfg(test)]
mod tests;
