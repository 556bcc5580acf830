use super::*;

#[test]
fn optional_fields_are_passed_over_and_escapes_are_understood() {
    let mounts =
        capture!("mountinfo/hybrid").split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok());
    let mount = mounts.clone().find(|mount| unescape(mount.mount_point).unwrap() == b"/media/a b").unwrap();
    assert_eq!(mount.filesystem, b"ext4");
    assert!(mounts.clone().all(|mount| mount.mount_point != b"/media/a"));
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
