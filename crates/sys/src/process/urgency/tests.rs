use super::*;
use crate::process::testing::Guest;
use std::thread;

#[test]
fn a_decider_is_real_time_but_for_long_work_and_its_threads_inherit_nothing() {
    let seen = thread::spawn(|| {
        let now = || (schedule_of(None).unwrap(), getpriority_process(None).unwrap());
        // As the daemon is started.
        setpriority_process(None, URGENT_NICE).ok()?;
        let seen = (raise_decider() == Priority::RealTime).then(|| (now(), unhurried(now), now()))?;
        Some((seen, thread::spawn(now).join().unwrap()))
    })
    .join()
    .unwrap();
    let Some(((decides, works, after), inherited)) = seen else {
        return crate::process::testing::skip("no CAP_SYS_NICE");
    };
    assert_eq!((decides, after), ((Schedule::DECIDING, URGENT_NICE), decides));
    const { assert!(Schedule::DECIDING.level > Schedule::TURN.level) };
    assert_eq!((works.0.class(), works.0.level, works.1), (libc::SCHED_OTHER, 0, PATIENT_NICE));
    assert_eq!(inherited, (Schedule::ORDINARY, 0));
}

#[test]
fn long_work_in_pieces_leaves_others_as_much_time() {
    let (began, worked) = (Instant::now(), thread_cpu_time());
    let mut pieces = Pieces::begin();
    while thread_cpu_time().saturating_sub(worked) < PIECE * 10 {
        pieces.rest();
    }
    assert!(began.elapsed() >= PIECE * 15, "{:?}", began.elapsed());
}

#[test]
fn the_class_of_another_process_is_changed_and_read_back() {
    let guest = Guest::asleep();
    let idle = Schedule { policy: libc::SCHED_IDLE, level: 0 };
    set_schedule(Some(guest.pid()), idle).unwrap();
    let found = schedule_of(Some(guest.pid())).unwrap();
    assert!(found.is_idle() && !found.is_urgent(), "{found:?}");
    let mut guest = guest;
    guest.bury();
    assert_eq!(schedule_of(Some(guest.pid())), Err(Errno::SRCH));
    assert_eq!(set_schedule(Some(guest.pid()), idle), Err(Errno::SRCH));
}
