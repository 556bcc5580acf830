//! Calls that do not come back. How a thread gets into one is in the integration test `stuck_memory`.

use super::super::{
    KilledBy, Watch,
    calls::{Calls, LEFT_MAX, LEFT_OF_OWNER_MAX, OwnerOf},
    worker::Duties,
};
use crate::process::testing::proc_root;
use plimsoll_policy::units::{Pid, Uid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    hint::spin_loop,
    os::fd::AsFd as _,
    sync::{Arc, Weak},
    thread::{self, sleep},
    time::{Duration, Instant},
};

const VICTIM: Pid = Pid(1);

/// All from 100 on are the subordinate uids of 7.
fn calls() -> Calls {
    Calls::new(OwnerOf::new(|uid| if uid.0 >= 100 { Uid(7) } else { uid })).unwrap()
}

/// One that does not come back.
fn leave_one(calls: &Calls, user: u32) -> u64 {
    let number = calls.enter(VICTIM, Duties::default());
    calls.give_up(number, Some(Uid(user)));
    number
}

fn is_passed_over(calls: &Calls, user: u32) -> bool {
    calls.pass_over(KilledBy::Us, || Some(Uid(user)))
}

#[test]
fn what_a_thread_had_to_do_is_anothers_when_it_does_not_come_back() {
    let calls = calls();
    let number = calls.enter(VICTIM, Duties::default());
    assert!(calls.take_over().is_none(), "it may come back");
    calls.give_up(number, None);
    assert!(calls.take_over().is_some());
    assert!(calls.take_over().is_none(), "two threads do the same");
    assert!(calls.leave(number).is_none(), "it goes on with what is another's");
}

#[test]
fn one_that_came_back_is_not_replaced() {
    let calls = calls();
    let number = calls.enter(VICTIM, Duties::default());
    assert!(calls.leave(number).is_some());
    calls.give_up(number, None);
    assert!(calls.take_over().is_none());
    assert!(!is_passed_over(&calls, 7));
}

#[test]
fn each_owner_has_a_share_of_the_threads_that_are_left() {
    let calls = calls();
    assert!(!calls.pass_over(KilledBy::Us, || unreachable!("nobody is left: nobody is asked for")));
    // As the owner, and as one of its subordinate uids.
    let first = leave_one(&calls, 7);
    assert!(!is_passed_over(&calls, 7));
    leave_one(&calls, 100);
    assert_eq!(LEFT_OF_OWNER_MAX, 2);
    assert!(is_passed_over(&calls, 7) && is_passed_over(&calls, 101));
    assert!(!is_passed_over(&calls, 8), "another pays for it");
    assert!(!calls.pass_over(KilledBy::Us, || None), "nobody knows whose it is: it is gone");
    assert!(calls.leave(first).is_none());
    assert!(!is_passed_over(&calls, 7) && !is_passed_over(&calls, 100));
}

#[test]
fn what_others_killed_has_half_of_the_threads_that_may_be_left() {
    let calls = calls();
    let is_passed_over = |user: u32, killed_by| calls.pass_over(killed_by, || Some(Uid(user)));
    assert!(!is_passed_over(7, KilledBy::Others));
    leave_one(&calls, 7);
    assert!(is_passed_over(7, KilledBy::Others) && !is_passed_over(7, KilledBy::Us));
    for user in 8..15 {
        assert!(!is_passed_over(50, KilledBy::Others));
        leave_one(&calls, user);
    }
    assert!(is_passed_over(50, KilledBy::Others) && !is_passed_over(50, KilledBy::Us));
}

#[test]
fn with_all_threads_left_that_may_be_nobodys_victim_takes_another() {
    let calls = calls();
    for user in 1..=u32::try_from(LEFT_MAX).unwrap() {
        assert!(!is_passed_over(&calls, 99));
        leave_one(&calls, user);
    }
    assert!(is_passed_over(&calls, 99));
}

/// Looks as often as the timer says until it is quiet; how often that was.
fn look_after(calls: &Arc<Calls>) -> u32 {
    let mut watch = Watch::new(Arc::clone(calls), Weak::new(), proc_root());
    let mut looks = 0;
    let quiet = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    while poll(&mut [PollFd::new(&watch.as_fd(), PollFlags::IN)], Some(&quiet)).unwrap() > 0 {
        watch.look();
        looks += 1;
    }
    looks
}

#[test]
fn one_that_frees_for_long_is_left_in_peace() {
    let calls = Arc::new(calls());
    for works in [|| while_busy(Duration::from_millis(60)), || sleep(Duration::from_millis(60))] {
        let watch = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || look_after(&calls))
        };
        let number = calls.enter(VICTIM, Duties::default());
        works();
        assert!(calls.leave(number).is_some(), "a thread that does not wait for its victim was left to it");
        assert!(watch.join().unwrap() >= 2, "nobody looked after it");
    }
}

#[test]
fn nobody_has_to_look_while_nobody_is_inside() {
    let calls = Arc::new(calls());
    assert_eq!(look_after(&calls), 0);
    for _ in 0..100 {
        let number = calls.enter(VICTIM, Duties::default());
        assert!(calls.leave(number).is_some());
    }
    // The timer of the first is that of all, and is set anew for nobody.
    assert_eq!(look_after(&calls), 1);
}

fn while_busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}
