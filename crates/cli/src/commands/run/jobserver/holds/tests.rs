use super::*;
use plimsoll_policy::{
    jobserver::{Program, Seen},
    units::{Bytes, Nanos},
};

fn id(pid: u32) -> VictimId {
    // Nobody has such a number.
    VictimId { pid: Pid((1 << 30) + pid), start_ns: 1 }
}

fn member(pid: u32, parent: u32, is_stopped: bool) -> Member {
    let seen = Seen {
        id: id(pid),
        parent: id(parent).pid,
        program: Program { device: 1, inode: 1 },
        usage: Bytes(0),
        cpu: Nanos(0),
        may_be_held: true,
    };
    Member { seen, is_stopped, threads: 1 }
}

fn holds() -> Holds {
    Holds::new(ProcRoot::open(Path::new("/proc")).unwrap())
}

#[test]
fn whom_somebody_else_has_stopped_is_left_alone_and_who_followed_one_that_is_held_goes_on_with_it() {
    // 2 started 3, which started 4, which is held; 5 was stopped by somebody else before, and 6 never.
    let mut holds = holds();
    let mut members = [member(5, 2, true), member(6, 2, false)];
    holds.leave_others_alone(&mut members);
    assert_eq!(members.map(|member| member.seen.may_be_held), [false, true]);
    holds.held.insert(id(4));
    let mut members = [
        member(2, 1, false),
        member(3, 2, true),
        member(4, 3, true),
        member(5, 2, true),
        member(6, 2, false),
    ];
    holds.leave_others_alone(&mut members);
    assert_eq!(members.map(|member| member.seen.may_be_held), [true, false, true, false, true]);
    assert_eq!((&holds.followed, &holds.others), (&BTreeSet::from([id(3)]), &BTreeSet::from([id(5)])));
    // With the last one below it it goes on as well.
    holds.hold(&BTreeSet::new(), &members);
    assert!(holds.held.is_empty() && holds.followed.is_empty() && holds.heir.is_none());
}

#[test]
fn one_that_cannot_be_held_is_not_tried_again_at_once() {
    let mut holds = holds();
    let mut members = [member(2, 1, false)];
    holds.hold(&BTreeSet::from([id(2)]), &members);
    assert!(holds.held.is_empty());
    holds.leave_others_alone(&mut members);
    assert!(!members[0].seen.may_be_held);
}

#[test]
fn all_who_have_an_ancestor_in_common_are_found_once() {
    let members = [member(2, 1, false), member(3, 2, false), member(4, 3, false), member(5, 3, false)];
    let pids = [1, 2, 3].map(|pid| id(pid).pid);
    assert_eq!(above(&BTreeSet::from([id(4), id(5)]), &members), BTreeSet::from(pids));
    assert_eq!(list('+', [id(4)].iter()), format!("+{} 1\n", id(4).pid));
}
