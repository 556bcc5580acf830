use super::Written;
use plimsoll_sys::process::clock_monotonic_ns;
use serde_json::json;

#[test]
fn an_entry_says_when_it_was_written_and_journalctl_is_told_in_its_own_form() {
    let entry = json!({"__REALTIME_TIMESTAMP": "1795237152000042"});
    let written = Written::of(&entry).unwrap();
    assert_eq!(written.to_string(), "@1795237152.000042");
    assert_eq!(written.next().to_string(), "@1795237152.000043");
    for strange in
        [json!({}), json!({"__REALTIME_TIMESTAMP": 7}), json!({"__REALTIME_TIMESTAMP": "7 s"}), json!([])]
    {
        assert_eq!(Written::of(&strange), None, "{strange}");
    }
}

#[test]
fn what_is_written_now_was_at_this_moment_and_what_is_to_come_not_later() {
    let before = clock_monotonic_ns();
    let now = Written::now();
    let monotonic = now.monotonic();
    assert!(monotonic.0 <= clock_monotonic_ns());
    // To the microsecond; a clock that is set meanwhile would show here.
    assert!(monotonic.0 + 2_000 >= before, "{monotonic:?} {before}");
    let tomorrow = Written(now.0 + 86_400_000_000);
    assert!(tomorrow.monotonic().0 <= clock_monotonic_ns());
}
