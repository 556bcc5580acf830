//! `reap`: how fast a killed process's memory comes back, by itself and with the reaper's help.
//!
//! Needs no guard: the reaper of the daemon is used as it is. Plain and expedited kills are interleaved. Eight victims at
//! once are freed by one thread and by as many as the daemon has.

mod kills;
mod load;

use crate::{
    error::BenchError,
    options::Options,
    report::{BenchReport, Series},
};
use kills::{Kill, Reapers, kill_all, kill_beside};
use load::{Hogs, Quota};

const MIB: u64 = 1 << 20;

/// How a victim is throttled; the word that the workload `victim-held` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Throttle {
    None,
    Idle,
    Nice,
    /// 1 % of one CPU.
    Quota,
    /// The least share of the CPU that a cgroup can have.
    Shares,
    /// Bound to the CPU of [`Load::SlowCpu`].
    SlowCpu,
}

/// What runs beside the victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    None,
    /// Two busy processes for each CPU.
    All,
    /// Nine on the last CPU, so that it has a tenth of its speed for one more; the others are idle.
    SlowCpu,
}

/// One case: how the victims are throttled, beside how much load, and how many kills a round.
struct Case {
    name: &'static str,
    throttle: Throttle,
    load: Load,
    bytes: u64,
    rounds: (usize, usize),
}

const FREE: Case = Case {
    name: "unthrottled",
    throttle: Throttle::None,
    load: Load::None,
    bytes: 1024 * MIB,
    rounds: (15, 2),
};
const LOADED: Case =
    Case { name: "unthrottled, loaded", load: Load::All, bytes: 256 * MIB, rounds: (7, 1), ..FREE };

const CASES: [Case; 7] = [
    FREE,
    LOADED,
    Case { name: "SCHED_IDLE", throttle: Throttle::Idle, ..LOADED },
    Case { name: "nice 19", throttle: Throttle::Nice, ..LOADED },
    Case { name: "least share", throttle: Throttle::Shares, ..LOADED },
    Case { name: "1 % quota", throttle: Throttle::Quota, load: Load::None, ..LOADED },
    Case { name: "bound to a slow CPU", throttle: Throttle::SlowCpu, load: Load::SlowCpu, ..LOADED },
];

/// Victims that others sleep beside.
const BESIDE: [(&str, u64); 2] =
    [("sleepers beside 2.5 GiB", 2560 * MIB), ("sleepers beside 6 GiB", 6144 * MIB)];

/// Victims of the case `eight`, 128 MiB each.
const EIGHT: usize = 8;

/// Runs all cases.
pub(crate) fn run(options: &Options, report: &mut BenchReport) -> Result<(), BenchError> {
    let reapers = Reapers::start()?;
    report.note(format!(
        "the pool has {} threads; rates are anonymous bytes a second, from the signal to the exit (pidfd readable)",
        reapers.threads()
    ));
    let mut minima = Minima::default();
    for case in CASES.iter().filter(|case| options.wants(case.name)) {
        run_case(options, &reapers, case, (report, &mut minima))?;
    }
    minima.tell(report);
    if options.wants("eight") {
        eight_at_once(options, &reapers, Throttle::None, report)?;
        eight_at_once(options, &reapers, Throttle::Idle, report)?;
    }
    for (name, bytes) in BESIDE.iter().filter(|(name, _)| options.wants(name)) {
        beside_sleepers(options, &reapers, name, *bytes, report)?;
    }
    let (reached, handed) = reapers.reached();
    report.note(format!("{reached} of {handed} victims were reached before they had let go of their memory"));
    note_lists(report);
    let submits = reapers.submit_micros();
    for (variant, figures) in [("decider", &submits.decider), ("ordinary caller", &submits.ordinary)] {
        if !figures.is_empty() {
            report.add_row("submit", (variant, figures), "us");
        }
    }
    Ok(())
}

/// The lowest rates of all cases, as seed 004 compares them: they are what a margin of free memory has to be sized by.
#[derive(Debug, Default)]
struct Minima {
    plain: Vec<f64>,
    expedited: Vec<f64>,
}

impl Minima {
    /// Takes in one case.
    fn take(&mut self, plain: &[f64], expedited: &[f64]) {
        self.plain.extend(plain.iter().copied().reduce(f64::min));
        self.expedited.extend(expedited.iter().copied().reduce(f64::min));
    }

    fn tell(&self, report: &mut BenchReport) {
        let lowest = |rates: &[f64]| rates.iter().copied().reduce(f64::min);
        let (Some(plain), Some(expedited)) = (lowest(&self.plain), lowest(&self.expedited)) else { return };
        let (plain, expedited): (Series<'_>, Series<'_>) = (("plain", &[plain]), ("expedited", &[expedited]));
        for series in [plain, expedited] {
            report.add_row("minimum of all cases", series, "MB/s");
        }
        report.add_ratio("minimum of all cases", expedited, plain);
    }
}

