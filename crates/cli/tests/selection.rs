//! The facts that a victim is selected by, against what `/proc` shows of the same processes.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    reading::Reading,
    units::{Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{Grown, Measured, Selector},
    process::{PidFd, ProcRoot, Process, possible_cpus, tick_ns},
};
use plimsoll_wire::{
    task::{CountErrors, TaskFacts},
    text::ProcessState,
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};
use support::{SOON, exact, fewer, guest, program::Program, until, wait_for};

const USER: u32 = 60_200;
const OTHER: u32 = 60_201;

/// The programs, pinned in a place of their own for as long as a test lasts.
struct Selection {
    root: PathBuf,
    selector: Selector,
}

impl Selection {
    fn new() -> Self {
        let root = PathBuf::from(format!("/sys/fs/bpf/plimsoll-selection-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let offers = Selector::load(&root, possible_cpus().unwrap()).unwrap();
        assert!(offers.measures && offers.watches, "{offers:?}");
        Self { selector: Selector::open(&root).unwrap(), root }
    }

    fn sweep(&mut self) -> BTreeMap<u32, TaskFacts> {
        let mut all = BTreeMap::new();
        let counts = self
            .selector
            .sweep(|facts| assert!(all.insert(facts.pid.0, *facts).is_none(), "{facts:?} twice"))
            .unwrap();
        assert_eq!((counts.visited, counts.undecodable), (all.len() as u64, 0));
        all
    }

    fn facts(&mut self, pid: u32) -> TaskFacts {
        self.sweep().remove(&pid).unwrap_or_else(|| panic!("{pid} was not swept"))
    }

    fn measure(&mut self, pid: u32, start_ns: u64) -> Measured {
        let id = VictimId { pid: Pid(pid), start_ns };
        let mut shown = Vec::new();
        self.selector.measure(&[id], |of, measured| shown.push((of, measured))).unwrap();
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].0, id);
        shown[0].1
    }

    #[track_caller]
    fn exactly(&mut self, pid: u32) -> TaskFacts {
        let start_ns = ProcRoot::open(Path::new("/proc")).unwrap().process(Pid(pid)).unwrap().start_ns;
        match self.measure(pid, start_ns) {
            Measured::Known(facts) => facts,
            other @ (Measured::Another | Measured::Gone) => panic!("{pid}: {other:?}"),
        }
    }

    /// Of these processes, who was noted since the last call; and how many notes were lost.
    fn grown(&mut self, of: &[u32]) -> (Vec<Grown>, u64) {
        let mut noted = Vec::new();
        let counts = self.selector.grown(|one| noted.push(one)).unwrap();
        assert_eq!(counts.visited, noted.len() as u64);
        noted.retain(|one| of.contains(&one.id.pid.0));
        (noted, counts.lost)
    }
}

impl Drop for Selection {
    fn drop(&mut self) {
        assert!(Selector::remove(&self.root).unwrap());
        fs::remove_dir(&self.root).unwrap();
    }
}

/// Everything with memory that `/proc` shows.
fn proc_scan() -> BTreeMap<u32, Process> {
    let mut all = BTreeMap::new();
    ProcRoot::open(Path::new("/proc"))
        .unwrap()
        .processes(|process| {
            if !process.kernel_thread && matches!(process.memory, Reading::Known(_)) {
                all.insert(process.pid.0, *process);
            }
        })
        .unwrap();
    all
}

/// A process that has ended and is not waited for until this is dropped.
struct Zombie(Child);

impl Zombie {
    fn new() -> Self {
        let child = Command::new("true").spawn().unwrap();
        wait_for("it ends", || exact::state(child.id()) == Some(ProcessState::Zombie));
        Self(child)
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        drop(self.0.wait());
    }
}

fn anonymous_and_swapped(facts: &TaskFacts) -> u64 {
    facts.anonymous.0 + facts.swapped.0
}

#[track_caller]
fn assert_same(swept: &TaskFacts, shown: &Process) {
    assert_eq!(swept.start_ns / tick_ns(), shown.start_ns / tick_ns(), "{swept:?} {shown:?}");
    assert_eq!((swept.parent, swept.uid), (shown.parent, shown.uid), "{swept:?} {shown:?}");
    assert_eq!((swept.threads as u64, swept.comm), (shown.threads, shown.comm), "{swept:?} {shown:?}");
    assert_eq!(Some(swept.oom_score_adj), exact::oom_score_adj(shown.pid.0), "{swept:?}");
    assert_eq!(swept.leader_exited, shown.state == ProcessState::Zombie, "{shown:?}");
}

