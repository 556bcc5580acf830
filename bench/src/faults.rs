//! `faults`: what a page fault costs while nobody watches, while a guard watches, and while its comparators watch.
//!
//! Pages are 4 KiB (the machine's own size; huge pages are off for the workload) and each is touched once a mapping.

pub(crate) mod crew;
mod idle;
mod stage;

use crate::{
    child::Workload,
    error::BenchError,
    guarded::{Line, Starter, Triggers},
    options::Options,
    pairing::{Figures, Rounds, interleave},
    report::{BenchReport, Series},
    statistics::{mean, paired_differences},
};
use crew::{Crew, Load};
use stage::{Stage, Watch};

/// The user whose processes fault, and one who has nothing to do with it.
const USER: u32 = 60_010;
const OTHER: u32 = 60_011;

const MIB: u64 = 1 << 20;

/// A line that no workload of this bench comes near: no event is looked at.
const FAR: Line = Line { uid: USER, hard_bytes: 16 << 30, soft_bytes: None };

/// One that none comes near either, and that leaves so little room that each event is looked at.
const CLOSER: Line = Line { hard_bytes: 256 * MIB, ..FAR };

/// A line whose soft limit lies below what the ballast process holds: all faults are between soft and hard.
const NEAR: Line = Line { soft_bytes: Some(4 * MIB), ..FAR };
const BALLAST_BYTES: u64 = 8 * MIB;

/// The comparators that watch the same user.
const COMPARATORS: [(&str, Watch); 3] = [("timer", Watch::Timer), ("tracepipe", Watch::Tracepipe), TRIVIAL];
const TRIVIAL: (&str, Watch) = ("trivial", Watch::Trivial);

/// Runs all cases.
pub(crate) fn run(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if options.wants("no-limit") {
        no_limit(options, start, report)?;
    }
    if options.wants("idle") {
        idle::run(options, start, report)?;
    }
    if !["one-process", "processes", "throughput"].iter().any(|cases| options.may_want(cases)) {
        return Ok(());
    }
    let mut stage = Stage::set(options, start(Triggers::All)?)?;
    if options.wants("one-process") {
        one_process(options, &mut stage, report)?;
    }
    for processes in [1, 4, 8] {
        let case = &format!("processes-{processes}");
        let load = Load { bytes_each: 16 * MIB / processes.min(4), times: 8 };
        let (rounds, comparators) = (options.sized(10, 1), COMPARATORS.as_slice());
        if options.wants(case) {
            let case = Compared { case, processes, load, line: FAR, rounds, comparators };
            compared(&mut stage, report, case)?;
        }
    }
    let line = Line { hard_bytes: 128 * MIB, ..FAR };
    for (total_mib, processes) in [1, 4, 16, 64].into_iter().flat_map(|mib| [1, 4, 8].map(|n| (mib, n))) {
        let case = &format!("throughput-{processes}x{total_mib}MiB");
        let load = Load { bytes_each: total_mib * MIB / processes, times: 128 / total_mib };
        // The seed compares with the trivial approach here.
        let (rounds, comparators) = (options.sized(6, 1), [TRIVIAL].as_slice());
        if options.wants(case) {
            compared(&mut stage, report, Compared { case, processes, load, line, rounds, comparators })?;
        }
    }
    stage.strike(report);
    Ok(())
}

/// No daemon, a fresh daemon without a limit, and a daemon whose only limit was cleared: nothing may be attached.
fn no_limit(options: &Options, start: Starter<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let load = Load { bytes_each: 16 * MIB, times: 16 };
    let mut crew = Crew::gather(options, USER, 1)?;
    let [mut none, mut fresh, mut cleared] = [const { Vec::new() }; 3];
    for _ in 0..options.sized(10, 1) {
        let before = crew.run(load)?.touch_ns_per_page;
        let mut guard = start(Triggers::All)?;
        fresh.push(crew.run(load)?.touch_ns_per_page);
        guard.set_line(FAR)?;
        guard.clear_line(USER)?;
        cleared.push(crew.run(load)?.touch_ns_per_page);
        drop(guard);
        none.extend(mean(&[before, crew.run(load)?.touch_ns_per_page]));
    }
    let base: Series<'_> = ("none", &none);
    report.add_row("no-limit", base, "ns/page");
    let guarded: [Series<'_>; 2] = [("plimsoll", &fresh), ("plimsoll after clear", &cleared)];
    for series in guarded {
        report.add_row("no-limit", series, "ns/page");
        report.add_ratio("no-limit", series, base);
    }
    Ok(())
}

/// One process: a limit on another user, far from its own line, where events are looked at, between soft and hard; and the
/// comparators.
fn one_process(options: &Options, stage: &mut Stage, report: &mut BenchReport) -> Result<(), BenchError> {
    // 131,072 faults, about 200 ms: each segment holds a tick of the timer.
    let load = Load { bytes_each: 16 * MIB, times: if options.quick { 2 } else { 32 } };
    let mut crew = Crew::gather(options, USER, 1)?;
    let _ballast = Workload::start(&options.workload, &[&"hold", &USER, &BALLAST_BYTES])?;
    let others = |line: Line| Line { uid: OTHER, ..line };
    let lines = [
        ("one-process other-user", others(FAR)),
        ("one-process other-user closer", others(CLOSER)),
        ("one-process far", FAR),
        ("one-process closer", CLOSER),
        ("one-process near", NEAR),
    ];
    let mut watches = vec![Watch::None];
    watches.extend(lines.iter().map(|(_, line)| Watch::Line(*line)));
    watches.extend(COMPARATORS.iter().map(|(_, watch)| *watch));
    let rounds = measure(
        stage,
        &mut crew,
        &watches,
        Measure { load, rounds: options.sized(10, 1), touch_only: true },
    )?;
    let mut rounds = rounds.into_iter();
    let base = rounds.next().unwrap_or_default();
    for ((case, _), guarded) in lines.iter().zip(rounds.by_ref()) {
        add_guarded(report, case, &base, &guarded);
    }
    for ((name, _), watched) in COMPARATORS.iter().zip(rounds) {
        add_comparator(report, "one-process far", (name, &watched), (&base, None));
    }
    Ok(())
}

/// One case of [`compared`].
#[derive(Clone, Copy)]
struct Compared<'a> {
    case: &'a str,
    processes: u64,
    load: Load,
    line: Line,
    rounds: usize,
    comparators: &'a [(&'static str, Watch)],
}

