//! The working set of a whole machine, under kswapd and direct reclaim, by either LRU: in the guests of the lab only.
#![cfg(test)]

mod support;

use plimsoll_policy::{units::Pages, workingset::Tunables};
use rustix::fs::{Mode, OFlags, inotify, open};
use serde_json::{Value, json};
use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};
use support::{
    ALICE, CAROL, Fixture, SOON,
    cgroup::Cgroup,
    disk::{Disk, KEEPER, OF_ALL, READER, cached_bytes, page_bytes, scanner},
    exact,
    guest::{self, Swap},
    program::Program,
    until, wait_for,
};

const CONFIG: &str = "[workingset]\nworkingset_protection = 1\n";

/// Takes as many MiB as it is told, whether there are any or not. The kernel would take it before any other, as we would.
const HOG: &str = "signal.alarm(600)\n\
    open('/proc/self/oom_score_adj', 'w').write('500')\n\
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n\
    memory, piece = mmap.mmap(-1, 8 << 30, flags=flags), b'x' * (1 << 20)\n\
    say('ready')\n\
    for many in range(int(hear())): memory.write(piece)\n\
    say('has')\n\
    hear()\n";

/// How large the file is that is used again and again: half of what may be locked on the smallest machine.
fn used_mib() -> u64 {
    (meminfo_mib("MemTotal") / 15).min(64)
}

/// Room for the guard to see a file used, and to lock it.
const A_WHILE: Duration = Duration::from_secs(20);

/// A number of `/proc/meminfo`, in KiB.
fn meminfo_kib(name: &str) -> u64 {
    exact::number("/proc/meminfo", name)
}

/// Likewise, in MiB.
fn meminfo_mib(name: &str) -> u64 {
    meminfo_kib(name) >> 10
}

fn kernel_kills() -> u64 {
    exact::number("/proc/vmstat", "oom_kill")
}

/// A setting of the kernel, put back when dropped.
struct Setting(&'static str, String);

impl Setting {
    const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";
    const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
    const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

    fn set(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).unwrap();
        fs::write(path, value).unwrap();
        Self(path, before)
    }

    /// Which LRU there is; `None`, which is said, where there is but one.
    fn lru(value: &str) -> Option<Self> {
        if !Path::new(Self::MGLRU).exists() {
            support::skip("this kernel has no multi-generational LRU");
            return None;
        }
        Some(Self::set(Self::MGLRU, value))
    }

    /// So much memory neither for files nor for programs: huge pages that nobody uses.
    fn huge_pages(mebibytes: u64) -> Self {
        let set = Self::set(Self::HUGE_PAGES, &(mebibytes / 2).to_string());
        let has: u64 = fs::read_to_string(Self::HUGE_PAGES).unwrap().trim().parse().unwrap();
        assert!(has * 2 + 32 > mebibytes, "{has} huge pages");
        set
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        drop(fs::write(self.0, &self.1));
    }
}

fn protected() -> Option<Fixture> {
    let fixture = Fixture::start(CONFIG, &[])?;
    wait_for("the working set is protected", || {
        let state = fixture.json(&["protect"])["state"].as_str().unwrap().to_owned();
        assert!(!state.starts_with("off: "), "{state}");
        state == "on"
    });
    Some(fixture)
}

/// What `protect show` says is locked of a file.
fn locked_bytes(view: &Value, path: &Path) -> u64 {
    let inode = fs::metadata(path).unwrap().ino();
    let file = view["files"].as_array().unwrap().iter().find(|file| file["inode"] == inode);
    file.map_or(0, |file| file["locked_bytes"].as_u64().unwrap())
}

/// A machine whose working set is protected, with a file that somebody uses, all of it locked.
struct Stage {
    fixture: Fixture,
    reader: Program,
    used: PathBuf,
    _disk: Disk,
}

