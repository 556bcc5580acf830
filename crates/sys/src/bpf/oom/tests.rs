use super::*;

/// Any file system shows which pins are whose.
#[test]
fn programs_that_are_not_pinned_cannot_be_opened_and_their_pins_are_their_own() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(OomKills::open(root.path()), Err(BpfError::Pin { .. })));
    assert!(!OomKills::remove(root.path()).unwrap());
    std::fs::create_dir_all(root.path().join("oom/0123456789abcdef")).unwrap();
    std::fs::create_dir_all(root.path().join("select/0123456789abcdef")).unwrap();
    assert!(OomKills::remove(root.path()).unwrap());
    assert!(root.path().join("select/0123456789abcdef").exists());
}
