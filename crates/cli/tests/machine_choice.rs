//! Whom the machine guard chooses, with real processes in a pid namespace of their own: rules, preferences and their
//! pitfalls, and how much goes with a victim.
#![cfg(test)]

#[macro_use]
mod sandbox;
mod support;

use sandbox::{ALICE, DIRE, Memory, PLENTY, SHORT, Sandbox, assert_incident, inside};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};
use support::{
    assert_has,
    program::{Program, workloads},
    wait_for,
};

impl Sandbox {
    /// A copy of `chill` by this name: what it is called, and which file it runs.
    fn copy_of_chill(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::copy(workloads().join("chill"), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Holds so much asleep, under this name. Gives its number inside, too.
    fn chill(&self, name: &str, mebibytes: u32, oom_score_adj: i32) -> (Program, u64) {
        let script = format!(
            "echo {oom_score_adj} > /proc/self/oom_score_adj && echo number $$ && \
             exec setpriv --reuid {ALICE} --clear-groups -- {path} --mebibytes={mebibytes} --no-thp --seconds=90",
            path = self.copy_of_chill(name).display(),
        );
        let mut program = Program::of(inside(self.init_pid).args(["sh", "-c", &script]));
        let pid = program.stage("number").parse().unwrap();
        program.stage("ready");
        (program, pid)
    }

    /// The first victim of the first incident.
    fn victim(&self) -> u64 {
        self.incidents(1)[0]["victims"][0]["pid"].as_u64().unwrap()
    }
}

/// Nobody is signalled, so memory does not come back, and the choice is told all the same.
const DRY: &[&str] = &["--dry-run"];

const QUIET: &str = "[machine]\nnotice = false\n";

#[test]
fn a_preferred_one_goes_before_one_of_three_times_its_size() {
    let sandbox = sandbox!(&format!("{QUIET}[[rules]]\neffect = \"prefer\"\ncomm = \"tab-*\"\n"), DRY);
    let (mut large, _) = sandbox.chill("editor", 60, 0);
    let (_tab, tab) = sandbox.chill("tab-7", 20, 0);
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), tab);
    sandbox.is(PLENTY);
    assert!(large.runs());
}

#[test]
fn an_avoided_one_goes_after_one_of_half_its_size() {
    let unit = "[[rules]]\neffect = \"avoid\"\nexe = [\"/nowhere\", \"*/compositor\"]\n";
    let sandbox = sandbox!(&format!("{QUIET}{unit}"), DRY);
    let (mut avoided, _) = sandbox.chill("compositor", 64, 0);
    let (_hog, hog) = sandbox.chill("hog", 32, 0);
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), hog);
    sandbox.is(PLENTY);
    assert!(avoided.runs());
}

#[test]
fn never_protects_what_only_root_can_write_and_not_a_copy_or_a_name() {
    let rule = "[[rules]]\neffect = \"never\"\nexe = \"*/database\"\n";
    let sandbox = sandbox!(&format!("{QUIET}{rule}"), DRY);
    let (mut database, _) = sandbox.chill("database", 64, 0);
    // The same name, in a folder and a file that others may write.
    let forged = sandbox.folder.path().join("forged");
    fs::create_dir(&forged).unwrap();
    let copy = forged.join("database");
    fs::copy(sandbox.copy_of_chill("other"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = inside(sandbox.init_pid);
    command
        .arg("sh")
        .arg("-c")
        .arg(format!("echo number $$; exec {} --mebibytes=32 --seconds=90", copy.display()));
    let mut imitator = Program::of(command);
    let forger: u64 = imitator.stage("number").parse().unwrap();
    imitator.stage("ready");
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), forger);
    sandbox.is(PLENTY);
    assert!(database.runs());
}

#[test]
fn a_high_oom_score_adj_does_not_put_a_small_process_before_a_hog() {
    // earlyoom issues 344 and 230: the browser's tab at 300, the container at 1000.
    let sandbox = sandbox!(QUIET, DRY);
    let (mut tab, _) = sandbox.chill("tab", 8, 300);
    let (mut pod, _) = sandbox.chill("pod", 12, 1000);
    let (_hog, hog) = sandbox.chill("hog", 64, 0);
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), hog);
    sandbox.is(PLENTY);
    assert!(tab.runs() && pod.runs());
}

#[test]
fn of_two_of_like_size_the_one_of_the_higher_oom_score_adj_goes_first() {
    let sandbox = sandbox!(QUIET, DRY);
    let (mut first, _) = sandbox.chill("first", 40, 0);
    let (_second, second) = sandbox.chill("second", 32, 800);
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), second);
    sandbox.is(PLENTY);
    assert!(first.runs());
}

/// A shell with two children that hold memory, as `make` has; gives its number and the larger child's. They do not end with
/// the shell: whoever goes was signalled.
fn make(sandbox: &Sandbox) -> (Program, u64, u64) {
    let (small, large) = (sandbox.copy_of_chill("cc"), sandbox.copy_of_chill("ld"));
    let script = format!(
        "echo number $$; {} --outlive --mebibytes=16 --seconds=90 & {} --outlive --mebibytes=48 --seconds=90 & \
         echo larger $!; wait; sleep 60",
        small.display(),
        large.display()
    );
    let shell = sandbox.folder.path().join("make");
    fs::copy("/bin/sh", &shell).unwrap();
    let mut program = Program::of(inside(sandbox.init_pid).arg(shell).args(["-c", &script]));
    let shell = program.stage("number").parse().unwrap();
    let larger = program.stage("larger").parse().unwrap();
    for _ in 0..2 {
        program.stage("ready");
    }
    (program, shell, larger)
}

