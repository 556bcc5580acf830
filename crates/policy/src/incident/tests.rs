use super::{Guard, Incident, Outcome, Trigger, Victim};
use crate::{
    account::Account,
    reason::Reason,
    units::{Pid, Uid},
};
use alloc::{
    string::{String, ToString},
    vec,
};
use jiff::Timestamp;

/// A process for tests to change.
pub(crate) fn process(pid: u32, uid: u32, comm: &str, mib: u64) -> Victim {
    Victim {
        pid: Pid(pid),
        start_ns: 5_000_000_000,
        uid: Uid(uid),
        comm: comm.to_string(),
        cmdline: Some(String::from("cmd --secret")),
        cgroup: Some(String::from("/user.slice")),
        usage_bytes: mib << 20,
        weight_permille: None,
        session: false,
        jobs: crate::incident::Vec::new(),
    }
}

/// An incident for tests to change: python3 of user 1000 crossed 256 MiB by 4 KiB and was killed in the kernel.
pub(crate) fn incident() -> Incident {
    Incident {
        id: 17,
        time: Timestamp::from_second(1_795_237_152).unwrap(),
        account: Some(Account::User(Uid(1000))),
        guard: Guard::Limits,
        trigger: Trigger::InKernel,
        action: Outcome::Kill,
        victims: vec![process(7378, 1000, "python3", 250)],
        usage_bytes: (256 << 20) + 4096,
        hard_bytes: Some(256 << 20),
        overshoot_bytes: 4096,
        requested_bytes: Some(4096),
        unrecorded: None,
        cross_to_signal_ns: Some(3_210),
        signal_to_freed_ns: Some(12_000_000),
        freed_bytes: Some(250 << 20),
        reason: Reason::OverHardLimitLargest.to_string(),
        peers: vec![process(7001, 1000, "node", 3), process(7002, 1000, "bash", 1)],
        origin: None,
        compaction: None,
        course: None,
    }
}

#[test]
fn history_json_has_the_fields_that_scripts_rely_on() {
    let json = serde_json::to_value(incident()).unwrap();
    let expected: serde_json::Value = serde_json::from_str(include_str!("sample.json")).unwrap();
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Incident>(json).unwrap(), incident());
}

#[test]
fn what_is_not_known_is_null_and_never_left_out() {
    let unknown = Incident {
        account: None,
        hard_bytes: None,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        ..incident()
    };
    let json = serde_json::to_value(unknown).unwrap();
    for field in [
        "account",
        "hard_bytes",
        "requested_bytes",
        "unrecorded",
        "cross_to_signal_ns",
        "signal_to_freed_ns",
        "freed_bytes",
    ] {
        assert_eq!(json.get(field), Some(&serde_json::Value::Null), "{field}");
    }
}
