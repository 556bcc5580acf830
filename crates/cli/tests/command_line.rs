//! The built binary against a daemon without a machine: what it prints, and its exit status.
#![cfg(test)]

mod fake_daemon;

use fake_daemon::{FakeDaemon, own_uid};
use plimsoll_daemon::api::server::Server;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};
use tempfile::TempDir;

struct Running {
    _server: Server,
    socket: PathBuf,
    _folder: TempDir,
}

fn running(double: FakeDaemon) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let server = Server::start(&socket, Arc::new(double)).unwrap();
    Running { _server: server, socket, _folder: folder }
}

fn plimsoll(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).env("PLIMSOLL_SOCKET", socket).env("TZ", "UTC").env_remove("NO_COLOR");
    command
}

fn run(socket: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = plimsoll(socket, arguments).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn json_of(socket: &Path, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = run(socket, arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&stdout).unwrap()
}

fn assert_one_line(stderr: &str) {
    assert!(stderr.starts_with("plimsoll: ") && stderr.matches('\n').count() == 1, "{stderr:?}");
}

#[test]
fn without_a_daemon_every_question_ends_with_3_and_one_line_that_names_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nobody.sock");
    for arguments in [
        &["status"][..],
        &["limit", "show"],
        &["limit", "set", "root", "1G"],
        &["limit", "clear", "0"],
        &["history"],
        &["why"],
        &["usage"],
        &["usage", "--brief"],
        &["status", "--follow"],
    ] {
        let (code, stdout, stderr) = run(&socket, arguments);
        assert_eq!((code, stdout.as_str()), (3, ""), "{arguments:?}");
        assert_one_line(&stderr);
        assert!(stderr.contains("nobody.sock"), "{stderr}");
    }
    let (code, stdout, _) = run(&socket, &["status", "--json"]);
    let status: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &status["daemon"], &status["accounts"]), (3, &json!(false), &json!([])));
}

#[test]
fn bad_input_ends_with_2_and_an_unknown_user_with_1_daemon_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nobody.sock");
    for (arguments, expected, named) in [
        (&["explode"][..], 2, "explode"),
        (&["status", "--jsn"], 2, "--json"),
        (&["status", "--follow", "--interval", "0"], 2, "'0'"),
        (&["limit", "set", "root"], 2, "<HARD>"),
        (&["limit", "set", "root", "12Q"], 2, "12Q"),
        (&["limit", "set", "root", "1G", "--soft", "200%"], 2, "200%"),
        (&["limit", "set", "@nogroup-of-that-name", "1G"], 2, "nogroup-of-that-name"),
        (&["limit", "set", "job:x", "1G"], 2, "job:x"),
        (&["limit", "show", "nobody-of-that-name"], 1, "nobody-of-that-name"),
        (&["usage", "@0"], 2, "no user"),
        (&["usage", "nobody-of-that-name"], 1, "nobody-of-that-name"),
        (&["history", "--since", "yesterday"], 2, "yesterday"),
        (&["why", "first"], 2, "first"),
    ] {
        let (code, stdout, stderr) = run(&socket, arguments);
        assert_eq!((code, stdout.as_str()), (expected, ""), "{arguments:?}: {stderr}");
        assert_one_line(&stderr);
        assert!(stderr.contains(named), "{stderr}");
    }
    let (code, stdout, stderr) = run(&socket, &["--help"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("Exit status: 0 done"), "{stdout}");
}

#[test]
fn a_line_is_set_shown_and_cleared() {
    let daemon = running(FakeDaemon::new(0));
    let uid = own_uid().to_string();
    let account = format!("user:{uid}");
    let set = json_of(&daemon.socket, &["limit", "set", &uid, "512M", "--soft", "50%", "--json"]);
    assert_eq!((&set[0]["account"], &set[0]["hard_bytes"]), (&json!(account), &json!(512 << 20)));
    assert_eq!(set[0]["soft_bytes"], json!(256 << 20));
    let shown = json_of(&daemon.socket, &["limit", "show", "--json"]);
    assert_eq!(shown[0], set[0]);
    let (code, stdout, _) = run(&daemon.socket, &["limit", "show", &uid]);
    assert!(code == 0 && stdout.contains("512.0 MiB") && stdout.starts_with("ACCOUNT"), "{stdout}");
    assert_eq!(json_of(&daemon.socket, &["limit", "clear", &uid, "--json"]), json!({"result": "removed"}));
    assert_eq!(json_of(&daemon.socket, &["limit", "show", &uid, "--json"]), json!([]));
    let (code, stdout, _) = run(&daemon.socket, &["limit", "show", &uid]);
    assert_eq!((code, stdout), (0, format!("No line is drawn for {uid}.\n")));
    let (code, _, stderr) = run(&daemon.socket, &["limit", "clear", &uid]);
    assert_eq!(code, 1);
    assert_one_line(&stderr);
}

#[test]
fn a_refusal_is_one_line_and_its_status() {
    let daemon = running(FakeDaemon::new(0));
    // The double refuses this uid to everybody, so that the test needs no second user.
    let (code, stdout, stderr) = run(&daemon.socket, &["limit", "clear", "60003"]);
    assert_eq!((code, stdout.as_str()), (4, ""));
    assert_one_line(&stderr);
    let (code, _, stderr) = run(&daemon.socket, &["why", "99"]);
    assert_eq!(code, 1);
    assert_one_line(&stderr);
    let (code, _, stderr) = run(&daemon.socket, &["limit", "set", &own_uid().to_string(), "999T"]);
    assert_eq!(code, 2);
    assert_one_line(&stderr);
}

