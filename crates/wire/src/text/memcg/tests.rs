use super::{
    FileStat, MemoryEvents, parse_file_stat, parse_memory_events, parse_memory_held, parse_memory_max,
    parse_oom_kills,
};
use plimsoll_policy::{last_defence::slice::Max, units::Bytes};

#[test]
fn a_limit_is_a_number_or_none() {
    assert_eq!(parse_memory_max(b"max\n").unwrap(), Max::Unlimited);
    assert_eq!(parse_memory_max(b"1073741824\n").unwrap(), Max::At(Bytes(1 << 30)));
    for text in [b"".as_slice(), b"Max\n", b"-1\n", b"12 34\n", b"99999999999999999999\n"] {
        assert!(parse_memory_max(text).is_err(), "{text:?}");
    }
}

#[test]
fn what_reclaim_cannot_free_is_anonymous_shared_and_kernel_memory() {
    // anon + shmem + kernel - slab_reclaimable + sock
    let held = 54_525_952 + 4_096_000 + 9_703_424 - 5_009_408 + 4096;
    assert_eq!(parse_memory_held(capture!("memcg/memory.stat")).unwrap(), Bytes(held));
    let without_kernel = b"anon 4096\nfile 0\nshmem 0\nsock 0\nslab_reclaimable 0\n";
    parse_memory_held(without_kernel).unwrap_err();
    parse_memory_held(&[without_kernel.as_slice(), b"kernel many\n"].concat()).unwrap_err();
}

#[test]
fn events_tell_of_the_limit_and_of_kills() {
    let events = parse_memory_events(capture!("memcg/memory.events")).unwrap();
    assert_eq!(events, MemoryEvents { oom: 3, oom_kill: 1 });
    parse_memory_events(b"oom 1\n").unwrap_err();
    parse_memory_events(b"oom 1\noom_kill -1\n").unwrap_err();
}

#[test]
fn oom_kills_of_the_machine_are_found_among_the_other_counters() {
    let text = b"nr_free_pages 1\noom_kill 7\noom_kill_other 3\n";
    assert_eq!(parse_oom_kills(text).unwrap(), 7);
    parse_oom_kills(b"nr_free_pages 1\n").unwrap_err();
    parse_oom_kills(b"oom_kill x\n").unwrap_err();
}

#[test]
fn file_memory_is_read_of_both_versions_with_that_of_cgroups_below() {
    let two = b"anon 10\nfile 99\nfile_dirty 3\ninactive_file 20\nactive_file 5\n";
    let of = |file, (anon, dirty, inactive, active)| FileStat {
        file: Some(Bytes(file)),
        active_file: Some(Bytes(active)),
        inactive_file: Some(Bytes(inactive)),
        dirty: Some(Bytes(dirty)),
        anon: Some(Bytes(anon)),
        ..FileStat::default()
    };
    assert_eq!(parse_file_stat(two).unwrap(), of(99, (10, 3, 20, 5)));
    let one = b"cache 9\nrss 1\ndirty 1\ninactive_file 2\nactive_file 3\ntotal_cache 8\ntotal_rss 4\ntotal_dirty 5\ntotal_inactive_file 6\ntotal_active_file 7\n";
    assert_eq!(parse_file_stat(one).unwrap(), of(8, (4, 5, 6, 7)));
    let swapped = |text: &[u8]| {
        let stat = parse_file_stat(text).unwrap();
        (stat.mapped, stat.swap, stat.swap_cached)
    };
    let two = b"inactive_file 0\nfile_mapped 1\nswapcached 2\nswap_free 9\n";
    assert_eq!(swapped(two), (Some(Bytes(1)), None, Some(Bytes(2))));
    let one = b"mapped_file 9\nswap 9\ntotal_inactive_file 0\ntotal_mapped_file 1\ntotal_swap 2\ntotal_swapcached 3\n";
    assert_eq!(swapped(one), (Some(Bytes(1)), Some(Bytes(2)), Some(Bytes(3))));
    parse_file_stat(b"anon 1\n").unwrap_err();
    parse_file_stat(b"inactive_file x\n").unwrap_err();
}
