use super::{Stamper, Stamps};

#[test]
fn what_one_side_stamps_the_other_reads_in_order_until_it_is_cleared() {
    let stamps = Stamps::create(16).unwrap();
    let stamper = Stamper::open(&stamps.path()).unwrap();
    for index in [0, 1, 9] {
        stamper.stamp(index).unwrap();
    }
    let read = stamps.read().unwrap();
    assert_eq!(read.len(), 3);
    assert!(read.is_sorted() && read[0] > 0);
    stamps.clear().unwrap();
    assert_eq!(stamps.read().unwrap(), Vec::<u64>::new());
}
