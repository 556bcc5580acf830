//! `suite`: whom each guard ends when memory runs out, and what everybody else feels meanwhile.
//!
//! Each scenario runs under each guard in turns, as it comes from Debian: the machine's memory is used up, by programs of which
//! some are to end. Beside them are programs that are to live, a program that sleeps 10 ms at a time on each CPU, and a reader
//! of a file. A guest of the lab alone may run it (`lab/bench.sh`): on any other machine it would end whoever is there.

mod crowd;
mod guards;
mod scenarios;
mod stage;

use crate::{
    child::Workload,
    error::BenchError,
    options::Options,
    proc::ProcessorMeter,
    report::BenchReport,
    sleepers::Sleepers,
    workingset::segment::{Timed, time_until},
};
use crowd::Crowd;
use guards::{Guard, Who};
use plimsoll_sys::process::oom_kills;
use scenarios::{ALL, Course, Scenario};
use stage::Stage;
pub(crate) use stage::{GUESTS_ONLY, READER_UID, disk};
use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Between two looks.
const TICK: Duration = Duration::from_millis(50);

/// A hog that neither has ended nor has what it wants by then never will.
const PATIENCE: Duration = Duration::from_secs(90);

/// A scenario in which nobody is to end takes so long, and one that has no end by itself.
const CALM: Duration = Duration::from_secs(12);
const LASTING: Duration = Duration::from_secs(20);

/// Who else is ended is seen until then.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// What one run gave.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// Of those that are to live.
    others: usize,
    /// Of those that may end, as far as they can be told apart.
    hogs: usize,
    /// The kernel's own OOM killer's.
    by_kernel: u64,
    /// Decisions that come to something else when they are made once more.
    parted: usize,
    /// From the begin until no hog took any more; `None` where that was not in time.
    done_s: Option<f64>,
    delay_ms: f64,
    read_s: Option<f64>,
    guard_ms: Option<f64>,
}

/// Runs all that is asked for.
pub(crate) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let stage = Stage::open(options)?;
    let guards = guards::found(options, report);
    let possible = |scenario: &&Scenario| stage.has_files() || !scenario.files;
    let wanted = |scenario: &&Scenario| options.wants(scenario.name) && (scenario.quick || !options.quick);
    for scenario in ALL.iter().filter(wanted).filter(possible) {
        let mut ran: Vec<(Who, Vec<Run>)> = guards.iter().map(|who| (*who, Vec::new())).collect();
        for round in 0..options.sized(options.rounds, 1) {
            let mut turn: Vec<_> = ran.iter_mut().collect();
            if round % 2 == 1 {
                turn.reverse();
            }
            for (who, runs) in turn {
                let run = play(&stage, scenario, *who)?;
                // A guest that does not come to its end has told what it did until then.
                drop(writeln!(io::stderr(), "{}: {}: {run:?}", scenario.name, who.name()));
                if options.quick && !run.is_right(scenario) {
                    return Err(BenchError::Guard {
                        command: scenario.name.to_owned(),
                        problem: format!("whom it ended was not right: {run:?}"),
                    });
                }
                runs.push(run);
            }
        }
        tell(scenario, &ran, report);
    }
    Ok(())
}

fn play(stage: &Stage<'_>, scenario: &Scenario, who: Who) -> Result<Run, BenchError> {
    let _swap = stage.swap(scenario.swap)?;
    stage.settle()?;
    let mut guard = Guard::start(who, stage.options)?;
    let others =
        [stage.hold(stage::OTHER_UID, stage.part(64))?, stage.hold(stage::OTHER_UID, stage.part(64))?];
    let reader = stage.reader()?;
    let over = AtomicBool::new(false);
    let mut run = thread::scope(|scope| {
        let read = |reader| scope.spawn(|| time_until(reader, "read", stage::READ_PAUSE, &over));
        let reads = reader.map(read);
        let run = press(stage, scenario, (&guard, &others));
        over.store(true, Ordering::Relaxed);
        let mut run = run?;
        match reads.map(thread::ScopedJoinHandle::join) {
            Some(Ok(Ok(reads))) => run.read_s = longest_s(&reads),
            // It was ended over it.
            Some(_) => run.others += 1,
            None => {}
        }
        Ok::<_, BenchError>(run)
    })?;
    run.others += guard.dead()?;
    let incidents = guard.incidents()?;
    run.parted = guards::parted(&incidents)?;
    guard.keep(&incidents, scenario.name, !run.is_right(scenario))?;
    Ok(run)
}

