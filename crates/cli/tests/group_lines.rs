//! Lines for all members of a group together, beside what each may have: a real daemon, and the C library's own name services,
//! which read a `/etc/passwd` and `/etc/group` of the test's.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    account::Counted,
    units::{Gid, Pages, Uid},
};
use plimsoll_sys::bpf::Reserved;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use support::{
    Fixture,
    apart::{apart, etc},
    assert_has,
    grants::{granted, pages, space},
    program::Program,
    until, wait_for,
};
use tempfile::TempDir;

/// In plim-crew.
const ANN: u32 = 60_120;
/// In plim-crew and plim-deck.
const BEN: u32 = 60_121;
/// In neither.
const DAN: u32 = 60_123;

const CREW: Gid = Gid(60_125);
const GROUPS: &str = "plim-crew:x:60125:plim-ann,plim-ben\nplim-deck:x:60126:plim-ben\n";
const USERS: &str = "plim-ann:x:60120:60120::/:/bin/sh\nplim-ben:x:60121:60121::/:/bin/sh\n\
    plim-dan:x:60123:60123::/:/bin/sh\n";

struct Crew {
    etc: TempDir,
    fixture: Fixture,
}

impl Crew {
    /// As `limit show` tells what all of it use.
    fn account(&self) -> Value {
        let shown = self.fixture.json(&["limit", "show", "group:plim-crew"]);
        shown.as_array().unwrap().first().cloned().unwrap_or_default()
    }

    fn chill(&self, user: u32, mebibytes: u32) -> Program {
        self.fixture.workload(user, "chill", &[&format!("--mebibytes={mebibytes}")]).ready()
    }

    fn hog(&self, user: u32) -> Program {
        self.fixture.workload(user, "bloat", &["--mebibytes=96", "--no-thp"])
    }

    fn incident(&self) -> Value {
        self.fixture.incidents(1).pop().unwrap()
    }
}

fn in_a_crew(config: &'static str, body: fn(&mut Crew)) {
    apart(move || {
        let machines = |name: &str| fs::read_to_string(format!("/etc/{name}")).unwrap();
        let (passwd, group) = (machines("passwd") + USERS, machines("group") + GROUPS);
        let etc = etc(&[("passwd", &passwd), ("group", &group)]);
        body(&mut Crew { etc, fixture: fixture!(config) });
    });
}

#[test]
fn all_members_together_are_held_and_the_largest_of_all_goes() {
    in_a_crew("", |crew| {
        let told = crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let drawn = "group:60125 (plim-crew): hard 64.0 MiB, soft 57.6 MiB, action kill; usage 0 bytes in 0 processes.\n";
        assert_eq!(told, drawn);
        let mut outside = crew.chill(DAN, 80);
        let mut small = crew.chill(ANN, 8);
        let mut large = crew.chill(BEN, 40);
        let mut hog = crew.hog(ANN);
        large.killed();
        let incident = crew.incident();
        assert_has(&incident, &json!({"account": "group:60125", "hard_bytes": 64 << 20}));
        assert_eq!(incident["victims"][0]["uid"], BEN);
        let why = crew.fixture.ok(&["why", &incident["id"].to_string()]);
        assert!(why.contains("Group plim-crew (gid 60125) was using 64.0 MiB"), "{why}");
        hog.killed();
        assert!(small.runs() && outside.runs());
        let account = crew.account();
        assert_has(&account, &json!({"account": "group:60125", "name": "plim-crew", "processes": 1}));
        assert!(account["usage_bytes"].as_u64().unwrap() >> 20 >= 8, "{account}");
        // Each is counted, and has no line.
        let ann = crew.fixture.account(ANN).unwrap();
        assert_has(&ann, &json!({"hard_bytes": null, "soft_bytes": null, "target": "group:60125"}));
        assert_eq!(crew.fixture.account(DAN), None);
    });
}

#[test]
fn whichever_line_is_crossed_acts() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M", "--action", "term"]);
        crew.fixture.ok(&["limit", "set", "@plim-crew", "48M"]);
        crew.fixture.limit(ANN, "24M", &[]);
        let mut bens = crew.chill(BEN, 30);
        crew.hog(ANN).killed();
        assert_has(&crew.incident(), &json!({"account": "user:60120", "hard_bytes": 24 << 20}));
        assert!(bens.runs());
        // Each is under their own line, and both are over that of all.
        let mut anns = [crew.chill(ANN, 20)];
        let mut last = crew.fixture.workload(BEN, "chill", &["--mebibytes=17"]);
        wait_for("the largest of all is asked to end", || !bens.runs());
        let incident = until("it is told", support::SOON, || {
            let newest = crew.fixture.history().pop()?;
            (newest["account"] == "group:60125").then_some(newest)
        });
        assert_eq!((&incident["action"], &incident["victims"][0]["uid"]), (&json!("term"), &json!(BEN)));
        last.stage("ready");
        assert!(anns.iter_mut().all(Program::runs));
    });
}

