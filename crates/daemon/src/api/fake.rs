//! A daemon without a machine, for the tests of the API: lines in a book, incidents in a list, calls written down.

use super::{
    control::{Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob},
    peer::Peer,
    plimsoll::not_found,
};
use jiff::Timestamp;
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, JobView, NearView, ProcessView, StrictView},
    message::StartJobReply,
    protect::{AnonView, BarredView, FileView, FloorView, ProtectView},
    status::{
        GuardView, Guards, Kernel, MapView, MarginView, OwnView, Pressure, PressureSocketView, ReapingView,
        Selection, SelectionEffort, Status, Triggers,
    },
};
use plimsoll_policy::{
    account::{Account, Action, Source},
    incident::{Course, Guard, Incident, MachineSample, Outcome, Trigger, UsageSample, Victim},
    lines::{Cleared, Job, Line, LineBook, Members, Membership, Place, Target, UidRange, validate},
    size::Size,
    units::{Bytes, Gid, JobId, PageSize, Pid, Uid},
    workingset::{FileId, Tier, TunableChange, floor},
};
use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

pub(super) const MEM_TOTAL: Bytes = Bytes(8 << 30);
pub(super) const ALICE: Uid = Uid(60_001);
pub(super) const BOB: Uid = Uid(60_002);
/// Above what the `default` line is for.
pub(super) const DIRECTORYS: Uid = Uid(61_001);
pub(super) const STAFF: Gid = Gid(60_003);

#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) book: Mutex<LineBook>,
    pub(super) incidents: Mutex<Vec<Incident>>,
    /// Calls that got past permission.
    pub(super) calls: Mutex<Vec<String>>,
}

impl Fake {
    /// Alice and Bob have a line of 1 GiB each, everyone else one of 2 GiB, and each of the two lost a process. Alice is in
    /// the group [`STAFF`], which has no line.
    pub(super) fn new() -> Arc<Self> {
        let mut book = LineBook::new(UidRange { min: Uid(1000), max: Uid(61_000) });
        for (target, size) in [(Target::User(ALICE), 1), (Target::User(BOB), 1), (Target::Default, 2)] {
            book.set(Place::Administrator(target), line(size << 30));
        }
        let staff = Membership { uids: [ALICE].into(), doubt: None };
        book.replace_members(Members::from([(STAFF, staff)]));
        let fake = Self { book: Mutex::new(book), ..Self::default() };
        *fake.incidents.lock().unwrap() = vec![incident(1, ALICE), incident(2, BOB)];
        Arc::new(fake)
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn note(&self, call: &str, peer: Peer) {
        self.calls.lock().unwrap().push(format!("{call} by {}", peer.uid));
    }

    fn view(&self, uid: Uid) -> Option<AccountView> {
        let resolved = self.book.lock().unwrap().resolve(uid, MEM_TOTAL, page_size())?;
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
            job: Some(JobView {
                uid,
                outer: Some(Account::Job(JobId(3))),
                pid: None,
                orphans: Some(3),
                start_ns: None,
                promised_bytes: None,
                waits: false,
            }),
            strict: Some(StrictView { committed_bytes: 5 << 20, peak_bytes: 6 << 20, refused: 2 }),
            process_list: None,
            process_list_more: None,
        })
    }
}

pub(super) fn line(bytes: u64) -> Line {
    Line { hard: Size::Bytes(Bytes(bytes)), soft: None, action: Action::Kill }
}

pub(super) fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

fn victim(uid: Uid) -> Victim {
    Victim {
        pid: Pid(4000 + uid.0),
        start_ns: 77,
        uid,
        comm: "hog".to_owned(),
        cmdline: Some(format!("hog --secret-of={uid}")),
        cgroup: Some(format!("/user.slice/user-{uid}.slice")),
        usage_bytes: 900 << 20,
        weight_permille: None,
        session: false,
        jobs: Vec::from([JobId(7)]),
    }
}

/// An incident of `uid`'s account, in which root's sshd was a peer.
pub(super) fn incident(id: u64, uid: Uid) -> Incident {
    Incident {
        id,
        time: Timestamp::from_second(1_800_000_000 + i64::try_from(id).unwrap()).unwrap(),
        account: Some(Account::User(uid)),
        guard: Guard::Limits,
        trigger: Trigger::InKernel,
        action: Outcome::Kill,
        victims: vec![victim(uid)],
        usage_bytes: 1 << 30,
        hard_bytes: Some(1 << 30),
        overshoot_bytes: 4096,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: Some(5_000),
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: "over-hard-limit-largest".to_owned(),
        peers: vec![victim(Uid(0))],
        origin: None,
        compaction: None,
        course: Some(course()),
    }
}

