//! Use of files and the floor of clean file memory, as the working-set programs see them.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    units::{Nanos, Pages, Pid},
    victim::VictimId,
    workingset::{Barred, Blocks, FileId, Use},
};
use plimsoll_sys::{
    bpf::{Accesses, Executables, WorkingSet},
    process::ProcRoot,
};
use plimsoll_wire::{
    abi::PLIMSOLL_EXECUTABLES_MAX as EXECUTABLES_MAX,
    workingset::{Crossing, FloorSettings, WorkingSetEvent, WorkingSetEventKind as Kind},
};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::{
        fs::{FileExt as _, MetadataExt as _},
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use support::{
    SOON,
    cgroup::Cgroup,
    disk::{Disk, cached_bytes, drop_cached, page_bytes},
    exact, guest,
    program::{PYTHON, Program},
    until, wait_for,
};

const USER: u32 = 60_300;

/// Of the chunks that are counted by.
const CHUNK: u64 = 512;

/// Reads a file to its end, in pieces that are no whole number of chunks.
fn read(path: &Path) {
    let (file, mut place) = (File::open(path).unwrap(), 0);
    let mut piece = vec![0; 31 * page_bytes()];
    loop {
        match file.read_at(&mut piece, place).unwrap() {
            0 => return,
            got => place += got as u64,
        }
    }
}

fn id(path: &Path) -> (u64, u32) {
    let about = fs::metadata(path).unwrap();
    let device = rustix::fs::major(about.dev()) << 20 | rustix::fs::minor(about.dev());
    (about.ino(), device)
}

/// The programs of a test's own, attached.
struct Programs {
    root: PathBuf,
    set: WorkingSet,
}

impl Programs {
    /// `None`, which is said, where they cannot be loaded.
    fn start() -> Option<Self> {
        if !support::is_root() {
            return None;
        }
        let root = PathBuf::from(format!("/sys/fs/bpf/plimsoll-workingset-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let offers = WorkingSet::load(&root).unwrap();
        assert_eq!(offers.refused, None);
        let mut programs = Self { set: WorkingSet::open(&root).unwrap(), root };
        programs.set.attach().unwrap();
        if offers.accesses != Accesses::Nowhere {
            programs.set.attach_reads().unwrap();
        }
        Some(programs)
    }

    /// What was counted of this file since the last call, by chunk.
    fn uses(&mut self, path: &Path) -> Vec<Use> {
        let (mut all, id) = (Vec::new(), id(path));
        self.set.drain(&mut all).unwrap();
        assert_eq!(self.set.undecodable(), 0);
        all.retain(|one| (one.chunk.file.inode, one.chunk.file.device) == id);
        all.sort_by_key(|one| one.chunk);
        all
    }

    /// Events until one of a cgroup is as `look` wants it.
    fn event<T>(
        &mut self,
        what: &str,
        cgroup: u64,
        mut look: impl FnMut(&WorkingSetEvent) -> Option<T>,
    ) -> T {
        until(what, SOON, || {
            loop {
                let event = self.set.next_event().unwrap()?;
                if event.cgroup == Some(cgroup)
                    && let Some(found) = look(&event)
                {
                    return Some(found);
                }
            }
        })
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        assert!(WorkingSet::remove(&self.root).unwrap());
        fs::remove_dir(&self.root).unwrap();
    }
}

/// A process of the test's user in a cgroup, which waits for a word and then runs a command. It ends with the test.
struct Member(Child);

impl Member {
    fn new(cgroup: &Cgroup, command: &str) -> Self {
        let member = Self::free(command);
        cgroup.take(member.0.id());
        member
    }

    /// In no cgroup of its own.
    fn free(command: &str) -> Self {
        // Nothing runs longer, whatever becomes of the test.
        let script = format!("ulimit -t 60; read -r go; exec {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).uid(USER).gid(USER).current_dir("/");
        Self(shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Takes memory until it is stopped.
    fn hog(cgroup: &Cgroup) -> Self {
        Self::new(cgroup, "tail /dev/zero")
    }

    /// The same, 256 KiB at a time.
    fn slow_hog(cgroup: &Cgroup) -> Self {
        let script =
            "import time\nmemory = []\nwhile True:\n  memory.append(b\"x\" * (1 << 18))\n  time.sleep(0.005)";
        Self::new(cgroup, &format!("{PYTHON} -c '{script}'"))
    }

    /// Reads a file of the disk.
    fn reader(cgroup: &Cgroup, path: &Path) -> Self {
        Self::new(cgroup, &format!("cat {}", path.display()))
    }

    /// Does nothing.
    fn sleeper(cgroup: &Cgroup) -> Self {
        Self::new(cgroup, "sleep 60")
    }

    fn go(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn id(&self) -> VictimId {
        let pid = Pid(self.0.id());
        let start_ns = ProcRoot::open(Path::new("/proc")).unwrap().process(pid).unwrap().start_ns;
        VictimId { pid, start_ns }
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end by SIGKILL.
    fn killed(&mut self) {
        let status = until("it is killed", SOON, || self.0.try_wait().unwrap());
        assert_eq!(status.signal(), Some(9));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

const MIB_PAGES: u64 = 256;

/// A floor that any process in the cgroup is under by the time that its limit is reached.
fn floor(cgroup: &Cgroup, victims: Vec<VictimId>) -> FloorSettings {
    FloorSettings {
        line: Pages(64 * MIB_PAGES),
        free_max: Pages(4 * MIB_PAGES),
        valid_until: Nanos(u64::MAX),
        hold: Nanos(10_000_000_000),
        cgroup: Some(cgroup.inode()),
        victims,
        ..FloorSettings::default()
    }
}

#[test]
fn a_page_that_is_read_counts_once_each_time_and_where_it_is() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 2 * CHUNK + 100);
    programs.uses(&path);
    for round in 0..3 {
        read(&path);
        let uses = programs.uses(&path);
        assert_eq!(uses.iter().map(|one| one.chunk.chunk).collect::<Vec<_>>(), [0, 1, 2], "{uses:?}");
        assert!(uses.iter().all(|one| !one.mapped));
        for (one, pages) in uses.iter().zip([CHUNK, CHUNK, 100]) {
            // A read that meets a page which is still on its way tells nothing of the pages before it.
            let told = if round == 0 { pages * 9 / 10..=pages } else { pages..=pages };
            assert!(told.contains(&one.accessed), "{one:?}");
            assert_eq!((one.added, one.evicted), (if round == 0 { pages } else { 0 }, 0), "{one:?}");
            assert_eq!((one.file_bytes, one.barred), (fs::metadata(&path).unwrap().len(), None));
        }
    }
    assert!(programs.set.accesses().unwrap() >= 3 * (2 * CHUNK + 100) / 31);
}

#[test]
fn of_what_is_read_in_part_it_is_told_which_blocks() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 2 * CHUNK);
    read(&path);
    programs.uses(&path);
    if programs.set.offers().accesses == Accesses::Nowhere {
        return support::skip("this kernel does not tell what is read");
    }
    let file = File::open(&path).unwrap();
    let read_pages = |first: usize, count: usize| {
        let mut bytes = vec![0; count * page_bytes()];
        file.read_exact_at(&mut bytes, (first * page_bytes()) as u64).unwrap();
    };
    // 16 pages each: the end of the seventh block, all of the eighth, the begin of the ninth; and the last of one chunk with
    // the first of the next.
    read_pages(100, 30);
    read_pages(511, 2);
    let told: Vec<(u32, u64, Blocks)> =
        programs.uses(&path).iter().map(|one| (one.chunk.chunk, one.accessed, one.blocks)).collect();
    assert_eq!(told, [(0, 31, Blocks(0b111 << 6 | 1 << 31)), (1, 1, Blocks(1))]);
}

#[test]
fn pages_that_are_mapped_count_as_used_unless_the_daemon_maps_them() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("program", 0);
    fs::copy("/bin/sleep", &path).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    programs.uses(&path);
    let run = || assert!(Command::new(&path).arg("0").status().unwrap().success());
    run();
    assert!(programs.uses(&path).iter().map(|one| one.accessed).sum::<u64>() > 0);
    // Its number is known before it is this program.
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("read -r go; exec {} 0", path.display())]).stdin(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let own = FloorSettings { own: Pid(child.id()), ..FloorSettings::default() };
    programs.set.set_floor(&own).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    // The kernel itself reads the first page of a program.
    let pages = |uses: Vec<Use>| uses.iter().map(|one| one.accessed).sum::<u64>();
    let own = pages(programs.uses(&path));
    run();
    let uses = programs.uses(&path);
    assert!(uses.iter().all(|one| one.mapped) || programs.set.offers().accesses == Accesses::Nowhere);
    let others = pages(uses);
    assert!(own <= 2 && others >= 4, "{own} pages, {others} pages");
}

#[test]
fn a_file_that_can_change_or_has_no_name_is_barred() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 10);
    let writer = File::options().append(true).open(&path).unwrap();
    read(&path);
    assert_eq!(programs.uses(&path)[0].barred, Some(Barred::OpenForWriting));
    drop(writer);
    read(&path);
    assert_eq!(programs.uses(&path)[0].barred, None);
    let (file, seen) = (File::open(&path).unwrap(), id(&path));
    fs::remove_file(&path).unwrap();
    file.read_at(&mut [0; 10], 0).unwrap();
    let mut all = Vec::new();
    programs.set.drain(&mut all).unwrap();
    let found = all.iter().find(|one| (one.chunk.file.inode, one.chunk.file.device) == seen).unwrap();
    assert_eq!(found.barred, Some(Barred::Unlinked));
}

#[test]
fn memory_is_no_file_whatever_it_is_called() {
    let Some(mut programs) = Programs::start() else { return };
    let folder = tempfile::Builder::new().prefix("plimsoll-test-").tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    read(&path);
    // Faults of tmpfs are those of any file.
    let script =
        "import mmap, sys; file = open(sys.argv[1], 'rb'); sum(mmap.mmap(file.fileno(), 0, prot=1)[::4096])";
    assert!(Command::new(PYTHON).args(["-c", script]).arg(&path).status().unwrap().success());
    assert_eq!(programs.uses(&path), []);
}

#[test]
fn nothing_is_counted_once_detached() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 10);
    programs.set.detach_reads();
    programs.uses(&path);
    read(&path);
    let uses = programs.uses(&path);
    assert_eq!((uses[0].accessed, uses[0].added), (0, 10), "{uses:?}");
    programs.set.detach().unwrap();
    drop_cached(&path);
    read(&path);
    assert_eq!(programs.uses(&path), []);
    programs.set.attach().unwrap();
    drop_cached(&path);
    read(&path);
    assert_eq!(programs.uses(&path)[0].added, 10);
}

