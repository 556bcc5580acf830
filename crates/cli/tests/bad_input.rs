//! Bad input: one clear line, the right exit status, nothing lost, nothing half-applied.
#![cfg(test)]

mod starting;
mod support;

use rustix::process::Signal;
use starting::{ALICE, Kept, Places, assert_one_line, assert_refused};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
    process::{Command, Stdio},
};
use support::{SOON, until, wait_for};

/// Arguments, exit status, and what the one line must name.
type Refusal<'a> = (&'a [&'a str], i32, &'a str);

/// What makes no sense whatever a line is drawn for.
const NONSENSE: [Refusal<'_>; 25] = [
    (&["limit", "set", "nobody-of-that-name", "1G"], 1, "nobody-of-that-name"),
    (&["limit", "set", "60150", "12Q"], 2, "12Q"),
    (&["limit", "set", "60150", ""], 2, "512M"),
    (&["limit", "set", "60150", "-5M"], 2, "-5"),
    (&["limit", "set", "60150", "0"], 2, "0"),
    (&["limit", "set", "60150", "0%"], 2, "0"),
    (&["limit", "set", "60150", "1K"], 2, "less than"),
    (&["limit", "set", "60150", "101%"], 2, "101%"),
    (&["limit", "set", "60150", "999T"], 2, "RAM"),
    (&["limit", "set", "60150", "99999999999999999999"], 2, "99999999999999999999"),
    (&["limit", "set", "60150", "64M", "--soft", "65M"], 2, "above the hard limit"),
    (&["limit", "set", "60150", "64M", "--soft", "0"], 2, "0"),
    (&["limit", "set", "60150", "64M", "--soft", "200%"], 2, "200%"),
    (&["limit", "set", "60150", "64M", "--action", "deny"], 2, "deny"),
    (&["limit", "set", "60150", "64M", "--action", "explode"], 2, "explode"),
    (&["limit", "set", "60150"], 2, "HARD"),
    (&["limit", "set", "@nogroup-of-that-name", "1G"], 2, "nogroup-of-that-name"),
    (&["limit", "set", "job:x", "1G"], 2, "job:x"),
    (&["limit", "set", "cgroup:/", "1G"], 2, "'system'"),
    (&["limit", "set", "cgroup:/a/../b", "1G"], 2, "'/a/../b'"),
    (&["limit", "set", "cgroup:a", "1G"], 2, "'a'"),
    (&["limit", "set", "", "1G"], 2, "nobody named"),
    (&["limit", "set", "4294967295", "1G"], 2, "4294967295"),
    (&["limit", "clear", "60109"], 1, "60109"),
    (&["limit", "show", "nobody-of-that-name"], 1, "nobody-of-that-name"),
];

#[test]
fn a_line_that_makes_no_sense_is_refused_in_one_line_and_changes_nothing() {
    let fixture = fixture!();
    fixture.limit(ALICE, "100M", &["--soft", "80M"]);
    fixture.ok(&["limit", "set", "default", "50%"]);
    let before = Kept::of(&fixture);
    for (arguments, expected, named) in NONSENSE {
        let (code, stdout, stderr) = fixture.run(arguments);
        assert_eq!((code, stdout.as_str()), (expected, ""), "{arguments:?}: {stderr}");
        assert_one_line(&stderr);
        assert!(stderr.contains(named), "{arguments:?}: '{named}' is not in: {stderr}");
        assert_eq!(Kept::of(&fixture), before, "{arguments:?}");
    }
    // Nor is the name of a user a way to the terminal.
    let (code, _, stderr) = fixture.run(&["limit", "set", "\u{1b}[2Jnobody\n", "1G"]);
    assert!((1..=2).contains(&code) && !stderr.contains('\u{1b}'), "{stderr:?}");
    assert_one_line(&stderr);
}

#[test]
fn without_a_daemon_every_question_is_answered_with_3_and_bad_input_still_with_2() {
    let mut fixture = fixture!();
    fixture.end_daemon(Signal::TERM);
    for (arguments, expected) in [
        (&["limit", "set", "60150", "1G"][..], 3),
        (&["limit", "show"], 3),
        (&["limit", "clear", "60150"], 3),
        (&["status"], 3),
        (&["history"], 3),
        (&["why"], 3),
        (&["limit", "set", "60150", "12Q"], 2),
    ] {
        let (code, _, stderr) = fixture.run(arguments);
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        assert_one_line(&stderr);
    }
}

