use super::{AnonView, BarredView, FileView, FloorView, ProtectView, TierView};
use plimsoll_policy::workingset::{FileId, Tier, Why, floor::Standing};

#[test]
fn protect_show_has_the_fields_that_scripts_rely_on() {
    let view = ProtectView {
        state: String::from("on"),
        hard: TierView { budget_bytes: 4096, locked_bytes: 4096, files: 1 },
        floor: Some(FloorView {
            line_bytes: 4096,
            clean_bytes: None,
            standing: Standing::NothingToFree,
            kills: 0,
            last_incident: None,
        }),
        anon: Some(AnonView {
            line_bytes: 4096,
            anon_bytes: None,
            held_by: Some(String::from("memory.swap.max")),
        }),
        min_ttl_ms: Some(1000),
        cgroup_shares: true,
        opening: 1,
        files: vec![FileView {
            file: FileId { device: 254 << 20, inode: 7, generation: 1 },
            path: Some(String::from("/usr/bin/cc")),
            size_bytes: Some(5000),
            locked_bytes: 4096,
            wanted_bytes: 8192,
            tier: Some(Tier::Hard),
            reason: String::from(Why::HotPart.text()),
        }],
        barred: vec![BarredView { reason: String::from("unlinked"), files: 2 }],
        ..ProtectView::default()
    };
    let json = serde_json::to_value(&view).unwrap();
    let expected = serde_json::json!({
        "state": "on",
        "tunables": {"workingset_protection": 0, "anon_min_ratio": 15, "clean_min_ratio": 15, "clean_low_ratio": 0},
        "cgroup": null, "memory_bytes": null,
        "hard": {"budget_bytes": 4096, "locked_bytes": 4096, "files": 1},
        "soft": {"budget_bytes": 0, "locked_bytes": 0, "files": 0},
        "soft_releases": 0,
        "floor": {"line_bytes": 4096, "clean_bytes": null, "standing": "nothing-to-free", "kills": 0,
            "last_incident": null},
        "anon": {"line_bytes": 4096, "anon_bytes": null, "held_by": "memory.swap.max"},
        "min_ttl_ms": 1000, "cgroup_shares": true, "opening": 1,
        "files": [{"device": 266_338_304, "inode": 7, "generation": 1, "path": "/usr/bin/cc", "size_bytes": 5000,
            "locked_bytes": 4096, "wanted_bytes": 8192, "tier": "hard", "reason": "hot-part"}],
        "barred": [{"reason": "unlinked", "files": 2}],
        "memory": {"files": 0, "chunks": 0, "chunks_max": 0},
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<ProtectView>(json).unwrap(), view);
}
