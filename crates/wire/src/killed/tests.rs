use super::*;
use std::mem::offset_of;

const LOOSENESS: Looseness = Looseness::PerCpu { online: 2 };

fn record(pid: u32) -> Vec<u8> {
    let mut bytes = vec![0; KILLED_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let task = offset_of!(abi::plimsoll_killed, victim);
    put(task + offset_of!(abi::plimsoll_task, start_ns), &77_u64.to_ne_bytes());
    put(task + offset_of!(abi::plimsoll_task, mm), &1_u64.to_ne_bytes());
    put(task + offset_of!(abi::plimsoll_task, pages) + 8, &500_i64.to_ne_bytes());
    put(task + offset_of!(abi::plimsoll_task, tgid), &pid.to_ne_bytes());
    put(task + offset_of!(abi::plimsoll_task, uid), &100_000_u32.to_ne_bytes());
    put(offset_of!(abi::plimsoll_killed, user), &1000_u32.to_ne_bytes());
    bytes
}

#[test]
fn a_record_is_read_as_the_program_writes_it() {
    let Killed { victim, user } = decode(&record(7), LOOSENESS).unwrap();
    assert_eq!((victim.pid, victim.start_ns, victim.uid, user), (Pid(7), 77, Uid(100_000), Uid(1000)));
    assert_eq!(victim.anonymous, Pages(500));
}

#[test]
fn what_no_process_can_be_like_is_no_record() {
    decode(&record(0), LOOSENESS).unwrap_err();
    decode(&[], LOOSENESS).unwrap_err();
    decode(&[record(7), vec![0]].concat(), LOOSENESS).unwrap_err();
}