#[test]
fn whoever_is_not_root_raises_nothing() {
    let fixture = fixture!();
    let plimsoll = fixture.path("plimsoll");
    fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &plimsoll).unwrap();
    fixture.limit(ALICE, "64M", &[]);
    let before = Kept::of(&fixture);
    for arguments in
        [["limit", "set", "60150", "65M"], ["limit", "set", "60151", "1M"], ["limit", "set", "default", "1M"]]
    {
        let mut command = fixture.as_user(ALICE, &plimsoll);
        let output = command.args(arguments).env("PLIMSOLL_SOCKET", fixture.path("socket")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {said}");
        assert_one_line(&said);
        assert_eq!(Kept::of(&fixture), before, "{arguments:?}");
    }
}

/// What stands in place of the saved lines, and what must be said of it.
const STATES: [(&str, &str); 9] = [
    ("", "damaged"),
    ("{", "damaged"),
    ("\0\0\0\0", "damaged"),
    ("{\"version\": 1}", "damaged"),
    (
        "{\"version\": 1, \"lines\": [{\"target\": \"user:60150\", \"set_by\": 0, \"line\": {\"hard\": \"12Q\"}}]}",
        "12Q",
    ),
    ("{\"version\": 1, \"lines\": [], \"more\": 1}", "more"),
    ("{\"version\": 0, \"lines\": []}", "version 0"),
    ("{\"version\": 3, \"lines\": []}", "version 3"),
    ("{\"version\": 9999999, \"lines\": \"something new\"}", "version 9999999"),
];

#[test]
fn a_state_file_that_cannot_be_understood_stops_the_start_and_is_left_as_it_is() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    fixture.end_daemon(Signal::KILL);
    let file = fixture.path("state/limits.json");
    let good = fs::read(&file).unwrap();
    for (content, named) in STATES {
        fs::write(&file, content).unwrap();
        assert_refused(Places::of(&fixture).command(), named);
        assert_refused(Places::of(&fixture).command(), "limits.json");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
    fs::remove_file(&file).unwrap();
    symlink("/etc/passwd", &file).unwrap();
    assert_refused(Places::of(&fixture).command(), "not a plain file");
    fs::remove_file(&file).unwrap();
    fs::write(&file, &good).unwrap();
    chown(&file, Some(ALICE), None).unwrap();
    assert_refused(Places::of(&fixture).command(), "belongs to uid 60150");
    chown(&file, Some(0), None).unwrap();
    // All the while the line that was saved has been in force, and it is still.
    fixture.workload(ALICE, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    fixture.launch();
    assert_eq!(fixture.account(ALICE).unwrap()["hard_bytes"], 64 << 20);
}

#[test]
fn a_state_folder_of_somebody_elses_is_not_used() {
    let fixture = fixture!();
    let beside = Places::beside(&fixture);
    fs::create_dir(&beside.state).unwrap();
    chown(&beside.state, Some(ALICE), None).unwrap();
    assert_refused(beside.command(), "belongs to uid 60150");
    fs::remove_dir(&beside.state).unwrap();
    fs::write(&beside.state, "a file").unwrap();
    assert_refused(beside.command(), "not a directory");
    assert!(!beside.pin.exists() && !beside.socket.exists());
}

#[test]
fn a_bad_configuration_stops_the_start_with_file_and_line_and_a_check_tells_before() {
    let fixture = fixture!();
    let beside = Places { config: fixture.path("bad.toml"), ..Places::beside(&fixture) };
    let check = || {
        let mut command = beside.command();
        command.arg("--check");
        command
    };
    let refuses = |named| {
        assert_refused(beside.command(), named);
        assert_refused(check(), named);
    };
    refuses("bad.toml");
    for (content, named) in [
        ("[machine]\nenabled = false\nenabld = true\n", "bad.toml:3"),
        ("[machin]\n", "bad.toml:1"),
        ("\n\n[limits]\ncharge = \"bananas\"\n", "bad.toml:4"),
        ("[limits]\nusers = { \"@staff\" = { hard = \"1G\" } }\n", "limits.groups"),
        ("[limits]\ngroups = { nogroup-of-that-name = { hard = \"1G\" } }\n", "nogroup-of-that-name"),
        ("[limits]\ngroups = { 50 = { hard = \"999T\" } }\n", "RAM"),
        ("[limits]\nusers = { nobody-of-that-name = { hard = \"1G\" } }\n", "nobody-of-that-name"),
        ("[limits]\nusers = { 60150 = { hard = \"12Q\" } }\n", "12Q"),
        ("[limits]\nusers = { 60150 = { hard = \"999T\" } }\n", "RAM"),
        ("[limits]\ndefault = { hard = \"1M\", soft = \"50%\" }\n", "default"),
        ("[limits]\ndefault = { hard = \"1G\", action = \"deny\" }\n", "deny"),
        ("[machine]\nterm_memory = 5\nkill_memory = 10\n", "kill"),
    ] {
        fs::write(&beside.config, content).unwrap();
        refuses(named);
    }
    fs::write(&beside.config, "[limits]\nusers = { 60150 = { hard = \"1G\" } }\n").unwrap();
    let said = check().output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "The configuration is good.\n", "{said:?}");
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    fs::remove_file(&beside.config).unwrap();
    fs::create_dir(&beside.config).unwrap();
    refuses("bad.toml");
    assert!(!beside.pin.exists() && !beside.socket.exists() && !beside.state.exists());
}

