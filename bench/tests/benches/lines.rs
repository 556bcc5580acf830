//! The benches of lines, of the reaper and of selection.

use super::{WORKLOADS, has_ratio, incident, kill, lock, measure, processes, processes_of, quick, row, rows};
use plimsoll_api::status::{Selection, SelectionEffort};
use plimsoll_bench::{
    BenchError, BenchReport, Guarded, Triggers,
    guarded::{AccountReading, Line, Listing, Memory},
    run,
};
use plimsoll_policy::incident::{Guard, Incident, Outcome};
use std::{
    collections::HashMap,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
struct Shared {
    lines: HashMap<u32, u64>,
    incidents: Vec<Incident>,
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

fn guard_once(shared: &Mutex<Shared>, uid: u32, line: u64, kills: Kills) {
    let found = processes_of(uid);
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
        let killed = incident(Guard::Limits, Outcome::Kill, [*pid]);
        lock(shared).incidents.push(Incident { overshoot_bytes: usage - line, ..killed });
        // One victim at a time: wait until its memory is gone.
        while processes_of(uid).iter().any(|(other, bytes)| other == pid && *bytes > 0) {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(incident) = lock(shared)
            .incidents
            .iter_mut()
            .rfind(|one| one.victims.iter().any(|victim| victim.pid.0 == *pid))
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

    fn account(&mut self, uid: u32) -> Result<AccountReading, BenchError> {
        let usage_bytes = processes_of(uid).iter().map(|(_, bytes)| bytes).sum();
        Ok(AccountReading { usage_bytes, ..AccountReading::default() })
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        Ok(lock(&self.shared).incidents.clone())
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
    heeds_no_line!();

    fn account(&mut self, _uid: u32) -> Result<AccountReading, BenchError> {
        Ok(AccountReading::default())
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        Ok(Vec::new())
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
    last: Option<SelectionEffort>,
    incidents: Vec<Incident>,
}

impl SelectingGuard {
    fn start(names: Names, triggers: Triggers) -> Result<Self, BenchError> {
        match triggers {
            Triggers::MachineDryRun(listing) => {
                Ok(Self { names, listing, ready_since: None, last: None, incidents: Vec::new() })
            }
            Triggers::All
            | Triggers::DaemonOnly
            | Triggers::Machine
            | Triggers::WorkingSet
            | Triggers::Blocks { .. } => Err(BenchError::UnknownBench { name: "of lines".to_owned() }),
        }
    }

    fn select(&mut self) {
        let began = Instant::now();
        let all = processes(|_| true);
        let named = match self.names {
            Names::Largest => all.iter().max_by_key(|(_, bytes)| *bytes),
            Names::First => all.iter().find(|(_, bytes)| *bytes < 64 << 20),
        };
        let nanoseconds = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap();
        let took = nanoseconds(began);
        self.last = Some(SelectionEffort {
            processes: all.len() as u64,
            looks: 1,
            age_ns: self.ready_since.map_or(took / 2, nanoseconds),
        });
        let chosen = incident(Guard::Pressure, Outcome::Notify, named.map(|(pid, _)| *pid));
        self.incidents.push(Incident { cross_to_signal_ns: Some(took), ..chosen });
    }
}

impl Guarded for SelectingGuard {
    heeds_no_line!();

    fn account(&mut self, _uid: u32) -> Result<AccountReading, BenchError> {
        Ok(AccountReading::default())
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        Ok(self.incidents.clone())
    }

    fn make_memory(&mut self, memory: Memory) -> Result<(), BenchError> {
        match memory {
            Memory::Plenty => self.ready_since = None,
            Memory::Near => self.ready_since = Some(Instant::now()),
            Memory::Short => self.select(),
        }
        Ok(())
    }

    fn selection(&mut self) -> Result<Selection, BenchError> {
        let from = if self.listing == Listing::Programs { "programs" } else { "proc" };
        let ready_ns = self.ready_since.and_then(|since| u64::try_from(since.elapsed().as_nanos()).ok());
        Ok(Selection { from: Some(from.to_owned()), ready_ns, last: self.last })
    }
}

fn selected(names: Names) -> BenchReport {
    measure("select", &quick(Some("40")), |triggers| SelectingGuard::start(names, triggers)).unwrap()
}

fn polled(name: &str, only: Option<&str>) -> BenchReport {
    measure(name, &quick(only), |_| Ok(PollingGuard::start(Kills::Largest))).unwrap()
}

fn asleep(name: &str, only: Option<&str>) -> Result<BenchReport, BenchError> {
    measure(name, &quick(only), |_| Ok(AsleepGuard))
}

fn variants<'a>(report: &'a BenchReport, case: &str) -> Vec<&'a str> {
    rows(report, case).into_iter().map(|row| row.variant.as_str()).collect()
}

#[test]
fn faults_measures_all_comparators_and_leaves_no_trace_instance() {
    let report = polled("faults", Some("processes-4"));
    let found = variants(&report, "processes-4");
    for variant in ["none", "plimsoll", "plimsoll - none", "timer", "tracepipe", "trivial", "trivial kept up"]
    {
        assert!(found.contains(&variant), "{variant} is missing in {report}");
    }
    assert!(row(&report, "trivial kept up").figures.p50 >= row(&report, "trivial").figures.p50, "{report}");
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
    let output = Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn one_process_is_measured_under_three_lines_against_the_same_base() {
    let report = polled("faults", Some("one-process"));
    for case in ["one-process other-user", "one-process far", "one-process near"] {
        assert!(variants(&report, case).starts_with(&["none", "plimsoll", "plimsoll - none"]), "{report}");
    }
    let base: Vec<f64> =
        report.rows.iter().filter(|row| row.variant == "none").map(|row| row.figures.p50).collect();
    assert!(base.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()) && base[0] > 50.0, "{report}");
}

#[test]
fn latency_kills_in_each_way_and_a_timer_is_slower_than_a_guard_that_polls_every_millisecond() {
    let report = polled("latency", Some("4MiB"));
    assert_eq!(
        variants(&report, "4MiB")[..4],
        ["in-kernel", "in-kernel, another", "daemon", "timer"],
        "{report}"
    );
    assert!(row(&report, "timer").figures.p50 > row(&report, "daemon").figures.p50, "{report}");
    // The polling guard has no trigger in the kernel, and the report must not pretend that it had.
    for note in [
        "4MiB: 0 of 12 kills meant to be in-kernel are",
        "4MiB: 0 of 8 kills meant to be in-kernel, another are",
        "4MiB: 8 of 8 kills meant to be daemon are",
    ] {
        assert!(report.notes.iter().any(|found| found.starts_with(note)), "{note}: {report}");
    }
    for of in ["timer", "daemon"] {
        assert!(has_ratio(&report, "4MiB", of, "in-kernel, another"), "{of}: {report}");
    }
}

#[test]
fn latency_asks_for_a_guard_whose_kernel_side_may_not_act_for_the_ways_of_the_daemon() {
    let asked = Mutex::new(Vec::new());
    let start = |triggers: Triggers| {
        asked.lock().unwrap().push(triggers);
        Ok(AsleepGuard)
    };
    // No such case: guards are started, nobody is killed.
    measure("latency", &quick(Some("no such case")), start).unwrap();
    assert_eq!(*asked.lock().unwrap(), [Triggers::All, Triggers::DaemonOnly]);
}

#[test]
fn overshoot_is_known_from_the_record_and_from_the_victim() {
    let report = polled("overshoot", Some("4KiB"));
    let [record, own] = &report.rows[..] else { panic!("{report}") };
    assert_eq!((record.figures.n, own.figures.n), (5, 5), "{report}");
    // The victim touches on while the signal is on its way; pages of its stack and heap are not in its own count.
    assert!(record.figures.max > 0.0 && own.figures.max + 65_536.0 >= record.figures.max, "{report}");
}

#[test]
fn overshoot_counts_huge_pages_and_all_threads() {
    let huge = polled("overshoot", Some("huge"));
    let [record, own] = &huge.rows[..] else { panic!("{huge}") };
    // The page that crosses may be a small one, of the victim's stack; the victim itself counts whole huge pages, on top of
    // what it had, to which its stack and heap have added some pages by then.
    assert!(
        record.figures.max > 0.0
            && own.figures.max >= f64::from(2 << 20)
            && own.figures.max % f64::from(2 << 20) <= 65_536.0,
        "{huge}"
    );
    let threads = polled("overshoot", Some("8-threads"));
    assert!(threads.rows.iter().all(|row| row.figures.n == 2 && row.figures.max > 0.0), "{threads}");
}

#[test]
fn overshoot_shows_the_sleeper_killed_and_the_eight_alive() {
    let report = polled("overshoot", Some("sleeper"));
    let alone = "sleeper: the largest was killed, once, and nobody else in 2 of 2 rounds; 2 kills are recorded, 0 of them \
                 in-kernel";
    assert_eq!(report.notes, [alone], "{report}");
    let row = |variant| row(&report, variant);
    for variant in ["plimsoll's record", "signal to memory back", "crossing to sleeper's end"] {
        assert_eq!(row(variant).figures.n, 2, "{report}");
        assert!(row(variant).figures.p50 > 0.0, "{report}");
    }
    // They cross together: one alone has room for a quarter of what it takes.
    assert!(row("the eight, allocating at the crossing").figures.p50 >= 4.0, "{report}");
    let own = row("the eight's own count, at the signal");
    assert!(own.figures.max > 0.0 && own.figures.max < f64::from(56 << 20), "{report}");
}

#[test]
fn overshoot_finds_a_guard_out_that_kills_more_than_the_sleeper() {
    let start = |_| Ok(PollingGuard::start(Kills::SmallestToo));
    let report = measure("overshoot", &quick(Some("sleeper")), start).unwrap();
    assert!(report.notes[0].contains("nobody else in 0 of 2 rounds"), "{report}");
    assert_eq!(report.notes[1], "sleeper: 2 of the processes that allocate died", "{report}");
}

#[test]
fn accuracy_finds_an_exact_guard_exact_and_one_that_knows_nothing_wrong() {
    let exact = polled("accuracy", None);
    let off = |report: &BenchReport| row(report, "plimsoll").figures.max;
    assert!(off(&exact) < 0.5, "{exact}");
    let done = exact.notes.first().unwrap();
    let counts: Vec<u64> = done.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(counts.len() == 4 && counts.iter().all(|count| *count > 0) && counts[0] >= 30_000, "{done}");
    let wrong = asleep("accuracy", None).unwrap();
    assert!(off(&wrong) > 100.0, "{wrong}");
}

#[test]
fn reap_times_plain_and_expedited_kills_in_turns() {
    let report = polled("reap", Some("unthrottled"));
    for case in ["unthrottled", "unthrottled, loaded"] {
        assert_eq!(variants(&report, case), ["plain", "expedited"], "{report}");
        assert!(has_ratio(&report, case, "expedited", "plain"), "{report}");
    }
    assert_eq!(rows(&report, "submit").iter().map(|row| row.figures.n).sum::<usize>(), 3);
    assert!(report.notes.iter().any(|note| note.contains("lists of single CPUs afterwards")), "{report}");
}

#[test]
fn reap_measures_a_throttled_victim_beside_one_that_is_not() {
    let report = polled("reap", Some("SCHED_IDLE"));
    assert_eq!(variants(&report, "SCHED_IDLE"), ["plain", "expedited", "expedited, unthrottled"], "{report}");
}

#[test]
fn reap_measures_how_long_others_wait() {
    let report = polled("reap", Some("sleepers beside 2.5"));
    let case = "sleepers beside 2.5 GiB";
    assert_eq!(variants(&report, case), ["plain", "expedited", "plain", "expedited"], "{report}");
    assert!(report.rows.iter().any(|row| row.unit == "ms" && row.figures.max > 0.0), "{report}");
}

#[test]
fn reap_frees_eight_at_once_in_three_ways() {
    let report = polled("reap", Some("eight"));
    assert_eq!(variants(&report, "eight"), ["plain", "one thread", "pool"], "{report}");
    // Eight times two, of victims that run and of those that do not.
    assert_eq!(rows(&report, "submit").iter().map(|row| row.figures.n).sum::<usize>(), 32);
}

#[test]
fn select_measures_each_way_and_knows_how_each_choice_was_made() {
    let report = selected(Names::Largest);
    let found = variants(&report, "40 processes");
    for variant in ["cold", "warm", "cold, listed from /proc", "warm, age of the list"] {
        assert!(found.contains(&variant), "{variant} is missing in {report}");
    }
    // So many were there when the others were started; a few of the machine's own may have ended since.
    assert!(row(&report, "cold, listed").figures.p50 >= 30.0, "{report}");
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
    let error = asleep("select", None).unwrap_err().to_string();
    assert!(error.contains("this guard does not guard the machine"), "{error}");
}

#[test]
fn a_guard_that_does_not_kill_is_an_error_and_not_a_figure() {
    let error = asleep("overshoot", Some("4KiB")).unwrap_err();
    assert!(matches!(error, BenchError::Deadline { .. }), "{error}");
}

#[test]
fn what_cannot_be_run_is_said_in_one_line() {
    let error = run("fault", &quick(None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown bench 'fault': try one of faults, latency, overshoot, accuracy, scale, reap, select, tmalloc, workingset, frag, suite"
    );
    let error = run("accuracy", &quick(None)).unwrap_err().to_string();
    assert!(error.starts_with("guard under test: 'daemon': start /nonexistent/plimsoll: "), "{error}");
}

#[test]
fn a_workload_becomes_no_user_but_a_test_user() {
    for uid in ["0", "1000", "60009", "60041", "x"] {
        let output = Command::new(WORKLOADS).args(["bench-workload", "hold", uid, "4096"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{uid}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("error "), "{uid}: {output:?}");
    }
}
