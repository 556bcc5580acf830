//! Nothing that needs a guest goes untested: the lists of `lab/kernels.conf`.
#![cfg(test)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// For each kernel: its name, what it runs in `make test`, and in `make test-all`.
fn lists() -> Vec<(String, Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(root().join("lab/kernels.conf")).unwrap();
    let words = |field: Option<&str>| field.unwrap().split(',').map(str::to_owned).collect();
    let kernel = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.next().unwrap().to_owned(), words(fields.nth(3)), words(fields.next()))
    };
    text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).map(kernel).collect()
}

/// The integration tests of a folder, by the names that cargo gives them.
fn tests_of(folder: &Path) -> BTreeSet<String> {
    let Ok(files) = fs::read_dir(folder.join("tests")) else {
        return BTreeSet::new();
    };
    let paths = files.map(|file| file.unwrap().path());
    let tests = paths.filter(|path| {
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    });
    tests.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The test binaries of the command line.
fn binaries() -> BTreeSet<String> {
    tests_of(&root().join("crates/cli"))
}

#[test]
fn each_test_that_needs_a_guest_has_one_in_make_test() {
    let run: BTreeSet<String> = lists().into_iter().flat_map(|(_, test, _)| test).collect();
    for binary in binaries().iter().filter(|name| name.starts_with("lab_")) {
        assert!(run.contains(binary), "no kernel of lab/kernels.conf has {binary} in TESTS");
    }
}

#[test]
fn the_tests_of_make_check_share_no_name_with_those_that_need_the_machine() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let all = crates.chain(["bench", "testkit", "xtask"].map(|name| root().join(name)));
    // As `bare_tests` of tools/test.sh has it.
    let (bare, others): (Vec<_>, Vec<_>) =
        all.partition(|path| ["policy", "wire", "testkit", "xtask"].iter().any(|name| path.ends_with(name)));
    let names = |folders: &[PathBuf]| -> BTreeSet<String> {
        folders.iter().flat_map(|folder| tests_of(folder)).collect()
    };
    let both: Vec<_> = names(&bare).intersection(&names(&others)).cloned().collect();
    assert!(both.is_empty(), "tools/test.sh tells tests apart by their names alone: {both:?}");
}

#[test]
fn each_kernel_runs_tests_that_there_are_and_all_of_them_in_make_test_all() {
    let known = binaries();
    assert!(!lists().is_empty());
    for (kernel, test, test_all) in lists() {
        assert!(test_all.iter().any(|name| name == "all"), "{kernel}");
        for name in test.iter().chain(&test_all).map(|name| name.trim_end_matches("@small")) {
            assert!(known.contains(name) || ["all", "sys"].contains(&name), "{kernel}: there is no {name}");
        }
    }
}
