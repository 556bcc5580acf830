use super::*;
use core::mem::offset_of;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Page counts of chunk 7 of inode 12 on 254:0, an ext4.
fn entry(flags: u32, magic: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut value) = (vec![0; CHUNK_BYTES], vec![0; USE_BYTES]);
    put(&mut key, offset_of!(abi::plimsoll_chunk, file.inode), &12_u64.to_ne_bytes());
    put(&mut key, offset_of!(abi::plimsoll_chunk, file.device), &(254_u32 << 20).to_ne_bytes());
    put(&mut key, offset_of!(abi::plimsoll_chunk, file.generation), &9_u32.to_ne_bytes());
    put(&mut key, offset_of!(abi::plimsoll_chunk, chunk), &7_u32.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, accessed), &30_u64.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, added), &20_u64.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, evicted), &10_u64.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, blocks), &0x8000_0006_u32.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, file_bytes), &5000_u64.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, flags), &flags.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_use, magic), &magic.to_ne_bytes());
    (key, value)
}

const EXT4: u32 = 0xef53;

#[test]
fn a_use_is_read_as_the_programs_write_it() {
    let (key, value) = entry(0, EXT4);
    let file = FileId { device: 254 << 20, inode: 12, generation: 9 };
    let expected = Use {
        chunk: ChunkId { file, chunk: 7 },
        accessed: 30,
        blocks: Blocks(0x8000_0006),
        mapped: false,
        added: 20,
        evicted: 10,
        file_bytes: 5000,
        barred: None,
    };
    assert_eq!(decode_use(&key, &value), Ok(expected));
    assert_eq!(decode_file(&key[..FILE_BYTES]), Ok(file));
}

#[test]
fn the_bar_that_stays_longest_is_told() {
    let barred = |flags, magic| {
        let (key, value) = entry(flags, magic);
        decode_use(&key, &value).unwrap().barred
    };
    let (writers, swap, unlinked) =
        (abi::PLIMSOLL_USE_WRITERS, abi::PLIMSOLL_USE_SWAPFILE, abi::PLIMSOLL_USE_UNLINKED);
    assert_eq!(barred(0, EXT4), None);
    assert_eq!(barred(writers, EXT4), Some(Barred::OpenForWriting));
    assert_eq!(barred(writers | swap, EXT4), Some(Barred::SwapFile));
    assert_eq!(barred(writers | swap | unlinked, EXT4), Some(Barred::Unlinked));
    for waiting in [0x6573_5546, 0x6969, 0x0102_1997] {
        assert_eq!(barred(unlinked, waiting), Some(Barred::FileSystem));
    }
}

#[test]
fn a_use_that_no_program_writes_is_refused() {
    let (key, mut value) = entry(8, EXT4);
    assert_eq!(decode_use(&key, &value), Err(RecordError::Field { what: "a use of a file", field: "flag" }));
    assert!(matches!(decode_use(&key[1..], &value), Err(RecordError::Length { found: 23, .. })));
    assert!(matches!(decode_use(&key, &value[1..]), Err(RecordError::Length { found: 47, .. })));
    (_, value) = entry(0, EXT4);
    put(&mut value, offset_of!(abi::plimsoll_use, file_bytes), &(-1_i64).to_ne_bytes());
    assert_eq!(decode_use(&key, &value), Err(RecordError::Field { what: "a use of a file", field: "size" }));
}

fn record(kind: u32, tgid: u32) -> Vec<u8> {
    let mut bytes = vec![0; EVENT_BYTES];
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, time_ns), &5_u64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, cgroup), &6_u64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, clean_pages), &(-3_i64).to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, line_pages), &40_i64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, locked_pages), &2_i64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, free_pages), &1_i64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, victim.start_ns), &77_u64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, victim.tgid), &tgid.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, kind), &kind.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, reclaimer), &8_u32.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, limited), &1_u32.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_workingset_record, reclaimed), &4_u32.to_ne_bytes());
    bytes
}

