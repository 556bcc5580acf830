//! Cgroups with a memory controller, and swap to push memory out to: in the guests of the lab only.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    reading::Reading,
    units::{Bytes, Pid},
};
use plimsoll_sys::{
    cgroup::{
        Cgroup as Opened, CgroupErrorKind, CgroupRoot, KillMeans, KillOrders, Killer, ReclaimEnd,
        ReclaimOrder,
    },
    process::{PageOutEnd, PageOutOrder, PidFd, ProcRoot, Reap, kernel_version, page_size},
};
use std::{fs, path::Path, process::Command, time::Duration};
use support::{
    cgroup::Cgroup,
    exact,
    guest::{self, Swap},
    program::Program,
    slowness, wait_for,
};

const MIB: u64 = 1 << 20;

/// Longer than any of this takes under emulation.
const LONG: Duration = Duration::from_secs(300);

/// Takes so many MiB, in a mapping of their own, says so, and then the sum of what is in them each time it is asked.
const HOLDER: &str = "import mmap, signal, sys\n\
    signal.alarm(500)\n\
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n\
    memory = mmap.mmap(-1, int(sys.argv[1]) << 20, flags=private)\n\
    memory.madvise(mmap.MADV_NOHUGEPAGE)\n\
    if len(sys.argv) > 2:\n\
    \x20   import ctypes\n\
    \x20   start = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n\
    \x20   assert ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(8 << 20)) == 0\n\
    for page in range(0, len(memory), 4096): memory[page] = 1 + page // 4096 % 251\n\
    print('ready', flush=True)\n\
    for line in sys.stdin: print(sum(memory[page] for page in range(0, len(memory), 4096)), flush=True)\n";

/// What [`HOLDER`] says for 64 MiB.
fn sum_of(mebibytes: u64) -> u64 {
    (0..mebibytes * 256).map(|page| 1 + page % 251).sum()
}

/// A Python script in a cgroup, of which it is before it takes anything.
fn run(cgroup: &Cgroup, script: &str, arguments: &[&str]) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0\" && exec python3 -c \"$@\""]).arg(cgroup.processes());
    command.arg(script).args(arguments);
    Program::of(command)
}

fn holder(cgroup: &Cgroup, arguments: &[&str]) -> Program {
    run(cgroup, HOLDER, arguments).ready()
}

fn sum(holder: &mut Program) -> u64 {
    holder.tell("sum");
    holder.line().parse().unwrap()
}

fn pidfd(program: &Program) -> PidFd {
    PidFd::open(Pid(program.pid())).unwrap()
}

const RECLAIM: ReclaimOrder = ReclaimOrder { bytes: Bytes(48 * MIB), swappiness: None, budget: LONG };

#[test]
fn a_cgroup_tells_whether_it_is_killed_whole() {
    let Some(_) = guest::disk() else { return };
    let root = CgroupRoot::open().unwrap();
    assert!(root.has_memory());
    let folder = Cgroup::of("facts").unwrap();
    assert_eq!(folder.open(&root).oom_group(), Reading::Known(false));
    folder.set("memory.oom.group", "1");
    assert_eq!(folder.open(&root).oom_group(), Reading::Known(true));
}

#[test]
fn reclaim_pushes_idle_memory_into_compressed_swap_and_harms_nobody() {
    let Some(_) = guest::disk() else { return };
    let _swap = Swap::compressed(256);
    let root = CgroupRoot::open().unwrap();
    let folder = Cgroup::of("reclaim").unwrap();
    let mut holder = holder(&folder, &["64"]);
    let cgroup = folder.open(&root);
    let nothing = cgroup.reclaim(&ReclaimOrder { budget: Duration::ZERO, ..RECLAIM }).unwrap();
    assert_eq!((nothing.end, nothing.freed), (ReclaimEnd::Stopped, Bytes(0)));
    assert_eq!(folder.number("memory.swap.current"), 0);
    let before = folder.number("memory.current");
    let reclaim = cgroup.reclaim(&RECLAIM).unwrap();
    println!("{reclaim:?}");
    assert_eq!(reclaim.end, ReclaimEnd::Whole);
    assert_eq!(reclaim.freed, RECLAIM.bytes);
    // What it cost to swap, the kernel's own memory, is charged to it, too.
    let after = folder.number("memory.current");
    assert!(before - after >= 40 * MIB, "{before} to {after}");
    assert!(folder.number("memory.swap.current") >= 40 * MIB);
    assert_eq!(sum(&mut holder), sum_of(64));
}

