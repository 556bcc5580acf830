use super::{Said, meaning};

#[test]
fn its_thresholds_at_start_are_not_taken_for_a_choice() {
    assert_eq!(meaning("sending SIGTERM when mem <= 99.00% and swap <= 100.00%,"), Said::Other);
    assert_eq!(
        meaning("sending SIGKILL to process 11116 uid 0 \"cc1\": badness 675, VmRSS 333 MiB"),
        Said::Chosen
    );
    assert_eq!(meaning("low memory! at or below SIGKILL limits: mem 99.00%, swap 100.00%"), Said::Low);
    assert_eq!(meaning("dryrun, not actually sending any signal"), Said::Other);
}
