use super::{Tier, fits, kept_for_copies, room};
use crate::units::Pages;
use proptest::{prop_assert_eq, proptest};

mod scenarios;

#[test]
fn a_request_is_granted_up_to_the_line_less_the_headroom_and_not_a_page_more() {
    let fits = |usage, request| fits(Pages(usage), Pages(request), Pages(10), Pages(100));
    assert!(fits(80, 10));
    assert!(!fits(80, 11));
    assert!(!fits(91, 1));
    assert!(!fits(u64::MAX, 1));
    assert!(!fits(1, u64::MAX));
}

#[test]
fn what_little_is_inherited_is_kept_whole_and_of_much_the_allowance_for_each_process() {
    let kept = |copyable, processes| kept_for_copies(Pages(copyable), processes, Pages(1024)).0;
    // 32 forked processes that inherit 100 KiB each; a server of 1 GiB with 8 workers; nobody forked.
    assert_eq!(kept(32 * 25, 33), 32 * 25);
    assert_eq!(kept(8 << 18, 9), 9 * 1024);
    assert_eq!((kept(0, 9), kept(10, 0)), (0, 0));
    assert_eq!(kept(u64::MAX, u32::MAX), u64::from(u32::MAX) * 1024);
}

#[test]
fn who_asked_for_a_page_and_took_a_thousand_is_like_everybody_else() {
    let tier = |pages, granted| Tier::of(Pages(pages), Pages(granted), Pages(50));
    assert_eq!(tier(1000, 1), Tier::Upper);
    assert_eq!(tier(1051, 1000), Tier::Upper);
    assert_eq!(tier(1050, 1000), Tier::Lower);
    assert_eq!(tier(10, 0), Tier::Upper);
    assert_eq!(tier(10, u64::MAX), Tier::Lower);
}

proptest! {
    #[test]
    fn what_there_is_room_for_is_granted_and_no_more(
        usage in 0_u64..2000,
        headroom in 0_u64..200,
        hard in 0_u64..2000,
    ) {
        let room = room(Pages(usage), Pages(headroom), Pages(hard));
        let granted = |pages| fits(Pages(usage), Pages(pages), Pages(headroom), Pages(hard));
        prop_assert_eq!(granted(room.0), usage + headroom <= hard || room.0 > 0);
        prop_assert_eq!(granted(room.0 + 1), false);
    }
}
