use super::*;

#[test]
fn only_a_switched_on_multi_gen_lru_is_present() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("enabled");
    for (text, present) in [("0x0007\n", true), ("0x0001\n", true), ("0x0000\n", false), ("0x0006\n", false)]
    {
        fs::write(&file, text).unwrap();
        assert_eq!(multi_gen_lru(&file) == Answer::Present, present, "{text}");
    }
    fs::write(&file, "yes\n").unwrap();
    assert!(matches!(multi_gen_lru(&file), Answer::Unknown(_)));
    assert!(matches!(multi_gen_lru(&folder.path().join("none")), Answer::Absent(_)));
}

#[test]
fn pressure_that_is_not_there_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(pressure(&folder.path().join("memory")), Answer::Absent(_)));
    assert!(matches!(pressure(folder.path()), Answer::Unknown(_)));
}
