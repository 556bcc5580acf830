//! How much goes with a victim of the machine guard, with real processes: a build under tmux, a browser's tab, a cgroup in
//! which somebody is never selected; and that a dry run names just those.
#![cfg(test)]

#[macro_use]
mod sandbox;
mod support;

use sandbox::{DIRE, Memory, PLENTY, Sandbox, inside};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use support::{
    SOON,
    cgroup::Cgroup,
    program::{PYTHON, Program, workloads},
    until, wait_for,
};

const QUIET: &str = "[machine]\nnotice = false\n";

const DRY: &[&str] = &["--dry-run"];

/// Near enough to a shortage that command lines are read.
const NEAR: Memory = Memory { available_mib: 150, ..PLENTY };

/// Processes of one script, by the names that it gives them.
struct Family {
    _script: Program,
    members: BTreeMap<String, u64>,
    sandbox_pid: u32,
}

impl Family {
    /// Those who live, by name.
    fn living(&self) -> Vec<&str> {
        let lives = |pid: &u64| {
            let stat = format!("grep -qs '^State:.*[RSDTt] (' /proc/{pid}/status");
            inside(self.sandbox_pid).args(["sh", "-c", &stat]).status().unwrap().success()
        };
        self.members.iter().filter(|(_, pid)| lives(pid)).map(|(name, _)| name.as_str()).collect()
    }

    #[track_caller]
    fn assert_left(&self, expected: &[&str]) {
        wait_for(&format!("only {expected:?} are left of {:?}", self.members), || self.living() == expected);
        // And they stay.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.living(), expected);
    }

    fn named(&self, incident: &Value) -> Vec<&str> {
        let name = |victim: &Value| {
            let found = self.members.iter().find(|(_, pid)| victim["pid"] == **pid);
            found.map_or("somebody else", |(name, _)| name.as_str())
        };
        incident["victims"].as_array().unwrap().iter().map(name).collect()
    }
}

impl Sandbox {
    /// So short that somebody is killed; what they had is seen to come back, so that it is one.
    fn is_dire_once(&self) {
        self.waits(102_400);
        self.is(DIRE);
    }

    fn write_script(&self, name: &str, text: &str) {
        let folder = self.folder.path().display();
        fs::write(self.folder.path().join(name), format!("F={folder}\n{text}")).unwrap();
    }

