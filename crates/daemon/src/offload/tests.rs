use super::{Haste, IDLE_MAX, Lane, Offload};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::{
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(20);

/// A lane that says which entries it was given.
fn says(offload: &Offload, haste: Haste, room: usize) -> (Lane<u32>, Receiver<u32>) {
    let (say, said) = channel();
    (offload.lane(haste, room, move |entry| say.send(entry).unwrap()), said)
}

/// A lane that is stuck from its first entry on, until something is sent; and that it has begun.
fn sticks(offload: &Offload, room: usize) -> (Lane<u32>, Sender<()>, Receiver<u32>) {
    let (free, freed) = channel::<()>();
    let (say, said) = channel();
    let lane = offload.lane(Haste::Ordinary, room, move |entry| {
        say.send(entry).unwrap();
        // Also when nobody is there to send any more.
        freed.recv().ok();
    });
    (lane, free, said)
}

/// Twenty of these, each at its first entry.
fn twenty_that_stick(offload: &Offload) -> Vec<(Lane<u32>, Sender<()>, Receiver<u32>)> {
    let stuck: Vec<_> = (0..20).map(|_| sticks(offload, 1)).collect();
    for (lane, _, said) in &stuck {
        assert!(lane.hand(1));
        assert_eq!(said.recv_timeout(SOON), Ok(1));
    }
    stuck
}

#[test]
fn entries_are_worked_off_one_at_a_time_in_their_order() {
    let offload = Offload::start().unwrap();
    let (at_it, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (say, said) = channel();
    let (now, max) = (Arc::clone(&at_it), Arc::clone(&most));
    let lane = offload.lane(Haste::Ordinary, 1000, move |entry: u32| {
        max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        say.send(entry).unwrap();
        now.fetch_sub(1, Ordering::SeqCst);
    });
    let others: Vec<_> = (0..8).map(|_| says(&offload, Haste::Urgent, 1000)).collect();
    for entry in 0..1000 {
        assert!(lane.hand(entry));
        assert!(others.iter().all(|(other, _)| other.hand(entry)));
    }
    let all = |said: &Receiver<u32>| (0..1000).all(|entry| said.recv_timeout(SOON) == Ok(entry));
    assert!(all(&said));
    assert!(others.iter().all(|(_, said)| all(said)));
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn those_that_are_stuck_hold_up_nobody_else() {
    let offload = Offload::start().unwrap();
    let stuck = twenty_that_stick(&offload);
    let (lane, said) = says(&offload, Haste::Urgent, 1);
    assert!(lane.hand(7));
    assert_eq!(said.recv_timeout(SOON), Ok(7));
    // Each has room for one more, and goes on where it was.
    for (lane, free, said) in &stuck {
        assert!(lane.hand(2));
        assert!(!lane.hand(3));
        assert_eq!(lane.left(), 2);
        free.send(()).unwrap();
        assert_eq!(said.recv_timeout(SOON), Ok(2));
    }
}

#[test]
fn as_many_threads_as_were_needed_end_when_they_are_not() {
    let offload = Offload::start().unwrap();
    let stuck = twenty_that_stick(&offload);
    assert!(offload.crew.strong_count() > 20);
    drop(stuck);
    let (lane, said) = says(&offload, Haste::Ordinary, 1);
    let began = Instant::now();
    while offload.crew.strong_count() > IDLE_MAX {
        assert!(began.elapsed() < SOON, "{} threads", offload.crew.strong_count());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(lane.hand(1));
    assert_eq!(said.recv_timeout(SOON), Ok(1));
}

#[test]
fn with_no_thread_to_be_had_the_last_one_does_urgent_work_until_one_can_be_started() {
    let offload = Offload::start().unwrap();
    let crew = offload.crew.upgrade().unwrap();
    crew.is_full.store(true, Ordering::Release);
    // All but one are at something that does not come back.
    let stuck: Vec<_> = (1..IDLE_MAX).map(|_| sticks(&offload, 1)).collect();
    for (lane, _, said) in &stuck {
        assert!(lane.hand(1));
        assert_eq!(said.recv_timeout(SOON), Ok(1));
    }
    let (ordinary, put_off) = says(&offload, Haste::Ordinary, 1);
    let (urgent, said) = says(&offload, Haste::Urgent, 1);
    assert!(ordinary.hand(1));
    for entry in 1..=5 {
        assert!(urgent.hand(entry));
        assert_eq!(said.recv_timeout(SOON), Ok(entry));
    }
    assert_eq!(put_off.try_recv(), Err(TryRecvError::Empty));
    crew.is_full.store(false, Ordering::Release);
    assert_eq!(put_off.recv_timeout(SOON), Ok(1));
}

#[test]
fn work_is_done_whenever_its_descriptor_can_be_read_and_not_beside_itself() {
    let offload = Offload::start().unwrap();
    let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
    let readable = bell.as_fd().try_clone_to_owned().unwrap();
    let (say, said) = channel();
    let (free, freed) = channel::<()>();
    let rung = Arc::clone(&bell);
    let work = move || {
        say.send(rung.read().ok()).unwrap();
        freed.recv().ok();
        true
    };
    let lane = offload.attend(Haste::Ordinary, readable, work).unwrap();
    for times in 1..=3 {
        bell.write(times).unwrap();
        assert_eq!(said.recv_timeout(SOON), Ok(Some(times)));
        // While it is at it nobody else is; what comes meanwhile is for the next time.
        bell.write(10).unwrap();
        assert_eq!(said.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
        free.send(()).unwrap();
        assert_eq!(said.recv_timeout(SOON), Ok(Some(10)));
        free.send(()).unwrap();
    }
    // Without the lane nobody attends, and what it worked with is gone.
    drop(lane);
    let began = Instant::now();
    while Arc::strong_count(&bell) > 1 {
        assert!(began.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(1));
    }
    bell.write(1).unwrap();
    assert_eq!(said.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    // The next one has its place.
    bell.read().unwrap();
    let _next = offload.attend(Haste::Ordinary, bell.as_fd().try_clone_to_owned().unwrap(), || true).unwrap();
    assert_eq!(offload.ready.wake.alarms.lock().unwrap().len(), 1);
}

#[test]
fn work_that_is_over_is_not_asked_again_by_what_it_left_unread() {
    let offload = Offload::start().unwrap();
    let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    let (say, said) = channel();
    // It reads nothing: whoever goes on is asked without end.
    let mut left = 3;
    let work = move || {
        say.send(()).unwrap();
        left = i32::max(left - 1, 0);
        left > 0
    };
    let lane = offload.attend(Haste::Ordinary, bell.as_fd().try_clone_to_owned().unwrap(), work).unwrap();
    bell.write(1).unwrap();
    assert!((0..3).all(|_| said.recv_timeout(SOON).is_ok()));
    // Gone, though the lane is there.
    assert_eq!(said.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    drop(lane);
}

#[test]
fn what_was_handed_over_is_worked_off_though_the_lane_is_dropped_and_then_its_work_is_gone() {
    let offload = Offload::start().unwrap();
    let (lane, free, began) = sticks(&offload, 4);
    assert!((1..=3).all(|entry| lane.hand(entry)));
    drop(lane);
    for entry in 1..=3 {
        assert_eq!(began.recv_timeout(SOON), Ok(entry));
        free.send(()).unwrap();
    }
    // Its end of the channel goes with it.
    assert_eq!(began.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
}
