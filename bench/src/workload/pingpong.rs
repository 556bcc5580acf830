//! `pingpong UID CPU OTHER`: two threads, each on its processor, pass a byte to and fro through pipes.
//!
//! `pass TIMES` answers `done NS CPU_NS`: for that many times to and fro, the time, and what both threads had of processors.

use super::{Commands, number, say, usage};
use crate::{cpus, error::BenchError};
use plimsoll_sys::process::{clock_monotonic_ns, process_cpu_time};
use std::{
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    thread,
};

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let (cpu, other): (usize, usize) = (number(arguments, 1)?, number(arguments, 2)?);
    let broken = |error| BenchError::io("pipe")(error);
    let (here, there) = (pipe().map_err(broken)?, pipe().map_err(broken)?);
    let mut commands = Commands::open_as(uid)?;
    let mut ends = (here.0, there.1);
    let echo = thread::spawn(move || {
        cpus::use_only(&[other])?;
        // Until the other end is closed.
        echo((there.0, here.1));
        Ok(())
    });
    cpus::use_only(&[cpu])?;
    while let Some((word, numbers)) = commands.next()? {
        let ("pass", &[times]) = (word.as_str(), numbers.as_slice()) else { return Err(usage(&word)) };
        let (start_ns, start_cpu) = (clock_monotonic_ns(), process_cpu_time());
        for _ in 0..times {
            pass(&mut ends).map_err(broken)?;
        }
        let (took_ns, cpu) = (clock_monotonic_ns() - start_ns, process_cpu_time() - start_cpu);
        say(&format!("done {took_ns} {}", cpu.as_nanos()))?;
    }
    drop(ends);
    echo.join().unwrap_or_else(|_panicked| Err(usage("the other thread")))
}

fn pass((input, output): &mut (PipeReader, PipeWriter)) -> std::io::Result<()> {
    output.write_all(&[1])?;
    input.read_exact(&mut [0])
}

fn echo((mut input, mut output): (PipeReader, PipeWriter)) {
    while input.read_exact(&mut [0]).and_then(|()| output.write_all(&[1])).is_ok() {}
}
