//! The worker's settings of the kernel: the floor of anonymous memory, and what the multi-generational LRU keeps.

use super::Worker;
use crate::workingset::{knobs::Knobs, shared::Shared, view::Settings};
use plimsoll_policy::{
    reading::Reading,
    units::{Nanos, Pages},
    workingset::anon,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often settings of the kernel are looked at again: cgroups come that swap, too.
const SETTINGS_EVERY: Nanos = Nanos(5_000_000_000);

impl Worker {
    /// Keeps to the floor of anonymous memory, and looks at the other settings when it is time.
    pub(super) fn look_at_anon(&mut self, moment: Nanos) {
        let reading = self.readings.read_anon(&mut self.proc).filter(|_| !self.shared.dry_run());
        let Some(reading) = reading else {
            // Nothing of the machine is to be set.
            self.anon_due = Nanos(u64::MAX);
            return;
        };
        let held = self.anon.holds;
        self.anon = anon::judge(self.anon, &reading, &self.shared.tunables());
        self.anon_due = moment.saturating_add(self.anon.look_in);
        let shared = Arc::clone(&self.shared);
        let knobs = Arc::clone(&self.knobs);
        let Some(mut knobs) = unless_stopping(&knobs, &shared) else { return };
        let again = moment >= self.settings_due;
        if again {
            self.settings_due = moment.saturating_add(SETTINGS_EVERY);
            // Without swap the floor of clean file memory ends one at the same point, whom selection names: not the kernel.
            match reading.swap_total {
                Reading::Absent | Reading::Known(Pages(0)) => knobs.forget_last_used(),
                Reading::Known(_) => knobs.keep_last_used(),
                Reading::Unreadable | Reading::Stale { .. } => {}
            }
        }
        match (held, self.anon.holds) {
            (false, true) => knobs.hold_swap(),
            (true, true) if again => knobs.hold_swap(),
            (true, false) => knobs.let_swap(),
            (true | false, _) => {}
        }
        self.shared.set_settings(Settings {
            anon_line: self.anon.line,
            anon: reading.anon.known(),
            held_by: knobs.means(),
            min_ttl_ms: knobs.min_ttl_ms(),
        });
    }
}

/// The settings, for as long as nobody puts them back for good.
fn unless_stopping<'knobs>(
    knobs: &'knobs Mutex<Knobs>,
    shared: &Shared,
) -> Option<MutexGuard<'knobs, Knobs>> {
    let knobs = knobs.lock().unwrap_or_else(PoisonError::into_inner);
    (!shared.is_stopping()).then_some(knobs)
}
