use super::*;
use crate::message::{Receiver, queue};
use plimsoll_policy::units::{Bytes, Pid};
use std::{fs, os::unix::fs::symlink};

fn listener() -> Listener {
    Listener::default()
}

fn entry(unit: &str, message: &str) -> Vec<u8> {
    serde_json::to_vec(&serde_json::json!({
        "MESSAGE": message, "_SYSTEMD_UNIT": unit, "__REALTIME_TIMESTAMP": "1795237152000000", "_BOOT_ID": "0",
    }))
    .unwrap()
}

const TOOK: &str = "Killed /user.slice/user-1000.slice/app.scope due to memory pressure for /user.slice being 56.02% > \
    50.00% for > 20s with reclaim activity";

#[test]
fn a_cgroup_that_systemd_oomd_took_is_told_once_with_its_user() {
    let mut listener = listener();
    let facts = listener.hear(&entry(OOMD, TOOK)).unwrap().facts;
    assert_eq!(facts.account, Some(Account::User(Uid(1000))));
    assert_eq!((facts.reason, facts.action), (Reason::SystemdOomdKill, Outcome::Kill));
    assert_eq!(facts.origin.killer, Killer::SystemdOomd);
    assert_eq!(facts.origin.cgroup.as_deref(), Some("/user.slice/user-1000.slice/app.scope"));
    assert_eq!(facts.origin.summary.as_deref(), Some(TOOK));
    assert!(facts.victims.is_empty());
    // Some versions announce what they then report.
    let marked = TOOK.replace("Killed", "Marked").replace("scope due", "scope for killing due");
    assert!(listener.hear(&entry(OOMD, &marked)).is_none());
    let another = TOOK.replace("app.scope", "other.scope");
    assert!(listener.hear(&entry(OOMD, &another)).is_some());
}

#[test]
fn a_process_that_earlyoom_signalled_is_told_with_what_its_line_says() {
    let message = r#"sending SIGTERM to process 4294967 uid 1000 "tail": oom_score 156, oom_score_adj 0, VmRSS 4962 MiB, cmdline "x""#;
    let facts = listener().hear(&entry(EARLYOOM, message)).unwrap().facts;
    let victim = &facts.victims[0];
    assert_eq!((victim.pid, victim.uid, victim.comm.as_str()), (Pid(4_294_967), Uid(1000), "tail"));
    assert_eq!((victim.usage_bytes, victim.start_ns), (Bytes(4962 << 20).0, 0));
    assert_eq!((facts.action, facts.id()), (Outcome::Term, None));
}

#[test]
fn a_cgroup_that_is_taken_again_is_told_again_and_one_that_is_announced_and_reported_once() {
    let mut listener = listener();
    let killed = TOOK.as_bytes();
    let marked = TOOK.replace("Killed", "Marked").replace("scope due", "scope for killing due");
    let mut is_told =
        |message: &[u8], second: u64| listener.oomd(message, Nanos(second * 1_000_000_000)).is_some();
    assert!(is_told(killed, 100) && !is_told(killed, 104));
    assert!(is_told(killed, 119), "15 s later it is taken again");
    assert!(is_told(marked.as_bytes(), 200) && !is_told(killed, 220), "a hook took 20 s");
    assert!(is_told(marked.as_bytes(), 235) && !is_told(killed, 236) && is_told(killed, 251));
}

/// earlyoom's line of a process.
fn line_of(pid: u32, uid: u32, comm: &str) -> Vec<u8> {
    entry(
        EARLYOOM,
        &format!("sending SIGKILL to process {pid} uid {uid} \"{comm}\": oom_score 156, VmRSS 4 MiB"),
    )
}

fn link() -> (Link, Receiver<super::super::Message>) {
    let (messages, queue) = queue(4).unwrap();
    (Link { messages, shared: Arc::default() }, queue)
}

#[test]
fn a_process_that_lives_must_be_what_earlyoom_says_and_is_told_when_it_has_gone() {
    let mut listener = Listener { proc: ProcRoot::open(Path::new("/proc")).ok(), ..Listener::default() };
    let mut child = Command::new("sleep").arg("30").spawn().unwrap();
    let (pid, own) = (child.id(), nix::unistd::getuid().as_raw());
    assert!(listener.hear(&line_of(pid, own, "another")).is_none());
    assert!(listener.hear(&line_of(pid, own + 777, "sleep")).is_none());
    let heard = listener.hear(&line_of(pid, own, "sleep")).unwrap();
    assert!(heard.goes.is_some() && heard.facts.victims[0].start_ns > 0);
    let ((link, queue), witnesses) = (link(), Arc::new(()));
    tell(heard, &link, &witnesses);
    assert!(queue.next().is_err(), "it lives");
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while queue.next().is_err() {
        assert!(Instant::now() < deadline, "it is not told");
        thread::sleep(Duration::from_millis(5));
    }
    child.wait().unwrap();
    // Gone before it was looked at: the line is all that there is.
    let heard = listener.hear(&line_of(pid, own, "sleep")).unwrap();
    assert!(heard.goes.is_none());
}

