//! `bench workingset` without a guard and beside guards that only pretend: a guard is believed in nothing that can be
//! measured.

use super::{WORKLOADS, incident, kill, lock, measure, processes_of, quick, row};
use plimsoll_bench::{BenchError, BenchReport, Guarded, Options, Triggers, guarded::AccountReading};
use plimsoll_policy::incident::{Guard, Incident, Outcome};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tempfile::TempDir;

/// The bench's hogs and streams.
const HOG_UID: u32 = 60_032;
const STREAM_UID: u32 = 60_033;

/// A small part of what the cgroup holds: a guard that polls has to come before the kernel, on a loaded machine too.
const EARLY_BYTES: u64 = 8 << 20;

#[derive(Debug, Default)]
struct Shared {
    settings: Vec<String>,
    victims: Vec<u32>,
}

/// Writes down what it is set to; a thread of it kills, while it is on, one user's process that has too much.
#[derive(Debug)]
struct PretendingGuard {
    shared: Arc<Mutex<Shared>>,
    on: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a [`PretendingGuard`] kills: this user's processes with so many anonymous bytes.
#[derive(Debug, Clone, Copy)]
struct Prey {
    uid: u32,
    bytes: u64,
}

impl PretendingGuard {
    fn start(shared: &Arc<Mutex<Shared>>, prey: Option<Prey>) -> Self {
        let (on, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let thread = prey.map(|prey| {
            let (shared, on, stop) = (Arc::clone(shared), Arc::clone(&on), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    if on.load(Ordering::Relaxed) {
                        kill_once(&shared, prey);
                    }
                }
            })
        });
        Self { shared: Arc::clone(shared), on, stop, thread }
    }
}

/// Only processes in this bench's cgroup: another bench may run beside it.
fn kill_once(shared: &Mutex<Shared>, prey: Prey) {
    let name = format!("plimsoll-bench-{}/cgroup.procs", std::process::id());
    let texts = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .map(|root| fs::read_to_string(Path::new(root).join(&name)).unwrap_or_default());
    let listed: Vec<u32> =
        texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.parse().ok()).collect();
    for (pid, bytes) in processes_of(prey.uid) {
        let known = lock(shared).victims.contains(&pid);
        if listed.contains(&pid) && bytes >= prey.bytes && !known && kill(pid) {
            lock(shared).victims.push(pid);
        }
    }
}

impl Guarded for PretendingGuard {
    heeds_no_line!();

    fn account(&mut self, _uid: u32) -> Result<AccountReading, BenchError> {
        Ok(AccountReading::default())
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        let victims = lock(&self.shared).victims.clone();
        Ok(victims.into_iter().map(|pid| incident(Guard::Workingset, Outcome::Kill, [pid])).collect())
    }

    fn pid(&self) -> Option<u32> {
        Some(std::process::id())
    }

    fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        let words: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.on.store(settings.contains(&("workingset_protection", 1)), Ordering::Relaxed);
        lock(&self.shared).settings.push(words.join(" "));
        Ok(())
    }
}

impl Drop for PretendingGuard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn options(only: &str, data: &Path) -> Options {
    Options { data: Some(data.to_owned()), ..quick(Some(only)) }
}

/// A folder on a disk that the workers' users find their way to; `None`, and a line, where there is no memory cgroup or the
/// temporary folder is in memory.
fn folder(test: &str) -> Option<TempDir> {
    let v1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    let v2 = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if !v1.exists() && !v2.contains("memory") {
        println!("SKIPPED: {test}: no memory controller");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let kind = rustix::fs::statfs(folder.path()).unwrap().f_type;
    if kind == 0x0102_1994 {
        println!("SKIPPED: {test}: the temporary folder is in memory");
        return None;
    }
    Some(folder)
}

fn measured(
    options: &Options,
    shared: &Arc<Mutex<Shared>>,
    prey: Option<Prey>,
) -> Result<BenchReport, BenchError> {
    measure("workingset", options, |triggers| {
        assert_eq!(triggers, Triggers::WorkingSet);
        Ok(PretendingGuard::start(shared, prey))
    })
}

#[test]
fn without_a_guard_the_rest_is_measured_and_nothing_is_left_behind() {
    let Some(folder) = folder("without_a_guard_the_rest_is_measured_and_nothing_is_left_behind") else {
        return;
    };
    let refuse = |_| Err::<PretendingGuard, _>(BenchError::UnknownBench { name: "of lines".to_owned() });
    let report = measure("workingset", &options("demo, disk", folder.path()), refuse).unwrap();
    assert!(
        report.notes.iter().any(|note| note.starts_with("all that is protected is left out: ")),
        "{report}"
    );
    assert!(report.rows.iter().all(|row| !row.variant.starts_with("protected")), "{report}");
    // A machine that pages out by itself (DAMON) takes a part now and then.
    assert_eq!(
        row(&report, "cached, read from the disk").figures.p50.to_bits(),
        0.0_f64.to_bits(),
        "{report}"
    );
    // Each hog throws it out.
    assert!(row(&report, "unprotected, read from the disk").figures.max > 5.0, "{report}");
    assert!(row(&report, "unprotected, killed by the kernel").figures.max >= 1.0, "{report}");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "files are left");
    let name = format!("plimsoll-bench-{}", std::process::id());
    for controller in ["", "memory", "blkio"] {
        assert!(!Path::new("/sys/fs/cgroup").join(controller).join(&name).exists(), "{controller}/{name}");
    }
}

