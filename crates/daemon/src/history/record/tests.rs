use super::*;
use crate::history::tests::{HOSTILE, incident};
use plimsoll_policy::incident::{MachineSample, UsageSample};
use proptest::prelude::*;

fn line(incident: &Incident) -> Vec<u8> {
    let mut buffer = Vec::new();
    encode_incident(&mut buffer, &mut incident.clone()).unwrap();
    assert_eq!(buffer.pop(), Some(b'\n'));
    buffer
}

#[test]
fn a_line_looks_as_documented() {
    let mut buffer = Vec::new();
    let mut outcome = Outcome { id: 7, signal_to_freed_ns: Some(12), ..Outcome::default() };
    encode_outcome(&mut buffer, &mut outcome).unwrap();
    let body = "outcome 7 {\"id\":7,\"signal_to_freed_ns\":12,\"freed_bytes\":null}";
    // The checksum is what Python's zlib.crc32 says of the body.
    assert_eq!(String::from_utf8(buffer).unwrap(), format!("plimsoll1 f5c27c86 {body}\n"));
}

#[test]
fn hostile_names_come_back_as_they_were_and_stay_on_one_printable_line() {
    for name in HOSTILE {
        let mut before = incident(3);
        before.victims[0].comm = (*name).to_owned();
        before.victims[0].cmdline = Some((*name).to_owned());
        before.reason = (*name).to_owned();
        let line = line(&before);
        let text = std::str::from_utf8(&line).unwrap();
        let hazards = ['\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}'];
        assert!(!text.contains(char::is_control) && !text.contains(hazards), "{text}");
        assert_eq!(decode(&line), Ok(Record::Incident(Box::new(before))), "{name:?}");
    }
}

#[test]
fn no_single_bit_can_change_without_being_noticed() {
    let line = line(&incident(42));
    for at in 0..line.len() {
        for bit in 0..8 {
            let mut changed = line.clone();
            changed[at] ^= 1 << bit;
            decode(&changed).unwrap_err();
        }
    }
}

#[test]
fn no_shorter_line_is_taken_for_a_record() {
    let line = line(&incident(42));
    for length in 0..line.len() {
        decode(&line[..length]).unwrap_err();
    }
}

#[test]
fn a_newer_version_is_told_from_damage() {
    assert_eq!(decode(b"plimsoll2 whatever"), Err(RecordError::Future(2)));
    assert_eq!(decode(b"plimsoll18446744073709551615 "), Err(RecordError::Future(u64::MAX)));
    for malformed in [
        "",
        " ",
        "plimsoll",
        "plimsoll1",
        "plimsoll2",
        "plimsoll02 ",
        "plimsoll+1 ",
        "plimsoll1  ",
        "Plimsoll1 0 ",
    ] {
        assert_eq!(decode(malformed.as_bytes()), Err(RecordError::Malformed), "{malformed:?}");
    }
}

fn with_checksum(body: &str) -> Vec<u8> {
    format!("plimsoll1 {:08x} {body}", crc32fast::hash(body.as_bytes())).into_bytes()
}

#[test]
fn a_whole_line_with_the_wrong_content_is_refused() {
    let outcome = "{\"id\":7,\"signal_to_freed_ns\":null,\"freed_bytes\":null}";
    assert_eq!(decode(&with_checksum(&format!("rumour 7 {outcome}"))), Err(RecordError::UnknownKind));
    for id in ["0", "07", "-7", "9223372036854775808", "x", ""] {
        assert_eq!(decode(&with_checksum(&format!("outcome {id} {outcome}"))), Err(RecordError::Malformed));
    }
    for body in [format!("outcome 8 {outcome}"), "outcome 7 {}".to_owned(), format!("incident 7 {outcome}")] {
        assert!(matches!(decode(&with_checksum(&body)), Err(RecordError::Content(_))), "{body}");
    }
    assert!(
        decode(&with_checksum(&format!("outcome 7 {outcome}")))
            .is_ok_and(|record| matches!(record, Record::Outcome(_)))
    );
}

