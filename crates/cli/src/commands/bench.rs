//! `plimsoll bench`: measurements, paired and in one run.

use crate::exit::{Ending, Failure};
use clap::{Args, ValueEnum};
use std::io::Write;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// What a page fault costs, with and without limits, next to the alternatives.
    Faults,
    /// From the touch that crosses a line to the process being gone.
    Latency,
    /// How far past a line usage gets.
    Overshoot,
    /// The count against the kernel's own, at rest after a storm.
    Accuracy,
}

/// What to measure, and how to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments, _out: &mut dyn Write) -> Ending {
    let name =
        arguments.name.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    Err(Failure::failed(format_args!("'plimsoll bench {name}' is not part of this build")))
}