#[test]
fn reclaim_without_swap_takes_no_memory_of_programs_and_says_so() {
    let Some(_) = guest::disk() else { return };
    let root = CgroupRoot::open().unwrap();
    let folder = Cgroup::of("noswap").unwrap();
    let _holder = holder(&folder, &["64"]);
    let reclaim = folder.open(&root).reclaim(&RECLAIM).unwrap();
    println!("{reclaim:?}");
    assert_eq!(reclaim.end, ReclaimEnd::Exhausted);
    assert!(folder.number("memory.current") >= 64 * MIB, "{reclaim:?}");
}

#[test]
fn how_readily_to_swap_is_told_to_the_kernels_that_can_hear_it() {
    let Some(_) = guest::disk() else { return };
    let _swap = Swap::compressed(256);
    let root = CgroupRoot::open().unwrap();
    let folder = Cgroup::of("swappiness").unwrap();
    let _holder = holder(&folder, &["64"]);
    let order = ReclaimOrder { swappiness: Some(200), ..RECLAIM };
    let reclaim = folder.open(&root).reclaim(&order);
    println!("{reclaim:?}");
    let kernel = kernel_version().unwrap();
    if (kernel.major, kernel.minor) >= (6, 12) {
        assert_eq!(reclaim.unwrap().end, ReclaimEnd::Whole);
    } else {
        assert!(matches!(reclaim.unwrap_err().kind, CgroupErrorKind::Unsupported(_)));
    }
}

#[test]
fn one_idle_process_is_paged_out_and_comes_back_whole() {
    let Some(_) = guest::disk() else { return };
    let _swap = Swap::compressed(256);
    let folder = Cgroup::of("pageout").unwrap();
    let mut holder = holder(&folder, &["64"]);
    let mut root = ProcRoot::open(Path::new("/proc")).unwrap();
    let order = PageOutOrder { bytes: Bytes(512 * MIB), budget: LONG };
    let done = root.page_out(&pidfd(&holder), &order).unwrap();
    println!("{done:?}");
    assert_eq!((done.end, done.refused), (PageOutEnd::Whole, 0));
    let pages = 56 * MIB / page_size().bytes().0;
    let (before, after) = (done.before.known().unwrap(), done.after.known().unwrap());
    assert!(before.anonymous.0 - after.anonymous.0 >= pages, "{done:?}");
    assert!(after.swapped.0 - before.swapped.0 >= pages, "{done:?}");
    // Its stack, and little else: the heap of Python alone has more.
    assert!(after.anonymous.0 <= 3 * MIB / page_size().bytes().0, "{done:?}");
    assert_eq!(sum(&mut holder), sum_of(64));
    let order = PageOutOrder { bytes: Bytes(16 * MIB), budget: LONG };
    let done = root.page_out(&pidfd(&holder), &order).unwrap();
    assert_eq!((done.end, done.advised), (PageOutEnd::Bytes, Bytes(16 * MIB)));
}

#[test]
fn memory_that_is_locked_stays_and_the_rest_is_paged_out() {
    let Some(_) = guest::disk() else { return };
    let _swap = Swap::compressed(256);
    let folder = Cgroup::of("locked").unwrap();
    let holder = holder(&folder, &["40", "locked"]);
    let mut root = ProcRoot::open(Path::new("/proc")).unwrap();
    let order = PageOutOrder { bytes: Bytes(512 * MIB), budget: LONG };
    let done = root.page_out(&pidfd(&holder), &order).unwrap();
    println!("{done:?}");
    assert_eq!((done.end, done.refused), (PageOutEnd::Whole, 1));
    let after = done.after.known().unwrap();
    let pages = |mebibytes: u64| mebibytes * MIB / page_size().bytes().0;
    assert!(after.anonymous.0 >= pages(8), "{done:?}");
    assert!(after.swapped.0 >= pages(28), "{done:?}");
}

