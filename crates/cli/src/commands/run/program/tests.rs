use super::{asks_for_linker, check, find};
use std::{ffi::OsStr, fs, os::unix::fs::PermissionsExt as _, path::Path};

#[test]
fn a_name_is_searched_and_a_path_is_not() {
    assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
    assert_eq!(find(OsStr::new("no-such-program-here")), None);
    assert_eq!(find(OsStr::new("./no-such-program-here")), None);
}

#[test]
fn what_has_no_dynamic_linker_is_told_apart_from_what_has() {
    let shell = fs::read("/bin/sh").unwrap();
    assert!(asks_for_linker(&shell).unwrap());
    // The same without its request for one: PT_INTERP (3) becomes PT_NULL.
    let mut without = shell;
    let (table, entries) = (64, usize::from(without[56]));
    for entry in 0..entries {
        let kind = table + entry * 56;
        if without[kind..kind + 4] == 3_u32.to_le_bytes() {
            without[kind] = 0;
        }
    }
    assert!(!asks_for_linker(&without).unwrap());
    assert!(asks_for_linker(b"#!/bin/sh\n").is_err() && asks_for_linker(b"").is_err());
}

#[test]
fn a_script_may_have_a_library_and_a_static_program_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(check(&script), Ok(()));
    assert_eq!(check(Path::new("/bin/sh")), Ok(()));
}