#[test]
fn what_reclaim_takes_is_told_from_what_is_dropped_on_request() {
    let Some(disk) = Disk::of() else { return };
    let Some(cgroup) = Cgroup::limited("evict", 64) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 24 * MIB_PAGES);
    let mut reader = Member::reader(&cgroup, &path);
    programs.uses(&path);
    reader.go();
    wait_for("it is read", || reader.has_ended());
    let added = |uses: &[Use]| uses.iter().map(|one| one.added).sum::<u64>();
    let evicted = |uses: &[Use]| uses.iter().map(|one| one.evicted).sum::<u64>();
    let uses = programs.uses(&path);
    assert_eq!((added(&uses), evicted(&uses)), (24 * MIB_PAGES, 0));
    let mut hog = Member::hog(&cgroup);
    hog.go();
    hog.killed();
    let taken = evicted(&programs.uses(&path));
    assert!((12 * MIB_PAGES..=24 * MIB_PAGES).contains(&taken), "{taken} pages of {}", 24 * MIB_PAGES);
    read(&path);
    drop_cached(&path);
    let uses = programs.uses(&path);
    assert_eq!((added(&uses), evicted(&uses)), (taken, 0));
}

#[test]
fn a_program_that_runs_is_among_the_executables() {
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.path("program");
    fs::copy("/bin/sleep", &path).unwrap();
    let is_it = |file: &FileId| (file.inode, file.device) == id(&path);
    assert!(!programs.set.executables().unwrap().files.iter().any(is_it));
    let mut child = Command::new(&path).arg("60").spawn().unwrap();
    let mut found = Executables::default();
    // Its memory is still being mapped when it is there already.
    wait_for("it is found", || {
        found = programs.set.executables().unwrap();
        found.files.iter().any(is_it)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!found.cut);
    assert!(found.files.is_sorted_by(|one, next| one < next), "{found:?}");
    assert!(!programs.set.executables().unwrap().files.iter().any(is_it));
}

/// One maps more files to execute than there is room for; that some were left out is known.
#[test]
fn that_there_is_no_room_for_all_executables_is_told() {
    const MAPS: &str = "import mmap, os, resource, sys\n\
        count = int(sys.argv[1])\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64, count + 64))\n\
        mapped = []\n\
        for number in range(count):\n\
        \x20 with open(str(number), 'w+b') as file:\n\
        \x20   os.unlink(file.name); file.write(b'x'); file.flush()\n\
        \x20   mapped.append(mmap.mmap(file.fileno(), 1, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))\n\
        print('mapped', flush=True)\n\
        sys.stdin.read()\n";
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let folder = disk.path("mapped");
    fs::create_dir(&folder).unwrap();
    let mut maps = Command::new(PYTHON);
    maps.args(["-c", MAPS, &EXECUTABLES_MAX.to_string()]).current_dir(&folder);
    let mut maps = Program::of(maps);
    maps.stage("mapped");
    let found = programs.set.executables().unwrap();
    assert!(found.cut);
    assert_eq!(found.files.len(), EXECUTABLES_MAX as usize);
    maps.stop();
    assert!(!programs.set.executables().unwrap().cut);
}

#[test]
fn reclaim_that_makes_no_progress_is_told() {
    let Some(cgroup) = Cgroup::limited("hopeless", 48) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let mut hog = Member::hog(&cgroup);
    hog.go();
    let (limited, reclaimer) = programs.event("no progress", cgroup.inode(), |event| match event.kind {
        Kind::NoProgress { limited, reclaimed } => {
            assert!(reclaimed.0 < 16, "{event:?}");
            Some((limited, event.reclaimer))
        }
        Kind::Ask(..) | Kind::Taken(..) | Kind::Nobody(_) | Kind::Near(_) => None,
    });
    assert!(limited);
    assert_eq!(reclaimer.0, hog.0.id());
}

#[test]
fn ahead_of_need_the_soft_tier_is_told_to_go() {
    let Some(disk) = Disk::of() else { return };
    let Some(cgroup) = Cgroup::limited("ahead", 96) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 64 * MIB_PAGES);
    let mut reader = Member::reader(&cgroup, &path);
    reader.go();
    wait_for("it is read", || reader.has_ended());
    let mut hog = Member::slow_hog(&cgroup);
    let reserve = Pages(40 * MIB_PAGES);
    programs.set.set_floor(&FloorSettings { line: Pages(0), reserve, ..floor(&cgroup, Vec::new()) }).unwrap();
    hog.go();
    let limited = programs.event("the soft tier is to go", cgroup.inode(), |event| match event.kind {
        Kind::NoProgress { limited, reclaimed } => {
            assert_eq!(reclaimed, Pages(0));
            Some(limited)
        }
        Kind::Ask(..) | Kind::Taken(..) | Kind::Nobody(_) | Kind::Near(_) => None,
    });
    // While there is something left: reclaim still makes progress.
    let left = cached_bytes(&path);
    assert!(limited && left > 8 << 20, "{left} bytes are left");
    assert_eq!(programs.set.floor_counts().unwrap().below, 0);
}

