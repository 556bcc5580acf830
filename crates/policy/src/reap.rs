//! What freeing killed processes has shown: what stood in the way of one, and how fast memory came back from all.
//!
//! The lowest rate is what the margin of free memory has to be sized by: memory that is not back yet is memory that
//! somebody else cannot have.

use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

texts! {
    /// Something that slows the end of a killed process down, or keeps memory of it from coming back.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Hindrance {
        /// A thread ran in the class `SCHED_IDLE`: only when nobody else wants the CPU.
        IdleClass = "ran only when the CPU was idle",
        /// A thread had a nice value above 0.
        Nice = "was nice to others",
        /// A thread may run on fewer CPUs than the one that frees.
        Affinity = "was bound to few CPUs",
        /// Its cgroup of the cpu controller lets nobody be real-time, so that the group's quota and shares hold it.
        CpuGroup = "was held by its CPU cgroup",
        /// It did not get the CPU: not gone when an unhindered one would have been. It is given turns before all others.
        Starved = "did not get the CPU in time",
        /// Stopped, or held by a tracer; SIGKILL wakes it.
        Stopped = "was stopped",
        /// Frozen by the freezer of cgroup v1, which SIGKILL does not pass.
        Frozen = "was frozen",
        /// In a sleep that SIGKILL does not end, when it should have been gone.
        Uninterruptible = "sleeps uninterruptibly",
        /// Its core is being written: it ends when that is done.
        CoreDump = "is writing its core",
        /// A process that is not dying uses the same address space, which stays as it is.
        SharedSpace = "shares its address space with a living process",
        /// Its address space, or those of other victims of its owner's, are held for so long that nobody waits for them any
        /// more: it was left to free its memory itself.
        HeldSpace = "its user holds its address space, or those of other victims",
        /// It mapped shared memory (`memfd`, tmpfs, `MAP_SHARED`): comes back only when nobody else has it.
        SharedMemory = "held shared memory",
        /// It had huge pages of hugetlbfs: they go back to their pool, not to everybody.
        Hugetlb = "held huge pages of a pool",
        /// It had locked memory: freed like any other on the kernels that Plimsoll runs on.
        Locked = "held locked memory",
        /// No SIGKILL had reached it.
        NotKilled = "was not killed",
        /// More threads than are looked after: the others were left as they were.
        ManyThreads = "had more threads than are looked after",
        /// A right to lift one of the others was missing.
        Denied = "may not be helped: CAP_SYS_NICE is missing",
        /// It may be neither real-time nor have time reserved: its cpuset leaves out CPUs of its root domain, or settings
        /// of the machine forbid it.
        Unreserved = "may not have CPU time reserved: its cpuset or kernel settings forbid it",
        /// It may not be real-time, and all time that may be reserved is.
        Booked = "may not have CPU time reserved: all that may be is",
    }
    /// It in a few words, to be put in a list.
    fn words
}

impl Hindrance {
    const fn bit(self) -> u32 {
        1 << self as u16
    }
}

/// A set of [`Hindrance`]s.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Hindrances(u32);

impl Hindrances {
    /// None.
    pub const NONE: Self = Self(0);

    /// Puts one in.
    pub const fn insert(&mut self, hindrance: Hindrance) {
        self.0 |= hindrance.bit();
    }

    /// Puts one in where `there`.
    pub const fn insert_if(&mut self, there: bool, hindrance: Hindrance) {
        if there {
            self.insert(hindrance);
        }
    }

    /// Puts all of another set in.
    pub const fn insert_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Whether it is there.
    #[must_use]
    pub const fn contains(self, hindrance: Hindrance) -> bool {
        self.0 & hindrance.bit() != 0
    }

    /// Whether none is there.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are there, in the order of [`Hindrance::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Hindrance> {
        Hindrance::ALL.into_iter().filter(move |one| self.contains(*one))
    }
}

impl fmt::Debug for Hindrances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Rates from smaller victims say more about the clock and the scheduler than about freeing: 64 MiB.
pub const RATED_BYTES_MIN: u64 = 64 << 20;

/// How many of the newest rates the median is taken of.
pub const RECENT_RATES_MAX: usize = 64;

