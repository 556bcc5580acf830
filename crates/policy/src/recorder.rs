//! The minutes before, at a second's grain: usage of accounts and the state of the machine in a ring of bounded size.
//!
//! What stays the same is not kept every second: a sample within a sixty-fourth (of the line; of all memory) of the last one
//! kept waits, and is kept only when the next one differs, or ten seconds have passed. So a straight line between two samples
//! that were kept is never off by more than a thirty-second, and steps stay steps.

use crate::{
    account::Account,
    incident::{Course, MachineSample, UsageSample},
    units::{Bytes, Nanos},
};
use alloc::{collections::VecDeque, vec::Vec};

mod pace;
mod series;
pub use pace::{AFTER, GRAIN, Pace, TRAILS_MAX, Trail, Trails};
use series::{Entry, Slot, push};

/// How far back an incident's course goes: 5 minutes.
pub const BEFORE: Nanos = Nanos(300_000_000_000);

/// The time that tells how fast an account grows.
pub const OUTLOOK_BY: Nanos = Nanos(10_000_000_000);

/// An account that was near so long ago may be so no more.
const NEAR_WITHIN: Nanos = Nanos(3_000_000_000);

/// Accounts followed at once. Of more, those that changed longest ago are followed from their next sample on anew.
pub const ACCOUNTS_MAX: usize = 64;

/// Samples kept of all accounts together: 5 minutes of 12 that change every second, a minute of 64.
const USAGE_MAX: usize = 4096;

/// Samples kept of the machine: 5 minutes at the shortest distance of two, and some more.
const MACHINE_MAX: usize = 400;

/// Under this part of its line an account is not worth a sample: an eighth, as a shift.
const WORTH_SHIFT: u32 = 3;

/// Part of the line, or of all memory, within which two samples are alike: a sixty-fourth, as a shift.
const ALIKE_SHIFT: u32 = 6;

/// Shares of stalled time are alike within 10 permille.
const ALIKE_PERMILLE: u16 = 10;

/// Totals of stalled time older than this say nothing about the last second.
const STALL_OLDEST: Nanos = Nanos(3_000_000_000);

/// One account, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountNow {
    /// Which.
    pub account: Account,
    /// Charged now.
    pub usage: Bytes,
    /// The line in force.
    pub line: Option<Bytes>,
    /// At its soft limit.
    pub near: bool,
    /// So it is, or else it is to be followed whatever its usage.
    pub followed: bool,
}

/// How an account that is near its line goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// Which.
    pub account: Account,
    /// Charged when it was sampled last.
    pub usage: Bytes,
    /// The line in force then.
    pub line: Bytes,
    /// How long it takes to the line, as usage has grown in [`OUTLOOK_BY`]; `None`: it has not.
    pub left: Option<Nanos>,
}

/// The machine, as it was found. `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineNow {
    /// `MemAvailable`.
    pub mem_available: Option<Bytes>,
    /// `AnonPages`.
    pub anon: Option<Bytes>,
    /// `SwapTotal`.
    pub swap_total: Option<Bytes>,
    /// `SwapFree`.
    pub swap_free: Option<Bytes>,
    /// Stalled time, where it was read.
    pub stall: Option<Stall>,
}

