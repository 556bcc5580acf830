use super::{Arguments, Killer, run};
use crate::exit::{Exit, Failure};
use plimsoll_daemon::config::{self, Places};
use plimsoll_policy::{
    machine::Permille,
    units::{Bytes, Nanos},
};
use std::fs;

fn imported(from: Killer, options: &str) -> Result<config::Config, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("options"), options).unwrap();
    let mut out = Vec::new();
    let exit = run(&Arguments { from, file: Some(path("options")) }, &mut out)?;
    assert_eq!(exit, Exit::Done);
    fs::write(path("plimsoll.toml"), &out).unwrap();
    let text = String::from_utf8(out).unwrap();
    Ok(config::load(&Places::new(Some(&path("plimsoll.toml"))))
        .unwrap_or_else(|error| panic!("{error}:\n{text}")))
}

#[test]
fn the_daemon_takes_what_comes_of_any_options() {
    let arguments = [
        "",
        "-m 10 -s 10 -r 60 --avoid '(^|/)(init|systemd|Xorg|sshd)$' --prefer '(^|/)(java|chromium)$'",
        "-m 0 -s 0",
        "-m 100,100 -s 100,100",
        "-M 1048576 -m 0.1 -S 5,5 -g -p -n --dryrun --ignore-root-user --sort-by-rss",
        "-M 0 -w 999999999",
        "-M 1000000000000 --ignore 'a\"b' --prefer \\\\.",
    ];
    for arguments in arguments {
        imported(Killer::Earlyoom, &format!("EARLYOOM_ARGS={arguments}\n")).unwrap();
    }
    for options in
        ["", "[OOM]\nSwapUsedLimit=0%\n", "[OOM]\nSwapUsedLimit=100%\nDefaultMemoryPressureLimit=0%\n"]
    {
        imported(Killer::SystemdOomd, options).unwrap();
    }
}

#[test]
fn what_was_configured_is_what_the_guard_does() {
    let config =
        imported(Killer::Earlyoom, "EARLYOOM_ARGS=\"-m 20,18 -s 100 --prefer '^(a|b)$'\"\n").unwrap();
    let guard = config.machine.guard;
    assert_eq!((guard.term.memory, guard.kill.memory), (Permille(200), Permille(180)));
    assert_eq!(
        (guard.term.swap, guard.kill.swap, guard.memory_max),
        (Permille(1000), Permille(500), Bytes(1 << 40))
    );
    assert_ne!(config.rules, config::Config::default().rules);
    let oomd = imported(Killer::SystemdOomd, "[OOM]\nDefaultMemoryPressureDurationSec=20s\n").unwrap();
    let stall = oomd.machine.guard.stall.unwrap();
    assert_eq!((stall.full, stall.within), (Permille(600), Nanos(20_000_000_000)));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let arguments = Arguments { from: Killer::Earlyoom, file: Some("/nonexistent".into()) };
    let Err(Failure::Told { exit: Exit::Failed, message }) = run(&arguments, &mut Vec::new()) else {
        panic!()
    };
    assert!(message.contains("'/nonexistent'") && message.contains("name the file"), "{message}");
}
