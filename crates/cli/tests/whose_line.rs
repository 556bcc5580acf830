//! Whose line: groups, users and default, against a real daemon and the C library's own name services, which read a
//! `/etc/passwd` and `/etc/group` of the test's: bound over the machine's in a mount namespace of the test's thread.
#![cfg(test)]

mod support;

use nix::{
    mount::{MntFlags, umount2},
    sys::stat::Mode,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use support::{
    Fixture, SOON,
    apart::{apart, bind, etc},
    assert_has, until, wait_for,
};
use tempfile::TempDir;

/// In plim-crew.
const ANN: u32 = 60_120;
/// In plim-crew and plim-deck.
const BEN: u32 = 60_121;
/// plim-deck is their primary group.
const CAT: u32 = 60_122;
/// In neither.
const DAN: u32 = 60_123;

/// Of a directory, above what `default` is for, and in no group.
const EVE: u32 = 60_301;
/// The same, and nobody knows the name.
const NAMELESS: u32 = 60_302;

const GROUPS: &str = "plim-crew:x:60125:plim-ann,plim-ben\nplim-deck:x:60126:plim-ben\n";
const USERS: &str = "plim-ann:x:60120:60120::/:/bin/sh\nplim-ben:x:60121:60121::/:/bin/sh\n\
    plim-cat:x:60122:60126::/:/bin/sh\nplim-dan:x:60123:60123::/:/bin/sh\nplim-eve:x:60301:60301::/:/bin/sh\n";

/// The test's own lists of users and groups, and its daemon.
struct Place {
    etc: TempDir,
    fixture: Fixture,
}

impl Place {
    /// The groups besides the machine's own, from now on. Written in place: what is bound is the file.
    fn groups(&self, groups: &str) {
        let machines = fs::read_to_string(self.etc.path().join("machines-group")).unwrap();
        fs::write(self.etc.path().join("group"), format!("{machines}{groups}")).unwrap();
    }

    /// Nobody who looks for a group gets an answer until [`Place::unblock`].
    fn block(&self) {
        let pipe = self.etc.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        bind(&pipe, "/etc/group");
    }

    fn unblock(&self) {
        umount2("/etc/group", MntFlags::MNT_DETACH).unwrap();
    }

    /// The hard limit of a user in MiB and what it was drawn for.
    #[track_caller]
    fn line(&self, user: u32) -> Option<(u64, String)> {
        let account = self.fixture.account(user)?;
        let target = account["target"].as_str().unwrap().to_owned();
        Some((account["hard_bytes"].as_u64().unwrap() >> 20, target))
    }

    /// A hog of 96 MiB is killed.
    #[track_caller]
    fn assert_held(&self, user: u32) {
        self.fixture.workload(user, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    }
}

fn line(mebibytes: u64, target: &str) -> Option<(u64, String)> {
    Some((mebibytes, target.to_owned()))
}

/// Runs a test with lists of its own, or says why it cannot.
fn in_a_place(config: &'static str, body: fn(&mut Place)) {
    apart(move || {
        let [passwd, group] =
            ["passwd", "group"].map(|name| fs::read_to_string(Path::new("/etc").join(name)));
        let (passwd, group) = (passwd.unwrap() + USERS, group.unwrap());
        let etc = etc(&[("passwd", &passwd), ("group", &format!("{group}{GROUPS}"))]);
        fs::write(etc.path().join("machines-group"), group).unwrap();
        body(&mut Place { etc, fixture: fixture!(config) });
    });
}

#[test]
fn each_member_has_the_groups_line_alone_and_before_they_run_anything() {
    in_a_place("", |place| {
        let told = place.fixture.ok(&["limit", "set", "@plim-crew", "32M"]);
        assert_eq!(
            told,
            "@60125 (plim-crew): hard 32.0 MiB, soft 28.8 MiB, action kill; for each of 2 members without a line \
             of their own.\n"
        );
        for user in [ANN, BEN] {
            assert_eq!(place.line(user), line(32, "@60125"));
            assert_eq!(place.fixture.account(user).unwrap()["processes"], 0);
        }
        assert_eq!((place.line(CAT), place.line(DAN)), (None, None));
        // Not shared: together they are over it.
        let mut holding = [ANN, BEN].map(|user| place.fixture.workload(user, "chill", &["--mebibytes=24"]));
        holding.iter_mut().for_each(|program| drop(program.stage("ready")));
        place.assert_held(BEN);
        let incident = &place.fixture.incidents(1)[0];
        assert_has(incident, &json!({"account": "user:60121", "hard_bytes": 32 << 20}));
        assert!(holding[0].runs());
        let _free = place.fixture.workload(DAN, "bloat", &["--mebibytes=48", "--no-thp"]).filled();
        // The primary group counts too.
        place.fixture.ok(&["limit", "set", "@plim-deck", "40M"]);
        assert_eq!(place.line(CAT), line(40, "@60126"));
        place.assert_held(CAT);
    });
}

#[test]
fn a_users_line_comes_before_the_groups_and_the_groups_before_default() {
    const CONFIG: &str = "[limits]\nuid_max = 60999\n";
    in_a_place(CONFIG, |place| {
        place.fixture.ok(&["limit", "set", "default", "80M"]);
        assert_eq!(place.fixture.json(&["limit", "show", "default"])[0]["account"], "default");
        let mut here = place.fixture.workload(ANN, "chill", &["--mebibytes=4"]).ready();
        assert_eq!(place.line(ANN), line(80, "default"));
        place.fixture.ok(&["limit", "set", "@plim-crew", "48M"]);
        assert_eq!(place.line(ANN), line(48, "@60125"));
        place.fixture.limit(ANN, "64M", &[]);
        assert_eq!((place.line(ANN), place.line(BEN)), (line(64, "user:60120"), line(48, "@60125")));
        let usage = place.fixture.usage_pages(ANN);
        assert!(usage > 1024, "{usage}");
        place.fixture.ok(&["limit", "clear", &ANN.to_string()]);
        assert_eq!(place.line(ANN), line(48, "@60125"));
        place.assert_held(ANN);
        place.fixture.ok(&["limit", "clear", "@plim-crew"]);
        wait_for("Ann is under default again", || place.line(ANN) == line(80, "default") && here.runs());
        assert_eq!(place.line(BEN), line(80, "default"));
        place.assert_held(ANN);
    });
}

#[test]
fn of_two_groups_the_more_generous_line_counts() {
    in_a_place("", |place| {
        place.fixture.ok(&["limit", "set", "@plim-crew", "32M"]);
        place.fixture.ok(&["limit", "set", "@plim-deck", "48M"]);
        assert_eq!(place.line(BEN), line(48, "@60126"));
        place.assert_held(BEN);
        place.fixture.ok(&["limit", "set", "@60125", "64M", "--action", "term"]);
        assert_eq!(place.line(BEN), line(64, "@60125"));
        place.fixture.ok(&["limit", "clear", "@plim-crew"]);
        assert_eq!((place.line(BEN), place.line(ANN)), (line(48, "@60126"), None));
        let shown = place.fixture.json(&["limit", "show", "@plim-deck"]);
        let accounts: Vec<&Value> = shown.as_array().unwrap().iter().map(|entry| &entry["account"]).collect();
        assert_eq!(accounts, ["user:60121", "user:60122", "@60126"], "{shown}");
        assert_has(&shown[2], &json!({"members": 2, "doubt": null}));
    });
}

#[test]
fn whoever_leaves_the_group_loses_its_line_and_whoever_joins_gets_it() {
    in_a_place("", |place| {
        place.fixture.ok(&["limit", "set", "@plim-crew", "32M"]);
        let mut here = place.fixture.workload(ANN, "chill", &["--mebibytes=8"]).ready();
        place.groups("plim-crew:x:60125:plim-ben,plim-dan\nplim-deck:x:60126:\n");
        assert_eq!(place.line(ANN), line(32, "@60125"), "nothing was read again yet");
        place.fixture.reload();
        assert_eq!((place.line(ANN), place.line(DAN)), (None, line(32, "@60125")), "{}", place.fixture.log());
        let mut free = place.fixture.workload(ANN, "bloat", &["--mebibytes=48", "--no-thp"]).filled();
        place.assert_held(DAN);
        // A line drawn for anybody is reason enough to look whether the lists changed.
        place.groups(GROUPS);
        place.fixture.limit(CAT, "64M", &[]);
        assert_eq!((place.line(ANN), place.line(DAN)), (line(32, "@60125"), None));
        // What Ann has by now is more than that: it kills nothing.
        assert!(here.runs() && free.runs());
    });
}

#[test]
fn whoever_was_a_member_keeps_the_line_when_the_group_is_not_to_be_found() {
    in_a_place("", |place| {
        place.fixture.ok(&["limit", "set", "@plim-crew", "32M"]);
        place.fixture.end_daemon(Signal::TERM);
        // As when a directory server is not there yet after a boot.
        place.groups("");
        place.fixture.launch();
        let told = until("it is said", SOON, || {
            place
                .fixture
                .log()
                .lines()
                .find(|line| line.contains("no group has this number now"))
                .map(str::to_owned)
        });
        assert!(told.ends_with("2 members known before keep their line"), "{told}");
        for user in [ANN, BEN] {
            assert_eq!(place.line(user), line(32, "@60125"));
        }
        place.assert_held(ANN);
        assert!(
            place
                .fixture
                .ok(&["limit", "show"])
                .contains("Note: members of @60125: no group has this number now")
        );
        let groups = place.fixture.status()["groups"].clone();
        assert!(groups[0]["doubt"].as_str().unwrap().contains("2 members"), "{groups}");
        place.groups("plim-crew:x:60125:plim-ann\n");
        place.fixture.reload();
        assert_eq!((place.line(ANN), place.line(BEN)), (line(32, "@60125"), None));
        assert_eq!(place.fixture.status()["groups"][0]["doubt"], Value::Null);
    });
}

/// Whether the daemon's question to the name services is under way.
fn is_asking(daemon: u32) -> bool {
    let children = format!("/proc/{daemon}/task");
    let tasks = fs::read_dir(children).unwrap().filter_map(Result::ok).map(|task| task.path());
    let pids = tasks.filter_map(|task: PathBuf| fs::read_to_string(task.join("children")).ok());
    pids.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == b"look-up-names"))
}

