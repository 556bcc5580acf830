use super::*;
use plimsoll_policy::units::{Nanos, Pages, Pid};
use plimsoll_wire::{marked::Invoker, text::Comm};

#[test]
fn whom_the_log_names_was_killed_whatever_the_count_says() {
    let mut credit = Credit::from(Some(5));
    assert_eq!(credit.killed(&[true, true], Some(5)), [true, true]);
    assert_eq!(Credit::from(None).killed(&[false, true], None), [true, true]);
}

#[test]
fn a_mark_that_was_neither_counted_nor_named_is_of_one_that_was_dying_already() {
    let mut credit = Credit::from(Some(5));
    assert_eq!(credit.killed(&[false], Some(5)), [false]);
    assert_eq!(credit.killed(&[true, false], Some(6)), [true, false]);
    assert_eq!(credit.killed(&[false, true, false], Some(8)), [true, true, false]);
}

#[test]
fn a_kill_that_was_counted_before_it_was_marked_is_one_of_the_next_batch_and_no_later_one() {
    let mut credit = Credit::from(Some(0));
    assert_eq!(credit.killed(&[true], Some(2)), [true]);
    assert_eq!(credit.killed(&[false], Some(2)), [true]);
    assert_eq!(credit.killed(&[false], Some(2)), [false]);
}

#[test]
fn where_the_kernel_does_not_count_every_mark_is_a_kill() {
    let mut credit = Credit::from(None);
    assert_eq!(credit.killed(&[false, false], Some(7)), [true, true], "of before we looked");
    assert_eq!(credit.killed(&[false], Some(7)), [false]);
    assert_eq!(credit.killed(&[false], None), [true]);
}

fn mark(thread: u32, exiting: bool) -> Marked {
    let invoker = Invoker { pid: Pid(1), thread: Pid(1), uid: Uid(0), comm: Comm::from_bytes(b"dd") };
    Marked { time: Nanos(1), number: 1, thread: Pid(thread), victim: None, exiting, cgroup: None, invoker }
}

#[test]
fn who_was_dying_already_uses_up_no_count_and_is_a_kill_only_where_the_log_says_so() {
    let marks = [mark(1, true), mark(2, false), mark(3, true)];
    let marks = candidates(marks.iter().zip([false, false, true]));
    let named: Vec<bool> = marks.iter().map(|(_, named)| *named).collect();
    let threads: Vec<u32> = marks.iter().map(|(marked, _)| marked.thread.0).collect();
    assert_eq!((threads, named.as_slice()), (vec![2, 3], [false, true].as_slice()));
    assert_eq!(Credit::from(Some(5)).killed(&named, Some(7)), [true, true]);
}

fn deed(uid: u32, reason: Reason, victim: Option<u32>) -> ArrangedKill {
    let victim = victim.map(|pid| (VictimId { pid: Pid(pid), start_ns: 1 }, Pages(9)));
    ArrangedKill { uid: Uid(uid), reason, victim }
}

fn take(deeds: &mut Vec<ArrangedKill>, pid: u32, uid: u32) -> Option<ArrangedKill> {
    let id = VictimId { pid: Pid(pid), start_ns: 1 };
    arranged(deeds, Some(id), Some(Uid(uid)), |one, other| one == other)
}

#[test]
fn a_deed_is_one_kill_s_by_its_victim_else_by_its_user() {
    let (max, out) = (Reason::LastDefenceMemoryMax, Reason::LastDefenceOutOfMemory);
    let mut deeds = vec![deed(1, max, None), deed(1, out, Some(7)), deed(2, max, Some(8))];
    assert_eq!(take(&mut deeds, 7, 1), Some(deed(1, out, Some(7))));
    assert_eq!(take(&mut deeds, 9, 3), None);
    assert_eq!(take(&mut deeds, 9, 1), Some(deed(1, max, None)));
    assert_eq!(take(&mut deeds, 9, 1), None);
    // The slice's count is certain, the process that was raised in it only likely.
    assert_eq!(take(&mut deeds, 9, 2), Some(deed(2, max, Some(8))));
    // A raised process that ended is one that the kernel took, or it is not told.
    let mut raised = vec![deed(1, out, Some(7))];
    assert_eq!(take(&mut raised, 9, 1), None);
}