/// Whom the programs took, or asked to be taken, which the test then does as the daemon would.
fn next_victim(programs: &mut Programs, cgroup: &Cgroup, among: &mut [&mut Member]) -> (VictimId, Crossing) {
    let (victim, crossing, asked) =
        programs.event("somebody is taken", cgroup.inode(), |event| match event.kind {
            Kind::Taken(crossing, victim) => Some((victim, crossing, false)),
            Kind::Ask(crossing, victim) => Some((victim, crossing, true)),
            Kind::NoProgress { .. } | Kind::Nobody(_) | Kind::Near(_) => None,
        });
    let offers = programs.set.offers();
    assert!(!asked || !offers.signals_others, "asked for {victim:?}");
    if asked {
        let one = among.iter_mut().find(|one| one.0.id() == victim.pid.0).unwrap();
        one.0.kill().unwrap();
    }
    (victim, crossing)
}

#[test]
fn below_the_floor_the_first_of_the_table_ends_before_memory_does() {
    let Some(cgroup) = Cgroup::limited("floor", 128) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let mut hog = Member::hog(&cgroup);
    let id = hog.id();
    programs.set.set_floor(&floor(&cgroup, vec![id])).unwrap();
    hog.go();
    let (victim, crossing) = next_victim(&mut programs, &cgroup, &mut [&mut hog]);
    assert_eq!(victim.pid, id.pid);
    hog.killed();
    assert_eq!(cgroup.oom_kills(), 0);
    assert_eq!(crossing.line, Pages(64 * MIB_PAGES));
    assert!(crossing.clean < crossing.line && crossing.free <= Pages(4 * MIB_PAGES), "{crossing:?}");
    let counts = programs.set.floor_counts().unwrap();
    assert!(counts.taken == 1 && counts.below >= 1 && counts.stale == 0, "{counts:?}");
}

