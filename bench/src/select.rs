//! `select`: from the wake-up of the machine guard that finds memory short to the signal, among many processes.
//!
//! The guard's candidates are all processes of the machine: so it runs dry, and what is moved is its threshold, not the
//! machine's memory. Five ways are interleaved: from nothing, with the list that is kept while memory is about to run short,
//! listed from `/proc`, and earlyoom and nohang beside them, neither of which can signal anybody.

mod arena;

use crate::{
    child::{STEP, look_until},
    crowd::Crowd,
    error::BenchError,
    guarded::Starter,
    options::Options,
    proc,
    report::BenchReport,
    statistics::Summary,
};
use arena::{Arena, Choice, Named, Way};
use std::{fs, time::Duration};

/// Processes that sleep meanwhile, of a user without any other.
const CROWD_UID: u32 = 60_021;

/// What one of them takes at most, the kernel's part included: 150 KiB on Linux 6.18.
const CROWD_MEMBER_KIB: u64 = 200;

/// What the rest of a case takes at most.
const OTHERS_KIB: u64 = 1 << 20;

/// One population: so many processes with memory in all, and how often each way chooses among them in a round.
struct Case {
    name: &'static str,
    processes: usize,
    rounds: usize,
}

const CASES: [Case; 3] = [
    Case { name: "40 processes", processes: 40, rounds: 10 },
    Case { name: "1,000 processes", processes: 1_000, rounds: 10 },
    Case { name: "10,000 processes", processes: 10_000, rounds: 10 },
];

/// Choices of each way a round; nohang starts anew for each.
const TURNS: [(Way, usize); 5] =
    [(Way::Cold, 5), (Way::Warm, 3), (Way::Proc, 2), (Way::Earlyoom, 4), (Way::Nohang, 1)];

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let mut arena = Arena::open(options, start, report)?;
    for case in &CASES {
        if options.wants(case.name) && !(options.quick && case.processes > 1_000) {
            match lacking(case)? {
                None => choose_in_turns(options, &mut arena, case, report)?,
                Some(what) => report.note(format!("{}: left out: {what}", case.name)),
            }
        }
    }
    Ok(())
}

/// What the machine does not have for so many processes.
fn lacking(case: &Case) -> Result<Option<String>, BenchError> {
    let count = u64::try_from(case.processes).unwrap_or(u64::MAX);
    let available = proc::available_bytes()? / 1024;
    let wanted = count.saturating_mul(CROWD_MEMBER_KIB).saturating_add(OTHERS_KIB);
    if available / 2 < wanted {
        return Ok(Some(format!("half of {available} KiB available is less than {wanted}")));
    }
    for limit in ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"] {
        let text = fs::read_to_string(limit).map_err(BenchError::io(format!("read {limit}")))?;
        if text.trim().parse::<u64>().is_ok_and(|limit| limit < count.saturating_mul(2)) {
            return Ok(Some(format!("{limit} is {}", text.trim())));
        }
    }
    Ok(None)
}

fn choose_in_turns(
    options: &Options,
    arena: &mut Arena<'_>,
    case: &Case,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let crowd = Crowd::start(CROWD_UID, case.processes.saturating_sub(proc::count_with_memory()?))?;
    let mut choices: [Vec<Choice>; 5] = Default::default();
    let mut medians: [Vec<f64>; 5] = Default::default();
    for round in 0..options.sized(case.rounds, 1) {
        let victim = arena.start_victim()?;
        let mut lanes: Vec<_> = TURNS.iter().zip(choices.iter_mut().zip(medians.iter_mut())).collect();
        if round % 2 == 1 {
            lanes.reverse();
        }
        for ((way, count), (choices, medians)) in lanes {
            let fresh = arena.choose(*way, options.sized(*count, 1), &victim)?;
            medians.extend(Summary::of(&micros_of(&fresh)).map(|summary| summary.p50));
            choices.extend(fresh);
        }
    }
    drop(crowd);
    wait_until_gone()?;
    for ((way, _), choices) in TURNS.iter().zip(&choices) {
        if !choices.is_empty() {
            report.add_row(case.name, (way.name(), &micros_of(choices)), "us");
        }
    }
    let series = |index: usize| {
        let ((way, _), figures) = TURNS.iter().zip(&medians).nth(index)?;
        Some((way.name(), figures.as_slice()))
    };
    for (of, to) in [(3, 0), (4, 0), (2, 0), (0, 1), (3, 1), (4, 1)] {
        if let (Some(of), Some(to)) = (series(of), series(to)) {
            report.add_ratio(case.name, of, to);
        }
    }
    for ((way, _), choices) in TURNS.iter().zip(&choices) {
        add_effort(case.name, *way, choices, report);
    }
    Ok(())
}

/// What it took, and whom it named.
fn add_effort(case: &str, way: Way, choices: &[Choice], report: &mut BenchReport) {
    let made: Vec<_> = choices.iter().filter_map(|choice| choice.made.as_ref()).collect();
    if made.is_empty() {
        return;
    }
    let mut row = |what: &str, unit: &str, figures: Vec<f64>| {
        let variant = format!("{}, {what}", way.name());
        report.add_row(case, (&variant, &figures), unit);
    };
    row("listed", "processes", made.iter().map(|made| made.effort.processes as f64).collect());
    row("looked at closely", "processes", made.iter().map(|made| made.effort.looks as f64).collect());
    row("age of the list", "ms", made.iter().map(|made| made.effort.age_ns as f64 / 1e6).collect());
    let count = |named: Named| made.iter().filter(|made| made.named == named).count();
    let (right, larger) = (count(Named::Victim), count(Named::Larger));
    let meant = made.iter().filter(|made| made.as_meant).count();
    report.note(format!(
        "{case}: {}: {right} of {} choices named the bench's victim, {larger} a process that was larger; {meant} were made as \
         they were meant to be",
        way.name(),
        made.len(),
    ));
}

fn micros_of(choices: &[Choice]) -> Vec<f64> {
    choices.iter().map(|choice| choice.ns as f64 / 1_000.0).collect()
}

/// The crowd ends when its pipe closes, one after the other.
fn wait_until_gone() -> Result<(), BenchError> {
    let gone = || Ok(proc::pids_of_user(CROWD_UID)?.is_empty().then_some(()));
    look_until(STEP, Duration::from_millis(100), gone)?
        .ok_or_else(|| BenchError::Deadline { awaited: "end of the crowd".to_owned(), within: STEP })
}
