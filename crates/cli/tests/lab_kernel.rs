//! What a stock kernel offers, and what is said where it offers less: in the guests of the lab only, as any other machine
//! may have been made differently.
#![cfg(test)]

mod support;

use serde_json::Value;
use std::{process::Command, sync::LazyLock};
use support::{ALICE, guest};

/// What `doctor` finds: it is asked once, as it loads all programs.
static TOLD: LazyLock<Value> = LazyLock::new(|| {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["doctor", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
});

/// Whether `doctor` finds a feature here.
fn has(feature: &str) -> bool {
    let features = TOLD["features"].as_array().unwrap();
    let found =
        features.iter().find(|one| one["name"] == feature).unwrap_or_else(|| panic!("no '{feature}'"));
    found["present"].as_bool().unwrap()
}

#[test]
fn a_stock_kernel_that_counts_per_cpu_takes_all_programs() {
    let Some(_) = guest::disk() else { return };
    if !has("per-CPU page counters") {
        return support::skip("this kernel counts per thread, as before Linux 6.2");
    }
    for feature in ["limits programs", "process_mrelease", "cgroup v2 memory controller"] {
        assert!(has(feature), "'{feature}' is not here");
    }
}

#[test]
fn a_kernel_that_takes_no_programs_refuses_lines_in_one_line() {
    let Some(_) = guest::disk() else { return };
    if has("limits programs") {
        return support::skip("this kernel takes them");
    }
    let fixture = fixture!();
    let (code, stdout, stderr) = fixture.run(&["limit", "set", &ALICE.to_string(), "64M"]);
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{stderr}");
    assert!(stderr.starts_with("plimsoll: "), "{stderr}");
    assert!(fixture.accounts().is_empty());
    assert_eq!(fixture.status()["daemon"], true);
}
