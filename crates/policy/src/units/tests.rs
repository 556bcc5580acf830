use super::{Bytes, PageSize, Pages};
use proptest::{prelude::any, proptest};

#[test]
fn only_the_page_sizes_that_linux_has_are_accepted() {
    for bytes in [4096, 8192, 16384, 32768, 65536] {
        assert_eq!(PageSize::from_bytes(bytes).map(PageSize::bytes), Some(Bytes(bytes)));
    }
    for bytes in [0, 1, 2048, 4095, 5000, 131_072, u64::MAX] {
        assert_eq!(PageSize::from_bytes(bytes), None);
    }
}

proptest! {
    #[test]
    fn bytes_become_pages_rounded_down(bytes: u64, size in 12_u32..=16) {
        let page_size = PageSize::from_bytes(1 << size).unwrap();
        let back = page_size.to_bytes(page_size.to_pages(Bytes(bytes)));
        assert!(back <= Bytes(bytes));
        assert!(bytes - back.0 < 1 << size);
    }

    #[test]
    fn subtraction_stops_at_zero(a in any::<u64>(), b in any::<u64>()) {
        assert_eq!(Pages(a).saturating_sub(Pages(b)).0, a.saturating_sub(b));
        assert_eq!(Bytes(a).saturating_sub(Bytes(b)).0, a.saturating_sub(b));
    }
}