    fn copy(&self, of: &Path, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::copy(of, &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Runs a script in a shell called `name`; each of `members` says its name and number, those in `holders` that they are
    /// full.
    fn family(&self, name: &str, script: &str, members: &[&str], holders: usize) -> Family {
        let mut command = inside(self.init_pid);
        command.arg(self.copy(Path::new("/bin/sh"), name)).arg(self.folder.path().join(script));
        let mut script = Program::of(command);
        let mut numbers = BTreeMap::new();
        // They run side by side.
        let mut full = 0;
        while numbers.len() < members.len() || full < holders {
            let line = script.line();
            match line.split_once(' ') {
                Some((member, pid)) if members.contains(&member) => {
                    numbers.insert(member.to_owned(), pid.parse().unwrap());
                }
                _ => full += usize::from(line.starts_with("ready")),
            }
        }
        Family { _script: script, members: numbers, sandbox_pid: self.init_pid }
    }

    /// A tmux server with a build in one pane and an editor in the other. The build moves into `cgroup`, if there is one; so
    /// does the server, if `together`.
    fn tmux(&self, cgroup: Option<&Cgroup>, together: bool) -> Family {
        for name in ["vim", "cc1", "ld"] {
            self.copy(&workloads().join("chill"), name);
        }
        for name in ["bash", "make"] {
            self.copy(Path::new("/bin/sh"), name);
        }
        let join = |cgroup: Option<&Cgroup>| {
            cgroup.map(|cgroup| format!("echo $$ >{}\n", cgroup.processes().display())).unwrap_or_default()
        };
        let server = join(cgroup.filter(|_| together));
        self.write_script(
            "server.sh",
            // It waits by itself in the end: a child would be one more process of its cgroup.
            &format!("{server}mkfifo \"$F/never\"\necho tmux $$\n\"$F/bash\" \"$F/pane.sh\" &\n\"$F/vim\" --mebibytes=24 --seconds=90 &\necho vim $!\nwait\nread never <\"$F/never\"\n"),
        );
        self.write_script("pane.sh", "echo pane $$\n\"$F/make\" \"$F/make.sh\"\nsleep 60\n");
        self.write_script(
            "make.sh",
            &format!("{}echo make $$\n\"$F/cc1\" --mebibytes=16 --seconds=90 &\necho cc1 $!\n\"$F/ld\" --mebibytes=48 --seconds=90 &\necho ld $!\nwait\nsleep 60\n", join(cgroup)),
        );
        self.family("tmux: server", "server.sh", &["tmux", "vim", "pane", "make", "cc1", "ld"], 3)
    }
}

/// A rule by which what is called so is taken together with others, and weighs as if there were none.
fn rule(comm: &str, scope: &str) -> String {
    format!("[[rules]]\neffect = \"prefer\"\nweight = 101\ncomm = \"{comm}\"\nscope = \"{scope}\"\n")
}

#[test]
fn of_a_build_under_tmux_the_process_dies_and_the_server_and_the_other_pane_live() {
    let sandbox = sandbox!(QUIET);
    let family = sandbox.tmux(None, false);
    sandbox.is_dire_once();
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_eq!(family.named(&incident), ["ld"]);
    family.assert_left(&["cc1", "make", "pane", "tmux", "vim"]);
}

#[test]
fn of_a_build_under_tmux_that_is_a_tree_the_job_dies_and_the_server_and_both_panes_live() {
    let config = format!("{QUIET}{}", rule("make", "tree"));
    let sandbox = sandbox!(&config);
    let family = sandbox.tmux(None, false);
    sandbox.is_dire_once();
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_eq!(family.named(&incident), ["ld", "make", "cc1"]);
    family.assert_left(&["pane", "tmux", "vim"]);
    drop(family);
    // What a dry run says of the same.
    let sandbox = sandbox!(&config, DRY);
    let family = sandbox.tmux(None, false);
    sandbox.is_dire_once();
    let dry = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_eq!((&dry["action"], &dry["reason"]), (&"notify".into(), &incident["reason"]));
    assert_eq!(family.named(&dry), ["ld", "make", "cc1"]);
    family.assert_left(&["cc1", "ld", "make", "pane", "tmux", "vim"]);
}

#[test]
fn of_a_build_in_a_cgroup_of_its_own_all_of_that_dies_and_the_server_outside_lives() {
    let Some(folder) = Cgroup::of("build") else { return };
    let sandbox = sandbox!(&format!("{QUIET}{}", rule("ld", "cgroup")));
    let family = sandbox.tmux(Some(&folder), false);
    sandbox.is_dire_once();
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_eq!(family.named(&incident), ["ld"], "the others are the cgroup's");
    family.assert_left(&["pane", "tmux", "vim"]);
    wait_for("it is told", || sandbox.log().contains("processes of cgroup"));
}

#[test]
fn whoever_a_rule_never_takes_is_spared_when_their_cgroup_goes() {
    let Some(folder) = Cgroup::of("spared") else { return };
    let never = "[[rules]]\neffect = \"never\"\nexe = \"*/tmux: server\"\n";
    let config = format!("{QUIET}{never}{}", rule("ld", "cgroup"));
    let sandbox = sandbox!(&config, DRY);
    let family = sandbox.tmux(Some(&folder), true);
    sandbox.is_dire_once();
    wait_for("a dry run tells it", || {
        sandbox.log().contains("dry run: would have killed 5 processes of cgroup")
    });
    family.assert_left(&["cc1", "ld", "make", "pane", "tmux", "vim"]);
    drop((family, sandbox));
    let sandbox = sandbox!(&config);
    let family = sandbox.tmux(Some(&folder), true);
    sandbox.is_dire_once();
    sandbox.incidents(1);
    sandbox.is(PLENTY);
    family.assert_left(&["tmux"]);
    wait_for("it is told", || sandbox.log().contains("1 of it spared"));
}

#[test]
fn a_browsers_tab_dies_and_neither_the_browser_nor_the_desktop() {
    let sandbox = sandbox!(QUIET);
    for name in ["compositor", "firefox", "tab-small", "tab-large"] {
        sandbox.copy(&workloads().join("chill"), name);
    }
    sandbox.copy(Path::new("/bin/sh"), "browser");
    sandbox.write_script(
        "session.sh",
        "echo session $$\n\"$F/compositor\" --mebibytes=30 --seconds=90 &\necho compositor $!\n\
         \"$F/browser\" \"$F/browser.sh\" &\nwait\nsleep 60\n",
    );
    // Tabs say 300, as a browser has them: not a reason to take a small one before a large one.
    sandbox.write_script(
        "browser.sh",
        "echo browser $$\necho 300 >/proc/self/oom_score_adj\n\"$F/tab-small\" --mebibytes=12 --seconds=90 &\necho small $!\n\
         \"$F/tab-large\" --mebibytes=48 --seconds=90 &\necho large $!\nwait\nsleep 60\n",
    );
    let members = ["session", "compositor", "browser", "small", "large"];
    let family = sandbox.family("gnome-session", "session.sh", &members, 3);
    sandbox.is_dire_once();
    let incident = sandbox.incidents(1)[0].clone();
    sandbox.is(PLENTY);
    assert_eq!(family.named(&incident), ["large"]);
    family.assert_left(&["browser", "compositor", "session", "small"]);
}

/// Holds so much, and runs another program when it is told to.
const CHANGES: &str = "import os, signal, sys, time\nsignal.alarm(90)\n\
    memory = bytearray(b'x') * (40 << 20)\n\
    def change(*_): os.execv(sys.argv[2], [sys.argv[2], '--mebibytes=40', '--seconds=90'])\n\
    signal.signal(signal.SIGUSR1, change)\nprint('holds', os.getpid(), flush=True)\nwhile True: time.sleep(1)\n";

#[test]
fn a_command_line_counts_for_the_program_that_it_was_read_of_and_for_none_after_it() {
    let rule = "[[rules]]\neffect = \"prefer\"\ncmdline = \"*--type=renderer*\"\n";
    for changes in [false, true] {
        let sandbox = sandbox!(&format!("{QUIET}reclaim = false\n{rule}"), DRY);
        let (_editor, editor) = sandbox.process(80, "leave");
        let other = sandbox.copy(&workloads().join("chill"), "other");
        let mut command = inside(sandbox.init_pid);
        command.args([PYTHON, "-c", CHANGES, "--type=renderer"]).arg(&other);
        let mut renderer = Program::of(command);
        let pid: u64 = renderer.stage("holds").parse().unwrap();
        // Its line has been read once it is the one that a shortage would take: until then it is the smaller. Each shortage
        // is one of its own, because the daemon sees the end of the one before.
        let is_near = || {
            sandbox.is(NEAR);
            until("it is seen", SOON, || {
                let seen = sandbox.json(&["status"])?["pressure"]["mem_available_bytes"].as_u64()?;
                (seen == NEAR.available_mib << 20).then_some(())
            });
        };
        let next_victim = |before: usize| {
            sandbox.is_dire_once();
            let victim = sandbox.incidents(before + 1)[before]["victims"][0]["pid"].as_u64().unwrap();
            is_near();
            victim
        };
        is_near();
        wait_for("its command line counts", || {
            let victim = next_victim(sandbox.history().len());
            assert!([editor, pid].contains(&victim), "{victim}");
            victim == pid
        });
        if changes {
            let told = inside(sandbox.init_pid).args(["kill", "-USR1", &pid.to_string()]).status().unwrap();
            assert!(told.success());
            renderer.stage("ready");
            assert_eq!(next_victim(sandbox.history().len()), editor);
        }
        sandbox.is(PLENTY);
    }
}
