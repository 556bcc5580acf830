use super::*;
use crate::process::testing::Guest;
use std::thread;

#[test]
fn a_decider_is_before_what_frees_and_its_threads_do_not_inherit_it() {
    let (own, inherited) = thread::spawn(|| {
        let priority = raise_decider();
        if priority != Priority::RealTime {
            return (None, None);
        }
        (schedule_of(None).ok(), thread::spawn(|| schedule_of(None)).join().unwrap().ok())
    })
    .join()
    .unwrap();
    let Some(own) = own else {
        println!(
            "SKIPPED: a_decider_is_before_what_frees_and_its_threads_do_not_inherit_it: no CAP_SYS_NICE"
        );
        return;
    };
    assert_eq!((own.class(), own.level), (libc::SCHED_RR, 2));
    assert!(own.level > Schedule::DYING.level);
    assert_eq!(inherited, Some(Schedule::ORDINARY));
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
    assert_eq!(schedule_of(Some(guest.pid())), Err(Errno(libc::ESRCH)));
    assert_eq!(set_schedule(Some(guest.pid()), idle), Err(Errno(libc::ESRCH)));
}
