use super::*;
use crate::guard::account;

const STAFF: Counted = Counted::Group(Gid(50));

/// Of a group, and of two members who use so much.
fn accounts(group: i64, members: [i64; 2]) -> Vec<AccountFacts> {
    let facts = |index: u32, whose: Counted, above: u32, usage: i64| AccountFacts {
        index,
        whose,
        user: whose.user(),
        above: [0, above, 0, 0],
        counts: Counts { usage, processes: 1, ..Counts::default() },
        ..account(0, 0)
    };
    let [one, other] = members;
    let group = AccountFacts {
        counts: Counts { usage: group, processes: 2, ..Counts::default() },
        ..facts(3, STAFF, 0, 0)
    };
    vec![facts(1, Counted::User(Uid(7)), 3, one), group, facts(2, Counted::User(Uid(8)), 3, other)]
}

fn known(accounts: &[AccountFacts]) -> Groups {
    let mut groups = Groups::default();
    groups.renew(accounts);
    groups
}

#[test]
fn whose_processes_are_charged_to_a_group_goes_by_what_its_members_accounts_say() {
    let mut all = accounts(30, [10, 20]);
    all.push(AccountFacts { index: 9, whose: Counted::User(Uid(9)), user: Some(Uid(9)), ..account(0, 0) });
    let groups = known(&all);
    assert_eq!(groups.users_of(STAFF), [Uid(7), Uid(8)]);
    assert_eq!(groups.users_of(Counted::User(Uid(9))), [Uid(9)]);
    assert_eq!(groups.users_of(Counted::Group(Gid(51))), []);
    let charged = [1, 2, 9].map(|leaf| groups.is_charged(leaf, &all[1]));
    assert_eq!(charged, [true, true, false]);
    assert_eq!(groups.beside(Counted::User(Uid(8))), [Counted::User(Uid(8)), STAFF]);
    assert_eq!(groups.beside(Counted::User(Uid(9))), [Counted::User(Uid(9))]);
    assert_eq!(groups.beside(STAFF), [STAFF, Counted::User(Uid(7)), Counted::User(Uid(8))]);
    let near = BTreeSet::from([STAFF, Counted::User(Uid(9))]);
    assert_eq!(groups.users_of_all(&near), BTreeSet::from([Uid(7), Uid(8), Uid(9)]));
}

#[test]
fn a_difference_is_corrected_once_two_looks_apart_have_found_the_same() {
    let all = accounts(25, [10, 20]);
    let mut groups = known(&all);
    let more = Counts { usage: 5, ..Counts::default() };
    let later = Nanos(LOOKS_APART.0 + 1);
    assert_eq!(groups.differences(&all, Nanos(1)), []);
    assert!(groups.differ());
    assert_eq!(groups.differences(&all, Nanos(2)), [], "too soon");
    // Taken in again, it is known still.
    groups.renew(&all);
    assert_eq!(groups.differences(&all, later), [(3, Gid(50), more)]);
    assert!(!groups.differ());
}

#[test]
fn what_users_do_once_the_counts_agreed_is_never_corrected_until_the_members_are_others() {
    let mut groups = known(&accounts(30, [10, 20]));
    assert_eq!(groups.differences(&accounts(30, [10, 20]), Nanos(1)), []);
    let mut off = accounts(25, [10, 20]);
    for turn in 1..5 {
        groups.renew(&off);
        assert_eq!(groups.differences(&off, Nanos(LOOKS_APART.0 * turn * 2)), []);
        assert!(!groups.differ());
    }
    off.pop();
    groups.renew(&off);
    assert_eq!(groups.differences(&off, Nanos(1)), []);
    assert!(groups.differ());
}

#[test]
fn what_is_under_way_is_no_difference() {
    let mut groups = known(&accounts(25, [10, 20]));
    for (turn, usage) in [25, 26, 30, 25].into_iter().enumerate() {
        let now = Nanos(LOOKS_APART.0 * (turn as u64 + 1) * 2);
        assert_eq!(groups.differences(&accounts(usage, [10, 20]), now), []);
    }
    assert_eq!(groups.differences(&accounts(30, [10, 20]), Nanos(u64::MAX)), []);
    assert!(!groups.differ());
}