/// A sample of each.
fn course() -> Course {
    Course {
        account: vec![UsageSample { at_ms: -900, usage_bytes: 7, line_bytes: None }],
        machine: vec![MachineSample {
            at_ms: -900,
            mem_available_bytes: Some(5),
            anon_bytes: Some(6),
            swap_free_bytes: None,
            some_permille: Some(10),
            full_permille: None,
        }],
        mem_total_bytes: Some(MEM_TOTAL.0),
        swap_total_bytes: None,
        trace: Some("{}".to_owned()),
    }
}

impl Control for Fake {
    fn standing(&self) -> Result<Standing, Refusal> {
        let book = Arc::new(self.book.lock().unwrap().clone());
        Ok(Standing { book, mem_total: MEM_TOTAL, page_size: page_size() })
    }

    fn status(&self, peer: Peer) -> Result<Status, Refusal> {
        self.note("status", peer);
        let guard = || GuardView {
            state: "on".to_owned(),
            dry_run: false,
            dying: 0,
            incidents: 2,
            last_incident: Some(2),
        };
        Ok(Status {
            daemon: true,
            triggers: Triggers {
                kernel: "on".to_owned(),
                daemon: "on".to_owned(),
                last_defence: "off: not in this version".to_owned(),
            },
            guards: Guards {
                limits: guard(),
                pressure: guard(),
                own: OwnView {
                    resident_bytes: Some(9 << 20),
                    uptime_seconds: Some(60),
                    wake_ups: Some(1),
                    incidents_lost: Some(0),
                    incidents_waiting: Some(0),
                    ..OwnView::default()
                },
                ..Guards::default()
            },
            accounts: [ALICE, BOB].into_iter().filter_map(|uid| self.view(uid)).collect(),
            groups: Vec::new(),
            default: None,
            jobs: None,
            pressure_socket: Some(PressureSocketView {
                state: "on".to_owned(),
                ..PressureSocketView::default()
            }),
            reaping: Some(ReapingView { state: "ours".to_owned(), ..ReapingView::default() }),
            pressure: pressure(),
            kernel: Kernel {
                release: Some("6.12.0".to_owned()),
                attached: true,
                pin: Some("/sys/fs/bpf/plimsoll".to_owned()),
                schema: Some(1),
                programs: vec!["rss_stat".to_owned()],
                maps: vec![MapView {
                    name: "accounts".to_owned(),
                    used: Some(2),
                    max: 1024,
                    full: Some(0),
                    bytes: None,
                }],
                map_bytes: None,
                records_dropped: Some(0),
                signals_failed: Some(0),
            },
        })
    }

    fn limits(&self, peer: Peer, only: Option<&Account>) -> Result<Vec<AccountView>, Refusal> {
        self.note("limits", peer);
        let (explicit, members) = {
            let book = self.book.lock().unwrap();
            (book.explicit_uids(), book.member_uids())
        };
        let uids = explicit
            .union(&members)
            .copied()
            .filter(move |uid| only.is_none_or(|only| only.user() == Some(*uid)));
        Ok(uids.filter_map(|uid| self.view(uid)).collect())
    }

    fn processes(&self, peer: Peer, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        self.note(&format!("processes of {} for {:?}", wanted.accounts.len(), wanted.only_of), peer);
        let processes = |account: &Account| {
            let process = ProcessView {
                pid: Pid(7),
                start_ns: 77,
                uid: account.user().unwrap_or_default(),
                comm: "hog".to_owned(),
                charged_bytes: Some(5),
                anon_bytes: 4096,
                swap_bytes: 0,
                shared_bytes: 0,
                file_bytes: 0,
                error_bytes: 0,
            };
            AccountProcesses { account: account.clone(), processes: vec![process], more: 0 }
        };
        Ok(wanted.accounts.iter().map(processes).collect())
    }

