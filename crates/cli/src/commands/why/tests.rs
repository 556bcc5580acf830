use super::{GetIncident, which};
use crate::exit::{Exit, Failure};

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
