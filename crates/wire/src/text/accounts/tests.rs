use super::{GroupEntry, group_entries, passwd_entries, subordinate_entries};
use plimsoll_policy::units::{Gid, Uid};

fn users(text: &[u8]) -> Vec<(&[u8], u32, u32)> {
    passwd_entries(text).map(|user| (user.name, user.uid.0, user.gid.0)).collect()
}

type Group<'a> = (&'a [u8], u32, Vec<&'a [u8]>);

fn groups(text: &[u8]) -> Vec<Group<'_>> {
    group_entries(text).map(|group| (group.name, group.gid.0, group.members().collect())).collect()
}

#[test]
fn users_and_groups_of_a_debian_machine_are_read() {
    let found = users(capture!("passwd/debian"));
    assert_eq!(found.first(), Some(&(&b"root"[..], 0, 0)));
    assert!(found.contains(&(b"nobody", 65_534, 65_534)) && found.contains(&(b"alice", 1000, 1000)));
    assert_eq!(found.len(), capture!("passwd/debian").split(|byte| *byte == b'\n').count() - 1);
    let found = groups(capture!("group/debian"));
    assert!(found.contains(&(b"staff", 50, vec![b"alice", b"bob"])), "{found:?}");
    assert!(found.contains(&(b"root", 0, vec![])));
}

#[test]
fn what_the_c_library_skips_is_skipped() {
    assert_eq!(
        users(b"# a:x:1:1\n+::::::\n-b:x:1:1\n\n:x:1:1\nc:x:1\nd:x::1\ne:x:-1:1\nf:x:1:4294967295\n"),
        []
    );
    assert_eq!(groups(b"#a:x:1:\n+\n:x:1:\nb:x\nc:x:x:\nd:x:4294967296:\n"), []);
}

#[test]
fn a_line_may_be_short_blank_around_and_without_its_end() {
    assert_eq!(
        users(b"a:x:1:2\n \tb::3:4:GECOS:/:/bin/sh\r\nc:x:5:6"),
        [(&b"a"[..], 1, 2), (b"b", 3, 4), (b"c", 5, 6)]
    );
    assert_eq!(
        groups(b"a:x:1\nb:x:2:\nc:x:3:d, e,,f "),
        [(&b"a"[..], 1, vec![]), (b"b", 2, vec![]), (b"c", 3, vec![&b"d"[..], b"e", b"f"])]
    );
}

#[test]
fn names_are_bytes_and_stay_as_they_are() {
    let user = passwd_entries(b"\xff\x1b[2J \xc3\xa9:x:7:8:").next().unwrap();
    assert_eq!((user.name, user.uid, user.gid), (&b"\xff\x1b[2J \xc3\xa9"[..], Uid(7), Gid(8)));
    let groups: Vec<GroupEntry<'_>> = group_entries(b"domain users:x:9:\xff,a b\0").collect();
    let [group] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!(
        (group.name, group.members().collect::<Vec<_>>()),
        (&b"domain users"[..], vec![&b"\xff"[..], b"a b\0"])
    );
}

#[test]
fn ranges_of_subordinate_uids_that_are_none_are_left_out() {
    let text = b"alice:100000:65536\n#x:1:1\n1000:7:1\nb:1\nc:1:0\nd:4294967290:10\ne:x:1\nf:5:2";
    let ranges: Vec<_> = subordinate_entries(text).map(|one| (one.owner, one.first, one.last)).collect();
    assert_eq!(ranges, [(&b"alice"[..], 100_000, 165_535), (b"1000", 7, 7), (b"f", 5, 6)]);
}
