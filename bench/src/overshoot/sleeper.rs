//! `overshoot sleeper`: eight processes take their account over its line while another one, asleep, is the largest.
//!
//! The eight stop at a size that fits without the sleeper, so that one kill is enough and a second one is a mistake.

use crate::{
    child::{STEP, Workload, look_until},
    error::BenchError,
    guarded::{Guarded, Line, wait_for_kills},
    options::Options,
    proc,
    report::BenchReport,
    stamps::Stamps,
    workload::UNITS_MAX,
};
use plimsoll_policy::incident::{Incident, Trigger};
use plimsoll_sys::process::clock_monotonic_ns;
use std::{fmt::Display, time::Duration};

const MIB: u64 = 1 << 20;
const UID: u32 = 60_015;

/// The case's name.
pub(super) const CASE: &str = "sleeper";

const ALLOCATORS: usize = 8;

/// What each of the eight has before it is let go, and what it touches then: 104 MiB in all, more than twice the room
/// beside the sleeper, and less than the line.
const APPROACH_BYTES: u64 = MIB;
const TOUCHED_BYTES: u64 = 12 * MIB;
const ROOM_BYTES: u64 = 48 * MIB;

/// From the first `go` to the common start: all eight have heard theirs by then.
const START_IN_NS: u64 = 20_000_000;

/// What a round showed, before the guard's own record is looked at.
struct Round {
    sleeper: u32,
    /// Those of the eight that died.
    lost: usize,
    /// Those of the eight that touched before the crossing and after it.
    allocating: usize,
    /// Times of all touches, in order.
    touches_ns: Vec<u64>,
    /// How many touches the line had room for.
    room: usize,
    died_ns: u64,
    /// Usage above the line when `room` touches were made; not above 0, and above one page under it.
    above_at_room_bytes: f64,
}

/// Runs it.
pub(super) fn run(
    options: &Options,
    guard: &mut dyn Guarded,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let sleeper_bytes = if options.quick { 128 * MIB } else { 1024 * MIB };
    let hard_bytes = sleeper_bytes + ROOM_BYTES;
    guard.set_line(Line { uid: UID, hard_bytes, soft_bytes: None })?;
    let before = guard.incidents()?.len();
    let lanes: Vec<Stamps> = (0..ALLOCATORS).map(|_| Stamps::create(UNITS_MAX)).collect::<Result<_, _>>()?;
    let rounds: Vec<Round> = (0..options.sized(50, 2))
        .map(|_| kill_once(options, &lanes, sleeper_bytes, hard_bytes))
        .collect::<Result<_, _>>()?;
    let incidents = with_outcomes(guard, before, rounds.len())?;
    guard.clear_line(UID)?;
    note_who_died(&rounds, &incidents, report);
    let page_bytes = proc::page_size_bytes() as f64;
    let told: Vec<(&Round, &Incident)> = rounds
        .iter()
        .filter_map(|round| Some((round, incidents.iter().find(|incident| takes(incident, round.sleeper))?)))
        .collect();
    let micros = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1_000.0);
    let mut add = |variant: &str, unit: &str, figure: &dyn Fn(&Round, &Incident) -> Option<f64>| {
        let figures: Vec<f64> = told.iter().filter_map(|(round, incident)| figure(round, incident)).collect();
        report.add_row(CASE, (variant, &figures), unit);
    };
    add("plimsoll's record", "bytes", &|_, incident| Some(incident.overshoot_bytes as f64));
    add("the eight's own count, at the signal", "bytes", &|round, incident| {
        round.overshoot_bytes(incident.cross_to_signal_ns?, page_bytes)
    });
    add("the eight, allocating at the crossing", "processes", &|round, _| Some(round.allocating as f64));
    add("crossing to signal", "us", &|_, incident| micros(incident.cross_to_signal_ns));
    add("signal to memory back", "us", &|_, incident| micros(incident.signal_to_freed_ns));
    add("crossing to sleeper's end", "us", &|round, _| {
        micros(round.crossed_ns(0).map(|crossed_ns| round.died_ns.saturating_sub(crossed_ns)))
    });
    Ok(())
}

impl Round {
    /// The touch that crossed, if `in_flight` of those before it were stamped and not yet made.
    fn crossed_ns(&self, in_flight: usize) -> Option<u64> {
        self.touches_ns.get(self.room + in_flight).copied()
    }

