//! The working set of a whole machine, under kswapd and direct reclaim, by either LRU: in the guests of the lab only.
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this whole file is one test module, its helpers included"
)]

mod support;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use support::{
    ALICE, CAROL, SOON, World,
    disk::{Disk, cached_bytes, page_bytes},
    guest::{self, Swap},
    program::Program,
    until,
};

const CONFIG: &str = "[workingset]\nworkingset_protection = 1\n";

/// Reads a file whenever it is told to.
const READER: &str = "signal.alarm(600)\nsay('ready')\nwhile True:\n  path = hear()\n  with open(path, 'rb', buffering=0) as file:\n    while file.read(1 << 20): pass\n  say('read')\n";

/// Takes as many MiB as it is told, whether there are any or not. The kernel would take it before any other, as we would.
const HOG: &str = "signal.alarm(600)\n\
    open('/proc/self/oom_score_adj', 'w').write('500')\n\
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n\
    memory, piece = mmap.mmap(-1, 8 << 30, flags=flags), b'x' * (1 << 20)\n\
    say('ready')\n\
    for many in range(int(hear())): memory.write(piece)\n\
    say('has')\n\
    hear()\n";

/// The file that is used again and again.
const USED_MIB: u64 = 64;

/// Room for the guard to see a file used, and to lock it.
const A_WHILE: Duration = Duration::from_secs(20);

/// A number of `/proc/meminfo`, in MiB.
fn meminfo_mib(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

fn kernel_kills() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
}

/// Which LRU there is; put back when dropped.
struct Lru(String);

impl Lru {
    const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";

    fn set(value: &str) -> Self {
        let before = fs::read_to_string(Self::ENABLED).unwrap();
        fs::write(Self::ENABLED, value).unwrap();
        Self(before)
    }
}

impl Drop for Lru {
    fn drop(&mut self) {
        drop(fs::write(Self::ENABLED, &self.0));
    }
}

/// A machine whose working set is protected, with a file that somebody uses, all of it locked.
struct Stage {
    world: World,
    reader: Program,
    used: PathBuf,
    _disk: Disk,
}

impl Stage {
    fn set_up(test: &str) -> Option<Self> {
        let disk = Disk::of(test)?;
        let world = World::start(test, CONFIG, &[])?;
        until("the working set is protected", SOON, || {
            let state = world.json(&["protect"])["state"].as_str().unwrap().to_owned();
            assert!(!state.starts_with("off: "), "{state}");
            (state == "on").then_some(())
        });
        let pages = |mebibytes: u64| (mebibytes << 20) / page_bytes() as u64;
        let (used, passing) = (disk.cold("used", pages(USED_MIB)), disk.cold("passing", pages(200)));
        let mut reader = world.python(ALICE, READER);
        reader.stage("ready");
        let mut stage = Self { world, reader, used, _disk: disk };
        until("a file that is read again and again is locked", A_WHILE, || {
            stage.read();
            (stage.locked_bytes() == USED_MIB << 20).then_some(())
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

    fn locked_bytes(&self) -> u64 {
        let inode = fs::metadata(&self.used).unwrap().ino();
        let view = self.world.json(&["protect"]);
        let file = view["files"].as_array().unwrap().iter().find(|file| file["inode"] == inode);
        file.map_or(0, |file| file["locked_bytes"].as_u64().unwrap())
    }

    fn hog(&self) -> Program {
        let mut hog = self.world.python(CAROL, HOG);
        hog.stage("ready");
        hog
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
    fn ended(&self) -> Vec<serde_json::Value> {
        self.world.history().into_iter().filter(|one| one["guard"] == "workingset").collect()
    }
}

/// A hog that takes all there is ends before the kernel's own OOM killer comes, and what is in use stays.
fn the_floor_holds(test: &str, lru: &str) {
    if guest::disk(test).is_none() {
        return;
    }
    if !Path::new(Lru::ENABLED).exists() {
        println!("\nSKIPPED: {test}: this kernel has no multi-generational LRU");
        return;
    }
    let _lru = Lru::set(lru);
    let Some(mut stage) = Stage::set_up(test) else { return };
    let (before, daemon, idle) = (kernel_kills(), stage.world.daemon_pid(), stage.read());
    let mut hog = stage.hog();
    hog.tell(&(2 * meminfo_mib("MemTotal")).to_string());
    let slowest = stage.read_until("the hog is ended", || !hog.runs());
    hog.killed();
    assert_eq!(kernel_kills(), before);
    let ended = until("it is in the history", SOON, || Some(stage.ended()).filter(|ended| !ended.is_empty()));
    println!("{}", stage.world.ok(&["why", &ended[0]["id"].to_string()]));
    println!("read in {idle:?}, in {slowest:?} at worst");
    let victims: Vec<_> = ended.iter().map(|one| one["victims"][0]["pid"].clone()).collect();
    assert_eq!(victims, [hog.pid()], "{ended:?}");
    assert_eq!(cached_bytes(&stage.used), USED_MIB << 20);
    assert_eq!((stage.world.daemon_pid(), stage.locked_bytes()), (daemon, USED_MIB << 20));
}

#[test]
fn a_hog_of_all_memory_ends_at_the_floor_and_the_file_in_use_stays() {
    the_floor_holds("a_hog_of_all_memory_ends_at_the_floor_and_the_file_in_use_stays", "n");
}

#[test]
fn a_hog_of_all_memory_ends_at_the_floor_under_the_multi_generational_lru() {
    the_floor_holds("a_hog_of_all_memory_ends_at_the_floor_under_the_multi_generational_lru", "y");
}

#[test]
fn nobody_is_ended_while_there_is_swap_and_the_file_in_use_stays() {
    const NAME: &str = "nobody_is_ended_while_there_is_swap_and_the_file_in_use_stays";
    if guest::disk(NAME).is_none() {
        return;
    }
    let total_mib = meminfo_mib("MemTotal");
    let _swap = Swap::compressed(u32::try_from(total_mib).unwrap());
    let Some(mut stage) = Stage::set_up(NAME) else { return };
    let before = kernel_kills();
    let mut hog = stage.hog();
    hog.tell(&(meminfo_mib("MemAvailable") + total_mib / 8).to_string());
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
    assert_eq!(cached_bytes(&stage.used), USED_MIB << 20);
}
