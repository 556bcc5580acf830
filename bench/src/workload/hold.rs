//! Processes with memory.
//!
//! - `hold UID BYTES [NAME]`: touches the bytes, without huge pages, before it says `ready`: a large process that does
//!   nothing.
//! - `hog UID`: has nothing yet, and asks to be the first that the kernel takes.
//!
//! On `take BYTES` either touches so many more, page by page, and says `holds BYTES`, all of them together; on `free` it gives
//! all of it back. On `use` it touches all that it holds again and again, until it is ended.

use super::{Commands, become_user, forbid_huge_pages, memory, number, say, usage};
use crate::error::BenchError;
use memmap2::MmapMut;
use rustix::thread::set_name;
use std::{ffi::CString, fs};

/// Runs the one that holds.
pub(super) fn hold(arguments: &[String]) -> Result<(), BenchError> {
    let bytes = number(arguments, 1)?;
    forbid_huge_pages()?;
    if let Some(name) = arguments.get(2) {
        let name = CString::new(name.as_str()).map_err(|error| usage(&error.to_string()))?;
        set_name(&name).map_err(BenchError::io("PR_SET_NAME"))?;
    }
    become_user(number(arguments, 0)?)?;
    serve(bytes)
}

/// Runs the hog.
pub(super) fn hog(arguments: &[String]) -> Result<(), BenchError> {
    become_user(number(arguments, 0)?)?;
    fs::write("/proc/self/oom_score_adj", "1000").map_err(BenchError::io("write oom_score_adj"))?;
    serve(0)
}

fn serve(bytes: u64) -> Result<(), BenchError> {
    let mut commands = Commands::open();
    let (mut held, mut held_bytes) = (Vec::new(), 0_u64);
    if bytes > 0 {
        held.push(taken(bytes, &mut held_bytes)?);
    }
    say("ready")?;
    while let Some((word, numbers)) = commands.next()? {
        match (word.as_str(), numbers.as_slice()) {
            ("take", &[bytes]) => {
                held.push(taken(bytes, &mut held_bytes)?);
                say(&format!("holds {held_bytes}"))?;
            }
            ("free", []) => {
                (held, held_bytes) = (Vec::new(), 0);
                say("holds 0")?;
            }
            ("use", []) => loop {
                for mapping in &mut held {
                    memory::touch(mapping, memory::page_length());
                }
            },
            _ => return Err(usage(&word)),
        }
    }
    Ok(())
}

fn taken(bytes: u64, held_bytes: &mut u64) -> Result<MmapMut, BenchError> {
    *held_bytes = held_bytes.saturating_add(bytes);
    if *held_bytes > memory::BYTES_MAX {
        return Err(usage(&format!("{held_bytes} bytes")));
    }
    let mut mapping = memory::map(bytes)?;
    memory::touch(&mut mapping, memory::page_length());
    Ok(mapping)
}
