use super::*;
use crate::process::{
    Priority, raise_decider,
    testing::{CpuGroup, Guest, own_name, proc_root, skip},
    urgency::{Schedule, set_schedule},
};
use std::{
    path::PathBuf,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Whoever reserves here is alone in it: each counts what there is.
static ALONE: Mutex<()> = Mutex::new(());

const PATIENCE: Duration = Duration::from_secs(20);

/// Alone; `None`, which is said, where nothing may be reserved.
fn alone() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let guest = Guest::asleep();
    if let Err(errno) = set_attributes(guest.pid(), &Attributes::RESERVED) {
        skip(format_args!("nothing may be reserved: {errno}"));
        return None;
    }
    assert!(take_back(guest.pid()));
    // As the threads that reserve are.
    let _however_urgent = raise_decider();
    Some(alone)
}

fn busy() -> Guest {
    Guest::start(Command::new("perl").args(["-e", "alarm 60; 1 while 1"]))
}

fn reservations() -> Reservations {
    Reservations::new(cpus())
}

fn cpus() -> usize {
    thread::available_parallelism().unwrap().get()
}

fn give(all: &Reservations, guest: &Guest, held: &mut Option<Reserved>) -> Turn {
    all.give(&proc_root().files, &guest.pidfd(), held, true).unwrap()
}

/// How many tenths of a CPU can be reserved, by reserving them for sleepers.
fn to_be_had() -> usize {
    let mut sleepers = Vec::new();
    // 95 % of all CPUs, as kernels come.
    while sleepers.len() < cpus() * 10 {
        let sleeper = Guest::asleep();
        match set_attributes(sleeper.pid(), &Attributes::RESERVED) {
            Ok(()) => sleepers.push(sleeper),
            Err(errno) => {
                assert_eq!(errno, Errno::BUSY);
                break;
            }
        }
    }
    assert!(sleepers.iter().all(|sleeper| take_back(sleeper.pid())));
    sleepers.len()
}

/// What the dead had is subtracted when their period is over.
fn is_all_back(all: usize) {
    let began = Instant::now();
    loop {
        let now = to_be_had();
        if now >= all {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "of {all} tenths of a CPU {now} are left");
    }
}

