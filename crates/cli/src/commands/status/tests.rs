use super::{duration, freed_for_others, not_running, show, without_a_daemon};
use crate::names::Names;
use plimsoll_api::{
    accounts::{AccountView, GroupView},
    status::{MapView, OthersView, ReapingView, Status},
};
use plimsoll_policy::{
    account::{Account, Action, Source},
    lines::Target,
    units::{Gid, Uid},
};
use serde_json::{Value, json};

pub(super) fn running() -> Status {
    let mut status = without_a_daemon();
    status.daemon = true;
    status.triggers.kernel = "on".to_owned();
    status.triggers.daemon = "on".to_owned();
    status.triggers.last_defence = "off: not in this version".to_owned();
    status.guards.limits.state = "on".to_owned();
    status.guards.limits.incidents = 12;
    status.guards.limits.last_incident = Some(12);
    status.guards.pressure.state = "on".to_owned();
    status.guards.pressure.dry_run = true;
    status.guards.own.uptime_seconds = Some(7_384);
    status.guards.own.resident_bytes = Some(9 << 20);
    status.guards.own.wake_ups = Some(1);
    status.pressure.mem_total_bytes = Some(8 << 30);
    status.pressure.mem_available_bytes = Some(4 << 30);
    status.pressure.term_at_mem_bytes = Some(800 << 20);
    status.pressure.term_at_swap_bytes = Some(0);
    status.kernel.release = Some("6.12.0".to_owned());
    status.kernel.attached = true;
    status.kernel.programs = vec!["rss_stat".to_owned(), "exit".to_owned()];
    status.kernel.pin = Some("/sys/fs/bpf/plimsoll".to_owned());
    status.kernel.records_dropped = Some(3);
    status.accounts = vec![AccountView {
        account: Account::User(Uid(0)),
        name: None,
        usage_bytes: 7 << 20,
        reserved_bytes: 0,
        shared_bytes: None,
        shared_files: Vec::new(),
        peak_bytes: None,
        soft_bytes: None,
        hard_bytes: Some(1 << 30),
        effective_bytes: Some(1 << 30),
        action: Action::Kill,
        near: false,
        processes: 3,
        source: Source::State,
        target: Some(Target::Members(Gid(0))),
        set_by: Some(Uid(0)),
        note: None,
        job: None,
        strict: None,
        process_list: None,
        process_list_more: None,
    }];
    status.groups = vec![GroupView {
        account: Target::Members(Gid(0)),
        name: None,
        hard_bytes: 1 << 30,
        soft_bytes: 900 << 20,
        action: Action::Kill,
        source: Source::State,
        members: 2,
        doubt: Some("the name services did not answer within 3 s".to_owned()),
    }];
    status
}

