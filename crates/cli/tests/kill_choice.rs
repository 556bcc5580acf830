//! Who is killed when a line is crossed, by whom, and who never is.
#![cfg(test)]

mod support;

use plimsoll_wire::text::ProcessState;
use rustix::process::Signal;
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};
use support::{ALICE, BOB, Fixture, SOON, cgroup::Cgroup, exact, program::Program, until, wait_for};
use tempfile::TempDir;

fn victims(incident: &Value) -> Vec<u32> {
    let all = incident["victims"].as_array().unwrap();
    all.iter().map(|victim| victim["pid"].as_u64().unwrap().try_into().unwrap()).collect()
}

#[track_caller]
fn assert_incident(incident: &Value, trigger: &str, reason: &str, victim: u32) {
    let told =
        (incident["trigger"].as_str().unwrap(), incident["reason"].as_str().unwrap(), victims(incident));
    assert_eq!(told, (trigger, reason, vec![victim]), "{incident}");
}

#[test]
fn the_largest_is_killed_in_the_very_event_in_which_it_crosses() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut small = fixture.workload(ALICE, "chill", &["--mebibytes=4"]).ready();
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=128", "--no-thp"]);
    hog.killed();
    let incidents = fixture.incidents(1);
    assert_incident(&incidents[0], "in-kernel", "over-hard-limit-largest", hog.pid());
    assert!(incidents[0]["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{}", incidents[0]);
    assert_eq!(incidents[0]["account"], "user:60100");
    assert_eq!(incidents[0]["hard_bytes"], 32 << 20);
    assert_eq!(incidents[0]["action"], "kill");
    assert_eq!(incidents[0]["victims"][0]["comm"], "bloat");
    until("what was freed is known", SOON, || {
        fixture.history()[0]["freed_bytes"].as_u64().filter(|freed| *freed > 0)
    });
    assert!(small.runs());
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(small.pid()).unwrap());
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn a_hundred_crossings_kill_a_hundred_times_and_overshoot_at_most_64_kib() {
    let fixture = fixture!();
    fixture.limit(ALICE, "8M", &[]);
    for _ in 0..100 {
        fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]).killed();
    }
    let incidents = fixture.incidents(100);
    assert_eq!(incidents.len(), 100);
    let overshoots = incidents.iter().map(|incident| incident["overshoot_bytes"].as_u64().unwrap());
    assert!(overshoots.max().unwrap() <= 64 << 10);
    assert!(incidents.iter().all(|incident| incident["trigger"] == "in-kernel"));
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn a_larger_process_that_sleeps_is_killed_and_the_one_that_crossed_goes_on() {
    let fixture = fixture!();
    fixture.limit(ALICE, "48M", &[]);
    let (trigger, reason) = fixture.for_another();
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    let mut worker = fixture.workload(ALICE, "bloat", &["--mebibytes=24", "--rate=200"]);
    sleeper.killed();
    worker.fills();
    let incidents = fixture.incidents(1);
    assert_incident(&incidents[0], trigger, reason, sleeper.pid());
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert!(worker.runs());
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(worker.pid()).unwrap());
}

#[test]
fn eight_that_allocate_at_once_cross_once_and_lose_one() {
    let fixture = fixture!();
    // Seven fit below the line, eight do not.
    fixture.limit(ALICE, "75M", &[]);
    for round in 1..=5 {
        let settings = ["--mebibytes=10", "--no-thp", "--rate=100"];
        let mut eight: Vec<_> = (0..8).map(|_| fixture.workload(ALICE, "bloat", &settings)).collect();
        let incidents = fixture.incidents(round);
        let victim = victims(incidents.last().unwrap());
        for one in eight.iter_mut().filter(|one| !victim.contains(&one.pid())) {
            one.fills();
        }
        assert_eq!(eight.iter_mut().filter_map(|one| one.runs().then_some(())).count(), 7);
        assert_eq!(fixture.history().len(), round, "round {round}");
        drop(eight);
        wait_for("all have ended", || fixture.usage_pages(ALICE) == 0);
    }
}