#[test]
fn nobody_s_word_counts_but_that_of_who_journald_says_wrote_it() {
    let mut listener = listener();
    for unit in ["user@1000.service", "systemd-oomd.service.evil", "", "ssh.service"] {
        assert!(listener.hear(&entry(unit, TOOK)).is_none(), "{unit}");
    }
    // What a program can send: fields of its own, also twice the same.
    for forged in [
        serde_json::json!({"MESSAGE": TOOK, "SYSTEMD_UNIT": OOMD}),
        serde_json::json!({"MESSAGE": TOOK, "_SYSTEMD_UNIT": ["ssh.service", OOMD]}),
        serde_json::json!({"MESSAGE": [TOOK, TOOK], "_SYSTEMD_UNIT": OOMD}),
        serde_json::json!({"MESSAGE": null, "_SYSTEMD_UNIT": OOMD}),
        serde_json::json!([TOOK]),
    ] {
        assert!(listener.hear(&serde_json::to_vec(&forged).unwrap()).is_none(), "{forged}");
    }
    assert!(listener.hear(b"{").is_none());
    // A message that is no UTF-8 comes as numbers.
    let bytes: Vec<u8> = TOOK.bytes().collect();
    let numbers = serde_json::json!({"MESSAGE": bytes, "_SYSTEMD_UNIT": OOMD});
    assert!(listener.hear(&serde_json::to_vec(&numbers).unwrap()).is_some());
}

#[test]
fn only_what_is_installed_is_followed_and_what_is_missing_is_said() {
    let root = tempfile::tempdir().unwrap();
    let none = Sources::below(root.path()).unwrap_err();
    assert!(none.contains("neither systemd-oomd nor earlyoom is installed"), "{none}");
    fs::create_dir_all(root.path().join("usr/lib/systemd/system")).unwrap();
    fs::write(root.path().join("usr/lib/systemd/system").join(EARLYOOM), "").unwrap();
    let idle = Sources::below(root.path()).unwrap_err();
    assert!(idle.contains("earlyoom.service is installed, but neither enabled nor running"), "{idle}");
    let wants = root.path().join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("/usr/lib/systemd/system/earlyoom.service", wants.join(EARLYOOM)).unwrap();
    let mask = root.path().join("etc/systemd/system").join(EARLYOOM);
    symlink("/dev/null", &mask).unwrap();
    assert!(Sources::below(root.path()).unwrap_err().contains("neither enabled nor running"), "masked");
    fs::remove_file(mask).unwrap();
    let journal = Sources::below(root.path()).unwrap_err();
    assert!(journal.contains("no systemd journal, where earlyoom.service would write"), "{journal}");
    fs::create_dir_all(root.path().join("run/log/journal")).unwrap();
    assert!(Sources::below(root.path()).unwrap_err().contains("no journalctl"));
    fs::create_dir_all(root.path().join("usr/bin")).unwrap();
    fs::write(root.path().join("usr/bin/journalctl"), "").unwrap();
    let sources = Sources::below(root.path()).unwrap();
    assert_eq!(sources.units, [EARLYOOM]);
    // Not enabled, but started by hand.
    fs::remove_file(wants.join(EARLYOOM)).unwrap();
    Sources::below(root.path()).unwrap_err();
    fs::create_dir_all(root.path().join("run/systemd/units")).unwrap();
    symlink("0123", root.path().join("run/systemd/units/invocation:earlyoom.service")).unwrap();
    assert_eq!(Sources::below(root.path()).as_ref(), Ok(&sources));
    // Called at its socket.
    fs::write(root.path().join("usr/lib/systemd/system").join(OOMD), "").unwrap();
    assert_eq!(Sources::below(root.path()).as_ref(), Ok(&sources));
    let sockets = root.path().join("etc/systemd/system/sockets.target.wants");
    fs::create_dir_all(&sockets).unwrap();
    symlink("/usr/lib/systemd/system/systemd-oomd.socket", sockets.join("systemd-oomd.socket")).unwrap();
    assert_eq!(Sources::below(root.path()).unwrap().units, [OOMD, EARLYOOM]);
    let command = format!("{:?}", sources.command(Written::now()));
    assert!(command.contains("_SYSTEMD_UNIT=earlyoom.service") && !command.contains("oomd"), "{command}");
}

#[test]
fn what_a_follower_writes_is_heard_until_it_ends() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("entries");
    let mut entries = entry("ssh.service", TOOK);
    entries.push(b'\n');
    // An entry too long to be one of theirs, and its rest.
    entries.extend(vec![b'x'; usize::try_from(ENTRY_BYTES_MAX).unwrap() + 9]);
    entries.push(b'\n');
    entries.extend(entry(OOMD, TOOK));
    entries.push(b'\n');
    fs::write(&file, entries).unwrap();
    let child = Command::new("cat").arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let (link, queue) = link();
    let (ended, read) = listen(child, &link);
    assert_eq!((ended.as_str(), read), ("exit status: 0", Some(Written(1_795_237_152_000_000))));
    let heard: Vec<super::super::Message> = std::iter::from_fn(|| queue.next().ok()).collect();
    assert!(matches!(heard.as_slice(), [super::super::Message::Foreign(_)]), "{heard:?}");
}
