//! The API with no daemon behind it: what comes in is taken apart as ever, and every call is refused. For fuzzers.

use super::{
    control::{Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob},
    dialogue,
    peer::Peer,
};
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, NearView},
    message::StartJobReply,
    protect::ProtectView,
    status::Status,
};
use plimsoll_policy::{
    account::Account,
    incident::Incident,
    lines::{Cleared, Target},
    units::{Pid, Uid},
    workingset::TunableChange,
};
use std::time::Duration;

#[derive(Debug)]
struct Unattended;

fn refuse<T>() -> Result<T, Refusal> {
    Err(Refusal::Unavailable("nobody is here".to_owned()))
}

impl Control for Unattended {
    fn standing(&self) -> Result<Standing, Refusal> {
        refuse()
    }

    fn status(&self, _: Peer) -> Result<Status, Refusal> {
        refuse()
    }

    fn limits(&self, _: Peer, _: Option<&Account>) -> Result<Vec<AccountView>, Refusal> {
        refuse()
    }

    fn processes(&self, _: Peer, _: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        refuse()
    }

    fn running(&self) -> Vec<Uid> {
        Vec::new()
    }

    fn set_limit(&self, _: Peer, _: SetLimit) -> Result<(), Refusal> {
        refuse()
    }

    fn clear_limit(&self, _: Peer, _: Target) -> Result<Cleared, Refusal> {
        refuse()
    }

    fn start_job(&self, _: Peer, _: StartJob) -> Result<StartJobReply, Refusal> {
        refuse()
    }

    fn protection(&self, _: Peer) -> Result<ProtectView, Refusal> {
        refuse()
    }

    fn set_protection(&self, _: Peer, _: &[TunableChange]) -> Result<(), Refusal> {
        refuse()
    }

    fn expedite(&self, _: Peer, _: Pid, _: u64) -> Result<bool, Refusal> {
        refuse()
    }

    fn history(&self, _: Peer, _: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        refuse()
    }

    fn await_news(&self, known: Option<u64>, _: Duration) -> u64 {
        known.unwrap_or(0)
    }

    fn near(&self) -> Vec<NearView> {
        Vec::new()
    }

    fn incident(&self, _: Peer, _: Pick) -> Result<Incident, Refusal> {
        refuse()
    }
}

/// The answer to one request, both without the NUL that ends a message; empty where none is wanted.
#[must_use]
pub fn answer(request: &[u8]) -> Vec<u8> {
    let peer = Peer { uid: Uid(60_000), owner: Uid(60_000), pid: None };
    let (mut answer, _) = dialogue::answer(&Unattended, peer, dialogue::read(request));
    if answer.last() == Some(&0) {
        answer.pop();
    }
    answer
}

#[cfg(test)]
mod tests;
