use super::sort;
use plimsoll_policy::reading::Reading;
use plimsoll_wire::text::parse_oom_group;
use rustix::io::Errno;

#[test]
fn a_file_that_cannot_be_read_or_understood_is_not_absent() {
    assert_eq!(sort(Err(Errno::IO), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Err(Errno::NODEV), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Ok(b"2\n"), parse_oom_group), Reading::Unreadable);
    assert_eq!(sort(Err(Errno::NOENT), parse_oom_group), Reading::Absent);
}
