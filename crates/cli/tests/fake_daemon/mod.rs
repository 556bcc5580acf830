//! A daemon without a machine behind a real control socket: lines in a book, a row of equal incidents.

use jiff::Timestamp;
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, NearView},
    message::StartJobReply,
    protect::ProtectView,
    status::Status,
};
use plimsoll_daemon::api::{
    control::{Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob},
    peer::Peer,
    plimsoll::not_found,
};
use plimsoll_policy::{
    account::{Account, Source},
    incident::{Incident, Victim},
    lines::{Cleared, Job, LineBook, Place, Target, UidRange, validate},
    units::{Bytes, PageSize, Pid, Uid},
    workingset::TunableChange,
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const MEM_TOTAL: Bytes = Bytes(8 << 30);
/// A uid whose lines nobody may clear.
const REFUSED: Uid = Uid(60_003);

/// The uid that these tests run as: everything belongs to it, so that they need no other user.
pub(crate) fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[derive(Debug)]
pub(crate) struct FakeDaemon {
    book: Mutex<LineBook>,
    /// What happened; more may come.
    pub(crate) incidents: Mutex<Vec<Incident>>,
}

impl FakeDaemon {
    pub(crate) fn new(incidents: u32) -> Self {
        Self {
            book: Mutex::new(LineBook::new(UidRange::default())),
            incidents: Mutex::new((1..=incidents).map(incident).collect()),
        }
    }
}

pub(crate) fn incident(id: u32) -> Incident {
    let sample: Incident =
        serde_json::from_str(include_str!("../../../policy/src/incident/sample.json")).unwrap();
    let of = |victim: Victim| Victim { pid: Pid(4000 + id), uid: Uid(own_uid()), ..victim };
    Incident {
        id: id.into(),
        time: Timestamp::from_second(1_800_000_000 + i64::from(id)).unwrap(),
        account: Some(Account::User(Uid(own_uid()))),
        victims: sample.victims.into_iter().map(of).collect(),
        ..sample
    }
}

fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

impl Control for FakeDaemon {
    fn standing(&self) -> Result<Standing, Refusal> {
        let book = Arc::new(self.book.lock().unwrap().clone());
        Ok(Standing { book, mem_total: MEM_TOTAL, page_size: page_size() })
    }

    fn status(&self, _peer: Peer) -> Result<Status, Refusal> {
        let guard = json!({"state": "on", "dry_run": false, "dying": 0, "incidents": 1, "last_incident": 1});
        let status = json!({
            "daemon": true,
            "triggers": {"kernel": "on", "daemon": "on", "last-defence": "off: not in this version"},
            "guards": {"limits": guard, "pressure": guard, "own": {}},
            "accounts": [],
            "pressure": {},
            "kernel": {"attached": false, "programs": [], "maps": []},
        });
        Ok(serde_json::from_value(status).unwrap())
    }

    fn limits(&self, _peer: Peer, only: Option<&Account>) -> Result<Vec<AccountView>, Refusal> {
        let book = self.book.lock().unwrap();
        let views =
            book.explicit_uids().into_iter().filter(|uid| only.is_none_or(|only| only.user() == Some(*uid)));
        let views = views.filter_map(|uid| {
            let resolved = book.resolve(uid, MEM_TOTAL, page_size())?;
            let hard_bytes = page_size().to_bytes(resolved.hard).0;
            Some(AccountView {
                account: Account::User(uid),
                name: None,
                usage_bytes: 7 << 20,
                reserved_bytes: 0,
                shared_bytes: None,
                shared_files: Vec::new(),
                peak_bytes: None,
                soft_bytes: Some(page_size().to_bytes(resolved.soft).0),
                hard_bytes: Some(hard_bytes),
                effective_bytes: Some(hard_bytes),
                action: resolved.action,
                near: false,
                processes: 3,
                source: Source::State,
                target: Some(resolved.set_as.target()),
                set_by: Some(resolved.set_as.set_by()),
                note: None,
                job: None,
                strict: None,
                process_list: None,
                process_list_more: None,
            })
        });
        Ok(views.collect())
    }

    fn processes(&self, _peer: Peer, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        let none =
            |account: &Account| AccountProcesses { account: account.clone(), processes: Vec::new(), more: 0 };
        Ok(wanted.accounts.iter().map(none).collect())
    }

    fn running(&self) -> Vec<Uid> {
        Vec::new()
    }

    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        validate(&limit.line, MEM_TOTAL).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let place = Place::of(peer.uid, limit.target).unwrap();
        self.book.lock().unwrap().set(place, limit.line);
        Ok(())
    }

    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        if target == Target::User(REFUSED) {
            return Err(Refusal::NotPermitted("nobody may".to_owned()));
        }
        Ok(self.book.lock().unwrap().clear(Place::of(peer.uid, target).unwrap()))
    }

    fn start_job(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal> {
        let job = Job { name: start.name, line: start.line, ..Job::new(peer.uid) };
        let account = Account::Job(self.book.lock().unwrap().jobs_mut().add(job));
        Ok(StartJobReply { account, hard_bytes: None, next_incident_id: Some(7), waits: false })
    }

    fn protection(&self, _peer: Peer) -> Result<ProtectView, Refusal> {
        Ok(ProtectView { state: "off".to_owned(), ..ProtectView::default() })
    }

    fn set_protection(&self, _peer: Peer, _changes: &[TunableChange]) -> Result<(), Refusal> {
        Err(Refusal::Unavailable("the working set is not protected: no programs".to_owned()))
    }

    fn expedite(&self, _peer: Peer, _pid: Pid, _start_ns: u64) -> Result<bool, Refusal> {
        Ok(true)
    }

    fn history(&self, _peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        let incidents = self.incidents.lock().unwrap();
        let admitted = incidents.iter().filter(|incident| {
            query.since.is_none_or(|since| incident.time >= since)
                && incident.id > query.after_id
                && query.before_id.is_none_or(|before| incident.id < before)
        });
        let mut page: Vec<_> = admitted.cloned().collect();
        Ok(page.split_off(page.len().saturating_sub(query.limit)))
    }

    fn await_news(&self, known: Option<u64>, within: Duration) -> u64 {
        let number = || u64::try_from(self.incidents.lock().unwrap().len()).unwrap();
        let until = Instant::now() + within;
        while known == Some(number()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        number()
    }

    fn near(&self) -> Vec<NearView> {
        Vec::new()
    }

    fn incident(&self, _peer: Peer, pick: Pick) -> Result<Incident, Refusal> {
        let incidents = self.incidents.lock().unwrap();
        let found = incidents.iter().rev().find(|incident| match pick {
            Pick::Id(id) => incident.id == id,
            Pick::Last => true,
            Pick::Pid(pid) => incident.victims.iter().any(|victim| victim.pid == pid),
        });
        found.cloned().ok_or_else(|| not_found(pick))
    }
}