impl Stage {
    fn set_up() -> Option<Self> {
        let disk = Disk::of()?;
        let fixture = protected()?;
        let pages = |mebibytes: u64| (mebibytes << 20) / page_bytes() as u64;
        let (used, passing) = (disk.cold("used", pages(used_mib())), disk.cold("passing", pages(200)));
        let reader = fixture.python(ALICE, READER).ready();
        let mut stage = Self { fixture, reader, used, _disk: disk };
        until("a file that is read again and again is locked", A_WHILE, || {
            stage.read();
            (stage.locked_bytes() == stage.used_bytes()).then_some(())
        });
        stage.reader.tell(passing.to_str().unwrap());
        stage.reader.stage("read");
        Some(stage)
    }

    /// Has the file read, and tells how long it took.
    fn read(&mut self) -> Duration {
        let began = Instant::now();
        self.reader.tell(self.used.to_str().unwrap());
        self.reader.stage("read");
        began.elapsed()
    }

    fn used_bytes(&self) -> u64 {
        fs::metadata(&self.used).unwrap().len()
    }

    fn locked_bytes(&self) -> u64 {
        locked_bytes(&self.fixture.json(&["protect"]), &self.used)
    }

    fn hog(&self) -> Program {
        self.fixture.python(CAROL, HOG).ready()
    }

    /// Has the file read until `done`, which must happen soon, and tells how long the slowest read took.
    fn read_until(&mut self, what: &str, mut done: impl FnMut() -> bool) -> Duration {
        let mut slowest = Duration::ZERO;
        until(what, SOON, || {
            slowest = slowest.max(self.read());
            done().then_some(slowest)
        })
    }

    /// What the guard ended so far.
    fn ended(&self) -> Vec<Value> {
        self.fixture.history().into_iter().filter(|one| one["guard"] == "workingset").collect()
    }
}

/// A hog that takes all there is ends before the kernel's own OOM killer comes, and what is in use stays.
fn the_floor_holds(lru: &str) {
    let Some(_) = guest::disk() else { return };
    let Some(_lru) = Setting::lru(lru) else { return };
    let Some(mut stage) = Stage::set_up() else { return };
    let (before, daemon, idle) = (kernel_kills(), stage.fixture.daemon_pid(), stage.read());
    let mut hog = stage.hog();
    hog.tell(&(2 * meminfo_mib("MemTotal")).to_string());
    let slowest = stage.read_until("the hog is ended", || !hog.runs());
    hog.killed();
    assert_eq!(kernel_kills(), before);
    let ended = until("it is in the history", SOON, || Some(stage.ended()).filter(|ended| !ended.is_empty()));
    println!("{}", stage.fixture.ok(&["why", &ended[0]["id"].to_string()]));
    println!("read in {idle:?}, in {slowest:?} at worst");
    let victims: Vec<_> = ended.iter().map(|one| one["victims"][0]["pid"].clone()).collect();
    assert_eq!(victims, [hog.pid()], "{ended:?}");
    let view = format!(
        "{} {} MiB mlocked; {}",
        cached_bytes(&stage.used),
        meminfo_mib("Mlocked"),
        stage.fixture.json(&["protect"])
    );
    assert_eq!(cached_bytes(&stage.used), stage.used_bytes(), "{view}");
    assert_eq!((stage.fixture.daemon_pid(), stage.locked_bytes()), (daemon, stage.used_bytes()), "{view}");
}

#[test]
fn a_hog_of_all_memory_ends_at_the_floor_and_the_file_in_use_stays() {
    the_floor_holds("n");
}

#[test]
fn a_hog_of_all_memory_ends_at_the_floor_under_the_multi_generational_lru() {
    the_floor_holds("y");
}

