//! `plimsoll simulate`: what the machine guard would have done, from what it saw.
//!
//! No daemon is asked, nothing on this machine is looked at: a trace of another machine comes to the same.

use crate::{
    exit::{Ending, Exit, Failure},
    input, output,
};
use clap::Args;
use plimsoll_daemon::config::{self, Places};
use plimsoll_policy::machine::MachineConfig;
use plimsoll_report::trace::{TRACE_BYTES_MAX, replay, simulated, words};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// Which trace, and by which configuration.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A trace, as 'plimsoll why --trace' prints it. '-' is standard input.
    #[arg(value_name = "TRACE|-")]
    trace: PathBuf,
    /// With [machine] of this configuration file in the place of the trace's own. Who is protected, and what each process
    /// weighs, stays as it was on the machine.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Reads, decides once more, tells.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Ending {
    let asked = arguments.config.as_deref().map(machine).transpose()?;
    let (trace, named) =
        input::read(&arguments.trace, TRACE_BYTES_MAX, "give a trace, as 'plimsoll why --trace' prints it")?;
    let replay = replay(&trace, asked)
        .map_err(|error| Failure::failed(format_args!("{named} is no trace: {error}")))?;
    if arguments.json {
        output::json(out, &simulated(&replay))?;
    } else {
        output::lines(out, &words(&replay))?;
    }
    Ok(Exit::Done)
}

/// What a configuration has the machine guard do.
fn machine(path: &Path) -> Result<MachineConfig, Failure> {
    let config = config::load(&Places::new(Some(path))).map_err(Failure::failed)?;
    if !config.machine.enabled {
        return Err(Failure::failed(format_args!(
            "{}: machine.enabled = false, so there is nothing to simulate; set it to true",
            path.display()
        )));
    }
    Ok(config.machine.guard)
}

#[cfg(test)]
mod tests;
