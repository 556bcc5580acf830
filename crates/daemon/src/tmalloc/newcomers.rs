//! How many processes of an account are only starting. Nobody grants what a program takes before it first asks, nor what it
//! takes while it is told no and ends: grants leave room for that.
//!
//! Processes that do not ask are counted, and those that have been there for some seconds are taken to be programs that
//! never will. What a newcomer takes is measured: 150 to 350 KiB of a program's data, of its libraries and of its stack, and a
//! first piece that a preloaded library hands out unasked (192 KiB). Where a crowd has come lately, more are expected.

use plimsoll_policy::units::{Bytes, Nanos, Pages};

/// What grants leave free for each.
pub(super) const START_BYTES: Bytes = Bytes(512 << 10);
/// For those that are expected no more than this part of the line is left free.
pub(super) const EXPECTED_SHARE: u64 = 16;
/// So many may come without any to follow them.
const NO_CROWD: u32 = 8;
/// Who has been there for longer is no newcomer.
const SPAN: Nanos = Nanos(2_000_000_000);
/// How long a count is good for.
const FRESH: Nanos = Nanos(1_000_000);

/// What is known of one span of time.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    /// The fewest processes that did not ask.
    least: u32,
    /// Processes that asked for the first time.
    came: u32,
}

/// The newcomers of one account.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// This span and the one before.
    spans: [Span; 2],
    span_ends: Nanos,
    counted: Option<Nanos>,
    silent: u32,
    /// The account's line, as it was when they were counted.
    pub(super) hard: Pages,
}

impl Newcomers {
    /// Whether they have to be counted again.
    pub(super) fn are_stale(&self, now: Nanos) -> bool {
        self.counted.is_none_or(|counted| now >= counted.saturating_add(FRESH))
    }

    /// So many processes do not ask now.
    pub(super) fn look(&mut self, silent: u32, now: Nanos) {
        self.turn(silent, now);
        let [span, _] = &mut self.spans;
        span.least = span.least.min(silent);
        (self.silent, self.counted) = (silent, Some(now));
    }

    /// A process asks that did not before.
    pub(super) fn come(&mut self, now: Nanos) {
        self.turn(self.silent, now);
        let [span, _] = &mut self.spans;
        span.came = span.came.saturating_add(1);
    }

    /// Begins another span where this one is over.
    fn turn(&mut self, silent: u32, now: Nanos) {
        if now < self.span_ends {
            return;
        }
        let [last, _] = self.spans;
        // After a long rest it is the last count that holds, and nobody is expected.
        let rested = now >= self.span_ends.saturating_add(SPAN);
        let before = if rested { Span { least: self.silent.min(silent), came: 0 } } else { last };
        self.spans = [Span { least: silent, came: 0 }, before];
        self.span_ends = now.saturating_add(SPAN);
    }

    /// How many there are, as counted last.
    pub(super) fn count(&self) -> u32 {
        let [span, before] = self.spans;
        self.silent.saturating_sub(span.least.min(before.least))
    }

    /// How many more are expected: as many as came in the last seconds, where that is a crowd.
    pub(super) fn expected(&self) -> u32 {
        let came = self.spans.iter().fold(0_u32, |all, span| all.saturating_add(span.came));
        came.saturating_sub(NO_CROWD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_ask_for_some_seconds_is_no_newcomer() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let mut newcomers = Newcomers::default();
        let mut at = |silent, when| {
            newcomers.look(silent, ms(when));
            newcomers.count()
        };
        assert_eq!([at(3, 5_000), at(10, 5_100), at(4, 5_200)], [3, 10, 4]);
        assert_eq!([at(4, 7_100), at(4, 9_200), at(9, 9_300)], [1, 0, 5]);
        // Nobody looked for an hour: who came meanwhile is taken for one.
        assert_eq!([at(12, 3_600_000), at(12, 3_601_900), at(12, 3_602_100)], [3, 3, 0]);
        assert_eq!(at(2, 3_602_200), 0);
    }

    #[test]
    fn as_many_are_expected_as_came_lately() {
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let mut newcomers = Newcomers::default();
        (0..NO_CROWD + 5).for_each(|_| newcomers.come(seconds(100)));
        newcomers.look(0, seconds(101));
        assert_eq!(newcomers.expected(), 5);
        newcomers.come(seconds(103));
        assert_eq!((newcomers.expected(), newcomers.count()), (6, 0));
        newcomers.look(0, seconds(105));
        assert_eq!(newcomers.expected(), 0);
    }
}
