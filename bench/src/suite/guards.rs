//! Who guards the machine: each as its package starts it, as far as that can be without systemd.

use super::{crowd, stage};
use crate::{
    Guarded as _, Triggers,
    child::{Workload, look_until},
    comparator::find_program,
    error::BenchError,
    guarded::PrivateDaemon,
    options::Options,
    report::BenchReport,
    scope,
};
use plimsoll_api::message::GetIncident;
use plimsoll_policy::{incident::Incident, machine::trace::Recorded};
use plimsoll_report::trace::replay;
use plimsoll_sys::process::clock_monotonic_ns;
use std::{fs, path::PathBuf, process::Command, time::Duration};

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
    let wanted = |who: &Who| match options.guards.as_slice() {
        [] => !options.quick || *who == Who::Plimsoll,
        names => names.iter().any(|name| name == who.name()),
    };
    let there = |who: &Who| {
        let there = matches!(who, Who::Nobody | Who::Plimsoll) || who.command().is_some();
        if !there {
            report.note(format!("{} is not installed", who.name()));
        }
        there
    };
    let found = ALL.into_iter().filter(wanted).filter(there).collect();
    report.note("systemd-oomd is not compared: it needs systemd, which is not in this guest");
    found
}

/// Until then a guard has loaded what it needs.
const LOADING: Duration = Duration::from_secs(60);

/// Whether it has started nobody who is still there.
fn is_alone(pid: u32) -> Result<bool, BenchError> {
    let threads = format!("/proc/{pid}/task");
    let children = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let mut threads = fs::read_dir(&threads).map_err(BenchError::io(format!("list {threads}")))?.flatten();
    Ok(threads.all(|thread| children(thread).is_ok_and(|children| children.trim().is_empty())))
}

/// How many decisions come to something else when they are made once more from what was recorded of them.
pub(super) fn parted(incidents: &[Incident]) -> Result<usize, BenchError> {
    let traces = incidents.iter().filter_map(|incident| incident.course.as_ref()?.trace.as_deref());
    let mut parted = 0;
    for trace in traces {
        let replay = replay(trace.as_bytes(), None)
            .map_err(|error| BenchError::malformed("a trace", &error.to_string()))?;
        parted += replay.told().0.iter().filter(|told| told.recorded != Recorded::Same).count();
    }
    Ok(parted)
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
            // What loads its programs is urgent, and others wait for it: on a machine that was over long ago.
            let alone = || Ok(is_alone(pid)?.then_some(()));
            look_until(LOADING, stage::WARMING / 10, alone)?;
        }
        Ok(guard)
    }

    /// One, where it was ended itself: a process more that was to live.
    pub(super) fn dead(&self) -> Result<usize, BenchError> {
        crowd::dead(&self.process)
    }

    /// What it recorded, where it can be asked, with the trace of each decision.
    pub(super) fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        let Some(daemon) = self.daemon.as_mut() else { return Ok(Vec::new()) };
        let mut incidents = daemon.incidents()?;
        for incident in &mut incidents {
            // Alone it comes with its trace.
            *incident = daemon.client()?.incident(GetIncident { id: Some(incident.id), pid: None })?;
        }
        Ok(incidents)
    }

    /// Keeps it beside the files.
    pub(super) fn keep(&self, incidents: &[Incident], scenario: &str, wrong: bool) -> Result<(), BenchError> {
        let Some(folder) = self.folder.as_deref().filter(|_| self.daemon.is_some()) else { return Ok(()) };
        let text = serde_json::to_string_pretty(incidents)
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
