//! Keeps the minutes before an incident, and adds them to it.
//!
//! The guard thread puts in what it has read anyway, and never waits: where the book is in use it leaves a sample out. What can
//! block is done off it: `/proc/pressure/memory` is read, and the history is told how memory came back. An incident's minutes
//! before are looked up on the history's thread, so that the kill path has nothing to do with any of this.

use crate::{
    history::{Outcome, Writer},
    offload::{Haste, Lane, Offload},
};
use jiff::Timestamp;
use plimsoll_policy::{
    incident::{Course, Incident},
    machine::MachineReading,
    recorder::{AccountNow, GRAIN, MachineNow, Outlook, Pace, Recorder, Stall, Trail, Trails},
    units::{Bytes, Nanos},
};
use plimsoll_sys::process::{ProcRoot, clock_monotonic_ns};
use plimsoll_wire::text::Pressure;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Requests waiting: every incident that can be waited for, and a reading.
const QUEUE_MAX: usize = plimsoll_policy::recorder::TRAILS_MAX + 1;

/// The recorder, shared.
#[derive(Debug, Clone)]
pub(crate) struct SharedRecorder(Arc<Mutex<Recorder>>);

impl SharedRecorder {
    pub(crate) fn new(mem_total: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Recorder::new(mem_total))))
    }

    /// Adds the minutes before to an incident that has none, by its time on the clock of the wall.
    pub(crate) fn complete(&self, incident: &mut Incident) {
        // One that has a trace was recorded just now.
        let known = incident.course.as_ref().is_some_and(|course| course.trace.is_none());
        if known || incident.unrecorded.is_some() {
            return;
        }
        // Of now and of then on the same clock, so that it may have been set any time before.
        let ago = Timestamp::now().duration_since(incident.time).as_nanos();
        let ago = u64::try_from(ago.max(0)).unwrap_or(u64::MAX);
        let decided = Nanos(clock_monotonic_ns().saturating_sub(ago));
        let mut course = self.read(|recorder| recorder.course(incident.account.as_ref(), decided, Nanos(0)));
        course.trace = incident.course.take().and_then(|course| course.trace);
        incident.course = Some(course).filter(|course| !course.is_empty());
    }

    /// The accounts that are near their line.
    pub(crate) fn near(&self) -> Vec<Outlook> {
        self.read(|recorder| recorder.near(Nanos(clock_monotonic_ns())).collect())
    }

    fn read<T>(&self, look: impl FnOnce(&mut Recorder) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same where nobody else is at it.
    fn try_write(&self, write: impl FnOnce(&mut Recorder)) -> bool {
        match self.0.try_lock() {
            Ok(mut recorder) => write(&mut recorder),
            Err(TryLockError::Poisoned(poisoned)) => write(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }
}

/// What is asked for.
#[derive(Debug)]
enum Ask {
    /// A sample of the machine, stalls included.
    Machine,
    /// The rest of an incident's course.
    Conclude(Trail),
}

/// The guard thread's end.
#[derive(Debug)]
pub(crate) struct Sampler {
    book: SharedRecorder,
    /// `None`: nothing is sampled.
    asks: Option<Lane<Ask>>,
    pace: Pace,
}

impl Sampler {
    pub(crate) fn new(offload: &Offload, book: SharedRecorder, mut proc: ProcRoot, writer: Writer) -> Self {
        let shared = book.clone();
        let asks =
            offload.lane(Haste::Ordinary, QUEUE_MAX, move |ask| attend(ask, &shared, &mut proc, &writer));
        Self { book, asks: Some(asks), pace: Pace::default() }
    }

    /// One that samples nothing, ever.
    #[cfg(test)]
    pub(crate) fn absent() -> Self {
        Self { book: SharedRecorder::new(Bytes(1 << 30)), asks: None, pace: Pace::default() }
    }

    /// Whether another sample is wanted.
    pub(crate) fn is_time(&self, now: Nanos) -> bool {
        self.asks.is_some() && self.pace.is_time(now)
    }

    /// Whether all accounts may be looked at though nothing is near.
    pub(crate) fn has_rested(&self, now: Nanos) -> bool {
        self.pace.has_rested(now)
    }

    /// All accounts were looked at.
    pub(crate) const fn looked(&mut self, now: Nanos, took: Nanos) {
        self.pace.looked(now, took);
    }

    /// When to wake up for one, though nothing else happens.
    pub(crate) fn due(&self, trails: &Trails) -> Option<Nanos> {
        self.asks.as_ref().and_then(|_| self.pace.due(trails))
    }

    /// Takes in how accounts stand, and the machine as it was read last.
    pub(crate) fn take(
        &mut self,
        now: Nanos,
        accounts: impl Iterator<Item = AccountNow>,
        machine: Option<&MachineReading>,
    ) {
        self.pace.taken(now);
        let written = self.book.try_write(|recorder| {
            accounts.for_each(|account| recorder.account(now, account));
            if let Some(reading) = machine {
                recorder.machine(now, &of_reading(reading));
            }
        });
        if !written {
            // Somebody looks up a course: a second without a sample, drawn as a straight line.
        }
    }

    /// Has the machine looked at, with the time for which programs waited for memory; never waits.
    pub(crate) fn look_at_machine(&self) {
        self.ask(Ask::Machine);
    }

    /// Has the course of an incident told to its end; never waits.
    pub(crate) fn conclude(&self, trail: Trail) {
        self.ask(Ask::Conclude(trail));
    }

    fn ask(&self, ask: Ask) {
        // Behind: an incident then keeps what it was written with.
        let _was_taken = self.asks.as_ref().is_some_and(|asks| asks.hand(ask));
    }
}

fn of_reading(reading: &MachineReading) -> MachineNow {
    MachineNow {
        mem_available: reading.mem_available.known(),
        anon: reading.anon.known(),
        swap_total: reading.swap_total.known(),
        swap_free: reading.swap_free.known(),
        stall: None,
    }
}

fn attend(ask: Ask, book: &SharedRecorder, proc: &mut ProcRoot, writer: &Writer) {
    match ask {
        Ask::Machine => {
            let now = look(proc);
            book.read(|recorder| recorder.machine(Nanos(clock_monotonic_ns()), &now));
            // It is asked for while something is near, which may be news.
            writer.tell_news();
        }
        Ask::Conclude(trail) => {
            // A little of what is known already: a sample may have come between the decision and the look-up.
            let from = Nanos(trail.decided.0.saturating_sub(GRAIN.0));
            let course = book.read(|recorder| recorder.course(trail.account.as_ref(), trail.decided, from));
            writer.outcome(later(trail.id, course));
        }
    }
}

fn later(id: u64, course: Course) -> Outcome {
    Outcome { id, course: Some(course).filter(|course| !course.is_empty()), ..Outcome::default() }
}

/// What cannot be read is not known, and told by who else reads it.
fn look(proc: &mut ProcRoot) -> MachineNow {
    let meminfo = proc.read_meminfo().unwrap_or_default();
    MachineNow {
        mem_available: meminfo.mem_available,
        anon: meminfo.anonymous,
        swap_total: meminfo.swap_total,
        swap_free: meminfo.swap_free,
        stall: proc.read_memory_pressure().ok().flatten().map(|pressure| stall(&pressure)),
    }
}

fn stall(pressure: &Pressure) -> Stall {
    let permille = |permyriad: u32| u16::try_from(permyriad / 10).unwrap_or(1000).min(1000);
    Stall {
        some_total_us: pressure.some.total_us,
        full_total_us: Some(pressure.full.total_us),
        some_avg10_permille: permille(pressure.some.avg10_permyriad),
        full_avg10_permille: Some(permille(pressure.full.avg10_permyriad)),
    }
}

#[cfg(test)]
mod tests;
