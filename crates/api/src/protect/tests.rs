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
    let expected: serde_json::Value = serde_json::from_str(include_str!("sample.json")).unwrap();
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<ProtectView>(json).unwrap(), view);
}