#[test]
fn nobody_is_ended_while_there_is_swap_and_the_file_in_use_stays() {
    let Some(_) = guest::disk() else { return };
    let total_mib = meminfo_mib("MemTotal");
    let _swap = Swap::compressed(u32::try_from(total_mib).unwrap());
    let Some(mut stage) = Stage::set_up() else { return };
    let before = kernel_kills();
    let mut hog = stage.hog();
    hog.tell(&(meminfo_mib("MemAvailable") + total_mib / 4).to_string());
    let mut has = false;
    stage.read_until("the hog has its memory", || {
        assert!(hog.runs(), "it ended");
        has |= hog.try_line().is_some_and(|line| line == "has");
        has
    });
    let swapped_mib = total_mib.saturating_sub(meminfo_mib("SwapFree"));
    assert!(swapped_mib >= 32 && meminfo_mib("SwapFree") > total_mib / 4, "{swapped_mib} MiB in swap");
    assert_eq!((stage.ended().len(), kernel_kills()), (0, before), "{:?}", stage.ended());
    assert!(hog.runs());
    assert_eq!(cached_bytes(&stage.used), stage.used_bytes());
}

/// Does something, and tells the least anonymous memory in RAM meanwhile, in MiB.
fn least_anon_mib_while(work: impl FnOnce()) -> u64 {
    thread::scope(|scope| {
        let (working, done) = channel::<()>();
        let watcher = scope.spawn(move || {
            let mut least = u64::MAX;
            while done.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                least = least.min(meminfo_mib("AnonPages"));
            }
            least
        });
        work();
        drop(working);
        watcher.join().unwrap()
    })
}

/// Slices as a system has them, and `memory.swap.max` of each: what the kernel has, and what somebody has set.
const SWAP_MAX: [(&str, &str); 2] = [("user.slice", "max"), ("system.slice", "1073741824")];

/// What protection sets: `memory.swap.max` of the slices, and `min_ttl_ms`.
fn knobs() -> Vec<String> {
    let slices = SWAP_MAX.map(|(name, _)| format!("/sys/fs/cgroup/{name}/memory.swap.max"));
    let paths = slices.into_iter().chain(["/sys/kernel/mm/lru_gen/min_ttl_ms".to_owned()]);
    paths.map(|path| fs::read_to_string(path).unwrap().trim().to_owned()).collect()
}

/// A machine with a program in a slice that does nothing with memory about the floor, one beside it that reads more than
/// there is room for, another slice, and swap into memory. What is first is dropped first.
struct Slices {
    floor_mib: u64,
    idle: Program,
    reader: Program,
    stream: PathBuf,
    fixture: Fixture,
    system: Cgroup,
    _user: Cgroup,
    _disk: Disk,
    _settings: [Setting; 2],
    _swap: Swap,
}

impl Slices {
    fn set_up() -> Option<Self> {
        let (disk, total_mib) = (Disk::of()?, meminfo_mib("MemTotal"));
        let floor_mib = total_mib * 15 / 100;
        // There is room for no more of it while nothing is swapped, which the floor of clean file memory is well below.
        let (stream_mib, stream_room_mib) = (floor_mib * 7 / 3, floor_mib * 25 / 16);
        let stream = disk.cold("stream", (stream_mib << 20) / page_bytes() as u64);
        let [user, system] = SWAP_MAX.map(|(name, swap_max)| {
            let cgroup = Cgroup::named(name).unwrap();
            cgroup.set("memory.swap.max", swap_max);
            cgroup
        });
        let swap = Swap::compressed(u32::try_from(total_mib).unwrap());
        let swappiness = Setting::set(Setting::SWAPPINESS, "180");
        let fixture = protected()?;
        let reader = fixture.python(ALICE, READER).ready();
        user.take(reader.pid());
        let mut idle = fixture.python(ALICE, HOG).ready();
        user.take(idle.pid());
        let room_mib = meminfo_mib("MemAvailable") + meminfo_mib("AnonPages") - floor_mib;
        let balloon = Setting::huge_pages(room_mib.saturating_sub(stream_room_mib));
        idle.tell(&(floor_mib + floor_mib / 32 - meminfo_mib("AnonPages")).to_string());
        idle.stage("has");
        Some(Self {
            floor_mib,
            idle,
            reader,
            stream,
            fixture,
            system,
            _user: user,
            _disk: disk,
            _settings: [swappiness, balloon],
            _swap: swap,
        })
    }

