//! Lines of groups: root draws them, members see them.

use super::{ROOT, accounts, call, refused};
use crate::api::{
    control::Refusal,
    fake::{ALICE, BOB, Fake, STAFF},
};
use plimsoll_policy::lines::{Members, Membership, Place, Target};
use serde_json::{Value, json};

fn groups(reply: &Value) -> Vec<&str> {
    reply["groups"].as_array().unwrap().iter().map(|group| group["account"].as_str().unwrap()).collect()
}

#[test]
fn only_root_touches_a_groups_line_and_only_members_see_it() {
    let fake = Fake::new();
    for peer in [ALICE, BOB] {
        for (method, parameters) in [
            ("SetLimit", json!({"who": "@60003", "hard": "64M"})),
            ("SetLimit", json!({"who": "@60003", "hard": "64M", "now": true})),
            ("ClearLimit", json!({"who": "@60003"})),
            ("ShowLimits", json!({"who": "@7"})),
        ] {
            let refusal = refused(&fake, peer, method, parameters.clone());
            assert!(matches!(&refusal, Refusal::NotPermitted(_)), "{method} {parameters}: {refusal:?}");
        }
    }
    assert_eq!(fake.calls(), Vec::<String>::new());
    let drawn = call(&fake, ROOT, "SetLimit", json!({"who": "@60003", "hard": "3G", "soft": "2G"})).unwrap();
    assert_eq!(
        drawn["groups"],
        json!([{
            "account": "@60003", "name": null, "hard_bytes": 3_u64 << 30, "soft_bytes": 2_u64 << 30,
            "action": "kill", "source": "state", "members": 1, "doubt": null
        }])
    );
    // Alice's own line comes before it, so it is nobody's account yet.
    assert_eq!((accounts(&drawn).len(), drawn["default"].clone()), (0, Value::Null));
    for method in ["Status", "ShowLimits"] {
        for (peer, expected) in [(ROOT, vec!["@60003"]), (ALICE, vec!["@60003"]), (BOB, vec![])] {
            assert_eq!(
                groups(&call(&fake, peer, method, json!({})).unwrap()),
                expected,
                "{method} by {peer}"
            );
        }
    }
    let who = json!({"who": "@60003"});
    assert!(matches!(refused(&fake, BOB, "ShowLimits", who.clone()), Refusal::NotPermitted(_)));
    assert_eq!(call(&fake, ROOT, "ClearLimit", who.clone()).unwrap(), json!({"result": "removed"}));
    assert_eq!(groups(&call(&fake, ALICE, "ShowLimits", who).unwrap()), Vec::<&str>::new());
}

#[test]
fn accounts_say_through_whom_they_have_their_line_and_a_groups_are_listed_with_it() {
    let fake = Fake::new();
    call(&fake, ROOT, "SetLimit", json!({"who": "@60003", "hard": "3G"})).unwrap();
    let alice = |fake: &Fake| {
        let reply = call(fake, ALICE, "ShowLimits", json!({"who": "user:60001"})).unwrap();
        (reply["accounts"][0]["target"].clone(), reply["accounts"][0]["set_by"].clone())
    };
    assert_eq!(alice(&fake), (json!("user:60001"), json!(0)));
    fake.book.lock().unwrap().clear(Place::Administrator(Target::User(ALICE)));
    assert_eq!(alice(&fake), (json!("@60003"), json!(0)));
    for peer in [ROOT, ALICE] {
        let reply = call(&fake, peer, "ShowLimits", json!({"who": "@60003"})).unwrap();
        assert_eq!(accounts(&reply), ["user:60001"]);
    }
    // Up to the group's line, and not a byte more.
    let lower = |hard: &str| json!({"who": "user:60001", "hard": hard});
    assert!(matches!(refused(&fake, ALICE, "SetLimit", lower("3073M")), Refusal::NotPermitted(_)));
    call(&fake, ALICE, "SetLimit", lower("2G")).unwrap();
    assert_eq!(alice(&fake), (json!("user:60001"), json!(ALICE.0)));
}

#[test]
fn what_is_not_known_of_a_group_is_in_its_line() {
    let fake = Fake::new();
    call(&fake, ROOT, "SetLimit", json!({"who": "@60003", "hard": "3G"})).unwrap();
    call(&fake, ROOT, "SetLimit", json!({"who": "@7", "hard": "3G"})).unwrap();
    let doubted = Membership { uids: [ALICE].into(), doubt: Some("nobody answers".to_owned()) };
    fake.book.lock().unwrap().replace_members(Members::from([(STAFF, doubted)]));
    let reply = call(&fake, ROOT, "Status", json!({})).unwrap();
    assert_eq!(groups(&reply), ["@7", "@60003"]);
    assert_eq!(reply["groups"][1]["doubt"], "nobody answers");
    assert_eq!(reply["groups"][0]["doubt"], "its members have not been looked for yet");
}
