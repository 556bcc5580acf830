use super::{Names, resolve};
use crate::exit::{Exit, Failure};
use plimsoll_policy::{
    lines::Target,
    units::{Gid, Uid},
    who::Who,
};

fn told(text: &str) -> (Exit, String) {
    match resolve(text) {
        Err(Failure::Told { exit, message }) => (exit, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_becomes_its_number_and_a_number_needs_no_user() {
    assert_eq!(resolve("root").unwrap(), Who::Uid(Uid(0)));
    assert_eq!(resolve("60789").unwrap(), Who::Uid(Uid(60_789)));
    assert_eq!(resolve("default").unwrap(), Who::Default);
    assert_eq!(resolve("@root").unwrap(), Who::MembersOf(Gid(0)));
    assert_eq!(resolve("@60789").unwrap(), Who::MembersOf(Gid(60_789)));
}

#[test]
fn a_user_who_does_not_exist_is_a_failure_and_a_text_that_is_no_name_is_bad_usage() {
    let (exit, message) = told("nobody-of-that-name");
    assert_eq!(exit, Exit::Failed);
    assert!(message.contains("'nobody-of-that-name'") && !message.contains('\n'), "{message}");
    let (exit, message) = told("@nogroup-of-that-name");
    assert_eq!(exit, Exit::Usage);
    assert!(message.contains("'nogroup-of-that-name'") && !message.contains('\n'), "{message}");
    for text in ["", "@", "@4294967295", "job:x", "cgroup:/", "cgroup:x", "4294967295", "a/b", "\u{1b}]0;x"] {
        let (exit, message) = told(text);
        assert_eq!(exit, Exit::Usage, "{text:?}");
        assert!(!message.contains(['\n', '\u{1b}']), "{message}");
    }
}

#[test]
fn a_number_is_named_where_it_has_a_name() {
    let mut names = Names::default();
    assert_eq!(names.of_uid(Uid(0)).as_deref(), Some("root"));
    assert_eq!(names.of_uid(Uid(60_789)), None);
    assert_eq!(names.of_gid(Gid(60_789)), None);
    assert_eq!(names.of_group(&Target::Members(Gid(0))).as_deref(), Some("root"));
    assert_eq!(names.of_group(&Target::Default), None);
}
