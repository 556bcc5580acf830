//! When to look: once a second while something is going on, as part of a wake-up that has another cause otherwise.

use crate::{account::Account, units::Nanos};
use alloc::collections::VecDeque;

/// Two samples are at least this far apart. A little less than a second: timers of a second each then give a sample each.
pub const GRAIN: Nanos = Nanos(900_000_000);

/// How long after a decision the course goes on: 10 s.
pub const AFTER: Nanos = Nanos(10_000_000_000);

/// Incidents whose end is waited for. Of more, the oldest keep what was known when they were written.
pub const TRAILS_MAX: usize = 64;

/// From one sample to the next while the end of an incident is waited for.
const TICK: Nanos = Nanos(1_000_000_000);

/// While nothing is going on, at most this part of the time goes into looks at all accounts: a two-thousandth.
const REST_SHARE: u64 = 2000;

/// When the last samples were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    last: Option<Nanos>,
    rested: Nanos,
}

impl Pace {
    /// Whether the last samples are old enough for others.
    #[must_use]
    pub fn is_time(&self, now: Nanos) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= GRAIN)
    }

    /// Samples were taken.
    pub const fn taken(&mut self, now: Nanos) {
        self.last = Some(now);
    }

    /// Whether all accounts may be looked at though nothing is going on: with thousands of them that takes a while.
    #[must_use]
    pub fn has_rested(&self, now: Nanos) -> bool {
        now >= self.rested
    }

    /// All accounts were looked at.
    pub const fn looked(&mut self, now: Nanos, took: Nanos) {
        self.rested = now.saturating_add(Nanos(took.0.saturating_mul(REST_SHARE)));
    }

    /// When to wake up for samples: only while an incident's end is waited for. All else comes with wake-ups that
    /// something else needs.
    #[must_use]
    pub fn due(&self, trails: &Trails) -> Option<Nanos> {
        let next = self.last.map_or(Nanos(0), |last| last.saturating_add(TICK));
        (!trails.is_empty()).then_some(next)
    }
}

/// An incident whose course goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    /// The incident.
    pub id: u64,
    /// Whose line.
    pub account: Option<Account>,
    /// When it was decided, on `CLOCK_MONOTONIC`.
    pub decided: Nanos,
}

/// The incidents whose course goes on, oldest first; those that came without a time until [`Trails::date`].
#[derive(Debug)]
pub struct Trails {
    trails: VecDeque<(Trail, Dated)>,
}

/// Whether the time of a decision is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dated {
    Yes,
    No,
}

impl Default for Trails {
    /// None; the room is taken at once.
    fn default() -> Self {
        Self { trails: VecDeque::with_capacity(TRAILS_MAX) }
    }
}

impl Trails {
    /// Whether none is waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trails.is_empty()
    }

    /// One more, decided at a time or just now. Allocates nothing.
    pub fn begin(&mut self, id: u64, account: Option<Account>, decided: Option<Nanos>) {
        if self.trails.len() >= TRAILS_MAX {
            self.trails.pop_front();
        }
        let dated = if decided.is_some() { Dated::Yes } else { Dated::No };
        self.trails.push_back((Trail { id, account, decided: decided.unwrap_or_default() }, dated));
    }

    /// Those that were decided just now were so at this time.
    pub fn date(&mut self, now: Nanos) {
        for (trail, dated) in self.trails.iter_mut().filter(|(_, dated)| *dated == Dated::No) {
            (trail.decided, *dated) = (now, Dated::Yes);
        }
    }

    /// Takes out the oldest that has gone on for long enough.
    pub fn next_over(&mut self, now: Nanos) -> Option<Trail> {
        let (oldest, dated) = self.trails.front()?;
        let over = *dated == Dated::Yes && oldest.decided.saturating_add(AFTER) <= now;
        if over { self.trails.pop_front().map(|(trail, _)| trail) } else { None }
    }

    /// Whether one of them is of an account.
    #[must_use]
    pub fn follows_any(&self) -> bool {
        self.trails.iter().any(|(trail, _)| trail.account.is_some())
    }

    /// Whether one of them is of this account.
    #[must_use]
    pub fn follows(&self, account: &Account) -> bool {
        self.trails.iter().any(|(trail, _)| trail.account.as_ref() == Some(account))
    }
}