#[test]
fn a_sweep_shows_exactly_the_processes_that_proc_shows() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER, OTHER]);
    let plain = scripted.make(1, &format!("start {USER}"));
    let other = scripted.make(2, &format!("start {OTHER}"));
    let sharing = scripted.make(2, "clone 3");
    let headless = scripted.make(4, &format!("start {USER}"));
    scripted.tell(4, "thread 5");
    scripted.tell(5, "touch 1024");
    scripted.tell(4, "leave");
    let stopped = scripted.make(6, &format!("start {USER}"));
    PidFd::open(Pid(stopped)).unwrap();
    rustix::process::kill_process(raw(stopped), Signal::STOP).unwrap();
    let zombie = Zombie::new();
    let number = fewer(2000);
    let crowd = fixture.workload(USER, "crowd", &[&format!("--children={number}"), "--kibibytes=4"]).filled();
    fs::write(format!("/proc/{plain}/oom_score_adj"), "345").unwrap();
    let is_stopped = |selection: &mut Selection| selection.facts(stopped).stopped.then_some(());
    until("it stops", SOON, || is_stopped(&mut selection));

    let before = proc_scan();
    let swept = selection.sweep();
    let after = proc_scan();
    let stable = before.iter().filter(|(pid, process)| {
        after.get(pid).is_some_and(|again| again.start_ns == process.start_ns && again.comm == process.comm)
    });
    // The first process is never a victim, and some machines hide it from programs.
    for (pid, _) in stable.filter(|(pid, _)| **pid != 1) {
        assert!(swept.contains_key(pid), "{pid} is in /proc and was not swept");
    }
    for pid in swept.keys().filter(|pid| !before.contains_key(pid)) {
        // Began or ended meanwhile.
        assert!(after.contains_key(pid) || !Path::new(&format!("/proc/{pid}/status")).exists(), "{pid}");
    }
    for pid in [plain, other, sharing, headless, stopped, crowd.pid(), std::process::id()] {
        assert_same(&swept[&pid], &after[&pid]);
    }
    let crowded = swept.values().filter(|facts| facts.parent == Pid(crowd.pid())).count();
    assert_eq!(crowded, number as usize);
    assert!(
        !swept.contains_key(&zombie.0.id()) && !swept.contains_key(&2),
        "neither zombies nor kernel threads"
    );

    assert_eq!(
        (swept[&plain].oom_score_adj, swept[&plain].uid, swept[&other].uid),
        (345, Uid(USER), Uid(OTHER))
    );
    assert_eq!(swept[&other].mm, swept[&sharing].mm);
    assert_eq!((swept[&other].mm_users, swept[&other].threads), (2, 1));
    assert!(
        swept[&headless].leader_exited && swept[&headless].anonymous >= Pages(exact::pages_of_kib(1024) / 2)
    );
    assert!(!swept[&plain].leader_exited && !swept[&plain].stopped && !swept[&plain].dying);
    let keys: std::collections::BTreeSet<u64> = swept.values().map(|facts| facts.mm).collect();
    assert_eq!(keys.len(), swept.len() - 1, "all others have memory of their own");
}

fn raw(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Its parent waits in a sleep that `/proc` shows as uninterruptible, and SIGKILL ends; the child runs in its memory, in
/// the C library's sleep(3), and ends by itself.
const VFORK: &str = "
libc = ctypes.CDLL(None)
stack = mmap.mmap(-1, 65536)
top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + 65536 - 64
say('vfork')
libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), ctypes.c_void_p(top), 0x100 | 0x4000 | 17, ctypes.c_void_p(20))
";