#[test]
fn a_thread_that_wants_the_cpu_has_time_reserved_until_it_is_taken_back() {
    let Some(_alone) = alone() else { return };
    let (all, guest) = (reservations(), busy());
    guest.wait_until("it runs", |root, pid| root.process(pid).unwrap().comm.as_bytes() == b"perl");
    let mut held = None;
    let begin = Instant::now();
    // It sleeps now and then while it starts.
    while give(&all, &guest, &mut held) != Turn::Given {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert!(attributes_of(guest.pid()).unwrap().are_reserved());
    assert_eq!(give(&all, &guest, &mut held), Turn::Given);
    assert_eq!(all.taken.load(Ordering::Relaxed), 1);
    drop(held);
    assert_eq!(schedule_of(Some(guest.pid())), Ok(Schedule::ORDINARY));
    assert_eq!(all.taken.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_reserved_for_one_that_sleeps_and_what_it_has_is_taken_back() {
    let Some(_alone) = alone() else { return };
    let (all, guest) = (reservations(), Guest::asleep());
    guest.wait_until("it sleeps", |root, pid| {
        let threads = Threads::open(&root.files, &PidFd::open(pid).unwrap()).unwrap();
        threads.state(pid) == Some(ProcessState::Sleeping)
    });
    let mut held = None;
    assert_eq!(give(&all, &guest, &mut held), Turn::Waits);
    assert!(held.is_none() && schedule_of(Some(guest.pid())) == Ok(Schedule::ORDINARY));
    // It had some, and fell asleep.
    set_attributes(guest.pid(), &Attributes::RESERVED).unwrap();
    held = Some(Reserved { thread: guest.pid(), place: all.place(true).unwrap() });
    assert_eq!(give(&all, &guest, &mut held), Turn::Waits);
    assert!(held.is_none() && schedule_of(Some(guest.pid())) == Ok(Schedule::ORDINARY));
}

#[test]
fn as_many_have_time_reserved_as_there_are_cpus_and_ours_keep_one_place() {
    let all = Reservations::new(3);
    let [_first, _second] = [all.place(false), all.place(false)].map(Option::unwrap);
    assert!(all.place(false).is_none());
    let last = all.place(true).unwrap();
    assert!(all.place(true).is_none());
    drop(last);
    assert!(all.place(true).is_some());
    // Where there is one place only, whoever comes first has it.
    assert!(Reservations::new(1).place(false).is_some());
}

#[test]
fn as_much_can_be_reserved_after_many_victims_as_before() {
    let Some(_alone) = alone() else { return };
    let (before, all) = (to_be_had(), reservations());
    assert!(before > 0);
    let threaded = "import threading, time, signal\nsignal.alarm(60)\n\
        for _ in range(7): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
        for _ in range(3): threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n\
        time.sleep(60)";
    for round in 0..300_u64 {
        let mut guest = match round % 6 {
            0 => Guest::asleep(),
            1 => Guest::shell("exec 2>/dev/null; sleep 0.01; exit"),
            // Forks, and so runs and sleeps in turns.
            2 => Guest::shell("exec 2>/dev/null; while :; do sleep 0; done"),
            3 if round % 5 == 0 => Guest::start(Command::new("python3").args(["-c", threaded])),
            _ => busy(),
        };
        let pidfd = guest.pidfd();
        let mut held = None;
        // Killed at whatever moment, before it or after it.
        thread::sleep(Duration::from_micros(round * 37 % 4_000));
        let kill = || pidfd.send_signal(plimsoll_policy::victim::Signal::Kill).unwrap();
        if round % 3 == 0 {
            kill();
        }
        // Gone is gone.
        all.give(&proc_root().files, &pidfd, &mut held, true).ok();
        if round % 3 == 1 {
            kill();
        }
        all.give(&proc_root().files, &pidfd, &mut held, true).ok();
        match round % 4 {
            0 => guest.bury(),
            1 => drop(held),
            // Alive, asleep or a zombie.
            2 => drop((held, thread::sleep(Duration::from_millis(1)))),
            _ => drop((guest, held)),
        }
    }
    assert_eq!(all.taken.load(Ordering::Relaxed), 0);
    println!("{} were gone at the second look", all.lost.load(Ordering::Relaxed));
    is_all_back(before);
}

#[test]
fn what_the_dead_the_sleeping_and_those_in_between_were_given_is_subtracted_when_it_is_taken_back() {
    let Some(_alone) = alone() else { return };
    let before = to_be_had();
    for round in 0..before * 3 {
        let mut guest = if round % 2 == 0 { Guest::shell("exit") } else { busy() };
        if round % 2 == 0 {
            guest.wait_until("it is a zombie", |root, pid| {
                let pidfd = PidFd::open(pid).unwrap();
                Threads::open(&root.files, &pidfd).unwrap().state(pid) == Some(ProcessState::Zombie)
            });
        }
        set_attributes(guest.pid(), &Attributes::RESERVED).unwrap();
        assert!(take_back(guest.pid()));
        guest.bury();
    }
    is_all_back(before);
}

#[test]
fn one_that_is_made_ordinary_by_somebody_else_gives_back_what_it_had() {
    let Some(_alone) = alone() else { return };
    let before = to_be_had();
    for _ in 0..before + 2 {
        let guest = Guest::asleep();
        set_attributes(guest.pid(), &Attributes::RESERVED).unwrap();
        crate::process::expedite::expedite(&proc_root().files, &guest.pidfd(), None).unwrap();
        assert_eq!(schedule_of(Some(guest.pid())), Ok(Schedule::ORDINARY));
    }
    is_all_back(before);
}

/// A refusal of one that wants the CPU.
fn refusal(all: &Reservations, guest: &Guest) -> Turn {
    let begin = Instant::now();
    loop {
        let turn = give(all, guest, &mut None);
        if turn != Turn::Waits {
            return turn;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn who_may_reserve_nothing_is_told_why() {
    let Some(_alone) = alone() else { return };
    let guest = busy();
    let all = reservations();
    let denied = thread::scope(|scope| {
        let without = || {
            let now = capabilities(None).unwrap();
            let effective = now.effective.difference(CapabilitySet::SYS_NICE);
            let less = rustix::thread::CapabilitySets { effective, ..now };
            rustix::thread::set_capabilities(None, less).unwrap();
            refusal(&all, &guest)
        };
        scope.spawn(without).join().unwrap()
    });
    assert_eq!(denied, Turn::Refused(Hindrance::Denied));
    // Taken by others, as far as it goes.
    let sleepers: Vec<Guest> = (0..cpus() * 10).map(|_| Guest::asleep()).collect();
    let full = sleepers
        .iter()
        .any(|sleeper| set_attributes(sleeper.pid(), &Attributes::RESERVED) == Err(Errno::BUSY));
    let booked = refusal(&all, &guest);
    assert!(sleepers.iter().all(|sleeper| take_back(sleeper.pid())));
    assert!(!full || booked == Turn::Refused(Hindrance::Booked), "{booked:?}");
    all.lost.store(LOST_MAX, Ordering::Relaxed);
    assert_eq!(refusal(&all, &guest), Turn::Refused(Hindrance::Booked));
}

/// A cpuset of the first CPU, emptied and removed at the end of its test.
struct Confined(PathBuf);

impl Drop for Confined {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            drop(fs::write(self.0.with_file_name("cgroup.procs"), pid));
        }
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn one_whose_cpuset_leaves_out_cpus_is_told_so_and_bound_ones_are_unbound() {
    let Some(_alone) = alone() else { return };
    if cpus() < 2 {
        return skip("one CPU");
    }
    let bound = Guest::start(Command::new("taskset").args(["1", "perl", "-e", "alarm 60; 1 while 1"]));
    bound.wait_until("it runs", |root, pid| root.process(pid).unwrap().comm.as_bytes() == b"perl");
    let mut held = None;
    let begin = Instant::now();
    while give(&reservations(), &bound, &mut held) != Turn::Given {
        assert!(begin.elapsed() < PATIENCE);
    }
    drop(held);
    let folder = crate::process::v1_tree::mounted("cpuset").join(own_name());
    if fs::create_dir(&folder).is_err() {
        return skip("no v1 cpuset that can be written");
    }
    let (guest, confined) = (busy(), Confined(folder));
    for (file, text) in
        [("cpuset.cpus", "0"), ("cpuset.mems", "0"), ("cgroup.procs", &guest.pid().to_string())]
    {
        fs::write(confined.0.join(file), text).unwrap();
    }
    assert_eq!(refusal(&reservations(), &guest), Turn::Refused(Hindrance::Unreserved));
    assert_eq!(schedule_of(Some(guest.pid())), Ok(Schedule::ORDINARY));
}

#[test]
fn one_whose_cgroup_keeps_it_from_the_real_time_class_may_have_time_reserved() {
    let Some(_alone) = alone() else { return };
    let guest = busy();
    let Some(group) = CpuGroup::make() else { return };
    group.take(guest.pid());
    let real_time = set_schedule(Some(guest.pid()), Schedule::TURN);
    assert_eq!(real_time, Err(Errno::PERM));
    let turn = thread::scope(|scope| {
        let turn = || {
            let urgent = raise_decider() == Priority::RealTime;
            urgent.then(|| crate::process::expedite::give_turn(&proc_root().files, &guest.pidfd()).unwrap())
        };
        scope.spawn(turn).join().unwrap()
    });
    assert_eq!(turn, Some(Turn::Barred));
    let (all, mut held) = (reservations(), None);
    let begin = Instant::now();
    while give(&all, &guest, &mut held) != Turn::Given {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert!(attributes_of(guest.pid()).unwrap().are_reserved());
}
