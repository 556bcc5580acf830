//! `plimsoll`: one binary for the guard and everything that talks to it.
//!
//! Each command is a function of its arguments and an output; this file parses, dispatches, and turns what comes back
//! into an exit status and at most one line on standard error.
#![expect(clippy::print_stderr, reason = "a program's errors go to standard error")]

mod arguments;
mod commands;
mod exit;
mod feed;
mod hook;
mod input;
mod interrupt;
mod names;
mod output;
mod since;
mod usage;

use arguments::{Command, CommandLine};
use clap::Parser;
use commands::{
    bench, daemon, demo, doctor, explain, frag, generate, history, import, jobs, kill, limit, notify,
    protect, report, run, simulate, status, top, why,
};
use exit::{Ending, Exit, Failure};
use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};
use usage::Usage;

fn main() -> ExitCode {
    if let Some(ending) = inner_part() {
        return ending;
    }
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(&error).into(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let ending = carry_out(line, &mut out);
    let flushed = out.flush().map_err(Failure::from);
    match ending.and_then(|exit| flushed.map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(Failure::ReaderGone) => Exit::Done.into(),
        Err(Failure::Told { exit, message }) => {
            eprintln!("plimsoll: {}", output::printable(&message));
            exit.into()
        }
    }
}

/// Parts of this program that it starts itself, under names that are no commands of the user's: the loader of the
/// daemon and its questions to the name services, what `run` runs when a line is near, the workloads of the benches and of the
/// demo.
fn inner_part() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next()?.as_str() {
        plimsoll_daemon::loader::SUBCOMMAND => {
            Some(ended(plimsoll_daemon::loader::main().map(|()| Exit::Done)))
        }
        plimsoll_daemon::directory::lookup::SUBCOMMAND => {
            Some(ended(plimsoll_daemon::directory::lookup::main().map(|()| Exit::Done)))
        }
        run::HAVE_GO_ON => Some(ended(run::have_go_on().map(|()| Exit::Done))),
        run::LET_THROUGH => Some(ended(Err(run::let_signals_through(std::env::args_os().skip(2))))),
        "bench-workload" => {
            let status = plimsoll_bench::workload_main(&arguments.collect::<Vec<_>>());
            Some(ExitCode::from(u8::try_from(status).unwrap_or(1)))
        }
        _ => None,
    }
}

/// What a part of this program came to.
fn ended(ending: Result<Exit, String>) -> ExitCode {
    match ending {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("{}", output::printable(&error));
            Exit::Failed.into()
        }
    }
}

fn carry_out(line: CommandLine, out: &mut dyn Write) -> Ending {
    let socket = line.socket;
    match line.command {
        Command::Daemon(arguments) => daemon::run(arguments, socket, out),
        Command::Demo(arguments) => demo::run(&arguments, out),
        Command::Status(arguments) => status::run(&arguments, &socket, out),
        Command::Top(arguments) => top::run(&arguments, &socket, out),
        Command::Usage(arguments) => commands::usage::run(&arguments, &socket, out),
        Command::Limit(arguments) => limit::run(&arguments, &socket, out),
        Command::Protect(arguments) => protect::run(&arguments, &socket, out),
        Command::Run(arguments) => run::run(&arguments, &socket),
        Command::Jobs(arguments) => jobs::run(&arguments, &socket, out),
        Command::Kill(arguments) => kill::run(&arguments, &socket, out),
        Command::History(arguments) => history::run(&arguments, &socket, out),
        Command::Why(arguments) => why::run(&arguments, &socket, out),
        Command::Notify(arguments) => notify::run(&arguments, &socket),
        Command::Simulate(arguments) => simulate::run(&arguments, out),
        Command::Import(arguments) => import::run(&arguments, out),
        Command::Explain(arguments) => explain::run(&arguments, out),
        Command::Frag(arguments) => frag::run(&arguments, out),
        Command::Report(arguments) => report::run(&arguments, &socket, out),
        Command::Doctor(arguments) => doctor::run(&arguments, &socket, out),
        Command::Bench(arguments) => bench::run(&arguments, out),
        Command::Completions(arguments) => generate::completions(&arguments, out),
        Command::Man(arguments) => generate::man(&arguments),
    }
}

/// Help and version as `clap` has them, and everything else in one line.
fn refuse(error: &clap::Error) -> Exit {
    match usage::judge(error) {
        Usage::Asked => {
            // Nobody is left to tell when even this cannot be written.
            error.print().ok();
            if error.use_stderr() { Exit::Usage } else { Exit::Done }
        }
        Usage::Wrong(wrong) => {
            eprintln!("plimsoll: {}", output::printable(&wrong));
            Exit::Usage
        }
    }
}
