//! What tests of this part have in common.

use super::{Change, State, words};
use std::time::{Duration, Instant};

/// Waits until it holds, for so long that it would have.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_takes_a_while_is_told() {
    let state = |changing| State { changing, ..State::default() };
    assert_eq!(words(&state(Some(Change::Ending))), "ending");
    assert_eq!(words(&state(Some(Change::Starting))), "starting");
    assert_eq!(words(&state(None)), "off");
}
