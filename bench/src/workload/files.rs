//! What reads files and starts programs in `bench workingset`.
//!
//! - `stream UID FILE`: on `go` it reads the file from end to end, again and again, until its input closes.
//! - `read UID FILE`: `read` reads the file from end to end and answers `done NS DISK_BYTES BYTES`; `blocks COUNT` reads
//!   so many blocks of 4 KiB of it by pread(2), from its begin on and again, and answers `done NS`. `DISK_BYTES` is what the
//!   process had fetched from the storage meanwhile (`read_bytes` of its /proc/self/io).
//! - `start UID LIBRARIES PROGRAM ARGUMENT...`: `start` runs that program to its end, with its libraries from that folder
//!   (none where `-`), and answers `done NS STATUS`.

use super::{Commands, number, say, until_input_ends, usage};
use crate::{error::BenchError, proc};
use plimsoll_sys::process::clock_monotonic_ns;
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

/// What `cat` reads at a time.
const BLOCK_BYTES: usize = 128 << 10;

const SMALL_BLOCK_BYTES: u64 = 4096;

/// Runs the stream.
pub(super) fn stream(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let path = arguments.get(1).ok_or_else(|| usage("stream"))?;
    let mut commands = Commands::open_as(uid)?;
    if commands.next()?.is_none() {
        return Ok(());
    }
    drop(commands);
    until_input_ends(|over| {
        while !over.load(Ordering::Relaxed) {
            read_file(path, over)?;
        }
        Ok(())
    })
}

/// Reads the file from end to end as `cat` does, until it is over; gives the bytes read.
fn read_file(path: &str, over: &AtomicBool) -> Result<u64, BenchError> {
    let mut file = File::open(path).map_err(BenchError::io(format!("open {path}")))?;
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut bytes = 0;
    while !over.load(Ordering::Relaxed) {
        let count = file.read(&mut block).map_err(BenchError::io(format!("read {path}")))?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
    }
    Ok(bytes)
}

/// Runs the reader.
pub(super) fn read(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let path = arguments.get(1).ok_or_else(|| usage("read"))?;
    let mut commands = Commands::open_as(uid)?;
    while let Some((word, numbers)) = commands.next()? {
        match (word.as_str(), numbers.as_slice()) {
            ("read", []) => {
                let before_bytes = fetched_bytes()?;
                let before_ns = clock_monotonic_ns();
                let bytes = read_file(path, &AtomicBool::new(false))?;
                let took_ns = clock_monotonic_ns() - before_ns;
                let fetched = fetched_bytes()?.saturating_sub(before_bytes);
                say(&format!("done {took_ns} {fetched} {bytes}"))?;
            }
            ("blocks", &[count]) => say(&format!("done {}", read_blocks(path, count)?))?,
            _ => return Err(usage(&word)),
        }
    }
    Ok(())
}

/// Nanoseconds for so many small reads.
fn read_blocks(path: &str, count: u64) -> Result<u64, BenchError> {
    let file = File::open(path).map_err(BenchError::io(format!("open {path}")))?;
    let length = file.metadata().map_err(BenchError::io(format!("look at {path}")))?.len();
    let blocks = (length / SMALL_BLOCK_BYTES).max(1);
    let mut block = vec![0_u8; usize::try_from(SMALL_BLOCK_BYTES).unwrap_or(4096)];
    let before_ns = clock_monotonic_ns();
    for index in 0..count {
        let offset = (index % blocks) * SMALL_BLOCK_BYTES;
        file.read_at(&mut block, offset).map_err(BenchError::io(format!("read {path}")))?;
    }
    Ok(clock_monotonic_ns() - before_ns)
}

/// What this process had fetched from the storage so far.
fn fetched_bytes() -> Result<u64, BenchError> {
    let text = fs::read_to_string("/proc/self/io").map_err(BenchError::io("read /proc/self/io"))?;
    proc::number_field(&text, "read_bytes:").ok_or_else(|| BenchError::malformed("/proc/self/io", &text))
}

/// Runs the one that starts programs.
pub(super) fn start(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let [_, libraries, program, rest @ ..] = arguments else { return Err(usage(&arguments.join(" "))) };
    let mut commands = Commands::open_as(uid)?;
    while commands.next()?.is_some() {
        let mut command = Command::new(program);
        command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if libraries != "-" {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let before_ns = clock_monotonic_ns();
        let status = command.status().map_err(BenchError::io(format!("start {program}")))?;
        let took_ns = clock_monotonic_ns() - before_ns;
        // 128 and the signal, as a shell says it, is of no use here: that it did not end well is.
        say(&format!("done {took_ns} {}", status.code().unwrap_or(255)))?;
    }
    Ok(())
}