#[test]
fn all_threads_of_a_victim_go_and_it_is_one_incident() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=128", "--threads=8", "--no-thp"]);
    hog.killed();
    let incidents = fixture.incidents(1);
    assert_incident(&incidents[0], "in-kernel", "over-hard-limit-largest", hog.pid());
    assert_eq!(fixture.usage_pages(ALICE), 0);
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn all_processes_that_share_the_victim_s_memory_go_with_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    for crosser in [1, 2] {
        let leader = scripted.make(1, "start 60100");
        let clone = scripted.make(1, "clone 2");
        let gone = scripted.attempt(crosser, "touch 65536").unwrap_err();
        assert_eq!(gone, "gone");
        wait_for("both have ended", || {
            [leader, clone].iter().all(|pid| exact::process_pages(*pid).is_none())
        });
        wait_for("nothing is charged", || fixture.usage_pages(ALICE) == 0);
    }
    let incidents = fixture.incidents(2);
    assert!(incidents.iter().all(|incident| incident["trigger"] == "in-kernel"), "{incidents:?}");
    assert_eq!(fixture.history().len(), 2);
}

/// A signal ends one process; with nobody to end the others, each goes when it wants more.
#[test]
fn with_no_daemon_alive_who_shares_the_memory_of_a_victim_goes_by_its_own_event() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    fixture.end_daemon(Signal::KILL);
    for crosser in [1, 2] {
        let leader = scripted.make(1, "start 60100");
        let clone = scripted.make(1, "clone 2");
        assert_eq!(scripted.attempt(crosser, "touch 65536").unwrap_err(), "gone");
        assert_eq!(scripted.attempt(3 - crosser, "touch 65536").unwrap_err(), "gone");
        wait_for("both have ended", || {
            [leader, clone].iter().all(|pid| exact::process_pages(*pid).is_none())
        });
        wait_for("nothing is charged", || fixture.facts(ALICE).usage.0 == 0);
    }
    fixture.launch();
    let all: Vec<u32> = fixture.incidents(4).iter().flat_map(victims).collect();
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn sleeping_processes_that_share_their_memory_are_killed_together() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let leader = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 24576");
    let clone = scripted.make(1, "clone 2");
    let small = scripted.make(3, "start 60100");
    scripted.tell(3, "touch 12288");
    wait_for("both have ended", || [leader, clone].iter().all(|pid| exact::process_pages(*pid).is_none()));
    assert_eq!(fixture.incidents(1)[0]["trigger"], fixture.for_another().0);
    wait_for("only the small one is charged", || {
        Some(fixture.usage_pages(ALICE)) == exact::process_pages(small)
    });
    assert_eq!(fixture.history().len(), 1);
}

/// What they share since the fork goes with the last of them, and all of them were asked: until they end, nobody else is.
#[test]
fn who_allocates_while_a_whole_family_is_dying_is_left_alone() {
    let fixture = fixture!("[limits]\nterm_grace_ms = 30000\n");
    fixture.limit(ALICE, "48M", &["--action", "term"]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "deaf");
    scripted.tell(1, "touch 38912");
    let child = scripted.make(1, "fork 2");
    // What it takes passes the line, then what the parent takes besides: together less than may be asked.
    scripted.tell(2, "touch 10240");
    scripted.tell(1, "touch 10240");
    let other = scripted.make(3, "start 60100");
    for _ in 0..4 {
        scripted.tell(3, "touch 6144");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let asked: Vec<u32> = fixture.incidents(2).iter().flat_map(victims).collect();
    assert!(asked.contains(&parent) && asked.contains(&child), "{asked:?}, of {parent}, {child} and {other}");
    scripted.tell(1, "exit");
    scripted.tell(2, "exit");
    scripted.tell(3, "touch 6144");
    wait_for("only the other is charged", || Some(fixture.usage_pages(ALICE)) == exact::process_pages(other));
    assert_eq!(fixture.history().len(), 2);
}

/// A copy of a workload in a folder that only root can write to, and the configuration that protects it.
fn protected_copy(name: &str) -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join(name);
    fs::copy(support::program::workloads().join(name), &path).unwrap();
    let config = format!("[protect]\nexe = [\"{}\"]\n", path.display());
    (folder, path, config)
}

#[test]
fn a_protected_executable_is_never_killed_and_that_only_such_are_left_is_said_once() {
    let (_folder, path, config) = protected_copy("bloat");
    let fixture = fixture!(&config);
    fixture.limit(ALICE, "32M", &[]);
    let (trigger, reason) = fixture.for_another();
    let mut other = fixture.workload(ALICE, "chill", &["--mebibytes=4"]).ready();
    let mut hog = Program::of(fixture.as_user(ALICE, &path).args(["--mebibytes=64", "--no-thp"]));
    // The one that may be killed is, though it is the smaller.
    other.killed();
    hog.fills();
    let incidents = fixture.incidents(2);
    assert_incident(&incidents[0], trigger, reason, other.pid());
    assert_eq!(incidents[1]["reason"], "over-hard-limit-only-protected-left", "{}", incidents[1]);
    assert_eq!(incidents[1]["action"], "notify");
    assert!(hog.runs());
    let usage = fixture.account(ALICE).unwrap();
    assert!(usage["usage_bytes"].as_u64() > Some(64 << 20), "{usage}");
    assert_eq!(fixture.history().len(), 2);
}