/// Plain and expedited kills in turns. A throttled case has an unthrottled expedited kill beside them, in the same load.
fn run_case(
    options: &Options,
    reapers: &Reapers,
    case: &Case,
    (report, minima): (&mut BenchReport, &mut Minima),
) -> Result<(), BenchError> {
    let bytes = if options.quick { 64 * MIB } else { case.bytes };
    let grouped = matches!(case.throttle, Throttle::Quota | Throttle::Shares);
    if grouped && Quota::make(case.throttle)?.is_none() {
        report.note(format!("{}: no cpu controller that can be written here: see it in the lab", case.name));
        return Ok(());
    }
    let _hogs = Hogs::start(options, case.load)?;
    let own = [(case.throttle, bytes)];
    let free = [(Throttle::None, bytes)];
    let (mut plain, mut expedited, mut unthrottled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.sized(case.rounds.0, case.rounds.1) {
        let one = |victims, by: Kill, rates: &mut Vec<f64>| -> Result<(), BenchError> {
            // Anew for each: what the last victim used beyond its quota is not the next one's debt.
            let quota = if grouped { Quota::make(case.throttle)? } else { None };
            rates.push(kill_all(options, reapers, victims, by, quota.as_ref())?);
            Ok(())
        };
        if round % 2 == 0 {
            one(&own, Kill::Plain, &mut plain)?;
            one(&own, Kill::Pool, &mut expedited)?;
        } else {
            one(&own, Kill::Pool, &mut expedited)?;
            one(&own, Kill::Plain, &mut plain)?;
        }
        if case.throttle != Throttle::None {
            one(&free, Kill::Pool, &mut unthrottled)?;
        }
    }
    minima.take(&plain, &expedited);
    let plain: Series<'_> = ("plain", &plain);
    let expedited: Series<'_> = ("expedited", &expedited);
    for series in [plain, expedited] {
        report.add_row(case.name, series, "MB/s");
    }
    report.add_ratio(case.name, expedited, plain);
    if case.throttle != Throttle::None {
        let unthrottled: Series<'_> = ("expedited, unthrottled", &unthrottled);
        report.add_row(case.name, unthrottled, "MB/s");
        report.add_ratio(case.name, expedited, unthrottled);
    }
    Ok(())
}

/// Those that run free themselves beside the one thread: both CPUs of a small machine are at work either way. Those at
/// `SCHED_IDLE` beside busy programs do not, and what the pool adds is seen. Plain, these take minutes.
fn eight_at_once(
    options: &Options,
    reapers: &Reapers,
    throttle: Throttle,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let bytes = if options.quick { 16 * MIB } else { 128 * MIB };
    let victims = [(throttle, bytes); EIGHT];
    let idle = throttle == Throttle::Idle;
    let _hogs = Hogs::start(options, if idle { Load::All } else { Load::None })?;
    let (name, rounds) = if idle { ("eight, SCHED_IDLE", 9) } else { ("eight", 15) };
    let (mut plain, mut one, mut pool) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.sized(rounds, 1) {
        if !idle {
            plain.push(kill_all(options, reapers, &victims, Kill::Plain, None)?);
        }
        one.push(kill_all(options, reapers, &victims, Kill::One, None)?);
        pool.push(kill_all(options, reapers, &victims, Kill::Pool, None)?);
    }
    let [plain, one, pool]: [Series<'_>; 3] = [("plain", &plain), ("one thread", &one), ("pool", &pool)];
    for series in [plain, one, pool].into_iter().filter(|(_, figures)| !figures.is_empty()) {
        report.add_row(name, series, "MB/s");
    }
    report.add_ratio(name, pool, one);
    if !idle {
        report.add_ratio(name, pool, plain);
    }
    Ok(())
}

/// How long others wait for a CPU while a large victim is freed.
fn beside_sleepers(
    options: &Options,
    reapers: &Reapers,
    case: &str,
    bytes: u64,
    report: &mut BenchReport,
) -> Result<(), BenchError> {
    let bytes = if options.quick { 64 * MIB } else { bytes };
    let (mut rates, mut waits) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..options.sized(20, 2) {
        for (kill, (rates, waits)) in
            [Kill::Plain, Kill::Pool].into_iter().zip(rates.iter_mut().zip(&mut waits))
        {
            let killed = kill_beside(options, reapers, bytes, kill)?;
            rates.push(killed.megabytes_a_second);
            waits.push(killed.wait_millis);
        }
    }
    for (figures, unit) in [(&waits, "ms"), (&rates, "MB/s")] {
        let [plain, expedited] = figures;
        let (plain, expedited): (Series<'_>, Series<'_>) = (("plain", plain), ("expedited", expedited));
        report.add_row(case, plain, unit);
        report.add_row(case, expedited, unit);
        if unit == "MB/s" {
            report.add_ratio(case, expedited, plain);
        }
    }
    Ok(())
}

/// What lies in the lists of single CPUs after all that: freed, and not in MemFree.
fn note_lists(report: &mut BenchReport) {
    let waiting = plimsoll_sys::process::ProcRoot::open(std::path::Path::new("/proc"))
        .and_then(|mut root| root.read_zoneinfo())
        .map(|zoneinfo| zoneinfo.waiting());
    match waiting {
        Ok(Some(pages)) => report.note(format!("{pages} pages wait in the lists of single CPUs afterwards")),
        Ok(None) => report.note("the lists of single CPUs are not shown here"),
        Err(error) => report.note(format!("the lists of single CPUs: {error}")),
    }
}