/// Stalled time as `/proc/pressure/memory` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Time in which at least one task waited, since boot, in microseconds.
    pub some_total_us: u64,
    /// Time in which all waited.
    pub full_total_us: Option<u64>,
    /// Share of the last 10 s for the first, in permille.
    pub some_avg10_permille: u16,
    /// For the second.
    pub full_avg10_permille: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct UsageEntry {
    at: Nanos,
    account: Account,
    usage: Bytes,
    line: Option<Bytes>,
    near: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MachineEntry {
    at: Nanos,
    sample: MachineSample,
    alike_bytes: u64,
}

/// The ring. All of its room is taken when it is made.
#[derive(Debug)]
pub struct Recorder {
    usage: VecDeque<UsageEntry>,
    followed: Vec<Slot<UsageEntry>>,
    machine: VecDeque<MachineEntry>,
    last: Option<Slot<MachineEntry>>,
    stall: Option<(Nanos, Stall)>,
    mem_total: Bytes,
    swap_total: Option<Bytes>,
}

impl Entry for UsageEntry {
    fn at(&self) -> Nanos {
        self.at
    }

    fn is_like(&self, kept: &Self) -> bool {
        let measure = kept.line.unwrap_or(kept.usage).0 >> ALIKE_SHIFT;
        self.line == kept.line && self.usage.0.abs_diff(kept.usage.0) <= measure
    }
}

impl Entry for MachineEntry {
    fn at(&self) -> Nanos {
        self.at
    }

    fn is_like(&self, kept: &Self) -> bool {
        let (now, then) = (&self.sample, &kept.sample);
        let bytes = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.abs_diff(then) <= self.alike_bytes,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let share = |now: Option<u16>, then: Option<u16>| match (now, then) {
            (Some(now), Some(then)) => now.abs_diff(then) <= ALIKE_PERMILLE,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        bytes(now.mem_available_bytes, then.mem_available_bytes)
            && bytes(now.anon_bytes, then.anon_bytes)
            && bytes(now.swap_free_bytes, then.swap_free_bytes)
            && share(now.some_permille, then.some_permille)
            && share(now.full_permille, then.full_permille)
    }
}

impl Recorder {
    /// An empty one, for a machine with so much memory.
    #[must_use]
    pub fn new(mem_total: Bytes) -> Self {
        Self {
            usage: VecDeque::with_capacity(USAGE_MAX),
            followed: Vec::with_capacity(ACCOUNTS_MAX),
            machine: VecDeque::with_capacity(MACHINE_MAX),
            last: None,
            stall: None,
            mem_total,
            swap_total: None,
        }
    }

    /// Takes in how an account stands, if it is worth it: near, followed, or with an eighth of its line in use. One that has
    /// fallen below that is taken in once more. Times must not run backwards.
    pub fn account(&mut self, at: Nanos, now: AccountNow) {
        let entry = UsageEntry { at, account: now.account, usage: now.usage, line: now.line, near: now.near };
        let known = self.followed.iter().position(|slot| slot.kept.account == entry.account);
        let was_worth = known
            .and_then(|index| self.followed.get(index))
            .is_some_and(|slot| is_worth(slot.latest().usage, slot.latest().line));
        if !now.followed && !was_worth && !is_worth(entry.usage, entry.line) {
            return;
        }
        match known.and_then(|index| self.followed.get_mut(index)) {
            Some(slot) => slot.take(entry, |kept| push(&mut self.usage, kept, USAGE_MAX)),
            None => self.follow(entry),
        }
    }

    fn follow(&mut self, entry: UsageEntry) {
        push(&mut self.usage, entry.clone(), USAGE_MAX);
        let slot = Slot::new(entry);
        if self.followed.len() < ACCOUNTS_MAX {
            self.followed.push(slot);
        } else if let Some(oldest) = self.followed.iter_mut().min_by_key(|slot| slot.latest().at) {
            *oldest = slot;
        }
    }

    /// Takes in how the machine stands. Times must not run backwards.
    pub fn machine(&mut self, at: Nanos, now: &MachineNow) {
        let (some, full) = self.shares(at, now.stall);
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        self.swap_total = now.swap_total.or(self.swap_total);
        let entry = MachineEntry {
            at,
            sample: MachineSample {
                at_ms: 0,
                mem_available_bytes: bytes(now.mem_available),
                anon_bytes: bytes(now.anon),
                swap_free_bytes: bytes(now.swap_free),
                some_permille: some,
                full_permille: full,
            },
            alike_bytes: self.mem_total.0 >> ALIKE_SHIFT,
        };
        match &mut self.last {
            Some(slot) => slot.take(entry, |kept| push(&mut self.machine, kept, MACHINE_MAX)),
            None => {
                push(&mut self.machine, entry, MACHINE_MAX);
                self.last = Some(Slot::new(entry));
            }
        }
    }

    /// Shares of stalled time since the totals before; the kernel's own of the last 10 s, where there are none just before.
    fn shares(&mut self, at: Nanos, stall: Option<Stall>) -> (Option<u16>, Option<u16>) {
        let Some(now) = stall else { return (None, None) };
        let before = self.stall.replace((at, now)).filter(|(then, _)| {
            let span = at.saturating_sub(*then);
            span > Nanos(0) && span <= STALL_OLDEST
        });
        let Some((then, before)) = before else {
            return (Some(now.some_avg10_permille), now.full_avg10_permille);
        };
        let span_us = at.saturating_sub(then).0.checked_div(1000).unwrap_or(0);
        let share = |now: u64, then: u64| {
            let permille = now.saturating_sub(then).saturating_mul(1000).checked_div(span_us)?;
            // The two clocks are read one after the other: a little more than all of the time is all of it.
            u16::try_from(permille.min(1000)).ok()
        };
        let full = now.full_total_us.zip(before.full_total_us).and_then(|(now, then)| share(now, then));
        (share(now.some_total_us, before.some_total_us), full)
    }

    /// The accounts that are near their line.
    pub fn near(&self, now: Nanos) -> impl Iterator<Item = Outlook> {
        let latest = self.followed.iter().map(Slot::latest);
        latest.filter_map(move |entry| {
            let line = entry.line.filter(|_| entry.near && now.saturating_sub(entry.at) <= NEAR_WITHIN)?;
            let left = self.left(entry, line);
            Some(Outlook { account: entry.account.clone(), usage: entry.usage, line, left })
        })
    }

    fn left(&self, latest: &UsageEntry, line: Bytes) -> Option<Nanos> {
        let begin = latest.at.saturating_sub(OUTLOOK_BY);
        let then = self.usage.iter().find(|entry| entry.account == latest.account && entry.at >= begin)?;
        let grown = u128::from(latest.usage.0.checked_sub(then.usage.0)?);
        let room = u128::from(line.0.saturating_sub(latest.usage.0));
        let within = u128::from(latest.at.saturating_sub(then.at).0);
        u64::try_from(room.checked_mul(within)?.checked_div(grown)?).ok().map(Nanos)
    }

    /// The course of memory around a decision: from `from` on, but no earlier than [`BEFORE`] it. Of the account where there
    /// is one, and of the machine.
    #[must_use]
    pub fn course(&self, account: Option<&Account>, decided: Nanos, from: Nanos) -> Course {
        let from = from.max(decided.saturating_sub(BEFORE));
        let at_ms = |at: Nanos| {
            let span = |later: Nanos, earlier: Nanos| {
                let ms = later.saturating_sub(earlier).0.checked_div(1_000_000);
                ms.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(i64::MAX)
            };
            if at >= decided { span(at, decided) } else { span(decided, at).saturating_neg() }
        };
        let waiting = self.followed.iter().filter_map(|slot| slot.pending.as_ref());
        let of_account = self.usage.iter().chain(waiting);
        let of_account = of_account.filter(|entry| Some(&entry.account) == account && entry.at >= from);
        let of_machine = self.machine.iter().chain(self.last.as_ref().and_then(|slot| slot.pending.as_ref()));
        Course {
            account: of_account
                .map(|entry| UsageSample {
                    at_ms: at_ms(entry.at),
                    usage_bytes: entry.usage.0,
                    line_bytes: entry.line.map(|line| line.0),
                })
                .collect(),
            machine: of_machine
                .filter(|entry| entry.at >= from)
                .map(|entry| MachineSample { at_ms: at_ms(entry.at), ..entry.sample })
                .collect(),
            mem_total_bytes: Some(self.mem_total.0),
            swap_total_bytes: self.swap_total.map(|total| total.0),
            trace: None,
        }
    }
}

fn is_worth(usage: Bytes, line: Option<Bytes>) -> bool {
    line.is_some_and(|line| usage.0 > 0 && usage.0 >= line.0 >> WORTH_SHIFT)
}

#[cfg(test)]
mod tests;
