use super::*;
use proptest::prelude::*;

fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<u64>().prop_map(Bytes)
}

fn request() -> impl Strategy<Value = Request> {
    let whole = (1..=u64::MAX >> 12).prop_map(|pages| Bytes(pages << 12));
    prop_oneof![
        any::<bool>().prop_map(|watch| Request::Hello { watch }),
        (any::<u32>(), whole, any::<u64>()).prop_map(|(seq, bytes, wait)| Request::Reserve {
            seq,
            bytes,
            patience: Patience::of(wait)
        }),
        Just(Request::Settled),
        bytes().prop_map(|bytes| Request::GaveBack { bytes }),
        (any::<u32>(), bytes()).prop_map(|(seq, bytes)| Request::Recalled { seq, bytes }),
        any::<u32>().prop_map(|seq| Request::Cancel { seq }),
        any::<u32>().prop_map(|seq| Request::Headroom { seq }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let room = prop_oneof![Just(None), (0..u64::MAX).prop_map(|free| Some(Bytes(free)))];
    prop_oneof![
        (12..=16_u32, any::<bool>())
            .prop_map(|(shift, line)| Reply::Welcome { page: Bytes(1 << shift), line }),
        (any::<u32>(), bytes()).prop_map(|(seq, bytes)| Reply::Granted { seq, bytes }),
        (any::<u32>(), 0..4_usize, bytes(), bytes()).prop_map(|(seq, which, usage, line)| Reply::Refused {
            seq,
            refusal: Refusal::ALL[which],
            usage,
            line
        }),
        (any::<u32>(), bytes()).prop_map(|(seq, bytes)| Reply::Recall { seq, bytes }),
        (any::<bool>(), bytes(), bytes()).prop_map(|(reached, usage, soft)| Reply::Soft {
            reached,
            usage,
            soft
        }),
        (any::<u32>(), room).prop_map(|(seq, bytes)| Reply::HeadroomIs { seq, bytes }),
        any::<u32>().prop_map(|errno| Reply::Fault { errno }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(request in request(), reply in reply()) {
        prop_assert_eq!(Request::decode(&request.encode(), page_size()), Ok(request));
        prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(request) = Request::decode(&bytes, page_size()) {
            prop_assert_eq!(Request::decode(&request.encode(), page_size()), Ok(request));
        }
        if let Ok(reply) = Reply::decode(&bytes) {
            prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn neither_side_takes_a_message_of_its_own(request in request(), reply in reply()) {
        prop_assert!(matches!(Reply::decode(&request.encode()), Err(MessageError::Kind(_))));
        prop_assert!(matches!(Request::decode(&reply.encode(), page_size()), Err(MessageError::Kind(_))));
    }
}

/// A message by its fields.
fn message(kind: u32, seq: u32, values: [u64; 3]) -> Message {
    Fields { kind, seq, values }.write()
}

#[test]
fn the_layout_is_the_documented_one() {
    let sent = Request::Reserve { seq: 7, bytes: Bytes(8192), patience: Patience::Endless }.encode();
    let mut expected = Vec::new();
    expected.extend(2_u32.to_ne_bytes());
    expected.extend(7_u32.to_ne_bytes());
    expected.extend(8192_u64.to_ne_bytes());
    expected.extend(u64::MAX.to_ne_bytes());
    expected.extend(0_u64.to_ne_bytes());
    assert_eq!(sent.as_slice(), expected);
}

#[test]
fn another_length_is_no_message() {
    let whole = Request::Settled.encode();
    for length in [0, 1, 31] {
        assert_eq!(Request::decode(&whole[..length], page_size()), Err(MessageError::Length(length)));
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert_eq!(Request::decode(&longer, page_size()), Err(MessageError::Length(33)));
}

#[test]
fn memory_is_asked_for_by_whole_pages() {
    for size in [0, 1, 4095, 4097, u64::MAX] {
        assert_eq!(Request::decode(&message(2, 1, [size, 0, 0]), page_size()), Err(MessageError::Size(size)));
    }
    let large = PageSize::from_bytes(65_536).unwrap();
    assert_eq!(Request::decode(&message(2, 1, [4096, 0, 0]), large), Err(MessageError::Size(4096)));
}

#[test]
fn another_version_and_unknown_flags_are_refused() {
    for version in [0, 2, u64::MAX] {
        let hello = message(1, 0, [version, 0, 0]);
        assert_eq!(Request::decode(&hello, page_size()), Err(MessageError::Version(version)));
    }
    assert_eq!(Request::decode(&message(1, 0, [1, 2, 0]), page_size()), Err(MessageError::Flags(2)));
}

#[test]
fn values_outside_of_their_list_are_refused() {
    for (kind, value) in [(131, 0), (131, 5), (133, 2), (135, u64::from(u32::MAX) + 1)] {
        assert_eq!(Reply::decode(&message(kind, 0, [value, 0, 0])), Err(MessageError::Value(kind, value)));
    }
    assert_eq!(Reply::decode(&message(129, 0, [1, 1000, 0])), Err(MessageError::Value(129, 1000)));
}