#[test]
fn what_is_there_when_the_line_is_drawn_costs_nobody_anything_until_it_is_to_be_enforced() {
    in_a_crew("", |crew| {
        let mut before = [crew.chill(ANN, 40), crew.chill(BEN, 50)];
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let account = crew.account();
        assert!(account["effective_bytes"].as_u64().unwrap() >> 20 >= 90, "{account}");
        assert!(before.iter_mut().all(Program::runs));
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M", "--now"]);
        let [anns, bens] = &mut before;
        bens.killed();
        assert!(anns.runs());
        assert_has(&crew.account(), &json!({"effective_bytes": 64 << 20}));
        // And what goes with the line is held by none.
        crew.fixture.ok(&["limit", "clear", "group:plim-crew"]);
        let mut free = crew.chill(BEN, 90);
        assert!(anns.runs() && free.runs());
        assert_eq!(crew.fixture.accounts(), Vec::<Value>::new());
    });
}

#[test]
fn who_comes_to_be_a_member_brings_what_they_have_and_who_leaves_takes_it_away() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let mut all = [crew.chill(ANN, 20), crew.chill(DAN, 60)];
        let groups = fs::read_to_string("/etc/group").unwrap();
        let joined = groups.replace("plim-ann,plim-ben", "plim-ann,plim-ben,plim-dan");
        fs::write(crew.etc.path().join("group"), joined).unwrap();
        crew.fixture.reload();
        let account = crew.account();
        assert_eq!(account["processes"], 2, "{account}");
        assert!(account["effective_bytes"].as_u64().unwrap() >> 20 >= 80, "{account}");
        fs::write(crew.etc.path().join("group"), groups).unwrap();
        // The services have to say that they left.
        crew.fixture.reload();
        let account = crew.account();
        assert_eq!(account["processes"], 1, "{account}");
        crew.hog(BEN).killed();
        assert!(all.iter_mut().all(Program::runs));
    });
}

#[test]
fn it_holds_while_no_daemon_lives_and_the_next_one_goes_on_with_it() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let mut anns = crew.chill(ANN, 30);
        crew.fixture.end_daemon(Signal::KILL);
        crew.hog(BEN).killed();
        crew.fixture.launch();
        let account = crew.account();
        assert_has(&account, &json!({"hard_bytes": 64 << 20, "effective_bytes": 64 << 20, "processes": 1}));
        crew.hog(BEN).killed();
        assert!(anns.runs());
    });
}

#[test]
fn copies_that_children_make_of_what_they_inherited_are_charged_to_all() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let mut anns = crew.chill(ANN, 8);
        let mut bens = crew.fixture.python(
            BEN,
            "kept = bytearray(b'x') * (20 << 20)\n\
             for i in range(4):\n\
             \x20   if os.fork() == 0:\n\
             \x20       kept[::4096] = b'y' * len(kept[::4096])\n\
             \x20       say('copied')\n\
             \x20       time.sleep(600)\n\
             say('forked')\n\
             time.sleep(600)\n",
        );
        bens.stage("forked");
        let incident = crew.incident();
        assert_eq!(
            (&incident["account"], &incident["victims"][0]["uid"]),
            (&json!("group:60125"), &json!(BEN))
        );
        assert!(anns.runs());
    });
}

#[test]
fn a_member_may_draw_a_line_of_their_own_and_read_what_all_use() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let anns = |arguments: &[&str]| crew.fixture.run_as(ANN, arguments);
        let (status, told, _) = anns(&["limit", "set", "60120", "32M"]);
        assert_eq!(status, 0, "{told}");
        let (status, shown, _) = anns(&["limit", "show", "group:plim-crew", "--json"]);
        assert!(status == 0 && shown.contains("group:60125"), "{shown}");
        // What runs in it root sees, and a member what is theirs.
        let _both = [crew.chill(ANN, 2), crew.chill(BEN, 2)];
        let all = crew.fixture.json(&["limit", "show", "group:plim-crew", "--processes"]);
        let (_, theirs, _) = anns(&["limit", "show", "group:plim-crew", "--processes", "--json"]);
        let theirs: Value = serde_json::from_str(&theirs).unwrap();
        let users = |shown: &Value| {
            let listed = shown[0]["process_list"].as_array().unwrap().iter();
            listed.map(|one| one["uid"].as_u64().unwrap()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((users(&all), users(&theirs)), ([ANN, BEN].map(u64::from).into(), [ANN.into()].into()));
        let (status, _, refused) = crew.fixture.run_as(DAN, &["limit", "show", "group:plim-crew"]);
        assert_eq!((status, refused.contains("only its members and root")), (4, true), "{refused}");
        let (status, _, refused) = anns(&["limit", "set", "group:plim-crew", "1G"]);
        assert_eq!((status, refused.contains("only root may change it")), (4, true), "{refused}");
        crew.hog(ANN).killed();
        assert_has(&crew.incident(), &json!({"account": "user:60120", "hard_bytes": 32 << 20}));
    });
}

