use super::*;
use plimsoll_policy::units::Uid;
use plimsoll_wire::{frag::Counts, text::parse_buddyinfo, text::parse_pagetypeinfo};

const BEFORE: &[u8] = b"\
Node 0, zone      DMA      1      0      0      0\n\
Node 0, zone   Normal    100     50     20     16\n\
Node 0, zone  Movable      0      0      0   9999\n";

const AFTER: &[u8] = b"\
Node 0, zone      DMA      1      0      0      0\n\
Node 0, zone   Normal    100     50     20      4\n\
Node 0, zone  Movable      0      0      0   9999\n";

const TYPES: &[u8] = b"Number of blocks type     Unmovable      Movable  Reclaimable\n\
Node 0, zone   Normal          30         60           10\n";

fn memory(buddyinfo: &[u8]) -> Memory {
    Memory {
        page: PageSize::from_bytes(4096).unwrap(),
        zones: parse_buddyinfo(buddyinfo).unwrap(),
        marks: vec![],
        types: Some(parse_pagetypeinfo(TYPES).unwrap()),
        compaction: Compactions { stalls: Some(7), failures: Some(2), ..Compactions::default() },
    }
}

fn request(stack: &[&str], gfp: u32, comm: &str, requests: u64) -> Request {
    Request {
        stack: stack.iter().map(|name| String::from(*name)).collect(),
        order: 3,
        gfp,
        comm: Some(comm.to_owned()),
        user: Uid(1000),
        counts: Counts { requests, ..Counts::default() },
    }
}

/// As Debian's 6.1 shows it, with a wrong name for the program, which is gone.
const BINDER: [&str; 11] = [
    "cleanup_module",
    "bpf_trace_run4",
    "__alloc_pages",
    "__kmalloc_large_node",
    "__kmalloc",
    "binder_alloc_mmap_handler",
    "binder_mmap",
    "mmap_region",
    "do_mmap",
    "vm_mmap_pgoff",
    "do_syscall_64",
];

#[test]
fn requests_of_one_call_site_are_put_together_and_the_worst_come_first() {
    let falls_back = request(&["a_driver", "its_caller"], 0x12cc0, "server", 900);
    let interrupt =
        request(&["__alloc_pages", "__netdev_alloc_skb", "handle_softirqs"], 0x820, "bystander", 5);
    let requests =
        [falls_back, interrupt, request(&BINDER, 0x40dc0, "one", 3), request(&BINDER, 0x40dc0, "two", 4)];
    let sites = call_sites(&requests);
    let shown: Vec<_> = sites.iter().map(|site| (site.on_failure, site.requests)).collect();
    assert_eq!(shown, [("forces", 7), ("fails", 5), ("falls-back", 900)]);
    let binder = &sites[0];
    let expected = "binder_alloc_mmap_handler, called by binder_mmap, through kcalloc or kzalloc";
    assert_eq!(binder.call_site.as_deref(), Some(expected));
    assert_eq!(binder.gfp, "GFP_KERNEL|__GFP_ZERO|__GFP_COMP");
    assert_eq!((binder.gfp_bits, binder.stack[0].as_str()), (0x40dc0, "__alloc_pages"));
    let names: Vec<_> = binder.asked_by.iter().map(|asker| asker.comm.as_deref()).collect();
    assert_eq!(names, [Some("two"), Some("one")]);
    assert!(sites[1].in_interrupt && sites[1].asked_by.is_empty());
}

#[test]
fn what_an_interrupt_asks_for_is_kept_apart_from_who_asks_at_the_same_place() {
    let by_program = ["__alloc_pages", "__netdev_alloc_skb", "a_driver", "ksys_write"];
    let requests = [
        request(
            &["__alloc_pages", "__netdev_alloc_skb", "a_driver", "handle_softirqs"],
            0x820,
            "bystander",
            9,
        ),
        request(&by_program, 0x820, "one", 3),
    ];
    let sites = call_sites(&requests);
    let shown: Vec<_> =
        sites.iter().map(|site| (site.in_interrupt, site.requests, site.asked_by.len())).collect();
    assert_eq!(shown, [(true, 9, 0), (false, 3, 1)]);
}

