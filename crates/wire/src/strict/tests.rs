use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes as _;

fn record() -> abi::plimsoll_refusal {
    abi::plimsoll_refusal {
        time_ns: 9,
        start_ns: 8,
        asked_pages: 7,
        committed_pages: 6,
        limit_pages: 5,
        untold: 4,
        job: 3,
        tgid: 2,
        uid: 1000,
        call: abi::PLIMSOLL_REFUSED_FORK,
        comm: *b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    }
}

#[test]
fn a_record_is_read_as_the_program_writes_it() {
    let told = decode(record().as_bytes()).unwrap();
    let expected = Refusal {
        time: Nanos(9),
        job: JobId(3),
        pid: Pid(2),
        start_ns: 8,
        uid: Uid(1000),
        comm: Comm::from_bytes(b"sh"),
        asked: Pages(7),
        committed: Pages(6),
        limit: Pages(5),
        untold: 4,
        forks: true,
    };
    assert_eq!(told, expected);
}

#[test]
fn what_no_request_can_be_like_is_no_record() {
    for (wrong, why) in [
        (abi::plimsoll_refusal { tgid: 0, ..record() }, "process"),
        (abi::plimsoll_refusal { tgid: u32::MAX, ..record() }, "process"),
        (abi::plimsoll_refusal { job: 0, ..record() }, "job"),
        (abi::plimsoll_refusal { call: 2, ..record() }, "call"),
    ] {
        let error = decode(wrong.as_bytes()).unwrap_err();
        assert!(error.to_string().ends_with(why), "{error}");
    }
    decode(&[]).unwrap_err();
    decode(&[record().as_bytes(), &[0]].concat()).unwrap_err();
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..=2 * REFUSAL_BYTES)) {
        if let Ok(told) = decode(&bytes) {
            prop_assert!(told.pid.0 > 0 && told.job.0 > 0);
        }
    }
}
