use super::*;

/// Linux 6.18.
const BUDDY: &[u8] = b"\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
Node 1, zone   Normal   3669   3824   2509   1459   2024   1212    999    746    981    636   1156 \n";

const TYPES: &[u8] = b"\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 \n\
Node    0, zone   Normal, type    Unmovable      0   1059    701    418    528    326    277    180    163      0      0 \n\
Node    0, zone   Normal, type      Movable >100000     38     42     60   1129    794    673    534    811    636   1156 \n\
\n\
Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate \n\
Node 0, zone   Normal          265         7458          213            0            0 \n";

fn normal(node: u32) -> ZoneName {
    ZoneName { node, zone: "Normal".to_owned() }
}

#[test]
fn free_blocks_of_each_zone_are_read() {
    let zones = parse_buddyinfo(BUDDY).unwrap();
    let (dma, blocks) = &zones[0];
    assert_eq!((dma.node, dma.zone.as_str(), blocks.suitable(10)), (0, "DMA", 3));
    let (name, blocks) = &zones[1];
    assert_eq!((name, blocks.counts().len(), blocks.counts()[3]), (&normal(1), 11, 1459));
    assert_eq!(parse_buddyinfo(b""), Ok(Vec::new()));
}

#[test]
fn free_blocks_and_pageblocks_are_read_by_kind() {
    let types = parse_pagetypeinfo(TYPES).unwrap();
    let kinds: Vec<&str> = types.free.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["Unmovable", "Movable"]);
    assert_eq!(types.free[0].2.counts()[1], 1059);
    // Broken off by the kernel.
    assert_eq!(types.free[1].2.counts()[0], 100_000);
    assert_eq!(types.pageblocks.len(), 5);
    assert_eq!(types.pageblock_order, Some(9));
    assert_eq!(types.pageblocks[1], (normal(0), "Movable".to_owned(), 7458));
}

#[test]
fn each_node_has_its_tables_and_mixed_pageblocks_are_no_more_of_them() {
    let mixed =
        b"\nNumber of mixed blocks    Unmovable      Movable  Reclaimable   HighAtomic      Isolate \n\
        Node 0, zone   Normal            3            4            0            0            0 \n";
    let twice = [TYPES, mixed, TYPES.get(41..).unwrap(), mixed].concat();
    let types = parse_pagetypeinfo(&twice).unwrap();
    assert_eq!((types.free.len(), types.pageblocks.len()), (4, 10));
    assert_eq!(types.pageblocks[6].2, 7458);
}

#[test]
fn what_zones_keep_is_read() {
    let text =
        b"Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 5\n  pages free     3840\n        \
        high     24\n        protection: (0, 2991, 19659, 19659, 19659)\nNode 0, zone   Normal\n  pages free     9\n        \
        high     7\n        high_min 3\n        protection: (0, 0, 0, 0, 0)\nNode 0, zone  Movable\n        \
        protection: (0, 0, 0, 0, 0)\n";
    let marks = parse_zone_marks(text).unwrap();
    let shown: Vec<(&str, u64, u64)> =
        marks.iter().map(|(name, marks)| (name.zone.as_str(), marks.high.0, marks.reserve.0)).collect();
    // `Normal` is the second zone of this node.
    assert_eq!(shown, [("DMA", 24, 2991), ("Normal", 7, 0), ("Movable", 0, 0)]);
    parse_zone_marks(b"Node 0, zone Normal\n protection: (x)\n").unwrap_err();
    parse_zone_marks(b"Node 0, zone Normal\n high x\n").unwrap_err();
    assert_eq!(parse_zone_marks(b"Node 0, zone Normal\n"), Ok(vec![(normal(0), ZoneMarks::default())]));
}

#[test]
fn events_that_a_kernel_does_not_count_are_not_known() {
    let counts =
        parse_compactions(b"nr_free_pages 7\ncompact_stall 3\ncompact_fail 1\ncompact_success 2\n").unwrap();
    assert_eq!((counts.stalls, counts.failures, counts.successes), (Some(3), Some(1), Some(2)));
    assert_eq!(counts.daemon_wakes, None);
    parse_compactions(b"compact_stall -3\n").unwrap_err();
}

#[test]
fn what_is_cut_short_is_told() {
    for text in [&b"Node 0"[..], b"Node 0, zone", b"Node , zone Normal 1", b"Node 0, Normal 1"] {
        assert_eq!(parse_buddyinfo(text), Err(WireError::missing(BUDDYINFO, "zone")), "{text:?}");
    }
    parse_buddyinfo(b"Node 0, zone Normal 1 x").unwrap_err();
    assert_eq!(
        parse_pagetypeinfo(b"Node 0, zone Normal, type"),
        Err(WireError::missing(PAGETYPEINFO, "type"))
    );
}
