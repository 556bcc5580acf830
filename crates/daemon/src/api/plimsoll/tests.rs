//! The methods, called directly: who may do what, and what each sees of it.

mod groups;

use super::{Fault, PAGE_INCIDENTS, Plimsoll};
use crate::api::{
    control::Refusal,
    fake::{ALICE, BOB, DIRECTORYS, Fake, incident, line},
    peer::Peer,
};
use plimsoll_policy::{
    lines::{Place, Target},
    units::Uid,
};
use serde_json::{Value, json};

const ROOT: Uid = Uid::ROOT;

fn call(fake: &Fake, uid: Uid, method: &str, parameters: Value) -> Result<Value, Fault> {
    Plimsoll { control: fake, peer: Peer { uid, owner: uid, pid: None } }.call(method, Some(&parameters))
}

fn refused(fake: &Fake, uid: Uid, method: &str, parameters: Value) -> Refusal {
    match call(fake, uid, method, parameters) {
        Err(Fault::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn accounts(reply: &Value) -> Vec<&str> {
    let list = reply["accounts"].as_array().unwrap();
    list.iter().map(|account| account["account"].as_str().unwrap()).collect()
}

#[test]
fn what_is_not_permitted_never_reaches_the_daemon() {
    let fake = Fake::new();
    for (method, parameters) in [
        ("ShowLimits", json!({"who": "user:60002"})),
        ("ShowLimits", json!({"who": "user:0"})),
        ("ShowProcesses", json!({"who": "user:60002"})),
        ("SetLimit", json!({"who": "user:60002", "hard": "64M"})),
        ("SetLimit", json!({"who": "user:60002", "hard": "64M", "now": true})),
        ("SetLimit", json!({"who": "default", "hard": "64M"})),
        ("SetLimit", json!({"who": "user:60001", "hard": "1025M"})),
        ("SetLimit", json!({"who": "user:60001", "hard": "100%"})),
        ("SetLimit", json!({"who": "user:60001", "hard": "64M", "action": "notify"})),
        ("ClearLimit", json!({"who": "user:60002"})),
        ("ClearLimit", json!({"who": "default"})),
    ] {
        let refusal = refused(&fake, ALICE, method, parameters.clone());
        assert!(matches!(&refusal, Refusal::NotPermitted(_)), "{method} {parameters}: {refusal:?}");
        assert!(!refusal.to_string().contains('\n'));
    }
    assert_eq!(fake.calls(), Vec::<String>::new());
}

#[test]
fn a_user_lowers_their_own_line_and_takes_that_back() {
    let fake = Fake::new();
    let reply = call(&fake, ALICE, "SetLimit", json!({"who": "user:60001", "hard": "64M"})).unwrap();
    assert_eq!(reply["accounts"][0]["hard_bytes"], 64 << 20);
    let raised = json!({"who": "user:60001", "hard": "1G"});
    assert_eq!(call(&fake, ALICE, "SetLimit", raised).unwrap()["accounts"][0]["hard_bytes"], 1 << 30);
    let cleared = call(&fake, ALICE, "ClearLimit", json!({"who": "user:60001"})).unwrap();
    assert_eq!(cleared, json!({"result": "removed"}));
    let book = fake.book.lock().unwrap();
    assert_eq!(book.get(&Place::Administrator(Target::User(ALICE))), Some(&line(1 << 30)), "root's stays");
}

#[test]
fn lists_hold_a_users_own_account_and_for_root_all() {
    let fake = Fake::new();
    for method in ["Status", "ShowLimits"] {
        assert_eq!(accounts(&call(&fake, ALICE, method, json!({})).unwrap()), ["user:60001"], "{method}");
        let all = call(&fake, ROOT, method, json!({})).unwrap();
        assert_eq!(accounts(&all), ["user:60001", "user:60002"], "{method}");
    }
    let other = call(&fake, Uid(60_003), "ShowLimits", json!({})).unwrap();
    assert_eq!((accounts(&other).len(), other["default"]["hard"].as_str()), (0, Some("2G")));
}

#[test]
fn the_default_line_is_shown_as_typed_and_in_bytes() {
    let fake = Fake::new();
    call(&fake, ROOT, "SetLimit", json!({"who": "default", "hard": "25%"})).unwrap();
    let reply = call(&fake, ALICE, "ShowLimits", json!({"who": "default"})).unwrap();
    assert_eq!(accounts(&reply).len(), 0);
    let default = &reply["default"];
    assert_eq!((&default["hard"], &default["hard_bytes"]), (&json!("25%"), &json!(2_u64 << 30)));
    assert_eq!((&default["uid_min"], &default["uid_max"]), (&json!(1000), &json!(61_000)));
}

#[test]
fn a_user_reads_the_incidents_that_concern_them_and_nobody_elses_command_line() {
    let fake = Fake::new();
    let page = call(&fake, ALICE, "History", json!({})).unwrap();
    assert_eq!(page["incidents"].as_array().unwrap().len(), 1);
    assert_eq!(page["incidents"][0]["victims"][0]["cmdline"], "hog --secret-of=60001");
    assert_eq!(page["incidents"][0]["peers"][0]["cmdline"], Value::Null, "root's");
    let one = call(&fake, ALICE, "GetIncident", json!({"id": 1})).unwrap();
    assert_eq!(one["incident"]["peers"][0]["cmdline"], Value::Null);
    for parameters in [json!({"id": 2}), json!({"pid": 4000 + BOB.0}), json!({"id": 3}), json!({"pid": 1})] {
        assert!(matches!(refused(&fake, ALICE, "GetIncident", parameters), Refusal::NotFound(_)));
    }
    let bob = call(&fake, ROOT, "GetIncident", json!({"pid": 4000 + BOB.0})).unwrap();
    assert_eq!(bob["incident"]["peers"][0]["cmdline"], "hog --secret-of=0");
}

#[test]
fn the_last_incident_is_the_last_that_the_peer_may_see() {
    let fake = Fake::new();
    assert_eq!(call(&fake, ROOT, "GetIncident", json!({})).unwrap()["incident"]["id"], 2);
    assert_eq!(call(&fake, ALICE, "GetIncident", json!({})).unwrap()["incident"]["id"], 1);
    assert!(matches!(refused(&fake, Uid(60_003), "GetIncident", json!({})), Refusal::NotFound(_)));
    // It is found behind many of other people's, and the search for it has an end.
    let many = |count: u64| {
        let mut incidents = vec![incident(1, ALICE)];
        incidents.extend((2..=count).map(|id| incident(id, BOB)));
        *fake.incidents.lock().unwrap() = incidents;
    };
    many(900);
    assert_eq!(call(&fake, ALICE, "GetIncident", json!({})).unwrap()["incident"]["id"], 1);
    many(3000);
    fake.calls.lock().unwrap().clear();
    assert!(matches!(refused(&fake, ALICE, "GetIncident", json!({})), Refusal::NotFound(_)));
    assert_eq!(fake.calls().len(), super::PAGES_SEARCHED_MAX);
}

#[test]
fn a_wait_ends_with_an_incident_that_the_peer_may_see_or_with_an_account_that_is_near() {
    let fake = Fake::new();
    let wait = |uid, after: u64, within: u64, near: Value| {
        call(&fake, uid, "AwaitIncident", json!({"after_id": after, "within_ms": within, "near": near}))
    };
    let newest = |uid, after, within| wait(uid, after, within, Value::Null).unwrap()["newest_id"].clone();
    // At once where there is one; for as long as was asked for where it is another's.
    assert_eq!(newest(ROOT, 0, 60_000), 2);
    assert_eq!(newest(ALICE, 0, 60_000), 1);
    assert_eq!(newest(ALICE, 1, 30), 1);
    assert_eq!(newest(Uid(60_003), 0, 30), 0);
    // One that comes meanwhile, behind others'.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| newest(ALICE, 1, 60_000));
        for (id, uid) in [(3, BOB), (4, ALICE), (5, BOB)] {
            std::thread::sleep(std::time::Duration::from_millis(30));
            fake.incidents.lock().unwrap().push(incident(id, uid));
        }
        assert_eq!(waiting.join().unwrap(), 4);
    });
    // Whoever asks for accounts hears of those that they may see and do not know.
    let near = wait(ROOT, 9, 60_000, json!([])).unwrap();
    assert_eq!((&near["newest_id"], &near["near"][0]["account"]), (&json!(9), &json!("user:1000")));
    assert_eq!(wait(ROOT, 9, 30, json!(["user:1000"])).unwrap()["near"].as_array().unwrap().len(), 1);
    assert_eq!(wait(ALICE, 9, 30, json!([])).unwrap()["near"], json!([]));
}

#[test]
fn pages_follow_each_other_without_a_gap_or_a_repetition() {
    let fake = Fake::new();
    *fake.incidents.lock().unwrap() = (1..=150).map(|id| incident(id, ALICE)).collect();
    let mut ids = Vec::new();
    let mut before = Value::Null;
    loop {
        let page = call(&fake, ROOT, "History", json!({"before_id": before})).unwrap();
        let incidents = page["incidents"].as_array().unwrap();
        assert!(incidents.len() <= PAGE_INCIDENTS);
        ids.extend(incidents.iter().rev().map(|incident| incident["id"].as_u64().unwrap()));
        before = page["next_before_id"].clone();
        if before.is_null() {
            break;
        }
    }
    assert_eq!(ids, (1..=150).rev().collect::<Vec<u64>>());
}

#[test]
fn a_page_is_bounded_in_bytes_as_well_and_holds_at_least_one() {
    let fake = Fake::new();
    let mut huge = incident(1, ALICE);
    huge.victims[0].cmdline = Some("x".repeat(2 * super::PAGE_BYTES_MAX));
    let incidents: Vec<_> =
        (1..=5).map(|id| plimsoll_policy::incident::Incident { id, ..huge.clone() }).collect();
    *fake.incidents.lock().unwrap() = incidents;
    let page = call(&fake, ROOT, "History", json!({})).unwrap();
    assert_eq!(page["incidents"].as_array().unwrap().len(), 1);
    assert_eq!(page["next_before_id"], 5);
}

#[test]
fn since_and_limit_choose_the_newest() {
    let fake = Fake::new();
    *fake.incidents.lock().unwrap() = (1..=9).map(|id| incident(id, ALICE)).collect();
    let page = call(&fake, ROOT, "History", json!({"since": "2027-01-15T08:00:05Z", "limit": 3})).unwrap();
    let ids: Vec<_> = page["incidents"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [7, 8, 9]);
    assert_eq!(page["next_before_id"], 7);
    assert!(matches!(refused(&fake, ROOT, "History", json!({"limit": 0})), Refusal::Invalid(_)));
}

#[test]
fn parameters_that_make_no_sense_are_refused_in_one_line_that_names_them() {
    let fake = Fake::new();
    for (method, parameters, named) in [
        ("SetLimit", json!({"who": "user:60001", "hard": "12Q"}), "12Q"),
        ("SetLimit", json!({"who": "user:60001", "hard": 0}), "0"),
        ("SetLimit", json!({"who": "user:60001", "hard": -5}), "-5"),
        ("SetLimit", json!({"who": "user:60001", "hard": "9G"}), "9G"),
        ("SetLimit", json!({"who": "user:60001"}), "hard"),
        ("SetLimit", json!({"who": "user:4294967295", "hard": "1G"}), "4294967295"),
        ("SetLimit", json!({"who": "/proc/1", "hard": "1G"}), "/proc/1"),
        ("SetLimit", json!({"who": "user:60001", "hard": "1G", "action": "explode"}), "explode"),
        ("SetLimit", json!({"who": "user:60001", "hard": "1G", "uid": 0}), "uid"),
        ("Status", json!({"path": "/etc"}), "path"),
        ("History", json!({"since": "yesterday"}), "yesterday"),
        ("GetIncident", json!({"id": 1, "pid": 2}), "both"),
        ("GetIncident", json!([1, null]), "object"),
    ] {
        let refusal = refused(&fake, ROOT, method, parameters.clone());
        assert!(matches!(&refusal, Refusal::Invalid(_)), "{method} {parameters}: {refusal:?}");
        let text = refusal.to_string();
        assert!(!text.contains('\n') && text.contains(named), "{text}");
    }
}

#[test]
fn a_method_that_is_not_there_is_told_apart() {
    let called = call(&Fake::new(), ROOT, "Explode", json!({}));
    assert!(matches!(called, Err(Fault::NoSuchMethod)));
}

#[test]
fn whom_the_default_line_leaves_out_is_told_to_root_and_to_themselves() {
    let fake = Fake::new();
    for method in ["Status", "ShowLimits"] {
        let told = |peer| call(&fake, peer, method, json!({})).unwrap()["default"]["uncovered"].clone();
        let users =
            |uids: &[u32]| uids.iter().map(|uid| json!({"uid": uid, "name": null})).collect::<Vec<_>>();
        assert_eq!(told(ROOT), json!(users(&[DIRECTORYS.0, 100_000])), "{method}");
        assert_eq!(told(DIRECTORYS), json!(users(&[DIRECTORYS.0])), "{method}");
        for other in [ALICE, Uid(999), Uid(62_000)] {
            assert_eq!(told(other), json!([]), "{method} by {other}");
        }
    }
    fake.book.lock().unwrap().set(Place::Administrator(Target::User(DIRECTORYS)), line(1 << 30));
    let told = call(&fake, ROOT, "ShowLimits", json!({"who": "default"})).unwrap();
    assert_eq!(told["default"]["uncovered"], json!([{"uid": 100_000, "name": null}]), "it has a line");
    call(&fake, ROOT, "ClearLimit", json!({"who": "default"})).unwrap();
    assert_eq!(call(&fake, ROOT, "Status", json!({})).unwrap()["default"], Value::Null);
}

#[test]
fn of_accounts_that_are_no_users_each_is_told_the_own_processes() {
    let fake = Fake::new();
    for (uid, accounts, only_of) in
        [(ROOT, 2, "None"), (ALICE, 1, "Some(Uid(60001))"), (Uid(60_003), 0, "Some(Uid(60003))")]
    {
        let reply = call(&fake, uid, "ShowProcesses", json!({})).unwrap();
        assert_eq!(reply["accounts"].as_array().unwrap().len(), accounts);
        let asked = format!("processes of {accounts} for {only_of}");
        assert!(fake.calls().iter().any(|call| call.contains(&asked)), "{asked}: {:?}", fake.calls());
    }
}
