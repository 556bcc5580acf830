use super::*;
use crate::history::tests::{HOSTILE, incident};
use plimsoll_policy::{
    incident::{MachineSample, UsageSample},
    units::Uid,
};
use proptest::prelude::*;

/// What comes back of an incident.
fn back(incident: Incident) -> Incident {
    let row = Row::of(incident).unwrap();
    let course = row.course.map(|course| serde_json::from_str(&course).unwrap());
    Incident { course, ..serde_json::from_str(&row.body).unwrap() }
}

#[test]
fn hostile_names_come_back_as_they_were() {
    for name in HOSTILE {
        let mut before = incident(3);
        before.victims[0].comm = (*name).to_owned();
        before.victims[0].cmdline = Some((*name).to_owned());
        before.reason = (*name).to_owned();
        assert_eq!(back(before.clone()), before, "{name:?}");
    }
}

#[test]
fn fields_of_later_versions_do_not_hide_an_incident() {
    let row = Row::of(incident(5)).unwrap();
    let more = row.body.replacen('{', "{\"weather\":[\"rain\"],", 1);
    assert_eq!(serde_json::from_str::<Incident>(&more).unwrap(), incident(5));
}

#[test]
fn ids_that_sqlite_cannot_hold_are_refused() {
    for id in [0, i64::MAX.unsigned_abs() + 1, u64::MAX] {
        assert!(matches!(Row::of(incident(id)), Err(HistoryError::Refused { .. })), "{id}");
    }
}

#[test]
fn an_incident_out_of_all_proportion_is_cut_down_to_what_fits() {
    let mut huge = incident(1);
    let name = "\u{202e}".repeat(2000);
    for text in [&mut huge.reason, &mut huge.victims[0].comm] {
        text.clone_from(&name);
    }
    huge.victims[0].cmdline = Some(name.clone());
    huge.victims[0].cgroup = Some(name);
    huge.victims = vec![huge.victims[0].clone(); 1000];
    huge.peers.clone_from(&huge.victims);
    let row = Row::of(huge.clone()).unwrap();
    assert!(row.bytes() <= ENTRY_MAX_BYTES, "{}", row.bytes());
    let kept: Incident = serde_json::from_str(&row.body).unwrap();
    assert_eq!((kept.victims.len(), row.victims.len(), kept.peers.len()), (VICTIMS_MAX, VICTIMS_MAX, 0));
    assert_eq!(
        (kept.id, kept.usage_bytes, kept.victims[0].pid),
        (huge.id, huge.usage_bytes, huge.victims[0].pid)
    );
    // What is cut down is not cut any further when an outcome completes it.
    assert_eq!(back(kept.clone()), kept);
}

#[test]
fn an_outcome_adds_what_it_knows_and_nothing_else() {
    let mut told = incident(1);
    (told.signal_to_freed_ns, told.freed_bytes) = (None, Some(5));
    Outcome { id: 1, signal_to_freed_ns: Some(3), ..Outcome::default() }.apply(&mut told);
    assert_eq!((told.signal_to_freed_ns, told.freed_bytes), (Some(3), Some(5)));
}

#[test]
fn who_pays_is_the_account_or_else_who_lost_the_process() {
    assert_eq!(payer(&incident(1)), incident(1).account);
    let mut theirs = Incident { account: None, ..incident(1) };
    theirs.victims[0].uid = Uid(60_009);
    assert_eq!(Row::of(theirs.clone()).unwrap().account.as_deref(), Some("user:60009"));
    theirs.victims.clear();
    assert_eq!(payer(&theirs), None);
}

proptest! {
    #[test]
    fn every_text_comes_back_unless_it_was_too_long(comm in ".{0,16}", cmdline: Option<String>, reason: String) {
        let mut before = incident(9);
        before.victims[0].comm = comm;
        before.victims[0].cmdline = cmdline;
        before.reason = reason;
        prop_assert_eq!(back(before.clone()), before);
    }
}

fn course(samples: i64) -> Course {
    let at = |second: i64| second * 1000;
    Course {
        account: (-samples..0)
            .map(|second| UsageSample {
                at_ms: at(second),
                usage_bytes: u64::MAX,
                line_bytes: Some(u64::MAX),
            })
            .collect(),
        machine: (-samples..0)
            .map(|second| MachineSample {
                at_ms: at(second),
                mem_available_bytes: Some(u64::MAX),
                anon_bytes: Some(u64::MAX),
                swap_free_bytes: Some(u64::MAX),
                some_permille: Some(1000),
                full_permille: Some(1000),
            })
            .collect(),
        mem_total_bytes: Some(u64::MAX),
        swap_total_bytes: Some(u64::MAX),
        trace: Some("\"x".repeat(32 << 10)),
    }
}

#[test]
fn incidents_of_before_there_was_a_course_are_read_as_without_one() {
    let json = serde_json::to_value(incident(7)).unwrap();
    let mut old = json.as_object().unwrap().clone();
    assert_eq!(old.remove("course"), Some(serde_json::Value::Null));
    assert_eq!(serde_json::from_value::<Incident>(old.into()).unwrap(), incident(7));
}

#[test]
fn the_longest_course_there_can_be_is_kept_and_a_longer_one_loses_its_oldest_samples() {
    let mut whole = Incident { course: Some(course(400)), ..incident(3) };
    let row = Row::of(whole.clone()).unwrap();
    assert!(row.bytes() < ENTRY_MAX_BYTES, "{}", row.bytes());
    assert_eq!(back(whole.clone()), whole);
    whole.course = Some(course(5000));
    assert_eq!(back(whole).course, Some(course(400)));
}

#[test]
fn an_outcome_goes_on_with_the_course() {
    let mut told = Incident { course: Some(course(2)), ..incident(1) };
    let after = UsageSample { at_ms: 900, usage_bytes: 1, line_bytes: None };
    let later = Course { account: vec![after], ..Course::default() };
    Outcome { id: 1, course: Some(later), ..Outcome::default() }.apply(&mut told);
    let account = told.course.unwrap().account;
    assert_eq!((account.len(), account[2]), (3, after));
    let mut without = incident(1);
    Outcome { id: 1, ..Outcome::default() }.apply(&mut without);
    assert_eq!(without, incident(1));
}