fn shown(status: &Status) -> String {
    let mut out = Vec::new();
    show(&mut out, status, &mut Names::default()).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn everything_is_said_in_plain_words() {
    let expected = "\
Plimsoll is running for 2 h 3 min, 9.0 MiB resident, woken 1 time.

TRIGGER       STATE
kernel        on
daemon        on
last-defence  off: not in this version

GUARD     STATE                          DYING  INCIDENTS  LAST
limits    on                                 0         12    12
pressure  on (dry run: sends no signal)      0          0     -

Memory: 4.0 GiB available of 8.0 GiB; swap not known.
  SIGTERM at 800.0 MiB available or less, when free swap is 0 bytes or less too.
Kernel: 6.12.0; attached: rss_stat, exit; pinned in /sys/fs/bpf/plimsoll.
Note: 3 records from the kernel were dropped (ring full).
Note: members of @root: the name services did not answer within 3 s.

ACCOUNT  NAME                USAGE       SOFT     HARD  IN FORCE  ACTION  PROCESSES  NEAR  FROM
user:0   root              7.0 MiB          -  1.0 GiB   1.0 GiB  kill            3  no    limit set, @root
@0       @root, 2 members        -  900.0 MiB  1.0 GiB         -  kill            -  -     limit set
";
    assert_eq!(shown(&running()), expected);
}

#[test]
fn how_others_kills_are_heard_of_is_told_where_it_is_known() {
    let mut status = running();
    assert!(!shown(&status).contains("Kills by"));
    status.guards.others = Some(OthersView {
        kernel: "on: told".to_owned(),
        programs: "none: nobody".to_owned(),
        ..OthersView::default()
    });
    let text = shown(&status);
    assert!(
        text.contains("Kills by the kernel: on: told.\nKills by other programs: none: nobody.\n"),
        "{text}"
    );
}

#[test]
fn who_kills_for_the_same_shortage_is_told_with_the_command_that_settles_it() {
    let mut status = running();
    let rivals = vec!["systemd-oomd.service".to_owned(), "earlyoom.service".to_owned()];
    status.guards.others = Some(OthersView { rivals, ..OthersView::default() });
    let told = "\nsystemd-oomd.service, earlyoom.service and the machine guard end programs for the same shortage. To \
        leave it to Plimsoll: systemctl mask --now systemd-oomd.service earlyoom.service\n";
    (status.guards.pressure.state, status.guards.pressure.dry_run) = ("on".to_owned(), false);
    assert!(shown(&status).contains(told), "{}", shown(&status));
    for (state, dry_run) in [("off", false), ("on", true)] {
        (status.guards.pressure.state, status.guards.pressure.dry_run) = (state.to_owned(), dry_run);
        assert!(!shown(&status).contains("mask"));
    }
}

#[test]
fn swap_is_told_where_there_is_any() {
    let mut status = running();
    status.pressure.swap_total_bytes = Some(0);
    assert!(shown(&status).contains("available of 8.0 GiB; no swap."));
    status.pressure.swap_total_bytes = Some(2 << 30);
    assert!(shown(&status).contains("; swap: not known free of 2.0 GiB."));
    status.pressure.swap_free_bytes = Some(1 << 30);
    assert!(shown(&status).contains("; swap: 1.0 GiB free of 2.0 GiB."));
}

#[test]
fn shared_memory_that_no_file_explains_is_named() {
    let mut status = running();
    status.pressure.shared_unexplained_bytes = Some((64 << 20) - 1);
    assert!(!shown(&status).contains("unexplained"));
    status.pressure.shared_unexplained_bytes = Some(64 << 20);
    let text = shown(&status);
    assert!(
        text.contains("Shared memory: 64.0 MiB are unexplained by any file, and charged to nobody."),
        "{text}"
    );
}

#[test]
fn no_account_says_what_to_do_and_a_full_map_is_told() {
    let mut status = running();
    status.accounts.clear();
    status.groups.clear();
    let map = MapView { name: "accounts".to_owned(), used: None, max: 1024, full: Some(2), bytes: None };
    status.kernel.maps = vec![map];
    let text = shown(&status);
    assert!(text.contains("plimsoll limit set USER 2G"), "{text}");
    assert!(text.contains("Note: map 'accounts' was full 2 times (it holds 1024)."), "{text}");
}

/// Scripts rely on it: fields may be added, not renamed.
#[test]
fn the_json_has_the_same_fields_with_and_without_a_daemon() {
    fn paths(at: &str, value: &Value, found: &mut Vec<String>) {
        found.push(at.to_owned());
        for (key, inner) in value.as_object().into_iter().flatten() {
            paths(&format!("{at}/{key}"), inner, found);
        }
    }
    let without = not_running().unwrap();
    let (mut with_fields, mut without_fields) = (Vec::new(), Vec::new());
    paths("", &serde_json::to_value(running()).unwrap(), &mut with_fields);
    paths("", &without, &mut without_fields);
    assert_eq!(with_fields, without_fields);
    for field in ["daemon", "triggers", "guards", "accounts", "pressure", "kernel"] {
        assert!(without.get(field).is_some(), "{field}");
    }
    for trigger in ["kernel", "daemon", "last-defence"] {
        assert!(without["triggers"][trigger].is_string(), "{trigger}");
    }
}

#[test]
fn without_a_daemon_nothing_unknown_is_a_number() {
    fn check(value: &Value) {
        assert!(!value.is_number() && *value != json!(true), "{value}");
        value.as_object().into_iter().flatten().for_each(|(_, inner)| check(inner));
    }
    let status = not_running().unwrap();
    check(&status);
    assert_eq!((&status["daemon"], &status["accounts"]), (&json!(false), &json!([])));
}

#[test]
fn spans_are_told_in_two_units_at_most() {
    for (seconds, text) in [(59, "59 s"), (60, "1 min"), (7_384, "2 h 3 min"), (200_000, "2 d 7 h")] {
        assert_eq!(duration(seconds), text);
    }
}

#[test]
fn what_victims_of_others_held_is_not_said_to_have_come_back() {
    let state = "victims of anybody's kill".to_owned();
    let mut out = Vec::new();
    freed_for_others(&mut out, &ReapingView { state, victims: 700, freed_bytes: 88 << 30, refused: 0 })
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "Freed from outside: victims of anybody's kill; 700 victims of others until now, which held 88.0 GiB.\n"
    );
}
