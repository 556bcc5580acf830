//! Working-set protection in a memory cgroup of the tests' own: what is used stays, the floor holds, nothing is left behind.
#![cfg(test)]

mod support;

use plimsoll_policy::workingset::share::CGROUPS_GONE_MAX;
use plimsoll_sys::bpf::WorkingSet;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use support::{
    Fixture, SOON,
    cgroup::Cgroup,
    disk::{Disk, KEEPER, OF_ONE, READER, cached_bytes, drop_cached, page_bytes, scanner},
    program::Program,
    until, wait_for,
};

/// Users of these tests.
const IDA: u32 = 60_650;
const JON: u32 = 60_651;

/// Room for the guard to see a file used, and to lock it: some turns of half a second.
const A_WHILE: Duration = Duration::from_secs(60);

/// Takes as many MiB as it is told, one by one, and says so; no more than 512.
const HOG: &str = "say('ready')\nmany = min(int(hear()), 512)\nheld = []\nfor _ in range(many): held.append(bytearray(b'x') * (1 << 20))\nsay('alive')\nhear()\n";

/// A fixture whose working set is protected in a cgroup.
struct Stage {
    fixture: Fixture,
    cgroup: Cgroup,
    disk: Disk,
}

impl Stage {
    fn set_up(mebibytes: u32, tunables: &str) -> Option<Self> {
        let disk = Disk::of()?;
        let cgroup = Cgroup::limited("set", mebibytes)?;
        let config =
            format!("[workingset]\nworkingset_protection = 1\ncgroup = \"{}\"\n{tunables}\n", cgroup.path());
        let fixture = Fixture::start(&config, &[])?;
        wait_for("the working set is protected", || {
            let state = fixture.json(&["protect"])["state"].as_str().unwrap().to_owned();
            assert!(!state.starts_with("off: "), "{state}");
            state == "on"
        });
        Some(Self { fixture, cgroup, disk })
    }

    /// A file of so many MiB that nobody has read.
    fn file(&self, name: &str, mebibytes: usize) -> PathBuf {
        // Written pages are of whoever wrote them: these are to be the readers'.
        self.disk.cold(name, (mebibytes << 20) as u64 / page_bytes() as u64)
    }

    fn program(&self, user: u32, script: &str) -> Program {
        let program = self.fixture.python(user, script).ready();
        self.cgroup.take(program.pid());
        program
    }

    fn view(&self) -> Value {
        self.fixture.json(&["protect"])
    }

    /// What is locked of a file, in bytes.
    fn locked(&self, path: &Path) -> u64 {
        locked(&self.view(), path)
    }

    /// Has it read until all of it is locked.
    fn have_it_locked(&self, reader: &mut Program, path: &Path) {
        let bytes = fs::metadata(path).unwrap().len();
        until("a file that is read again and again is locked", A_WHILE, || {
            read(reader, path);
            (self.locked(path) >= bytes).then_some(())
        });
    }
}

fn locked(view: &Value, path: &Path) -> u64 {
    let inode = fs::metadata(path).unwrap().ino();
    let mut files = view["files"].as_array().unwrap().iter();
    files.find(|file| file["inode"] == inode).map_or(0, |file| file["locked_bytes"].as_u64().unwrap())
}

fn read(reader: &mut Program, path: &Path) {
    reader.tell(path.to_str().unwrap());
    reader.stage("read");
}

/// Whether the daemon has a file open or mapped.
fn is_held(fixture: &Fixture, path: &Path) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", fixture.daemon_pid())).unwrap();
    maps.contains(path.file_name().unwrap().to_str().unwrap())
}

#[test]
fn a_file_in_use_stays_in_memory_when_a_hog_takes_all_there_is() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let (used, passing) = (stage.file("used", 16), stage.file("passing", 64));
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    read(&mut reader, &passing);
    let mut hog = stage.program(JON, HOG);
    hog.tell("512");
    hog.killed();
    assert_eq!(cached_bytes(&used), 16 << 20);
    let view = stage.view();
    assert!(view["hard"]["locked_bytes"].as_u64() <= view["hard"]["budget_bytes"].as_u64(), "{view}");
}

