//! `plimsoll jobs`: what was started with a line of its own, and the end of one.

mod end;

use crate::{
    exit::{Ending, Exit, Failure},
    names::Names,
    output,
};
use clap::{Args, Subcommand};
use plimsoll_api::{
    accounts::{AccountView, JobView},
    client::Client,
};
use plimsoll_policy::{
    account::{Account, Counted},
    human::{self, bytes},
    units::{Bytes, JobId},
};
use plimsoll_report::table::Table;
use serde::Serialize;
use std::{io::Write, path::Path, sync::atomic::AtomicBool};

pub(super) use end::{Ended, end, processes, view_of};

/// `plimsoll jobs ...`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// End a job whole: SIGTERM to each of its processes, and SIGKILL to those that are there after 10 s.
    End(EndArguments),
}

#[derive(Debug, Args)]
struct EndArguments {
    /// The number of a job of yours: 7, or job:7.
    #[arg(value_name = "ID")]
    id: String,
    /// Send SIGKILL at once.
    #[arg(long)]
    now: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What came of an end.
#[derive(Debug, Serialize)]
struct Told<'a> {
    job: Account,
    #[serde(flatten)]
    ended: &'a Ended,
}

/// Lists them, or ends one.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    match &arguments.command {
        None => list(arguments.json, socket, out),
        Some(Command::End(arguments)) => end_one(arguments, socket, out),
    }
}

fn list(json: bool, socket: &Path, out: &mut dyn Write) -> Ending {
    let mut jobs = Client::connect(socket)?.show_limits(None)?.accounts;
    jobs.retain(|view| view.job.is_some());
    if json {
        output::json(out, &jobs)?;
    } else if jobs.is_empty() {
        writeln!(out, "No job runs. 'plimsoll run --limit 2G -- CMD' starts one.")?;
    } else {
        write!(out, "{}", table(&jobs, &mut Names::default()))?;
    }
    Ok(Exit::Done)
}

fn table(jobs: &[AccountView], names: &mut Names) -> String {
    let mut table = Table::new(
        [
            "JOB",
            "USER",
            "STATE",
            "USAGE",
            "PROMISED",
            "COMMITTED",
            "LIMIT",
            "PEAK",
            "PROCESSES",
            "ORPHANS",
            "PID",
            "NAME",
        ],
        &["JOB", "USAGE", "PROMISED", "COMMITTED", "LIMIT", "PEAK", "PROCESSES", "ORPHANS", "PID"],
    );
    let dash = || "-".to_owned();
    let size = |size: Option<u64>| size.map_or_else(dash, |size| bytes(Bytes(size)));
    for view in jobs {
        let Some((Counted::Job(id), job)) = view.account.counted().zip(view.job.as_ref()) else { continue };
        table.row([
            id.to_string(),
            names.of_uid(job.uid).unwrap_or_else(|| job.uid.to_string()),
            state(view, job).to_owned(),
            size(Some(view.usage_bytes)),
            size(job.promised_bytes),
            size(view.strict.map(|strict| strict.committed_bytes)),
            size(view.hard_bytes),
            size(view.peak_bytes.map(|peak| peak.max(view.usage_bytes))),
            view.processes.to_string(),
            job.orphans.map_or_else(dash, |orphans| orphans.to_string()),
            job.pid.map_or_else(dash, |pid| pid.to_string()),
            view.name.as_deref().map_or_else(dash, human::shown),
        ]);
    }
    table.to_string()
}

fn state(view: &AccountView, job: &JobView) -> &'static str {
    match job.is_there(view.processes) {
        true if job.waits => "waits",
        true => "runs",
        false => "ended",
    }
}

fn end_one(arguments: &EndArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let number = arguments.id.strip_prefix("job:").unwrap_or(&arguments.id);
    let id = number.parse().ok().map(JobId).ok_or_else(|| {
        Failure::usage(format_args!(
            "'{}' is no job's number; 'plimsoll jobs' lists those there are",
            human::escaped(&arguments.id)
        ))
    })?;
    let mut client = Client::connect(socket)?;
    let ended = end(&mut client, id, &AtomicBool::new(arguments.now))?;
    if arguments.json {
        output::json(out, &Told { job: Account::Job(id), ended: &ended })?;
    } else {
        let processes = output::counted(ended.ended, "process", "processes");
        writeln!(out, "Job {id}: {processes} ended.")?;
    }
    ended.complain(id).map_or(Ok(Exit::Done), Err)
}
