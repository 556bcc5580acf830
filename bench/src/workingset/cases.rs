//! The cases under pressure: the timed file, the start of a program, a file larger than the budget, and protection that
//! begins too late.

use super::{
    DEFAULTS, OFF, SLOW_BYTES_A_SECOND, Stage,
    segment::{Course, START_PATIENCE, Segment, Taken},
    tunables,
};
use crate::{
    error::BenchError,
    report::BenchReport,
    statistics::{Median, Summary},
};
use std::time::Duration;

/// One way to protect.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    settings: &'static [(&'static str, u64)],
    peer: bool,
    pressed: bool,
}

const CACHED: Way = Way { name: "cached", settings: &OFF, peer: false, pressed: false };
const UNPROTECTED: Way = Way { name: "unprotected", settings: &OFF, peer: false, pressed: true };
const PROTECTED: Way = Way { name: "protected", settings: &DEFAULTS, peer: false, pressed: true };
const SOFT: Way = Way { name: "protected, clean_low_ratio 15", settings: &tunables(15, 15, 15), ..PROTECTED };
const WIDE: Way = Way { name: "protected, clean_min_ratio 30", settings: &tunables(15, 30, 0), ..PROTECTED };
const PEER: Way = Way { name: "vmtouch -l", peer: true, ..UNPROTECTED };

impl Way {
    fn needs_guard(&self) -> bool {
        self.settings.contains(&("workingset_protection", 1))
    }
}

/// What is timed, on which disk, and in which ways.
#[derive(Debug)]
struct Case {
    name: &'static str,
    slow: bool,
    /// The file of twice the budget instead of the one that fits.
    large: bool,
    /// The program is started beside it, and is what is timed.
    starting: bool,
    ways: &'static [Way],
}

const DEMO: Case = Case {
    name: "demo, disk as it is",
    slow: false,
    large: false,
    starting: false,
    ways: &[CACHED, UNPROTECTED, PROTECTED, SOFT, PEER],
};

const CASES: [Case; 4] = [
    DEMO,
    Case { name: "demo, 150 MB/s", slow: true, ..DEMO },
    Case {
        name: "start, 150 MB/s",
        slow: true,
        starting: true,
        ways: &[CACHED, UNPROTECTED, PROTECTED, WIDE, PEER],
        ..DEMO
    },
    Case {
        name: "larger, 150 MB/s",
        slow: true,
        large: true,
        ways: &[CACHED, UNPROTECTED, PROTECTED],
        ..DEMO
    },
];

const BEGUN: &str = "begun 3 s in";

/// A way with what it gave, a stretch a round.
type Ran = (Way, Vec<Segment>);

/// Runs them.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    for case in &CASES {
        let possible = (stage.slow || !case.slow) && (stage.data.program.is_some() || !case.starting);
        if stage.options.wants(case.name) && possible {
            let ran = run_case(stage, case)?;
            tell(case, &ran, stage, report);
        }
    }
    if stage.options.wants(BEGUN) && stage.guard.is_some() {
        begun(stage, report)?;
    }
    Ok(())
}

fn run_case(stage: &mut Stage<'_>, case: &Case) -> Result<Vec<Ran>, BenchError> {
    let can =
        |way: &Way| (stage.guard.is_some() || !way.needs_guard()) && (stage.vmtouch.is_some() || !way.peer);
    let mut ran: Vec<Ran> = case.ways.iter().filter(|way| can(way)).map(|way| (*way, Vec::new())).collect();
    let file = if case.large { stage.data.large.clone() } else { stage.data.timed.clone() };
    for round in 0..stage.sizes.rounds {
        let mut lanes: Vec<_> = ran.iter_mut().collect();
        if round % 2 == 1 {
            lanes.reverse();
        }
        for (way, segments) in lanes {
            let course = Course {
                settings: way.settings,
                peer: way.peer,
                pressed: way.pressed,
                bytes_a_second: case.slow.then_some(SLOW_BYTES_A_SECOND),
                starting: case.starting,
                ..Course::unprotected(stage, &file)
            };
            segments.push(stage.run_segment(&course)?);
        }
    }
    Ok(ran)
}