/// As dpkg does: a new file takes the place of the one that runs.
#[test]
fn a_protected_executable_stays_so_when_an_upgrade_replaces_it() {
    let (folder, path, config) = protected_copy("bloat");
    let fixture = fixture!(&config);
    fixture.limit(ALICE, "64M", &[]);
    let start = |mebibytes: u32| {
        Program::of(fixture.as_user(ALICE, &path).args([&format!("--mebibytes={mebibytes}"), "--no-thp"]))
            .filled()
    };
    let mut before = start(20);
    let new = folder.path().join("bloat.dpkg-new");
    fs::copy(&path, &new).unwrap();
    fs::rename(&new, &path).unwrap();
    let mut after = start(24);
    // Each of them is the larger.
    for _ in 0..3 {
        fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]).killed();
        assert!(before.runs() && after.runs(), "{:?}", fixture.history());
    }
    drop((before, after));
    let mut later = start(40);
    fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]).killed();
    assert!(later.runs(), "{:?}", fixture.history());
}

/// A service that is started anew has a cgroup with another id.
#[test]
fn a_protected_cgroup_may_be_made_anew_any_number_of_times() {
    let Some(cgroup) = Cgroup::of("service") else { return };
    let fixture = fixture!(&format!("[protect]\ncgroup = [\"{}\"]\n", cgroup.path()));
    fixture.limit(ALICE, "64M", &[]);
    // So many were there before.
    let former: Vec<u64> = (1..1025).map(|number| number << 40).collect();
    drop(fixture.maps().protect_cgroups(&former));
    cgroup.make_anew();
    fixture.limit(support::BOB, "64M", &[]);
    let mut service = fixture.workload(ALICE, "bloat", &["--mebibytes=40", "--no-thp"]).filled();
    cgroup.take(service.pid());
    fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--no-thp"]).killed();
    assert!(service.runs(), "{:?}", fixture.history());
}

/// Its memory stays with it: that costs the account's others their place, and nobody twice.
#[test]
fn who_shares_a_victim_s_memory_in_a_protected_cgroup_is_left_alone() {
    let Some(cgroup) = Cgroup::of("sharer") else { return };
    let config = format!("[protect]\ncgroup = [\"{}\"]\n\n[limits]\nkill_deadline_ms = 500\n", cgroup.path());
    let fixture = fixture!(&config);
    fixture.limit(ALICE, "32M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let leader = scripted.make(1, "start 60100");
    let clone = scripted.make(1, "clone 2");
    cgroup.take(clone);
    assert_eq!(scripted.attempt(1, "touch 65536").unwrap_err(), "gone");
    wait_for("the victim ends", || exact::process_pages(leader).is_none());
    // Its memory counts as dying until the deadline: nobody else goes for it.
    let other = scripted.make(3, "start 60100");
    scripted.tell(3, "touch 1024");
    scripted.tell(2, "touch 256");
    // From then on it is usage like any other's, of somebody who is no victim.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(scripted.attempt(3, "touch 1024").unwrap_err(), "gone");
    scripted.tell(2, "touch 256");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(
        Some(fixture.usage_pages(ALICE)),
        exact::process_pages(clone),
        "what is left is the protected one's"
    );
    let incidents = fixture.incidents(2);
    let all: Vec<u32> = incidents.iter().flat_map(victims).collect();
    assert_eq!(all, [leader, other], "{incidents:?}");
    assert_eq!(fixture.history().iter().filter(|one| one["action"] == "kill").count(), 2);
    scripted.tell(2, "exit");
    wait_for("nothing is charged", || fixture.usage_pages(ALICE) == 0);
}

/// A user may have cgroups of any depth (systemd gives them one of their own): none hides what runs in it.
#[test]
fn nobody_is_out_of_reach_for_the_depth_of_its_cgroup() {
    let Some(top) = Cgroup::of("deep") else { return };
    let mut above = vec![top];
    for _ in 0..40 {
        above.push(above.last().unwrap().within("deep"));
    }
    {
        let fixture = fixture!();
        fixture.limit(ALICE, "32M", &[]);
        fixture.signal(Signal::STOP);
        let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=128", "--no-thp", "--wait"]).ready();
        above.last().unwrap().take(hog.pid());
        hog.tell("");
        hog.killed();
        fixture.signal(Signal::CONT);
        assert_incident(&fixture.incidents(1)[0], "in-kernel", "over-hard-limit-largest", hog.pid());
    }
    // The deepest first.
    while above.pop().is_some() {}
}

/// Reads another's memory into a page that nobody provides: for so long the kernel keeps the address space, process or not.
const KEEPS: &str = "
import threading
uffd = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC)
api = (ctypes.c_uint64 * 3)(0xAA, 0, 0)
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
range = (ctypes.c_uint64 * 4)(at, 4096, 1, 0)
ioctl = ctypes.CDLL(None).ioctl
assert ioctl(uffd, ctypes.c_ulong(0xc018aa3f), api) == 0 and ioctl(uffd, ctypes.c_ulong(0xc020aa00), range) == 0
pid = int(hear())
start = int(open(f'/proc/{pid}/maps').readline().split('-')[0], 16)
memory = os.open(f'/proc/{pid}/mem', os.O_RDONLY)
threading.Thread(target=lambda: os.preadv(memory, [page], start), daemon=True).start()
time.sleep(0.3)
say('keeps')
hear()
os._exit(0)
";