#[test]
fn name_services_that_hang_delay_no_kill_and_take_nobodys_line() {
    in_a_place("", |place| {
        place.fixture.ok(&["limit", "set", "@plim-crew", "64M"]);
        // The largest sleeps, so the daemon itself has to find it when the other one crosses.
        let mut sleeper = place.fixture.workload(ANN, "chill", &["--mebibytes=40"]).ready();
        let mut crosser = place.fixture.python(
            ANN,
            "say('ready')\nhear()\nheld = bytearray(32 << 20)\nfor at in range(0, 32 << 20, 4096): held[at] = 1\n\
             say('full')\nhear()\n",
        ).ready();
        place.block();
        let before = place.fixture.log().lines().count();
        place.fixture.signal(Signal::HUP);
        wait_for("the name services are asked", || is_asking(place.fixture.daemon_pid()));
        let start = Instant::now();
        crosser.tell("go");
        sleeper.killed();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(is_asking(place.fixture.daemon_pid()), "the question had ended before the kill");
        crosser.stage("full");
        // Lines of users are drawn meanwhile, too.
        let start = Instant::now();
        place.fixture.limit(DAN, "32M", &[]);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        wait_for("it is said that they do not answer", || {
            let log = place.fixture.log();
            log.lines().skip(before).any(|line| line.contains("did not answer within 3 s"))
        });
        wait_for("the child is gone", || !is_asking(place.fixture.daemon_pid()));
        place.unblock();
        assert_eq!((place.line(ANN), place.line(BEN)), (line(64, "@60125"), line(64, "@60125")));
        assert!(place.fixture.status()["groups"][0]["doubt"].as_str().unwrap().contains("3 s"));
        place.fixture.reload();
        assert_eq!(place.fixture.status()["groups"][0]["doubt"], Value::Null);
    });
}

