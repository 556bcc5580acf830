use super::{COLUMNS, Told, brief, screen};
use crate::names::Names;
use jiff::tz::TimeZone;
use plimsoll_api::accounts::{AccountView, JobView, ProcessView};
use plimsoll_policy::{
    account::{Account, Action, Source},
    incident::{Incident, Victim},
    lines::Target,
    units::{Gid, JobId, Pid, Uid},
};

const ALICE: Uid = Uid(60_789);

fn view() -> AccountView {
    AccountView {
        account: Account::User(ALICE),
        name: None,
        usage_bytes: 412 << 20,
        reserved_bytes: 0,
        shared_bytes: None,
        shared_files: Vec::new(),
        peak_bytes: Some(0),
        soft_bytes: Some(1_843 << 20),
        hard_bytes: Some(2 << 30),
        effective_bytes: Some(2 << 30),
        action: Action::Kill,
        near: false,
        processes: 12,
        source: Source::Config,
        target: Some(Target::Default),
        set_by: Some(Uid(0)),
        note: None,
        job: None,
        strict: None,
        process_list: None,
        process_list_more: None,
    }
}

fn group(gid: u32, usage_bytes: u64) -> AccountView {
    AccountView { account: Account::Group(Gid(gid)), usage_bytes, hard_bytes: Some(4 << 30), ..view() }
}

fn job(id: u32, waits: bool) -> AccountView {
    let job = JobView {
        uid: ALICE,
        outer: None,
        pid: Some(Pid(1)),
        start_ns: Some(1),
        orphans: Some(0),
        promised_bytes: None,
        waits,
    };
    AccountView { account: Account::Job(JobId(id)), job: Some(job), ..view() }
}

fn process(pid: u32, comm: &str) -> ProcessView {
    ProcessView {
        pid: Pid(pid),
        start_ns: 1,
        uid: ALICE,
        comm: comm.to_owned(),
        charged_bytes: Some(300 << 20),
        anon_bytes: 301 << 20,
        swap_bytes: 0,
        shared_bytes: 0,
        file_bytes: 8 << 20,
        error_bytes: 0,
    }
}

fn incident(id: u64, pid: u32, comm: &str) -> Incident {
    let sample: Incident =
        serde_json::from_str(include_str!("../../../../policy/src/incident/sample.json")).unwrap();
    let victims = vec![Victim { pid: Pid(pid), comm: comm.to_owned(), ..sample.victims[0].clone() }];
    let time = "2026-11-21T12:00:00.5Z".parse().unwrap();
    let reason = "over-hard-limit-largest".to_owned();
    Incident {
        id,
        time,
        account: Some(Account::User(ALICE)),
        victims,
        usage_bytes: 2 << 30,
        reason,
        ..sample
    }
}

fn told(line: Option<AccountView>, incidents: Vec<Incident>) -> Told {
    let since = "2026-10-22T12:00:00Z".parse().unwrap();
    Told {
        account: Account::User(ALICE),
        name: Some("alice".to_owned()),
        line,
        groups: Vec::new(),
        jobs: Vec::new(),
        since,
        incidents,
    }
}

fn shown(told: &Told) -> String {
    screen(told, &TimeZone::fixed(jiff::tz::offset(1)), &mut Names::default())
}

