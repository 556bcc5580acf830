use super::{LEFT_MAX, LEFT_OF_OWNER_MAX, PASSED_OVER, PATIENCE, PatientReaders, Unread, command_line};
use crate::{offload::Offload, owners::Owners};
use plimsoll_policy::{
    units::{Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::ProcRoot;
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

const SHORT: Duration = Duration::from_millis(10);

fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 1 }
}

/// Processes that hold their address space until this says, or goes.
struct Stuck {
    readers: PatientReaders,
    held: Arc<Mutex<Receiver<()>>>,
    release: Sender<()>,
}

impl Stuck {
    /// Nobody's uid is another's.
    fn new() -> Self {
        Self::with(Owners::default)
    }

    fn with(find_owners: fn() -> Owners) -> Self {
        let readers = PatientReaders::with(&Offload::start().unwrap(), find_owners);
        let (release, held) = channel();
        Self { readers, held: Arc::new(Mutex::new(held)), release }
    }

    /// Asks a process that is stuck; gives what it answers when it is let go in time.
    fn ask_stuck(&self, pid: u32, user: u32) -> Option<u32> {
        // On a busy machine no thread may come to it in so short a time.
        (0..3).find_map(|_| {
            let held = Arc::clone(&self.held);
            self.readers.read(id(pid), Uid(user), SHORT, move |_| {
                let _released = held.lock().unwrap().recv();
                Some(pid)
            })
        })
    }

    fn ask(&self, pid: u32, user: u32) -> Option<u32> {
        self.readers.read(id(pid), Uid(user), PATIENCE * 20, move |_| Some(pid))
    }

    /// As if what happened had happened earlier.
    fn wait(&self, time: Duration) {
        for left in &mut self.readers.pool().left {
            left.noted = left.noted.map(|noted| noted.checked_sub(time).unwrap());
        }
    }

    fn left(&self) -> usize {
        self.readers.pool().left.iter().filter(|left| left.is_alive()).count()
    }
}

#[test]
fn the_line_of_this_process_is_read_and_that_of_an_earlier_one_of_its_number_is_not() {
    let mut proc = ProcRoot::open(Path::new("/proc")).unwrap();
    let process = proc.process(Pid(std::process::id())).unwrap();
    let this = VictimId { pid: process.pid, start_ns: process.start_ns };
    let line = PatientReaders::new(&Offload::start().unwrap()).command_line(this, process.uid).unwrap();
    assert!(line.contains("plimsoll"), "{line}");
    let earlier = VictimId { start_ns: process.start_ns + 50_000_000, ..this };
    assert_eq!(command_line(&mut proc, earlier), None);
}

#[test]
fn a_process_that_is_stuck_costs_one_wait_and_nobody_elses_reading() {
    let stuck = Stuck::new();
    assert_eq!(stuck.ask(10, 1), Some(10));
    assert_eq!(stuck.ask_stuck(11, 2), None);
    let began = Instant::now();
    assert_eq!([stuck.ask(11, 2), stuck.ask(12, 2)], [None; 2]);
    assert!(began.elapsed() < PATIENCE, "her others were waited for");
    assert_eq!(stuck.ask(10, 1), Some(10));
    assert_eq!(stuck.left(), 1);
    // Her others are read after a while, this one is not while it is stuck.
    stuck.wait(PASSED_OVER);
    assert_eq!([stuck.ask(11, 2), stuck.ask(12, 2)], [None, Some(12)]);
}

#[test]
fn who_sees_to_the_time_itself_is_told_why_and_has_nobody_else_passed_over() {
    let stuck = Stuck::new();
    let read = |pid: u32, user: u32| {
        let held = Arc::clone(&stuck.held);
        let is_stuck = pid < 10;
        let patience = if is_stuck { PATIENCE / 5 } else { PATIENCE * 20 };
        stuck.readers.read_whoever(id(pid), Uid(user), patience, move |_| {
            let _released = is_stuck.then(|| held.lock().unwrap().recv());
            Some(pid)
        })
    };
    assert_eq!([read(1, 2), read(12, 2)], [Err(Unread::Hindered), Ok(12)]);
    assert_eq!(stuck.ask(12, 2), Some(12));
    // So many of an owner's are left; then it is the owner's own doing.
    for pid in 2..9 {
        assert_eq!(read(pid, 2), Err(Unread::Hindered));
    }
    assert_eq!([read(12, 2), read(12, 3)], [Err(Unread::Hindered), Ok(12)]);
    // Nobody else's.
    for user in 100..=100 + u32::try_from(LEFT_MAX).unwrap() {
        if read(1000 + user, user).is_ok() {
            assert_eq!(stuck.ask_stuck(2000 + user, user), None);
        }
    }
    assert_eq!([read(12, 3), read(12, 2)], [Err(Unread::Crowded), Err(Unread::Hindered)]);
}

#[test]
fn an_owner_has_only_so_many_threads_whatever_uids_the_processes_have() {
    let stuck = Stuck::with(|| Owners::of(b"100:5000:100\n", b""));
    for number in 0..12 {
        let user = if number == 0 { 100 } else { 5000 + number };
        assert_eq!(stuck.ask_stuck(number + 1, user), None);
        stuck.wait(PASSED_OVER);
    }
    assert_eq!(stuck.left(), LEFT_OF_OWNER_MAX);
    assert_eq!(stuck.ask(50, 101), Some(50));
}

#[test]
fn only_so_many_threads_are_left_and_those_that_come_back_make_room() {
    let stuck = Stuck::new();
    let many = u32::try_from(LEFT_MAX).unwrap() + 2;
    for pid in 1..=many {
        assert_eq!(stuck.ask_stuck(pid, pid), None);
    }
    assert_eq!(stuck.left(), LEFT_MAX);
    assert_eq!(stuck.ask(100, 100), None);
    let Stuck { readers, held, release } = stuck;
    drop(release);
    let stuck = Stuck { readers, held, release: channel().0 };
    stuck.wait(PASSED_OVER);
    let end = Instant::now() + Duration::from_secs(20);
    while stuck.ask(100, 100) != Some(100) {
        assert!(Instant::now() < end, "nobody reads though all have come back");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_stuck_process_answers_too_late_is_taken_for_nobody_elses() {
    let stuck = Stuck::new();
    assert_eq!(stuck.ask_stuck(1, 1), None);
    stuck.release.send(()).unwrap();
    assert_eq!([stuck.ask(10, 2), stuck.ask(11, 3)], [Some(10), Some(11)]);
    let end = Instant::now() + Duration::from_secs(20);
    while stuck.left() > 0 {
        assert!(Instant::now() < end, "the thread does not end");
        std::thread::yield_now();
    }
}
