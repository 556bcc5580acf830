//! How the server ends.

use super::{DEADLINE, daemon, patient};
use crate::api::{
    control::{Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob},
    fake::Fake,
    peer::Peer,
    server::Server,
};
use plimsoll_api::client::{CallError, Client};
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
use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_stop_removes_the_socket_ends_idle_connections_and_lets_another_start() {
    let mut daemon = daemon(patient(4));
    let mut idle = daemon.client();
    idle.status().unwrap();
    daemon.server.take().unwrap().stop();
    assert!(!daemon.socket.exists());
    assert!(matches!(Client::connect(&daemon.socket), Err(CallError::NotRunning { .. })));
    assert!(matches!(idle.status(), Err(CallError::NoAnswer { .. })));
    daemon.server = Some(Server::start(&daemon.socket, daemon.fake.clone()).unwrap());
    daemon.client().status().unwrap();
}

/// Answers `status` only once it is told to; everything else is the fake's.
struct Slow {
    fake: Arc<Fake>,
    asked: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Control for Slow {
    fn standing(&self) -> Result<Standing, Refusal> {
        self.fake.standing()
    }
    fn status(&self, peer: Peer) -> Result<Status, Refusal> {
        self.asked.send(()).unwrap();
        self.go_on.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        self.fake.status(peer)
    }
    fn limits(&self, peer: Peer, only: Option<&Account>) -> Result<Vec<AccountView>, Refusal> {
        self.fake.limits(peer, only)
    }
    fn processes(&self, peer: Peer, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        self.fake.processes(peer, wanted)
    }
    fn running(&self) -> Vec<Uid> {
        self.fake.running()
    }
    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        self.fake.set_limit(peer, limit)
    }
    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        self.fake.clear_limit(peer, target)
    }
    fn start_job(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal> {
        self.fake.start_job(peer, start)
    }
    fn protection(&self, peer: Peer) -> Result<ProtectView, Refusal> {
        self.fake.protection(peer)
    }
    fn set_protection(&self, peer: Peer, changes: &[TunableChange]) -> Result<(), Refusal> {
        self.fake.set_protection(peer, changes)
    }
    fn expedite(&self, peer: Peer, pid: Pid, start_ns: u64) -> Result<bool, Refusal> {
        self.fake.expedite(peer, pid, start_ns)
    }
    fn history(&self, peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        self.fake.history(peer, query)
    }

    fn await_news(&self, known: Option<u64>, within: Duration) -> u64 {
        unreachable!("{known:?} {within:?}")
    }

    fn near(&self) -> Vec<NearView> {
        Vec::new()
    }

    fn incident(&self, peer: Peer, pick: Pick) -> Result<Incident, Refusal> {
        self.fake.incident(peer, pick)
    }
}

#[test]
fn a_stop_does_not_wait_for_an_answer_that_its_caller_would_have_to_give_and_the_answer_still_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let (asked, was_asked) = mpsc::channel();
    let (go_on, told_to) = mpsc::channel();
    let slow = Slow { fake: Fake::new(), asked, go_on: Mutex::new(told_to) };
    let server = Server::start_with(&socket, Arc::new(slow), patient(2)).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let asking = thread::spawn(move || client.status());
    was_asked.recv_timeout(DEADLINE).unwrap();
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(5));
    go_on.send(()).unwrap();
    assert!(asking.join().unwrap().unwrap().daemon);
}
