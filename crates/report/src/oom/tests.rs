use super::{
    Block, BlockKinds, Cause, Counters, Gfp, Kind, Memcg, Report, Request, Zone, ZoneKind, diagnose,
};
use plimsoll_policy::units::{Bytes, Pid};

const MIB: u64 = 1 << 20;

fn zone(kind: ZoneKind, free: u64) -> Zone {
    Zone {
        free: Some(Bytes(free)),
        min: Some(Bytes(8 * MIB)),
        low: Some(Bytes(10 * MIB)),
        high: Some(Bytes(12 * MIB)),
        managed: Some(Bytes(1024 * MIB)),
        reserve_pages: vec![0; 5],
        kind,
        ..Zone::default()
    }
}

fn request(widest: ZoneKind) -> Request {
    Request {
        widest,
        top: ZoneKind::Normal,
        movable: false,
        size: Bytes(32 << 10),
        page: Bytes(4096),
        has_highmem: false,
        by_old_rule: false,
    }
}

fn block(count: u64, kilobytes: u64, letters: &[u8]) -> Block {
    Block { count, size: Bytes(kilobytes << 10), kinds: BlockKinds::of(letters) }
}

#[test]
fn the_lowest_four_bits_choose_the_zone() {
    for (bits, widest) in [
        (0xcc0, ZoneKind::Normal),
        (0xcc1, ZoneKind::Dma),
        (0xcc4, ZoneKind::Dma32),
        (0x500cc2, ZoneKind::HighMem),
        (0x140dca, ZoneKind::Movable),
        (0xcc8, ZoneKind::Normal),
    ] {
        assert_eq!(Gfp { bits, names: None }.widest_zone(), widest, "{bits:x}");
    }
}

#[test]
fn what_is_kept_back_depends_on_which_zones_the_kernel_has() {
    let mut dma = zone(ZoneKind::Dma, 15 * MIB);
    dma.min = Some(Bytes(40 << 10));
    // 64-bit: DMA, DMA32, Normal, Movable, Device.
    dma.reserve_pages = vec![0, 2925, 15887, 15887, 15887];
    assert_eq!(dma.serves_a_page(&request(ZoneKind::Dma)), Some(true));
    assert_eq!(dma.serves_a_page(&request(ZoneKind::Dma32)), Some(true));
    assert_eq!(dma.serves_a_page(&request(ZoneKind::Normal)), Some(false));
    // 32-bit: DMA, Normal, HighMem, Movable; a request for Normal is kept from nothing here.
    dma.reserve_pages = vec![0, 0, 3188, 3188];
    let of_32_bits = Request { has_highmem: true, ..request(ZoneKind::Normal) };
    assert_eq!(dma.serves_a_page(&of_32_bits), Some(true));
    // A report without the list says nothing of a zone below the widest.
    dma.reserve_pages = Vec::new();
    assert_eq!(dma.serves_a_page(&request(ZoneKind::Normal)), None);
}

#[test]
fn reserved_and_cma_pages_serve_nobody_else() {
    let mut normal = zone(ZoneKind::Normal, 15 * MIB);
    normal.reserved_highatomic = Some(Bytes(4 * MIB));
    normal.free_cma = Some(Bytes(6 * MIB));
    assert_eq!(normal.usable(false), Some(Bytes(5 * MIB)));
    assert_eq!(normal.usable(true), Some(Bytes(11 * MIB)));
    normal.blocks = vec![block(100, 4, b"UME"), block(15, 32, b"H"), block(1, 64, b"C")];
    assert_eq!(normal.has_block(&request(ZoneKind::Normal)), Some(false));
    let movable = Request { movable: true, ..request(ZoneKind::Movable) };
    assert_eq!(normal.has_block(&movable), Some(true));
    assert_eq!(normal.in_blocks_of(Bytes(32 << 10)), (Bytes(544 << 10), false));
}

#[test]
fn before_4_4_larger_pieces_were_partly_kept_back() {
    let mut normal = zone(ZoneKind::Normal, 10 * MIB);
    normal.blocks = vec![block(2432, 4, b""), block(0, 8, b""), block(0, 16, b""), block(16, 32, b"")];
    let old = Request { by_old_rule: true, ..request(ZoneKind::Normal) };
    assert_eq!(normal.has_block(&request(ZoneKind::Normal)), Some(true));
    // 512 KiB in pieces of 32 KiB, of which an eighth of 8 MiB had to stay.
    assert_eq!(normal.has_block(&old), Some(false));
}

