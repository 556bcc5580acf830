use super::parse;
use jiff::{Timestamp, tz::TimeZone};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn each_form_means_its_moment() {
    let now = at("2026-11-21T12:00:00Z");
    let east = TimeZone::fixed(jiff::tz::offset(2));
    for (text, expected) in [
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
        ("2026-11-21T08:00:00+02:00", "2026-11-21T06:00:00Z"),
        ("2026-11-21", "2026-11-20T22:00:00Z"),
        ("30s", "2026-11-21T11:59:30Z"),
        ("15m", "2026-11-21T11:45:00Z"),
        ("2h", "2026-11-21T10:00:00Z"),
        ("7d", "2026-11-14T12:00:00Z"),
        ("4w", "2026-10-24T12:00:00Z"),
        ("0s", "2026-11-21T12:00:00Z"),
    ] {
        assert_eq!(parse(text, now, &east), Ok(at(expected)), "{text}");
    }
}

#[test]
fn longer_ago_than_time_goes_back_is_the_beginning_of_time() {
    assert_eq!(parse("9999999w", at("2026-11-21T12:00:00Z"), &TimeZone::UTC), Ok(Timestamp::MIN));
}

#[test]
fn anything_else_is_refused_in_one_line_that_names_it() {
    for text in
        ["", "h", "-2h", "+2h", "2", "2x", "2.5h", "99999999999999999999h", "yesterday", "\u{1b}[2Jh", "2ħ"]
    {
        let error = parse(text, at("2026-11-21T12:00:00Z"), &TimeZone::UTC).unwrap_err().to_string();
        assert!(!error.contains(['\n', '\u{1b}']) && error.starts_with("time '"), "{error}");
    }
}
