use super::{JobId, Who, WhoError};
use crate::units::{Gid, Uid};
use proptest::proptest;
use std::string::{String, ToString};

fn named(name: &str) -> Who {
    Who::User(name.to_string())
}

#[test]
fn every_documented_form_is_read() {
    let cases = [
        ("alice", named("alice")),
        ("Alice.O-Brien_2", named("Alice.O-Brien_2")),
        ("1000", Who::Uid(Uid(1000))),
        ("0", Who::Uid(Uid(0))),
        ("4294967294", Who::Uid(Uid(4_294_967_294))),
        ("user:1000", Who::Uid(Uid(1000))),
        ("user:alice", named("alice")),
        ("user:default", named("default")),
        ("default", Who::Default),
        ("@staff", Who::Members("staff".to_string())),
        ("@domain users", Who::Members("domain users".to_string())),
        ("group:staff", Who::Group("staff".to_string())),
        ("@50", Who::MembersOf(Gid(50))),
        ("group:0", Who::Gid(Gid(0))),
        ("job:7", Who::Job(JobId(7))),
        ("cgroup:/user.slice/a", Who::Cgroup("/user.slice/a".parse().unwrap())),
        ("system", Who::System),
    ];
    for (text, who) in cases {
        assert_eq!(text.parse::<Who>(), Ok(who), "{text}");
    }
}

#[test]
fn what_names_nobody_is_refused() {
    assert_eq!("".parse::<Who>(), Err(WhoError::Empty));
    for number in ["4294967295", "99999999999999999999", "user:4294967296"] {
        assert!(matches!(number.parse::<Who>(), Err(WhoError::UidRange(_))), "{number}");
    }
    for number in ["@4294967295", "group:99999999999999999999"] {
        let error = number.parse::<Who>().unwrap_err();
        assert!(matches!(error, WhoError::GidRange(_)) && error.to_string().starts_with("gid '"), "{number}");
    }
    let long = "a".repeat(256);
    for text in [
        "@",
        "@@staff",
        "@-1",
        "group:",
        "job:",
        "job:x",
        "job:4294967295",
        "user:",
        "-1",
        "--now",
        "a/b",
        "a:b",
        "a\nb",
        " a",
        "a ",
        &long,
    ] {
        assert_eq!(text.parse::<Who>(), Err(WhoError::Malformed(text.to_string())), "{text}");
    }
}

#[test]
fn a_hostile_name_is_escaped_in_the_error() {
    let error = "a\u{1b}[2Jb".parse::<Who>().unwrap_err().to_string();
    assert!(error.starts_with(r"'a\u{1b}[2Jb' is no user name"), "{error}");
}

proptest! {
    #[test]
    fn whatever_is_read_reads_back_from_what_is_shown(text in "(user:|@|group:|job:|cgroup:/)?[a-z0-9 .@:/-]{0,12}") {
        if let Ok(who) = text.parse::<Who>() {
            assert_eq!(who.to_string().parse(), Ok(who));
        }
    }

    #[test]
    fn no_text_is_ever_more_than_an_error_in_one_line(text: String) {
        if let Err(error) = text.parse::<Who>() {
            assert!(!error.to_string().contains('\n'));
        }
    }
}
