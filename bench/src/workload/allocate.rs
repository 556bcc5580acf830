//! What `bench tmalloc` has allocators do. The names are `malloc` or `tmalloc`; which library has them, the bench decides
//! when it starts the process (`LD_PRELOAD`).
//!
//! - `churn UID NAMES`: blocks come and go for a given time.
//! - `grow UID NAMES`: blocks are kept, and those calls that brought memory in are timed.
//! - `ask UID NAMES PIECE`: the seed's process: it asks piece by piece until it is refused.
//! - `grab UID NAMES SEED`: sizes, moments and order by chance, until told to stop.
//! - `probe UID SEED`: asks the coordinator in its own words, and looks whether its refusals are so.

pub(super) mod ask;
pub(super) mod churn;
pub(super) mod grab;
pub(super) mod grow;
pub(super) mod probe;

use super::usage;
use crate::error::BenchError;
use nix::sys::resource::{UsageWho, getrusage};
use plimsoll_sys::allocator::{Allocator, Names};

/// Takes the argument at `index` as the allocator's names, and finds it.
fn allocator(arguments: &[String], index: usize) -> Result<Allocator, BenchError> {
    let names = match arguments.get(index).map(String::as_str) {
        Some("malloc") => Names::Malloc,
        Some("tmalloc") => Names::Tmalloc,
        _ => return Err(usage(&arguments.join(" "))),
    };
    Allocator::find(names).ok_or_else(|| missing(names))
}

fn missing(names: Names) -> BenchError {
    BenchError::Malformed {
        what: format!("the functions of {names:?}"),
        text: "no loaded library has them".to_owned(),
    }
}

/// An allocator that refuses where memory is plenty measures nothing.
fn refused(bytes: usize) -> BenchError {
    BenchError::Malformed { what: format!("a block of {bytes} bytes"), text: "refused".to_owned() }
}

/// Pages that came in for this thread so far.
fn faults() -> Result<u64, BenchError> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(BenchError::io("getrusage"))?;
    let count = usage.minor_page_faults();
    u64::try_from(count)
        .map_err(|error| BenchError::malformed(format!("a count ({error})"), &count.to_string()))
}
