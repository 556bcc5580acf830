use super::{HeldFolder, without_sys_resource};
use crate::process::{
    ProcessError,
    testing::{Guest, proc_root},
};
use plimsoll_policy::victim::VictimId;
use rustix::thread::{CapabilitySet, capabilities};

fn id(guest: &Guest) -> VictimId {
    VictimId { pid: guest.pid(), start_ns: guest.start_ns() }
}

#[test]
fn a_child_is_raised_and_put_back_without_any_capability() {
    let guest = Guest::asleep();
    without_sys_resource(|given_up| {
        given_up.unwrap();
        let held = HeldFolder::open(&proc_root(), id(&guest)).unwrap();
        let before = held.oom_score_adj().unwrap();
        held.set_oom_score_adj(before + 300).unwrap();
        assert_eq!(held.oom_score_adj().unwrap(), before + 300);
        held.set_oom_score_adj(before).unwrap();
        assert_eq!(held.oom_score_adj().unwrap(), before);
        let lower = held.set_oom_score_adj(before - 1);
        assert!(matches!(lower, Err(ProcessError::Denied { .. })), "{lower:?}");
    });
}

#[test]
fn a_process_of_another_start_time_is_not_held() {
    let guest = Guest::asleep();
    let later = VictimId { start_ns: guest.start_ns() + 50_000_000, ..id(&guest) };
    let other = HeldFolder::open(&proc_root(), later);
    assert!(matches!(other, Err(ProcessError::Vanished(_))), "{other:?}");
}

#[test]
fn a_folder_that_is_held_reaches_no_later_process_of_the_same_number() {
    let mut guest = Guest::asleep();
    let held = HeldFolder::open(&proc_root(), id(&guest)).unwrap();
    guest.bury();
    assert!(matches!(held.oom_score_adj(), Err(ProcessError::Vanished(_))));
    assert!(matches!(held.set_oom_score_adj(500), Err(ProcessError::Vanished(_))));
}

#[test]
fn only_the_calling_thread_goes_without_and_has_it_back() {
    let has_it = || capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE);
    let had = capabilities(None).unwrap();
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || asked.recv().map(|()| capabilities(None).unwrap()).unwrap());
    without_sys_resource(|given_up| {
        given_up.unwrap();
        assert!(!has_it());
        ask.send(()).unwrap();
        assert_eq!(other.join().unwrap(), had);
    });
    assert_eq!(capabilities(None).unwrap(), had);
}
