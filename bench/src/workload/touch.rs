//! `touch UID CPU`: maps, touches and unmaps memory on command, and says how long it took.
//!
//! `map BYTES TIMES` answers `done TOUCH_NS START_NS END_NS CPU_NS PAGES`: nanoseconds inside the touching alone, the
//! monotonic times of the first map and the last unmap, the processor time between these, and the pages touched.

use super::{Commands, forbid_huge_pages, memory, number, say, usage};
use crate::{cpus, error::BenchError};
use plimsoll_sys::process::{clock_monotonic_ns, thread_cpu_time};

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let cpu = number(arguments, 1)?;
    forbid_huge_pages()?;
    cpus::use_only(&[cpu])?;
    let page_length = memory::page_length();
    let mut commands = Commands::open_as(uid)?;
    while let Some((word, numbers)) = commands.next()? {
        let ("map", &[bytes, times]) = (word.as_str(), numbers.as_slice()) else {
            return Err(usage(&word));
        };
        let (start_ns, start_cpu) = (clock_monotonic_ns(), thread_cpu_time());
        let (mut touch_ns, mut pages) = (0, 0);
        for _ in 0..times {
            let mut mapping = memory::map(bytes)?;
            let before_ns = clock_monotonic_ns();
            pages += memory::touch(&mut mapping, page_length);
            touch_ns += clock_monotonic_ns() - before_ns;
        }
        let (end_ns, cpu) = (clock_monotonic_ns(), thread_cpu_time() - start_cpu);
        say(&format!("done {touch_ns} {start_ns} {end_ns} {} {pages}", cpu.as_nanos()))?;
    }
    Ok(())
}