#[test]
fn each_kill_is_counted_for_who_sent_it() {
    let Some(folder) = folder("each_kill_is_counted_for_who_sent_it") else { return };
    let shared = Arc::default();
    let prey = Some(Prey { uid: HOG_UID, bytes: EARLY_BYTES });
    let report = measured(&options("demo, disk", folder.path()), &shared, prey).unwrap();
    assert!(row(&report, "protected, hogs killed by the guard").figures.max >= 1.0, "{report}");
    assert!(row(&report, "unprotected, killed by the kernel").figures.max >= 1.0, "{report}");
    assert!(report.notes.iter().all(|note| !note.contains("that were no hogs")), "{report}");
    // Checked once at the begin; then off, and in its turn each way with its own.
    let settings = lock(&shared).settings.clone();
    let defaults = "workingset_protection=1 anon_min_ratio=15 clean_min_ratio=15 clean_low_ratio=0";
    let soft = "workingset_protection=1 anon_min_ratio=15 clean_min_ratio=15 clean_low_ratio=15";
    let off = "workingset_protection=0";
    assert_eq!(settings[..6], [defaults, off, off, off, defaults, soft], "{settings:?}");
}

#[test]
fn a_guard_that_kills_another_worker_fails_the_bench() {
    let Some(folder) = folder("a_guard_that_kills_another_worker_fails_the_bench") else { return };
    let prey = Some(Prey { uid: STREAM_UID, bytes: 0 });
    let error = measured(&options("demo, disk", folder.path()), &Arc::default(), prey).unwrap_err();
    assert!(error.to_string().contains("stream"), "{error}");
}

#[test]
fn protection_that_protects_nothing_never_reaches_its_figure_and_releases_nothing() {
    let Some(folder) =
        folder("protection_that_protects_nothing_never_reaches_its_figure_and_releases_nothing")
    else {
        return;
    };
    let report = measured(&options("fits", folder.path()), &Arc::default(), None).unwrap();
    let locked = row(&report, "protected, clean_low_ratio 40, locked before").figures.max;
    assert_eq!(locked.to_bits(), 0.0_f64.to_bits(), "{report}");
    let note = "fits once released: protected, clean_low_ratio 40: 2 of 2 tasks lived; \
                the file was locked before 0 of them";
    assert!(report.notes.iter().any(|found| found == note), "{report}");
    if report.rows.iter().any(|row| row.variant == "vmtouch -l") {
        assert_eq!(row(&report, "vmtouch -l").figures.max.to_bits(), 0.0_f64.to_bits(), "{report}");
    }
}

#[test]
fn the_timeline_holds_both_moments() {
    let Some(folder) = folder("the_timeline_holds_both_moments") else { return };
    let report = measured(&options("timeline", folder.path()), &Arc::default(), None).unwrap();
    let [trace] = &report.traces[..] else { panic!("{report}") };
    assert!(trace.points.iter().any(|[at, _]| *at < 0.0), "{trace:?}");
    assert!(trace.points.iter().any(|[at, _]| *at > 0.5), "{trace:?}");
    let moments: Vec<f64> = trace.marks.iter().map(|mark| mark.at_s).collect();
    assert_eq!(moments, [0.0, 0.5]);
    assert!(plimsoll_bench::plot::svg(trace).contains("workingset_protection=1"));
}

#[test]
fn cost_is_paired_with_protection_on_and_off() {
    let Some(folder) = folder("cost_is_paired_with_protection_on_and_off") else { return };
    let report = measured(&options("cost", folder.path()), &Arc::default(), None).unwrap();
    for case in ["cost, cached reads of 4 KiB", "cost, stream"] {
        let ratio = report.ratios.iter().find(|ratio| ratio.case == case);
        assert!(ratio.is_some_and(|ratio| ratio.of == "on" && ratio.to == "off"), "{report}");
    }
    // A system call and a copy are more, a read from a disk is less.
    let nanoseconds = row(&report, "off").figures.p50;
    assert!((100.0..100_000.0).contains(&nanoseconds), "{report}");
}