#[test]
fn a_vfork_child_is_told_from_a_process_of_its_own_and_its_parent_can_be_killed() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut parent = fixture.python(USER, VFORK);
    parent.stage("vfork");
    let child = until("the child runs", SOON, || {
        selection.sweep().into_values().find(|facts| facts.parent == Pid(parent.pid()) && facts.vfork_child)
    });
    let held = PidFd::open(child.pid).unwrap();
    wait_for("the parent waits", || exact::state(parent.pid()) == Some(ProcessState::Uninterruptible));
    let waiting = selection.facts(parent.pid());
    assert_eq!(waiting.mm, child.mm);
    assert!(!waiting.vfork_child && !waiting.uninterruptible, "{waiting:?}");
    held.send_signal(plimsoll_policy::victim::Signal::Kill).unwrap();
    parent.end();
}

#[test]
fn counts_of_a_sweep_are_off_by_no_more_than_they_say() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER]);
    let mut pids = Vec::new();
    for slot in 1..8 {
        pids.push(scripted.make(slot, &format!("start {USER}")));
        scripted.tell(slot, &format!("touch {}", slot * slot * 256 + 4));
    }
    scripted.tell(7, "thread 8");
    scripted.tell(7, "thread 9");
    for step in ["touch 700", "free", "touch 100"] {
        scripted.tell(8, step);
        scripted.tell(9, "touch 44");
        let swept = selection.sweep();
        for pid in &pids {
            let (facts, counted) = (&swept[pid], exact::process_pages(*pid).unwrap());
            let off = anonymous_and_swapped(facts).abs_diff(counted);
            assert!(off <= 2 * facts.errors.anonymous.0, "{off} pages: {facts:?} is {counted}");
            assert!(facts.least().0 <= counted + facts.shared.0 && counted <= facts.most().0, "{facts:?}");
            assert!(facts.errors.anonymous.0 > 0 && facts.mapped.0 >= counted, "{facts:?}");
        }
    }
}

/// Touches private and shared pages on each CPU in turn, and gives some back on the last.
const EVERY_CPU: &str = "
kept = []
for cpu in sorted(os.sched_getaffinity(0)) * 3:
    os.sched_setaffinity(0, {cpu})
    for flags, pages in ((mmap.MAP_PRIVATE, 77), (mmap.MAP_SHARED, 23)):
        memory = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=flags | mmap.MAP_ANONYMOUS)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        kept.append(memory)
    say('touched')
    hear()
kept[0].close()
say('freed')
hear()
";

/// Shared pages of a process that nobody shares them with, and pages that are its own, as its page tables have them.
fn rollup_pages(pid: u32, field: &str) -> u64 {
    exact::pages_of_kib(exact::number(format!("/proc/{pid}/smaps_rollup"), field))
}

#[test]
fn exact_counts_are_those_of_the_page_tables_whichever_cpus_touched_the_pages() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut toucher = fixture.python(USER, EVERY_CPU);
    let pid = toucher.pid();
    loop {
        let stage = toucher.line();
        let facts = selection.exactly(pid);
        assert_eq!(facts.errors, CountErrors::default(), "{facts:?}");
        assert_eq!(facts.anonymous.0, rollup_pages(pid, "Anonymous"), "{facts:?}");
        assert_eq!(facts.swapped.0, rollup_pages(pid, "Swap"), "{facts:?}");
        assert_eq!(facts.shared.0, rollup_pages(pid, "Pss_Shmem"), "{facts:?}");
        assert_eq!(facts.uid, Uid(USER));
        toucher.tell("on");
        if stage == "freed" {
            break;
        }
    }
    toucher.end();
}

#[test]
fn exact_counts_of_threads_without_their_leader_are_those_of_the_page_tables() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER]);
    let pid = scripted.make(1, &format!("start {USER}"));
    for thread in 2..7 {
        scripted.tell(1, &format!("thread {thread}"));
        scripted.tell(thread, &format!("touch {}", thread * 100));
    }
    // The file of a process whose leader has exited is empty; that of its last thread is not.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let numbers = threads.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u32>().unwrap());
    let last = numbers.max().unwrap();
    for leaves in [1, 3, 2] {
        scripted.tell(leaves, "leave");
        scripted.tell(6, "touch 52");
        let facts = until("it has left", SOON, || {
            let facts = selection.exactly(pid);
            (facts.leader_exited && facts.mm_users < 6).then_some(facts)
        });
        assert_eq!(anonymous_and_swapped(&facts), exact::process_pages(last).unwrap(), "{facts:?}");
        assert_eq!(facts.errors, CountErrors::default());
    }
}

