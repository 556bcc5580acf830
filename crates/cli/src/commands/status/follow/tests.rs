use super::{in_json, incidents, line};
use crate::{
    commands::status::{not_running, tests::running},
    names::Names,
};
use plimsoll_api::status::OthersView;
use serde_json::Value;

#[test]
fn a_line_tells_memory_who_is_near_and_the_last_incident() {
    let mut status = running();
    let expected = "4.0 GiB available of 8.0 GiB; swap not known free of not known; 1 account, 0 near; 0 dying; 12 incidents, last 12";
    assert_eq!(line(&status, &mut Names::default()), expected);
    status.pressure.swap_total_bytes = Some(0);
    status.pressure.exhausted_in_ns = Some(14_000_000_000);
    status.accounts[0].near = true;
    status.accounts[0].usage_bytes = 1 << 30;
    let expected = "4.0 GiB available of 8.0 GiB; used up in 14.0 s; 1 account, 1 near; root 1.0 GiB of 1.0 GiB; \
                    0 dying; 12 incidents, last 12";
    assert_eq!(line(&status, &mut Names::default()), expected);
}

#[test]
fn incidents_of_all_guards_are_counted() {
    let mut status = running();
    status.guards.others =
        Some(OthersView { incidents: 3, last_incident: Some(15), ..OthersView::default() });
    assert_eq!(incidents(&status), (15, Some(15)));
}

#[test]
fn each_json_object_is_one_line_with_its_time_daemon_or_not() {
    let now = "2026-11-21T12:00:00.5Z".parse().unwrap();
    let mut out = Vec::new();
    in_json(&mut out, now, &running()).unwrap();
    in_json(&mut out, now, &not_running().unwrap()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|one| (one["daemon"].as_bool(), one["time"].as_str())).collect();
    assert_eq!(
        told,
        [(Some(true), Some("2026-11-21T12:00:00.5Z")), (Some(false), Some("2026-11-21T12:00:00.5Z"))]
    );
}