    /// Has more read than there is room for, again and again, until `done`.
    fn read_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        until(what, SOON * 2, || {
            self.reader.tell(self.stream.to_str().unwrap());
            self.reader.stage("read");
            done(self).then_some(())
        });
    }

    fn held_by(&self) -> Option<String> {
        Some(self.fixture.json(&["protect"])["anon"]["held_by"].as_str()?.to_owned())
    }
}

/// Programs' own memory about the floor stays in RAM when others need more than there is, and all settings are put back.
fn the_floor_of_anonymous_memory_holds(lru: &str) {
    let Some(_) = guest::disk() else { return };
    let Some(_lru) = Setting::lru(lru) else { return };
    let (two_percent_mib, kernel_kills_before) = (meminfo_mib("MemTotal") / 50, kernel_kills());
    let Some(mut slices) = Slices::set_up() else { return };
    let floor_mib = slices.floor_mib;
    until("swapping is held back", SOON, || (slices.held_by()? == "memory.swap.max").then_some(()));
    assert_eq!(knobs(), ["0", "0", "0"]);
    // What was used last is the kernel's to keep where no file may be locked.
    for (ratio, kept) in
        [("clean_min_ratio=0", if lru == "y" { "1000" } else { "0" }), ("clean_min_ratio=15", "0")]
    {
        slices.fixture.ok(&["protect", "set", ratio]);
        wait_for("min_ttl_ms is as it should be", || knobs()[2] == kept);
    }
    let mut hog = slices.fixture.python(CAROL, HOG).ready();
    slices.system.take(hog.pid());
    let (mut passes, mut held) = (0, false);
    let least = least_anon_mib_while(|| {
        hog.tell(&(floor_mib * 2 / 3).to_string());
        slices.read_until("it is held back again", |slices| {
            passes += 1;
            held = slices.held_by().is_some();
            // The multi-generational LRU may take pages of files only, whatever swappiness is: then nothing has to be.
            passes >= 4 && (held || lru == "y" && passes >= 8)
        });
    });
    assert!(least + two_percent_mib >= floor_mib, "{least} MiB of {floor_mib} MiB");
    assert!(slices.idle.runs() && hog.runs());
    assert_eq!(kernel_kills(), kernel_kills_before);
    let anon_mib = meminfo_mib("AnonPages");
    slices.fixture.ok(&["protect", "set", "workingset_protection=0"]);
    assert_eq!(knobs(), ["max", "1073741824", "0"]);
    if !held {
        // Both are rounded down.
        assert!(anon_mib >= floor_mib + floor_mib / 8, "{anon_mib} MiB of {floor_mib} MiB");
        println!("the floor is {floor_mib} MiB: {least} MiB at least; only pages of files were taken");
        return;
    }
    let (mut left, mut passes) = (u64::MAX, 0);
    slices.read_until("without protection it goes to swap", |_| {
        passes += 1;
        left = meminfo_mib("AnonPages");
        // That of Linux 6.1 does so only while memory grows.
        left + two_percent_mib < floor_mib || lru == "y" && passes >= 8
    });
    println!(
        "the floor is {floor_mib} MiB: {least} MiB at least with protection, {left} MiB after {passes} passes without"
    );
    assert_eq!(kernel_kills(), kernel_kills_before);
}

#[test]
fn idle_memory_about_the_floor_is_not_swapped_out_and_settings_are_put_back() {
    the_floor_of_anonymous_memory_holds("n");
}

#[test]
fn idle_memory_about_the_floor_is_not_swapped_out_under_the_multi_generational_lru() {
    the_floor_of_anonymous_memory_holds("y");
}

/// A block of memory as it can be taken from a machine, and how many locked pages it has.
struct Block {
    state: PathBuf,
    locked: usize,
}

impl Block {
    const ALL: &str = "/sys/devices/system/memory";
    /// `KPF_MLOCKED` of `/proc/kpageflags`.
    const LOCKED: u64 = 1 << 33;

