//! `plimsoll frag`: what is free, and who asks for blocks of several pages, on this kernel and by everyday calls.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};
use support::{
    ALICE, guest, is_root,
    program::{PYTHON, Program},
    wait_for,
};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Asks again and again until it is ended, and says how it went the first time.
const ASKING: &str = "import ctypes, fcntl, mmap, os, signal, socket, sys, time
signal.alarm(300)
def ask():
    global kept
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    own.send(b'x' * 120000)
    got = 0
    while got < 120000:
        got += len(other.recv(1 << 20))
    ctypes.CDLL(None).syscall(248, b'user', b'plimsoll-test', b'x' * 32767, 32767, -2)
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, 1031, 16 << 20)
    except PermissionError:
        pass
    os.close(reader)
    os.close(writer)
    for device in sys.argv[1:]:
        binder = os.open(device, os.O_RDWR)
        mmap.mmap(binder, 4 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
        os.close(binder)
    time.sleep(0.01)
ask()
print('asked', flush=True)
while True:
    ask()
";

/// A program that asks, as this user.
fn asking(user: u32, devices: &[&str]) -> Program {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
    command.args(["--pdeathsig", "KILL", "--", PYTHON, "-c", ASKING]).args(devices).current_dir("/");
    let mut asking = Program::of(command);
    asking.stage("asked");
    asking
}

/// How many programs of ours a process has attached.
fn attached(recorder: &Child) -> usize {
    let folder = format!("/proc/{}/fd", recorder.id());
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_link = |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("bpf_link"));
    links.filter(|entry| is_link(&entry.path())).count()
}

/// Records until everybody has had the time to ask several times over, and ends it as Ctrl-C does.
fn record(more: &[&str]) -> Value {
    let mut command = Command::new(PLIMSOLL);
    command.args(["frag", "--record", "5m", "--json"]).args(more);
    let recorder = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    // All seven, the one that counts among them.
    wait_for("the recorder to be attached", || attached(&recorder) >= 7);
    std::thread::sleep(std::time::Duration::from_millis(200) * support::slowness());
    rustix::process::kill_process(rustix::process::Pid::from_child(&recorder), Signal::INT).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sites in whose call trace one of the functions begins so.
fn through<'a>(told: &'a Value, function: &str) -> Vec<&'a Value> {
    let sites = told["recording"]["sites"].as_array().unwrap();
    let passes = |site: &&Value| {
        let stack = site["stack"].as_array().unwrap();
        stack.iter().any(|name| name.as_str().unwrap().starts_with(function))
    };
    sites.iter().filter(passes).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn who_asks_is_found_by_call_site_order_and_what_a_failure_does() {
    if !is_root() {
        return support::skip("only root may record");
    }
    let binder = binder();
    let _mapping = binder.as_ref().map(|device| asking(0, &[device]));
    let asking = asking(ALICE, &[]);
    let told = record(&[]);
    drop(asking);
    if binder.is_some() {
        assert_that_the_seeds_call_site_is_named(&told);
        // Root's, who may have longer pipes there.
        assert!(!through(&told, "pipe_resize_ring").is_empty(), "{told:#}");
    }
    let recording = &told["recording"];
    assert_eq!((&recording["order_min"], &recording["unkept"]), (&Value::from(2), &Value::from(0)));
    // A key's payload lies in one piece, so the kernel does what it can; the copy of it that comes first may lie anywhere.
    let keys = through(&told, "user_preparse");
    assert!(!keys.is_empty(), "{told:#}");
    for site in keys {
        let order = site["order"].as_u64().unwrap();
        let expected = if order > 3 { "fails" } else { "forces" };
        assert_eq!(text(&site["on_failure"]), expected, "{site:#}");
        assert!(text(&site["call_site"]).starts_with("user_preparse"), "{site:#}");
        let askers = site["asked_by"].as_array().unwrap();
        assert!(askers.iter().any(|asker| asker["uid"] == ALICE), "{site:#}");
        assert!(site["requests"].as_u64().unwrap() > 0, "{site:#}");
    }
    let sockets = through(&told, "alloc_skb_with_frags");
    assert!(sockets.iter().any(|site| site["on_failure"] == "falls-back"), "{told:#}");
    // The program's own part of the trace is left out.
    for site in told["recording"]["sites"].as_array().unwrap() {
        let first = site["stack"].as_array().unwrap().first().map(text);
        let known = first.is_none_or(|name| name.starts_with("__alloc") || name.starts_with("alloc"));
        assert!(known, "{site:#}");
    }
    assert!(told["orders"][3]["requests"].as_u64().unwrap() > 0, "{told:#}");
    assert_eq!(told["orders"][1]["requests"], Value::Null);
}

