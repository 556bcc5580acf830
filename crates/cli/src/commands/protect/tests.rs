use super::*;
use plimsoll_api::protect::{BarredView, MemoryView};
use plimsoll_policy::workingset::{FileId, Ratio};

fn view() -> ProtectView {
    let file = FileView {
        file: FileId { device: 254 << 20, inode: 12, generation: 7 },
        path: Some("/usr/lib/lib\u{7}LLVM.so".to_owned()),
        size_bytes: Some(100 << 20),
        locked_bytes: 60 << 20,
        wanted_bytes: 80 << 20,
        tier: Some(Tier::Hard),
        reason: "running".to_owned(),
    };
    ProtectView {
        state: "on".to_owned(),
        tunables: Tunables { clean_low_ratio: Ratio::new(5).unwrap(), ..Tunables::default() },
        cgroup: None,
        memory_bytes: Some(8 << 30),
        hard: TierView { budget_bytes: 1 << 30, locked_bytes: 60 << 20, files: 1 },
        soft: TierView::default(),
        soft_releases: 3,
        floor: Some(FloorView {
            line_bytes: 1 << 30,
            clean_bytes: None,
            standing: Standing::Near,
            kills: 2,
            last_incident: Some(41),
        }),
        anon: Some(AnonView {
            line_bytes: 1 << 30,
            anon_bytes: Some(512 << 20),
            held_by: Some("memory.swap.max".to_owned()),
        }),
        min_ttl_ms: Some(1000),
        cgroup_shares: false,
        opening: 3,
        files: vec![file.clone(), FileView { path: None, tier: None, ..file }],
        barred: vec![BarredView { reason: "open-for-writing".to_owned(), files: 4 }],
        memory: MemoryView::default(),
    }
}

fn shown(view: &ProtectView) -> String {
    let mut out = Vec::new();
    show(&mut out, view).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_page_tells_tunables_tiers_floor_files_and_what_is_left_out() {
    let text = shown(&view());
    for part in [
        "clean_min_ratio=15 clean_low_ratio=5",
        "8.0 GiB of memory of this machine",
        "let go 3 times",
        "now not known, near it. Incidents there: 2; the last is told by 'plimsoll why 41'",
        "254:0 inode 12",
        "4 files are used and not held, or not all of them: open-for-writing",
        "Floor of programs' own memory: 1.0 GiB; now 512.0 MiB in RAM, nothing more is swapped out (memory.swap.max).",
        "used within 1000 ms",
        "3 files wait to be opened",
        "Limits of memory cgroups are not looked at",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

#[test]
fn what_is_not_done_is_not_told_of() {
    let quiet = ProtectView { anon: None, min_ttl_ms: None, cgroup_shares: true, opening: 0, ..view() };
    let text = shown(&quiet);
    for part in ["programs' own memory", "multi-generational", "wait to be opened", "not looked at"] {
        assert!(!text.contains(part), "'{part}' is in:\n{text}");
    }
}

#[test]
fn little_clean_memory_is_not_said_to_be_far_from_the_floor() {
    let floor = |clean_bytes| FloorView {
        line_bytes: 1 << 30,
        clean_bytes: Some(clean_bytes),
        standing: Standing::Above,
        kills: 0,
        last_incident: None,
    };
    let told = |clean_bytes| shown(&ProtectView { floor: Some(floor(clean_bytes)), ..view() });
    assert!(told(512 << 20).contains("now 512.0 MiB, and memory is not short."));
    assert!(told(3 << 30).contains("now 3.0 GiB, far from it."));
}

#[test]
fn control_characters_of_a_path_do_not_reach_the_terminal() {
    assert!(!shown(&view()).contains('\u{7}'));
}

#[test]
fn a_protection_that_is_off_is_a_short_page() {
    let text = shown(&ProtectView { state: "off".to_owned(), ..ProtectView::default() });
    assert!(text.contains("Working-set protection: off") && !text.contains("Floor"), "{text}");
}
