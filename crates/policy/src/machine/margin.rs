//! The margin: how much memory has to be left when somebody is selected, so that it is back before there is none.
//!
//! As in seed 004 of this project ("a margin of free memory has to be maintained", Suren Baghdasaryan's expedited reclaim,
//! 2019), it is sized by the lowest rate at which memory comes back.

use crate::units::{Bytes, Nanos, part};
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000_000_000;

/// Taken for the lowest rate until one was measured: 856 MB/s, the lowest of the plain kills in Suren Baghdasaryan's
/// expedited reclaim (a little core of a Snapdragon 845).
const REAP_UNMEASURED: u64 = 856_000_000;

/// So many of the newest of each are remembered.
const MEASURED_MAX: usize = 16;

/// A fill rate is forgotten over so long.
const FORGOTTEN_OVER: Nanos = Nanos(2_000_000_000);

/// Two readings closer together say more about the clock.
const APART: Nanos = Nanos(2_000_000);

/// How fast memory and swap were used up lately. A rate is believed once two readings in a row have shown it: what goes at one
/// stroke (a reservation, a pool of huge pages) does not go on. Then less and less of it is, as time goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Fill {
    last: Option<(Nanos, Bytes)>,
    /// What programs held then.
    #[serde(default)]
    held: Option<Bytes>,
    /// Between the last two readings.
    latest: u64,
    believed: u64,
}

impl Fill {
    /// Takes in what is left now, and what programs hold in memory and swap. What is left moves in steps of what a CPU takes
    /// into its own lists at a time (`rmqueue_bulk`, mm/page_alloc.c: 8 MiB since Linux 6.7), and for several looks not at all;
    /// what is held does not. Whichever shows more counts.
    pub(super) fn take(&mut self, left: Bytes, held: Bytes, now: Nanos) {
        let Some((then, before)) = self.last else {
            (self.last, self.held) = (Some((now, left)), Some(held));
            return;
        };
        let apart = now.saturating_sub(then);
        if apart < APART {
            return;
        }
        self.last = Some((now, left));
        let held_before = self.held.replace(held).unwrap_or(held);
        let more_held = held.saturating_sub(held_before);
        let used = before.saturating_sub(left).max(more_held).0;
        let rate = part(used, SECOND, apart.0).unwrap_or(u64::MAX);
        let kept = FORGOTTEN_OVER.saturating_sub(apart);
        let remembered = part(self.believed, kept.0, FORGOTTEN_OVER.0).unwrap_or(0);
        self.believed = rate.min(self.latest).max(remembered);
        self.latest = rate;
    }

    /// Within which so much is used up; `None`: it is not being used.
    pub(super) fn time_for(self, bytes: Bytes) -> Option<Nanos> {
        time_at(bytes, self.believed)
    }

    /// The same by what may turn out to be a rate.
    pub(super) fn time_at_worst(self, bytes: Bytes) -> Option<Nanos> {
        time_at(bytes, self.believed.max(self.latest))
    }
}

/// Within which so much comes or goes at a rate; `None` at a rate of 0.
fn time_at(bytes: Bytes, per_second: u64) -> Option<Nanos> {
    (per_second > 0).then(|| Nanos(part(bytes.0, SECOND, per_second).unwrap_or(u64::MAX)))
}

/// The longest of the newest so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct Longest {
    newest: [Nanos; MEASURED_MAX],
    next: usize,
}

impl Longest {
    fn take(&mut self, span: Nanos) {
        if let Some(place) = self.newest.get_mut(self.next) {
            *place = span;
        }
        self.next = if self.next.saturating_add(1) < MEASURED_MAX { self.next.saturating_add(1) } else { 0 };
    }

    fn or(&self, unmeasured: Nanos) -> Nanos {
        let longest = self.newest.iter().copied().max().unwrap_or_default();
        if longest == Nanos(0) { unmeasured } else { longest }
    }
}

