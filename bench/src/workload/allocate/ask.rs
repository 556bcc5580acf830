//! `ask UID NAMES PIECE`: the seed's process. `go BYTES MOMENT_NS` waits for that moment of the monotonic clock, asks for
//! pieces until it has so many bytes or is refused, touches all of each one, says `asked BYTES REFUSED` (refused: 0 or 1)
//! and exits, with all that it has.

use super::allocator;
use crate::{
    error::BenchError,
    workload::{Commands, forbid_huge_pages, memory, number, say, sleep_until_ns, usage},
};

/// It asks for no more, and with plain malloc touches no more: 1 GB.
const BYTES_MAX: u64 = 1_000_000_000;

/// Runs it.
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let allocator = allocator(arguments, 1)?;
    let piece_bytes = number(arguments, 2)?;
    forbid_huge_pages()?;
    let page_length = memory::page_length();
    let mut commands = Commands::open_as(uid)?;
    let Some((word, numbers)) = commands.next()? else { return Ok(()) };
    let ("go", &[bytes @ 0..=BYTES_MAX, moment_ns]) = (word.as_str(), numbers.as_slice()) else {
        return Err(usage(&word));
    };
    sleep_until_ns(moment_ns)?;
    let (mut had_bytes, mut refused) = (0_u64, 0);
    while had_bytes < bytes {
        let Some(mut block) = allocator.allocate(piece_bytes) else {
            refused = 1;
            break;
        };
        block.touch_all(page_length);
        // Kept until the process ends, without a list that would be memory which nobody was asked for.
        std::mem::forget(block);
        had_bytes += piece_bytes as u64;
    }
    say(&format!("asked {had_bytes} {refused}"))
}
