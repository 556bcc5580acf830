use super::*;

fn path(text: &[u8]) -> Option<&[u8]> {
    parse_cgroup(text).unwrap().path()
}

#[test]
fn the_unified_path_is_taken_where_it_says_something() {
    assert_eq!(
        path(capture!("cgroup/v2")).map(<[u8]>::len),
        Some("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-4a5e.scope".len() - 3)
    );
    assert_eq!(path(b"4:memory:/a\n0::/b\n"), Some(b"/b".as_slice()));
}

#[test]
fn the_memory_controllers_path_is_taken_where_there_is_no_unified_one_or_all_are_at_its_root() {
    assert_eq!(path(capture!("cgroup/v1-with-colon")), Some(b"/docker/3f:4e".as_slice()));
    assert_eq!(path(capture!("cgroup/hybrid")), Some(b"/jobs/build".as_slice()));
}

#[test]
fn the_root_of_the_unified_tree_is_a_path() {
    assert_eq!(path(b"0::/\n"), Some(b"/".as_slice()));
    assert_eq!(path(b"0::/\n4:memory:/\n"), Some(b"/".as_slice()));
}

#[test]
fn a_named_hierarchy_that_calls_itself_memory_is_not_the_controller() {
    assert_eq!(path(b"9:name=memory:/evil\n"), None);
    assert_eq!(path(b"9:name=x,memoryless:/evil\n"), None);
}

#[test]
fn a_kernel_without_cgroups_gives_no_path() {
    assert_eq!(path(b""), None);
}

#[test]
fn lines_of_another_form_are_errors() {
    for text in ["0::relative", "0:/a", "nothing", "0::"] {
        assert!(parse_cgroup(text.as_bytes()).is_err(), "{text}");
    }
}