#[test]
fn memory_that_somebody_keeps_of_a_process_that_ended_stays_charged() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut keeper = fixture.root_python(KEEPS);
    let mut kept = fixture.workload(ALICE, "chill", &["--mebibytes=40", "--no-thp"]).ready();
    keeper.tell(&kept.pid().to_string());
    keeper.stage("keeps");
    kept.stop();
    // Less what its end left uncounted: batches of the kernel's per-CPU counters, for an account far from its limits.
    let least = exact::pages_of_kib(39 << 10);
    // More than two walks, each of which finds nobody in it.
    for _ in 0..4 {
        let charged = fixture.usage_pages(ALICE);
        assert!(charged >= least, "it is there, and {charged} pages are charged");
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    // Nobody's end gives it back: who crosses goes, and the programs need not ask.
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=40", "--no-thp"]);
    hog.killed();
    assert_incident(&fixture.incidents(1)[0], "in-kernel", "over-hard-limit-largest", hog.pid());
    keeper.tell("");
    wait_for("it is given back", || fixture.usage_pages(ALICE) == 0);
}

#[test]
fn an_executable_that_its_user_owns_is_not_protected() {
    let (_folder, path, config) = protected_copy("bloat");
    std::os::unix::fs::chown(&path, Some(ALICE), Some(ALICE)).unwrap();
    let fixture = fixture!(&config);
    fixture.limit(ALICE, "32M", &[]);
    let mut hog = Program::of(fixture.as_user(ALICE, &path).args(["--mebibytes=64", "--no-thp"]));
    hog.killed();
    assert_incident(&fixture.incidents(1)[0], "in-kernel", "over-hard-limit-largest", hog.pid());
}

