use super::{Marks, SetBy};
use crate::cgroup::{
    Cgroup, CgroupErrorKind,
    testing::{Grove, USER},
};
use plimsoll_policy::units::Uid;
use rustix::fs::{AtFlags, Mode, XattrFlags, chmodat, fgetxattr, fsetxattr};

fn set(cgroup: &Cgroup, name: &str, value: &str) {
    fsetxattr(cgroup.dir(), name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

fn value(cgroup: &Cgroup, name: &str) -> String {
    let mut value = [0; 64];
    let length = fgetxattr(cgroup.dir(), name, value.as_mut_slice()).unwrap();
    String::from_utf8(value[..length].to_vec()).unwrap()
}

#[test]
fn a_cgroup_without_marks_has_none() {
    let Some(grove) = Grove::plant() else { return };
    let none = Marks { avoid: None, omit: None };
    assert_eq!(grove.top().marks().unwrap(), none);
    for value in ["0", "no", "", "2", "a value that is far too long to be a word for true"] {
        set(&grove.top(), "user.oomd_omit", value);
        assert_eq!(grove.top().marks().unwrap(), none, "{value:?}");
    }
}

#[test]
fn a_mark_is_told_with_who_can_have_set_it() {
    let Some(grove) = Grove::plant() else { return };
    let top = grove.top();
    set(&top, "user.oomd_avoid", "1");
    let marks = top.marks().unwrap();
    assert_eq!((marks.avoid, marks.omit), (Some(SetBy::Root), None));
    Grove::give_away(&top);
    set(&top, "user.oomd_omit", "true");
    let marks = top.marks().unwrap();
    let by_user = Some(SetBy::Owner(Uid(USER)));
    assert_eq!((marks.avoid, marks.omit), (by_user, by_user));
    chmodat(top.dir(), c".", Mode::from(0o775), AtFlags::empty()).unwrap();
    assert_eq!(top.marks().unwrap().omit, Some(SetBy::Anybody));
}

#[test]
fn a_trusted_mark_is_roots_whoever_owns_the_folder() {
    let Some(grove) = Grove::plant() else { return };
    let top = grove.top();
    Grove::give_away(&top);
    set(&top, "trusted.oomd_avoid", "1");
    assert_eq!(top.marks().unwrap().avoid, Some(SetBy::Root));
}

#[test]
fn kills_are_counted_as_systemd_reads_them() {
    let Some(grove) = Grove::plant() else { return };
    let top = grove.top();
    top.note_oom_kill_begins().unwrap();
    top.note_oom_kill(3).unwrap();
    assert_eq!((value(&top, "user.oomd_ooms"), value(&top, "user.oomd_kill")), ("1".into(), "3".into()));
    top.note_oom_kill_begins().unwrap();
    top.note_oom_kill(4).unwrap();
    assert_eq!((value(&top, "user.oomd_ooms"), value(&top, "user.oomd_kill")), ("2".into(), "7".into()));
}

#[test]
fn a_count_that_somebody_spoilt_is_left_and_told() {
    let Some(grove) = Grove::plant() else { return };
    let top = grove.top();
    set(&top, "user.oomd_kill", "many");
    let error = top.note_oom_kill(1).unwrap_err();
    assert!(matches!(error.kind, CgroupErrorKind::Unreadable(_)), "{error}");
    assert_eq!(value(&top, "user.oomd_kill"), "many");
    set(&top, "user.oomd_ooms", "18446744073709551615");
    let error = top.note_oom_kill_begins().unwrap_err();
    assert!(matches!(error.kind, CgroupErrorKind::Failed(_)), "{error}");
    assert_eq!(value(&top, "user.oomd_ooms"), "18446744073709551615");
}
