//! How much the machine waits for memory, and what the cache of ZFS would give up: read off the guard thread, because any user
//! who reads the same holds the kernel's locks of it meanwhile (`avgs_lock`, kernel/sched/psi.c).

use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::{
    machine::StallReading,
    reading::Reading,
    units::{Bytes, Nanos, PageSize},
};
use plimsoll_sys::process::{ProcRoot, ProcessError, arc_available, clock_monotonic_ns, refaults};
use std::sync::{Arc, Mutex, PoisonError};

/// As last read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PressureReading {
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) at: Nanos,
    pub(crate) stall: Reading<StallReading>,
    pub(crate) arc: Reading<Bytes>,
}

impl PressureReading {
    /// Nothing was read.
    pub(crate) const NONE: Self = Self { at: Nanos(0), stall: Reading::Absent, arc: Reading::Absent };
}

/// Has it read, and keeps what was read last.
#[derive(Debug)]
pub(crate) struct PressureReader {
    requests: Lane<()>,
    last: Arc<Mutex<PressureReading>>,
}

impl PressureReader {
    pub(crate) fn new(offload: &Offload, mut proc: ProcRoot, page_size: PageSize) -> Self {
        let last = Arc::new(Mutex::new(PressureReading::NONE));
        let told = Arc::clone(&last);
        let requests = offload.lane(Haste::Ordinary, 1, move |()| {
            let found = read(&mut proc, page_size);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = found;
        });
        let reader = Self { requests, last };
        // What counts as available is to be known before memory is first found short.
        reader.ask();
        reader
    }

    /// One that reads nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: Lane::closed(), last: Arc::new(Mutex::new(PressureReading::NONE)) }
    }

    /// Asks for a reading; never waits. False: one is being made, and another is to be made after it.
    pub(crate) fn ask(&self) -> bool {
        self.requests.hand(())
    }

    /// The last one; `None` while it is being written. Never waits.
    pub(crate) fn last(&self) -> Option<PressureReading> {
        self.last.try_lock().ok().map(|last| *last)
    }
}

fn read(proc: &mut ProcRoot, page_size: PageSize) -> PressureReading {
    let at = Nanos(clock_monotonic_ns());
    PressureReading { at, stall: stall(proc, at, page_size), arc: of(arc_available()) }
}

fn stall(proc: &mut ProcRoot, at: Nanos, page_size: PageSize) -> Reading<StallReading> {
    match (proc.read_memory_pressure(), refaults()) {
        (Ok(Some(pressure)), Ok(pages)) => Reading::Known(StallReading {
            at,
            stalled: Nanos(pressure.full.total_us.saturating_mul(1000)),
            read_again: page_size.to_bytes(pages),
        }),
        (Ok(None), _) => Reading::Absent,
        (Err(_), _) | (_, Err(_)) => Reading::Unreadable,
    }
}

fn of<T>(read: Result<Option<T>, ProcessError>) -> Reading<T> {
    match read {
        Ok(Some(value)) => Reading::Known(value),
        Ok(None) => Reading::Absent,
        Err(_) => Reading::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_sys::process::page_size;
    use std::{
        path::Path,
        thread,
        time::{Duration, Instant},
    };

    #[test]
    fn what_was_asked_for_is_there_soon_after_and_stalls_never_get_less() {
        let offload = Offload::start().unwrap();
        let reader = PressureReader::new(&offload, ProcRoot::open(Path::new("/proc")).unwrap(), page_size());
        let after = |moment: Nanos| {
            let end = Instant::now() + Duration::from_secs(10);
            loop {
                let last = reader.last().and_then(|last| last.stall.known());
                if let Some(stall) = last.filter(|stall| stall.at > moment) {
                    return stall;
                }
                assert!(Instant::now() < end, "nothing was read");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let first = after(Nanos(0));
        reader.ask();
        let second = after(first.at);
        assert!(second.stalled >= first.stalled && second.read_again >= first.read_again);
    }
}