#[test]
fn many_names_at_one_call_site_are_counted_after_the_first() {
    let requests: Vec<_> =
        (0..20).map(|number| request(&BINDER, 0xcc0, &number.to_string(), number)).collect();
    let site = &call_sites(&requests)[0];
    assert_eq!((site.asked_by.len(), site.others, site.requests), (16, 4, 190));
}

fn recorded(sites: &[CallSite]) -> Recorded<'_> {
    let took_ns = Nanos(30_000_000_000);
    Recorded { took_ns, order_min: 2, requests: 12, unkept: 1, stolen: 4, polluting: 3, sites }
}

#[test]
fn blocks_that_only_movable_pages_may_use_do_not_count_and_what_goes_has_an_end() {
    let before = memory(BEFORE);
    let now = memory(AFTER);
    let sites = call_sites(&[request(&BINDER, 0xcc0, "one", 12)]);
    let orders = now.orders(Some((&before, &recorded(&sites))));
    let order = &orders[3];
    assert_eq!((order.blocks, order.free_bytes, order.block_bytes), (4, Bytes(131_072), Bytes(32_768)));
    // Twelve of sixteen went in 30 s.
    assert_eq!((order.requests, order.gone_in_ns), (Some(12), Some(Nanos(10_000_000_000))));
    assert_eq!(order.index_permille, None);
    assert_eq!(now.orders(None)[3].gone_in_ns, None);
}

#[test]
fn blocks_that_a_low_zone_keeps_for_others_do_not_count() {
    let mut memory = memory(b"Node 0, zone DMA 0 0 0 3\nNode 0, zone Normal 100 50 20 0\n");
    assert_eq!((memory.orders(None)[3].blocks, memory.orders(None)[3].index_permille), (3, None));
    memory.marks =
        vec![(memory.zones[0].0.clone(), ZoneMarks { reserve: Pages(100), ..ZoneMarks::default() })];
    // As of Normal alone: 1000 - (1000 + 280 * 1000 / 8) / 170.
    assert_eq!((memory.orders(None)[3].blocks, memory.orders(None)[3].index_permille), (0, Some(789)));
}

#[test]
fn where_nobody_says_how_large_a_pageblock_is_the_largest_block_is_one() {
    let mut memory = memory(b"Node 0, zone DMA 0 0 0 3\n");
    memory.types = None;
    assert_eq!(memory.pageblock_order(), 3);
    memory.types = Some(Pagetypes { pageblock_order: Some(9), ..Pagetypes::default() });
    assert_eq!(memory.pageblock_order(), 9);
}

#[test]
fn the_page_tells_all_of_it() {
    let (before, now) = (memory(BEFORE), memory(AFTER));
    let sites = call_sites(&[request(&BINDER, 0x40dc0, "dumpsys", 12)]);
    let recorded = recorded(&sites);
    let orders = now.orders(Some((&before, &recorded)));
    assert_eq!((orders[1].requests, orders[2].requests), (None, Some(0)));
    let page = Page { memory: &now, orders: &orders, recorded: Some(recorded) };
    let text = words(&page, true);
    for part in [
        "30 (30 %) are for pages that cannot be moved",
        "dumpsys",
        "    mmap_region\n",
        "10.0 s",
        "no room",
        "2 of them in vain",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plain = words(&Page { memory: &now, orders: &now.orders(None), recorded: None }, false);
    assert!(!plain.contains("GONE IN"), "{plain}");
    let others = Memory { types: None, ..now.clone() };
    assert!(words(&Page { memory: &others, orders: &[], recorded: None }, false).contains("to root only"));
    let json = serde_json::to_value(told(&page)).unwrap();
    assert_eq!(json["zones"][1]["pageblocks"]["Unmovable"], 30);
    assert_eq!(json["recording"]["sites"][0]["on_failure"], "forces");
    assert_eq!(json["orders"][3]["gone_in_ns"], 10_000_000_000_u64);
}