/// Has memory used up, and looks what becomes of it.
fn press(
    stage: &Stage<'_>,
    scenario: &Scenario,
    (guard, others): (&Guard, &[Workload]),
) -> Result<Run, BenchError> {
    thread::sleep(stage::WARMING);
    let before = oom_kills()?;
    let processor = ProcessorMeter::start(guard.pid());
    let sleepers = Sleepers::start(Duration::from_millis(10))?;
    let mut crowd = (scenario.start)(stage)?;
    let done_s = until_done(stage, scenario, &mut crowd)?;
    thread::sleep(AFTERWARDS);
    let delay_ms = sleepers.longest_millis()?;
    let guard_ms = processor.used().map(|used| used.as_secs_f64() * 1e3);
    let by_kernel = oom_kills()?.saturating_sub(before);
    let others = crowd::dead(others)? + crowd::dead(&crowd.others)?;
    let hogs = crowd.dead()?;
    Ok(Run { others, hogs, by_kernel, parted: 0, done_s, delay_ms, read_s: None, guard_ms })
}

/// When no hog took any more.
fn until_done(stage: &Stage<'_>, scenario: &Scenario, crowd: &mut Crowd) -> Result<Option<f64>, BenchError> {
    let began = Instant::now();
    let patience = match scenario.course {
        Course::Ends => PATIENCE,
        Course::Lasts => LASTING,
        Course::Calm => CALM,
    };
    while began.elapsed() < patience {
        (scenario.pace)(stage, crowd);
        thread::sleep(TICK);
        if scenario.course == Course::Ends && crowd.is_done()? {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
    }
    Ok(None)
}

fn longest_s(reads: &Timed) -> Option<f64> {
    reads.iter().map(|(_, seconds, _)| *seconds).reduce(f64::max)
}

impl Run {
    /// Only those who took too much ended, by the guard alone, and nobody where nobody was to end; and the guard's decisions
    /// can be made once more.
    fn is_right(&self, scenario: &Scenario) -> bool {
        let ended = match scenario.course {
            Course::Ends => self.done_s.is_some() && self.hogs > 0,
            Course::Lasts => true,
            Course::Calm => self.hogs == 0,
        };
        ended && self.others == 0 && self.by_kernel == 0 && self.parted == 0
    }
}

/// A figure of a run, if it has it.
type Figure = fn(&Run) -> Option<f64>;

/// What is in the result of each guard, and in which unit.
const FIGURES: [(&str, Figure, &str); 5] = [
    ("longest wait of a sleeper", |run| Some(run.delay_ms), "ms"),
    ("longest read", |run| run.read_s, "s"),
    ("until no hog took any more", |run| run.done_s, "s"),
    ("hogs ended", |run| Some(run.hogs as f64), "processes"),
    ("processor time", |run| run.guard_ms, "ms"),
];

fn tell(scenario: &Scenario, ran: &[(Who, Vec<Run>)], report: &mut BenchReport) {
    for (who, runs) in ran {
        let right = runs.iter().filter(|run| run.is_right(scenario)).count();
        let others: usize = runs.iter().map(|run| run.others).sum();
        let by_kernel: u64 = runs.iter().map(|run| run.by_kernel).sum();
        report.note(format!(
            "{}, {}: right in {right} of {}; of those that were to live {others} ended; the kernel ended {by_kernel}",
            scenario.name,
            who.name(),
            runs.len()
        ));
        for (name, figure, unit) in FIGURES {
            let series: Vec<f64> = runs.iter().filter_map(figure).collect();
            if !series.is_empty() {
                report.add_row(scenario.name, (&format!("{}, {name}", who.name()), &series), unit);
            }
        }
    }
}
