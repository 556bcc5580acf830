//! What the guard has to say besides incidents, said once: it is written off the guard thread, so that a stuck journal never
//! holds a kill up.

use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::{units::Pid, victim::Signal};
use std::{collections::BTreeSet, fmt::Display, io::Write as _, sync::mpsc::Receiver};

/// Lines waiting for the journal; when it is this far behind, lines are dropped and counted.
const QUEUE_MAX: usize = 256;

/// The way to the journal.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    lines: Lane<String>,
}

impl Journal {
    pub(crate) fn new(offload: &Offload) -> Self {
        let lines = offload.lane(Haste::Ordinary, QUEUE_MAX, |line: String| {
            // Standard error is the journal; where it is closed there is nobody to tell.
            drop(writeln!(std::io::stderr().lock(), "plimsoll: {line}"));
        });
        Self { lines }
    }

    /// One whose lines are read by whoever asked, for a command that ends at once.
    pub(crate) fn gather() -> (Self, Receiver<String>) {
        let (lines, queue) = Lane::of_another(QUEUE_MAX);
        (Self { lines }, queue)
    }

    /// One that nobody reads: each line is dropped.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { lines: Lane::closed() }
    }

    /// Whether the line was taken.
    pub(crate) fn line(&self, line: String) -> bool {
        self.lines.hand(line)
    }
}

/// Notices, each given once until its cause changes.
#[derive(Debug)]
pub(crate) struct Notices {
    journal: Journal,
    told: BTreeSet<(&'static str, String)>,
    dropped: u64,
}

/// Different texts remembered; then the oldest in order gives way, and may be told again.
const TOLD_MAX: usize = 128;

impl Notices {
    pub(crate) fn new(journal: Journal) -> Self {
        Self { journal, told: BTreeSet::new(), dropped: 0 }
    }

    /// Says it.
    pub(crate) fn say(&mut self, text: impl Display) {
        if !self.journal.line(text.to_string()) {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Says it if it was not said before.
    pub(crate) fn once(&mut self, topic: &'static str, text: &dyn Display) {
        let text = text.to_string();
        if self.told.len() >= TOLD_MAX {
            self.told.pop_first();
        }
        if self.told.insert((topic, text.clone())) {
            self.say(format_args!("{topic}: {text}"));
        }
    }

    /// A victim could not be signalled.
    pub(crate) fn signal_failed(&mut self, pid: Pid, signal: Signal) {
        self.say(format_args!("could not send {} to process {pid}: the next one is selected", signal.name()));
    }
}
