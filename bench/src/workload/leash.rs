//! `leash PARENT PROGRAM ARGUMENT...`: becomes another program, which gets SIGTERM when the bench ends, however that came.

use super::{number, usage};
use crate::error::BenchError;
use nix::{
    sys::{prctl, signal::Signal},
    unistd::getppid,
};
use std::{os::unix::process::CommandExt as _, process::Command};

/// Runs it: returns only where it fails.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let parent: i32 = number(arguments, 0)?;
    let Some((program, rest)) = arguments.get(1..).and_then(|rest| rest.split_first()) else {
        return Err(usage(&arguments.join(" ")));
    };
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(BenchError::io("PR_SET_PDEATHSIG"))?;
    if getppid().as_raw() != parent {
        // It has ended before.
        return Ok(());
    }
    Err(BenchError::io(format!("start {program}"))(Command::new(program).args(rest).exec()))
}
