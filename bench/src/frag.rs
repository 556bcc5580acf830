//! `frag`: what recording who asks for blocks of several pages costs, while it records, and what the guard of such blocks is
//! good for.
//!
//! - `recording faults`: page faults of single pages, which are none of the recorder's business: one comparison each.
//! - `recording requests`: requests for a block of order 2, and nothing else: the buffer list of a pipe is made longer
//!   and shorter again. It shows the whole price of a request that is counted.
//! - `fragmented`: requests where memory is in pieces, without and with the guard of large blocks.

mod fragmented;

use crate::{
    cpus,
    error::BenchError,
    faults::crew::{Crew, Load},
    options::Options,
    pairing::{Figures, Rounds, interleave},
    report::{BenchReport, Series},
    suite,
};
use nix::{
    fcntl::{FcntlArg, fcntl},
    unistd::pipe,
};
use plimsoll_sys::{
    bpf::{BpfError, Recorder},
    process::clock_monotonic_ns,
};
use std::os::fd::OwnedFd;

/// The user whose process faults.
const USER: u32 = 60_010;

/// The smallest order that is recorded, as `plimsoll frag` does.
const ORDER_MIN: u32 = 2;

/// A pageblock has 2 to the power of this many pages here (x86-64, arm64 with pages of 4 KiB).
const PAGEBLOCK_ORDER: u32 = 9;

/// Buffers of so many bytes: 256 entries of 40 bytes do not fit a slab and are taken as a block of order 2, 128 do (struct
/// pipe_buffer, include/linux/pipe_fs_i.h; KMALLOC_MAX_CACHE_SIZE of SLUB is two pages).
const LONG_BYTES: i32 = 1 << 20;
const SHORT_BYTES: i32 = 1 << 19;

/// Runs all cases.
pub(crate) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    if options.wants("recording faults") {
        let load = Load { bytes_each: 16 << 20, times: if options.quick { 2 } else { 32 } };
        let mut crew = Crew::gather(options, USER, 1)?;
        let rounds = recorded(options, || {
            let pass = crew.run(load)?;
            Ok(Figures {
                own: pass.touch_ns_per_page,
                cpu: pass.cpu_ns_per_page,
                kept_up: pass.touch_ns_per_page,
            })
        })?;
        add(report, "recording faults", &rounds, "ns/page");
    }
    if options.wants("recording requests") {
        let times = if options.quick { 1_000 } else { 100_000 };
        let first = cpus::allowed()?.first().copied();
        cpus::use_only(first.as_slice())?;
        let (_reader, writer) = pipe().map_err(|errno| BenchError::io("make a pipe")(errno))?;
        let rounds = recorded(options, || {
            let begin = clock_monotonic_ns();
            for _ in 0..times {
                resize(&writer, LONG_BYTES)?;
                resize(&writer, SHORT_BYTES)?;
            }
            let each = clock_monotonic_ns().saturating_sub(begin) as f64 / f64::from(times);
            Ok(Figures { own: each, cpu: each, kept_up: each })
        })?;
        add(report, "recording requests", &rounds, "ns/request");
    }
    match suite::disk() {
        Some(_) => fragmented::run(options, report),
        None if options.only.as_deref().is_some_and(|only| only.starts_with("fragmented")) => {
            Err(BenchError::Unfit { problem: suite::GUESTS_ONLY.to_owned() })
        }
        None => {
            report.note("fragmented: left out, as it takes all memory: lab/bench.sh 6.12 frag");
            Ok(())
        }
    }
}

fn resize(pipe: &OwnedFd, bytes: i32) -> Result<(), BenchError> {
    let resized = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(bytes));
    resized.map(drop).map_err(|errno| BenchError::io("resize a pipe")(errno))
}

/// Measures without and with a recorder.
fn recorded(
    options: &Options,
    mut measure: impl FnMut() -> Result<Figures, BenchError>,
) -> Result<Vec<Rounds>, BenchError> {
    interleave(2, options.sized(20, 1), |variant| {
        if variant == 0 {
            return measure();
        }
        let failed = |error: BpfError| BenchError::Unfit { problem: error.to_string() };
        let recorder = Recorder::start(ORDER_MIN, PAGEBLOCK_ORDER).map_err(failed)?;
        let figures = measure();
        recorder.stop().map_err(failed)?;
        figures
    })
}

fn add(report: &mut BenchReport, case: &str, rounds: &[Rounds], unit: &str) {
    let [none, recording] = rounds else { return };
    let none: Series<'_> = ("none", &none.own);
    let recording: Series<'_> = ("recording", &recording.own);
    report.add_row(case, none, unit);
    report.add_row(case, recording, unit);
    report.add_ratio(case, recording, none);
}
