//! Carries the bench workloads on their own, for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    u8::try_from(plimsoll_bench::workload_main(&arguments)).map_or(ExitCode::FAILURE, ExitCode::from)
}
