use super::*;

#[test]
fn a_time_has_a_unit_or_is_seconds_and_is_not_for_ever() {
    for (text, seconds) in [("30s", 30), ("30", 30), ("5m", 300), ("1h", 3600), ("7d", 604_800)] {
        assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
    }
    for text in ["", "0", "s", "8d", "-1s", "1.5s", "99999999999999999999s", "\u{1b}[2J"] {
        let wrong = time(text).unwrap_err();
        assert!(wrong.contains("30s") && !wrong.contains('\u{1b}'), "{wrong}");
    }
}
