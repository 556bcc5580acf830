use super::*;
use crate::history::tests::{HOSTILE, incident};
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
    let outcome = Outcome { id: 7, signal_to_freed_ns: Some(12), freed_bytes: None };
    encode_outcome(&mut buffer, &outcome).unwrap();
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
        encode_outcome(&mut buffer, &Outcome { id, signal_to_freed_ns: None, freed_bytes: None })
            .unwrap_err();
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
    Outcome { id: 1, signal_to_freed_ns: Some(3), freed_bytes: None }.apply(&mut told);
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
