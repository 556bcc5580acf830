//! `pingpong`: what two threads that wake each other without end pay for being guarded. Each time to and fro is four system
//! calls and two switches from thread to thread, and next to nothing else.

use crate::{
    child::{Workload, wait_for},
    cpus,
    error::BenchError,
    guarded::{Line, Starter, Triggers},
    options::Options,
    pairing::{Figures, Rounds, interleave},
    report::{BenchReport, Series},
    statistics::mean,
};
use std::{fs, time::Duration};

/// Whose threads they are.
const USER: u32 = 60_010;
/// Far from its line.
const FAR: Line = Line { uid: USER, hard_bytes: 16 << 30, soft_bytes: None };
/// Between the soft limit and the line: nothing is below a soft limit of a page.
const NEAR: Line = Line { uid: USER, hard_bytes: 1 << 30, soft_bytes: Some(4096) };
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);
const UNIT: &str = "ns/pass";

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let allowed = cpus::allowed()?;
    let first = allowed.first().copied().unwrap_or_default();
    let Some(second) = allowed.get(1).copied() else {
        report.note("one processor alone: the case with two is left out");
        return measure(options, start, report, ("one processor", first, first));
    };
    measure(options, start, report, ("one processor", first, first))?;
    measure(options, start, report, ("two processors", first, second))
}

/// How long a pass takes, and what it takes of processors, in nanoseconds.
fn pass(players: &mut Workload, times: u64) -> Result<Figures, BenchError> {
    players.tell(&format!("pass {times}"))?;
    let [took_ns, cpu_ns] = players.expect_numbers("done")?;
    let each = |ns: u64| ns as f64 / times as f64;
    Ok(Figures { own: each(took_ns), cpu: each(cpu_ns), kept_up: each(took_ns) })
}

fn measure(
    options: &Options,
    start: Starter<'_>,
    report: &mut BenchReport,
    (name, cpu, other): (&str, usize, usize),
) -> Result<(), BenchError> {
    let times = if options.quick { 2_000 } else { 40_000 };
    let rounds = options.sized(20, 1);
    let mut players = Workload::start(&options.workload, &[&"pingpong", &USER, &cpu, &other])?;
    let case = format!("{name}, daemon");
    if options.wants(&case) {
        daemon(start, report, &case, (&mut players, times, rounds))?;
    }
    let case = format!("{name}, line");
    if !options.wants(&case) {
        return Ok(());
    }
    let mut guard = start(Triggers::All)?;
    let lines = [None, Some(FAR), Some(NEAR)];
    let measured = interleave(lines.len(), rounds, |variant| {
        let line = lines.get(variant).copied().flatten();
        line.map_or(Ok(()), |line| guard.set_line(line))?;
        let figures = pass(&mut players, times);
        line.map_or(Ok(()), |line| guard.clear_line(line.uid))?;
        figures
    })?;
    add(report, &case, &["no line", "far", "near"], &measured);
    Ok(())
}

/// No daemon, and one that guards the machine, without a line.
fn daemon(
    start: Starter<'_>,
    report: &mut BenchReport,
    case: &str,
    (players, times, rounds): (&mut Workload, u64, usize),
) -> Result<(), BenchError> {
    let (mut none, mut guarded) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds {
        let before = pass(players, times)?;
        let guard = start(Triggers::Machine)?;
        // Its child loads programs once it guards.
        pass(players, times)?;
        wait_for("daemon that has started", POLL, || Ok((!has_child(guard.pid())).then_some(())))?;
        let during = pass(players, times)?;
        drop(guard);
        let after = pass(players, times)?;
        guarded.own.push(during.own);
        guarded.cpu.push(during.cpu);
        none.own.extend(mean(&[before.own, after.own]));
        none.cpu.extend(mean(&[before.cpu, after.cpu]));
    }
    add(report, case, &["none", "daemon"], &[none, guarded]);
    Ok(())
}

/// Whether a thread of that process has one.
fn has_child(pid: Option<u32>) -> bool {
    let tasks = pid.and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
    tasks.into_iter().flatten().flatten().any(|task| children(task).is_ok_and(|all| !all.is_empty()))
}

fn add(report: &mut BenchReport, case: &str, names: &[&str], measured: &[Rounds]) {
    for (suffix, processor_time) in [("", false), (", processor time", true)] {
        let names: Vec<String> = names.iter().map(|name| format!("{name}{suffix}")).collect();
        let figures =
            |rounds: &'_ Rounds| if processor_time { rounds.cpu.clone() } else { rounds.own.clone() };
        let measured: Vec<Vec<f64>> = measured.iter().map(figures).collect();
        let mut all = names.iter().zip(&measured).map(|(name, figures)| (name.as_str(), figures.as_slice()));
        let Some(base): Option<Series<'_>> = all.next() else { return };
        report.add_row(case, base, UNIT);
        for series in all {
            report.add_row(case, series, UNIT);
            report.add_ratio(case, series, base);
        }
    }
}
