//! Requests for blocks of several pages where memory is in pieces, without and with the guard: in a guest of the lab alone.
//!
//! A recipe (`lab/fragment.py`) takes all memory and gives part of it back in single pages. It asks for blocks until there are
//! hardly any left; with the guard, until that has made some. Then it asks for those that are timed. Each time a daemon
//! runs, and a fresh recipe. Calls that programs make are compared with the same where memory is in one piece, too.

use crate::{
    Guarded as _, Triggers,
    child::{STEP, Workload, look_until},
    error::BenchError,
    guarded::PrivateDaemon,
    options::Options,
    proc::{self, ProcessorMeter},
    report::BenchReport,
    scope,
    suite::READER_UID,
    workingset::{DEFAULTS, data::write_file},
};
use plimsoll_api::status::FragmentationView;
use plimsoll_policy::units::Pages;
use plimsoll_sys::process::page_size;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::Command,
    time::Duration,
};

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/fragment.py");

/// The kernel's own compaction ahead of need: off, as wherever somebody found it too dear. Otherwise it does some of the
/// guard's work.
const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";
const OFF: &str = "0";
/// As the kernel comes (`sysctl_compaction_proactiveness`, mm/compaction.c, 5.9 to 7.2).
const DEFAULT: &str = "20";

/// Memory is taken and scattered within that, by an emulated CPU.
const RECIPE_MAX: Duration = Duration::from_secs(300);

/// Fewer blocks than this are hardly any.
const HARDLY_ANY: u64 = 150;

/// Asked for between two looks, and how often at most.
const PIECE: u64 = 200;
const PIECES_MAX: u64 = 60;

/// What is left for those that are timed, and the machine: a kernel that makes blocks by itself has them asked for until there
/// is no memory.
const LEFT_BYTES: u64 = 80 << 20;

/// The guard has made blocks within that, or will not.
const MADE_WITHIN: Duration = Duration::from_secs(90);

/// One case.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    /// Blocks of this order are used up before.
    order: u32,
    /// What the recipe is told to do.
    asks: &'static str,
    proactiveness: &'static str,
    /// The working set is protected meanwhile, by its defaults: 15 % of memory are locked.
    protected: bool,
    /// Compared with memory in one piece, too.
    whole: bool,
    /// Only where there is this.
    device: Option<&'static str>,
}

/// A thousand requests of an order.
const REQUESTS: Case = Case {
    name: "fragmented, order 3",
    order: 3,
    asks: "ask 3 1000",
    proactiveness: OFF,
    protected: false,
    whole: false,
    device: None,
};

const CASES: [Case; 8] = [
    Case { name: "fragmented, order 2", order: 2, asks: "ask 2 1000", ..REQUESTS },
    REQUESTS,
    Case { name: "fragmented, order 3, 15 % locked", protected: true, ..REQUESTS },
    Case { name: "fragmented, order 3, compaction_proactiveness 20", proactiveness: DEFAULT, ..REQUESTS },
    // A pause after each.
    Case { name: "fragmented, a minute of order 3", asks: "ask 3 1200 50", ..REQUESTS },
    Case { name: "fragmented, order 10", order: 10, asks: "ask 10 8", ..REQUESTS },
    // A call that every desktop makes, and the seed's. Whoever asks has another way, but for binder on 6.1: this is what that
    // costs.
    Case { name: "fragmented, unix socket, 120 kB", asks: "unix 120000 1000", whole: true, ..REQUESTS },
    Case {
        name: "fragmented, binder, 4 MiB mapped",
        asks: "binder 1000",
        whole: true,
        device: Some("/dev/binder"),
        ..REQUESTS
    },
];

impl Case {
    /// So many are asked for between two looks.
    const fn piece(self, of_small: u64) -> u64 {
        if self.order > 3 { 1 } else { of_small }
    }
}

/// How memory is, and who sees to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Whole,
    Off,
    On,
}

