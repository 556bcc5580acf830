use super::*;
use std::fs;

fn settings(enabled: &str, min_ttl_ms: &str) -> (tempfile::TempDir, LruGen) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("enabled"), enabled).unwrap();
    fs::write(folder.path().join("min_ttl_ms"), min_ttl_ms).unwrap();
    let found = LruGen::at(folder.path()).unwrap();
    (folder, found)
}

#[test]
fn it_is_enabled_by_its_lowest_bit() {
    for (text, enabled) in [("0x0007\n", true), ("0x0001\n", true), ("0x0000\n", false), ("0x0006\n", false)]
    {
        let (_folder, found) = settings(text, "0\n");
        assert_eq!(found.is_enabled().unwrap(), enabled, "{text}");
    }
    let (_folder, found) = settings("yes", "none");
    found.is_enabled().unwrap_err();
    found.min_ttl_ms().unwrap_err();
}

#[test]
fn a_time_that_the_administrator_has_set_stays() {
    let (_folder, found) = settings("0x0007\n", "500\n");
    assert_eq!(found.plan_min_ttl_ms(1000).unwrap(), None);
    let (_folder, found) = settings("0x0007\n", "0\n");
    let mut undo = found.plan_min_ttl_ms(1000).unwrap().unwrap();
    undo.apply().unwrap();
    assert_eq!(found.min_ttl_ms().unwrap(), 1000);
}

#[test]
fn a_kernel_without_it_has_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(LruGen::at(folder.path()), None);
}
