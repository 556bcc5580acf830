//! The command line as a whole; each command's own part is with the command.

use crate::commands::{
    bench, daemon, demo, doctor, explain, frag, generate, history, import, jobs, kill, limit, notify,
    protect, report, run, simulate, status, top, usage, why,
};
use clap::{Parser, Subcommand};
use plimsoll_api::CONTROL_SOCKET;
use std::path::PathBuf;

/// One screen of 24 rows and 80 columns: each row that is not a command costs one.
const PAGE: &str = "\
{about}
{usage-heading} {usage}
{subcommands}
Options: --socket PATH (or PLIMSOLL_SOCKET), -h, -V. Of a command: COMMAND -h
Exit status: 0 done, 1 failed, 2 usage, 3 no daemon runs, 4 not permitted.";

/// What the manual says besides.
pub(crate) const EXIT_STATUS: &str = "\
Exit status: 0 done; 1 failed (also: no such user, no such incident); 2 usage or a value that makes no sense \
(also: no such group); 3 the daemon is not running; 4 not permitted.";

/// The load line for Linux memory: whoever crosses theirs is killed at once.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, propagate_version = true, help_template = PAGE)]
#[command(disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    /// The daemon's control socket.
    #[arg(long, global = true, env = "PLIMSOLL_SOCKET", value_name = "PATH", default_value = CONTROL_SOCKET)]
    pub(crate) socket: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Guard this machine, in the foreground; what systemd runs.
    Daemon(daemon::Arguments),
    /// See it work: a user of its own, a line, a hog; leaves nothing behind.
    Demo(demo::Arguments),
    /// What is guarded and how: triggers, guards, accounts, memory.
    Status(status::Arguments),
    /// A live view in the terminal: accounts, processes, memory, incidents.
    Top(top::Arguments),
    /// Your own line, usage and peak, and what of yours was killed and why.
    Usage(usage::Arguments),
    /// Draw, show and remove lines.
    Limit(limit::Arguments),
    /// Keep the files in use in memory when it runs short; show which.
    Protect(protect::Arguments),
    /// Start a program with a line of its own for all that it starts.
    Run(run::Arguments),
    /// List what was started with a line of its own, or end one.
    Jobs(jobs::Arguments),
    /// End processes, and have their memory back at full speed.
    Kill(kill::Arguments),
    /// What was killed or refused, oldest first.
    History(history::Arguments),
    /// The story of one incident in words.
    Why(why::Arguments),
    /// Tell whoever lost a process: in terminals, on the desktop.
    Notify(notify::Arguments),
    /// What the machine guard would have done, by an incident's trace.
    Simulate(simulate::Arguments),
    /// The options of earlyoom or systemd-oomd as a configuration.
    Import(import::Arguments),
    /// The kernel's own OOM reports in plain words, and what to do.
    Explain(explain::Arguments),
    /// Free memory by the size of its blocks, and who asks for large ones.
    Frag(frag::Arguments),
    /// The story of one incident as a page to keep or to pass on.
    Report(report::Arguments),
    /// What this kernel offers, and what is used where it is missing.
    Doctor(doctor::Arguments),
    /// Measure, paired and in one run, against the alternatives.
    Bench(bench::Arguments),
    /// Print the completions for a shell.
    #[command(hide = true)]
    Completions(generate::CompletionsArguments),
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man(generate::ManArguments),
}

#[cfg(test)]
mod tests;