/// What came of requests.
#[derive(Debug, Clone, Deserialize)]
struct Told {
    failures: u64,
    /// By the kernel's counters: who compacted, or took pages back, itself.
    stalls: u64,
    median_us: u64,
    p99_us: u64,
    longest_us: u64,
    /// Free ones of that order, then.
    blocks: u64,
    /// Free pages.
    free: u64,
}

impl Told {
    /// No more is to be asked for before those that are timed.
    fn is_little_left(&self) -> bool {
        page_size().to_bytes(Pages(self.free)).0 < LEFT_BYTES
    }
}

/// What one run gave.
#[derive(Debug, Clone)]
struct Run {
    /// `None`: the kernel's OOM killer ended it.
    told: Option<Told>,
    oom_kills: u64,
    locked_bytes: u64,
    /// What the daemon used of a CPU meanwhile; `None`: it ended.
    daemon_ms: Option<f64>,
    guard: FragmentationView,
}

/// Runs all cases that are asked for.
pub(super) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let as_it_was =
        fs::read_to_string(PROACTIVENESS).map_err(BenchError::io("read compaction_proactiveness"))?;
    let ran = CASES.iter().filter(|case| options.wants(case.name)).try_for_each(|case| {
        if let Some(device) = case.device.filter(|device| !Path::new(device).exists()) {
            report.note(format!("{}: left out, as there is no {device}", case.name));
            return Ok(());
        }
        set_proactiveness(case.proactiveness)?;
        compare(options, *case, report)
    });
    ran.and(set_proactiveness(as_it_was.trim()))
}

fn set_proactiveness(value: &str) -> Result<(), BenchError> {
    fs::write(PROACTIVENESS, value).map_err(BenchError::io("set compaction_proactiveness"))
}

fn compare(options: &Options, case: Case, report: &mut BenchReport) -> Result<(), BenchError> {
    let (mut whole, mut off, mut on) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.sized(options.rounds, 1) {
        let mut turn = [(Side::Whole, &mut whole), (Side::Off, &mut off), (Side::On, &mut on)];
        if round % 2 == 1 {
            turn.reverse();
        }
        for (side, runs) in turn {
            if side == Side::Whole && !case.whole {
                continue;
            }
            let run = play(options, case, side)?;
            // A guest that does not come to its end has told what it did until then.
            drop(writeln!(io::stderr(), "{}: {side:?}: {run:?}", case.name));
            runs.push(run);
        }
    }
    tell(case, &[("whole", whole), ("off", off), ("on", on)], report);
    Ok(())
}

fn tell(case: Case, sides: &[(&str, Vec<Run>); 3], report: &mut BenchReport) {
    type Figure = fn(&Run) -> Option<f64>;
    let figures: [(&str, &str, Figure); 8] = [
        ("99th of 100 requests", "us", |run| Some(run.told.as_ref()?.p99_us as f64)),
        ("50th of 100 requests", "us", |run| Some(run.told.as_ref()?.median_us as f64)),
        ("longest request", "us", |run| Some(run.told.as_ref()?.longest_us as f64)),
        ("stalls", "requests", |run| Some(run.told.as_ref()?.stalls as f64)),
        ("failures", "requests", |run| Some(run.told.as_ref()?.failures as f64)),
        ("ended by the kernel", "processes", |run| Some(run.oom_kills as f64)),
        ("kcompactd for the guard", "ms", |run| run.told.as_ref().map(|_| run.guard.cost_ns as f64 / 1e6)),
        ("CPU of the daemon", "ms", |run| run.told.as_ref().and(run.daemon_ms)),
    ];
    for (index, (name, unit, figure)) in figures.into_iter().enumerate() {
        let row = format!("{}: {name}", case.name);
        for (side, runs) in sides.iter().filter(|(_, runs)| !runs.is_empty()) {
            // Whoever was ended has none.
            let figures: Vec<f64> = runs.iter().filter_map(figure).collect();
            report.add_row(&row, (side, &figures), unit);
        }
        // The times.
        let [whole, off, on] = sides;
        let compared: &[_] = match (index, case.whole) {
            (0 | 1, true) => &[(on, off), (off, whole), (on, whole)],
            (0 | 1, false) => &[(on, off)],
            (_, _) => &[],
        };
        for ((one, its), (other, others)) in compared {
            let pairs =
                its.iter().zip(others).filter_map(|(one, other)| Some((figure(one)?, figure(other)?)));
            let (its, others): (Vec<f64>, Vec<f64>) = pairs.unzip();
            report.add_ratio(&row, (one, &its), (other, &others));
        }
    }
    let locked = sides.iter().flat_map(|(_, runs)| runs).map(|run| run.locked_bytes >> 20).min().unwrap_or(0);
    report.note(format!("{}: {locked} MiB were locked at least", case.name));
}

