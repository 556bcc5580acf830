use super::*;
use plimsoll_policy::units::Gid;
use zerocopy::IntoBytes as _;

fn bytes_of(record: abi::plimsoll_record) -> Vec<u8> {
    record.as_bytes().to_vec()
}

fn acted() -> abi::plimsoll_record {
    let mut record = abi::plimsoll_record {
        kind: abi::PLIMSOLL_RECORD_ACTED,
        flags: abi::PLIMSOLL_RECORD_LARGEST,
        time_ns: 1_000,
        signal_ns: 3_000,
        usage_pages: 65_537,
        hard_pages: 65_536,
        effective_pages: 65_536,
        delta_pages: 1,
        mm_pages: 65_000,
        mm: 0xffff_8881_0000_1000,
        start_ns: 77,
        id: 60_001,
        of: abi::PLIMSOLL_OF_USER,
        account: 1,
        tgid: 4_242,
        signal: 9,
        args_bytes: 8,
        dying_pages: 0,
        cgroup_id: 0,
        signal_error: 0,
        weight: 250,
        uid: 60_002,
        job: 7,
        comm: [0; 16],
        args: [0; 128],
    };
    record.comm[..4].copy_from_slice(b"hog\n");
    record.args[..8].copy_from_slice(b"hog\0-m\0\0");
    record
}

#[test]
fn every_field_of_a_record_arrives_where_it_was_written() {
    let record = decode(&bytes_of(acted())).unwrap();
    assert_eq!(record.kind, RecordKind::Acted);
    assert_eq!((record.time, record.signal_time), (Nanos(1_000), Some(Nanos(3_000))));
    assert_eq!((record.usage, record.hard, record.charged), (Pages(65_537), Pages(65_536), Pages(1)));
    assert_eq!((record.whose, record.signal, record.signal_errno), (Uid(60_001).into(), 9, None));
    assert!(record.largest && !record.unanswered && !record.mm_shared);
    assert_eq!((record.process.pid, record.process.uid), (Pid(4_242), Uid(60_002)));
    assert_eq!((record.process.start_ns, record.process.pages), (77, Pages(65_000)));
    assert_eq!(record.process.weight.permille(), 250);
    assert_eq!(record.process.comm.as_deref(), Some("hog\\x0a"));
    assert_eq!(record.process.cmdline.as_deref(), Some("hog -m"));
    assert_eq!(record.process.cgroup_id, None);
}

#[test]
fn a_remote_charge_names_no_command() {
    let record = abi::plimsoll_record { flags: abi::PLIMSOLL_RECORD_REMOTE, ..acted() };
    let process = decode(&bytes_of(record)).unwrap().process;
    assert_eq!((process.comm, process.cmdline), (None, None));
}

#[test]
fn a_momentary_negative_count_is_shown_as_none_and_an_errno_as_positive() {
    let record = abi::plimsoll_record { usage_pages: -3, signal_error: -1, signal_ns: 0, ..acted() };
    let record = decode(&bytes_of(record)).unwrap();
    assert_eq!((record.usage, record.signal_errno, record.signal_time), (Pages(0), Some(1), None));
}

#[test]
fn a_record_of_a_groups_account_says_whose_process_it_is_about() {
    let record = decode(&bytes_of(abi::plimsoll_record { of: abi::PLIMSOLL_OF_GROUP, ..acted() })).unwrap();
    assert_eq!((record.whose, record.process.uid), (Counted::Group(Gid(60_001)), Uid(60_002)));
}

#[test]
fn other_lengths_and_kinds_are_refused() {
    let good = bytes_of(acted());
    for length in (0..good.len()).chain([good.len() + 8]) {
        let mut bytes = good.clone();
        bytes.resize(length, 0);
        assert_eq!(
            decode(&bytes),
            Err(RecordError::Length { what: WHAT, found: length, expected: good.len() })
        );
    }
    assert_eq!(
        decode(&bytes_of(abi::plimsoll_record { kind: 99, ..acted() })),
        Err(RecordError::Field { what: WHAT, field: "kind" })
    );
    assert_eq!(
        decode(&bytes_of(abi::plimsoll_record { of: 3, ..acted() })),
        Err(RecordError::Field { what: WHAT, field: "of" })
    );
}

#[test]
fn no_bytes_of_the_right_length_are_too_odd_to_decode() {
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..20_000 {
        let mut bytes = bytes_of(acted());
        for byte in bytes.iter_mut().skip(4) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        let of = std::mem::offset_of!(abi::plimsoll_record, of);
        bytes[of..of + 4].copy_from_slice(&abi::PLIMSOLL_OF_USER.to_ne_bytes());
        decode(&bytes).unwrap();
    }
}
