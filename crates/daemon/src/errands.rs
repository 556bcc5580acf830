//! What the guard thread has others do, because it waits.

use crate::{
    control::ControlService,
    guard::Errand,
    journal::{Journal, Notices},
    offload::{Haste, Offload},
    supervisor::Supervisor,
};
use plimsoll_policy::units::Nanos;
use plimsoll_sys::process::clock_monotonic_ns;
use std::sync::Arc;

/// Reads the configuration again, on SIGHUP. Of those that come during a reload one more follows.
pub(crate) fn reload(
    offload: &Offload,
    journal: &Journal,
    control: Arc<ControlService>,
    supervisor: Supervisor,
) -> Errand {
    let journal = journal.clone();
    let reload = offload.lane(Haste::Ordinary, 1, move |()| {
        supervisor.reloading(Nanos(clock_monotonic_ns()));
        let said = control
            .reload()
            .map_or_else(|error| format!("the configuration stays as it was: {error}"), str::to_owned);
        supervisor.reloaded(&said);
        journal.line(said);
    });
    // As good as taken where one waits already.
    Errand(Box::new(move || {
        let _was_taken = reload.hand(());
    }))
}

/// Jobs have ended, or have their turn: off the guard thread, which is asked which.
pub(crate) fn tend_jobs(offload: &Offload, journal: &Journal, control: Arc<ControlService>) -> Errand {
    let mut notices = Notices::new(journal.clone());
    let tend = offload.lane(Haste::Ordinary, 1, move |()| {
        if let Err(refusal) = control.tend_jobs() {
            notices.once("jobs that have ended stay listed, and nobody has a turn", &refusal);
        }
    });
    // As good as taken where one waits already.
    Errand(Box::new(move || {
        let _was_taken = tend.hand(());
    }))
}
