use super::*;
use zerocopy::IntoBytes as _;

fn site() -> abi::plimsoll_frag_site {
    let mut site = abi::plimsoll_frag_site { stack: 7, order: 3, gfp: 0x40dc0, user: 1000, comm: [0; 16] };
    site.comm[..7].copy_from_slice(b"dumpsys");
    site
}

const COUNTS: abi::plimsoll_frag_counts =
    abi::plimsoll_frag_counts { requests: 9, failures: 1, stalls: 2, stalled_ns: 50, longest_ns: 30 };

#[test]
fn a_site_and_its_counts_are_read() {
    let (site, mut counts) = decode(site().as_bytes(), COUNTS.as_bytes()).unwrap();
    assert_eq!((site.stack, site.order, site.gfp, site.user), (Some(7), 3, 0x40dc0, Uid(1000)));
    assert_eq!(site.comm.unwrap().as_bytes(), b"dumpsys");
    assert_eq!((counts.requests, counts.failures, counts.longest), (9, 1, Nanos(30)));
    counts.add(&Counts { longest: Nanos(20), requests: 1, ..Counts::default() });
    assert_eq!((counts.requests, counts.longest), (10, Nanos(30)));
}

#[test]
fn what_was_not_kept_is_not_known() {
    let (site, _) =
        decode(abi::plimsoll_frag_site { stack: -1, comm: [0; 16], ..site() }.as_bytes(), COUNTS.as_bytes())
            .unwrap();
    assert_eq!((site.stack, site.comm), (None, None));
}

#[test]
fn what_no_request_can_be_is_refused() {
    let odd = abi::plimsoll_frag_site { order: 32, ..site() };
    let field = RecordError::Field { what: "a site of requests", field: "order" };
    assert_eq!(decode(odd.as_bytes(), COUNTS.as_bytes()), Err(field));
    assert!(matches!(decode(&[0; 31], COUNTS.as_bytes()), Err(RecordError::Length { .. })));
    assert!(matches!(decode(site().as_bytes(), &[0; 8]), Err(RecordError::Length { .. })));
}
