use super::{Account, Action};
use crate::units::Uid;
use std::string::ToString;

#[test]
fn an_account_reads_back_from_its_json() {
    let account = Account::User(Uid(1000));
    let json = serde_json::to_string(&account).unwrap();
    assert_eq!(json, "\"user:1000\"");
    assert_eq!(serde_json::from_str::<Account>(&json).unwrap(), account);
    serde_json::from_str::<Account>("\"user:alice\"").unwrap_err();
    serde_json::from_str::<Account>("\"1000\"").unwrap_err();
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