/// What is locked, or being read, is clean file memory and cannot be taken.
#[test]
fn above_the_floor_the_first_of_the_table_ends_where_nothing_can_be_taken() {
    let Some(cgroup) = Cgroup::limited("barren", 128) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let mut hog = Member::hog(&cgroup);
    let id = hog.id();
    let plain = floor(&cgroup, vec![id]);
    programs.set.set_floor(&FloorSettings { locked: plain.line, ..plain }).unwrap();
    hog.go();
    let (victim, crossing) = next_victim(&mut programs, &cgroup, &mut [&mut hog]);
    assert_eq!(victim.pid, id.pid);
    hog.killed();
    assert_eq!(cgroup.oom_kills(), 0);
    assert!(crossing.clean >= crossing.line && crossing.free <= Pages(MIB_PAGES), "{crossing:?}");
    assert_eq!(programs.set.floor_counts().unwrap().taken, 1);
}

#[test]
fn nobody_is_taken_for_a_bound_of_a_cgroup_below() {
    let Some(disk) = Disk::of() else { return };
    let Some(cgroup) = Cgroup::limited("bound", 64) else { return };
    cgroup.allow_limits_within();
    let Some(beside) = Cgroup::limited("bound/beside", 1024) else { return };
    let Some(below) = Cgroup::limited("bound/below", 16) else { return };
    let Some(programs) = Programs::start() else { return };
    // That above is full as well, of what can be taken.
    let path = disk.cold("file", 80 * MIB_PAGES);
    let script = format!(
        "while True:\n  with open(\"{}\", \"rb\") as file:\n    while file.read(1 << 16): pass",
        path.display()
    );
    let mut reader = Member::new(&beside, &format!("{PYTHON} -c '{script}'"));
    reader.go();
    wait_for("it is full", || cached_bytes(&path) >= 40 << 20);
    let spared = Member::sleeper(&beside);
    let line = Pages(64 * MIB_PAGES);
    let settings = FloorSettings { line, locked: line, ..floor(&cgroup, vec![spared.id()]) };
    programs.set.set_floor(&settings).unwrap();
    for round in 1..=15 {
        let mut hog = Member::hog(&below);
        hog.go();
        hog.killed();
        assert_eq!(below.oom_kills(), round);
    }
    let counts = programs.set.floor_counts().unwrap();
    assert!(counts.taken == 0 && counts.checks > 0, "{counts:?}");
}