#[test]
fn the_configuration_draws_it_too() {
    const CONFIG: &str = "[limits.budgets]\nplim-crew = { hard = \"64M\", action = \"notify\" }\n";
    in_a_crew(CONFIG, |crew| {
        assert_has(&crew.account(), &json!({"hard_bytes": 64 << 20, "source": "config"}));
        let mut hog = crew.hog(BEN).filled();
        let incident = crew.incident();
        assert_has(&incident, &json!({"account": "group:60125", "action": "notify"}));
        assert!(hog.runs());
        assert!(crew.fixture.maps().account(Counted::Group(CREW)).unwrap().unwrap().kills == 0);
    });
}

#[test]
fn a_member_for_whom_there_was_no_account_costs_nobody_anything_when_there_is_one() {
    in_a_crew("[maps]\nmax_accounts = 3\n", |crew| {
        let mut before = [crew.chill(ANN, 30), crew.chill(BEN, 50)];
        crew.fixture.limit(DAN, "100M", &[]);
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        let used = |crew: &Crew| crew.account()["usage_bytes"].as_u64().unwrap() >> 20;
        // One of the two is charged.
        assert!((30..64).contains(&used(crew)), "{}", crew.account());
        crew.fixture.ok(&["limit", "clear", &DAN.to_string()]);
        assert!(used(crew) >= 80, "{}", crew.account());
        let account = crew.account();
        assert!(account["effective_bytes"].as_u64().unwrap() >> 20 >= 80, "{account}");
        assert!(before.iter_mut().all(Program::runs));
        assert_eq!(crew.fixture.history(), Vec::<Value>::new());
        // What was there is all that is let be.
        let mut hog = crew.hog(ANN);
        let [anns, bens] = &mut before;
        bens.killed();
        hog.killed();
        assert!(anns.runs());
    });
}

#[test]
fn nobody_is_granted_more_than_the_group_has_left() {
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M"]);
        crew.fixture.limit(ANN, "256M", &[]);
        let _bens = crew.chill(BEN, 40);
        let mut grants = crew.fixture.grants();
        let asks = crew.chill(ANN, 1);
        let space = space(&mut grants, asks.pid());
        granted(&grants, &space, pages(10 << 10));
        let refused = grants.reserve(&space, pages(20 << 10), Pages(0)).unwrap();
        assert!(
            matches!(refused, Reserved::Over(over) if over.whose == CREW.into() && over.hard == pages(64 << 10)),
            "{refused:?}"
        );
        let known = grants.accounts(Uid(ANN)).unwrap();
        let known: Vec<_> = known.iter().map(|one| (one.whose, one.hard, one.reserved)).collect();
        let reserved = pages(10 << 10);
        let group = (CREW.into(), pages(64 << 10), reserved);
        assert_eq!(known, [(Uid(ANN).into(), pages(256 << 10), reserved), group]);
    });
}

#[test]
fn programs_of_all_members_are_told_that_the_group_is_near() {
    const LISTEN: &str = "import socket\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\n\
        s.connect(os.path.join(os.path.dirname(os.environ['PLIMSOLL_SOCKET']), 'pressure.sock'))\n\
        say('ready')\n\
        say(s.recv(64).decode().strip())\n\
        time.sleep(600)\n";
    in_a_crew("", |crew| {
        crew.fixture.ok(&["limit", "set", "group:plim-crew", "64M", "--soft", "32M"]);
        let mut anns = crew.fixture.python(ANN, LISTEN).ready();
        let mut outside = crew.fixture.python(DAN, LISTEN).ready();
        let _bens = crew.chill(BEN, 50);
        anns.stage("near");
        assert!(crew.fixture.account(ANN).unwrap()["near"] == false && outside.runs());
    });
}
