//! `plimsoll bench`: measurements, paired and in one run.

use crate::{
    exit::{Ending, Exit, Failure},
    output,
};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use plimsoll_bench::{Options, QUIET, ROUNDS, plot};
use std::{fs, io::Write, path::PathBuf, time::Duration};

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// What a page fault costs, with and without limits, next to the alternatives.
    Faults,
    /// What two threads pay that wake each other without end.
    Pingpong,
    /// From the touch that crosses a line to the process being gone.
    Latency,
    /// How far past a line usage gets.
    Overshoot,
    /// The count against the kernel's own, at rest after a storm.
    Accuracy,
    /// What an account's usage costs on hundreds of CPUs: counted in the model, timed by one figure of this machine.
    Scale,
    /// How fast a killed process's memory comes back, by itself and with help.
    Reap,
    /// From the wake-up that finds memory short to the signal, among many processes.
    Select,
    /// What asking for memory first costs, beside other allocators, and whether a grant is kept.
    Tmalloc,
    /// What stays in memory under a hog and a stream, with and without working-set protection.
    Workingset,
    /// What recording who asks for blocks of several pages costs.
    Frag,
    /// Whom each guard ends when memory runs out, and what others feel meanwhile: in a guest of the lab alone.
    Suite,
}

/// A day, at most.
fn minutes() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(..=1_440)
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
    /// Few rounds and small sizes: shows that it works, measures nothing well.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only cases whose name begins with this.
    #[arg(long, value_name = "CASE")]
    pub(crate) only: Option<String>,
    /// workingset, suite and frag: where their files are made, 4 GiB at most [default: the temporary folder; others: none].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// suite, and frag in a guest: how often each case runs under each guard.
    #[arg(long, value_name = "COUNT", default_value_t = ROUNDS)]
    pub(crate) rounds: usize,
    /// suite: only under this guard: nobody, plimsoll, earlyoom or nohang; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub(crate) guard: Vec<String>,
    /// workingset: how long it builds without pressure.
    #[arg(long, value_name = "MINUTES", default_value_t = QUIET.as_secs() / 60, value_parser = minutes())]
    pub(crate) minutes: u64,
    /// workingset: what it builds then, as a shell takes it [default: C files of its own].
    #[arg(long, value_name = "COMMAND")]
    pub(crate) build: Option<String>,
    /// workingset: draws the timed reads over time into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Ending {
    if !rustix::process::geteuid().is_root() {
        let message = "not permitted: a bench starts a guard and users of its own; run it with sudo";
        return Err(Failure::not_permitted(message));
    }
    let name =
        arguments.name.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let options = Options {
        quick: arguments.quick,
        only: arguments.only.clone(),
        data: arguments.data.clone(),
        rounds: arguments.rounds,
        guards: arguments.guard.clone(),
        quiet: Duration::from_secs(arguments.minutes.saturating_mul(60)),
        build: arguments.build.clone(),
        ..Options::default()
    };
    let report = plimsoll_bench::run(&name, &options).map_err(Failure::failed)?;
    if arguments.json {
        output::json(out, &report)?;
    } else {
        write!(out, "{report}")?;
    }
    // After what was measured, so that a name that cannot be written costs no figures.
    let Some(file) = &arguments.plot else { return Ok(Exit::Done) };
    let Some(trace) = report.traces.first() else {
        return Err(Failure::failed(
            "--plot: nothing was taken over time: only the case 'timeline' of 'workingset' is",
        ));
    };
    fs::write(file, plot::svg(trace))
        .map_err(|error| Failure::failed(format!("write {}: {error}", file.display())))?;
    Ok(Exit::Done)
}