/// What the parts of a kill take on this machine: the longest of the newest 16, and the lowest rate of reaping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Reaction {
    late: Longest,
    select: Longest,
    signal: Longest,
    #[serde(default)]
    end: Longest,
    reap_per_second: Option<u64>,
}

impl Reaction {
    pub(super) fn take(&mut self, measured: Measured) {
        match measured {
            Measured::Late(span) => self.late.take(span),
            Measured::Select(span) => self.select.take(span),
            Measured::Signal(span) => self.signal.take(span),
            Measured::End(span) => self.end.take(span.min(END_MAX)),
            Measured::Reap(per_second) => self.reap_per_second = per_second,
        }
    }
}

/// A part of a kill, as it was on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A look came so much later than it was due.
    Late(Nanos),
    /// From a look that found memory short it took so long to know whom to select.
    Select(Nanos),
    /// From there it took so long until the signal was sent.
    Signal(Nanos),
    /// From SIGKILL it took so long until a victim was gone that was too small to tell a rate by
    /// ([`crate::reap::RATED_BYTES_MIN`]): what it held came back no sooner.
    End(Nanos),
    /// The lowest rate at which memory came back lately, in bytes a second.
    Reap(Option<u64>),
}

/// What is to be left when somebody is selected, and what that is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Margin {
    /// How fast memory is used up, in bytes a second.
    pub fill_per_second: u64,
    /// Until a look finds that memory is short.
    pub detect: Nanos,
    /// Until it is known whom to select.
    pub select: Nanos,
    /// Until the signal is sent.
    pub signal: Nanos,
    /// Until as much has come back as was used up meanwhile, at [`Margin::reap_per_second`]; or as long as small victims took
    /// to end lately, where that is more.
    pub reap: Nanos,
    /// The lowest rate of reaping measured here lately, in bytes a second; before any was, 856 MB/s.
    pub reap_per_second: u64,
    /// All of that time at that rate. Nobody is killed for it above the threshold of SIGTERM.
    pub bytes: Bytes,
}

/// Until it was measured: a tick of 250 Hz, and 2 ms, for a machine whose CPUs are all busy has been seen to take longer.
const LATE_UNMEASURED: Nanos = Nanos(6_000_000);
/// `plimsoll bench select`: 1,000 processes, with a list that is ready, take less.
const SELECT_UNMEASURED: Nanos = Nanos(5_000_000);
const SIGNAL_UNMEASURED: Nanos = Nanos(1_000_000);

/// Whoever takes longer to end is held by something, and the next one may not be.
const END_MAX: Nanos = Nanos(1_000_000_000);

impl Margin {
    /// Within which so much is used up; `None`: nothing is.
    #[must_use]
    pub fn time_for(&self, bytes: Bytes) -> Option<Nanos> {
        time_at(bytes, self.fill_per_second)
    }

    /// `every`: how often it is looked while memory is near its end.
    pub(super) fn of(fill: Fill, reaction: &Reaction, every: Nanos) -> Self {
        let detect = every.saturating_add(reaction.late.or(LATE_UNMEASURED));
        let select = reaction.select.or(SELECT_UNMEASURED);
        let signal = reaction.signal.or(SIGNAL_UNMEASURED);
        let reap_per_second = reaction.reap_per_second.unwrap_or(REAP_UNMEASURED).max(1);
        let fill_per_second = fill.believed;
        let used = |time: Nanos| Bytes(part(fill_per_second, time.0, SECOND).unwrap_or(u64::MAX));
        let until_signal = detect.saturating_add(select).saturating_add(signal);
        let reap = time_at(used(until_signal), reap_per_second).unwrap_or_default();
        let reap = reap.max(reaction.end.or(Nanos(0)));
        let bytes = used(until_signal.saturating_add(reap));
        Self { fill_per_second, detect, select, signal, reap, reap_per_second, bytes }
    }
}
