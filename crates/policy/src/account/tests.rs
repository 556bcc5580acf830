use super::{Account, Action, CgroupPath, CgroupPathError};
use crate::units::Uid;
use std::string::ToString;

#[test]
fn an_account_reads_back_from_its_json() {
    let account = Account::User(Uid(1000));
    let json = serde_json::to_string(&account).unwrap();
    assert_eq!(json, "\"user:1000\"");
    assert_eq!(serde_json::from_str::<Account>(&json).unwrap(), account);
    for text in ["group:50", "cgroup:/machine.slice/libpod-1.scope", "cgroup:/a b/\u{e9}", "system"] {
        assert_eq!(text.parse::<Account>().unwrap().to_string(), text);
    }
    serde_json::from_str::<Account>("\"cgroup:a\"").unwrap_err();
    serde_json::from_str::<Account>("\"user:alice\"").unwrap_err();
    serde_json::from_str::<Account>("\"group:staff\"").unwrap_err();
    serde_json::from_str::<Account>("\"1000\"").unwrap_err();
}

#[test]
fn a_cgroup_is_named_by_one_path_and_by_no_other() {
    let path = |text: &str| text.parse::<CgroupPath>();
    assert_eq!(path("/a/b/").unwrap(), path("/a/b").unwrap());
    for good in ["/a", "/a\\x2db.scope", "/...", "/a b", &("/".to_string() + &"x".repeat(4094))] {
        assert_eq!(path(good).unwrap().as_str(), good);
    }
    assert_eq!(path("/").unwrap_err(), CgroupPathError::Root);
    let long = "/".to_string() + &"x".repeat(4095);
    for bad in ["", "a", "a/b", "//", "/a//b", "/a//", "/.", "/..", "/a/../b", "/a/.", "/a\nb", "/a\0", &long]
    {
        assert_eq!(path(bad).unwrap_err(), CgroupPathError::Malformed(bad.to_string()), "{bad:?}");
    }
}

#[test]
fn what_is_below_a_cgroup_is_told_from_what_is_only_called_alike() {
    let path: CgroupPath = "/a/b".parse().unwrap();
    for (other, covered) in [("/a/b", true), ("/a/b/c", true), ("/a/bc", false), ("/a", false), ("", false)] {
        assert_eq!(path.covers(other.as_bytes()), covered, "{other}");
    }
}

#[test]
fn actions_have_one_spelling_everywhere() {
    for action in Action::ALL {
        assert_eq!(action.to_string().parse(), Ok(action));
        assert_eq!(serde_json::to_string(&action).unwrap(), std::format!("\"{action}\""));
    }
    let error = "destroy\n".parse::<Action>().unwrap_err();
    assert_eq!(error.to_string(), r"unknown action 'destroy\n'; actions are kill, term, deny and notify");
}

#[test]
fn actions_are_listed_from_mild_to_strict() {
    assert!(Action::ALL.is_sorted_by_key(|action| action.strictness()));
}
