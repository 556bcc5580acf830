//! `plimsoll explain`, the built binary: where it reads from, what it prints, how it ends.
#![cfg(test)]

use rustix::process::geteuid;
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/oom").join(name)
}

fn ended(output: Output) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output;
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn run(arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("explain")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever reads no input may be gone by now.
    child.stdin.take().unwrap().write_all(input).ok();
    ended(child.wait_with_output().unwrap())
}

fn assert_one_line(stderr: &str) {
    assert!(stderr.starts_with("plimsoll: ") && stderr.matches('\n').count() == 1, "{stderr:?}");
}

#[test]
fn a_file_standard_input_and_a_dash_read_the_same() {
    let path = corpus("x86-4.2-sysrq-among-others");
    let log = fs::read(&path).unwrap();
    let (code, named, stderr) = run(&[path.to_str().unwrap()], b"");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(named.contains("OOM report 3 of 4") && named.contains("(sysrq)"), "{named}");
    assert_eq!(run(&["-"], &log).1, named);
    assert_eq!(run(&[], &log).1, named);
    let (code, json, _) = run(&["--json", "-"], &log);
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, list.as_array().unwrap().len(), &list[2]["order"]), (0, 4, &Value::from(-1)));
}

#[test]
fn nothing_found_is_said_plainly() {
    assert_eq!(
        run(&[], b"all is well\n"),
        (0, "No OOM report was found in standard input.\n".into(), String::new())
    );
    assert_eq!(run(&["--json"], b""), (0, "[]\n".into(), String::new()));
}

#[test]
fn what_cannot_be_read_ends_in_one_line() {
    let (code, stdout, stderr) = run(&["/nonexistent/log"], b"");
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_one_line(&stderr);
    assert!(stderr.contains("'/nonexistent/log'"), "{stderr}");
    let (code, _, stderr) = run(&["/"], b"");
    assert_eq!(code, 1);
    assert_one_line(&stderr);
    for both in [&["--dmesg", "file"][..], &["--dmesg", "--journal"]] {
        let (code, _, stderr) = run(both, b"");
        assert_eq!(code, 2, "{stderr}");
        assert_one_line(&stderr);
    }
}

#[test]
fn the_kernels_buffer_is_read_to_its_end_and_no_further() {
    let (code, stdout, stderr) = run(&["--dmesg", "--json"], b"");
    if code == 0 {
        assert!(serde_json::from_str::<Value>(&stdout).unwrap().is_array());
        return;
    }
    assert_one_line(&stderr);
    if geteuid().is_root() {
        println!("SKIPPED: the_kernels_buffer_is_read_to_its_end_and_no_further: {}", stderr.trim());
    } else {
        assert_eq!(code, 4, "{stderr}");
    }
}

#[test]
fn the_journal_is_asked_or_its_absence_told() {
    let (code, stdout, stderr) = run(&["--journal", "--json"], b"");
    if code == 0 {
        assert!(serde_json::from_str::<Value>(&stdout).unwrap().is_array());
    } else {
        assert_one_line(&stderr);
        assert!(stderr.contains("journal"), "{stderr}");
    }
}
