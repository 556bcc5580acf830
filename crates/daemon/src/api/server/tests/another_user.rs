//! Each call as another user than root, told from root by the kernel and by nothing else.

use super::{Daemon, call, converse, daemon, is_root};
use crate::api::{
    fake::{ALICE, BOB},
    server::Allowance,
};
use plimsoll_policy::units::Uid;
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
};

/// A caller of another uid than root: this very test program, run again as uid 60001; where the tests do not run as
/// root, this process is one.
fn as_another_user(daemon: &Daemon, requests: &[Value]) -> (Uid, Vec<Value>) {
    if !is_root() {
        let uid = Uid(nix::unistd::geteuid().as_raw());
        return (uid, converse(&daemon.socket, requests));
    }
    // A copy, because the build folder may be out of that user's reach.
    let program = daemon.folder.path().join("another-user");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["api::server::tests::another_user::speak_for_another_user", "--exact", "--nocapture"])
        .env_clear()
        .env("PLIMSOLL_TEST_SOCKET", &daemon.socket)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .uid(ALICE.0)
        .gid(ALICE.0);
    // A test beside this one that forks while the copy is written holds it open until its exec.
    let mut child = loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            spawned => break spawned.unwrap(),
        }
    };
    let mut input = child.stdin.take().unwrap();
    for request in requests {
        writeln!(input, "{request}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The test harness writes its own words on the same output, at times in front of ours.
    let replies = text.lines().filter_map(|line| Some(line.split_once("REPLY ")?.1));
    let replies: Vec<_> = replies.map(|json| serde_json::from_str(json).unwrap()).collect();
    assert_eq!(replies.len(), requests.len(), "{text}");
    (ALICE, replies)
}

/// The other half of `as_another_user`, which runs it in a process of its own.
#[test]
fn speak_for_another_user() {
    let Some(socket) = std::env::var_os("PLIMSOLL_TEST_SOCKET").map(PathBuf::from) else {
        return;
    };
    let requests: Vec<_> =
        std::io::stdin().lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    for reply in converse(&socket, &requests) {
        println!("\nREPLY {reply}");
    }
}

#[test]
fn each_call_as_another_user_is_refused_or_redacted() {
    let daemon = daemon(Allowance::SERVER);
    let others = format!("user:{}", BOB.0);
    let (uid, replies) = as_another_user(
        &daemon,
        &[
            call("ShowLimits", json!({"who": others})),
            call("SetLimit", json!({"who": others, "hard": "64M", "now": true})),
            call("SetLimit", json!({"who": "default", "hard": "64M"})),
            call("SetLimit", json!({"who": "user:0", "hard": "64M"})),
            call("ClearLimit", json!({"who": others})),
            call("ClearLimit", json!({"who": "default"})),
            // What a client claims to be is not even a parameter.
            call("ClearLimit", json!({"who": others, "uid": 0})),
            call("GetIncident", json!({"id": 2})),
            call("GetIncident", json!({"pid": 4000 + BOB.0})),
            call("Status", json!({})),
            call("ShowLimits", json!({})),
            call("History", json!({})),
        ],
    );
    for refused in &replies[..6] {
        assert_eq!(refused["error"], "io.plimsoll.NotPermitted", "{refused}");
    }
    assert_eq!(replies[6]["error"], "io.plimsoll.Invalid");
    for hidden in &replies[7..9] {
        assert_eq!(hidden["error"], "io.plimsoll.NotFound", "{hidden}");
    }
    for list in &replies[9..11] {
        let accounts = list["parameters"]["accounts"].as_array().unwrap();
        assert!(accounts.iter().all(|account| account["account"] == format!("user:{uid}")), "{list}");
    }
    let all = replies[11].to_string();
    assert!(!all.contains("secret-of=60002") && !all.contains("secret-of=0"), "{all}");
    let allowed = ["incident by", "status by", "limits by", "history by"];
    let calls = daemon.fake.calls();
    assert!(calls.iter().all(|call| allowed.iter().any(|start| call.starts_with(start))), "{calls:?}");
    assert!(calls.iter().all(|call| call.ends_with(&format!(" {uid}"))), "{calls:?}");
}

#[test]
fn another_user_sets_and_clears_a_line_of_their_own() {
    let daemon = daemon(Allowance::SERVER);
    let uid = if is_root() { ALICE } else { Uid(nix::unistd::geteuid().as_raw()) };
    let own = format!("user:{}", uid.0);
    let (_, replies) = as_another_user(
        &daemon,
        &[
            call("SetLimit", json!({"who": own, "hard": "64M"})),
            call("SetLimit", json!({"who": own, "hard": "3G"})),
            call("ShowLimits", json!({"who": own})),
            call("ClearLimit", json!({"who": own})),
        ],
    );
    assert_eq!(replies[0]["parameters"]["accounts"][0]["hard_bytes"], 64 << 20, "{}", replies[0]);
    assert_eq!(replies[1]["error"], "io.plimsoll.NotPermitted", "above the administrator's");
    assert_eq!(replies[2]["parameters"]["accounts"][0]["hard_bytes"], 64 << 20);
    assert_eq!(replies[3]["parameters"]["result"], "removed");
}
