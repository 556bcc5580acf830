use super::list;
use crate::names::Names;
use jiff::tz::TimeZone;
use plimsoll_policy::{
    account::Account,
    incident::{
        Guard, Incident, Outcome, Trigger, Victim,
        origin::{Killer, Origin},
    },
    units::{Pid, Uid},
};

fn victim(pid: u32, comm: &str) -> Victim {
    Victim {
        pid: Pid(pid),
        start_ns: 1,
        uid: Uid(0),
        comm: comm.to_owned(),
        cmdline: None,
        cgroup: None,
        usage_bytes: 1 << 20,
        weight_permille: None,
        session: false,
    }
}

fn incident(id: u64, victims: Vec<Victim>) -> Incident {
    Incident {
        id,
        time: "2026-11-21T12:00:00.5Z".parse().unwrap(),
        account: Some(Account::User(Uid(0))),
        guard: Guard::Limits,
        trigger: Trigger::InKernel,
        action: Outcome::Kill,
        victims,
        usage_bytes: 1 << 30,
        hard_bytes: Some(1 << 30),
        overshoot_bytes: 0,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: "over-hard-limit-largest".to_owned(),
        peers: Vec::new(),
        origin: None,
        course: None,
    }
}

#[test]
fn the_table_tells_when_whose_line_and_who_paid_and_no_name_can_act_on_the_terminal() {
    let machine = Incident {
        account: None,
        action: Outcome::Term,
        hard_bytes: None,
        reason: "machine-low-memory-term".to_owned(),
        ..incident(3, vec![victim(9, "\u{1b}[2Jx\n"), victim(10, "y")])
    };
    let nobody = Incident { account: Some(Account::User(Uid(60_789))), ..incident(2, Vec::new()) };
    let taken = Incident {
        account: None,
        guard: Guard::Kernel,
        usage_bytes: 0,
        hard_bytes: None,
        reason: "systemd-oomd-kill".to_owned(),
        origin: Some(Origin {
            cgroup: Some("/app.slice/\u{1b}a.service".to_owned()),
            ..Origin::of(Killer::SystemdOomd)
        }),
        ..incident(4, Vec::new())
    };
    let incidents = [incident(1, vec![victim(4001, "hog")]), nobody, machine, taken];
    let mut out = Vec::new();
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    list(&mut out, &incidents, &zone, &mut Names::default()).unwrap();
    let expected = "\
ID  TIME                 WHOSE LINE   DONE  PROCESS                        USAGE     LINE  REASON
 1  2026-11-21 13:00:00  root         kill  4001 \"hog\"                   1.0 GiB  1.0 GiB  over-hard-limit-largest
 2  2026-11-21 13:00:00  user:60789   kill  -                            1.0 GiB  1.0 GiB  over-hard-limit-largest
 3  2026-11-21 13:00:00  the machine  term  9 \"\\u{1b}[2Jx\\n\" and 1 more  1.0 GiB        -  machine-low-memory-term
 4  2026-11-21 13:00:00  the machine  kill  \\u{1b}a.service                    -        -  systemd-oomd-kill
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Scripts rely on it: fields may be added, not renamed.
#[test]
fn the_json_has_the_fields_scripts_rely_on() {
    let json = serde_json::to_value([incident(1, vec![victim(4001, "hog")])]).unwrap();
    for field in [
        "id",
        "time",
        "account",
        "guard",
        "trigger",
        "action",
        "victims",
        "usage_bytes",
        "hard_bytes",
        "overshoot_bytes",
        "requested_bytes",
        "cross_to_signal_ns",
        "signal_to_freed_ns",
        "freed_bytes",
        "reason",
        "peers",
    ] {
        assert!(json[0].get(field).is_some(), "{field}");
    }
    for field in ["pid", "start_ns", "uid", "comm", "cmdline", "cgroup", "usage_bytes"] {
        assert!(json[0]["victims"][0].get(field).is_some(), "{field}");
    }
    assert_eq!(json[0]["time"], "2026-11-21T12:00:00.5Z");
    assert_eq!((&json[0]["trigger"], &json[0]["guard"]), (&"in-kernel".into(), &"limits".into()));
}