#[test]
fn an_event_is_read_as_the_programs_write_it() {
    let victim = VictimId { pid: Pid(7), start_ns: 77 };
    let crossing = Crossing { clean: Pages(0), line: Pages(40), locked: Pages(2), free: Pages(1) };
    for (kind, expected) in [
        (
            abi::PLIMSOLL_WORKINGSET_SOFT,
            WorkingSetEventKind::NoProgress { limited: true, reclaimed: Pages(4) },
        ),
        (abi::PLIMSOLL_WORKINGSET_ASK, WorkingSetEventKind::Ask(crossing, victim)),
        (abi::PLIMSOLL_WORKINGSET_TAKEN, WorkingSetEventKind::Taken(crossing, victim)),
        (abi::PLIMSOLL_WORKINGSET_NOBODY, WorkingSetEventKind::Nobody(crossing)),
        (abi::PLIMSOLL_WORKINGSET_NEAR, WorkingSetEventKind::Near(crossing)),
    ] {
        let event = WorkingSetEvent { time: Nanos(5), cgroup: Some(6), reclaimer: Pid(8), kind: expected };
        assert_eq!(decode_event(&record(kind, 7)), Ok(event));
    }
}

#[test]
fn an_event_that_names_nobody_who_can_be_taken_is_refused() {
    for nobody in [0, 1] {
        decode_event(&record(abi::PLIMSOLL_WORKINGSET_ASK, nobody)).unwrap_err();
        decode_event(&record(abi::PLIMSOLL_WORKINGSET_TAKEN, nobody)).unwrap_err();
        decode_event(&record(abi::PLIMSOLL_WORKINGSET_NOBODY, nobody)).unwrap();
    }
    for kind in [0, 6] {
        decode_event(&record(kind, 7)).unwrap_err();
    }
    decode_event(&record(abi::PLIMSOLL_WORKINGSET_ASK, 7)[1..]).unwrap_err();
}

#[test]
fn settings_are_written_as_the_programs_read_them() {
    let victim = |pid| VictimId { pid: Pid(pid), start_ns: u64::from(pid) * 100 };
    let settings = FloorSettings {
        line: Pages(1),
        locked: Pages(2),
        dirty: Pages(3),
        free_max: Pages(u64::MAX),
        reserve: Pages(4),
        valid_until: Nanos(5),
        hold_until: Nanos(6),
        hold: Nanos(7),
        cgroup: Some(8),
        own: Pid(9),
        victims: [0, 1].into_iter().chain(100..130).map(victim).collect(),
    };
    let bytes = settings.encode();
    let word = |place: usize| u64::from_ne_bytes(*bytes[place..].first_chunk().unwrap());
    let words: Vec<u64> = (0..9).map(|place| word(place * 8)).collect();
    assert_eq!(words, [1, 2, 3, i64::MAX.cast_unsigned(), 4, 5, 6, 7, 8]);
    assert_eq!(word(72) & 0xffff_ffff, 9);
    for place in 0..VICTIMS_MAX {
        let at = offset_of!(abi::plimsoll_floor, victims) + place * 16;
        let pid = 100 + place as u64;
        assert_eq!((word(at), word(at + 8)), (pid * 100, pid));
    }
}

#[test]
fn by_default_there_is_no_floor_and_nobody_to_take() {
    assert!(FloorSettings::default().encode().iter().all(|byte| *byte == 0));
}

#[test]
fn counts_are_read_as_the_programs_write_them() {
    let mut bytes = vec![0; FloorCounts::BYTES];
    assert_eq!(FloorCounts::decode(&bytes), Ok(FloorCounts::default()));
    for (place, count) in [
        (offset_of!(abi::plimsoll_floor_state, checks), 1_u64),
        (offset_of!(abi::plimsoll_floor_state, below), 2),
        (offset_of!(abi::plimsoll_floor_state, stale), 3),
        (offset_of!(abi::plimsoll_floor_state, blind), 4),
        (offset_of!(abi::plimsoll_floor_state, taken), 5),
        (offset_of!(abi::plimsoll_floor_state, lost), 6),
        (offset_of!(abi::plimsoll_floor_state, victim.tgid), 7),
    ] {
        put(&mut bytes, place, &count.to_ne_bytes());
    }
    let victim = Some(VictimId { pid: Pid(7), start_ns: 0 });
    let expected = FloorCounts { checks: 1, below: 2, stale: 3, blind: 4, taken: 5, lost: 6, victim };
    assert_eq!(FloorCounts::decode(&bytes), Ok(expected));
    FloorCounts::decode(&bytes[1..]).unwrap_err();
}