/// Among so many rates one can be an outlier.
pub const OUTLIER_OF: usize = 8;

/// How fast memory came back, in bytes a second, from victims of [`RATED_BYTES_MIN`] and more.
///
/// It is kept across restarts as it serialises; [`Rates::sound`] is for what comes back from a disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// The lowest rate ever seen.
    lowest: Option<u64>,
    /// How many were seen.
    count: u64,
    /// The newest, oldest first once full; the next goes to `count` modulo their number.
    recent: Vec<u64>,
}

impl Rates {
    /// None seen yet, with room for all that are kept: recording allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { lowest: None, count: 0, recent: Vec::with_capacity(RECENT_RATES_MAX) }
    }

    /// What was read from a disk, with what cannot be taken out: rates of 0, more than are kept, a lowest that is none.
    #[must_use]
    pub fn sound(self) -> Self {
        let mut sound = Self::new();
        sound.recent.extend(self.recent.into_iter().filter(|rate| *rate > 0).take(RECENT_RATES_MAX));
        let seen = sound.recent.iter().copied().min();
        let kept = self.lowest.filter(|rate| *rate > 0);
        sound.lowest = kept.into_iter().chain(seen).min();
        let rates = u64::try_from(sound.recent.len()).unwrap_or(u64::MAX);
        sound.count = self.count.max(rates);
        sound
    }

    /// Takes in that `bytes` came back within `took_ns` nanoseconds. Gives the rate in bytes a second; `None`: too
    /// little memory or no time at all, and not taken in.
    pub fn record(&mut self, bytes: u64, took_ns: u64) -> Option<u64> {
        let rate = rate(bytes, took_ns).filter(|_| bytes >= RATED_BYTES_MIN)?;
        self.lowest = Some(self.lowest.map_or(rate, |lowest| lowest.min(rate)));
        if self.recent.len() < RECENT_RATES_MAX {
            self.recent.push(rate);
        } else {
            let length = u64::try_from(self.recent.len()).unwrap_or(1);
            let next = self.count.checked_rem(length).and_then(|next| usize::try_from(next).ok());
            if let Some(slot) = next.and_then(|next| self.recent.get_mut(next)) {
                *slot = rate;
            }
        }
        self.count = self.count.saturating_add(1);
        Some(rate)
    }

    /// The lowest rate ever seen, in bytes a second; `None`: none was seen.
    #[must_use]
    pub const fn lowest(&self) -> Option<u64> {
        self.lowest
    }

    /// The lowest of the newest [`RECENT_RATES_MAX`], in bytes a second; `None`: none was seen.
    ///
    /// One that is lower than a quarter of all others is an outlier and is left out, where there are [`OUTLIER_OF`] and more: a
    /// machine that was suspended, or stopped by its host, says nothing about freeing.
    #[must_use]
    pub fn lowest_lately(&self) -> Option<u64> {
        let lowest = |above: u64| self.recent.iter().copied().filter(|rate| *rate > above).min();
        let first = lowest(0)?;
        let alone = self.recent.iter().filter(|rate| **rate == first).count() == 1;
        match lowest(first) {
            Some(second) if alone && self.recent.len() >= OUTLIER_OF && first < second >> 2 => Some(second),
            Some(_) | None => Some(first),
        }
    }

    /// How many rates were seen.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The median of the newest [`RECENT_RATES_MAX`], in bytes a second (the lower one of two); `None`: none was seen.
    #[must_use]
    pub fn p50(&self) -> Option<u64> {
        let mut sorted = [0; RECENT_RATES_MAX];
        let rates = sorted.get_mut(..self.recent.len())?;
        rates.copy_from_slice(&self.recent);
        rates.sort_unstable();
        rates.get(rates.len().checked_sub(1)? >> 1).copied()
    }
}

/// Bytes a second, at least 1; `None` where no time passed or nothing came back.
#[must_use]
pub fn rate(bytes: u64, took_ns: u64) -> Option<u64> {
    let scaled = u128::from(bytes).checked_mul(1_000_000_000)?;
    let rate = scaled.checked_div(u128::from(took_ns)).filter(|_| bytes > 0)?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests;