#[test]
fn the_floor_ends_the_hog_before_the_cache_is_gone_and_why_tells() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let passing = stage.file("passing", 96);
    let mut reader = stage.program(IDA, READER);
    read(&mut reader, &passing);
    let mut hog = stage.program(JON, HOG);
    hog.tell("512");
    hog.killed();
    let one = until("the kill is in the history", SOON, || {
        let history = stage.fixture.history();
        history.into_iter().find(|one| one["guard"] == "workingset")
    });
    let victim = &one["victims"][0];
    assert_eq!(
        (&victim["pid"], &one["action"], &one["reason"]),
        (&hog.pid().into(), &"kill".into(), &"workingset-floor".into())
    );
    if WorkingSet::open(stage.fixture.pin()).unwrap().offers().signals_others {
        assert_eq!(one["trigger"], "in-kernel", "{one}");
    }
    assert_eq!(stage.cgroup.oom_kills(), 0);
    // A quarter of 160 MiB, less what one look of the kernel's takes.
    assert!(cached_bytes(&passing) >= 30 << 20, "{} bytes are left", cached_bytes(&passing));
    let story = stage.fixture.ok(&["why", &one["id"].to_string()]);
    assert!(story.contains("clean file memory"), "{story}");
    assert!(stage.view()["floor"]["kills"].as_u64().unwrap() >= 1);
}

#[test]
fn switched_off_it_holds_nothing_any_more_and_says_so() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let used = stage.file("used", 8);
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    assert!(is_held(&stage.fixture, &used));
    let said = stage.fixture.ok(&["protect", "set", "workingset_protection=0"]);
    assert!(said.contains("Working-set protection: off"), "{said}");
    assert_eq!(stage.view()["hard"]["locked_bytes"], 0);
    wait_for("the daemon lets go of it", || !is_held(&stage.fixture, &used));
    // And on again, with another budget, which is kept.
    stage.fixture.ok(&["protect", "set", "workingset_protection=1", "clean_min_ratio=30"]);
    stage.have_it_locked(&mut reader, &used);
}

#[test]
fn what_was_set_outlives_the_daemon_and_no_lock_does() {
    let Some(mut stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let used = stage.file("used", 8);
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    stage.fixture.ok(&["protect", "set", "clean_low_ratio=7"]);
    stage.fixture.end_daemon(rustix::process::Signal::KILL);
    // What nothing holds any more goes when it is asked to.
    wait_for("nothing is locked", || {
        drop_cached(&used);
        cached_bytes(&used) == 0
    });
    stage.fixture.launch();
    assert_eq!(stage.view()["tunables"]["clean_low_ratio"], 7);
    stage.have_it_locked(&mut reader, &used);
    stage.fixture.ok(&["protect", "set", "clean_low_ratio="]);
    assert_eq!(stage.view()["tunables"]["clean_low_ratio"], 0);
}

#[test]
fn a_file_that_is_deleted_is_let_go() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let used = stage.file("used", 8);
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    fs::remove_file(&used).unwrap();
    until("the daemon lets go of it", A_WHILE, || (!is_held(&stage.fixture, &used)).then_some(()));
}

#[test]
fn the_soft_tier_goes_before_a_program_that_needs_the_memory() {
    let Some(stage) = Stage::set_up(128, "clean_min_ratio = 0\nclean_low_ratio = 50") else { return };
    let used = stage.file("used", 48);
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    assert!(stage.view()["soft"]["locked_bytes"].as_u64().unwrap() >= 48 << 20);
    // With what is locked there is no room for it.
    let mut needy = stage.program(JON, HOG);
    needy.tell("96");
    needy.stage("alive");
    assert_eq!(stage.cgroup.oom_kills(), 0);
    assert!(stage.view()["soft_releases"].as_u64().unwrap() >= 1);
}

#[test]
fn only_root_changes_tunables_and_only_root_sees_files() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let used = stage.file("used", 8);
    let mut reader = stage.program(IDA, READER);
    stage.have_it_locked(&mut reader, &used);
    let (_, shown, _) = stage.fixture.run_as(JON, &["protect", "--json"]);
    let view: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(view["files"], Value::Array(Vec::new()));
    assert!(view["hard"]["locked_bytes"].as_u64().unwrap() > 0);
    assert_eq!(stage.fixture.run_as(JON, &["protect", "set", "clean_min_ratio=0"]).0, 4);
    let (code, _, error) = stage.fixture.run(&["protect", "set", "clean_min_ratio=101"]);
    assert_eq!(code, 2, "{error}");
    assert_eq!(stage.view()["tunables"]["clean_min_ratio"], 25);
}