#[test]
fn who_has_gone_and_whose_number_is_anothers_is_told() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER]);
    let pid = scripted.make(1, &format!("start {USER}"));
    let swept = selection.facts(pid);
    assert!(matches!(selection.measure(pid, swept.start_ns), Measured::Known(_)));
    // As /proc tells it.
    let tick = swept.start_ns - swept.start_ns % tick_ns();
    assert!(matches!(selection.measure(pid, tick), Measured::Known(_)));
    assert_eq!(selection.measure(pid, tick - 1), Measured::Another);
    assert_eq!(selection.measure(pid, tick + tick_ns()), Measured::Another);
    let thread = scripted.tell(1, "thread 2");
    assert_eq!(thread, u64::from(pid));
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let number: u32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        if number != pid {
            assert_eq!(selection.measure(number, swept.start_ns), Measured::Gone, "a thread is no process");
        }
    }
    scripted.tell(1, "exit");
    let gone =
        |selection: &mut Selection| (selection.measure(pid, swept.start_ns) == Measured::Gone).then_some(());
    until("it is gone", SOON, || gone(&mut selection));
    let zombie = Zombie::new();
    let started = ProcRoot::open(Path::new("/proc")).unwrap().process(Pid(zombie.0.id())).unwrap().start_ns;
    assert_eq!(selection.measure(zombie.0.id(), started), Measured::Gone);
    assert_eq!(selection.measure(2, 0), Measured::Gone, "a kernel thread");
    assert_eq!(selection.measure(u32::MAX, 0), Measured::Gone);
}

#[test]
fn a_call_of_exec_shows_as_another_program_of_the_same_process() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER]);
    let pid = scripted.make(1, &format!("start {USER}"));
    let before = selection.facts(pid);
    scripted.tell(1, "touch 512");
    let child = scripted.make(1, "fork 2");
    assert_eq!((selection.facts(pid).execs, selection.facts(pid).mm), (before.execs, before.mm));
    assert_eq!(selection.facts(child).execs, before.execs, "a child counts on from its parent");
    scripted.tell(1, "exec");
    let after = selection.facts(pid);
    assert_eq!((after.start_ns, after.execs), (before.start_ns, before.execs.wrapping_add(1)));
    assert_eq!((selection.exactly(pid).execs, selection.facts(child).execs), (after.execs, before.execs));
}

#[test]
fn a_watch_notes_who_passes_the_floor_and_nobody_else_and_nothing_once_it_is_over() {
    let fixture = fixture!();
    let mut selection = Selection::new();
    let mut scripted = fixture.scripted(&[USER]);
    let small = scripted.make(1, &format!("start {USER}"));
    let large = scripted.make(2, &format!("start {USER}"));
    let later = scripted.make(3, &format!("start {USER}"));
    let floor = Pages(exact::pages_of_kib(16 << 10));
    let mut pids = vec![small, large, later];
    scripted.tell(2, "touch 32768");
    assert!(selection.grown(&pids).0.is_empty() && !selection.selector.is_watching());

    selection.selector.watch(floor).unwrap();
    scripted.tell(1, "touch 2048");
    scripted.tell(3, "touch 8192");
    assert_eq!(selection.grown(&pids), (Vec::new(), 0), "all that changed are below the floor");
    scripted.tell(2, "touch 512");
    scripted.tell(3, "touch 16384");
    let (mut noted, lost) = selection.grown(&pids);
    noted.sort_by_key(|one| pids.iter().position(|pid| *pid == one.id.pid.0));
    let swept = selection.sweep();
    let expected = [large, later].map(|pid| Grown {
        mm: swept[&pid].mm,
        id: VictimId { pid: Pid(pid), start_ns: swept[&pid].start_ns },
    });
    assert_eq!((noted.as_slice(), lost), (expected.as_slice(), 0));
    assert!(selection.grown(&pids).0.is_empty(), "told once, and they have not changed since");

    // A forked child begins with its parent's pages, and is noted as itself; exec begins anew.
    let child = scripted.make(3, "fork 4");
    pids.push(child);
    scripted.tell(4, "touch 512");
    let (noted, _) = selection.grown(&pids);
    assert!(noted.iter().any(|one| one.id.pid == Pid(child)), "{noted:?}");
    let begun = selection.facts(child).mm;
    scripted.tell(4, "exec");
    scripted.tell(4, "touch 512");
    let (noted, _) = selection.grown(&[child]);
    assert!(noted.iter().all(|one| one.mm == begun), "{noted:?}: what it has since is small");

    selection.selector.unwatch().unwrap();
    selection.grown(&pids);
    scripted.tell(2, "touch 512");
    scripted.tell(3, "touch 512");
    assert!(selection.grown(&pids).0.is_empty() && !selection.selector.is_watching());
    // And again, with a lower floor.
    selection.selector.watch(floor).unwrap();
    selection.selector.watch(Pages(floor.0 / 8)).unwrap();
    scripted.tell(1, "touch 512");
    assert_eq!(selection.grown(&[small]).0.len(), 1);
}

