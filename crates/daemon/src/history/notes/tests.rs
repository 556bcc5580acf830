use super::*;
use plimsoll_policy::units::{Pid, Uid};

fn incident(id: u64, pid: u32) -> Incident {
    Incident {
        id,
        time: "2026-11-21T08:00:00Z".parse().unwrap(),
        account: Some(Account::User(Uid(1000))),
        guard: Guard::Limits,
        trigger: Trigger::Daemon,
        action: Outcome::Kill,
        victims: vec![Victim {
            pid: Pid(pid),
            start_ns: 5,
            uid: Uid(1000),
            comm: "hog".to_owned(),
            cmdline: None,
            cgroup: None,
            usage_bytes: 4096,
            weight_permille: None,
            session: false,
            jobs: Vec::new(),
        }],
        usage_bytes: 8192,
        hard_bytes: Some(4096),
        overshoot_bytes: 4096,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: Some(1),
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: "over-hard-limit-selected".to_owned(),
        peers: Vec::new(),
        origin: None,
        compaction: None,
        course: None,
    }
}

fn found(standing: Standing, incident: &Incident) -> Found {
    Found { standing, bytes: serde_json::to_vec(&Draft::from(incident)).unwrap(), note: None }
}

fn victim(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 5 }
}

#[test]
fn a_draft_reads_back_as_the_incident_it_was_made_of() {
    let whole = incident(7, 42);
    let bytes = serde_json::to_vec(&Draft::from(&whole)).unwrap();
    assert_eq!(serde_json::from_slice::<Incident>(&bytes).unwrap(), whole);
}

#[test]
fn the_longest_name_and_reason_fit_into_a_note() {
    let mut whole = incident(u64::MAX, u32::MAX);
    whole.victims[0].comm = "\u{7f}".repeat(15);
    whole.reason = "over-hard-limit-only-protected-left".to_owned();
    let bytes = serde_json::to_vec(&Draft::from(&whole)).unwrap();
    assert!(bytes.len() <= NOTE_MAX_BYTES, "{}", bytes.len());
}

#[test]
fn what_was_done_is_known_and_so_is_an_intention_that_was_carried_out() {
    let notes = vec![
        found(Standing::Intended, &incident(11, 3)),
        found(Standing::Done, &incident(10, 1)),
        found(Standing::Intended, &incident(12, 2)),
    ];
    let inherited = Inheritance::of(notes, 10, |incident| incident.id == 12);
    assert_eq!(inherited.incident(victim(1), Outcome::Kill), Some(10));
    assert_eq!(inherited.incident(victim(2), Outcome::Kill), Some(12));
    assert_eq!(inherited.incident(victim(3), Outcome::Kill), None);
    assert_eq!(inherited.incident(victim(1), Outcome::Term), None);
}

#[test]
fn what_was_let_go_of_counts_where_the_store_has_it() {
    let notes = vec![found(Standing::LetGo, &incident(4, 1)), found(Standing::LetGo, &incident(5, 2))];
    let inherited = Inheritance::of(notes, 5, |_| true);
    assert_eq!(inherited.incident(victim(1), Outcome::Kill), Some(4));
    assert_eq!(inherited.incident(victim(2), Outcome::Kill), None);
}

#[test]
fn what_cannot_be_read_is_nothing() {
    let garbage = Found { standing: Standing::Done, bytes: b"{\"id\":1".to_vec(), note: None };
    let inherited = Inheritance::of(vec![garbage], 1, |_| true);
    assert!(inherited.untold.is_empty() && inherited.deeds.is_empty());
}
