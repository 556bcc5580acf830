use super::*;
use crate::{history::Outcome as LaterFacts, metrics::Tally};
use plimsoll_api::accounts::JobView;
use plimsoll_policy::{
    account::Account,
    incident::{
        Guard, Incident, Outcome, Trigger,
        origin::{Killer, Origin},
    },
    reason::Reason,
    units::{Bytes, JobId, Uid},
};
use plimsoll_wire::text::PressureLine;
use std::{env, fs, path::Path};

const STATUS: &str = include_str!("../../../../api/src/status/sample.json");
const INCIDENT: &str = include_str!("../../../../policy/src/incident/sample.json");
const PASSWD: &[u8] = b"alice:x:1000:1000::/:/bin/sh\n";

/// Alice, whose name is known, a user with an awkward one, two containers of one slice, and the machine.
fn facts() -> Facts {
    let mut status: Status = serde_json::from_str(STATUS).unwrap();
    let alice = status.accounts.remove(0);
    let cgroup = |path: &str| Account::Cgroup(path.parse().unwrap());
    let id = "0123456789abcdef".repeat(4);
    let accounts = [
        Account::User(Uid(1000)),
        Account::User(Uid(1001)),
        cgroup(&format!("/system.slice/docker-{id}.scope")),
        cgroup(&format!("/system.slice/docker-{}.scope", id.replace('0', "f"))),
        cgroup("/system.slice/a\"b\\c.service"),
        Account::System,
        Account::Job(JobId(7)),
        Account::Job(JobId(9)),
    ];
    status.accounts = accounts.map(|account| AccountView { account, ..alice.clone() }).into();
    status.accounts[1].near = true;
    let job = JobView {
        uid: Uid(1000),
        outer: None,
        pid: None,
        start_ns: None,
        orphans: None,
        promised_bytes: Some(1 << 20),
        waits: false,
    };
    status.accounts[6..].iter_mut().for_each(|view| view.job = Some(job.clone()));
    status.jobs = Some(JobsView { running: 2, waiting: 1, promised_bytes: 2 << 20 });
    let line = |total_us| PressureLine { avg10_permyriad: 0, total_us };
    Facts {
        status,
        memory: Meminfo {
            mem_available: Some(Bytes(3 << 30)),
            swap_free: Some(Bytes(5)),
            ..Meminfo::default()
        },
        stalls: Some(Stalls { some: line(2_500_000), full: line(1_000_000) }),
        cpu: Duration::from_millis(1250),
        cut: 3,
    }
}

/// A kill in the kernel, one whose victim is freed later, one by the kernel itself, one by earlyoom, three whose records were
/// lost, a refusal whose reason is no reason of the list.
fn tally() -> Tally {
    let tally = Tally::default();
    let told: Incident = serde_json::from_str(INCIDENT).unwrap();
    let later = Incident { signal_to_freed_ns: None, freed_bytes: None, ..told.clone() };
    let foreign = Incident {
        account: None,
        guard: Guard::Kernel,
        trigger: Trigger::Kernel,
        cross_to_signal_ns: None,
        reason: Reason::KernelOutOfMemory.to_string(),
        ..later.clone()
    };
    let earlyoom = Incident {
        origin: Some(Origin::of(Killer::Earlyoom)),
        reason: Reason::EarlyoomKill.to_string(),
        ..foreign.clone()
    };
    let lost = Incident {
        unrecorded: Some(3),
        cross_to_signal_ns: None,
        reason: Reason::ActionsNotRecorded.to_string(),
        ..later.clone()
    };
    let refused = Incident {
        guard: Guard::Tmalloc,
        action: Outcome::Refuse,
        trigger: Trigger::Daemon,
        reason: "asked for 4 KiB".to_owned(),
        ..later.clone()
    };
    for incident in [told, later, foreign, earlyoom, lost, refused] {
        tally.incident(&incident);
    }
    let bytes = Some(100 << 20);
    tally.outcome(&LaterFacts {
        id: 18,
        signal_to_freed_ns: Some(80_000_000),
        freed_bytes: bytes,
        ..LaterFacts::default()
    });
    tally.outcome(&LaterFacts { id: 19, ..LaterFacts::default() });
    tally
}

fn text(facts: &Facts, tally: &Tally, users: Option<&Names>) -> String {
    tally.with(|counts| page(facts, counts, users)).text().unwrap()
}

#[test]
fn the_page_of_a_known_state_is_as_it_was() {
    let found = text(&facts(), &tally(), Some(&Names::of(PASSWD, b"")));
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics/show/sample.prom");
    if env::var_os("PLIMSOLL_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&sample, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&sample).unwrap());
}

#[test]
fn who_may_not_know_of_users_is_told_of_the_machine_alone() {
    let found = text(&facts(), &tally(), None);
    assert!(!found.contains("alice") && !found.contains("1000\"") && !found.contains(".service"), "{found}");
    assert!(!found.contains("kind=\"user\"") && !found.contains("plimsoll_account_kills"), "{found}");
    assert!(found.contains("plimsoll_account_usage_bytes{kind=\"system\"} 1048576\n"), "{found}");
    assert!(found.contains("plimsoll_accounts 8\n") && found.contains("plimsoll_kills_total{"), "{found}");
}

#[test]
fn what_is_not_known_is_left_out() {
    let facts = Facts {
        status: Status::default(),
        memory: Meminfo::default(),
        stalls: None,
        cpu: Duration::ZERO,
        cut: 0,
    };
    let found = text(&facts, &Tally::default(), Some(&Names::of(PASSWD, b"")));
    for absent in
        ["memory_available", "margin", "stalled", "wakeups", "resident", "account_usage", "exhausted"]
    {
        assert!(!found.contains(absent), "{absent}: {found}");
    }
    // There has to be a 0 for a rate to begin at.
    assert!(found.contains("plimsoll_incidents_total{action=\"kill\",guard=\"limits\"} 0\n"), "{found}");
}

#[test]
fn however_many_accounts_there_are_the_page_is_bounded() {
    let mut facts = facts();
    let alice = facts.status.accounts.remove(0);
    facts.status.accounts = (0..5000)
        .map(|uid| AccountView { account: Account::User(Uid(uid)), usage_bytes: uid.into(), ..alice.clone() })
        .collect();
    let tally = Tally::default();
    let told: Incident = serde_json::from_str(INCIDENT).unwrap();
    for uid in 0..5000 {
        tally.incident(&Incident { account: Some(Account::User(Uid(uid))), ..told.clone() });
    }
    let found = text(&facts, &tally, Some(&Names::default()));
    let of = |name: &str| found.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((of("plimsoll_account_usage_bytes{"), of("plimsoll_account_kills_total{")), (1024, 1025));
    assert!(found.contains("plimsoll_account_usage_bytes{kind=\"user\",user=\"4999\"} 4999\n"));
    assert!(found.contains("plimsoll_account_kills_total{kind=\"other\"} 3976\n"));
}

#[test]
fn each_name_is_in_the_docs_with_what_it_means() {
    let docs = include_str!("../../../../../docs/metrics.md");
    for line in text(&facts(), &tally(), Some(&Names::of(PASSWD, b""))).lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            assert!(docs.contains(&format!("| `{name}` | {kind} |")), "{name}, a {kind}");
        }
    }
}
