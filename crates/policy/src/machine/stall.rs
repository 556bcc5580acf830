//! Whether the machine does little but wait for memory: it takes pages back that are needed at once.
//!
//! How that is told follows lmkd (Android's low memory killer): the time for which no program could go on
//! (`/proc/pressure/memory`, full), and what was read again compared with the pages of files that are left. The time is
//! summed from the kernel's total, not from its averages, which are ten seconds late.

use super::share::{Permille, part};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// When the machine is taken to be thrashing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallConfig {
    /// For this part of the time no program could go on, for want of memory.
    pub full: Permille,
    /// Of so long.
    pub within: Nanos,
}

/// With so much of it, what is read again counts too: lmkd's 'critical' is 70 % of a second, its 'some' 7 %.
const READ_AGAIN_FULL: Permille = Permille(150);

/// So many are kept of the time that is looked at.
const MARKS_MAX: usize = 8;

/// What the kernel counts from its start on, and when that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct StallReading {
    /// When it was read, on the clock of the decisions.
    pub at: Nanos,
    /// The time for which no program could go on for want of memory (`/proc/pressure/memory`, full).
    pub stalled: Nanos,
    /// Pages that were read again so soon after they were evicted that they were needed (`workingset_refault_anon` and
    /// `workingset_refault_file` of `/proc/vmstat`).
    pub read_again: Bytes,
}

/// What is remembered of the time that is looked at: from [`Stall::clear`] on, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Stall {
    marks: [StallReading; MARKS_MAX],
    count: usize,
}

impl Stall {
    pub(super) const fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether programs waited since the first of what is remembered.
    pub(super) fn is_stalled(&self) -> bool {
        let known = self.marks.get(..self.count).unwrap_or_default();
        known.first().zip(known.last()).is_some_and(|(first, last)| last.stalled > first.stalled)
    }

    /// Takes in a reading; whether the machine thrashes. `file`: the pages of files that could be evicted now.
    pub(super) fn take(&mut self, reading: &StallReading, file: Bytes, config: &StallConfig) -> bool {
        self.forget(config, reading.at);
        let known = self.marks.get(..self.count).unwrap_or_default();
        let Some((first, last)) = known.first().copied().zip(known.last().copied()) else {
            self.push(*reading);
            return false;
        };
        // A counter that went back is another: begin anew.
        if reading.at < last.at || reading.stalled < last.stalled || reading.read_again < last.read_again {
            self.clear();
            self.push(*reading);
            return false;
        }
        let span = reading.at.saturating_sub(first.at);
        let stalled = reading.stalled.saturating_sub(first.stalled);
        let read_again = reading.read_again.saturating_sub(first.read_again);
        if reading.at.saturating_sub(last.at).0 >= config.within.0 / 6 {
            self.push(*reading);
        }
        let for_part = |share| stalled.0 >= part(Bytes(span.0), share).0;
        span >= config.within
            && (for_part(config.full) || for_part(config.full.min(READ_AGAIN_FULL)) && read_again >= file)
    }

    /// The oldest goes once the time is covered without it.
    fn forget(&mut self, config: &StallConfig, now: Nanos) {
        let covers = |mark: &StallReading| now.saturating_sub(mark.at) >= config.within;
        let covering = self.marks.iter().take(self.count).take_while(|mark| covers(mark)).count();
        let gone = covering.saturating_sub(1);
        self.marks.rotate_left(gone);
        self.count = self.count.saturating_sub(gone);
    }

    fn push(&mut self, mark: StallReading) {
        if self.count == MARKS_MAX {
            self.marks.rotate_left(1);
            self.count = MARKS_MAX.saturating_sub(1);
        }
        if let Some(place) = self.marks.get_mut(self.count) {
            *place = mark;
            self.count = self.count.saturating_add(1);
        }
    }
}