#[test]
fn fields_of_later_versions_do_not_hide_a_record() {
    let line = line(&incident(5));
    let json = std::str::from_utf8(check(&line).unwrap().json).unwrap();
    let more = json.replacen('{', "{\"weather\":[\"rain\"],", 1);
    let record = decode(&with_checksum(&format!("incident 5 {more}"))).unwrap();
    assert_eq!(record, Record::Incident(Box::new(incident(5))));
}

#[test]
fn ids_that_sqlite_cannot_hold_are_refused_and_leave_the_buffer_alone() {
    let mut buffer = b"before".to_vec();
    for id in [0, ID_MAX + 1, u64::MAX] {
        encode_incident(&mut buffer, &mut incident(id)).unwrap_err();
        encode_outcome(&mut buffer, &mut Outcome { id, ..Outcome::default() }).unwrap_err();
    }
    assert_eq!(buffer, b"before");
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
    let line = line(&huge);
    assert!(line.len() < RECORD_MAX_BYTES, "{}", line.len());
    let Ok(Record::Incident(kept)) = decode(&line) else { panic!("not an incident") };
    assert_eq!((kept.victims.len(), kept.peers.len()), (VICTIMS_MAX, 0));
    assert_eq!(
        (kept.id, kept.usage_bytes, kept.victims[0].pid),
        (huge.id, huge.usage_bytes, huge.victims[0].pid)
    );
}

#[test]
fn an_outcome_adds_what_it_knows_and_nothing_else() {
    let mut told = incident(1);
    (told.signal_to_freed_ns, told.freed_bytes) = (None, Some(5));
    Outcome { id: 1, signal_to_freed_ns: Some(3), ..Outcome::default() }.apply(&mut told);
    assert_eq!((told.signal_to_freed_ns, told.freed_bytes), (Some(3), Some(5)));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>, body: Vec<u8>, kind in "incident|outcome", id: u64) {
        prop_assert!(decode(&bytes).is_err());
        let mut content = format!("{kind} {id} ").into_bytes();
        content.extend_from_slice(&body);
        let mut line = format!("plimsoll1 {:08x} ", crc32fast::hash(&content)).into_bytes();
        line.extend_from_slice(&content);
        // Whole by its checksum, so that the JSON decoder gets to see it.
        prop_assert!(decode(&line).is_err());
    }

    #[test]
    fn every_text_comes_back_unless_it_was_too_long(comm in ".{0,16}", cmdline: Option<String>, reason: String) {
        let mut before = incident(9);
        before.victims[0].comm = comm;
        before.victims[0].cmdline = cmdline;
        before.reason = reason;
        prop_assert_eq!(decode(&line(&before)), Ok(Record::Incident(Box::new(before))));
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
    }
}

#[test]
fn records_of_before_there_was_a_course_are_read_as_without_one() {
    let json = serde_json::to_value(incident(7)).unwrap();
    let mut old = json.as_object().unwrap().clone();
    assert_eq!(old.remove("course"), Some(serde_json::Value::Null));
    let line = with_checksum(&format!("incident 7 {}", serde_json::Value::Object(old)));
    assert_eq!(decode(&line), Ok(Record::Incident(Box::new(incident(7)))));
}

#[test]
fn the_longest_course_there_can_be_fits_into_a_record_and_a_longer_one_loses_its_oldest_samples() {
    let mut whole = Incident { course: Some(course(400)), ..incident(3) };
    let line_of_whole = line(&whole);
    assert!(line_of_whole.len() < RECORD_MAX_BYTES / 2, "{}", line_of_whole.len());
    assert_eq!(decode(&line_of_whole), Ok(Record::Incident(Box::new(whole.clone()))));
    whole.course = Some(course(5000));
    let Ok(Record::Incident(cut)) = decode(&line(&whole)) else { panic!("it does not come back") };
    assert_eq!(cut.course, Some(course(400)));
    let mut buffer = Vec::new();
    let mut outcome = Outcome { id: 3, course: Some(course(5000)), ..Outcome::default() };
    encode_outcome(&mut buffer, &mut outcome).unwrap();
    assert!(buffer.len() < RECORD_MAX_BYTES / 2);
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
