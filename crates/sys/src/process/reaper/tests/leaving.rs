//! Calls that do not come back. How a thread gets into one is in the integration test `stuck_memory`.

use super::{
    super::{
        calls::{Calls, LEFT_MAX, LEFT_OF_OWNER_MAX, OwnerOf, look_after},
        worker::Duties,
    },
    with_threads,
};
use crate::process::{Reaper, testing::proc_root};
use plimsoll_policy::units::{Pid, Uid};
use std::{
    hint::spin_loop,
    sync::{Arc, Weak},
    thread::{self, sleep},
    time::{Duration, Instant},
};

const VICTIM: Pid = Pid(1);

/// All from 100 on are the subordinate uids of 7.
fn calls() -> Calls {
    Calls::new(OwnerOf::new(|uid| if uid.0 >= 100 { Uid(7) } else { uid }))
}

/// One that does not come back.
fn leave_one(calls: &Calls, user: u32) -> u64 {
    let number = calls.enter(VICTIM, Duties::default());
    calls.give_up(number, Some(Uid(user)));
    number
}

fn is_passed_over(calls: &Calls, user: u32) -> bool {
    calls.pass_over(|| Some(Uid(user)))
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
    assert!(!calls.pass_over(|| unreachable!("nobody is left: nobody is asked for")));
    // As the owner, and as one of its subordinate uids.
    let first = leave_one(&calls, 7);
    assert!(!is_passed_over(&calls, 7));
    leave_one(&calls, 100);
    assert_eq!(LEFT_OF_OWNER_MAX, 2);
    assert!(is_passed_over(&calls, 7) && is_passed_over(&calls, 101));
    assert!(!is_passed_over(&calls, 8), "another pays for it");
    assert!(!calls.pass_over(|| None), "nobody knows whose it is: it is gone");
    assert!(calls.leave(first).is_none());
    assert!(!is_passed_over(&calls, 7) && !is_passed_over(&calls, 100));
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

#[test]
fn one_that_frees_for_long_is_left_in_peace() {
    let calls = Arc::new(calls());
    let watch = {
        let calls = Arc::clone(&calls);
        thread::spawn(move || look_after(&calls, &Weak::new(), &mut proc_root()))
    };
    for works in [|| while_busy(Duration::from_millis(60)), || sleep(Duration::from_millis(60))] {
        let number = calls.enter(VICTIM, Duties::default());
        works();
        assert!(calls.leave(number).is_some(), "a thread that does not wait for its victim was left to it");
    }
    calls.end();
    watch.join().unwrap();
}

fn while_busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

#[test]
fn the_thread_that_looks_after_the_others_ends_with_them() {
    let is_there = |number: &Pid| std::path::Path::new(&format!("/proc/self/task/{number}")).exists();
    let before = super::named("reaper-watch");
    let reaper = Reaper::spawn_with(with_threads(2), |_| ()).unwrap();
    let own: Vec<Pid> =
        super::named("reaper-watch").into_iter().filter(|one| !before.contains(one)).collect();
    assert!(!own.is_empty());
    reaper.stop().unwrap();
    let start = Instant::now();
    while own.iter().any(is_there) {
        assert!(start.elapsed() < super::PATIENCE, "it is still there");
        sleep(Duration::from_millis(2));
    }
}
