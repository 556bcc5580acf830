//! Whom the machine guard ends when memory runs out: the short form of `plimsoll bench suite`, in the guests of the lab only.
#![cfg(test)]

mod support;

use std::process::Command;
use support::guest;

#[test]
fn who_takes_too_much_ends_and_nobody_else_and_each_decision_can_be_made_once_more() {
    let Some(_disk) = guest::disk() else { return };
    let mut suite = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    // It fails where a run is not right: somebody else ended, the kernel was first, nobody ended in time, or what was recorded
    // of a decision comes to another one.
    let output = suite.args(["bench", "suite", "--quick"]).output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).join("\n");
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches(", plimsoll: right in 1 of 1").count(), 3, "{said}");
    println!("{said}");
}
