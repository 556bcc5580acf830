use super::*;
use std::mem::offset_of;

const LOOSENESS: Looseness = Looseness::PerCpu { online: 2 };

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A record as the programs write one: process 7 of user 1000 in `/a.slice/b.scope`, killed as process 9 needed memory.
fn record() -> Vec<u8> {
    let mut bytes = vec![0; MARKED_BYTES];
    let task = offset_of!(abi::plimsoll_marked, victim);
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, start_ns), &77_u64.to_ne_bytes());
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, mm), &1_u64.to_ne_bytes());
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, pages) + 8, &500_i64.to_ne_bytes());
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, tgid), &7_u32.to_ne_bytes());
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, uid), &1000_u32.to_ne_bytes());
    put(&mut bytes, task + offset_of!(abi::plimsoll_task, comm), b"hog");
    put(&mut bytes, offset_of!(abi::plimsoll_marked, time_ns), &5_u64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, number), &1_u64.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, thread), &8_u32.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, flags), &abi::PLIMSOLL_MARKED_KNOWN.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, invoker), &9_u32.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, invoker_thread), &10_u32.to_ne_bytes());
    put(&mut bytes, offset_of!(abi::plimsoll_marked, invoker_comm), b"needy");
    let names = b"b.scope\0a.slice\0";
    put(&mut bytes, offset_of!(abi::plimsoll_marked, path), names);
    let length = u32::try_from(names.len()).unwrap();
    put(&mut bytes, offset_of!(abi::plimsoll_marked, path_bytes), &length.to_ne_bytes());
    bytes
}

#[test]
fn a_record_is_read_as_the_programs_write_it() {
    let marked = decode(&record(), LOOSENESS).unwrap();
    let victim = marked.victim.unwrap();
    assert_eq!((victim.pid, victim.start_ns, victim.uid), (Pid(7), 77, Uid(1000)));
    assert_eq!((victim.anonymous.0, victim.comm.to_string().as_str()), (500, "hog"));
    assert_eq!((marked.time, marked.number, marked.thread), (Nanos(5), 1, Pid(8)));
    assert_eq!(marked.cgroup.as_deref(), Some("/a.slice/b.scope"));
    assert_eq!((marked.invoker.pid, marked.invoker.thread, marked.exiting), (Pid(9), Pid(10), false));
    assert_eq!(marked.invoker.comm.to_string(), "needy");
}

#[test]
fn a_bare_number_is_a_record_without_a_victim() {
    let mut bytes = record();
    put(&mut bytes, offset_of!(abi::plimsoll_marked, flags), &0_u32.to_ne_bytes());
    let marked = decode(&bytes, LOOSENESS).unwrap();
    assert_eq!((marked.victim, marked.cgroup, marked.thread), (None, None, Pid(8)));
}

#[test]
fn the_root_has_a_path_and_a_path_that_was_cut_shows_it() {
    let flags_at = offset_of!(abi::plimsoll_marked, flags);
    let length_at = offset_of!(abi::plimsoll_marked, path_bytes);
    let cut = abi::PLIMSOLL_MARKED_KNOWN | abi::PLIMSOLL_MARKED_PATH_CUT;
    let mut bytes = record();
    put(&mut bytes, flags_at, &cut.to_ne_bytes());
    assert_eq!(decode(&bytes, LOOSENESS).unwrap().cgroup.as_deref(), Some(".../a.slice/b.scope"));
    put(&mut bytes, length_at, &0_u32.to_ne_bytes());
    assert_eq!(decode(&bytes, LOOSENESS).unwrap().cgroup, None);
    put(&mut bytes, flags_at, &abi::PLIMSOLL_MARKED_KNOWN.to_ne_bytes());
    assert_eq!(decode(&bytes, LOOSENESS).unwrap().cgroup.as_deref(), Some("/"));
}

#[test]
fn hostile_names_stay_on_their_line_and_in_their_place() {
    let mut bytes = record();
    put(&mut bytes, offset_of!(abi::plimsoll_marked, path), b"b\n\x1bscop\0a.slice\0");
    let path = decode(&bytes, LOOSENESS).unwrap().cgroup.unwrap();
    assert!(path.starts_with("/a.slice/b") && !path.contains(['\n', '\x1b']), "{path:?}");
}

#[test]
fn what_no_program_writes_is_refused() {
    let with = |at: usize, value: u32| {
        let mut bytes = record();
        put(&mut bytes, at, &value.to_ne_bytes());
        decode(&bytes, LOOSENESS)
    };
    let what = "a record of a victim";
    let impossible = |field| Err(RecordError::Field { what, field });
    let bytes = record();
    assert_eq!(
        decode(&bytes[1..], LOOSENESS),
        Err(RecordError::Length { what, found: MARKED_BYTES - 1, expected: MARKED_BYTES })
    );
    assert_eq!(with(offset_of!(abi::plimsoll_marked, flags), 9), impossible("flag"));
    assert_eq!(with(offset_of!(abi::plimsoll_marked, thread), 0), impossible("number"));
    assert_eq!(with(offset_of!(abi::plimsoll_marked, path_bytes), 1025), impossible("path"));
    let number = offset_of!(abi::plimsoll_marked, victim) + offset_of!(abi::plimsoll_task, tgid);
    let no_number = RecordError::Field { what: "a task record", field: "number" };
    assert_eq!(with(number, 0), Err(no_number));
}

/// No fuzzer is needed for it: every byte of a record spoilt, one at a time and in runs.
#[test]
fn no_bytes_of_the_right_length_break_it_or_are_shown_raw() {
    let whole = record();
    for at in 0..MARKED_BYTES {
        for (value, run) in [(0, 1), (0x1b, 3), (0xff, 8)] {
            let mut bytes = whole.clone();
            bytes.iter_mut().skip(at).take(run).for_each(|byte| *byte = value);
            if let Ok(marked) = decode(&bytes, LOOSENESS) {
                let path = marked.cgroup.unwrap_or_default();
                assert!(!path.chars().any(char::is_control), "{at}: {path:?}");
                assert_ne!(marked.thread, Pid(0));
            }
        }
    }
}
