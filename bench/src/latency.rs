//! `latency`: from the touch that crosses the line to the victim's pidfd readable, with 1,000 processes present.
//!
//! Four ways are interleaved: killed in the kernel (the crosser is its account's largest), killed in the kernel while
//! the crosser is small and another, sleeping process is the largest, the same through the daemon, and by a timer of
//! 200 ms. Each way has a user of its own, and the daemon's a guard of its own whose kernel side may not act, so that
//! nothing has to be switched between them. earlyoom stands beside them, in its dry run.

mod arena;
mod earlyoom;

use crate::{
    crowd::Crowd,
    error::BenchError,
    guarded::{Guarded, Starter, wait_for_kills},
    options::Options,
    report::{BenchReport, Series},
    statistics::Summary,
};
use arena::{Arena, Kill, Way};
use plimsoll_policy::incident::Incident;

const MIB: u64 = 1 << 20;

/// Processes that sleep meanwhile, of a user without a limit.
const CROWD: usize = 1_000;
const CROWD_UID: u32 = 60_020;

/// One size of victim: rounds, and kills of each way a round.
struct Case {
    name: &'static str,
    bytes: u64,
    rounds: (usize, usize),
    in_kernel: usize,
    /// In the kernel and through the daemon, each.
    sleepers: usize,
}

/// At least 200 kills each for the size that the bars speak of; the timer takes one a round.
const CASES: [Case; 3] = [
    Case { name: "4MiB", bytes: 4 * MIB, rounds: (50, 2), in_kernel: 6, sleepers: 4 },
    Case { name: "64MiB", bytes: 64 * MIB, rounds: (12, 1), in_kernel: 3, sleepers: 3 },
    Case { name: "1GiB", bytes: 1024 * MIB, rounds: (6, 1), in_kernel: 1, sleepers: 1 },
];

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let crowd = Crowd::start(CROWD_UID, options.sized(CROWD, 50))?;
    let mut arena = Arena::open(options, start)?;
    for case in &CASES {
        if options.wants(case.name) && !(options.quick && case.bytes > 64 * MIB) {
            kill_in_turns(options, &mut arena, case, report)?;
        }
    }
    if options.wants("4MiB") {
        // The same, with the thousand in the victim's own account.
        drop(crowd);
        let _crowd = Crowd::start(arena::IN_KERNEL_UID, options.sized(CROWD, 50))?;
        if let Err(error) = crowded_account(options, &mut arena, report) {
            report.note(format!("4MiB crowded account: {error}"));
        }
        arena.clear_lines()?;
    }
    if options.wants("earlyoom") {
        let _crowd = Crowd::start(CROWD_UID, options.sized(CROWD, 50))?;
        earlyoom::run(options, report)?;
    }
    Ok(())
}

fn kill_in_turns(
    options: &Options,
    arena: &mut Arena,
    case: &Case,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    arena.draw_lines(case.bytes)?;
    let before_kernel = arena.guard(Way::InKernel).incidents()?.len();
    let before_daemon = arena.guard(Way::Daemon).incidents()?.len();
    let turns = [
        (Way::InKernel, case.in_kernel),
        (Way::Another, case.sleepers),
        (Way::Daemon, case.sleepers),
        (Way::Timer, 1),
    ];
    let mut kills: [Vec<Kill>; 4] = Default::default();
    let mut medians: [Vec<f64>; 4] = Default::default();
    for round in 0..options.sized(case.rounds.0, case.rounds.1) {
        let mut lanes: Vec<_> = turns.iter().zip(kills.iter_mut().zip(medians.iter_mut())).collect();
        if round % 2 == 1 {
            lanes.reverse();
        }
        for ((way, count), (kills, medians)) in lanes {
            let fresh = (0..*count).map(|_| arena.kill(*way, case.bytes)).collect::<Result<Vec<_>, _>>()?;
            medians.extend(Summary::of(&micros_of(&fresh)).map(|summary| summary.p50));
            kills.extend(fresh);
        }
    }
    let [in_kernel, another, daemon, timer] = &kills;
    for ((way, _), kills) in turns.iter().zip(&kills) {
        report.add_row(case.name, (way.name(), &micros_of(kills)), "us");
    }
    add_ratios(case.name, &medians, report);
    let missed = timer.iter().filter(|kill| kill.touches_after_crossing == 0).count();
    if missed > 0 {
        report.note(format!("{}: timer: {missed} victims died before they crossed", case.name));
    }
    let ways = [(Way::InKernel, in_kernel), (Way::Another, another)];
    add_history(arena.guard(Way::InKernel), before_kernel, case.name, ways, report);
    add_history(arena.guard(Way::Daemon), before_daemon, case.name, [(Way::Daemon, daemon)], report);
    arena.clear_lines()
}

