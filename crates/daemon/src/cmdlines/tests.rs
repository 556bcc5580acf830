use super::{LEFT_MAX, Line, Read, Readers, Wanted, read};
use crate::guard::Program;
use plimsoll_policy::{units::Pid, victim::VictimId};
use plimsoll_sys::process::ProcRoot;
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 1 }
}

fn wanted(pids: impl IntoIterator<Item = u32>) -> Vec<Wanted> {
    pids.into_iter().map(|pid| Wanted { id: id(pid), program: Program::of_tests(pid) }).collect()
}

/// Readers for which processes below 10 are stuck until `Sender` says, or goes; and how many were made.
fn readers(patience: Duration) -> (Readers, Sender<()>, Arc<AtomicUsize>) {
    let (release, stuck): (_, Receiver<()>) = channel();
    let (stuck, made) = (Arc::new(Mutex::new(stuck)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&made);
    let make = move || {
        count.fetch_add(1, Ordering::Relaxed);
        let stuck = Arc::clone(&stuck);
        let read: Box<Read> = Box::new(move |id: VictimId| {
            if id.pid.0 < 10 {
                let _released = stuck.lock().unwrap().recv();
            }
            Some(format!("line of {}", id.pid.0))
        });
        Some(read)
    };
    (Readers::new(Box::new(make), patience), release, made)
}

fn pids(found: &[Line]) -> Vec<u32> {
    found.iter().map(|line| line.id.pid.0).collect()
}

#[test]
fn the_line_of_this_process_is_read_and_that_of_an_earlier_one_of_its_number_is_not() {
    let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let pid = Pid(std::process::id());
    let start_ns = proc.process(pid).unwrap().start_ns;
    let line = read(&mut proc, VictimId { pid, start_ns }).unwrap();
    assert!(line.contains("plimsoll"), "{line}");
    assert_eq!(read(&mut proc, VictimId { pid, start_ns: start_ns + 50_000_000 }), None);
}

#[test]
fn a_process_that_is_stuck_costs_one_thread_and_nobody_elses_line() {
    let (mut readers, _release, made) = readers(Duration::from_millis(200));
    assert_eq!(pids(&readers.lines(wanted([10, 1, 11, 12]))), [10, 11, 12]);
    assert_eq!(made.load(Ordering::Relaxed), 2);
    // It is known by now.
    assert_eq!(pids(&readers.lines(wanted([1, 13]))), [13]);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[test]
fn only_so_many_threads_are_left_to_stuck_processes_and_those_that_come_back_make_room() {
    let (mut readers, release, made) = readers(Duration::from_millis(50));
    let stuck = 1..=u32::try_from(LEFT_MAX).unwrap() + 2;
    assert_eq!(pids(&readers.lines(wanted(stuck.chain([10])))), [0_u32; 0]);
    assert_eq!(made.load(Ordering::Relaxed), LEFT_MAX);
    drop(release);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while pids(&readers.lines(wanted([10]))) != [10] {
        assert!(std::time::Instant::now() < end, "no thread is made though all have come back");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_stuck_process_answers_too_late_is_taken_for_nobody_elses() {
    let (mut readers, release, _) = readers(Duration::from_millis(100));
    assert!(readers.lines(wanted([1])).is_empty());
    release.send(()).unwrap();
    let found = readers.lines(wanted([10, 11]));
    assert_eq!(found.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["line of 10", "line of 11"]);
}