/// Some processes of one limited user: none, Plimsoll and all comparators.
fn compared(stage: &mut Stage, report: &mut BenchReport, compared: Compared<'_>) -> Result<(), BenchError> {
    let Compared { case, processes, load, line, rounds, comparators } = compared;
    let mut crew = Crew::gather(stage.options(), line.uid, processes)?;
    let mut watches = vec![Watch::None, Watch::Line(line)];
    watches.extend(comparators.iter().map(|(_, watch)| *watch));
    let rounds = measure(stage, &mut crew, &watches, Measure { load, rounds, touch_only: false })?;
    let mut rounds = rounds.into_iter();
    let (base, guarded) = (rounds.next().unwrap_or_default(), rounds.next().unwrap_or_default());
    add_guarded(report, case, &base, &guarded);
    for ((name, _), watched) in comparators.iter().zip(rounds) {
        add_comparator(report, case, (name, &watched), (&base, Some(&guarded)));
    }
    Ok(())
}

/// What to run in each segment.
#[derive(Clone, Copy)]
struct Measure {
    load: Load,
    rounds: usize,
    /// The time inside the touching alone, instead of all from the first map to the last unmap.
    touch_only: bool,
}

fn measure(
    stage: &mut Stage,
    crew: &mut Crew,
    watches: &[Watch],
    measure: Measure,
) -> Result<Vec<Rounds>, BenchError> {
    let Measure { load, rounds, touch_only } = measure;
    interleave(watches.len(), rounds, |variant| {
        let watch = *watches.get(variant).unwrap_or(&Watch::None);
        // The comparators with a queue take many times as long to keep up: they get fewer pages.
        let queued = matches!(watch, Watch::Tracepipe | Watch::Trivial);
        let load = if queued { Load { times: (load.times / 4).max(1), ..load } } else { load };
        crew.run(Load { times: 1, ..load })?;
        stage.engage(watch, crew)?;
        let pass = crew.run(load);
        let finished_ns = stage.disengage(watch)?;
        let pass = pass?;
        let own = if touch_only { pass.touch_ns_per_page } else { pass.elapsed_ns_per_page };
        Ok(Figures { own, cpu: pass.cpu_ns_per_page, kept_up: own + pass.late_ns_per_page(finished_ns) })
    })
}

fn add_guarded(report: &mut BenchReport, case: &str, base: &Rounds, guarded: &Rounds) {
    let none: Series<'_> = ("none", &base.own);
    let plimsoll: Series<'_> = ("plimsoll", &guarded.own);
    report.add_row(case, none, "ns/page");
    report.add_row(case, plimsoll, "ns/page");
    // A fault is one event: one anonymous page more.
    let added = paired_differences(&guarded.own, &base.own);
    report.add_row(case, ("plimsoll - none", &added), "ns/event");
    report.add_ratio(case, plimsoll, none);
    let none: Series<'_> = ("none, processor time", &base.cpu);
    let plimsoll: Series<'_> = ("plimsoll, processor time", &guarded.cpu);
    report.add_row(case, none, "ns/page");
    report.add_row(case, plimsoll, "ns/page");
    report.add_ratio(case, plimsoll, none);
}

/// A comparator by itself, and, where it has a queue, until it had kept up; the latter also against the guard.
fn add_comparator(
    report: &mut BenchReport,
    case: &str,
    (name, watched): (&str, &Rounds),
    (base, guarded): (&Rounds, Option<&Rounds>),
) {
    let none: Series<'_> = ("none", &base.own);
    let kept_up_name = format!("{name} kept up");
    let mut all: Vec<Series<'_>> = vec![(name, &watched.own)];
    if watched.kept_up != watched.own {
        all.push((&kept_up_name, &watched.kept_up));
    }
    for series in all {
        report.add_row(case, series, "ns/page");
        report.add_ratio(case, series, none);
        // The bar of the seed: twice the throughput of scanning at each event.
        if let Some(guarded) = guarded.filter(|_| name == "trivial") {
            report.add_ratio(case, series, ("plimsoll", &guarded.own));
        }
    }
}