#[test]
fn a_user_sees_line_usage_peak_processes_and_what_was_killed_and_why() {
    let line = AccountView {
        peak_bytes: Some(2_040 << 20),
        process_list: Some(vec![process(4001, "hog"), process(12, "\\x1b[2Jx")]),
        ..view()
    };
    let expected = "\
alice: 412.0 MiB used of 2.0 GiB (20 %), in 12 processes.
[##########........................................]
Line:    2.0 GiB (soft 1.8 GiB); crossing it kills the largest process.
From:    configuration, default.
Peak:    2.0 GiB.

 PID    CHARGED  ANONYMOUS  SWAPPED  LARGEST
4001  300.0 MiB  301.0 MiB  0 bytes  \"hog\"
  12  300.0 MiB  301.0 MiB  0 bytes  \"\\x1b[2Jx\"

The last in 30 days:
ID  TIME                 DONE    USAGE  PROCESS
 8  2026-11-21 13:00:00  kill  2.0 GiB  4002 \"hog\"
 7  2026-11-21 13:00:00  kill  2.0 GiB  4001 \"x\"
8: The process whose allocation crossed the hard limit was also the account's
largest, so it was killed in that very event. ('plimsoll why 8' tells more.)
";
    assert_eq!(shown(&told(Some(line), vec![incident(7, 4001, "x"), incident(8, 4002, "hog")])), expected);
}

#[test]
fn where_no_line_is_drawn_and_nothing_was_killed_it_says_so() {
    let expected = "\
alice: no line is drawn, so usage is not counted.
Root draws one with: plimsoll limit set alice 2G

Nothing of alice's was killed or refused in the last 30 days.
";
    assert_eq!(shown(&told(None, Vec::new())), expected);
}

#[test]
fn a_peak_that_nobody_kept_is_not_made_up() {
    for (peak, expected) in [
        (None, "Peak:    not known."),
        (Some(0), "Peak:    412.0 MiB at least; it is kept from the soft limit on."),
        (Some(1 << 30), "Peak:    1.0 GiB at least; it is kept from the soft limit on."),
        (Some(1_843 << 20), "Peak:    1.8 GiB."),
    ] {
        let text = shown(&told(Some(AccountView { peak_bytes: peak, ..view() }), Vec::new()));
        assert!(text.contains(expected), "{peak:?}: {text}");
    }
}

#[test]
fn all_there_can_be_fits_a_screen() {
    let line = AccountView {
        usage_bytes: 3 << 30,
        effective_bytes: Some(3 << 30),
        shared_bytes: Some(1 << 20),
        reserved_bytes: 1 << 20,
        near: true,
        process_list: Some((4_194_301..4_194_304).map(|pid| process(pid, "fifteen-letters")).collect()),
        set_by: Some(ALICE),
        target: Some(Target::User(ALICE)),
        ..view()
    };
    let longest = |id| Incident {
        reason: "over-hard-limit-allocating".to_owned(),
        ..incident(id, 4_194_303, "fifteen-letters")
    };
    let told = Told {
        groups: vec![group(60_900, 3 << 30), group(60_901, 1 << 30)],
        jobs: vec![job(7, false), job(8, true), job(9, true)],
        ..told(Some(line), (99_997..=99_999).map(longest).collect())
    };
    let text = shown(&told);
    assert!(text.lines().count() < 24, "{} lines:\n{text}", text.lines().count());
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    for line in [
        "\nNow:     3.0 GiB is in force",
        "\nBesides: 1.0 MiB are shared memory; 1.0 MiB more granted and not used.\n",
        "\nGroup:   group:60900: 3.0 GiB used of 4.0 GiB (75 %) by all; 1 group more.\n",
        "\nJobs:    1 runs, 2 wait; see 'plimsoll jobs'.\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn a_user_without_a_line_sees_their_jobs_and_their_groups_line() {
    let told =
        Told { groups: vec![group(60_900, 3 << 30)], jobs: vec![job(7, false)], ..told(None, Vec::new()) };
    let text = shown(&told);
    let expected = "Root draws one with: plimsoll limit set alice 2G\n\
                    Group:   group:60900: 3.0 GiB used of 4.0 GiB (75 %) by all.\n\
                    Jobs:    1 runs; see 'plimsoll jobs'.\n\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_brief_form_is_one_line() {
    let zone = TimeZone::UTC;
    let nothing = brief(&told(Some(view()), Vec::new()), &zone);
    assert_eq!(
        nothing,
        "Memory of alice: 412.0 MiB used of 2.0 GiB (20 %); nothing killed or refused in 30 days."
    );
    let killed = brief(&told(None, vec![incident(7, 4001, "a\nb")]), &zone);
    assert_eq!(
        killed,
        "Memory of alice: no line is drawn; last incident 2026-11-21 12:00: kill 4001 \"a\\nb\", see 'plimsoll why 7'."
    );
}