#[test]
fn the_group_that_the_kernel_would_take_is_found_and_the_kernel_takes_it() {
    let Some(_) = guest::disk() else { return };
    let root = CgroupRoot::open().unwrap();
    let outer = Cgroup::of("group").unwrap();
    outer.allow_limits_within();
    let (other, middle) = (outer.within("other"), outer.within("middle"));
    middle.allow_limits_within();
    let innermost = middle.within("innermost");
    let cgroup = innermost.open(&root);
    let group = |domain: Option<&Opened>| root.oom_group_of(&cgroup, domain).unwrap().map(|found| found.id());
    assert_eq!(group(None), None);
    innermost.set("memory.oom.group", "1");
    assert_eq!(group(None), Some(cgroup.id()));
    outer.set("memory.oom.group", "1");
    assert_eq!(group(None), Some(outer.open(&root).id()));
    assert_eq!(group(Some(&middle.open(&root))), Some(cgroup.id()));
    assert_eq!(group(Some(&other.open(&root))), None);
    // The outer one is out of memory: the bystander in it goes, too.
    let mut bystander = holder(&other, &["8"]);
    let mut hog = holder(&innermost, &["24"]);
    outer.set("memory.max", "48M");
    run(&innermost, HOLDER, &["64"]).end_within(LONG);
    hog.end();
    bystander.end();
    assert_eq!(exact::number(outer.folder().join("memory.events"), "oom_group_kill"), 1);
}

#[test]
fn a_killed_cgroup_gives_its_memory_back_through_the_held_ones() {
    let Some(_) = guest::disk() else { return };
    let root = CgroupRoot::open().unwrap();
    let folder = Cgroup::of("kill").unwrap();
    let large = holder(&folder, &["64"]);
    let _small = holder(&folder, &["8"]);
    let cgroup = folder.open(&root);
    let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let orders = KillOrders { reaper: None, hold: 1, patience: LONG, dry_run: false };
    let killed = Killer::new().kill(&cgroup, &mut proc, &orders, &mut |_, _| false).unwrap();
    assert_eq!((killed.processes, killed.means), (2, KillMeans::Whole));
    assert_eq!(killed.largest.len(), 1);
    let held = &killed.largest[0].pidfd;
    assert_eq!(held.pid(), Pid(large.pid()));
    let reaped = held.reap();
    assert!(matches!(reaped, Reap::Reaped | Reap::AlreadyGone | Reap::StillMapped), "{reaped:?}");
    wait_for("it is empty", || exact::number(folder.folder().join("cgroup.events"), "populated") == 0);
    // Not `memory.current`: pages of python's file are charged to whoever reads them first, and stay.
    wait_for("its memory is back", || exact::number(folder.folder().join("memory.stat"), "anon") < 8 * MIB);
}

#[test]
fn a_storm_of_forks_dies_one_by_one_where_somebody_is_spared() {
    let Some(_) = guest::disk() else { return };
    let root = CgroupRoot::open().unwrap();
    let folder = Cgroup::of("storm").unwrap();
    folder.set("pids.max", "64");
    let spared = holder(&folder, &["1"]);
    // Each forks as soon as it runs, and exits when it has; those that cannot fork try again. It ends by itself.
    let storm = "import os, signal, sys\n\
        signal.alarm(200)\n\
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
        for chain in range(12):\n\
        \x20   if os.fork() == 0:\n\
        \x20       for link in range(200000):\n\
        \x20           try:\n\
        \x20               if os.fork() > 0: os._exit(0)\n\
        \x20           except BlockingIOError: pass\n\
        \x20       os._exit(0)\n\
        print('ready', flush=True)\n\
        signal.pause()\n";
    let mut first = run(&folder, storm, &[]).ready();
    let cgroup = folder.open(&root);
    let spare = [Pid(spared.pid())];
    let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let patience = Duration::from_secs(10) * slowness();
    let orders = KillOrders { reaper: None, hold: 0, patience, dry_run: false };
    let mut spares = |_: &mut ProcRoot, pid: Pid| spare.contains(&pid);
    let killed = Killer::new().kill(&cgroup, &mut proc, &orders, &mut spares).unwrap();
    println!("{killed:?}");
    assert!(matches!(killed.means, KillMeans::Each { emptied: true, .. }), "{killed:?}");
    assert!(!pidfd(&spared).has_exited().unwrap());
    let listed = fs::read_to_string(folder.processes()).unwrap();
    assert_eq!(listed.trim(), spared.pid().to_string());
    first.end();
}
