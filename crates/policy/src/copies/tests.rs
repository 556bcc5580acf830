use super::{Member, copied};
use crate::units::Pages;
use proptest::prelude::*;
use std::{vec, vec::Vec};

fn member(proportional: u64, own: u64) -> Member {
    Member { proportional: Pages(proportional), own: Pages(own) }
}

#[test]
fn a_fork_that_nobody_wrote_after_has_no_copies() {
    assert_eq!(copied(Pages(100), Pages(200), &[member(50, 0), member(50, 0)]), Pages(0));
}

#[test]
fn what_a_child_wrote_to_is_there_twice() {
    // 40 of 100 pages copied: the child has 40 and half of 60, the parent 40 and the other half.
    assert_eq!(copied(Pages(100), Pages(200), &[member(70, 0), member(70, 0)]), Pages(40));
}

#[test]
fn what_a_member_allocated_itself_is_no_copy() {
    assert_eq!(copied(Pages(100), Pages(200), &[member(50, 0), member(550, 500)]), Pages(0));
}

#[test]
fn a_member_that_is_left_out_makes_it_less_never_more() {
    let all = [member(70, 0), member(70, 0)];
    assert!(copied(Pages(100), Pages(200), &all[..1]) <= copied(Pages(100), Pages(200), &all));
}

#[test]
fn a_member_that_was_not_read_counts_by_what_is_known_of_it() {
    let unread = |copied| Member::unread(Pages(7), Pages(100), Pages(copied), 2);
    // Nothing copied, 40, everything; more than everything is no more.
    assert_eq!(
        [unread(0), unread(40), unread(100), unread(500)],
        [57, 77, 107, 107].map(|held| member(held, 7))
    );
    assert_eq!(copied(Pages(100), Pages(200), &[member(70, 0), unread(40)]), Pages(40));
    assert_eq!(copied(Pages(100), Pages(200), &[member(100, 0), unread(100)]), Pages(100));
    assert_eq!(Member::unread(Pages(0), Pages(100), Pages(0), 0), member(100, 0));
}

#[test]
fn a_member_that_was_read_before_counts_as_it_was_read_however_many_there_are_by_now() {
    // Idle: a hundredth of 100 pages, none of them copied.
    assert_eq!(member(8, 7).copies(Pages(100), 100), Pages(0));
    // 40 copied: 40 and a hundredth of 60, rounded down.
    let copies = member(47, 7).copies(Pages(100), 100);
    assert_eq!(copies, Pages(39));
    assert_eq!(Member::unread(Pages(7), Pages(100), copies, 100), member(46, 7));
    // Read while there were two: that they are a hundred now makes no copies.
    assert_eq!(Member::unread(Pages(0), Pages(100), member(50, 0).copies(Pages(100), 2), 100), member(1, 0));
    assert_eq!([0, 1].map(|members| member(100, 0).copies(Pages(100), members)), [Pages(0); 2]);
}

proptest! {
    #[test]
    fn no_more_than_everything_copied(
        charged in 0_u64..1 << 40,
        more in 0_u64..1 << 40,
        members in prop::collection::vec((any::<u64>(), any::<u64>()), 0..8),
    ) {
        let members: Vec<Member> = members.into_iter().map(|(held, own)| member(held, own)).collect();
        let found = copied(Pages(charged), Pages(charged + more), &members);
        prop_assert!(found <= Pages(more));
    }

    /// Whatever was copied of pages that all members share is found, to a page for each member's rounding.
    #[test]
    fn the_kernels_proportional_sizes_tell_the_copies(
        pages in prop::collection::vec(0_usize..16, 1..200),
        members in 2_usize..6,
    ) {
        // Each page: which members copied it, as bits. The last one never did: it has the original. In sixtieths of a
        // page, which up to six members part without a rest.
        let mut held = vec![0_u64; members];
        let mut copies = 0;
        for bits in &pages {
            let copiers: Vec<usize> = (0..members - 1).filter(|one| bits & (1 << one) != 0).collect();
            copies += copiers.len() as u64;
            let sharers = (members - copiers.len()) as u64;
            for (one, place) in held.iter_mut().enumerate() {
                *place += if copiers.contains(&one) { 60 } else { 60 / sharers };
            }
        }
        let read: Vec<Member> = held.iter().map(|sixtieths| member(sixtieths / 60, 0)).collect();
        let charged = pages.len() as u64;
        let found = copied(Pages(charged), Pages(charged * members as u64), &read).0;
        prop_assert!(found <= copies && found + members as u64 >= copies, "{found} of {copies}");
    }
}