#[test]
fn a_job_that_a_rule_takes_as_a_tree_goes_whole_and_what_it_was_started_from_stays() {
    let rule = "[[rules]]\neffect = \"prefer\"\nweight = 101\ncomm = \"make\"\nscope = \"tree\"\n\
                [[rules]]\neffect = \"never\"\nexe = \"*/tmux\"\n";
    let sandbox = sandbox!(&format!("{QUIET}{rule}"));
    let (mut server, _) = sandbox.chill("tmux", 8, 0);
    let (mut job, shell, larger) = make(&sandbox);
    sandbox.is(DIRE);
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_incident(&incident, "kill", "machine-low-memory-kill", larger);
    let victims: Vec<u64> =
        incident["victims"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert!(victims.contains(&shell) && victims.len() == 3, "{incident}");
    wait_for("the job is gone", || !job.runs());
    assert!(server.runs());
}

#[test]
fn without_such_a_rule_only_the_victim_of_a_job_goes() {
    let sandbox = sandbox!(QUIET);
    let (_job, _, larger) = make(&sandbox);
    sandbox.is(DIRE);
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_incident(&incident, "kill", "machine-low-memory-kill", larger);
    assert_eq!(incident["victims"].as_array().unwrap().len(), 1, "{incident}");
}

#[test]
fn a_shortage_that_comes_is_told_once_with_who_would_be_next() {
    let sandbox = sandbox!("[machine]\n");
    let (mut process, pid) = sandbox.process(48, "leave");
    sandbox.is(Memory { available_mib: 150, ..PLENTY });
    let incident = sandbox.incidents(1)[0].clone();
    assert_has(&incident, &json!({"action": "notify", "reason": "machine-low-memory-notice"}));
    assert_eq!((&incident["victims"], &incident["peers"][0]["pid"]), (&Value::Array(vec![]), &pid.into()));
    sandbox.assert_quiet(1, Duration::from_millis(800));
    assert!(process.runs());
    let told = sandbox.run(&["why"]).1;
    assert!(told.contains("getting short of memory") && told.contains("end what is not needed"), "{told}");
    sandbox.is(SHORT);
    process.stage("asked");
    assert_incident(&sandbox.incidents(2)[1], "term", "machine-low-memory-term", pid);
}

#[test]
fn a_dry_run_says_who_would_have_been_signalled_and_how_soon_and_signals_nobody() {
    let sandbox = sandbox!(QUIET, DRY);
    let (mut process, pid) = sandbox.chill("hog", 48, 0);
    sandbox.is(DIRE);
    let incident = sandbox.incidents(1)[0].clone();
    assert_incident(&incident, "notify", "machine-low-memory-kill", pid);
    assert!(incident["cross_to_signal_ns"].as_u64().is_some_and(|span| span > 0), "{incident}");
    sandbox.assert_quiet(1, Duration::from_millis(800));
    assert!(process.runs());
}

#[test]
fn rules_are_read_again_at_a_reload_and_a_bad_one_changes_nothing() {
    let sandbox = sandbox!(QUIET, DRY);
    let config = sandbox.folder.path().join("plimsoll.toml");
    let (mut large, _) = sandbox.chill("editor", 60, 0);
    let (_tab, tab) = sandbox.chill("tab-7", 20, 0);
    fs::write(&config, format!("{QUIET}[[rules]]\neffect = \"never\"\ncomm = \"tab-*\"\n")).unwrap();
    sandbox.reload();
    wait_for("the bad rule is told", || sandbox.log().contains("never' needs exe"));
    fs::write(&config, format!("{QUIET}[[rules]]\neffect = \"prefer\"\ncomm = \"tab-*\"\n")).unwrap();
    sandbox.reload();
    wait_for("it is reloaded", || sandbox.log().contains("configuration reloaded"));
    sandbox.is(DIRE);
    assert_eq!(sandbox.victim(), tab);
    sandbox.is(PLENTY);
    assert!(large.runs());
}

#[test]
fn what_a_victim_left_in_the_lists_of_cpus_costs_no_second_one() {
    let sandbox = sandbox!(QUIET);
    let (mut next, _) = sandbox.chill("next", 16, 0);
    let (_first, first) = sandbox.chill("first", 48, 0);
    // 400 MiB: with them the machine is not short.
    sandbox.waits(102_400);
    sandbox.is(DIRE);
    assert_incident(&sandbox.incidents(1)[0], "kill", "machine-low-memory-kill", first);
    sandbox.assert_quiet(1, Duration::from_millis(1500));
    assert!(next.runs());
    // They are used up, and nothing came back.
    sandbox.waits(0);
    assert_eq!(sandbox.incidents(2)[1]["action"], "kill");
}