#[test]
fn many_names_of_one_user_take_no_room_of_others_and_smaller_orders_none() {
    if !is_root() {
        return support::skip("only root may record");
    }
    // Names without end, at one call site.
    let naming = "import ctypes, itertools, os, signal, socket
signal.alarm(300)
print('asked', flush=True)
libc = ctypes.CDLL(None)
own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
for number in itertools.count():
    libc.prctl(15, b'name-%d' % number)
    own.send(b'x' * 40000)
    got = 0
    while got < 40000:
        got += len(other.recv(1 << 20))
";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &support::BOB.to_string(), "--clear-groups", "--pdeathsig", "KILL", "--"]);
    let mut crowd = Program::of(command.args([PYTHON, "-c", naming]).current_dir("/"));
    crowd.stage("asked");
    let asking = asking(ALICE, &[]);
    let told = record(&["--order", "3"]);
    drop((asking, crowd));
    let sites = told["recording"]["sites"].as_array().unwrap();
    assert!(sites.iter().all(|site| site["order"].as_u64().unwrap() >= 3), "{told:#}");
    let askers = |user: u32| -> Vec<&Value> {
        let all = sites.iter().flat_map(|site| site["asked_by"].as_array().unwrap());
        all.filter(|asker| asker["uid"] == user).collect()
    };
    assert!(askers(support::BOB).iter().any(|asker| asker["comm"].is_null()), "{told:#}");
    assert!(askers(ALICE).iter().all(|asker| asker["comm"] == "python3"), "{told:#}");
    assert!(!askers(ALICE).is_empty());
}

#[test]
fn what_is_free_is_told_to_everybody_and_recording_to_root() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &ALICE.to_string(), "--clear-groups", "--", "/proc/self/fd/0", "frag"]);
        let program = fs::File::open(PLIMSOLL).unwrap();
        let output = command.args(arguments).stdin(program).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), stderr)
    };
    if !is_root() {
        return support::skip("only root can be somebody else");
    }
    let (code, stdout, stderr) = run(&["--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&told["recording"], &told["zones"][0]["pageblocks"]), (&Value::Null, &Value::Null));
    let buddyinfo = fs::read_to_string("/proc/buddyinfo").unwrap();
    assert_eq!(told["zones"].as_array().unwrap().len(), buddyinfo.lines().count());
    let (code, stdout, stderr) = run(&["--record", "1"]);
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (4, "", 1), "{stderr}");
}

/// The device of Android's binder, where a guest has one.
fn binder() -> Option<String> {
    if !guest::is_one() {
        return None;
    }
    let path = "/dev/binder";
    if !Path::new(path).exists() {
        support::skip("binder: this kernel has none");
        return None;
    }
    Some(path.to_owned())
}

/// The seed's case: for 4 MiB binder kept a list of pages in one block of order 3, until it was content with scattered ones
/// (Linux 6.11), and until it needed none (by 7.2).
fn assert_that_the_seeds_call_site_is_named(told: &Value) {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let sites = through(told, "binder_");
    let at: Vec<_> = sites
        .iter()
        .map(|site| (site["order"].as_u64().unwrap(), text(&site["on_failure"]), text(&site["call_site"])))
        .filter(|(order, _, _)| *order >= 3)
        .collect();
    println!("{}: {at:?}", version.trim());
    if version.starts_with("6.1.") {
        let [(3, "forces", site)] = at.as_slice() else { panic!("{told:#}") };
        // Who calls it jumps there, and leaves no frame.
        assert!(site.starts_with("binder_alloc_mmap_handler, "), "{site}");
        assert!(site.ends_with(", through kcalloc or kzalloc"), "{site}");
    } else if version.starts_with("6.12.") {
        assert!(at.len() == 1 && (at[0].0, at[0].1) == (3, "falls-back"), "{at:?}");
    } else {
        assert!(at.is_empty(), "{at:?}");
    }
}