#[test]
fn one_victim_at_a_time_in_the_tables_order() {
    let Some(disk) = Disk::of() else { return };
    let Some(cgroup) = Cgroup::limited("order", 96) else { return };
    let Some(mut programs) = Programs::start() else { return };
    // There is something to reclaim, and not fast: the kernel's own OOM killer has no reason to come.
    let mut reader = Member::reader(&cgroup, &disk.cold("file", 60 * MIB_PAGES));
    reader.go();
    wait_for("it is read", || reader.has_ended());
    let (mut first, mut second) = (Member::sleeper(&cgroup), Member::sleeper(&cgroup));
    let mut hog = Member::slow_hog(&cgroup);
    let mut table = vec![first.id(), second.id(), hog.id()];
    if programs.set.offers().finds_tasks {
        // Somebody who had the first one's number before.
        table.insert(0, VictimId { pid: Pid(first.0.id()), start_ns: 1 });
    }
    let mut settings = FloorSettings { hold: Nanos(20_000_000), ..floor(&cgroup, table) };
    programs.set.set_floor(&settings).unwrap();
    first.go();
    second.go();
    hog.go();
    let mut order = Vec::new();
    for _ in 0..3 {
        let (victim, _) = next_victim(&mut programs, &cgroup, &mut [&mut first, &mut second, &mut hog]);
        order.push(victim.pid.0);
        // Who takes those that the programs ask for takes them out of the table, too.
        settings.victims.retain(|one| one.pid != victim.pid);
        if !programs.set.offers().signals_others {
            programs.set.set_floor(&settings).unwrap();
        }
    }
    assert_eq!(order, [first.0.id(), second.0.id(), hog.0.id()]);
    for mut one in [first, second, hog] {
        one.killed();
    }
    assert_eq!(cgroup.oom_kills(), 0);
}