#[test]
fn the_configuration_draws_lines_for_groups_and_users_by_name() {
    const CONFIG: &str = "[limits.groups]\nplim-crew = { hard = \"32M\" }\n60126 = { hard = \"40M\", action = \"term\" }\n\
        [limits.users]\nplim-ann = { hard = \"48M\" }\n";
    in_a_place(CONFIG, |place| {
        assert_eq!(place.line(ANN), line(48, "user:60120"));
        assert_eq!((place.line(BEN), place.line(CAT)), (line(40, "@60126"), line(40, "@60126")));
        assert_eq!(place.fixture.account(BEN).unwrap()["source"], "config");
        place.fixture.ok(&["limit", "set", "@plim-deck", "24M"]);
        assert_eq!((place.line(BEN), place.line(CAT)), (line(32, "@60125"), line(24, "@60126")));
        assert_eq!(place.fixture.account(CAT).unwrap()["source"], "state");
        let (code, _, stderr) = place.fixture.run(&["limit", "clear", "@plim-crew"]);
        assert!(code == 1 && stderr.contains("the configuration still draws a line"), "{stderr}");
        let bad = "[limits.groups]\nplim-nobodys = { hard = \"32M\" }\n";
        place.fixture.configure(bad);
        place.fixture.reload();
        assert!(place.fixture.log().contains("[limits.groups] names 'plim-nobodys', which is no group here"));
        assert_eq!(place.line(BEN), line(32, "@60125"));
    });
}

