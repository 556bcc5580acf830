use super::*;

#[test]
fn the_filesystem_for_pins_is_found_in_a_capture() {
    assert_eq!(has_bpffs_at(capture!("mountinfo/hybrid"), b"/sys/fs/bpf"), Ok(true));
    assert_eq!(has_bpffs_at(capture!("mountinfo/hybrid"), b"/sys/fs"), Ok(false));
    assert_eq!(has_bpffs_at(capture!("mountinfo/hybrid"), b"/sys/fs/cgroup/unified"), Ok(false));
}

#[test]
fn a_mount_that_covers_another_is_the_one_that_counts() {
    assert_eq!(has_bpffs_at(capture!("mountinfo/covered"), b"/sys/fs/bpf"), Ok(false));
}

#[test]
fn optional_fields_are_passed_over_and_escapes_are_understood() {
    let mount = topmost_mount_at(capture!("mountinfo/hybrid"), b"/media/a b").unwrap().unwrap();
    assert_eq!((mount.filesystem, mount.options), (b"ext4".as_slice(), b"rw,relatime".as_slice()));
    assert_eq!(topmost_mount_at(capture!("mountinfo/hybrid"), b"/media/a").unwrap(), None);
    assert_eq!(topmost_mount_at(capture!("mountinfo/hybrid"), b"/media/a bc").unwrap(), None);
}

#[test]
fn an_escaped_backslash_is_one_byte_and_a_broken_escape_is_no_path() {
    assert!(is_path(br"/a\134b", br"/a\b"));
    assert!(!is_path(br"/a\999", b"/a9"));
    assert!(!is_path(br"/a\13", br"/a\13"));
}

#[test]
fn a_line_cut_short_is_an_error() {
    for line in ["1 2 0:1 /", "1 2 0:1 / /x", "1 2 0:1 / /x rw shared:1", "1 2 0:1 / /x rw -"] {
        assert!(parse_mount(line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn a_mount_is_known_by_its_number_and_the_kernel_s_device() {
    let mount = parse_mount(b"27 1 254:3 / / rw,relatime - ext4 /dev/vda rw").unwrap();
    assert_eq!((mount.id, mount.device), (27, 254 << 20 | 3));
    for line in
        ["x 1 254:3 / / rw - ext4 a rw", "27 1 254 / / rw - ext4 a rw", "27 1 4096:0 / / rw - ext4 a rw"]
    {
        assert!(parse_mount(line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn an_escaped_path_is_unescaped_or_refused() {
    assert_eq!(unescape(br"/media/a\040b\134"), Some(br"/media/a b\".to_vec()));
    assert_eq!(unescape(br"/media/\09"), None);
    assert_eq!(unescape(br"/media/\"), None);
}
