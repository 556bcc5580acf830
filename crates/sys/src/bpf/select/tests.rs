use super::{watch::grown, *};
use crate::process::tick_ns;
use plimsoll_policy::units::{Bytes, Pid, Uid};
use plimsoll_wire::{task::CountErrors, text::Comm};
use std::fs;

fn facts(start_ns: u64) -> TaskFacts {
    TaskFacts {
        pid: Pid(7),
        start_ns,
        parent: Pid(1),
        uid: Uid(60_200),
        mm: 1,
        cgroup_id: 1,
        anonymous: Pages(3),
        swapped: Pages(0),
        shared: Pages(0),
        file: Pages(0),
        errors: CountErrors::default(),
        mapped: Pages(9),
        table_bytes: Bytes(0),
        oom_score_adj: 0,
        threads: 1,
        mm_users: 1,
        execs: 0,
        dying: false,
        dumping: false,
        leader_exited: false,
        uninterruptible: false,
        stopped: false,
        oom_victim: false,
        vfork_child: false,
        comm: Comm::from_bytes(b"it"),
    }
}

#[test]
fn a_process_is_known_again_by_the_clock_tick_of_its_start() {
    let tick = tick_ns();
    let id = |start_ns| VictimId { pid: Pid(7), start_ns };
    let found = facts(5 * tick + 3);
    for start_ns in [5 * tick, 5 * tick + 3, 6 * tick - 1] {
        assert_eq!(judge(id(start_ns), Some(found)), Measured::Known(found));
    }
    for start_ns in [0, 5 * tick - 1, 6 * tick] {
        assert_eq!(judge(id(start_ns), Some(found)), Measured::Another);
    }
    assert_eq!(judge(id(5 * tick), None), Measured::Gone);
}

#[test]
fn a_note_is_read_as_the_programs_write_it() {
    let mut value = [0; size_of::<abi::plimsoll_grown>()];
    value[..8].copy_from_slice(&77_u64.to_ne_bytes());
    value[8..12].copy_from_slice(&4_242_u32.to_ne_bytes());
    let id = VictimId { pid: Pid(4_242), start_ns: 77 };
    assert_eq!(grown(9, &zerocopy::transmute!(value)), Grown { mm: 9, id });
}

/// Any file system shows what is removed when.
#[test]
fn one_builds_pins_take_the_place_of_all_others_only_once_they_are_complete() {
    let root = tempfile::tempdir().unwrap();
    let pins = pins(root.path());
    assert!(!pins.is_complete() && !pins.remove_all().unwrap());
    let other = root.path().join("select/0123456789abcdef");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("sweep_tasks"), "").unwrap();

    let loading = pins.begin().unwrap();
    fs::write(loading.join("measure"), "").unwrap();
    // Interrupted: the next one begins anew, and the other build's are there until the end.
    let loading = pins.begin().unwrap();
    fs::write(loading.join("sweep_tasks"), "").unwrap();
    assert!(!pins.is_complete() && other.exists());
    pins.finish().unwrap();
    assert!(pins.is_complete() && pins.has("sweep_tasks") && !pins.has("measure"));
    assert!(!other.exists() && !loading.exists());
    pins.remove_others().unwrap();
    assert!(pins.is_complete());
    assert!(pins.remove_all().unwrap());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
