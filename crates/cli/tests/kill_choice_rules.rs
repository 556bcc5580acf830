//! Rules, marks and `oom_score_adj` at a user's line: who is killed by what they make of sizes, by the kernel side and by the
//! daemon alike, and what becomes of it at exec, at fork, at a reload and when the daemon dies.
#![cfg(test)]

mod support;

use rustix::{
    fs::{XattrFlags, setxattr},
    process::Signal,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};
use support::{
    ALICE, Fixture, SOON,
    cgroup::Cgroup,
    exact,
    program::{PYTHON, Program, workloads},
    until, wait_for,
};

/// Near from the first few MiB on, so that everybody is judged long before the line is crossed.
const SOFT: &[&str] = &["--soft=4M"];

impl Fixture {
    /// A copy of a workload by this name, in a folder and a file that only root can write.
    fn copy(&self, workload: &str, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::copy(workloads().join(workload), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Holds so much asleep under this name.
    fn chill(&self, name: &str, mebibytes: u32) -> Program {
        self.owns(ALICE);
        let mut command = self.as_user(ALICE, self.copy("chill", name));
        command.args([format!("--mebibytes={mebibytes}"), "--no-thp".to_owned()]);
        Program::of(command).ready()
    }

    /// Grows to so much, and holds it.
    fn bloat(&self, mebibytes: u32) -> Program {
        let size = format!("--mebibytes={mebibytes}");
        self.workload(ALICE, "bloat", &[&size, "--no-thp", "--rate=200"])
    }

    /// Waits until the programs know that it counts so much, and whether it is never taken.
    #[track_caller]
    fn counts(&self, pid: u32, permille: u16, never: bool) {
        until(&format!("{pid} counts {permille}, never: {never}"), SOON, || {
            let space = self.space(pid)?;
            (space.weight?.permille() == permille && space.never == never).then_some(())
        });
    }
}

fn rule(effect: &str, what: &str) -> String {
    format!("[[rules]]\neffect = \"{effect}\"\n{what}\n")
}

fn victim(incident: &Value) -> u32 {
    u32::try_from(incident["victims"][0]["pid"].as_u64().unwrap()).unwrap()
}

#[track_caller]
fn assert_taken(incident: &Value, trigger: &str, pid: u32) {
    assert_eq!((incident["trigger"].as_str().unwrap(), victim(incident)), (trigger, pid), "{incident}");
    assert_eq!(incident["action"], "kill", "{incident}");
}

/// The avoided sleeper of 48 MiB counts 12, and the other sleeper of 24 MiB goes when a third of 12 crosses.
fn the_next_in_size_goes(fixture: &Fixture, trigger: &str) {
    let mut avoided = fixture.chill("compositor", 48);
    let mut hog = fixture.chill("hog", 24);
    fixture.counts(avoided.pid(), 250, false);
    fixture.counts(hog.pid(), 1000, false);
    let mut worker = fixture.bloat(12);
    hog.killed();
    worker.fills();
    let incidents = fixture.incidents(1);
    assert_taken(&incidents[0], trigger, hog.pid());
    assert!(avoided.runs() && worker.runs());
    // Why the smaller one: its peer is larger, and counts less.
    let peer = incidents[0]["peers"].as_array().unwrap().iter().find(|one| one["pid"] == avoided.pid());
    assert_eq!(peer.map(|one| &one["weight_permille"]), Some(&250.into()), "{}", incidents[0]);
    assert_eq!(incidents[0]["victims"][0].get("weight_permille"), None, "{}", incidents[0]);
    let told = fixture.ok(&["why"]);
    assert!(told.contains("counting 25 %"), "{told}");
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn an_avoided_one_lives_and_the_next_is_killed_in_the_very_event() {
    let fixture = fixture!(&rule("avoid", "exe = \"*/compositor\""));
    fixture.limit(ALICE, "80M", SOFT);
    let (trigger, _) = fixture.for_another();
    the_next_in_size_goes(&fixture, trigger);
}

#[test]
fn the_daemon_chooses_as_the_kernel_side_does() {
    let fixture =
        fixture!(&format!("[limits]\ntriggers = [\"daemon\"]\n{}", rule("avoid", "exe = \"*/compositor\"")));
    fixture.limit(ALICE, "80M", SOFT);
    the_next_in_size_goes(&fixture, "daemon");
}

#[test]
fn a_preferred_one_goes_before_one_of_three_times_its_size() {
    let fixture = fixture!(&rule("prefer", "comm = \"tab-*\""));
    fixture.limit(ALICE, "64M", SOFT);
    let (trigger, _) = fixture.for_another();
    let mut editor = fixture.chill("editor", 42);
    let mut tab = fixture.chill("tab-7", 14);
    fixture.counts(tab.pid(), 4000, false);
    let mut worker = fixture.bloat(12);
    tab.killed();
    worker.fills();
    let incidents = fixture.incidents(1);
    assert_taken(&incidents[0], trigger, tab.pid());
    assert_eq!(incidents[0]["victims"][0]["weight_permille"], 4000, "{}", incidents[0]);
    assert!(editor.runs());
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn one_that_a_rule_never_lets_go_is_left_when_only_it_is_left() {
    let fixture = fixture!(&rule("never", "exe = \"*/database\""));
    fixture.limit(ALICE, "48M", SOFT);
    let mut database = fixture.chill("database", 40);
    fixture.counts(database.pid(), 1000, true);
    let mut crossing = fixture.bloat(24);
    crossing.killed();
    assert_taken(&fixture.incidents(1)[0], "in-kernel", crossing.pid());
    // And by its own allocation: nobody else is left.
    database.stop();
    let mut database = grown_by_word(&fixture);
    fixture.counts(database.pid(), 1000, true);
    database.tell("grow");
    database.stage("full");
    let incidents = fixture.incidents(2);
    assert_eq!(incidents[1]["reason"], "over-hard-limit-only-protected-left", "{}", incidents[1]);
    assert!(database.runs());
}

/// Holds 16 MiB as `database`, and 64 when it is told to: however long it takes until it is judged.
fn grown_by_word(fixture: &Fixture) -> Program {
    let mut command = fixture.as_user(ALICE, fixture.copy(PYTHON, "database"));
    command.args([
        "-c",
        "import sys, time\n\
         held = b'x' * (16 << 20)\n\
         print('ready', flush=True)\n\
         sys.stdin.readline()\n\
         more = b'x' * (48 << 20)\n\
         print('full', flush=True)\n\
         time.sleep(60)\n",
    ]);
    Program::of(command).ready()
}

#[test]
fn a_command_line_that_a_rule_asks_for_is_read_and_counts() {
    let fixture = fixture!(&rule("avoid", "cmdline = \"*--mebibytes=48*\""));
    fixture.limit(ALICE, "80M", SOFT);
    let (trigger, _) = fixture.for_another();
    the_next_in_size_goes(&fixture, trigger);
}

#[test]
fn oom_score_adj_is_a_preference_and_not_what_we_made_of_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "80M", SOFT);
    let mut large = fixture.chill("large", 30);
    // The last defence has raised it by now or does soon: that says nothing about it.
    let mut asked_for = fixture.chill("preferred", 20);
    fs::write(format!("/proc/{}/oom_score_adj", asked_for.pid()), "900").unwrap();
    fixture.counts(asked_for.pid(), 1900, false);
    wait_for("the largest is raised", || exact::oom_score_adj(large.pid()).is_some_and(|now| now != 0));
    fixture.counts(large.pid(), 1000, false);
    let mut worker = fixture.bloat(36);
    asked_for.killed();
    worker.fills();
    assert_eq!(victim(&fixture.incidents(1)[0]), asked_for.pid());
    assert!(large.runs());
}

fn mark(cgroup: &Cgroup, name: &str, owner: u32) {
    chown(cgroup.folder(), Some(owner), None).unwrap();
    setxattr(cgroup.folder(), name, b"1", XattrFlags::empty()).unwrap();
}

#[test]
fn marks_count_as_root_sets_them_and_a_users_own_within_bounds() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", SOFT);
    let Some(cgroup) = Cgroup::of("marks") else { return };
    let mut one = fixture.chill("one", 40);
    fixture.counts(one.pid(), 1000, false);
    // Nothing tells of a mark: it is seen when those who could come first are judged again.
    cgroup.take(one.pid());
    mark(&cgroup, "user.oomd_omit", ALICE);
    fixture.counts(one.pid(), 500, false);
    mark(&cgroup, "user.oomd_omit", 0);
    fixture.counts(one.pid(), 1000, true);
    one.stop();
}

/// Holds 30 MiB, and does what it is told: forks, or becomes another program.
fn python(fixture: &Fixture, next: &Path) -> Program {
    fixture
        .python(
            ALICE,
            &format!(
                "import os, sys\n\
             held = bytearray(30 << 20)\n\
             for at in range(0, len(held), 4096): held[at] = 1\n\
             say('ready')\n\
             while True:\n\
             \x20   line = sys.stdin.readline().strip()\n\
             \x20   if line == 'fork':\n\
             \x20       child = os.fork()\n\
             \x20       while not child: __import__('time').sleep(60)\n\
             \x20       say('child', child)\n\
             \x20   else:\n\
             \x20       os.execv('{next}', ['{next}', '--mebibytes=30', '--no-thp'])\n",
                next = next.display()
            ),
        )
        .ready()
}

#[test]
fn a_forked_child_counts_what_its_parent_does_and_another_program_is_judged_anew() {
    let fixture = fixture!(&rule("avoid", "comm = \"python*\""));
    fixture.limit(ALICE, "72M", SOFT);
    let next = fixture.copy("chill", "plain");
    let mut program = python(&fixture, &next);
    fixture.counts(program.pid(), 250, false);
    // Nobody judges now.
    fixture.signal(Signal::STOP);
    program.tell("fork");
    let child: u32 = program.stage("child").parse().unwrap();
    let space = until("it is known", SOON, || fixture.space(child));
    assert_eq!(space.weight.map(|weight| weight.permille()), Some(250), "{space:?}");
    program.tell("exec");
    program.stage("ready");
    let space = until("it is known", SOON, || fixture.space(program.pid()));
    assert_eq!((space.weight, space.never), (None, false), "{space:?}");
    fixture.signal(Signal::CONT);
    fixture.counts(program.pid(), 1000, false);
}

#[test]
fn rules_that_are_read_again_judge_everybody_anew() {
    let avoid = rule("avoid", "comm = \"compositor\"");
    let fixture = fixture!(&avoid);
    fixture.limit(ALICE, "128M", SOFT);
    let one = fixture.chill("compositor", 48);
    fixture.counts(one.pid(), 250, false);
    fixture.configure(&rule("never", "exe = \"*/compositor\""));
    fixture.reload();
    fixture.counts(one.pid(), 1000, true);
    fixture.configure(&rule("prefer", "exe = \"*/compositor\""));
    fixture.reload();
    fixture.counts(one.pid(), 4000, false);
    fixture.configure("");
    fixture.reload();
    fixture.counts(one.pid(), 1000, false);
}

#[test]
fn what_was_said_holds_when_the_daemon_is_dead_and_the_next_one_judges_anew() {
    let mut fixture = fixture!(&rule("avoid", "exe = \"*/compositor\""));
    fixture.limit(ALICE, "80M", SOFT);
    let mut avoided = fixture.chill("compositor", 48);
    fixture.counts(avoided.pid(), 250, false);
    fixture.end_daemon(Signal::KILL);
    // It is the largest as weighed, so that it is taken on every kernel.
    let mut crossing = fixture.bloat(64);
    crossing.killed();
    assert!(avoided.runs());
    fixture.configure(&rule("prefer", "exe = \"*/compositor\""));
    fixture.launch();
    fixture.counts(avoided.pid(), 4000, false);
    let incidents = fixture.incidents(1);
    assert_taken(&incidents[0], "in-kernel", crossing.pid());
    assert_eq!(incidents.len(), 1);
}
