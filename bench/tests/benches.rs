//! Runs every bench in its quick form, against a guard that polls: shows that workloads, comparators and bookkeeping
//! work, and that a guard which does not guard is found out.
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "a file in tests/ is a test module as a whole, its helpers included"
)]

use plimsoll_bench::{
    BenchError, BenchReport, Guarded, Options, Triggers,
    guarded::{EffortReading, IncidentReading, Line, Listing, Memory, SelectionReading, VictimReading},
    run, run_with,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Benches use the same test users and must not meet.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Debug, Default)]
struct Shared {
    lines: HashMap<u32, u64>,
    incidents: Vec<IncidentReading>,
}

/// Whom a [`PollingGuard`] kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kills {
    Largest,
    /// One more, of which it says nothing.
    SmallestToo,
}

/// Sums the exact anonymous memory of each limited user every millisecond and kills the largest.
#[derive(Debug)]
struct PollingGuard {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes of the user, by real uid, with anonymous plus swapped bytes.
fn processes(uid: u32) -> Vec<(u32, u64)> {
    let field = |text: &str, name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            if field(&status, "Uid:") != Some(u64::from(uid)) {
                return None;
            }
            let rollup = fs::read_to_string(entry.path().join("smaps_rollup")).ok()?;
            Some((pid, (field(&rollup, "Anonymous:")? + field(&rollup, "Swap:")?) * 1024))
        })
        .collect()
}

impl PollingGuard {
    fn start(kills: Kills) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    let lines = lock(&shared).lines.clone();
                    for (uid, line) in lines {
                        guard_once(&shared, uid, line, kills);
                    }
                }
            }
        });
        Self { shared, stop, thread: Some(thread) }
    }
}

fn kill(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|fd| pidfd_send_signal(fd, Signal::KILL).is_ok())
}

