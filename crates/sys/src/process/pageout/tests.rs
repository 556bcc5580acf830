use super::{PAGE_OUT_BATCH_BYTES, PageOutEnd, PageOutOrder, Range, Work, whole_ranges};
use crate::process::{
    ProcessError, clock_monotonic_ns,
    testing::{Guest, proc_root},
};
use plimsoll_policy::units::Bytes;
use std::{os::fd::AsFd as _, time::Duration};

const LONG: Duration = Duration::from_secs(60);

fn work(guest: &crate::process::PidFd, bytes: u64, budget: Duration) -> Work<'_> {
    let budget_ns = u64::try_from(budget.as_nanos()).unwrap();
    Work {
        pid: guest.pid(),
        pidfd: guest.as_fd(),
        end_ns: clock_monotonic_ns() + budget_ns,
        left: bytes,
        advised: 0,
        refused: 0,
        ranges: Vec::new(),
        held: 0,
    }
}

#[test]
fn advice_goes_up_to_the_bytes_that_were_ordered_and_no_further() {
    let guest = Guest::holding(40);
    let pidfd = guest.pidfd();
    let bytes = 2 * PAGE_OUT_BATCH_BYTES + 4096;
    let mut work = work(&pidfd, bytes, LONG);
    let end = proc_root().advise_mappings(guest.pid(), &mut work).unwrap();
    assert_eq!((end, work.advised, work.refused), (PageOutEnd::Bytes, bytes, 0));
}

#[test]
fn all_of_a_process_is_advised_where_more_was_ordered_than_it_has() {
    let guest = Guest::holding(24);
    let pidfd = guest.pidfd();
    let mut work = work(&pidfd, 1 << 40, LONG);
    assert_eq!(proc_root().advise_mappings(guest.pid(), &mut work).unwrap(), PageOutEnd::Whole);
    assert!(work.advised >= 24 << 20, "{}", work.advised);
    assert!(work.advised < 40 << 20, "{}", work.advised);
}

#[test]
fn without_time_nothing_is_advised() {
    let guest = Guest::holding(24);
    let pidfd = guest.pidfd();
    let mut work = work(&pidfd, 1 << 40, Duration::ZERO);
    let end = proc_root().advise_mappings(guest.pid(), &mut work).unwrap();
    assert_eq!((end, work.advised), (PageOutEnd::Stopped, 0));
}

#[test]
fn a_range_that_the_kernel_refuses_keeps_no_other_from_being_advised() {
    let guest = Guest::holding(24);
    let pidfd = guest.pidfd();
    let mut work = work(&pidfd, 1 << 40, LONG);
    // Nothing is mapped there.
    assert!(work.add(1 << 46, 4096).is_ok());
    let _end = proc_root().advise_mappings(guest.pid(), &mut work).unwrap();
    assert_eq!(work.refused, 1);
    assert!(work.advised >= 24 << 20, "{}", work.advised);
}

#[test]
fn a_process_that_went_ends_it() {
    let mut guest = Guest::holding(24);
    let pidfd = guest.pidfd();
    let mut work = work(&pidfd, 1 << 40, LONG);
    guest.bury();
    assert!(work.add(1 << 46, 4096).is_ok());
    assert!(matches!(work.flush(), Err(super::Stop::End(PageOutEnd::Exited))));
}

#[test]
fn how_far_the_kernel_came_is_told_in_whole_ranges() {
    let ranges = [4096, 8192, 4096].map(|bytes| Range { start: 4096, bytes });
    for (done, whole) in [(0, 0), (4095, 0), (4096, 1), (12_287, 1), (12_288, 2), (16_384, 3)] {
        assert_eq!(whole_ranges(&ranges, done), whole, "{done}");
    }
}

#[test]
fn without_swap_paging_out_is_unsupported() {
    let mut root = proc_root();
    if root.read_meminfo().unwrap().swap_free.is_some_and(|free| free.0 > 0) {
        return crate::process::testing::skip("there is swap here");
    }
    let guest = Guest::asleep();
    let order = PageOutOrder { bytes: Bytes(1 << 20), budget: LONG };
    let error = root.page_out(&guest.pidfd(), &order).unwrap_err();
    assert!(matches!(error, ProcessError::Unsupported { .. }), "{error}");
}
