//! `plimsoll doctor`: what this kernel offers.

use crate::exit::{Ending, Failure};
use clap::Args;
use std::io::Write;

/// How to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Probes and prints.
pub(crate) fn run(_arguments: &Arguments, _out: &mut dyn Write) -> Ending {
    Err(Failure::failed("'plimsoll doctor' is not part of this build"))
}