fn guard_once(shared: &Mutex<Shared>, uid: u32, line: u64, kills: Kills) {
    let found = processes(uid);
    let usage: u64 = found.iter().map(|(_, bytes)| bytes).sum();
    let Some((pid, _)) = found.iter().max_by_key(|(_, bytes)| *bytes).filter(|_| usage > line) else {
        return;
    };
    let smallest = found.iter().min_by_key(|(_, bytes)| *bytes).filter(|_| kills == Kills::SmallestToo);
    if let Some((smallest, _)) = smallest {
        kill(*smallest);
    }
    if kill(*pid) {
        let signalled = Instant::now();
        lock(shared).incidents.push(IncidentReading {
            trigger: "daemon".to_owned(),
            action: "kill".to_owned(),
            victims: vec![VictimReading { pid: *pid }],
            overshoot_bytes: usage - line,
            cross_to_signal_ns: Some(0),
            signal_to_freed_ns: None,
        });
        // One victim at a time: wait until its memory is gone.
        while processes(uid).iter().any(|(other, bytes)| other == pid && *bytes > 0) {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(incident) =
            lock(shared).incidents.iter_mut().rfind(|one| one.victims.iter().any(|victim| victim.pid == *pid))
        {
            incident.signal_to_freed_ns = u64::try_from(signalled.elapsed().as_nanos()).ok();
        }
    }
}

impl Guarded for PollingGuard {
    fn set_line(&mut self, line: Line) -> Result<(), BenchError> {
        lock(&self.shared).lines.insert(line.uid, line.hard_bytes);
        Ok(())
    }

    fn clear_line(&mut self, uid: u32) -> Result<(), BenchError> {
        lock(&self.shared).lines.remove(&uid);
        Ok(())
    }

    fn usage_bytes(&mut self, uid: u32) -> Result<Option<u64>, BenchError> {
        Ok(Some(processes(uid).iter().map(|(_, bytes)| bytes).sum()))
    }

    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError> {
        Ok(lock(&self.shared).incidents.clone())
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

impl Drop for PollingGuard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Never kills anything and does not know what it holds.
#[derive(Debug)]
struct AsleepGuard;

impl Guarded for AsleepGuard {
    fn set_line(&mut self, _line: Line) -> Result<(), BenchError> {
        Ok(())
    }

    fn clear_line(&mut self, _uid: u32) -> Result<(), BenchError> {
        Ok(())
    }

    fn usage_bytes(&mut self, _uid: u32) -> Result<Option<u64>, BenchError> {
        Ok(Some(0))
    }

    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError> {
        Ok(Vec::new())
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

/// Whom a [`SelectingGuard`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Largest,
    /// The first of the list.
    First,
}

/// Of the machine: names somebody when memory is made short, by the page tables of all processes.
#[derive(Debug)]
struct SelectingGuard {
    names: Names,
    listing: Listing,
    ready_since: Option<Instant>,
    last: Option<EffortReading>,
    incidents: Vec<IncidentReading>,
}

impl SelectingGuard {
    fn start(names: Names, triggers: Triggers) -> Result<Box<dyn Guarded>, BenchError> {
        match triggers {
            Triggers::MachineDryRun(listing) => {
                Ok(Box::new(Self { names, listing, ready_since: None, last: None, incidents: Vec::new() }))
            }
            Triggers::All | Triggers::DaemonOnly | Triggers::WorkingSet => {
                Err(BenchError::UnknownBench { name: "of lines".to_owned() })
            }
        }
    }

    fn select(&mut self) {
        let began = Instant::now();
        let all = machine_processes();
        let named = match self.names {
            Names::Largest => all.iter().max_by_key(|(_, bytes)| *bytes),
            Names::First => all.iter().find(|(_, bytes)| *bytes < 64 << 20),
        };
        let nanoseconds = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap();
        let took = nanoseconds(began);
        self.last = Some(EffortReading {
            processes: all.len() as u64,
            looks: 1,
            age_ns: self.ready_since.map_or(took / 2, nanoseconds),
        });
        self.incidents.push(IncidentReading {
            trigger: "daemon".to_owned(),
            action: "notify".to_owned(),
            victims: named.map(|(pid, _)| VictimReading { pid: *pid }).into_iter().collect(),
            overshoot_bytes: 0,
            cross_to_signal_ns: Some(took),
            signal_to_freed_ns: None,
        });
    }
}

/// All processes with their anonymous bytes.
fn machine_processes() -> Vec<(u32, u64)> {
    let sized = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let rollup = fs::read_to_string(entry.path().join("smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
        Some((pid, line.split_whitespace().next()?.parse::<u64>().ok()? * 1024))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(sized).collect()
}

impl Guarded for SelectingGuard {
    fn set_line(&mut self, _line: Line) -> Result<(), BenchError> {
        Ok(())
    }

    fn clear_line(&mut self, _uid: u32) -> Result<(), BenchError> {
        Ok(())
    }

    fn usage_bytes(&mut self, _uid: u32) -> Result<Option<u64>, BenchError> {
        Ok(None)
    }

    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError> {
        Ok(self.incidents.clone())
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        match memory {
            Memory::Plenty => self.ready_since = None,
            Memory::Near => self.ready_since = Some(Instant::now()),
            Memory::Short => self.select(),
        }
        Ok(())
    }

    fn selection(&mut self) -> Result<SelectionReading, BenchError> {
        let from = if self.listing == Listing::Programs { "programs" } else { "proc" };
        let ready_ns = self.ready_since.and_then(|since| u64::try_from(since.elapsed().as_nanos()).ok());
        Ok(SelectionReading { from: Some(from.to_owned()), ready_ns, last: self.last })
    }
}

fn selected(names: Names) -> BenchReport {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run_with("select", &quick(Some("40")), &|triggers| SelectingGuard::start(names, triggers)).unwrap()
}

fn quick(only: Option<&str>) -> Options {
    assert!(
        nix::unistd::geteuid().is_root(),
        "run as root: these tests start processes of the uids 60010 to 60040"
    );
    Options {
        quick: true,
        plimsoll: PathBuf::from("/nonexistent/plimsoll"),
        workload: PathBuf::from(env!("CARGO_BIN_EXE_plimsoll-bench-workload")),
        libraries: None,
        only: only.map(str::to_owned),
        ..Options::default()
    }
}

fn polled(name: &str, only: Option<&str>) -> BenchReport {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |_: Triggers| Ok(Box::new(PollingGuard::start(Kills::Largest)) as Box<dyn Guarded>);
    run_with(name, &quick(only), &start).unwrap()
}

fn rows<'a>(report: &'a BenchReport, case: &str) -> Vec<&'a str> {
    report.rows.iter().filter(|row| row.case == case).map(|row| row.variant.as_str()).collect()
}

#[test]
fn faults_measures_all_comparators_and_leaves_no_trace_instance() {
    let report = polled("faults", Some("processes-4"));
    let variants = rows(&report, "processes-4");
    for variant in ["none", "plimsoll", "plimsoll - none", "timer", "tracepipe", "trivial", "trivial kept up"]
    {
        assert!(variants.contains(&variant), "{variant} is missing in {report}");
    }
    let kept_up = report.rows.iter().find(|row| row.variant == "trivial kept up").unwrap().p50;
    let own = report.rows.iter().find(|row| row.variant == "trivial").unwrap().p50;
    assert!(kept_up >= own, "{report}");
    // Two tracers, two segments, four processes of two times 4 MiB: each page is an event, and none may be missing.
    let events = 2 * 2 * 4 * 2 * 1024;
    let lines = |note: &String| note.split(' ').nth(4)?.parse::<u64>().ok();
    let note = report.notes.iter().find(|note| note.contains("lines; 0 events were overwritten")).unwrap();
    assert!(lines(note).unwrap() >= events, "{events}: {note}");
    assert_eq!(trace_instances(), 0);
}

/// Instances live in the kernel, whichever mount they were made in: counted in a private mount.
fn trace_instances() -> usize {
    let script = "mount --make-rprivate / && mount -t tracefs tracefs /sys/kernel/tracing && \
                  ls /sys/kernel/tracing/instances | grep -c plimsoll-bench- || true";
    let output = std::process::Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn one_process_is_measured_under_three_lines_against_the_same_base() {
    let report = polled("faults", Some("one-process"));
    for case in ["one-process other-user", "one-process far", "one-process near"] {
        assert!(rows(&report, case).starts_with(&["none", "plimsoll", "plimsoll - none"]), "{report}");
    }
    let base: Vec<f64> = report.rows.iter().filter(|row| row.variant == "none").map(|row| row.p50).collect();
    assert!(base.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()) && base[0] > 50.0, "{report}");
}

#[test]
fn latency_kills_in_each_way_and_a_timer_is_slower_than_a_guard_that_polls_every_millisecond() {
    let report = polled("latency", Some("4MiB"));
    assert_eq!(
        rows(&report, "4MiB")[..4],
        ["in-kernel", "in-kernel, another", "daemon", "timer"],
        "{report}"
    );
    let p50 = |variant: &str| {
        report
            .rows
            .iter()
            .find(|row| row.case == "4MiB" && row.variant == variant)
            .map(|row| row.p50)
            .unwrap()
    };
    assert!(p50("timer") > p50("daemon"), "{report}");
    // The polling guard has no trigger in the kernel, and the report must not pretend that it had.
    for note in [
        "4MiB: 0 of 12 kills meant to be in-kernel are",
        "4MiB: 0 of 8 kills meant to be in-kernel, another are",
        "4MiB: 8 of 8 kills meant to be daemon are",
    ] {
        assert!(report.notes.iter().any(|found| found.starts_with(note)), "{note}: {report}");
    }
    let ratio = |of: &str, to: &str| report.ratios.iter().any(|ratio| ratio.of == of && ratio.to == to);
    assert!(ratio("timer", "in-kernel, another") && ratio("daemon", "in-kernel, another"), "{report}");
}

#[test]
fn latency_asks_for_a_guard_whose_kernel_side_may_not_act_for_the_ways_of_the_daemon() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = Mutex::new(Vec::new());
    let start = |triggers: Triggers| {
        asked.lock().unwrap().push(triggers);
        Ok(Box::new(AsleepGuard) as Box<dyn Guarded>)
    };
    // No such case: guards are started, nobody is killed.
    run_with("latency", &quick(Some("no such case")), &start).unwrap();
    assert_eq!(*asked.lock().unwrap(), [Triggers::All, Triggers::DaemonOnly]);
}

#[test]
fn overshoot_is_known_from_the_record_and_from_the_victim() {
    let report = polled("overshoot", Some("4KiB"));
    let [record, own] = &report.rows[..] else { panic!("{report}") };
    assert_eq!((record.n, own.n), (5, 5), "{report}");
    // The victim touches on while the signal is on its way; pages of its stack and heap are not in its own count.
    assert!(record.max > 0.0 && own.max + 65_536.0 >= record.max, "{report}");
}

#[test]
fn overshoot_counts_huge_pages_and_all_threads() {
    let huge = polled("overshoot", Some("huge"));
    let [record, own] = &huge.rows[..] else { panic!("{huge}") };
    // The page that crosses may be a small one, of the victim's stack; the victim itself counts whole huge pages.
    assert!(
        record.max > 0.0 && own.max >= f64::from(2 << 20) && own.max % f64::from(2 << 20) == 0.0,
        "{huge}"
    );
    let threads = polled("overshoot", Some("8-threads"));
    assert!(threads.rows.iter().all(|row| row.n == 2 && row.max > 0.0), "{threads}");
}

#[test]
fn overshoot_shows_the_sleeper_killed_and_the_eight_alive() {
    let report = polled("overshoot", Some("sleeper"));
    let alone = "sleeper: the largest was killed, once, and nobody else in 2 of 2 rounds; 2 kills are recorded, 0 of them \
                 in-kernel";
    assert_eq!(report.notes, [alone], "{report}");
    let row = |variant: &str| report.rows.iter().find(|row| row.variant == variant).unwrap();
    for variant in ["plimsoll's record", "signal to memory back", "crossing to sleeper's end"] {
        assert_eq!(row(variant).n, 2, "{report}");
        assert!(row(variant).p50 > 0.0, "{report}");
    }
    // They cross together: one alone has room for a quarter of what it takes.
    assert!(row("the eight, allocating at the crossing").p50 >= 4.0, "{report}");
    let own = row("the eight's own count, at the signal");
    assert!(own.max > 0.0 && own.max < f64::from(56 << 20), "{report}");
}

#[test]
fn overshoot_finds_a_guard_out_that_kills_more_than_the_sleeper() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |_: Triggers| Ok(Box::new(PollingGuard::start(Kills::SmallestToo)) as Box<dyn Guarded>);
    let report = run_with("overshoot", &quick(Some("sleeper")), &start).unwrap();
    assert!(report.notes[0].contains("nobody else in 0 of 2 rounds"), "{report}");
    assert_eq!(report.notes[1], "sleeper: 2 of the processes that allocate died", "{report}");
}

#[test]
fn accuracy_finds_an_exact_guard_exact_and_one_that_knows_nothing_wrong() {
    let exact = polled("accuracy", None);
    let off = |report: &BenchReport| {
        report.rows.iter().find(|row| row.case == "stopped" && row.variant == "plimsoll").unwrap().max
    };
    assert!(off(&exact) < 0.5, "{exact}");
    let done = exact.notes.first().unwrap();
    let counts: Vec<u64> = done.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(counts.len() == 4 && counts.iter().all(|count| *count > 0) && counts[0] >= 30_000, "{done}");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |_: Triggers| Ok(Box::new(AsleepGuard) as Box<dyn Guarded>);
    let wrong = run_with("accuracy", &quick(None), &start).unwrap();
    assert!(off(&wrong) > 100.0, "{wrong}");
}

#[test]
fn reap_times_plain_and_expedited_kills_in_turns() {
    let report = polled("reap", Some("unthrottled"));
    for case in ["unthrottled", "unthrottled, loaded"] {
        assert_eq!(rows(&report, case), ["plain", "expedited"], "{report}");
        assert!(report.ratios.iter().any(|ratio| ratio.case == case && ratio.of == "expedited"), "{report}");
    }
    assert_eq!(report.rows.iter().filter(|row| row.case == "submit").map(|row| row.n).sum::<usize>(), 3);
    assert!(report.notes.iter().any(|note| note.contains("lists of single CPUs afterwards")), "{report}");
}

#[test]
fn reap_measures_a_throttled_victim_beside_one_that_is_not() {
    let report = polled("reap", Some("SCHED_IDLE"));
    assert_eq!(rows(&report, "SCHED_IDLE"), ["plain", "expedited", "expedited, unthrottled"], "{report}");
}

#[test]
fn reap_measures_how_long_others_wait() {
    let report = polled("reap", Some("sleepers beside 2.5"));
    let case = "sleepers beside 2.5 GiB";
    assert_eq!(rows(&report, case), ["plain", "expedited", "plain", "expedited"], "{report}");
    assert!(report.rows.iter().any(|row| row.unit == "ms" && row.max > 0.0), "{report}");
}

#[test]
fn reap_frees_eight_at_once_in_three_ways() {
    let report = polled("reap", Some("eight"));
    assert_eq!(rows(&report, "eight"), ["plain", "one thread", "pool"], "{report}");
    // Eight times two, of victims that run and of those that do not.
    assert_eq!(report.rows.iter().filter(|row| row.case == "submit").map(|row| row.n).sum::<usize>(), 32);
}

#[test]
fn select_measures_each_way_and_knows_how_each_choice_was_made() {
    let report = selected(Names::Largest);
    let variants = rows(&report, "40 processes");
    for variant in ["cold", "warm", "cold, listed from /proc", "warm, age of the list"] {
        assert!(variants.contains(&variant), "{variant} is missing in {report}");
    }
    let listed = report.rows.iter().find(|row| row.variant == "cold, listed").unwrap();
    // So many were there when the others were started; a few of the machine's own may have ended since.
    assert!(listed.p50 >= 30.0, "{report}");
    for way in ["cold", "warm", "cold, listed from /proc"] {
        let right = format!("40 processes: {way}: 1 of 1 choices named the bench's victim, 0 ");
        // Somebody else's process of this machine may be larger.
        let larger = format!("40 processes: {way}: 0 of 1 choices named the bench's victim, 1 ");
        let note = report.notes.iter().find(|note| note.starts_with(&right) || note.starts_with(&larger));
        assert!(
            note.is_some_and(|note| note.ends_with("; 1 were made as they were meant to be")),
            "{report}"
        );
    }
}

#[test]
fn select_finds_a_guard_out_that_names_the_wrong_one() {
    let report = selected(Names::First);
    let wrong = "40 processes: cold: 0 of 1 choices named the bench's victim, 0 a process that was larger";
    assert!(report.notes.iter().any(|note| note.starts_with(wrong)), "{report}");
}

#[test]
fn select_needs_a_guard_of_the_machine() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |_: Triggers| Ok(Box::new(AsleepGuard) as Box<dyn Guarded>);
    let error = run_with("select", &quick(None), &start).unwrap_err().to_string();
    assert!(error.contains("this guard does not guard the machine"), "{error}");
}

#[test]
fn a_guard_that_does_not_kill_is_an_error_and_not_a_figure() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |_: Triggers| Ok(Box::new(AsleepGuard) as Box<dyn Guarded>);
    let error = run_with("overshoot", &quick(Some("4KiB")), &start).unwrap_err();
    assert!(matches!(error, BenchError::Deadline { .. }), "{error}");
}

#[test]
fn what_cannot_be_run_is_said_in_one_line() {
    let error = run("fault", &quick(None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown bench 'fault': try one of faults, latency, overshoot, accuracy, reap, select, tmalloc, workingset"
    );
    let error = run("accuracy", &quick(None)).unwrap_err().to_string();
    assert!(error.starts_with("guard under test: 'daemon': start /nonexistent/plimsoll: "), "{error}");
}

#[test]
fn a_workload_becomes_no_user_but_a_test_user() {
    for uid in ["0", "1000", "60009", "60041", "x"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll-bench-workload"))
            .args(["bench-workload", "hold", uid, "4096"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{uid}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("error "), "{uid}: {output:?}");
    }
}
