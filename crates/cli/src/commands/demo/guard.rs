//! The demo's own guard: a private daemon as the benches have, with places of its own and the machine guard off.

use super::stage::Stage;
use crate::exit::Failure;
use plimsoll_api::{
    accounts::AccountView,
    message::{GetIncident, SetLimitCall},
};
use plimsoll_bench::{Options, PrivateDaemon, Triggers};
use plimsoll_policy::{
    incident::Incident,
    lines::Target,
    size::Size,
    units::{Bytes, Uid},
};
use std::time::{Duration, Instant};

/// How long the guard may take over writing an incident.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The guard, running. Dropping it stops it and removes everything of its own.
#[derive(Debug)]
pub(super) struct Guard(PrivateDaemon);

impl Guard {
    /// Starts it and waits until it answers.
    pub(super) fn start() -> Result<Self, Failure> {
        PrivateDaemon::start("plimsoll-demo-", &Options::default(), Triggers::All)
            .map(Self)
            .map_err(|error| Failure::failed(format_args!("cannot start the demo's guard: {error}")))
    }

    /// Draws a line; where it is near, in bytes.
    pub(super) fn draw(&self, user: Uid, hard_bytes: u64) -> Result<u64, Failure> {
        let (who, hard) = (Target::User(user), Size::Bytes(Bytes(hard_bytes)));
        self.0.client()?.set_limit(&SetLimitCall { who, hard, soft: None, action: None, now: None })?;
        self.account(user)?.soft_bytes.ok_or_else(|| Failure::failed("the demo's line has no soft limit"))
    }

    /// What the guard counts.
    pub(super) fn account(&self, user: Uid) -> Result<AccountView, Failure> {
        let limits = self.0.client()?.show_limits(Some(Target::User(user)))?;
        limits.accounts.into_iter().next().ok_or_else(|| Failure::failed("the demo's line is not drawn"))
    }

    /// The incident that a process was the victim of, complete.
    pub(super) fn incident(&self, stage: &Stage<'_>, victim: u32) -> Result<Incident, Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let late = Instant::now() > until;
            match self.0.client()?.incident(GetIncident { id: None, pid: Some(victim) }) {
                // It is written when the signal is sent, and again when the memory is back.
                Ok(incident) if incident.signal_to_freed_ns.is_some() || late => return Ok(incident),
                Ok(_) => {}
                Err(error) if late => return Err(error.into()),
                Err(_) => {}
            }
            stage.pause(LOOK_AGAIN)?;
        }
    }

    /// Stops it and sees to it that nothing is left.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.0.stop().map_err(Failure::failed)
    }
}
