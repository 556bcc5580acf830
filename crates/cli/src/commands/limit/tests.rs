use super::{SetArguments, doubts, fill_in, list, request, show, soft_size, table};
use crate::{
    exit::{Exit, Failure},
    names::Names,
};
use plimsoll_api::accounts::{AccountProcesses, AccountView, DefaultView, GroupView, ProcessView, UserView};
use plimsoll_api::message::Limits;
use plimsoll_policy::{
    account::{Account, Action, Source},
    lines::Target,
    size::Size,
    units::{Gid, Pid, Uid},
};
use serde_json::{Value, json};

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

fn set(who: &str, hard: &str) -> SetArguments {
    SetArguments { who: who.into(), hard: hard.into(), soft: None, action: None, now: false, json: false }
}

fn view(uid: u32) -> AccountView {
    AccountView {
        account: Account::User(Uid(uid)),
        name: None,
        usage_bytes: 7 << 20,
        reserved_bytes: 0,
        shared_bytes: None,
        shared_files: Vec::new(),
        peak_bytes: None,
        soft_bytes: Some(900 << 20),
        hard_bytes: Some(1 << 30),
        effective_bytes: Some(1 << 30),
        action: Action::Kill,
        near: false,
        processes: 3,
        source: Source::State,
        target: Some(Target::User(Uid(uid))),
        set_by: Some(Uid(0)),
        note: None,
        job: None,
        strict: None,
        process_list: None,
        process_list_more: None,
    }
}

fn root_group(doubt: Option<&str>) -> GroupView {
    GroupView {
        account: Target::Members(Gid(0)),
        name: None,
        hard_bytes: 3 << 30,
        soft_bytes: 2 << 30,
        action: Action::Notify,
        source: Source::State,
        members: 2,
        doubt: doubt.map(str::to_owned),
    }
}

fn stray(uid: u32) -> UserView {
    UserView { uid: Uid(uid), name: None }
}

fn limits() -> Limits {
    let near = AccountView { near: true, processes: 1, source: Source::Config, ..view(60_789) };
    let default = DefaultView {
        hard: size("25%"),
        hard_bytes: 2 << 30,
        soft_bytes: 1 << 30,
        action: Action::Term,
        source: Source::Config,
        uid_min: 1000,
        uid_max: 60_000,
        uncovered: vec![stray(60_789), stray(100_789), stray(62_000_789)],
    };
    Limits { accounts: vec![view(0), near], groups: vec![root_group(None)], default: Some(default) }
}

#[test]
fn a_soft_percentage_is_of_the_hard_limit_and_a_size_is_a_size() {
    for (soft, hard, expected) in [
        ("80%", "1000", "800"),
        ("80%", "999", "799"),
        ("100%", "1G", "1G"),
        ("80%", "25%", "20%"),
        ("33.33%", "10%", "3.33%"),
        ("512M", "1G", "512M"),
        ("512M", "25%", "512M"),
    ] {
        assert_eq!(soft_size(soft, size(hard)).unwrap(), size(expected), "{soft} of {hard}");
    }
}

#[test]
fn everything_given_is_in_the_call_and_what_is_not_is_left_to_the_daemon() {
    let plain = request(&set("60789", "512M")).unwrap();
    assert_eq!(serde_json::to_value(plain).unwrap(), json!({"who": "user:60789", "hard": "512M"}));
    let all = SetArguments {
        soft: Some("50%".into()),
        action: Some("term".into()),
        now: true,
        ..set("default", "25%")
    };
    let expected = json!({"who": "default", "hard": "25%", "soft": "12.5%", "action": "term", "now": true});
    let call = request(&all).unwrap();
    assert_eq!((serde_json::to_value(&call).unwrap(), call.who), (expected, Target::Default));
}

