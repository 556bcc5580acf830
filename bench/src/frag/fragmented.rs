//! Requests for blocks of several pages where memory is in pieces, without and with the guard: in a guest of the lab alone.
//!
//! A recipe (`lab/fragment.py`) takes all memory and gives part of it back in single pages. It asks for blocks until there are
//! hardly any left; with the guard, until that has made some. Then it asks for those that are timed. Both times a daemon
//! runs, and a fresh recipe.

use crate::{
    Guarded as _, Triggers,
    child::{STEP, Workload, look_until},
    error::BenchError,
    guarded::PrivateDaemon,
    options::Options,
    proc,
    report::{BenchReport, Series},
    scope,
    suite::READER_UID,
    workingset::{DEFAULTS, data::write_file},
};
use plimsoll_api::status::FragmentationView;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fs,
    io::{self, Write as _},
    process::Command,
    time::Duration,
};

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/fragment.py");

/// The kernel's own compaction ahead of need: off, as wherever somebody found it too dear. Otherwise it does some of the
/// guard's work.
const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";

/// Memory is taken and scattered within that, by an emulated CPU.
const RECIPE_MAX: Duration = Duration::from_secs(300);

/// Fewer blocks than this are hardly any.
const HARDLY_ANY: u64 = 150;

/// Asked for between two looks, and how often at most.
const PIECE: u64 = 200;
const PIECES_MAX: u64 = 60;

/// The guard has made blocks within that, or will not.
const MADE_WITHIN: Duration = Duration::from_secs(90);

/// One case.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    order: u32,
    count: u64,
    /// The working set is protected meanwhile, by its defaults: 15 % of memory are locked.
    protected: bool,
}

impl Case {
    /// So many are asked for between two looks.
    const fn piece(self, of_small: u64) -> u64 {
        if self.order > 3 { 1 } else { of_small }
    }
}

const CASES: [Case; 4] = [
    Case { name: "fragmented, order 2", order: 2, count: 1000, protected: false },
    Case { name: "fragmented, order 3", order: 3, count: 1000, protected: false },
    Case { name: "fragmented, order 3, 15 % locked", order: 3, count: 1000, protected: true },
    Case { name: "fragmented, order 10", order: 10, count: 8, protected: false },
];

/// What came of requests.
#[derive(Debug, Clone, Deserialize)]
struct Told {
    failures: u64,
    /// By the kernel's counters: who compacted, or took pages back, itself.
    stalls: u64,
    p99_us: u64,
    longest_us: u64,
    /// Free ones of that order, then.
    blocks: u64,
}

/// What one run gave.
#[derive(Debug, Clone)]
struct Run {
    /// `None`: the kernel's OOM killer ended it.
    told: Option<Told>,
    oom_kills: u64,
    locked_bytes: u64,
    guard: FragmentationView,
}

/// Runs all cases that are asked for.
pub(super) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let as_it_was = fs::read(PROACTIVENESS).map_err(BenchError::io("read compaction_proactiveness"))?;
    set_proactiveness(b"0")?;
    let ran = CASES
        .iter()
        .filter(|case| options.wants(case.name))
        .try_for_each(|case| compare(options, *case, report));
    set_proactiveness(&as_it_was)?;
    ran
}

fn set_proactiveness(value: &[u8]) -> Result<(), BenchError> {
    fs::write(PROACTIVENESS, value).map_err(BenchError::io("set compaction_proactiveness"))
}

fn compare(options: &Options, case: Case, report: &mut BenchReport) -> Result<(), BenchError> {
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for round in 0..options.sized(options.rounds, 1) {
        let mut turn = [(false, &mut off), (true, &mut on)];
        if round % 2 == 1 {
            turn.reverse();
        }
        for (guarded, runs) in turn {
            let run = play(options, case, guarded)?;
            // A guest that does not come to its end has told what it did until then.
            drop(writeln!(io::stderr(), "{}: guarded: {guarded}: {run:?}", case.name));
            runs.push(run);
        }
    }
    tell(case, &off, &on, report);
    Ok(())
}