#[test]
fn a_configured_name_that_nobody_answers_for_is_left_out_and_one_known_before_is_not() {
    in_a_place("", |place| {
        place.fixture.end_daemon(Signal::TERM);
        place.block();
        let config = "[limits.groups]\nplim-crew = { hard = \"32M\" }\n\
            [limits.users]\nplim-dan = { hard = \"48M\" }\n";
        place.fixture.configure(config);
        place.fixture.launch();
        assert_eq!((place.line(ANN), place.line(DAN)), (None, line(48, "user:60123")));
        let log = place.fixture.log();
        assert!(
            log.contains(
                "the configured line of '@plim-crew' is NOT in force: the name services did not answer"
            ),
            "{log}"
        );
        place.unblock();
        place.fixture.reload();
        assert_eq!(place.line(ANN), line(32, "@60125"));
        place.fixture.end_daemon(Signal::TERM);
        place.groups("");
        place.fixture.launch();
        assert_eq!(place.line(ANN), line(32, "@60125"));
        let log = place.fixture.log();
        assert!(log.contains("'plim-crew' is not known now and keeps its number 60125 of before"), "{log}");
        place.assert_held(ANN);
    });
}

#[test]
fn when_accounts_run_out_members_that_run_something_come_first_and_it_is_said() {
    in_a_place("[maps]\nmax_accounts = 2\n", |place| {
        place.groups("plim-crew:x:60125:plim-ann,plim-ben,plim-cat,plim-dan\n");
        let mut here = place.fixture.workload(DAN, "chill", &["--mebibytes=8"]).ready();
        place.fixture.ok(&["limit", "set", "@plim-crew", "32M"]);
        assert_eq!((place.line(DAN), place.line(ANN)), (line(32, "@60125"), line(32, "@60125")));
        assert_eq!((place.line(BEN), place.line(CAT)), (None, None));
        let said = "2 members of groups have no line: all accounts are in use";
        wait_for("it is said", || place.fixture.log().contains(said));
        place.assert_held(DAN);
        // A line by number, and that of a member who runs something, comes before those who run nothing.
        place.fixture.limit(CAT, "48M", &[]);
        assert_eq!((place.line(CAT), place.line(ANN)), (line(48, "user:60122"), None));
        here.stop();
        let _here = place.fixture.workload(BEN, "chill", &["--mebibytes=8"]).ready();
        place.fixture.reload();
        assert_eq!((place.line(BEN), place.line(DAN)), (line(32, "@60125"), None));
        place.assert_held(BEN);
        // Whoever leaves makes room.
        place.groups("plim-crew:x:60125:plim-ann\n");
        place.fixture.reload();
        assert_eq!((place.line(ANN), place.line(BEN)), (line(32, "@60125"), None));
    });
}

