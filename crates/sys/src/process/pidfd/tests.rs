use super::*;
use crate::process::testing::{Guest, proc_root, wait_for_exit};
use std::{sync::mpsc::channel, thread};

#[test]
fn a_process_is_held_when_number_and_start_time_are_its_own() {
    let guest = Guest::asleep();
    let pidfd = PidFd::open_verified(&proc_root(), guest.pid(), guest.start_ns()).unwrap();
    assert_eq!(pidfd.pid(), guest.pid());
    assert_eq!(pidfd.has_exited(), Ok(false));
}

#[test]
fn any_nanosecond_of_the_tick_it_started_in_is_its_start_time() {
    let guest = Guest::asleep();
    let within_ns = guest.start_ns() + tick_ns() - 1;
    PidFd::open_verified(&proc_root(), guest.pid(), within_ns).unwrap();
}

#[test]
fn a_number_that_was_given_to_another_process_is_not_opened() {
    let guest = Guest::asleep();
    for other_ns in [0, guest.start_ns() - 1, guest.start_ns() + tick_ns(), u64::MAX] {
        let opened = PidFd::open_verified(&proc_root(), guest.pid(), other_ns);
        assert_eq!(opened.err(), Some(ProcessError::Vanished(guest.pid())), "start {other_ns} ns was taken");
    }
}

#[test]
fn a_number_of_nobody_and_of_a_mere_thread_is_a_process_that_is_gone() {
    let mut guest = Guest::asleep();
    guest.bury();
    assert_eq!(PidFd::open(guest.pid()).err(), Some(ProcessError::Vanished(guest.pid())));

    let (tell, told) = channel();
    let (done, wait) = channel::<()>();
    let thread = thread::spawn(move || {
        tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
        wait.recv().unwrap_err();
    });
    let link = told.recv().unwrap();
    let number = Pid(link.file_name().unwrap().to_str().unwrap().parse().unwrap());
    assert_eq!(PidFd::open(number).err(), Some(ProcessError::Vanished(number)));
    drop(done);
    thread.join().unwrap();
}

#[test]
fn numbers_that_no_process_can_have_are_refused() {
    for number in [0, u32::MAX, 1 << 31] {
        assert!(matches!(PidFd::open(Pid(number)), Err(ProcessError::Failed { .. })), "{number} was taken");
    }
}

#[test]
fn a_kill_ends_the_process_and_makes_its_descriptor_readable() {
    let guest = Guest::asleep();
    let pidfd = guest.pidfd();
    assert_eq!(pidfd.wait_exit(Duration::from_millis(1)), Ok(false));
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    assert_eq!(pidfd.try_clone().unwrap().has_exited(), Ok(true));
}

#[test]
fn a_term_can_be_caught_and_a_kill_cannot() {
    let guest = Guest::shell("trap 'echo caught' TERM; echo ready; while :; do read line; done");
    guest.wait_until("the trap is set", |_, pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        // Until it executes the shell, it catches what this program catches.
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
    });
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Term).unwrap();
    assert_eq!(pidfd.wait_exit(Duration::from_millis(100)), Ok(false));
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
}

#[test]
fn a_signal_to_a_process_that_was_waited_for_reaches_nobody() {
    let mut guest = Guest::asleep();
    let pidfd = guest.pidfd();
    guest.bury();
    assert_eq!(pidfd.send_signal(Signal::Kill), Err(ProcessError::Vanished(guest.pid())));
    assert_eq!(pidfd.has_exited(), Ok(true));
}

#[test]
fn memory_of_a_process_that_is_not_dying_is_not_taken() {
    let guest = Guest::holding(8);
    assert_eq!(guest.pidfd().reap(), Reap::NotDying);
    assert_eq!(guest.pidfd().has_exited(), Ok(false));
}

#[test]
fn memory_of_a_killed_process_is_freed_by_whoever_asks_first() {
    // The victim frees its memory too, as soon as it runs: now and then it is first.
    let reaped = (0..10).any(|_| {
        let guest = Guest::holding(96);
        let pidfd = guest.pidfd();
        pidfd.send_signal(Signal::Kill).unwrap();
        let result = pidfd.reap();
        assert!(matches!(result, Reap::Reaped | Reap::AlreadyGone), "{result:?}");
        wait_for_exit(&pidfd);
        result == Reap::Reaped
    });
    assert!(reaped, "ten victims were all faster than the reaping of 96 MiB");
}

#[test]
fn a_process_that_has_exited_has_nothing_left_to_free() {
    let guest = Guest::asleep();
    let pidfd = guest.pidfd();
    pidfd.send_signal(Signal::Kill).unwrap();
    wait_for_exit(&pidfd);
    assert_eq!(pidfd.reap(), Reap::AlreadyGone);
}