#[test]
fn bad_input_is_bad_usage_in_one_line_and_an_unknown_user_a_failure() {
    let soft = |soft: &str| SetArguments { soft: Some(soft.into()), ..set("0", "1G") };
    for (arguments, expected, named) in [
        (set("root", "12Q"), Exit::Usage, "12Q"),
        (set("root", ""), Exit::Usage, "nothing given"),
        (set("root", "-1"), Exit::Usage, "negative"),
        (set("root", "101%"), Exit::Usage, "101%"),
        (soft("x"), Exit::Usage, "'x'"),
        (
            soft("120%"),
            Exit::Usage,
            "soft limit '120%': above the hard limit 1G, of which it is a share; give at most 100%",
        ),
        (soft("100.01%"), Exit::Usage, "above the hard limit 1G"),
        (soft("99999999999999999999999999999999999999999%"), Exit::Usage, "above the hard limit 1G"),
        (set("@nogroup-of-that-name", "1G"), Exit::Usage, "nogroup-of-that-name"),
        (set("@4294967295", "1G"), Exit::Usage, "gid '4294967295'"),
        (set("job:x", "1G"), Exit::Usage, "job:x"),
        (set("4294967295", "1G"), Exit::Usage, "4294967295"),
        (set("nobody-of-that-name", "1G"), Exit::Failed, "nobody-of-that-name"),
    ] {
        let Err(Failure::Told { exit, message }) = request(&arguments) else { panic!("{arguments:?}") };
        assert_eq!(exit, expected, "{message}");
        assert!(message.contains(named) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn the_table_is_aligned_and_says_where_each_line_comes_from() {
    let mut out = Vec::new();
    let limits = limits();
    list(&mut out, &limits, &mut Names::default()).unwrap();
    let expected = "\
ACCOUNT     NAME                USAGE       SOFT     HARD  IN FORCE  ACTION  PROCESSES  NEAR  FROM
user:0      root              7.0 MiB  900.0 MiB  1.0 GiB   1.0 GiB  kill            3  no    limit set
user:60789  -                 7.0 MiB  900.0 MiB  1.0 GiB   1.0 GiB  kill            1  near  configuration
@0          @root, 2 members        -    2.0 GiB  3.0 GiB         -  notify          -  -     limit set
default     uids 1000-60000         -    1.0 GiB  2.0 GiB         -  term            -  -     configuration
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Scripts rely on it: fields may be added, not renamed.
#[test]
fn every_entry_of_the_json_list_has_the_fields_scripts_rely_on() {
    let list = serde_json::to_value(show::entries(&limits(), &mut Names::default())).unwrap();
    let sample: Value = serde_json::from_str(include_str!("sample.json")).unwrap();
    assert_eq!(list, sample);
}

#[test]
fn who_has_no_line_for_a_uid_above_is_told_with_the_setting_and_containers_uids_are_not() {
    let told = |users: &[u32]| {
        let uncovered = users.iter().copied().map(stray).collect();
        let line = DefaultView { uncovered, ..limits().default.unwrap() };
        let mut out = Vec::new();
        show::uncovered(&mut out, Some(&line), &mut Names::default()).unwrap();
        String::from_utf8(out).unwrap()
    };
    // Root is a user with a name, wherever these tests run.
    assert_eq!(
        told(&[60_789, 0, 100_789]),
        "Note: without a line, and running something here: 60789, root (0). default is for uids 1000 to 60000; to \
         include them, set limits.uid_max = 60789 and reload.\n"
    );
    assert_eq!((told(&[]), told(&[100_789, 1_234_000_789])), (String::new(), String::new()));
    let many = told(&[60_701, 60_702, 60_703, 60_704, 60_705, 60_706, 60_707]);
    assert!(many.contains("60705, 2 more. default") && many.contains("uid_max = 60707"), "{many}");
}

#[test]
fn a_line_below_usage_is_explained() {
    let above = AccountView { usage_bytes: 3 << 30, effective_bytes: Some(3 << 30), processes: 1, ..view(0) };
    let told = show::sentences(
        &Limits { accounts: vec![above], groups: vec![], default: None },
        &mut Names::default(),
    );
    assert_eq!(
        told,
        [
            "user:0 (root): hard 1.0 GiB, soft 900.0 MiB, action kill; usage 3.0 GiB in 1 process. Usage is above it: \
          3.0 GiB is in force until usage falls; enforce it at once with --now."
        ]
    );
    let told = show::sentences(&Limits { groups: vec![], ..limits() }, &mut Names::default());
    assert!(!told[0].contains("--now"), "{told:?}");
    assert!(
        told[2].starts_with("default: hard 2.0 GiB") && told[2].contains("uids 1000 to 60000"),
        "{told:?}"
    );
}

#[test]
fn a_groups_line_is_told_as_the_groups_with_what_is_not_known() {
    let drawn = |doubt| Limits { groups: vec![root_group(doubt)], default: None, ..limits() };
    let known = "@0 (root): hard 3.0 GiB, soft 2.0 GiB, action notify; for each of 2 members without a line of their own.";
    assert_eq!(show::sentences(&drawn(None), &mut Names::default()), [known]);
    let doubted = format!("{known} Not all is known: they are silent.");
    assert_eq!(show::sentences(&drawn(Some("they are silent")), &mut Names::default()), [doubted]);
    let mut out = Vec::new();
    doubts(&mut out, &drawn(Some("they are silent")).groups, &mut Names::default()).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "Note: members of @root: they are silent.\n");
}

#[test]
fn every_account_says_through_whom_it_has_its_line() {
    let through = |target, set_by| AccountView { target, set_by, ..view(60_789) };
    let accounts = vec![
        through(Some(Target::User(Uid(60_789))), Some(Uid(0))),
        through(Some(Target::User(Uid(60_789))), Some(Uid(60_789))),
        through(Some(Target::Members(Gid(0))), Some(Uid(0))),
        through(Some(Target::Members(Gid(60_789))), Some(Uid(0))),
        through(Some(Target::Default), Some(Uid(0))),
        through(None, None),
    ];
    let mut out = Vec::new();
    list(&mut out, &Limits { accounts, groups: vec![], default: None }, &mut Names::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let from: Vec<_> = text.lines().skip(1).map(|line| line.split_once("no    ").unwrap().1).collect();
    assert_eq!(
        from,
        [
            "limit set",
            "limit set, by the user",
            "limit set, @root",
            "limit set, @60789",
            "limit set, default",
            "limit set"
        ]
    );
}

fn process(pid: u32, comm: &str, error_bytes: u64) -> ProcessView {
    ProcessView {
        pid: Pid(pid),
        start_ns: 5,
        uid: Uid(60_789),
        comm: comm.to_owned(),
        charged_bytes: (error_bytes == 0).then_some(3 << 20),
        anon_bytes: 4 << 20,
        swap_bytes: 1 << 20,
        shared_bytes: 0,
        file_bytes: 2 << 20,
        error_bytes,
    }
}

#[test]
fn processes_are_told_with_how_exact_and_how_many_more_there_are_and_no_name_can_act_on_the_terminal() {
    let account = |uid| Account::User(Uid(uid));
    let found = [
        AccountProcesses { account: account(1), processes: vec![process(4001, "\u{1b}[2Jx\n", 0)], more: 12 },
        AccountProcesses { account: account(2), processes: vec![process(7, "old", 1 << 20)], more: 0 },
        AccountProcesses { account: account(3), processes: vec![], more: 0 },
    ];
    let mut out = Vec::new();
    table(&mut out, &found).unwrap();
    let expected = r#"
ACCOUNT   PID  NAME            CHARGED  ANONYMOUS   SWAPPED    SHARED     FILES
user:1   4001  "\u{1b}[2Jx\n"  3.0 MiB    4.0 MiB   1.0 MiB   0 bytes   2.0 MiB
user:2      7  "old"                 -   ~4.0 MiB  ~1.0 MiB  ~0 bytes  ~2.0 MiB
Note: user:1: 12 more, smaller ones; --json has up to a thousand of all accounts.
Note: counts that begin with ~ may be off by up to 1.0 MiB.
"#;
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    // In JSON each stands in its account.
    let mut accounts = [view(2), view(9)];
    fill_in(&mut accounts, found.to_vec());
    let json = serde_json::to_value(&accounts).unwrap();
    assert_eq!(json[0]["process_list"][0]["pid"], 7);
    assert_eq!(json[1].get("process_list"), None);
}