#[test]
fn who_writes_into_another_s_memory_is_not_killed_for_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let (trigger, reason) = fixture.for_another();
    let mut scripted = fixture.scripted(&[ALICE]);
    let writer = scripted.make(1, "start 60100");
    // The writer is the larger until the very crossing.
    scripted.tell(1, "touch 14336");
    let owner = scripted.make(1, "spawn 2");
    let address = scripted.tell(2, "reserve 65536");
    let poked = scripted.attempt(1, &format!("poke {owner} {address} 65536"));
    if poked.as_ref().is_err_and(|said| said.contains("Operation not permitted")) {
        return support::skip(format_args!("{poked:?}"));
    }
    let incidents = fixture.incidents(1);
    assert_incident(&incidents[0], trigger, reason, owner);
    assert!(exact::process_pages(writer).is_some());
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn root_is_not_killed_for_filling_a_limited_process_s_memory() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let (trigger, reason) = fixture.for_another();
    let mut scripted = fixture.scripted(&[ALICE]);
    let owner = scripted.make(1, "start 60100");
    let address = scripted.tell(1, "reserve 65536");
    let mut root = fixture.root_python(&format!(
        "memory = open('/proc/{owner}/mem', 'r+b', 0)\n\
         try:\n\
         \x20   for offset in range(0, 65536 << 10, 4096):\n\
         \x20       memory.seek({address} + offset)\n\
         \x20       memory.write(b'x')\n\
         except OSError: pass\n\
         say('alive')\n"
    ));
    root.stage("alive");
    assert!(root.end().success());
    assert_incident(&fixture.incidents(1)[0], trigger, reason, owner);
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn a_process_in_namespaces_of_its_own_is_killed_like_any_other() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let (trigger, reason) = fixture.for_another();
    let mut scripted = fixture.scripted(&[ALICE]);
    let outside = scripted.make(1, "start 60100");
    if let Err(refused) = scripted.attempt(1, "userns").and_then(|_| scripted.attempt(1, "pidns")) {
        return support::skip(refused);
    }
    let inside = scripted.make(1, "fork 2");
    assert_eq!(scripted.attempt(2, "touch 65536"), Err("gone".to_owned()));
    let incidents = fixture.incidents(1);
    assert_incident(&incidents[0], "in-kernel", "over-hard-limit-largest", inside);
    // And when another one allocates: it has to be found by its number out here.
    let other = scripted.make(3, "start 60100");
    scripted.tell(3, "userns");
    scripted.tell(3, "pidns");
    let sleeper = scripted.make(3, "fork 4");
    scripted.tell(4, "touch 18432");
    scripted.tell(3, "touch 12288");
    scripted.tell(3, "touch 4096");
    assert_incident(&fixture.incidents(2)[1], trigger, reason, sleeper);
    assert!([outside, other].iter().all(|pid| exact::process_pages(*pid).is_some()));
}

#[test]
fn a_process_that_changed_its_user_crosses_its_new_user_s_line() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    fixture.limit(BOB, "16M", &[]);
    [ALICE, BOB].iter().for_each(|user| fixture.owns(*user));
    let mut hopper =
        fixture.root_workload("setuidhop", &["--from=60100", "--to=60101", "--mebibytes=24", "--no-thp"]);
    hopper.killed();
    let incidents = fixture.incidents(1);
    // The change itself allocates nothing: either its next page crosses the line in the kernel, or the daemon sees it before.
    assert_eq!(incidents[0]["victims"][0]["pid"], hopper.pid());
    assert_eq!(incidents[0]["account"], "user:60101");
    assert_eq!((fixture.usage_pages(ALICE), fixture.usage_pages(BOB)), (0, 0));
}

#[test]
fn with_a_daemon_that_does_not_answer_the_line_holds() {
    let fixture = fixture!();
    fixture.limit(ALICE, "48M", &[]);
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=32"]).ready();
    fixture.signal(Signal::STOP);
    let mut worker = fixture.workload(ALICE, "bloat", &["--mebibytes=64", "--rate=50", "--no-thp"]);
    // Where the kernel side cannot take the sleeper, it waits a moment for the daemon and takes who allocates.
    let signals_others = fixture.signals_others();
    if signals_others {
        sleeper.killed();
    } else {
        worker.killed();
        assert!(sleeper.runs());
    }
    fixture.signal(Signal::CONT);
    let incidents = fixture.incidents(1);
    if signals_others {
        assert_incident(&incidents[0], "in-kernel", "over-hard-limit-other", sleeper.pid());
    } else {
        assert_incident(&incidents[0], "in-kernel", "over-hard-limit-unanswered", worker.pid());
    }
}

/// Has a child that grows when it is told to and, once killed, keeps its memory for as long as its tracer says nothing.
const STAYS: &str = "import ctypes
read, write = os.pipe()
child = os.fork()
if child == 0:
    while step := os.read(read, 1):
        held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, 64 << 20, 4096): held[at] = 1
    os._exit(0)
seize, trace_exit = 0x4206, 0x40
say('seized', ctypes.CDLL(None).ptrace(seize, child, ctypes.c_void_p(0), ctypes.c_void_p(trace_exit)), child)
hear()
os.write(write, b'x')
say('writes')
hear()
";