#[test]
fn nobody_is_taken_above_the_line_on_hold_late_or_elsewhere() {
    let Some(cgroup) = Cgroup::limited("spared", 64) else { return };
    let Some(programs) = Programs::start() else { return };
    let changes: [fn(&mut FloorSettings); 6] = [
        |settings| settings.line = Pages(0),
        |settings| settings.locked = Pages(settings.line.0 * 2),
        // Reclaim finds nothing, but the soft tier is to go first.
        |settings| (settings.locked, settings.reserve) = (settings.line, Pages(1)),
        |settings| settings.hold_until = Nanos(u64::MAX),
        |settings| settings.valid_until = Nanos(1),
        |settings| settings.cgroup = Some(1),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        let mut hog = Member::hog(&cgroup);
        let mut settings = floor(&cgroup, vec![hog.id()]);
        change(&mut settings);
        programs.set.set_floor(&settings).unwrap();
        let before = cgroup.oom_kills();
        hog.go();
        hog.killed();
        assert_eq!((cgroup.oom_kills(), place), (before + 1, place));
        let counts = programs.set.floor_counts().unwrap();
        assert_eq!((counts.taken, place), (0, place), "{counts:?}");
        assert_eq!((counts.stale > 0, place), (place >= 4, place), "{counts:?}");
    }
}

#[test]
fn near_the_floor_a_table_is_asked_for_where_there_is_none() {
    let Some(disk) = Disk::of() else { return };
    let Some(cgroup) = Cgroup::limited("near", 128) else { return };
    let Some(mut programs) = Programs::start() else { return };
    let mut reader = Member::reader(&cgroup, &disk.cold("file", 100 * MIB_PAGES));
    reader.go();
    wait_for("it is read", || reader.has_ended());
    let mut hog = Member::slow_hog(&cgroup);
    let stale = FloorSettings { valid_until: Nanos(1), ..floor(&cgroup, vec![hog.id()]) };
    programs.set.set_floor(&stale).unwrap();
    hog.go();
    let crossing = programs.event("a table is asked for", cgroup.inode(), |event| match event.kind {
        Kind::Near(crossing) => Some(crossing),
        Kind::NoProgress { .. } | Kind::Ask(..) | Kind::Taken(..) | Kind::Nobody(_) => None,
    });
    assert!(crossing.clean >= crossing.line && crossing.clean < Pages(2 * crossing.line.0), "{crossing:?}");
    assert_eq!(programs.set.floor_counts().unwrap().taken, 0);
}

/// Of the machine itself, by kswapd and direct reclaim: only where the machine may be filled.
#[test]
fn the_machines_own_floor_ends_the_first_of_the_table_before_memory_does() {
    let Some(_) = guest::disk() else { return };
    let Some(disk) = Disk::of() else { return };
    let Some(mut programs) = Programs::start() else { return };
    let path = disk.cold("file", 160 * MIB_PAGES);
    read(&path);
    let oom_kills = || exact::number("/proc/vmstat", "oom_kill");
    let before = oom_kills();
    let mut hog = Member::free("tail /dev/zero");
    let settings = FloorSettings {
        line: Pages(100 * MIB_PAGES),
        free_max: Pages(128 * MIB_PAGES),
        valid_until: Nanos(u64::MAX),
        hold: Nanos(10_000_000_000),
        victims: vec![hog.id()],
        ..FloorSettings::default()
    };
    programs.set.set_floor(&settings).unwrap();
    hog.go();
    let crossing = until("somebody is taken", SOON * 3, || {
        loop {
            match programs.set.next_event().unwrap()?.kind {
                Kind::Taken(crossing, _) => return Some(crossing),
                Kind::Ask(crossing, _) => {
                    hog.0.kill().unwrap();
                    return Some(crossing);
                }
                Kind::NoProgress { .. } | Kind::Nobody(_) | Kind::Near(_) => {}
            }
        }
    });
    hog.killed();
    println!("{crossing:?} {:?}", programs.set.floor_counts().unwrap());
    assert_eq!(oom_kills(), before);
    assert!(crossing.clean < crossing.line && crossing.clean > Pages(20 * MIB_PAGES), "{crossing:?}");
    assert!(crossing.free <= Pages(128 * MIB_PAGES), "{crossing:?}");
}
