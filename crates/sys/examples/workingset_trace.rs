//! Records what the working-set programs tell, as a text that `crates/policy/tests/protection/traces` replays.
//!
//! `workingset_trace SECONDS INTERVAL_MS CGROUP FOLDER... > TRACE`: CGROUP is the folder of a memory cgroup (version 1 or 2)
//! with a limit, which stands for the machine's memory; files below each FOLDER are written by name, others by number.
#![expect(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for whoever works on this, ended by the first thing that is not as expected"
)]

use plimsoll_policy::{
    units::Nanos,
    workingset::{FileId, Use},
};
use plimsoll_sys::bpf::WorkingSet;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// How often it is looked which files are executed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Of the pages that a trace counts in.
const PAGE_BYTES: u64 = 4096;

/// By number: a file by its path below the first folder.
fn names(first: &Path, folder: &Path, into: &mut BTreeMap<u64, String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        if about.is_dir() {
            names(first, &path, into);
        } else {
            into.insert(about.ino(), path.strip_prefix(first).unwrap().display().to_string());
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

struct Cgroup(PathBuf);

impl Cgroup {
    fn memory_pages(&self) -> u64 {
        let limits = ["memory.limit_in_bytes", "memory.max"].map(|name| number(&self.0.join(name)));
        limits.into_iter().flatten().next().unwrap() / PAGE_BYTES
    }

    /// What is not processes' own.
    fn cache_pages(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("memory.stat")).unwrap();
        let own = text.lines().find_map(|line| {
            ["rss ", "anon "].iter().find_map(|name| line.strip_prefix(name))?.trim().parse::<u64>().ok()
        });
        self.memory_pages().saturating_sub(own.unwrap() / PAGE_BYTES)
    }
}

/// Files in the order in which they came up.
#[derive(Default)]
struct Files {
    places: BTreeMap<FileId, usize>,
    sizes: Vec<(FileId, u64)>,
}

impl Files {
    fn place(&mut self, file: FileId, bytes: u64) -> usize {
        let place = *self.places.entry(file).or_insert_with(|| {
            self.sizes.push((file, 0));
            self.sizes.len() - 1
        });
        self.sizes[place].1 = self.sizes[place].1.max(bytes);
        place
    }

    fn write(&self, names: &BTreeMap<u64, String>) -> String {
        let mut text = String::new();
        for (place, (id, bytes)) in self.sizes.iter().enumerate() {
            let (major, minor) = id.device_numbers();
            let name = names.get(&id.inode).cloned().unwrap_or_else(|| format!("inode-{}", id.inode));
            writeln!(text, "file {place} {major}:{minor} {} {} {bytes} {name}", id.inode, id.generation)
                .unwrap();
        }
        text
    }
}

/// What is said of one chunk, but which it is.
fn counts(one: &Use) -> String {
    let barred = one.barred.map(|barred| format!(" {}", barred.text())).unwrap_or_default();
    let how = if one.mapped { "mapped" } else { "read" };
    format!("{} {} {} {:08x} {how}{barred}", one.accessed, one.added, one.evicted, one.blocks.0)
}

/// Neighbouring chunks of a file with the same counts are one line.
fn write_uses(text: &mut String, uses: &mut [Use], files: &mut Files) {
    uses.sort_unstable_by_key(|one| one.chunk);
    for run in uses.chunk_by(|one, next| {
        one.chunk.file == next.chunk.file
            && one.chunk.chunk + 1 == next.chunk.chunk
            && counts(one) == counts(next)
    }) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let place = files.place(last.chunk.file, last.file_bytes);
        writeln!(text, "{place} {}-{} {}", first.chunk.chunk, last.chunk.chunk, counts(&last)).unwrap();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (seconds, interval_ms): (u64, u64) = (arguments[0].parse().unwrap(), arguments[1].parse().unwrap());
    let cgroup = Cgroup(PathBuf::from(&arguments[2]));
    let mut known = BTreeMap::new();
    arguments[3..].iter().map(Path::new).for_each(|folder| names(folder, folder, &mut known));
    let root = PathBuf::from(format!("/sys/fs/bpf/plimsoll-trace-{}", std::process::id()));
    fs::create_dir(&root).unwrap();
    eprintln!("{:?}", WorkingSet::load(&root).unwrap());
    let mut programs = WorkingSet::open(&root).unwrap();
    // What was opened stays.
    WorkingSet::remove(&root).unwrap();
    fs::remove_dir(&root).unwrap();
    programs.attach().unwrap();
    programs.attach_reads().unwrap();
    let (began, mut files, mut uses) = (Instant::now(), Files::default(), Vec::new());
    let (mut text, mut drains, mut longest) = (String::new(), 0_u32, Duration::ZERO);
    let mut looks = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(interval_ms));
        let start = Instant::now();
        programs.drain(&mut uses).unwrap();
        longest = longest.max(start.elapsed());
        let at = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap());
        writeln!(text, "at {}\ncache {}", at.0 / 1_000_000, cgroup.cache_pages()).unwrap();
        if began.elapsed() >= looks {
            looks += LOOK_EVERY;
            let running = programs.executables().unwrap().files;
            let running: Vec<String> = running.iter().map(|file| files.place(*file, 0).to_string()).collect();
            if !running.is_empty() {
                writeln!(text, "run {}", running.join(" ")).unwrap();
            }
        }
        write_uses(&mut text, &mut uses, &mut files);
        uses.clear();
        drains += 1;
    }
    eprintln!("{drains} drains, the longest took {longest:?}; {} undecodable", programs.undecodable());
    println!("plimsoll page-cache trace 2\nmemory {}\n{}{text}", cgroup.memory_pages(), files.write(&known));
}