/// Under a line of 96 MiB with 60 that do not come back, nobody else to free them: the daemon sleeps.
#[test]
fn while_much_is_dying_who_allocates_goes_if_it_is_half_as_large_as_the_largest() {
    let fixture = fixture!();
    fixture.limit(ALICE, "96M", &["--soft=16M"]);
    let sleeps_with = |mebibytes: u32| {
        fixture.workload(ALICE, "chill", &[&format!("--mebibytes={mebibytes}"), "--no-thp"]).ready()
    };
    let mut first = sleeps_with(30);
    let mut stays = fixture.python(ALICE, STAYS);
    let victim: u32 = stays.stage("seized 0").parse().unwrap();
    fixture.signal(Signal::STOP);
    stays.tell("");
    stays.stage("writes");
    wait_for("its end is held up", || exact::state(victim) == Some(ProcessState::Traced));
    let mut second = sleeps_with(34);
    let mut half = fixture.workload(ALICE, "bloat", &["--mebibytes=40", "--rate=100", "--no-thp"]);
    half.killed();
    assert!(first.runs() && second.runs());
    let mut third = sleeps_with(16);
    // Where the kernel side cannot take another, it waits for the daemon and takes who allocates.
    if fixture.signals_others() {
        let mut small =
            fixture.workload(ALICE, "bloat", &["--mebibytes=14", "--rate=100", "--no-thp"]).filled();
        second.killed();
        assert!(first.runs() && third.runs() && small.runs());
    }
    fixture.signal(Signal::CONT);
    let incidents = fixture.incidents(2);
    assert_incident(&incidents[0], "in-kernel", "over-hard-limit-largest", victim);
    assert_incident(&incidents[1], "in-kernel", "over-hard-limit-allocating", half.pid());
}

/// Who holds the memory of each victim as its tracer has room for no more than one of them: two lines in all, without a daemon.
#[test]
fn victims_that_are_kept_from_ending_make_room_for_one_line_and_no_more() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    let script = "import ctypes
say('ready')
hear()
for n in range(12):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, 64 << 20, 4096): held[at] = 1
        os._exit(0)
    seized = ctypes.CDLL(None).ptrace(0x4206, child, ctypes.c_void_p(0), ctypes.c_void_p(0x40))
    os.write(write, b'x')
    while open(f'/proc/{child}/stat').read().rsplit(')', 1)[1].split()[0] != 't': time.sleep(0.01)
    assert seized == 0
";
    let mut holder = fixture.python(ALICE, script).ready();
    fixture.signal(Signal::STOP);
    holder.tell("");
    // It goes as well, with all that it holds, when it wants a page more than two lines.
    holder.killed();
    fixture.signal(Signal::CONT);
    let peak = fixture.facts(ALICE).peak;
    assert!(peak.0 <= exact::pages_of_kib(72 << 10), "{peak:?} pages were held under a line of 8192");
}

/// A process of 60 MiB and its forked child, which has them as well: the end of one of them gives next to nothing back. Who
/// has 36 MiB of its own goes when there are some 16 MiB too many.
fn of_two_that_share_all_they_have_neither_goes(fixture: &Fixture) {
    fixture.limit(ALICE, "128M", &[]);
    let script = "m = mmap.mmap(-1, 60 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  m.madvise(15)\nctypes.memset((ctypes.c_char * len(m)).from_buffer(m), 1, len(m))\n\
                  child = os.fork()\n\
                  if not child:\n    signal.alarm(60)\n    signal.pause()\n\
                  say('forked')\nhear()\nsay(os.waitpid(child, os.WNOHANG)[0])\nhear()\n";
    let mut parent = fixture.python(ALICE, script);
    parent.stage("forked");
    let mut sleeper = fixture.workload(ALICE, "chill", &["--mebibytes=36"]).ready();
    fixture.limit(ALICE, "90M", &["--now"]);
    let mut crosses = fixture.workload(ALICE, "bloat", &["--mebibytes=4", "--no-thp"]).ready();
    sleeper.killed();
    crosses.stage("full");
    parent.tell("");
    assert_eq!(parent.line(), "0", "its child is killed");
    let incidents = fixture.incidents(1);
    assert_eq!(incidents.iter().map(victims).collect::<Vec<_>>(), [[sleeper.pid()]]);
}

#[test]
fn nobody_is_killed_whose_end_gives_nothing_back_while_anothers_does() {
    let fixture = fixture!("[limits]\ntriggers = [\"kernel\"]\n");
    fixture.limit(ALICE, "128M", &[]);
    if !fixture.signals_others() {
        return support::skip("this kernel takes who allocates");
    }
    of_two_that_share_all_they_have_neither_goes(&fixture);
}

#[test]
fn nor_does_the_daemon_kill_anybody_whose_end_gives_nothing_back() {
    of_two_that_share_all_they_have_neither_goes(&fixture!("[limits]\ntriggers = [\"daemon\"]\n"));
}