/// The timer to each way, and what the detour through the daemon costs.
fn add_ratios(case: &str, medians: &[Vec<f64>; 4], report: &mut BenchReport) {
    let [in_kernel, another, daemon, timer] = medians;
    let [another, daemon]: [Series<'_>; 2] = [(Way::Another.name(), another), (Way::Daemon.name(), daemon)];
    for way in [(Way::InKernel.name(), in_kernel.as_slice()), another, daemon] {
        report.add_ratio(case, (Way::Timer.name(), timer), way);
    }
    report.add_ratio(case, daemon, another);
}

/// The kernel's way with 1,000 processes of the same user, whose usage the line has to leave room for.
fn crowded_account(options: &Options, arena: &mut Arena, report: &mut BenchReport) -> Result<(), BenchError> {
    let bytes = 4 * MIB;
    arena.draw_line_above_usage(bytes)?;
    let before = arena.guard(Way::InKernel).incidents()?.len();
    let kills = (0..options.sized(100, 3))
        .map(|_| arena.kill(Way::InKernel, bytes - MIB))
        .collect::<Result<Vec<_>, _>>()?;
    let case = "4MiB, 1,000 processes in the same account";
    report.add_row(case, (Way::InKernel.name(), &micros_of(&kills)), "us");
    add_history(arena.guard(Way::InKernel), before, case, [(Way::InKernel, &kills)], report);
    Ok(())
}

/// What the guard itself recorded of these kills. A history that is not complete is said, and costs no other figure.
fn add_history<const WAYS: usize>(
    guard: &mut dyn Guarded,
    before: usize,
    case: &str,
    ways: [(Way, &Vec<Kill>); WAYS],
    report: &mut BenchReport,
) {
    let wanted: usize = ways.iter().map(|(_, kills)| kills.len()).sum();
    let fresh = match wait_for_kills(guard, before, wanted) {
        Ok(fresh) => fresh,
        Err(error) => return report.note(format!("{case}: history: {error}")),
    };
    for (way, kills) in ways {
        // The newest record of the pid: numbers come round again.
        let record_of = |kill: &Kill| {
            fresh.iter().rev().find(|incident| incident.victims.iter().any(|victim| victim.pid.0 == kill.pid))
        };
        let recorded: Vec<(&Kill, &Incident)> = kills
            .iter()
            .filter_map(|kill| Some((kill, record_of(kill)?)))
            .filter(|(_, incident)| way.trigger() == Some(incident.trigger))
            .collect();
        report.note(format!(
            "{case}: {} of {} kills meant to be {} are recorded with that trigger",
            recorded.len(),
            kills.len(),
            way.name()
        ));
        // A part that is longer than the whole: whoever sent the signal read the clock late, when the victim that it
        // woke had taken the processor from it; or the touch that crossed was not the one that was stamped.
        let longer = recorded
            .iter()
            .filter(|(kill, incident)| {
                incident.cross_to_signal_ns.is_some_and(|nanos| nanos > kill.latency_ns)
            })
            .count();
        if longer > 0 {
            report.note(format!(
                "{case}: {}: in {longer} of them the recorded crossing to signal is longer than the whole that the bench saw",
                way.name()
            ));
        }
        let micros: Vec<f64> = recorded
            .iter()
            .filter_map(|(_, incident)| incident.cross_to_signal_ns)
            .map(|nanos| nanos as f64 / 1_000.0)
            .collect();
        let variant = format!("{}, crossing to signal", way.name());
        report.add_row(case, (&variant, &micros), "us");
    }
}

fn micros_of(kills: &[Kill]) -> Vec<f64> {
    kills.iter().map(|kill| kill.latency_ns as f64 / 1_000.0).collect()
}