#[test]
fn a_call_site_is_the_first_function_beyond_the_allocators() {
    let stack = |names: &[&str]| names.iter().map(|name| String::from(*name)).collect::<Vec<_>>();
    for (names, gfp, expected) in [
        (
            &[
                "dump_stack_lvl",
                "out_of_memory",
                "__alloc_pages_slowpath.constprop.0",
                "__kmalloc_noprof",
                "load_foo",
                "sys_mmap",
            ][..],
            0x8000,
            Some("load_foo, through kcalloc or kzalloc"),
        ),
        (
            &["out_of_memory", "__alloc_pages", "kvmalloc_node", "a", "b", "c", "d"],
            0,
            Some("a, called by b, called by c, through kvmalloc"),
        ),
        (&["out_of_memory", "alloc_pages_mpol_noprof", "do_anonymous_page"], 0, Some("do_anonymous_page")),
        (&["out_of_memory", "__alloc_pages"], 0, None),
        (&[], 0, None),
    ] {
        let report =
            Report { stack: stack(names), gfp: Some(Gfp { bits: gfp, names: None }), ..Report::default() };
        assert_eq!(diagnose(&report).call_site.as_deref(), expected, "{names:?}");
    }
}

#[test]
fn a_report_of_which_nothing_is_known_is_judged_and_told() {
    let diagnosis = diagnose(&Report::default());
    assert_eq!((diagnosis.cause, diagnosis.free), (Cause::Unknown, None));
    assert!(diagnosis.summary.contains("Why cannot be told"), "{}", diagnosis.summary);
    assert_eq!(diagnosis.advice.len(), 1);
}

#[test]
fn numbers_at_the_edge_overflow_nothing() {
    let huge = || Some(Bytes(u64::MAX));
    let mut normal = zone(ZoneKind::Normal, u64::MAX);
    (normal.min, normal.high, normal.managed) = (huge(), huge(), huge());
    normal.reserve_pages = vec![u64::MAX; 8];
    normal.blocks = vec![Block { count: u64::MAX, size: Bytes(u64::MAX), kinds: BlockKinds::default() }; 3];
    let counters = Counters {
        anon: huge(),
        file: huge(),
        unevictable: huge(),
        shmem: huge(),
        slab_unreclaimable: huge(),
        pagetables: huge(),
        kernel_stack: huge(),
        hugetlb: huge(),
        free: huge(),
        ..Counters::default()
    };
    for order in [i32::MIN, -1, 0, 3, 20, i32::MAX] {
        let report = Report {
            order: Some(order),
            zones: vec![normal.clone(), normal.clone()],
            counters,
            swap_total: huge(),
            swap_free: huge(),
            ram: huge(),
            ..Report::default()
        };
        assert!(!diagnose(&report).summary.is_empty());
    }
}

#[test]
fn the_limit_that_was_hit_is_named_whole_and_safely() {
    let path = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1fd97494_a000_4527_8d9e_08d03b1994e9.slice\u{1b}[2J";
    let report = Report {
        kind: Kind::Memcg,
        memcg: Some(Memcg { path: Some(String::from(path)), ..Memcg::default() }),
        victim: Some(super::Victim { pid: Some(Pid(7)), ..super::Victim::default() }),
        ..Report::default()
    };
    let diagnosis = diagnose(&report);
    assert_eq!(diagnosis.cause, Cause::MemcgLimit);
    assert!(diagnosis.summary.contains("08d03b1994e9.slice"), "{}", diagnosis.summary);
    assert!(!diagnosis.summary.chars().any(char::is_control));
}

#[test]
fn the_file_of_a_limit_is_that_of_the_cgroups_version() {
    let advice = |usage: u64, both: u64, group: Option<&str>| {
        let memcg = Memcg {
            path: Some(String::from("/a")),
            usage: Some(Bytes(usage)),
            swap_usage: Some(Bytes(both)),
            swap_with_memory: true,
            ..Memcg::default()
        };
        let report = Report {
            kind: Kind::Memcg,
            memcg: Some(memcg),
            group: group.map(String::from),
            ..Report::default()
        };
        diagnose(&report).advice.remove(0)
    };
    assert!(advice(9, 9, None).starts_with("raise memory.limit_in_bytes of the cgroup"));
    assert!(advice(9, 9, Some("/a")).starts_with("raise memory.max of the cgroup"));
    // Version 2 before 5.3, or version 1 that does not count swap.
    assert!(advice(9, 0, None).starts_with("raise memory.max (memory.limit_in_bytes with cgroup v1) of"));
}
