//! What `make test` counts: the last lines it prints, and whether it fails.
#![cfg(test)]

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// The summary of this log and whether it says success.
fn summary(log: &str) -> (String, bool) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/summary.awk");
    let mut awk = Command::new("awk")
        .args(["-f", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    awk.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = awk.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

fn told(log: &str, line: &str, success: bool) {
    // Marked, so that a failure here is not counted as what it talks about.
    let shown = log.replace("\n", "\n| ");
    let (text, succeeded) = summary(log);
    assert_eq!((text.lines().last(), succeeded), (Some(line), success), "for this log:\n| {shown}");
}

const TWO_BINARIES: &str = "\
plimsoll-check: rustfmt: passed after 4 s
plimsoll-suite: unit: begin
     Running unittests src/lib.rs (target/debug/deps/a-0)
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
     Running unittests src/lib.rs (target/debug/deps/b-0)
test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
plimsoll-suite: unit: exit 0 after 41 s
plimsoll-suite: doc: begin
   Doc-tests a
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
plimsoll-suite: doc: exit 0 after 12 s
";

#[test]
fn checks_and_tests_are_added_up() {
    told(TWO_BINARIES, "16 passed, 0 failed", true);
}

#[test]
fn a_failed_test_fails_the_run() {
    let log = TWO_BINARIES
        .replace("ok. 7 passed; 0 failed", "FAILED. 6 passed; 1 failed")
        .replace("exit 0", "exit 101");
    // The doc suite ended badly too, without a failed test: that counts as one.
    told(&log, "15 passed, 2 failed", false);
}

#[test]
fn a_failed_check_fails_the_run() {
    told(&TWO_BINARIES.replace("rustfmt: passed", "rustfmt: failed"), "15 passed, 1 failed", false);
}

#[test]
fn what_does_not_compile_fails_the_run() {
    let log = "plimsoll-suite: unit: begin\nerror: could not compile `a`\nplimsoll-suite: unit: exit 101 after 3 s\n";
    told(log, "0 passed, 1 failed", false);
}

#[test]
fn a_binary_that_dies_without_totals_fails_the_run() {
    let result =
        "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
    told(&TWO_BINARIES.replacen(result, "", 1), "11 passed, 1 failed", false);
    let last = TWO_BINARIES.replace("exit 0", "exit 101").replacen(result, "", 1);
    told(&last, "11 passed, 2 failed", false);
}

#[test]
fn a_test_that_says_it_was_skipped_is_not_counted_as_passed() {
    let skipped = "---- a stdout ----\nSKIPPED: root: no\nSKIPPED: root: no\ntest result: ok. 5";
    let log = TWO_BINARIES.replacen("test result: ok. 5", skipped, 1);
    told(&log, "15 passed, 0 failed, 1 skipped", true);
}

#[test]
fn the_same_name_in_two_binaries_is_two_skipped_tests() {
    let log = TWO_BINARIES.replace("test result: ok. 5", "SKIPPED: a: why\ntest result: ok. 5");
    let log = log.replace("test result: ok. 7", "SKIPPED: a: why\ntest result: ok. 7");
    told(&log, "14 passed, 0 failed, 2 skipped", true);
}

#[test]
fn ignored_tests_are_counted_as_skipped() {
    told(&TWO_BINARIES.replacen("0 ignored", "3 ignored", 1), "16 passed, 0 failed, 3 skipped", true);
}

#[test]
fn a_skipped_check_is_counted_once_and_is_no_failure() {
    let log = format!("{TWO_BINARIES}SKIPPED: lab-6.1: offline\nplimsoll-check: lab-6.1: skipped\n");
    told(&log, "16 passed, 0 failed, 1 skipped", true);
}

#[test]
fn the_seconds_of_the_checks_and_of_each_suite_come_before_the_totals() {
    let log =
        format!("{TWO_BINARIES}plimsoll-check: clippy: passed after 90 s\nplimsoll-run: ended after 131 s\n");
    let expected = "   94 s  checks       2 passed, 0 failed\n   90 s    clippy\n   41 s  unit         12 passed, 0 failed\n   12 s  doc          3 passed, 0 failed\n  131 s  all\n17 passed, 0 failed\n";
    assert_eq!(summary(&log), (expected.to_owned(), true));
}

#[test]
fn the_slowest_binaries_are_named_with_their_seconds() {
    let log = TWO_BINARIES.replacen("in 0.01s", "in 3.70s", 1).replacen("in 0.01s", "in 12.20s", 1);
    let log = log.replacen("unittests src/lib.rs (target/debug/deps/b-0)", "tests/kill_choice.rs (b-0)", 1);
    let (text, _) = summary(&log);
    assert!(text.contains("\nslow:    12 s  unit, kill_choice\nslow:     4 s  unit, a\n16 passed"), "{text}");
}

#[test]
fn a_test_that_passed_at_the_second_try_is_named_and_counted_as_passed() {
    let result = "FAILED. 4 passed; 1 failed";
    let again = "AGAIN: held::a_test: failed, and passed when it was run once more";
    let log = TWO_BINARIES
        .replacen("ok. 5 passed; 0 failed", result, 1)
        .replacen("0.01s\n", &format!("0.01s\n{again}\n"), 1)
        .replace("unittests src/lib.rs", "tests/kill_choice.rs");
    told(&log, "16 passed, 0 failed", true);
    let (text, _) = summary(&log);
    assert!(text.contains("\nat the second try: unit, kill_choice: held::a_test\n"), "{text}");
}

#[test]
fn nothing_run_is_not_success() {
    told("", "0 passed, 0 failed", false);
}
