//! Who changes settings of the kernel: the floor of anonymous memory, and what the multi-generational LRU keeps. In a lane of
//! its own, as swap into memory takes what the floor has in some tenths of a second, and who locks is busy for longer.

use super::{
    readings::Readings,
    shared::{Shared, Thread},
    times::now,
    view::Settings,
};
use crate::{
    knobs::Knobs,
    offload::{Haste, Lane, Offload, Waits},
};
use nix::sys::epoll::EpollFlags;
use plimsoll_policy::{
    reading::Reading,
    units::{Nanos, Pages},
    workingset::{
        Tunables,
        anon::{self, AnonState},
    },
};
use plimsoll_sys::process::ProcRoot;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often settings of the kernel are looked at again: cgroups come that swap, too.
const SETTINGS_EVERY: Nanos = Nanos(5_000_000_000);

/// What the setter works with.
pub(super) struct Setter {
    shared: Arc<Shared>,
    readings: Readings,
    knobs: Arc<Mutex<Knobs>>,
    proc: ProcRoot,
    anon: AnonState,
    due: Nanos,
    settings_due: Nanos,
    /// What the settings were looked at by last.
    tunables: Tunables,
}

impl Setter {
    /// # Errors
    /// One line: what cannot be read.
    pub(super) fn new(
        shared: Arc<Shared>,
        readings: Readings,
        knobs: Arc<Mutex<Knobs>>,
    ) -> Result<Self, String> {
        Ok(Self {
            shared,
            readings,
            knobs,
            proc: Readings::proc().map_err(|error| error.to_string())?,
            anon: AnonState::default(),
            due: Nanos(0),
            settings_due: Nanos(0),
            tunables: Tunables::default(),
        })
    }

    /// Sets until it is told to stop, for as long as the lane is there. Urgent: it is what everybody waits for when memory runs
    /// out.
    ///
    /// # Errors
    /// One line: there is no descriptor to be had.
    pub(super) fn start(mut self, offload: &Offload) -> Result<Lane<()>, String> {
        let failed = |error: std::io::Error| error.to_string();
        let waits = Waits::new().map_err(failed)?;
        let bell = self.shared.bell_of(Thread::Setter);
        waits.add(bell, EpollFlags::EPOLLIN).map_err(|errno| errno.to_string())?;
        let readable = waits.readable().map_err(failed)?;
        let lane = offload.attend(Haste::Urgent, readable, move || {
            let goes_on = !self.shared.is_stopping();
            if goes_on {
                let wait = self.turn();
                // It fails with a time that cannot be, and this one can.
                waits.set(Some(wait)).ok();
            }
            goes_on
        });
        let lane = lane.map_err(failed)?;
        lane.hand(());
        Ok(lane)
    }

    /// Looks if it is time to; when to look again.
    fn turn(&mut self) -> Duration {
        if self.shared.hush(Thread::Setter) {
            // Other tunables, or more is held back than is to be.
            self.due = Nanos(0);
        }
        let moment = now();
        if self.due <= moment {
            self.look(moment);
        }
        Duration::from_nanos(self.due.0.saturating_sub(now().0))
    }

    /// Keeps to the floor of anonymous memory, and looks at the other settings when it is time.
    fn look(&mut self, moment: Nanos) {
        let reading = self.readings.read_anon(&mut self.proc);
        let (held, tunables) = (self.anon.holds, self.shared.tunables());
        self.anon = anon::judge(self.anon, &reading, &tunables);
        self.due = moment.saturating_add(self.anon.look_in);
        let Some(mut knobs) = unless_stopping(&self.knobs, &self.shared) else { return };
        let again = moment >= self.settings_due || tunables != self.tunables;
        if again {
            (self.settings_due, self.tunables) = (moment.saturating_add(SETTINGS_EVERY), tunables);
            // Without swap there is nothing of programs that the kernel could take.
            match reading.swap_total {
                Reading::Known(swap) if swap > Pages(0) && tunables.keeps_last_used() => {
                    knobs.keep_last_used();
                }
                Reading::Unreadable | Reading::Stale { .. } if tunables.keeps_last_used() => {}
                Reading::Known(_) | Reading::Absent | Reading::Unreadable | Reading::Stale { .. } => {
                    knobs.forget_last_used();
                }
            }
            if reading.swap_total.known() > Some(Pages(0)) && tunables.locks_files() {
                knobs.warn_of_last_used();
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
