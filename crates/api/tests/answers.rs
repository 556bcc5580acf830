//! What the calls answer has the fields that clients rely on: each answer is made of what the samples have, and read and
//! written again nothing of it is lost and nothing is added.
#![cfg(test)]

use plimsoll_api::message::{
    ClearLimitReply, HistoryPage, IncidentReply, Limits, ProtectionReply, StartJobReply,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn sample(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[track_caller]
fn assert_kept<T: Serialize + DeserializeOwned>(answer: Value) {
    let read: T = serde_json::from_value(answer.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), answer);
}

#[test]
fn each_answer_is_as_the_samples_have_it() {
    let status = sample(include_str!("../src/status/sample.json"));
    let protection = sample(include_str!("../src/protect/sample.json"));
    let incident = sample(include_str!("../../policy/src/incident/sample.json"));
    let lines =
        json!({"accounts": status["accounts"], "groups": status["groups"], "default": status["default"]});
    assert_kept::<Limits>(lines);
    assert_kept::<ProtectionReply>(json!({"protection": protection}));
    assert_kept::<HistoryPage>(json!({"incidents": [incident], "next_before_id": 17}));
    assert_kept::<IncidentReply>(json!({"incident": incident}));
    assert_kept::<StartJobReply>(
        json!({"account": "job:7", "hard_bytes": 1 << 30, "next_incident_id": 3, "waits": true}),
    );
    for result in ["removed", "nothing-set", "still-in-config"] {
        assert_kept::<ClearLimitReply>(json!({"result": result}));
    }
}