#[test]
fn a_place_that_is_no_bpf_filesystem_can_hold_no_lines_and_says_so() {
    let fixture = fixture!();
    let config = fixture.path("lines.toml");
    fs::write(&config, "[machine]\nenabled = false\n[limits.users]\n60151 = { hard = \"64M\" }\n").unwrap();
    let beside = Places { config, pin: fixture.path("pins"), ..Places::beside(&fixture) };
    let socket = beside.socket.to_str().unwrap();
    let mut daemon =
        beside.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("it answers", || fixture.run(&["status", "--socket", socket]).0 == 0);
    let (code, _, said) = fixture.run(&["limit", "set", "60150", "64M", "--socket", socket]);
    assert_eq!(code, 1, "{said}");
    assert_one_line(&said);
    assert!(said.contains("pins"), "{said}");
    assert!(!beside.state.join("limits.json").exists());
    assert_eq!(fixture.run(&["limit", "show", "--json", "--socket", socket]).1.trim(), "[]");
    let status = fixture.json(&["status", "--socket", socket]);
    let (kernel, daemon_side) = (&status["triggers"]["kernel"], &status["triggers"]["daemon"]);
    assert!(kernel.as_str().unwrap().starts_with("NOT in force: "), "{kernel}");
    assert_eq!(
        (daemon_side, &status["guards"]["limits"]["state"]),
        (&"no line is in force".into(), &"off".into())
    );
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert_eq!(until("it ends", SOON, || daemon.try_wait().unwrap()).code(), Some(0));
}

/// A command in a mount namespace of its own, in which the kernel's type information is empty.
fn without_btf(plimsoll: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$@\"",
        "sh",
    ]);
    command.arg(plimsoll);
    command
}

#[test]
fn without_the_kernels_types_lines_are_refused_and_doctor_says_why() {
    let fixture = fixture!();
    let plimsoll = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    if !without_btf(plimsoll)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return support::skip("no mount namespace can be made");
    }
    let beside = Places::beside(&fixture);
    let mut daemon = without_btf(plimsoll);
    beside.add_to(&mut daemon);
    let mut daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = beside.socket.to_str().unwrap();
    wait_for("it answers", || fixture.run(&["status", "--socket", socket]).0 == 0);
    let (code, _, said) = fixture.run(&["limit", "set", "60150", "64M", "--socket", socket]);
    assert_eq!(code, 1, "{said}");
    assert_one_line(&said);
    assert!(said.contains("plimsoll doctor"), "{said}");
    assert!(!beside.state.join("limits.json").exists());
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert_eq!(until("it ends", SOON, || daemon.try_wait().unwrap()).code(), Some(0));
    assert!(!beside.pin.exists());

    let output = without_btf(plimsoll).args(["doctor", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let btf = report["features"].as_array().unwrap().iter().find(|feature| feature["name"] == "BTF").unwrap();
    assert_eq!(btf["present"], false, "{btf}");
    assert!(btf["fallback"].is_string(), "{btf}");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("Only the guard of the whole machine") && verdict.contains("BTF"),
        "{verdict}"
    );
}

#[test]
fn a_state_folder_that_others_could_read_is_closed_to_them() {
    let mut fixture = fixture!();
    fixture.end_daemon(Signal::TERM);
    fs::set_permissions(fixture.path("state"), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.launch();
    assert_eq!(fs::metadata(fixture.path("state")).unwrap().permissions().mode() & 0o077, 0);
}
