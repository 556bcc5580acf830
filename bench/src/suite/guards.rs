//! Who guards the machine: each as its package starts it, as far as that can be without systemd.

use super::crowd;
use crate::{
    Guarded as _, Triggers, child::Workload, comparator::find_program, error::BenchError,
    guarded::PrivateDaemon, options::Options, report::BenchReport, scope,
};
use plimsoll_api::message::GetIncident;
use plimsoll_sys::process::clock_monotonic_ns;
use std::{fs, path::PathBuf, process::Command};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The kernel alone.
    Nobody,
    /// The one under test.
    Plimsoll,
    /// With its defaults, which are Debian's.
    Earlyoom,
    /// With Debian's configuration for servers.
    Nohang,
}

const ALL: [Who; 4] = [Who::Nobody, Who::Plimsoll, Who::Earlyoom, Who::Nohang];

impl Who {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Plimsoll => "plimsoll",
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
        }
    }

    /// How it is started; `None` where it is not installed.
    fn command(self) -> Option<Command> {
        let (program, arguments) = match self {
            Self::Nobody | Self::Plimsoll => return None,
            Self::Earlyoom => (find_program("earlyoom")?, vec!["-r".into(), "3600".into()]),
            Self::Nohang => {
                let program = find_program("nohang")?;
                let configuration = program.with_file_name("../share/nohang/nohang.conf");
                let arguments = ["-u".into(), program, "--monitor".into(), "-c".into(), configuration];
                (PathBuf::from("/usr/bin/python3"), arguments.to_vec())
            }
        };
        let mut command = Command::new("/bin/sh");
        // What it says is not read.
        command.args(["-c", "exec \"$0\" \"$@\" >/dev/null 2>&1"]).arg(program).args(arguments);
        Some(command)
    }
}

/// All that can be started here, or those asked for; what is missing is noted.
pub(super) fn found(options: &Options, report: &mut BenchReport) -> Vec<Who> {
    let quick = |who: &Who| !options.quick || *who == Who::Plimsoll;
    let there = |who: &Who| {
        let there = matches!(who, Who::Nobody | Who::Plimsoll) || who.command().is_some();
        if !there {
            report.note(format!("{} is not installed", who.name()));
        }
        there
    };
    let found = ALL.into_iter().filter(quick).filter(there).collect();
    report.note("systemd-oomd is not compared: it needs systemd, which is not in this guest");
    found
}

/// One that guards, until this is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    daemon: Option<PrivateDaemon>,
    process: Option<Workload>,
    /// Where what it recorded is kept.
    folder: Option<PathBuf>,
}

impl Guard {
    pub(super) fn start(who: Who, options: &Options) -> Result<Self, BenchError> {
        let daemon = match who {
            Who::Plimsoll => Some(PrivateDaemon::start(scope::PREFIX, options, Triggers::Machine)?),
            Who::Nobody | Who::Earlyoom | Who::Nohang => None,
        };
        let process = who.command().map(|command| Workload::spawn(command, who.name())).transpose()?;
        let guard = Self { daemon, process, folder: options.data.clone() };
        if let Some(pid) = guard.pid() {
            // As by their units; earlyoom does it itself.
            let file = format!("/proc/{pid}/oom_score_adj");
            fs::write(&file, "-1000").map_err(BenchError::io(format!("write {file}")))?;
        }
        Ok(guard)
    }

    /// One, where it was ended itself: a process more that was to live.
    pub(super) fn dead(&self) -> Result<usize, BenchError> {
        crowd::dead(&self.process)
    }

    /// Keeps what it recorded beside the files, where it can be asked: with the trace of each decision.
    pub(super) fn keep_incidents(&mut self, scenario: &str, wrong: bool) -> Result<(), BenchError> {
        let (Some(daemon), Some(folder)) = (self.daemon.as_mut(), self.folder.as_deref()) else {
            return Ok(());
        };
        let mut incidents = daemon.incidents()?;
        for incident in &mut incidents {
            // Alone it comes with its trace.
            *incident = daemon.client()?.incident(GetIncident { id: Some(incident.id), pid: None })?;
        }
        let text = serde_json::to_string_pretty(&incidents)
            .map_err(|error| BenchError::malformed("an incident", &error.to_string()))?;
        let wrong = if wrong { "wrong" } else { "right" };
        let file =
            folder.join(format!("{scenario}, {wrong} {}.json", clock_monotonic_ns()).replace(['/', '|'], ""));
        fs::write(&file, text).map_err(BenchError::io(format!("write {}", file.display())))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        let daemon = self.daemon.as_ref().and_then(|daemon| daemon.pid());
        daemon.or_else(|| self.process.as_ref().map(Workload::pid))
    }
}
