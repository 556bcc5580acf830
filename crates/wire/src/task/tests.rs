use super::*;
use zerocopy::IntoBytes as _;

const TWO_CPUS: Looseness = Looseness::PerCpu { online: 2 };

fn bytes_of(task: abi::plimsoll_task) -> Vec<u8> {
    task.as_bytes().to_vec()
}

fn hog() -> abi::plimsoll_task {
    let mut task = abi::plimsoll_task {
        start_ns: 77,
        mm: 0xffff_8881_0000_1000,
        cgroup_id: 9,
        pages: [4, 1_000, 20, 300],
        mapped_pages: 5_000,
        table_bytes: 8_192,
        tgid: 4_242,
        parent: 1,
        uid: 60_001,
        oom_score_adj: -17,
        threads: 3,
        mm_users: 4,
        flags: abi::PLIMSOLL_TASK_STOPPED,
        execs: 7,
        comm: [0; 16],
    };
    task.comm[..4].copy_from_slice(b"hog\n");
    task
}

#[test]
fn every_field_arrives_where_it_was_written() {
    let facts = decode(&bytes_of(hog()), TWO_CPUS).unwrap();
    assert_eq!((facts.pid, facts.parent, facts.uid), (Pid(4_242), Pid(1), Uid(60_001)));
    assert_eq!((facts.start_ns, facts.mm, facts.cgroup_id), (77, 0xffff_8881_0000_1000, 9));
    assert_eq!((facts.file, facts.anonymous, facts.swapped), (Pages(4), Pages(1_000), Pages(20)));
    assert_eq!((facts.shared, facts.mapped), (Pages(300), Pages(5_000)));
    assert_eq!((facts.table_bytes, facts.oom_score_adj), (Bytes(8_192), -17));
    assert_eq!((facts.threads, facts.mm_users, facts.comm.to_string().as_str()), (3, 4, "hog\\x0a"));
    assert_eq!(facts.execs, 7);
    assert!(facts.stopped);
}

#[test]
fn each_flag_sets_its_own_fact() {
    let shown = |flags| {
        let facts = decode(&bytes_of(abi::plimsoll_task { flags, ..hog() }), TWO_CPUS).unwrap();
        let exact = facts.errors == CountErrors::default();
        let early = [facts.dying, facts.dumping, facts.leader_exited, facts.uninterruptible];
        [early, [facts.stopped, facts.oom_victim, facts.vfork_child, exact]].concat()
    };
    assert_eq!(shown(0), [false; 8]);
    for bit in 0..8 {
        let only: Vec<bool> = (0..8).map(|other| other == bit).collect();
        assert_eq!(shown(1 << bit), only, "flag {bit}");
    }
}

#[test]
fn counts_are_off_by_less_than_a_batch_on_each_running_cpu() {
    let each = |online| Looseness::PerCpu { online }.errors(1).anonymous;
    assert_eq!((each(1), each(2), each(16)), (Pages(31), Pages(62), Pages(496)));
    // 256 CPUs: half a gigabyte of 4 KiB pages for each count.
    assert_eq!(each(256), Pages(511 * 256));
    assert_eq!(each(u32::MAX), Pages(u64::from(u32::MAX - 1) * u64::from(u32::MAX)));
}

#[test]
fn counts_kept_by_threads_are_off_by_what_each_user_of_the_memory_keeps() {
    let approximate = decode(&bytes_of(hog()), Looseness::PerThread).unwrap();
    assert_eq!(approximate.errors, CountErrors { anonymous: Pages(4 * 66), mapped: Pages(4 * 66 * 16) });
    let exact = abi::plimsoll_task { flags: abi::PLIMSOLL_TASK_EXACT, ..hog() };
    let exact = decode(&bytes_of(exact), Looseness::PerThread).unwrap();
    assert_eq!(exact.errors.anonymous, Pages(66), "of the one user that is no thread of its own");
}

#[test]
fn what_it_may_hold_lies_between_nothing_and_all_that_it_mapped() {
    let facts = decode(&bytes_of(hog()), TWO_CPUS).unwrap();
    assert_eq!((facts.least(), facts.most()), (Pages(1_320 - 186), Pages(1_320 + 186)));
    let small = abi::plimsoll_task { pages: [0, 3, -5, 0], mapped_pages: 40, ..hog() };
    let facts = decode(&bytes_of(small), TWO_CPUS).unwrap();
    assert_eq!((facts.swapped, facts.least(), facts.most()), (Pages(0), Pages(0), Pages(40)));
}

#[test]
fn other_lengths_and_impossible_processes_are_refused() {
    let good = bytes_of(hog());
    for length in (0..good.len()).chain([good.len() + 8]) {
        let mut bytes = good.clone();
        bytes.resize(length, 0);
        assert_eq!(
            decode(&bytes, TWO_CPUS),
            Err(RecordError::Length { what: WHAT, found: length, expected: good.len() })
        );
    }
    let impossible = |field| Err(RecordError::Field { what: WHAT, field });
    let refused = |task| decode(&bytes_of(task), TWO_CPUS);
    assert_eq!(refused(abi::plimsoll_task { tgid: 0, ..hog() }), impossible("number"));
    assert_eq!(refused(abi::plimsoll_task { mm: 0, ..hog() }), impossible("memory"));
    assert_eq!(refused(abi::plimsoll_task { flags: 256, ..hog() }), impossible("flag"));
    let adjusted = |oom_score_adj| refused(abi::plimsoll_task { oom_score_adj, ..hog() });
    adjusted(-1000).unwrap();
    adjusted(1000).unwrap();
    assert_eq!(adjusted(1001), impossible("oom_score_adj"));
}

#[test]
fn no_bytes_of_the_right_length_make_a_bound_that_does_not_hold() {
    let mut state = 0x9e37_79b9_u32;
    for round in 0..20_000 {
        let mut bytes = bytes_of(hog());
        for byte in bytes.iter_mut().take(if round % 2 == 0 { 72 } else { 120 }) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        if let Ok(facts) = decode(&bytes, TWO_CPUS) {
            assert!(facts.most() <= facts.mapped && !facts.comm.to_string().contains(char::is_control));
        }
    }
}
