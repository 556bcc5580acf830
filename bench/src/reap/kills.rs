//! Kills of `reap`: victims are started, told to hold their memory, killed together, and timed until all are gone.

use super::{
    Throttle,
    load::{Quota, set, slow_cpu},
};
use crate::{
    child::{STEP, Workload},
    error::BenchError,
    options::Options,
    proc,
    sleepers::Sleepers,
};
use plimsoll_policy::{units::Pid, victim::Signal};
use plimsoll_sys::process::{
    PidFd, Priority, Reap, ReapReport, Reaper, ReaperOptions, clock_monotonic_ns, raise_decider,
};
use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const UID: u32 = 60_030;

/// How victims are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// SIGKILL alone.
    Plain,
    /// And handed to a reaper of one thread.
    One,
    /// And handed to a reaper as the daemon has it.
    Pool,
}

/// What `submit` took, in microseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Submits {
    /// From a thread at nice 0.
    pub(super) ordinary: Vec<f64>,
    /// From a thread as urgent as the one that decides.
    pub(super) decider: Vec<f64>,
}

/// Both reapers; idle ones cost nothing.
#[derive(Debug)]
pub(super) struct Reapers {
    one: Reaper,
    pool: Reaper,
    /// Victims that were freed from outside, and all that were handed over.
    reached: Arc<[AtomicU64; 2]>,
    submits: Mutex<Submits>,
}

impl Reapers {
    pub(super) fn start() -> Result<Self, BenchError> {
        let failed = || BenchError::io("start a reaper");
        let one = ReaperOptions { threads: NonZeroUsize::new(1), ..ReaperOptions::default() };
        let reached = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let count = |reached: &Arc<[AtomicU64; 2]>| {
            let reached = Arc::clone(reached);
            move |report: ReapReport| {
                let [freed, all] = &*reached;
                freed.fetch_add(u64::from(report.result == Reap::Reaped), Ordering::Relaxed);
                all.fetch_add(1, Ordering::Relaxed);
            }
        };
        Ok(Self {
            one: Reaper::spawn_with(one, count(&reached)).map_err(failed())?,
            pool: Reaper::spawn(count(&reached)).map_err(failed())?,
            reached,
            submits: Mutex::default(),
        })
    }

    pub(super) const fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// How many victims were freed from outside, of how many.
    pub(super) fn reached(&self) -> (u64, u64) {
        let [freed, all] = &*self.reached;
        (freed.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }

    pub(super) fn submit_micros(&self) -> Submits {
        self.submits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the kills of one round showed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Killed {
    /// Anonymous megabytes (10^6) a second at which all victims came back, from the first signal to the last exit.
    pub(super) megabytes_a_second: f64,
    /// How long others waited for a CPU at most; 0 where nobody looked.
    pub(super) wait_millis: f64,
}

/// Kills all of `victims`, each of so many bytes: [`Killed::megabytes_a_second`].
pub(super) fn kill_all(
    options: &Options,
    reapers: &Reapers,
    victims: &[(Throttle, u64)],
    by: Kill,
    quota: Option<&Quota>,
) -> Result<f64, BenchError> {
    let held = hold_all(options, victims, quota)?;
    Ok(kill_held(reapers, held, by, None)?.megabytes_a_second)
}

/// Kills one of so many bytes while others sleep.
pub(super) fn kill_beside(
    options: &Options,
    reapers: &Reapers,
    bytes: u64,
    by: Kill,
) -> Result<Killed, BenchError> {
    let held = hold_all(options, &[(Throttle::None, bytes)], None)?;
    kill_held(reapers, held, by, Some(Sleepers::start(Duration::from_millis(1))?))
}

fn hold_all(
    options: &Options,
    victims: &[(Throttle, u64)],
    quota: Option<&Quota>,
) -> Result<Vec<Workload>, BenchError> {
    victims.iter().map(|(throttle, bytes)| victim(options, *throttle, *bytes, quota)).collect()
}

fn kill_held(
    reapers: &Reapers,
    held: Vec<Workload>,
    by: Kill,
    sleepers: Option<Sleepers>,
) -> Result<Killed, BenchError> {
    let mut bytes = 0;
    for victim in &held {
        bytes += proc::charged_bytes(victim.pid())?;
    }
    let pidfds: Vec<PidFd> = held
        .iter()
        .map(|victim| PidFd::open(Pid(victim.pid())))
        .collect::<Result<_, _>>()
        .map_err(|error| BenchError::malformed("a victim", &error.to_string()))?;
    let reaper = match by {
        Kill::Plain => None,
        Kill::One => Some(&reapers.one),
        Kill::Pool => Some(&reapers.pool),
    };
    // A thread of its own: as the daemon's it is urgent, and it is that for the kill alone.
    let urgent = reaper.is_some();
    let killer = || kill_in_turn(pidfds, reaper, urgent);
    let (start_ns, micros, was_urgent) = thread::scope(|scope| scope.spawn(killer).join())
        .map_err(|_panic| BenchError::malformed("the thread that kills", "it panicked"))??;
    {
        let mut submits = reapers.submits.lock().unwrap_or_else(PoisonError::into_inner);
        if was_urgent { submits.decider.extend(micros) } else { submits.ordinary.extend(micros) }
    }
    let mut end_ns = start_ns;
    for victim in &held {
        end_ns = end_ns.max(victim.death_ns(STEP * 2)?);
    }
    // What the last one left behind is settled before the next begins.
    thread::sleep(Duration::from_millis(20));
    Ok(Killed {
        megabytes_a_second: bytes as f64 * 1_000.0 / (end_ns - start_ns).max(1) as f64,
        wait_millis: sleepers.map_or(Ok(0.0), Sleepers::longest_millis)?,
    })
}

/// Signals and hands over; the time of the first signal, how long each handing over took, and whether this was urgent.
fn kill_in_turn(
    pidfds: Vec<PidFd>,
    reaper: Option<&Reaper>,
    urgent: bool,
) -> Result<(u64, Vec<f64>, bool), BenchError> {
    let urgent = urgent && raise_decider() == Priority::RealTime;
    let start_ns = clock_monotonic_ns();
    let mut micros = Vec::with_capacity(pidfds.len());
    for (pidfd, tag) in pidfds.into_iter().zip(0..) {
        if let Some(reaper) = reaper {
            reaper.expect(&pidfd);
        }
        pidfd
            .send_signal(Signal::Kill)
            .map_err(|error| BenchError::malformed("a signal to a victim", &error.to_string()))?;
        if let Some(reaper) = reaper {
            let before_ns = clock_monotonic_ns();
            // One that comes back frees itself, which the figure then shows.
            drop(reaper.submit(pidfd, tag));
            micros.push((clock_monotonic_ns() - before_ns) as f64 / 1_000.0);
        }
    }
    Ok((start_ns, micros, urgent))
}

fn victim(
    options: &Options,
    throttle: Throttle,
    bytes: u64,
    quota: Option<&Quota>,
) -> Result<Workload, BenchError> {
    let victim = Workload::start(&options.workload, &[&"hold", &UID, &bytes])?;
    let pid = victim.pid().to_string();
    match throttle {
        Throttle::None => {}
        Throttle::Idle => set("chrt", &["--idle", "--pid", "0", &pid])?,
        Throttle::Nice => set("renice", &["-n", "19", "-p", &pid])?,
        Throttle::SlowCpu => set("taskset", &["-a", "-p", "-c", &slow_cpu().to_string(), &pid])?,
        Throttle::Quota | Throttle::Shares => {
            if let Some(quota) = quota {
                quota.hold(victim.pid())?;
            }
        }
    }
    Ok(victim)
}
