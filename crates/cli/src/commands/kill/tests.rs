use super::*;
use plimsoll_api::client::CallError;
use std::process::{Child, Command};

fn sleeper() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

/// The command line's answer without a daemon: exit status, what was printed.
fn kill(pids: &[u32], expedite: bool) -> (Exit, Vec<serde_json::Value>) {
    let folder = tempfile::tempdir().unwrap();
    let arguments = Arguments { pids: pids.to_vec(), expedite, json: true };
    let mut out = Vec::new();
    let exit = match run(&arguments, &folder.path().join("socket"), &mut out) {
        Ok(exit) | Err(Failure::Told { exit, .. }) => exit,
        Err(other) => panic!("{other:?}"),
    };
    (exit, if out.is_empty() { Vec::new() } else { serde_json::from_slice(&out).unwrap() })
}

#[test]
fn one_that_is_killed_is_told_with_its_time_and_one_that_is_not_there_fails() {
    let (mut one, mut gone) = (sleeper(), sleeper());
    gone.kill().unwrap();
    gone.wait().unwrap();
    let (exit, told) = kill(&[one.id(), gone.id(), one.id()], false);
    assert!(one.try_wait().unwrap().is_some());
    assert_eq!((exit, told.len()), (Exit::Failed, 2));
    let of = |pid: u32| told.iter().find(|victim| victim["pid"] == pid).unwrap();
    assert_eq!(of(one.id())["result"], "gone");
    assert!(of(one.id())["took_ns"].as_u64().unwrap() > 0 && of(one.id())["freed_bytes"].is_u64());
    assert_eq!(
        (&of(gone.id())["result"], &of(gone.id())["freed_bytes"]),
        (&"no such process".into(), &serde_json::Value::Null)
    );
}

#[test]
fn without_a_daemon_they_are_killed_all_the_same() {
    let mut one = sleeper();
    let (exit, told) = kill(&[one.id()], true);
    assert!(one.try_wait().unwrap().is_some());
    assert_eq!((exit, &told[0]["expedited"]), (Exit::NotRunning, &false.into()));
    let mut one = sleeper();
    assert_eq!(kill(&[one.id()], false).0, Exit::Done);
    one.wait().unwrap();
}

#[test]
fn where_one_is_nobody_to_kill_nobody_is_killed() {
    let mut one = sleeper();
    for spared in [1, std::process::id()] {
        let (exit, told) = kill(&[one.id(), spared], false);
        assert_eq!((exit, told.len()), (Exit::Usage, 0));
    }
    assert!(one.try_wait().unwrap().is_none());
    assert!(spared(Pid(7), Some(Pid(7)), None).is_some_and(|why| why.contains("daemon")));
    assert_eq!(spared(Pid(7), Some(Pid(8)), None), None);
    one.kill().unwrap();
    one.wait().unwrap();
}

#[test]
fn who_could_not_be_killed_comes_before_who_could_not_be_expedited() {
    let victim = |result| Victim {
        pid: 7,
        comm: None,
        result,
        expedited: false,
        freed_bytes: None,
        took_ns: None,
        held: None,
    };
    let exit = |outcomes: &[Outcome], unhelped| {
        let victims: Vec<Victim> = outcomes.iter().cloned().map(victim).collect();
        match conclude(&victims, unhelped) {
            Ok(exit) | Err(Failure::Told { exit, .. }) => exit,
            Err(other) => panic!("{other:?}"),
        }
    };
    let refused = || Some(CallError::NotPermitted("not yours".to_owned()));
    let (gone, denied) = (Outcome::Gone, Outcome::NotPermitted);
    assert_eq!(exit(&[gone.clone(), denied, Outcome::StillThere], refused()), Exit::NotPermitted);
    assert_eq!(exit(&[gone.clone(), Outcome::StillThere], refused()), Exit::Failed);
    assert_eq!(exit(std::slice::from_ref(&gone), refused()), Exit::NotPermitted);
    assert_eq!(exit(&[gone], None), Exit::Done);
}

#[test]
fn what_one_held_is_not_said_to_have_come_back() {
    let mut out = Vec::new();
    show(&mut out, &[]).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("HELD") && !text.contains("FREED"), "{text}");
}
