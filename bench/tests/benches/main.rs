//! Runs every bench in its quick form against guards that poll, pretend or sleep: shows that workloads, comparators and
//! bookkeeping work, and that a guard which does not guard is found out.
#![cfg(test)]

/// Of a guard: draws lines and takes them away by doing nothing.
macro_rules! heeds_no_line {
    () => {
        fn set_line(&mut self, _line: plimsoll_bench::guarded::Line) -> Result<(), BenchError> {
            Ok(())
        }

        fn clear_line(&mut self, _uid: u32) -> Result<(), BenchError> {
            Ok(())
        }
    };
}

mod lines;
mod tmalloc;
mod workingset;

use plimsoll_bench::{BenchError, BenchReport, Guarded, Options, Triggers, report::Row, run_with};
use plimsoll_policy::{
    incident::{Guard, Incident, Outcome, Trigger, Victim},
    units::{Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::process::{PidFd, ProcRoot, Process};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The binary that carries the workloads.
const WORKLOADS: &str = env!("CARGO_BIN_EXE_plimsoll-bench-workload");

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn quick(only: Option<&str>) -> Options {
    assert!(
        rustix::process::geteuid().is_root(),
        "run as root: these tests start processes of the uids 60010 to 60040 and 60400 to 60449"
    );
    Options {
        quick: true,
        plimsoll: PathBuf::from("/nonexistent/plimsoll"),
        workload: PathBuf::from(WORKLOADS),
        only: only.map(str::to_owned),
        ..Options::default()
    }
}

/// Runs a bench by itself: they share test users and a cgroup, and must not meet.
fn measure<G: Guarded + 'static>(
    name: &str,
    options: &Options,
    start: impl Fn(Triggers) -> Result<G, BenchError>,
) -> Result<BenchReport, BenchError> {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = lock(&ALONE);
    run_with(name, options, &|triggers| Ok(Box::new(start(triggers)?) as Box<dyn Guarded>))
}

/// Processes for which that holds, with anonymous plus swapped bytes by their page tables.
fn processes(wanted: impl Fn(&Process) -> bool) -> Vec<(u32, u64)> {
    let mut root = ProcRoot::open(Path::new("/proc")).unwrap();
    let mut pids = Vec::new();
    root.processes(|process| pids.extend(wanted(process).then_some(process.pid))).unwrap();
    let mut held = |pid| {
        let rollup = root.smaps_rollup(pid).ok().flatten()?;
        Some((pid.0, rollup.anonymous?.0 + rollup.swap?.0))
    };
    pids.into_iter().filter_map(&mut held).collect()
}

fn processes_of(uid: u32) -> Vec<(u32, u64)> {
    processes(|process| process.uid == Uid(uid))
}

fn kill(pid: u32) -> bool {
    PidFd::open(Pid(pid)).is_ok_and(|pidfd| pidfd.send_signal(Signal::Kill).is_ok())
}

/// What the daemon did to these processes.
fn incident(guard: Guard, action: Outcome, victims: impl IntoIterator<Item = u32>) -> Incident {
    let victim = |pid| Victim {
        pid: Pid(pid),
        start_ns: 0,
        uid: Uid(0),
        comm: String::new(),
        cmdline: None,
        cgroup: None,
        usage_bytes: 0,
        weight_permille: None,
        session: false,
        jobs: Vec::new(),
    };
    Incident {
        id: 0,
        time: "1970-01-01T00:00:00Z".parse().unwrap(),
        account: None,
        guard,
        trigger: Trigger::Daemon,
        action,
        victims: victims.into_iter().map(victim).collect(),
        usage_bytes: 0,
        hard_bytes: None,
        overshoot_bytes: 0,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: Some(0),
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: String::new(),
        peers: Vec::new(),
        origin: None,
        compaction: None,
        course: None,
    }
}

/// The rows of a case.
fn rows<'a>(report: &'a BenchReport, case: &str) -> Vec<&'a Row> {
    report.rows.iter().filter(|row| row.case == case).collect()
}

/// The first row of that variant.
#[track_caller]
fn row<'a>(report: &'a BenchReport, variant: &str) -> &'a Row {
    report.rows.iter().find(|row| row.variant == variant).unwrap_or_else(|| panic!("{variant}: {report}"))
}

fn has_ratio(report: &BenchReport, case: &str, of: &str, to: &str) -> bool {
    report.ratios.iter().any(|ratio| ratio.case == case && ratio.of == of && ratio.to == to)
}
