//! `leash PARENT PROGRAM ARGUMENT...`: becomes another program, which gets SIGTERM when the bench ends, however that came.

use super::{number, usage};
use crate::error::BenchError;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::{os::unix::process::CommandExt as _, process::Command};

/// Runs it: returns only where it fails.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let parent = Pid::from_raw(number(arguments, 0)?);
    let Some((program, rest)) = arguments.get(1..).and_then(|rest| rest.split_first()) else {
        return Err(usage(&arguments.join(" ")));
    };
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(BenchError::io("PR_SET_PDEATHSIG"))?;
    if getppid() != parent {
        // It has ended before.
        return Ok(());
    }
    Err(BenchError::io(format!("start {program}"))(Command::new(program).args(rest).exec()))
}