#[test]
fn status_is_told_in_words_and_as_json() {
    let daemon = running(FakeDaemon::new(1));
    let (code, stdout, stderr) = run(&daemon.socket, &["status"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("Plimsoll is running") && stdout.contains("last-defence"), "{stdout}");
    assert!(!stdout.contains('\u{1b}'), "no colours through a pipe");
    assert_eq!(json_of(&daemon.socket, &["status", "--json"])["daemon"], true);
}

#[test]
fn following_outlives_the_daemon_and_ends_with_0_on_ctrl_c_and_when_nobody_reads() {
    let Running { _server: server, socket, _folder: folder } = running(FakeDaemon::new(1));
    let arguments = ["status", "--follow", "--json", "--interval", "0.1"];
    let mut child = plimsoll(&socket, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = |daemon: bool| {
        let told = |line: Result<String, _>| serde_json::from_str::<Value>(&line.unwrap()).unwrap();
        assert!(lines.by_ref().map(told).any(|status| status["daemon"] == daemon));
    };
    until(true);
    drop(server);
    until(false);
    let _server = Server::start(&socket, Arc::new(FakeDaemon::new(1))).unwrap();
    until(true);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let arguments = ["status", "--follow", "--interval", "0.1"];
    let mut child = plimsoll(&socket, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("0 accounts, 0 near"), "{first}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(folder);
}

#[test]
fn usage_is_the_callers_own_line_and_what_was_killed_lately() {
    let daemon = running(FakeDaemon::new(5));
    let (code, stdout, stderr) = run(&daemon.socket, &["usage"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("no line is drawn"), "{stdout}");
    json_of(&daemon.socket, &["limit", "set", &own_uid().to_string(), "512M", "--json"]);
    let told = json_of(&daemon.socket, &["usage", "--json"]);
    assert_eq!(
        (&told["line"]["hard_bytes"], &told["line"]["usage_bytes"]),
        (&json!(512 << 20), &json!(7 << 20))
    );
    assert!(told["incidents"].is_array() && told["since"].is_string(), "{told}");
    let (code, stdout, _) = run(&daemon.socket, &["usage", "--brief"]);
    assert!(code == 0 && stdout.contains("7.0 MiB used of 512.0 MiB (1 %)"), "{stdout}");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
}

#[test]
fn history_is_a_list_oldest_first_and_why_tells_one_of_it() {
    let daemon = running(FakeDaemon::new(150));
    let ids = |arguments: &[&str]| -> Vec<u64> {
        let list = json_of(&daemon.socket, &[&["history", "--json"], arguments].concat());
        list.as_array().unwrap().iter().map(|incident| incident["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), (1..=150).collect::<Vec<_>>());
    assert_eq!(ids(&["--limit", "2"]), [149, 150]);
    assert_eq!(ids(&["--since", "2027-01-15T08:02:28Z"]), [148, 149, 150]);
    assert_eq!(json_of(&daemon.socket, &["why", "--json"])["id"], 150);
    assert_eq!(json_of(&daemon.socket, &["why", "7", "--json"])["id"], 7);
    let (code, story, _) = run(&daemon.socket, &["why", "pid:4001"]);
    assert!(code == 0 && story.contains("4001"), "{story}");
    let (_, longer, _) = run(&daemon.socket, &["why", "pid:4001", "-v"]);
    assert!(longer.len() > story.len(), "{longer}");
}

#[test]
fn nothing_that_happened_is_an_answer() {
    let daemon = running(FakeDaemon::new(0));
    assert_eq!(json_of(&daemon.socket, &["history", "--json"]), json!([]));
    assert_eq!(run(&daemon.socket, &["history"]), (0, "No incidents.\n".to_owned(), String::new()));
    assert_eq!(run(&daemon.socket, &["why"]).0, 1);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let daemon = running(FakeDaemon::new(3000));
    let mut child =
        plimsoll(&daemon.socket, &["history"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The list is longer than a pipe holds, so that it meets a closed pipe whenever this happens.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn the_socket_option_comes_before_the_environment() {
    let daemon = running(FakeDaemon::new(0));
    let elsewhere = daemon.socket.with_extension("other");
    let socket = daemon.socket.to_str().unwrap();
    assert_eq!(run(&elsewhere, &["status", "--socket", socket]).0, 0);
    assert_eq!(run(&elsewhere, &["--socket", socket, "status"]).0, 0);
    assert_eq!(run(&elsewhere, &["status"]).0, 3);
}

#[test]
fn completions_and_manual_pages_come_from_the_binary_itself() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("nobody.sock");
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(&nobody, &["completions", shell]);
        assert!(code == 0 && script.contains("history"), "{shell}");
    }
    assert_eq!(run(&nobody, &["man", folder.path().to_str().unwrap()]).0, 0);
    let page = fs::read_to_string(folder.path().join("plimsoll.1")).unwrap();
    assert!(page.contains("Exit status") && folder.path().join("plimsoll-limit-set.1").exists(), "{page}");
    let (code, _, stderr) = run(&nobody, &["man", "/nonexistent/folder"]);
    assert_eq!(code, 1);
    assert_one_line(&stderr);
}