#[test]
fn a_member_lowers_the_own_line_below_the_groups_and_touches_not_the_groups() {
    in_a_place("", |place| {
        fs::set_permissions(place.etc.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        place.fixture.ok(&["limit", "set", "@plim-crew", "48M", "--action", "term"]);
        let fixture = &place.fixture;
        assert_eq!(fixture.run_as(ANN, &["limit", "set", "60120", "32M", "--action", "kill"]).0, 0);
        assert_eq!(place.line(ANN), line(32, "user:60120"));
        assert_eq!(fixture.account(ANN).unwrap()["set_by"], ANN);
        place.assert_held(ANN);
        for arguments in [
            &["limit", "set", "60120", "49M", "--action", "kill"][..],
            &["limit", "set", "60120", "32M", "--action", "notify"],
            &["limit", "set", "@plim-crew", "32M"],
            &["limit", "set", "@plim-crew", "32M", "--now"],
            &["limit", "clear", "@plim-crew"],
            &["limit", "show", "@plim-deck"],
        ] {
            let (code, stdout, stderr) = fixture.run_as(ANN, arguments);
            assert_eq!((code, stdout.as_str()), (4, ""), "{arguments:?}: {stderr}");
            assert!(stderr.starts_with("plimsoll: ") && stderr.matches('\n').count() == 1, "{stderr}");
        }
        assert_eq!(fixture.run_as(ANN, &["limit", "set", "60120", "48M", "--action", "term"]).0, 0);
        assert_eq!(fixture.run_as(ANN, &["limit", "clear", "60120"]).0, 0);
        assert_eq!(place.line(ANN), line(48, "@60125"));
        // The group's line is its members' to see, and nobody else's account with it.
        let (code, shown, stderr) = fixture.run_as(ANN, &["limit", "show", "@plim-crew", "--json"]);
        let shown: Value =
            serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{code} {error}: {stderr}"));
        let accounts: Vec<&Value> = shown.as_array().unwrap().iter().map(|entry| &entry["account"]).collect();
        assert_eq!(accounts, ["user:60120", "@60125"]);
        let (_, shown, _) = fixture.run_as(DAN, &["limit", "show", "--json"]);
        assert_eq!(shown.trim(), "[]");
        let (_, status, _) = fixture.run_as(DAN, &["status", "--json"]);
        assert_eq!(serde_json::from_str::<Value>(&status).unwrap()["groups"], json!([]));
    });
}

#[test]
fn what_is_wrong_with_a_groups_line_is_one_line_with_the_right_status() {
    in_a_place("", |place| {
        for (arguments, expected, named) in [
            (&["limit", "set", "@plim-nobodys", "1G"][..], 2, "plim-nobodys"),
            (&["limit", "show", "@plim-nobodys"], 2, "plim-nobodys"),
            (&["limit", "set", "@plim-crew", "0"], 2, "0"),
            (&["limit", "set", "@plim-crew", "999T"], 2, "RAM"),
            (&["limit", "set", "@4294967295", "1G"], 2, "4294967295"),
            (&["limit", "set", "@", "1G"], 2, "'@'"),
            (&["limit", "clear", "@plim-crew"], 1, "@plim-crew"),
        ] {
            let (code, stdout, stderr) = place.fixture.run(arguments);
            assert_eq!((code, stdout.as_str()), (expected, ""), "{arguments:?}: {stderr}");
            assert!(stderr.starts_with("plimsoll: ") && stderr.matches('\n').count() == 1, "{stderr}");
            assert!(stderr.contains(named), "{stderr}");
        }
        assert_eq!(place.fixture.json(&["limit", "show"]), json!([]));
        // A number needs no group, and that there is none is said.
        let told = place.fixture.ok(&["limit", "set", "@60129", "1G"]);
        assert!(
            told.contains("each of 0 members") && told.contains("no group has this number now"),
            "{told}"
        );
        place.fixture.ok(&["limit", "clear", "@60129"]);
        place.fixture.end_daemon(Signal::TERM);
        assert_eq!(place.fixture.run(&["limit", "set", "@plim-crew", "1G"]).0, 3);
        assert_eq!(place.fixture.run(&["limit", "set", "@plim-nobodys", "1G"]).0, 2);
    });
}

#[test]
fn who_has_no_line_for_a_uid_above_defaults_is_told_and_has_one_when_uid_max_is_raised() {
    in_a_place("[limits]\nuid_max = 60300\n", |place| {
        fs::set_permissions(place.etc.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let fixture = &place.fixture;
        let mut here = [EVE, NAMELESS].map(|user| fixture.workload(user, "chill", &["--mebibytes=8"]));
        here.iter_mut().for_each(|program| drop(program.stage("ready")));
        let mut free = fixture.workload(EVE, "bloat", &["--mebibytes=96", "--no-thp"]);
        assert!(!fixture.ok(&["status"]).contains("without a line"), "no default line, no word of it");
        fixture.ok(&["limit", "set", "default", "64M"]);
        free.fills();
        let told = "Note: without a line, and running something here: plim-eve (60301), 60302. default is for uids 1000 to \
                    60300; to include them, set limits.uid_max = 60302 and reload.\n";
        for arguments in [&["limit", "show"][..], &["limit", "show", "default"], &["status"]] {
            let shown = fixture.ok(arguments);
            assert!(shown.contains(told), "{arguments:?}: {shown}");
        }
        let users = json!([{"uid": 60301, "name": "plim-eve"}, {"uid": 60302, "name": null}]);
        assert_eq!(fixture.json(&["limit", "show", "default"])[0]["uncovered"], users);
        assert_eq!(fixture.status()["default"]["uncovered"], users);
        assert_eq!(fixture.json(&["doctor"])["default"]["uncovered"], users);
        // Users are told of themselves.
        let (_, shown, _) = fixture.run_as(EVE, &["limit", "show", "--json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown[0]["uncovered"], json!([{"uid": 60301, "name": "plim-eve"}]));
        let (_, shown, _) = fixture.run_as(DAN, &["limit", "show", "--json"]);
        assert_eq!(
            serde_json::from_str::<Value>(&shown).unwrap().as_array().unwrap().last().unwrap()["uncovered"],
            json!([])
        );
        // What they have by now kills them not, and holds them from here on.
        let config = "[limits]\nuid_max = 60400\n";
        fixture.configure(config);
        place.fixture.reload();
        assert_eq!((place.line(EVE), place.line(NAMELESS)), (line(64, "default"), line(64, "default")));
        assert!(free.runs() && here.iter_mut().all(|program| program.runs()));
        assert!(!place.fixture.ok(&["status"]).contains("without a line"));
        place.assert_held(NAMELESS);
    });
}
