use super::*;
use serde_json::json;

/// An account with so much in use under a line.
fn view(account: &str, usage: u64, hard: Option<u64>, more: serde_json::Value) -> AccountView {
    let mut view = json!({
        "account": account, "name": null, "usage_bytes": usage, "reserved_bytes": 0, "soft_bytes": hard, "hard_bytes": hard,
        "effective_bytes": hard, "action": "kill", "near": false, "processes": 1, "source": "state",
    });
    let serde_json::Value::Object(more) = more else { panic!("{more}") };
    view.as_object_mut().unwrap().extend(more);
    serde_json::from_value(view).unwrap()
}

fn job(id: u32, outer: Option<u32>, usage: u64, hard: Option<u64>) -> AccountView {
    let outer = outer.map(|outer| format!("job:{outer}"));
    let job = json!({"uid": 1000, "outer": outer, "pid": 1, "orphans": 0});
    view(&format!("job:{id}"), usage, hard, json!({ "job": job }))
}

#[test]
fn the_nearest_of_the_lines_that_hold_for_a_job_says_how_much_more_it_may_have() {
    let around = [Account::Group(Gid(50)), Account::User(Uid(1000))];
    let all = vec![
        view("user:1000", 3000, Some(64_000), json!({})),
        view("user:1001", 60_000, Some(64_000), json!({})),
        view("group:50", 31_000, Some(64_000), json!({})),
        view("group:51", 64_000, Some(64_000), json!({})),
        job(4, None, 900, Some(6400)),
        job(7, Some(4), 100, Some(64_000)),
        job(8, None, 64_000, Some(64_000)),
    ];
    // A part of each stays free.
    assert_eq!(room(&all, JobId(7), &around), Some(6300 - 900));
    assert_eq!(room(&all, JobId(4), &around), Some(6300 - 900));
    let without = |account: &str| -> Vec<AccountView> {
        all.iter().filter(|view| view.account.to_string() != account).cloned().collect()
    };
    assert_eq!(room(&without("job:4"), JobId(7), &around), Some(63_000 - 31_000));
    assert_eq!(room(&without("job:7"), JobId(7), &around), None);
    assert_eq!(room(&[job(7, None, 100, None)], JobId(7), &around), Some(u64::MAX));
}

#[test]
fn what_is_committed_in_a_strict_job_is_taken_for_used() {
    let strict = json!({"job": {"uid": 1000, "outer": null, "pid": 1, "orphans": 0},
        "strict": {"committed_bytes": 5000, "peak_bytes": 5000, "refused": 0}});
    assert_eq!(room(&[view("job:7", 100, Some(6400), strict)], JobId(7), &[]), Some(1300));
}