#[test]
fn a_build_is_timed_and_one_that_fails_is_an_error() {
    let Some(folder) = folder("a_build_is_timed_and_one_that_fails_is_an_error") else { return };
    let mut options = options("quiet", folder.path());
    options.build = Some("true".to_owned());
    let report = measured(&options, &Arc::default(), None).unwrap();
    assert!(report.ratios.iter().any(|ratio| ratio.case == "quiet" && ratio.of == "on"), "{report}");
    assert!(
        report.notes.iter().any(|note| note == "quiet: 0 killed by the kernel, 0 by the guard"),
        "{report}"
    );
    options.build = Some("exit 3".to_owned());
    let error = measured(&options, &Arc::default(), None).unwrap_err();
    assert!(error.to_string().contains("exit 3"), "{error}");
}

#[test]
fn files_in_memory_measure_nothing_and_are_refused() {
    if folder("files_in_memory_measure_nothing_and_are_refused").is_none() {
        return;
    }
    let error =
        measured(&options("demo", Path::new("/dev/shm")), &Arc::default(), None).unwrap_err().to_string();
    assert_eq!(error, "/dev/shm is in memory: choose a folder on a disk with --data");
}

#[test]
fn a_bench_that_is_killed_leaves_neither_files_nor_cgroups() {
    let Some(folder) = folder("a_bench_that_is_killed_leaves_neither_files_nor_cgroups") else { return };
    let data = folder.path().join("plimsoll-bench-data-x");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("timed"), "x").unwrap();
    // A name of a bench that cannot be: process numbers are smaller.
    let name = "plimsoll-bench-4200000001";
    let root = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .map(Path::new)
        .into_iter()
        .find(|root| root.join("cgroup.procs").exists())
        .unwrap();
    let scope = root.join(name);
    fs::create_dir(&scope).unwrap();
    let binary = WORKLOADS;
    let piped = |command: &mut Command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut left = piped(Command::new(binary).args(["bench-workload", "busy", "60032"]));
    let mut broom = piped(Command::new(binary).args(["bench-workload", "broom", name]).arg(&data));
    for child in [&mut left, &mut broom] {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
    fs::write(scope.join("cgroup.procs"), left.id().to_string()).unwrap();
    assert!(scope.exists() && data.exists());
    drop(broom.stdin.take());
    // To wait would close it, and who was left would end by itself.
    let _open = left.stdin.take();
    // Its parent, this test, waits for the one that was left, so that the cgroup is empty.
    assert!(!left.wait().unwrap().success());
    assert!(broom.wait().unwrap().success());
    assert!(!scope.exists() && !data.exists());
}

#[test]
fn what_is_on_a_leash_ends_with_whoever_holds_it() {
    let binary = WORKLOADS;
    let script = "\"$0\" bench-workload leash $$ sleep 60 & echo $!; wait";
    let mut holder =
        Command::new("/bin/sh").args(["-c", script, binary]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let leashed = line.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    let pidfd = pidfd_open(leashed, PidfdFlags::empty()).unwrap();
    let comm = || fs::read_to_string(format!("/proc/{}/comm", leashed.as_raw_nonzero())).unwrap_or_default();
    let begun = wait_for(|| comm() == "sleep\n");
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Whoever takes it over may be slow to wait for it.
    let stat = || fs::read_to_string(format!("/proc/{}/stat", leashed.as_raw_nonzero())).unwrap_or_default();
    let ended = wait_for(|| stat().is_empty() || stat().contains(") Z "));
    // Nothing is to stay, should it not have worked.
    let _ended = pidfd_send_signal(&pidfd, Signal::KILL);
    assert!(begun && ended, "begun {begun}, ended {ended}");
}

/// Whether it comes true within ten seconds.
fn wait_for(mut done: impl FnMut() -> bool) -> bool {
    (0..1000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        done()
    })
}

#[test]
fn a_broom_sweeps_nothing_but_what_is_a_benchs() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("home");
    fs::create_dir(&kept).unwrap();
    for (name, path) in [
        ("plimsoll-bench-1", kept.as_path()),
        ("user.slice", Path::new("/nonexistent/plimsoll-bench-data-x")),
        ("plimsoll-bench-../x", Path::new("/nonexistent/plimsoll-bench-data-x")),
        ("plimsoll-bench-1", Path::new("plimsoll-bench-data-x")),
    ] {
        let status = Command::new(WORKLOADS)
            .args(["bench-workload", "broom", name])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(2), "{name} {path:?}");
    }
    assert!(kept.exists());
}
