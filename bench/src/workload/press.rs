//! What presses on memory in `bench workingset`.
//!
//! - `hog UID BYTES`: on `go` it touches so much anonymous memory, page by page, and says `touched` if it is still there.
//!   It asks to be the first that the kernel takes.
//! - `stream UID FILE`: on `go` it reads the file from end to end, again and again, until its input closes.

use super::{Commands, become_user, memory, number, say, usage};
use crate::error::BenchError;
use std::{
    fs::{self, File},
    io::Read,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// What `cat` reads at a time.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// One mapping of the hog.
const PIECE_BYTES: u64 = 64 << 20;

/// No hog takes more: 2 GiB.
const HOG_BYTES_MAX: u64 = 2 << 30;

/// Runs the hog.
///
/// # Errors
/// Bad arguments, or not root.
pub(super) fn hog(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let bytes: u64 = number(arguments, 1)?;
    if bytes > HOG_BYTES_MAX {
        return Err(usage(&arguments.join(" ")));
    }
    let page_length = memory::page_length();
    let mut commands = Commands::open();
    become_user(uid)?;
    fs::write("/proc/self/oom_score_adj", "1000").map_err(BenchError::io("write oom_score_adj"))?;
    say("ready")?;
    let mut held = Vec::new();
    while commands.next()?.is_some() {
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            let mut mapping = memory::map(piece)?;
            memory::touch(&mut mapping, page_length);
            held.push(mapping);
            left -= piece;
        }
        say("touched")?;
    }
    Ok(())
}

/// Runs the stream.
///
/// # Errors
/// Bad arguments, not root, or the file cannot be read.
pub(super) fn stream(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let path = arguments.get(1).ok_or_else(|| usage("stream"))?;
    let mut commands = Commands::open();
    become_user(uid)?;
    say("ready")?;
    if commands.next()?.is_none() {
        return Ok(());
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                read_file(path, &over)?;
            }
            Ok(())
        });
        let heard = loop {
            match commands.next() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        over.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap_or_else(|_panic| Err(usage("stream")));
        heard.and(read)
    })
}

/// Reads the file from end to end as `cat` does, until it is over; gives the bytes read.
pub(super) fn read_file(path: &str, over: &AtomicBool) -> Result<u64, BenchError> {
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
