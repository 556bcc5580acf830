use super::*;
use alloc::vec;
use proptest::prelude::*;

/// `GFP_KERNEL`: reclaim by oneself and by kswapd, I/O, file systems.
const KERNEL: u32 = 0xcc0;
/// `GFP_ATOMIC` of 6.12.
const ATOMIC: u32 = 0x820;

#[test]
fn what_a_failure_does_goes_by_the_order_and_the_flags() {
    use OnFailure::{Fails, FallsBack, Forces};
    for (flags, order, expected) in [
        // binder's array of pages, as the seed's phone asked for it: GFP_KERNEL|__GFP_COMP|__GFP_ZERO.
        (0x40dc0, 3, Forces),
        (KERNEL, 4, Fails),
        (KERNEL | gfp::NOFAIL, 9, Forces),
        // kvmalloc up to 6.12, and its way in 7.2.
        (KERNEL | gfp::NORETRY | gfp::NOWARN, 3, FallsBack),
        ((KERNEL & !gfp::DIRECT_RECLAIM) | gfp::NOWARN, 3, FallsBack),
        (ATOMIC, 2, Fails),
        (ATOMIC | gfp::NOWARN, 2, FallsBack),
        (KERNEL | gfp::RETRY_MAYFAIL, 2, Fails),
        (KERNEL | gfp::THISNODE, 2, Fails),
        (KERNEL | 0x4, 3, Fails),
        (0x1c_24ca, 9, FallsBack),
        // GFP_NOFS: nobody is killed, and it does not fail.
        (KERNEL & !gfp::FS, 3, Forces),
    ] {
        assert_eq!(OnFailure::of(flags, order), expected, "{flags:#x}, order {order}");
    }
}

#[test]
fn the_seeds_phone_had_no_block_of_order_three() {
    // Normal: 3313*4kB 165*8kB 35*16kB 15*32kB, and nothing larger.
    let blocks = Blocks::new(vec![3313, 165, 35, 15, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(blocks.free(), Pages(3313 + 330 + 140 + 120));
    assert_eq!((blocks.suitable(3), blocks.suitable(2), blocks.suitable(4)), (15, 65, 0));
    assert_eq!(blocks.index_permille(3), None);
    // As extfrag_index shows for order 4: 1000 - (1000 + 3903 * 1000 / 16) / 3528.
    assert_eq!(blocks.index_permille(4), Some(931));
    // 3783 of 3903 pages are in smaller blocks.
    assert_eq!(blocks.unusable_permille(3), 969);
}

#[test]
fn without_memory_it_is_no_matter_of_fragmentation() {
    let none = Blocks::new(vec![0; 11]);
    assert_eq!((none.index_permille(3), none.unusable_permille(3), none.free()), (Some(0), 1000, Pages(0)));
    let little = Blocks::new(vec![1, 0, 0]);
    assert_eq!(little.index_permille(2), Some(-250));
    assert_eq!(Blocks::default().index_permille(70), Some(0));
}

#[test]
fn what_goes_is_gone_in_as_long_as_it_lasts() {
    assert_eq!(gone_in(100, 75, Nanos(10)), Some(Nanos(30)));
    assert_eq!(gone_in(100, 0, Nanos(10)), Some(Nanos(0)));
    assert_eq!((gone_in(100, 100, Nanos(10)), gone_in(100, 101, Nanos(10))), (None, None));
}

proptest! {
    #[test]
    fn measures_stay_within_what_they_can_be(counts in prop::collection::vec(0_u64..1 << 40, 0..14), order in 0_u32..20) {
        let blocks = Blocks::new(counts.clone());
        prop_assert!(blocks.unusable_permille(order) <= 1000);
        prop_assert_eq!(blocks.index_permille(order).is_none(), blocks.suitable(order) > 0);
        prop_assert!(blocks.index_permille(order).is_none_or(|index| index <= 1000));
        let mut twice = blocks.clone();
        twice.add(&blocks);
        prop_assert_eq!(twice.free().0, blocks.free().0 * 2);
        prop_assert!(blocks.suitable(order + 1) * 2 <= blocks.suitable(order));
    }
}