/// Files that are used and not held for this reason, or not all of each.
fn barred(view: &Value, reason: &str) -> u64 {
    let all = view["barred"].as_array().unwrap();
    all.iter().find(|one| one["reason"] == reason).map_or(0, |one| one["files"].as_u64().unwrap())
}

#[test]
fn of_a_limited_cgroup_no_more_is_locked_than_its_share() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    stage.cgroup.allow_limits_within();
    let small = stage.cgroup.within("small");
    small.limit(&(32_u64 << 20).to_string());
    let used = stage.file("used", 16);
    let mut reader = stage.fixture.python(IDA, READER).ready();
    small.take(reader.pid());
    until("the rest of it is withheld", A_WHILE, || {
        read(&mut reader, &used);
        (barred(&stage.view(), "cgroup-share") == 1).then_some(())
    });
    // A quarter of 32 MiB less an eighth of that, in whole chunks; of the limit above it could be all of the file.
    until("its share is locked", A_WHILE, || {
        read(&mut reader, &used);
        let locked = stage.locked(&used);
        (locked > 0 && locked <= 7 << 20).then_some(())
    });
}

#[test]
fn of_removed_cgroups_a_few_are_kept_from_being_freed_and_no_more() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    stage.cgroup.allow_limits_within();
    // Some more: what reclaim takes before it is locked is charged to the last one when it is read again.
    let (last, removed, more) = (stage.cgroup.within("last"), CGROUPS_GONE_MAX + 8, 1..=8);
    let mut reader = stage.fixture.python(IDA, READER).ready();
    let inner: Vec<(Cgroup, PathBuf)> = (0..removed)
        .map(|number| {
            let inner = stage.cgroup.within(&format!("inner{number}"));
            let file = stage.disk.cold(&format!("used{number}"), (64 << 10) / page_bytes() as u64);
            inner.take(reader.pid());
            read(&mut reader, &file);
            (inner, file)
        })
        .collect();
    last.take(reader.pid());
    let read_all = |reader: &mut Program| inner.iter().for_each(|(_, file)| read(reader, file));
    until("all of them are locked", A_WHILE, || {
        read_all(&mut reader);
        let view = stage.view();
        inner.iter().all(|(_, file)| locked(&view, file) == 64 << 10).then_some(())
    });
    inner.iter().for_each(|(inner, _)| inner.remove());
    // Until removed ones are looked for.
    let view = until("those that are too many are let go", A_WHILE * 2, || {
        read_all(&mut reader);
        Some(stage.view()).filter(|view| barred(view, "cgroup-gone") > 0)
    });
    let going = usize::try_from(barred(&view, "cgroup-gone")).unwrap();
    assert!(more.contains(&going), "{going} are let go");
    assert_eq!(inner.iter().filter(|(_, file)| locked(&view, file) > 0).count(), removed - going);
}

#[test]
fn a_scanner_that_answers_nobody_holds_up_the_opener_alone() {
    let Some(stage) = Stage::set_up(160, "clean_min_ratio = 25") else { return };
    let used = stage.file("used", 8);
    let mut keeper = stage.program(IDA, KEEPER);
    keeper.tell(used.to_str().unwrap());
    keeper.stage("open");
    let Some(scanner) = scanner(&stage.fixture, &used, OF_ONE) else { return };
    let read = |keeper: &mut Program| {
        keeper.tell("");
        keeper.stage("read");
    };
    until("the file waits to be opened", A_WHILE, || {
        read(&mut keeper);
        (stage.view()["opening"].as_u64() == Some(1)).then_some(())
    });
    // Everything else goes on: the guard answers, tunables change, protection goes off and on.
    stage.fixture.json(&["status"]);
    stage.fixture.ok(&["protect", "set", "clean_min_ratio=30"]);
    stage.fixture.ok(&["protect", "set", "workingset_protection=0"]);
    assert_eq!(stage.view()["state"], "off");
    stage.fixture.ok(&["protect", "set", "workingset_protection=1"]);
    drop(scanner);
    until("it is locked once the scanner is gone", A_WHILE, || {
        read(&mut keeper);
        (stage.locked(&used) == 8 << 20).then_some(())
    });
}