impl Case {
    /// Seconds of what is timed.
    fn seconds(&self, segment: &Segment) -> Vec<f64> {
        if self.starting { segment.start_seconds() } else { segment.read_seconds() }
    }
}

fn tell(case: &Case, ran: &[Ran], stage: &Stage<'_>, report: &mut BenchReport) {
    for (way, segments) in ran {
        let mut row = |what: &str, unit: &str, figures: Vec<f64>| {
            let name = if what.is_empty() { way.name.to_owned() } else { format!("{}, {what}", way.name) };
            report.add_row(case.name, (&name, &figures), unit);
        };
        row("", "s", segments.iter().flat_map(|segment| case.seconds(segment)).collect());
        if case.starting {
            row("timed file beside it", "s", segments.iter().flat_map(Segment::read_seconds).collect());
        }
        row("read from the disk", "MiB", segments.iter().flat_map(Segment::fetched_mib).collect());
        if way.pressed {
            let locked = |segment: &Segment| segment.locked_bytes as f64 / f64::from(1 << 20);
            row("locked", "MiB", segments.iter().map(locked).collect());
            let kernel = |segment: &Segment| segment.kills.kernel as f64;
            row("killed by the kernel", "kills", segments.iter().map(kernel).collect());
        }
        if way.needs_guard() {
            let guard = |segment: &Segment| segment.kills.guard as f64;
            row("hogs killed by the guard", "kills", segments.iter().map(guard).collect());
            row(
                "daemon",
                "% of a CPU",
                segments.iter().filter_map(|segment| segment.daemon_percent).collect(),
            );
        }
        let late: usize = segments.iter().map(Segment::unfinished).sum();
        if late > 0 {
            report.note(format!(
                "{}: {}: {late} program starts did not end in {} s and count with that",
                case.name,
                way.name,
                START_PATIENCE.as_secs()
            ));
        }
        let others: u64 = segments.iter().map(|segment| segment.kills.others).sum();
        if others > 0 {
            report.note(format!("{}: {}: the guard killed {others} that were no hogs", case.name, way.name));
        }
    }
    ratios(case, ran, report);
    if case.large {
        tell_part(case, ran, stage.sizes.large_bytes, report);
    }
}

/// Each way beside what is cached, and what is unprotected beside each: median and worst of each round.
fn ratios(case: &Case, ran: &[Ran], report: &mut BenchReport) {
    let pick = |segments: &[Segment], worst: bool| -> Vec<f64> {
        let of = |segment: &Segment| {
            let summary = Summary::of(&case.seconds(segment))?;
            Some(if worst { summary.max } else { summary.p50 })
        };
        // A round without a figure stays in its place, and its ratio is left out.
        segments.iter().map(|segment| of(segment).unwrap_or(f64::NAN)).collect()
    };
    let find = |name: &str| ran.iter().find(|(way, _)| way.name == name);
    for (word, worst) in [("median", false), ("worst", true)] {
        let mut add = |of: &Ran, to: &Ran| {
            let (of_name, to_name) = (format!("{}, {word}", of.0.name), format!("{}, {word}", to.0.name));
            let (of, to) = (pick(&of.1, worst), pick(&to.1, worst));
            report.add_ratio(case.name, (&of_name, &of), (&to_name, &to));
        };
        for lane in ran.iter().filter(|(way, _)| way.pressed) {
            if let Some(cached) = find(CACHED.name) {
                add(lane, cached);
            }
        }
        for lane in ran.iter().filter(|(way, _)| way.pressed && way.name != UNPROTECTED.name) {
            if let Some(unprotected) = find(UNPROTECTED.name) {
                add(unprotected, lane);
            }
        }
    }
}