fn play(options: &Options, case: Case, side: Side) -> Result<Run, BenchError> {
    let guarded = side == Side::On;
    let mut daemon = PrivateDaemon::start(scope::PREFIX, options, Triggers::Blocks { guarded })?;
    let _reader = case.protected.then(|| read_until_locked(options, &mut daemon)).transpose()?;
    let mut recipe = Recipe::start(side)?;
    let before = plimsoll_sys::process::oom_kills()?;
    let told = match side {
        Side::Whole => Ok(()),
        Side::Off => used_up(case, &mut recipe),
        Side::On => made(case, &mut recipe, &daemon),
    };
    let locked_bytes = proc::locked_bytes()?;
    let meter = ProcessorMeter::start(daemon.pid());
    let told = told.and_then(|()| recipe.does(case.asks));
    let daemon_ms = meter.used().map(|used| used.as_secs_f64() * 1e3);
    let oom_kills = plimsoll_sys::process::oom_kills()?.saturating_sub(before);
    let guard = guard_of(&daemon)?;
    daemon.stop()?;
    // Who asked was ended.
    let told = if oom_kills > 0 { None } else { Some(told?) };
    Ok(Run { told, oom_kills, locked_bytes, daemon_ms, guard })
}

/// Has it ask until there are hardly any blocks left.
fn used_up(case: Case, recipe: &mut Recipe) -> Result<(), BenchError> {
    for _ in 0..PIECES_MAX {
        let told = recipe.asks(case.order, case.piece(PIECE))?;
        if told.blocks < HARDLY_ANY || told.is_little_left() {
            break;
        }
    }
    Ok(())
}

/// Has it ask until the guard has made some: what it made while memory was being taken is of no use any more, and paid for
/// first.
fn made(case: Case, recipe: &mut Recipe, daemon: &PrivateDaemon) -> Result<(), BenchError> {
    let before = guard_of(daemon)?.compactions;
    look_until(MADE_WITHIN, Duration::from_millis(50), || {
        let told = recipe.asks(case.order, case.piece(PIECE / 10))?;
        Ok((guard_of(daemon)?.compactions > before || told.is_little_left()).then_some(()))
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
    fn start(side: Side) -> Result<Self, BenchError> {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(RECIPE).args((side == Side::Whole).then_some("whole"));
        let mut recipe = Self(Workload::spawn(command, "fragment.py")?);
        recipe.hear::<serde::de::IgnoredAny>(RECIPE_MAX)?;
        Ok(recipe)
    }

    fn asks(&mut self, order: u32, count: u64) -> Result<Told, BenchError> {
        self.does(&format!("ask {order} {count}"))
    }

    fn does(&mut self, what: &str) -> Result<Told, BenchError> {
        self.0.tell(what)?;
        self.hear(STEP * 5)
    }

    fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, BenchError> {
        let line = self.0.hear(within)?;
        serde_json::from_str(&line).map_err(|_refused| BenchError::malformed("what fragment.py says", &line))
    }
}