fn tell(case: Case, off: &[Run], on: &[Run], report: &mut BenchReport) {
    type Figure = fn(&Run) -> Option<f64>;
    let figures: [(&str, &str, Figure); 6] = [
        ("99th of 100 requests", "us", |run| Some(run.told.as_ref()?.p99_us as f64)),
        ("longest request", "us", |run| Some(run.told.as_ref()?.longest_us as f64)),
        ("stalls", "requests", |run| Some(run.told.as_ref()?.stalls as f64)),
        ("failures", "requests", |run| Some(run.told.as_ref()?.failures as f64)),
        ("ended by the kernel", "processes", |run| Some(run.oom_kills as f64)),
        ("kcompactd for the guard", "ms", |run| Some(run.guard.cost_ns as f64 / 1e6)),
    ];
    for (index, (name, unit, figure)) in figures.into_iter().enumerate() {
        // A round in which one was ended has no pair.
        let pairs = off.iter().zip(on).filter_map(|(off, on)| Some((figure(off)?, figure(on)?)));
        let (off, on): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let (off, on): (Series<'_>, Series<'_>) = (("off", &off), ("on", &on));
        let row = format!("{}: {name}", case.name);
        report.add_row(&row, off, unit);
        report.add_row(&row, on, unit);
        if index == 0 {
            report.add_ratio(&row, on, off);
        }
    }
    let locked = on.iter().map(|run| run.locked_bytes >> 20).min().unwrap_or(0);
    report.note(format!("{}: {locked} MiB were locked at least", case.name));
}

fn play(options: &Options, case: Case, guarded: bool) -> Result<Run, BenchError> {
    let mut daemon = PrivateDaemon::start(scope::PREFIX, options, Triggers::Blocks { guarded })?;
    let _reader = case.protected.then(|| read_until_locked(options, &mut daemon)).transpose()?;
    let mut recipe = Recipe::start()?;
    let before = plimsoll_sys::process::oom_kills()?;
    let told = if guarded { made(case, &mut recipe, &daemon) } else { used_up(case, &mut recipe) };
    let locked_bytes = proc::locked_bytes()?;
    let told = told.and_then(|()| recipe.asks(case.order, case.count));
    let oom_kills = plimsoll_sys::process::oom_kills()?.saturating_sub(before);
    let guard = guard_of(&daemon)?;
    daemon.stop()?;
    // Who asked was ended.
    let told = if oom_kills > 0 { None } else { Some(told?) };
    Ok(Run { told, oom_kills, locked_bytes, guard })
}

/// Has it ask until there are hardly any blocks left.
fn used_up(case: Case, recipe: &mut Recipe) -> Result<(), BenchError> {
    for _ in 0..PIECES_MAX {
        if recipe.asks(case.order, case.piece(PIECE))?.blocks < HARDLY_ANY {
            break;
        }
    }
    Ok(())
}

/// Has it ask until the guard has made some.
fn made(case: Case, recipe: &mut Recipe, daemon: &PrivateDaemon) -> Result<(), BenchError> {
    look_until(MADE_WITHIN, Duration::from_millis(50), || {
        recipe.asks(case.order, case.piece(PIECE / 10))?;
        Ok((guard_of(daemon)?.compactions > 0).then_some(()))
    })
    .map(drop)
}

/// Has a file of a fifth of memory read until most of what may be is locked.
fn read_until_locked(options: &Options, daemon: &mut PrivateDaemon) -> Result<Workload, BenchError> {
    let folder = options.data.as_deref().ok_or_else(|| BenchError::Unfit {
        problem: "files that are locked need a place: --data".to_owned(),
    })?;
    let memory = proc::told("MemTotal", proc::meminfo()?.mem_total)?;
    let file = write_file(&folder.join("locked"), memory / 5)?;
    daemon.protect(&DEFAULTS)?;
    let mut reader = Workload::start(&options.workload, &[&"read", &READER_UID, &file.display()])?;
    look_until(MADE_WITHIN, Duration::from_millis(500), || {
        reader.tell("read")?;
        reader.expect("done")?;
        Ok((proc::locked_bytes()? > memory / 10).then_some(()))
    })?;
    Ok(reader)
}

fn guard_of(daemon: &PrivateDaemon) -> Result<FragmentationView, BenchError> {
    let view = daemon.client()?.status()?.guards.fragmentation;
    view.ok_or_else(|| BenchError::malformed("status", "it tells nothing of large blocks"))
}

/// The program that took all memory.
#[derive(Debug)]
struct Recipe(Workload);

impl Recipe {
    fn start() -> Result<Self, BenchError> {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(RECIPE);
        let mut recipe = Self(Workload::spawn(command, "fragment.py")?);
        recipe.hear::<serde::de::IgnoredAny>(RECIPE_MAX)?;
        Ok(recipe)
    }

    fn asks(&mut self, order: u32, count: u64) -> Result<Told, BenchError> {
        self.0.tell(&format!("ask {order} {count}"))?;
        self.hear(STEP * 5)
    }

    fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, BenchError> {
        let line = self.0.hear(within)?;
        serde_json::from_str(&line).map_err(|_refused| BenchError::malformed("what fragment.py says", &line))
    }
}
