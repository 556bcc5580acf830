//! What docs/kernel-policy.md says of the lab is what the lab's lists say, and each of its kernels has counts in the tree.
#![cfg(test)]

use std::{
    fs,
    path::{Path, PathBuf},
};
use xtask::kernel_policy;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap()
}

/// The test binaries of the command line.
fn tests() -> Vec<String> {
    let entries = fs::read_dir(file("crates/cli/tests")).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned);
    entries.flatten().filter_map(name).collect()
}

#[test]
fn the_kernel_policy_tells_what_the_lab_runs() {
    let path = "docs/kernel-policy.md";
    let made =
        kernel_policy::page(&text(path), &text("lab/kernels.conf"), &text("lab/run.sh"), &tests()).unwrap();
    if std::env::var_os("PLIMSOLL_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(file(path), &made).unwrap();
    }
    assert!(text(path) == made, "{path} is stale: PLIMSOLL_BLESS=1 cargo test -p xtask");
}

#[test]
fn each_kernel_of_the_lab_has_its_counts() {
    let uncounted = kernel_policy::uncounted(&text("lab/kernels.conf"), &text("bpf/verified.txt")).unwrap();
    assert!(uncounted.is_empty(), "bpf/verified.txt: no column for {uncounted:?}: lab/verified.sh renews it");
}