    /// Usage above the line when the signal was sent, by page tables and stamps: from then on the sleeper is dying, and
    /// usage without it is far under the line. The crossing is taken as late as it can be: each of the other seven
    /// may have stamped a touch that it had not made.
    fn overshoot_bytes(&self, cross_to_signal_ns: u64, page_bytes: f64) -> Option<f64> {
        let signal_ns = self.crossed_ns(ALLOCATORS - 1)? + cross_to_signal_ns;
        let begun = self.touches_ns.partition_point(|touch_ns| *touch_ns <= signal_ns);
        Some(self.above_at_room_bytes + begun.saturating_sub(self.room) as f64 * page_bytes)
    }
}

fn takes(incident: &Incident, pid: u32) -> bool {
    incident.victims.iter().any(|victim| victim.pid.0 == pid)
}

/// One sleeper, eight that allocate, one kill.
fn kill_once(
    options: &Options,
    lanes: &[Stamps],
    sleeper_bytes: u64,
    hard_bytes: u64,
) -> Result<Round, BenchError> {
    let page_bytes = proc::page_size_bytes();
    let sleeper = Workload::start(&options.workload, &[&"hold", &UID, &sleeper_bytes])?;
    let mut allocators: Vec<Workload> =
        lanes.iter().map(|stamps| allocator(options, stamps)).collect::<Result<_, _>>()?;
    let mut used_bytes = 0;
    for pid in allocators.iter().chain([&sleeper]).map(Workload::pid) {
        used_bytes += proc::charged_bytes(pid)?;
    }
    let room = hard_bytes.saturating_sub(used_bytes) / page_bytes;
    let start_ns = clock_monotonic_ns() + START_IN_NS;
    for allocator in &mut allocators {
        allocator.tell(&format!("go {} {start_ns}", TOUCHED_BYTES / page_bytes))?;
    }
    let died_ns = sleeper.death_ns(STEP / 6)?;
    for allocator in &mut allocators {
        match allocator.expect("touched") {
            // One that died is a finding, not a failure of the bench.
            Err(error) if allocator.wait_dead_ns(Duration::from_secs(1))?.is_none() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let mut lost = 0;
    for allocator in &allocators {
        lost += usize::from(allocator.wait_dead_ns(Duration::ZERO)?.is_some());
    }
    let per_lane: Vec<Vec<u64>> = lanes.iter().map(Stamps::read).collect::<Result<_, _>>()?;
    let mut touches_ns = per_lane.concat();
    touches_ns.sort_unstable();
    let room_length = usize::try_from(room).map_err(|error| {
        BenchError::malformed(format!("room under the line ({error})"), &room.to_string())
    })?;
    let crossed_ns = touches_ns.get(room_length).copied().unwrap_or(u64::MAX);
    let spans = |lane: &&Vec<u64>| {
        lane.first().is_some_and(|first| *first < crossed_ns)
            && lane.last().is_some_and(|last| *last > crossed_ns)
    };
    Ok(Round {
        sleeper: sleeper.pid(),
        lost,
        allocating: per_lane.iter().filter(spans).count(),
        touches_ns,
        room: room_length,
        died_ns,
        above_at_room_bytes: (used_bytes + room * page_bytes) as f64 - hard_bytes as f64,
    })
}

fn allocator(options: &Options, stamps: &Stamps) -> Result<Workload, BenchError> {
    stamps.clear()?;
    let words: [&dyn Display; 6] = [&"victim", &UID, &stamps.path(), &APPROACH_BYTES, &1, &"small"];
    Workload::start(&options.workload, &words)
}

/// The kills behind the first `before` incidents, once each tells when its memory was back, or a while has passed: a
/// record and what became known later are written apart.
fn with_outcomes(guard: &mut dyn Guarded, before: usize, kills: usize) -> Result<Vec<Incident>, BenchError> {
    let complete = look_until(Duration::from_secs(3), Duration::from_millis(50), || {
        let incidents = wait_for_kills(guard, before, kills)?;
        Ok(incidents.iter().all(|incident| incident.signal_to_freed_ns.is_some()).then_some(incidents))
    })?;
    complete.map_or_else(|| wait_for_kills(guard, before, kills), Ok)
}

/// Whether the largest was killed, once, and nobody else.
fn note_who_died(rounds: &[Round], incidents: &[Incident], report: &mut BenchReport) {
    let once = |round: &&Round| {
        round.lost == 0 && incidents.iter().filter(|incident| takes(incident, round.sleeper)).count() == 1
    };
    report.note(format!(
        "{CASE}: the largest was killed, once, and nobody else in {} of {} rounds; {} kills are recorded, {} of them in-kernel",
        rounds.iter().filter(once).count(),
        rounds.len(),
        incidents.len(),
        incidents.iter().filter(|incident| incident.trigger == Trigger::InKernel).count()
    ));
    let lost: usize = rounds.iter().map(|round| round.lost).sum();
    if lost > 0 {
        report.note(format!("{CASE}: {lost} of the processes that allocate died"));
    }
}