/// Whether the time fell as far as the part that was not read.
fn tell_part(case: &Case, ran: &[Ran], file_bytes: u64, report: &mut BenchReport) {
    let median = |name: &str, figures: fn(&Segment) -> Vec<f64>| {
        let (_, segments) = ran.iter().find(|(way, _)| way.name == name)?;
        let all: Vec<f64> = segments.iter().flat_map(figures).collect();
        Median::of(&all).map(|median| median.median)
    };
    let file_mib = file_bytes as f64 / f64::from(1 << 20);
    let time = |name| median(name, Segment::read_seconds);
    let fetched = |name| median(name, Segment::fetched_mib);
    if let (Some(protected), Some(unprotected), Some(fetched), Some(fetched_without)) =
        (time(PROTECTED.name), time(UNPROTECTED.name), fetched(PROTECTED.name), fetched(UNPROTECTED.name))
    {
        report.note(format!(
            "{}: protected, {:.2} of the file was read from the disk in {:.2} of the time that {:.2} of it took without",
            case.name,
            fetched / file_mib,
            protected / unprotected,
            fetched_without / file_mib,
        ));
    }
}

/// Protection that begins when the pressure is there: how long until a read is as fast as it should be.
fn begun(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    let quick = stage.options.quick;
    let after = Duration::from_millis(if quick { 500 } else { 3_000 });
    let lasting = if quick { stage.sizes.lasting * 2 } else { Duration::from_secs(25) };
    let file = stage.data.timed.clone();
    let (mut first, mut settled, mut never, mut locked) = (Vec::new(), Vec::new(), 0, Vec::new());
    for _ in 0..stage.sizes.rounds {
        let later = Some((after, &DEFAULTS[..]));
        let course = Course { later, lasting, ..Course::unprotected(stage, &file) };
        let segment = stage.run_segment(&course)?;
        first.extend(first_at(&segment.reads, after.as_secs_f64()).map(|at| at - after.as_secs_f64()));
        match settled_at(&segment.reads) {
            Some(at) => settled.push((at - after.as_secs_f64()).max(0.0)),
            None => never += 1,
        }
        locked.push(segment.locked_bytes as f64 / f64::from(1 << 20));
    }
    let name = "from its begin to the first read at the protected figure";
    report.add_row(BEGUN, (name, &first), "s");
    let name = "from its begin to the protected figure for good";
    report.add_row(BEGUN, (name, &settled), "s");
    report.add_row(BEGUN, ("locked", &locked), "MiB");
    if never > 0 {
        report.note(format!(
            "{BEGUN}: in {never} of {} rounds it was not reached for good within {} s",
            stage.sizes.rounds,
            lasting.as_secs()
        ));
    }
    Ok(())
}

/// What a cached read took before the pressure; `None` where nothing was cached.
fn cached_seconds(reads: &[Taken]) -> Option<f64> {
    let before = reads.iter().filter(|read| read.at < 0.0 && read.fetched_bytes == 0);
    let cached: Vec<f64> = before.map(|read| read.seconds).collect();
    Median::of(&cached).map(|median| median.median)
}

/// The end of the first read begun at that moment or later that takes at most twice what a cached one took before.
fn first_at(reads: &[Taken], moment: f64) -> Option<f64> {
    let cached = cached_seconds(reads)?;
    let mut later = reads.iter().filter(|read| read.at >= moment);
    later.find(|read| read.seconds <= 2.0 * cached).map(|read| read.at + read.seconds)
}

/// The same under pressure, and after which none takes more than four times that; `None` where there is none, or nothing was
/// cached before.
fn settled_at(reads: &[Taken]) -> Option<f64> {
    let cached = cached_seconds(reads)?;
    let pressed: Vec<&Taken> = reads.iter().filter(|read| read.at >= 0.0).collect();
    let last_slow = pressed.iter().rposition(|read| read.seconds > 4.0 * cached);
    let from = last_slow.map_or(0, |index| index + 1);
    pressed
        .into_iter()
        .skip(from)
        .find(|read| read.seconds <= 2.0 * cached)
        .map(|read| read.at + read.seconds)
}

#[cfg(test)]
mod tests;
