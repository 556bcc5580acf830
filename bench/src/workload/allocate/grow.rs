//! `grow UID NAMES`: a process that keeps what it allocates.
//!
//! `grow BYTES STEP` allocates pieces of `STEP` bytes until it has so many, touches each one, and answers
//! `grew CALLS_NS FIRST_TOUCH_NS PAGES...`: three numbers for each call in which memory came in, those being how long the call
//! took, how long it and the touching of its block took, and how many pages came in during the call.
//!
//! The kernel counts the pages that come in for each thread, also those that are brought in ahead (`MADV_POPULATE_WRITE`).

use super::{allocator, faults, refused};
use crate::{
    error::BenchError,
    workload::{Commands, forbid_huge_pages, memory, number, say, usage},
};
use plimsoll_sys::allocator::{Allocator, Block};
use plimsoll_sys::process::clock_monotonic_ns;

/// It holds no more.
const BYTES_MAX: u64 = 256 << 20;

/// One call.
struct Call {
    call_ns: u64,
    first_touch_ns: u64,
    pages: u64,
    touched_pages: u64,
}

/// Runs it.
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let allocator = allocator(arguments, 1)?;
    forbid_huge_pages()?;
    let page_length = memory::page_length();
    let mut commands = Commands::open_as(uid)?;
    let mut kept = Vec::new();
    while let Some((word, numbers)) = commands.next()? {
        let ("grow", &[bytes @ 1..=BYTES_MAX, step @ 1..=BYTES_MAX]) = (word.as_str(), numbers.as_slice())
        else {
            return Err(usage(&word));
        };
        let size_bytes = usize::try_from(step).map_err(|error| usage(&error.to_string()))?;
        let mut answer = String::from("grew");
        for _ in 0..bytes / step {
            let (block, call) = allocate(&allocator, size_bytes, page_length)?;
            kept.push(block);
            if call.pages + call.touched_pages > 0 {
                answer += &format!(" {} {} {}", call.call_ns, call.first_touch_ns, call.pages);
            }
        }
        say(&answer)?;
    }
    Ok(())
}

fn allocate(
    allocator: &Allocator,
    size_bytes: usize,
    page_length: usize,
) -> Result<(Block<'_>, Call), BenchError> {
    let (before, start_ns) = (faults()?, clock_monotonic_ns());
    let mut block = allocator.allocate(size_bytes).ok_or_else(|| refused(size_bytes))?;
    let called_ns = clock_monotonic_ns();
    let called = faults()?;
    let touch_ns = clock_monotonic_ns();
    block.touch_all(page_length);
    let call_ns = called_ns - start_ns;
    let first_touch_ns = call_ns + (clock_monotonic_ns() - touch_ns);
    let touched_pages = faults()?.saturating_sub(called);
    Ok((block, Call { call_ns, first_touch_ns, pages: called.saturating_sub(before), touched_pages }))
}
