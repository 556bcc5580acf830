use super::{is_choice, is_low};

#[test]
fn its_thresholds_at_start_are_not_taken_for_a_choice() {
    let meaning = |line| (is_low(line), is_choice(line));
    assert_eq!(meaning("sending SIGTERM when mem <= 99.00% and swap <= 100.00%,"), (false, false));
    assert_eq!(
        meaning("sending SIGKILL to process 11116 uid 0 \"cc1\": badness 675, VmRSS 333 MiB"),
        (false, true)
    );
    assert_eq!(meaning("low memory! at or below SIGKILL limits: mem 99.00%, swap 100.00%"), (true, false));
    assert_eq!(meaning("dryrun, not actually sending any signal"), (false, false));
}