    fn running(&self) -> Vec<Uid> {
        vec![Uid(999), ALICE, DIRECTORYS, Uid(62_000), Uid(100_000)]
    }

    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        self.note(&format!("set_limit {}", limit.target), peer);
        validate(&limit.line, MEM_TOTAL).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let place = Place::of(peer.uid, limit.target).unwrap();
        self.book.lock().unwrap().set(place, limit.line);
        Ok(())
    }

    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        self.note(&format!("clear_limit {target}"), peer);
        Ok(self.book.lock().unwrap().clear(Place::of(peer.uid, target).unwrap()))
    }

    fn start_job(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal> {
        self.note(&format!("start_job {:?}", start.name), peer);
        let job = Job { name: start.name, line: start.line, ..Job::new(peer.uid) };
        let account = Account::Job(self.book.lock().unwrap().jobs_mut().add(job));
        Ok(StartJobReply { account, hard_bytes: None, next_incident_id: Some(7), waits: false })
    }

    fn expedite(&self, peer: Peer, pid: Pid, _start_ns: u64) -> Result<bool, Refusal> {
        self.note("expedite", peer);
        Ok(pid != Pid(1))
    }

    fn protection(&self, peer: Peer) -> Result<ProtectView, Refusal> {
        self.note("protection", peer);
        let file = FileView {
            file: FileId { device: 254 << 20, inode: 7, generation: 1 },
            path: Some("/usr/lib/x".to_owned()),
            size_bytes: Some(4096),
            locked_bytes: 4096,
            wanted_bytes: 4096,
            tier: Some(Tier::Soft),
            reason: "reused".to_owned(),
        };
        Ok(ProtectView {
            state: "on".to_owned(),
            floor: Some(FloorView {
                line_bytes: 1 << 30,
                clean_bytes: None,
                standing: floor::Standing::NothingToFree,
                kills: 0,
                last_incident: None,
            }),
            anon: Some(AnonView {
                line_bytes: 1 << 30,
                anon_bytes: None,
                held_by: Some("vm.swappiness".to_owned()),
            }),
            min_ttl_ms: Some(1000),
            cgroup_shares: true,
            opening: 2,
            files: vec![file; 3],
            barred: vec![BarredView { reason: "unlinked".to_owned(), files: 2 }],
            ..ProtectView::default()
        })
    }

    fn set_protection(&self, peer: Peer, changes: &[TunableChange]) -> Result<(), Refusal> {
        let said: Vec<String> = changes.iter().map(ToString::to_string).collect();
        self.note(&format!("set_protection {}", said.join(" ")), peer);
        Ok(())
    }

    fn history(&self, peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        self.note("history", peer);
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
            thread::sleep(Duration::from_millis(1));
        }
        number()
    }

    fn near(&self) -> Vec<NearView> {
        let account = Account::User(Uid(1000));
        vec![NearView { account, usage_bytes: 9 << 20, hard_bytes: 10 << 20, seconds_left: Some(5) }]
    }

    fn incident(&self, peer: Peer, pick: Pick) -> Result<Incident, Refusal> {
        self.note("incident", peer);
        let incidents = self.incidents.lock().unwrap();
        let found = incidents.iter().rev().find(|incident| match pick {
            Pick::Id(id) => incident.id == id,
            Pick::Last => true,
            Pick::Pid(pid) => incident.victims.iter().any(|victim| victim.pid == pid),
        });
        found.cloned().ok_or_else(|| not_found(pick))
    }
}

fn pressure() -> Pressure {
    Pressure {
        mem_total_bytes: Some(MEM_TOTAL.0),
        mem_available_bytes: Some(4 << 30),
        anon_bytes: None,
        swap_total_bytes: Some(0),
        swap_free_bytes: Some(0),
        shared_unexplained_bytes: None,
        term_at_mem_bytes: Some(800 << 20),
        term_at_swap_bytes: None,
        kill_at_mem_bytes: Some(400 << 20),
        kill_at_swap_bytes: None,
        looks: Some("programs".to_owned()),
        margin: Some(MarginView {
            bytes: 80 << 20,
            fill_bytes_per_second: 2 << 30,
            detect_ns: 12_000_000,
            select_ns: 5_000_000,
            signal_ns: 1_000_000,
            reap_ns: 21_062_500,
            reap_bytes_per_second: 1_750 << 20,
        }),
        exhausted_in_ns: Some(2_000_000_000),
        selection: Some(Selection {
            from: Some("programs".to_owned()),
            ready_ns: Some(700_000_000),
            last: Some(SelectionEffort { processes: 300, looks: 2, age_ns: 400_000 }),
        }),
    }
}
