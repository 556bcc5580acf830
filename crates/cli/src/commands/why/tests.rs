use super::{GetIncident, Incident, Reader, Told, tell, which};
use crate::exit::{Exit, Failure};
use serde_json::Value;

/// Scripts rely on it: fields may be added, not renamed.
#[test]
fn the_json_has_the_fields_that_scripts_rely_on() {
    let sample: Value = serde_json::from_str(include_str!("sample.json")).unwrap();
    let incident: Incident = serde_json::from_value(sample.clone()).unwrap();
    let story = tell(&incident, Some("alice"), Reader::User);
    assert_eq!(serde_json::to_value(Told { incident: &incident, story: &story }).unwrap(), sample);
}

#[test]
fn an_incident_is_named_by_number_by_process_or_as_the_last() {
    for (text, id, pid) in
        [("last", None, None), ("7", Some(7), None), ("pid:4001", None, Some(4001)), ("0", Some(0), None)]
    {
        assert_eq!(which(text).unwrap(), GetIncident { id, pid }, "{text}");
    }
}

#[test]
fn anything_else_is_bad_usage_in_one_line() {
    for text in [
        "",
        "first",
        "-1",
        "+7",
        "pid:",
        "pid:x",
        "pid:+7",
        "7.5",
        "99999999999999999999",
        "pid:4294967296",
        "\u{1b}[2J",
    ] {
        let Err(Failure::Told { exit, message }) = which(text) else { panic!("{text:?}") };
        assert_eq!(exit, Exit::Usage);
        assert!(!message.contains(['\n', '\u{1b}']), "{message}");
    }
}
