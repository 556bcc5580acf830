use super::{BLOCK_PAGES, Blocks};
use crate::{units::Pages, workingset::CHUNK_PAGES};
use proptest::{prelude::any, prop_assert_eq, proptest};

#[test]
fn a_chunk_has_32_blocks() {
    assert_eq!(BLOCK_PAGES * 32, CHUNK_PAGES);
    assert_eq!(Blocks::ALL.pages(Pages(CHUNK_PAGES)), Pages(CHUNK_PAGES));
    assert!(!Blocks::ALL.contains(CHUNK_PAGES));
}

proptest! {
    #[test]
    fn its_pages_are_those_that_it_contains(set in any::<u32>(), of in 0_u64..=CHUNK_PAGES) {
        let blocks = Blocks(set);
        let counted = (0..of).filter(|page| blocks.contains(*page)).count();
        prop_assert_eq!(blocks.pages(Pages(of)), Pages(counted as u64));
    }

    #[test]
    fn one_covers_another_where_each_page_of_it_is_in_it(one in any::<u32>(), other in any::<u32>()) {
        let (one, other) = (Blocks(one), Blocks(other));
        let each = (0..CHUNK_PAGES).all(|page| one.contains(page) || !other.contains(page));
        prop_assert_eq!(one.covers(other), each);
        prop_assert_eq!((one | other).covers(other), true);
    }
}