    /// All there are, those with most locked pages first.
    fn all() -> Vec<Self> {
        let size = fs::read_to_string(format!("{}/block_size_bytes", Self::ALL)).unwrap();
        let pages = usize::from_str_radix(size.trim(), 16).unwrap() / page_bytes();
        let flags = File::open("/proc/kpageflags").unwrap();
        let locked = |block: u64| {
            let mut bytes = vec![0; pages * 8];
            let count = flags.read_at(&mut bytes, block * (pages as u64) * 8).unwrap();
            let words =
                bytes[..count].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
            words.filter(|flags| flags & Self::LOCKED != 0).count()
        };
        let names = fs::read_dir(Self::ALL).unwrap().map(|entry| entry.unwrap().path());
        let numbered = names.filter_map(|path| {
            let number = path.file_name()?.to_str()?.strip_prefix("memory")?.parse().ok()?;
            Some(Self { state: path.join("state"), locked: locked(number) })
        });
        let mut all: Vec<_> = numbered.collect();
        all.sort_by_key(|block| std::cmp::Reverse(block.locked));
        all
    }
}

/// Memory that was taken from the machine; it is put back when this is dropped.
struct Taken(Block);

impl Taken {
    /// The one with most locked pages that can be taken. Where the kernel has something of its own it cannot, or the kernel
    /// tries until a signal comes; some can a moment later.
    fn most_locked() -> Option<Self> {
        let taken = (0..3).flat_map(|_| Block::all()).find(|block| {
            let offline = format!("exec 2>&-; echo offline >{}", block.state.display());
            Command::new("timeout").args(["10", "sh", "-c", &offline]).status().unwrap().success()
        });
        taken.map(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(fs::write(&self.0.state, "online"));
    }
}

/// So much that of 1 GiB a block less has part of the file let go.
const BARELY: &str = "clean_min_ratio=8";

impl Stage {
    /// Waits until what is told, and what is locked, is of the memory that there is now; tells what may be locked, in bytes.
    fn budget_of_all_memory(&self) -> u64 {
        let page = page_bytes() as u64;
        let total = meminfo_kib("MemTotal") << 10;
        let mut tunables = Tunables { workingset_protection: true, ..Tunables::default() };
        tunables.apply(BARELY.parse().unwrap());
        let budget = tunables.budget(Pages(total / page)).hard.0 * page;
        until("the budget is of all memory that there is, and kept to", SOON, || {
            let view = self.fixture.json(&["protect"]);
            let hard = &view["hard"];
            let told = view["memory_bytes"] == total && hard["budget_bytes"] == budget;
            (told && hard["locked_bytes"].as_u64()? <= budget).then_some(())
        });
        budget
    }
}

/// By its name the first of all: the kernel keeps something of its own in each block of a guest in which others ran before.
#[test]
fn a_block_is_taken_from_the_machine_and_what_is_locked_moves_and_budgets_follow() {
    let Some(_) = guest::disk() else { return };
    let Some(mut stage) = Stage::set_up() else { return };
    stage.fixture.ok(&["protect", "set", BARELY]);
    let (daemon, total_kib) = (stage.fixture.daemon_pid(), meminfo_kib("MemTotal"));
    let whole = stage.budget_of_all_memory();
    assert_eq!(stage.locked_bytes(), stage.used_bytes());
    let others_kib = meminfo_kib("Mlocked") - (stage.used_bytes() >> 10);
    let Some(taken) = Taken::most_locked() else {
        assert!(Block::all().len() <= 4, "no block can be taken");
        return support::skip("the kernel has something of its own in each block of so small a machine");
    };
    let less = stage.budget_of_all_memory();
    let locked = stage.locked_bytes();
    println!(
        "{} locked pages were in {}: {} of {} MiB locked of {} and {} MiB",
        taken.0.locked,
        taken.0.state.display(),
        locked >> 20,
        less >> 20,
        meminfo_mib("MemTotal"),
        total_kib >> 10
    );
    assert!(less < whole && locked <= less, "{locked} of {less}, {whole}");
    assert!(locked + (2 << 20) >= less.min(stage.used_bytes()), "{locked} of {less}, {whole}");
    assert!(cached_bytes(&stage.used) >= locked);
    wait_for("the kernel has no more locked", || {
        meminfo_kib("Mlocked") <= others_kib + (locked >> 10) + 1024
    });
    drop(taken);
    assert_eq!((meminfo_kib("MemTotal"), stage.budget_of_all_memory()), (total_kib, whole));
    until("all of the file is locked again", A_WHILE, || {
        stage.read();
        (stage.locked_bytes() == stage.used_bytes()).then_some(())
    });
    assert_eq!((stage.fixture.daemon_pid(), stage.ended().len()), (daemon, 0), "{:?}", stage.ended());
    assert_eq!(stage.fixture.run(&["status"]).0, 0);
}

#[test]
fn a_swap_file_in_use_is_never_opened_and_does_not_wait_to_be_turned_off() {
    let Some(_) = guest::disk() else { return };
    let Some(disk) = Disk::of() else { return };
    let pages = (16 << 20) / page_bytes() as u64;
    let (path, other) = (disk.cold("swap", pages), disk.cold("other", pages));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let swap = Swap::on(path.clone());
    let mut files = [&path, &other].map(|path| File::open(path).unwrap());
    let opens = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&opens, &path, inotify::WatchFlags::OPEN).unwrap();
    let Some(fixture) = protected() else { return };
    let view = until("the other file, which is read as often, is locked", A_WHILE, || {
        for file in &mut files {
            file.rewind().unwrap();
            io::copy(file, &mut io::sink()).unwrap();
        }
        let view = fixture.json(&["protect"]);
        (locked_bytes(&view, &other) == 16 << 20).then_some(view)
    });
    let why = view["barred"].as_array().unwrap().iter().find(|why| why["reason"] == "swap-file");
    assert_eq!((locked_bytes(&view, &path), why.map(|why| &why["files"])), (0, Some(&json!(1))), "{view}");
    let maps = fs::read_to_string(format!("/proc/{}/maps", fixture.daemon_pid())).unwrap();
    assert!(maps.contains("/other") && !maps.contains("/swap"), "{maps}");
    let opened = File::from(opens).read(&mut [0; 256]).map_err(|error| error.kind());
    assert_eq!(opened, Err(io::ErrorKind::WouldBlock));
    let began = Instant::now();
    drop(swap);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_disk_whose_files_were_held_is_nobody_s_once_it_is_unmounted() {
    let Some(device) = guest::disk() else { return };
    let Some(stage) = Stage::set_up() else { return };
    assert_eq!(stage.locked_bytes(), stage.used_bytes());
    let Stage { fixture, reader, used: _, _disk: disk } = stage;
    drop(reader);
    drop(disk);
    let began = Instant::now();
    // As long as its file system is in use, seen or not, nobody can have the device for himself.
    until("the device is free", SOON, || {
        open(&device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()).ok()
    });
    println!("free after {:?}", began.elapsed());
    assert_eq!(fixture.run(&["status"]).0, 0);
}

#[test]
fn a_scanner_of_a_whole_file_system_that_answers_nobody_holds_up_the_opener_alone() {
    // Not on this machine's own: nobody could open anything.
    let Some(_) = guest::disk() else { return };
    let Some(disk) = Disk::of() else { return };
    let used = disk.cold("used", (8 << 20) / page_bytes() as u64);
    let Some(fixture) = protected() else { return };
    let mut keeper = fixture.python(ALICE, KEEPER).ready();
    keeper.tell(used.to_str().unwrap());
    keeper.stage("open");
    let Some(scanner) = scanner(&fixture, &used, OF_ALL) else { return };
    let mut read = || {
        keeper.tell("");
        keeper.stage("read");
    };
    until("the file waits to be opened", A_WHILE, || {
        read();
        (fixture.json(&["protect"])["opening"].as_u64() == Some(1)).then_some(())
    });
    drop(scanner);
    until("it is locked once the scanner is gone", A_WHILE, || {
        read();
        (locked_bytes(&fixture.json(&["protect"]), &used) == 8 << 20).then_some(())
    });
}
