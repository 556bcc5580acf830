//! A victim that is waited for before it is killed.
//!
//! A victim that runs lets go of its address space some ten microseconds after SIGKILL, and from then on nobody can help it.
//! A sleeping thread is not there by then: waking one takes about as long, and longer on a virtual machine (58 us seen).

use crate::process::{PidFd, Reap, clock_monotonic_ns};
use plimsoll_policy::units::{Bytes, Pid};
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a signal is waited for that was announced: it is sent microseconds later, or not at all.
const EXPECT_NS: u64 = 500_000;

/// How old the knowledge of a victim may be that is handed over: by then another process may have the number.
const KNOWN_NS: u64 = 1_000_000_000;

/// What is known of one.
#[derive(Debug)]
pub(super) struct Early {
    pid: Pid,
    /// Its anonymous memory before the signal.
    pub(super) anonymous: Option<Bytes>,
    /// When freeing began.
    since_ns: AtomicU64,
    /// When that was done; 0: not yet.
    freed_ns: AtomicU64,
}

impl Early {
    pub(super) fn new(pid: Pid, anonymous: Option<Bytes>) -> Self {
        let since_ns = AtomicU64::new(clock_monotonic_ns());
        Self { pid, anonymous, since_ns, freed_ns: AtomicU64::new(0) }
    }

    /// Asks until the signal has arrived, and frees the memory in the same call. Spins: what is waited for takes no longer
    /// than going to sleep.
    pub(super) fn reap(&self, pidfd: &PidFd) {
        let began_ns = clock_monotonic_ns();
        loop {
            let now_ns = clock_monotonic_ns();
            self.since_ns.store(now_ns, Ordering::Relaxed);
            match pidfd.reap() {
                Reap::NotDying if now_ns.saturating_sub(began_ns) < EXPECT_NS => std::hint::spin_loop(),
                Reap::Reaped => return self.freed_ns.store(clock_monotonic_ns(), Ordering::Release),
                Reap::NotDying
                | Reap::StillMapped
                | Reap::AlreadyGone
                | Reap::Unsupported
                | Reap::Held
                | Reap::Failed(_) => return,
            }
        }
    }

    /// Whether it is of the victim that has this number now.
    pub(super) fn is_of(&self, pid: Pid) -> bool {
        self.pid == pid && clock_monotonic_ns().saturating_sub(self.since_ns()) < KNOWN_NS
    }

    /// When freeing began, on `CLOCK_MONOTONIC`.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns.load(Ordering::Relaxed)
    }

    /// When its anonymous memory was free, where that was done here.
    pub(super) fn freed_ns(&self) -> Option<u64> {
        Some(self.freed_ns.load(Ordering::Acquire)).filter(|freed_ns| *freed_ns > 0)
    }
}