#[test]
fn notes_that_find_no_room_are_counted() {
    let cpus = u64::from(possible_cpus().unwrap());
    if cpus > 32 {
        return support::skip("so many CPUs would need gigabytes for it");
    }
    let fixture = fixture!();
    let mut selection = Selection::new();
    selection.selector.watch(Pages(1)).unwrap();
    // As many pages as show in the shared count whichever of two CPUs touches them.
    let kibibytes = (2 * (2 * cpus).max(32) + 16) * exact::page_bytes() / 1024;
    let _crowd =
        fixture.workload(USER, "crowd", &["--children=1200", &format!("--kibibytes={kibibytes}")]).filled();
    let mut noted = 0_u64;
    let counts = selection.selector.grown(|_| noted += 1).unwrap();
    assert!(counts.visited == noted && noted <= 1024 && noted > 900 && counts.lost > 0, "{counts:?}");
    selection.selector.unwatch().unwrap();
    assert_eq!(selection.selector.grown(|_| ()).unwrap().lost, 0, "counted once");
}

#[test]
fn pins_of_another_build_are_replaced_and_nothing_is_left_in_the_end() {
    let _world = fixture!();
    let mut selection = Selection::new();
    let folder = selection.root.join("select");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let own = names();
    assert_eq!(own.len(), 1, "{own:?}");
    let cpus = possible_cpus().unwrap();
    // As if another build had made them, and a third one had been interrupted.
    fs::rename(folder.join(&own[0]), folder.join("0123456789abcdef")).unwrap();
    fs::create_dir(folder.join("loading")).unwrap();
    Selector::open(&selection.root).unwrap_err();
    let offers = Selector::load(&selection.root, cpus).unwrap();
    assert_eq!(names(), own);
    assert_eq!(Selector::load(&selection.root, cpus).unwrap(), offers, "they are there");
    let mut again = Selector::open(&selection.root).unwrap();
    assert!(again.sweep(|_| ()).unwrap().visited > 0);
    // Whoever has them open can go on with those of the other build.
    assert!(selection.sweep().contains_key(&std::process::id()));
    assert!(Selector::remove(&selection.root).unwrap());
    assert!(!folder.exists() && !Selector::remove(&selection.root).unwrap());
    Selector::open(&selection.root).unwrap_err();
    // For the end of the test.
    Selector::load(&selection.root, cpus).unwrap();
}

/// Dumps core into a program that does not read it: so it is dying for a while, with all its memory.
#[test]
fn a_process_that_writes_a_core_dump_is_dying() {
    let Some(_) = guest::disk() else { return };
    let fixture = fixture!();
    let mut selection = Selection::new();
    let pattern = Path::new("/proc/sys/kernel/core_pattern");
    let before = fs::read_to_string(pattern).unwrap();
    fs::write(pattern, "|/bin/sleep 30").unwrap();
    let scripted = fixture.python(USER, "kept = b'x' * (8 << 20)\nsay('ready')\nhear()\n").ready();
    assert!(!selection.facts(scripted.pid()).dying);
    scripted.signal(Signal::QUIT);
    let facts = until("it dumps core", SOON, || {
        selection.sweep().remove(&scripted.pid()).filter(|facts| facts.dying && facts.dumping)
    });
    fs::write(pattern, before).unwrap();
    assert!(facts.anonymous >= Pages(exact::pages_of_kib(8 << 10) / 2), "{facts:?}");
    end(scripted);
}

fn end(mut program: Program) {
    program.stop();
}
