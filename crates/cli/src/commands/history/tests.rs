use super::list;
use crate::names::Names;
use jiff::tz::TimeZone;
use plimsoll_policy::{
    account::Account,
    incident::{
        Guard, Incident, Outcome, Victim,
        origin::{Killer, Origin},
    },
    units::{Pid, Uid},
};

const SAMPLE: &str = include_str!("../../../../policy/src/incident/sample.json");

fn sample() -> Incident {
    serde_json::from_str(SAMPLE).unwrap()
}

fn victim(pid: u32, comm: &str) -> Victim {
    Victim { pid: Pid(pid), comm: comm.to_owned(), ..sample().victims.remove(0) }
}

fn incident(id: u64, victims: Vec<Victim>) -> Incident {
    let (account, hard_bytes) = (Some(Account::User(Uid(0))), Some(1 << 30));
    let time = "2026-11-21T12:00:00.5Z".parse().unwrap();
    Incident { id, time, account, victims, usage_bytes: 1 << 30, hard_bytes, ..sample() }
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
    let compacted = Incident {
        account: None,
        action: Outcome::Notify,
        guard: Guard::Fragmentation,
        usage_bytes: 0,
        hard_bytes: None,
        reason: "memory-compacted".to_owned(),
        ..incident(5, Vec::new())
    };
    let incidents = [incident(1, vec![victim(4001, "hog")]), nobody, machine, taken, compacted];
    let mut out = Vec::new();
    let zone = TimeZone::fixed(jiff::tz::offset(1));
    list(&mut out, &incidents, &zone, &mut Names::default()).unwrap();
    let expected = "\
ID  TIME                 WHOSE LINE   DONE    PROCESS                        USAGE     LINE  REASON
 1  2026-11-21 13:00:00  root         kill    4001 \"hog\"                   1.0 GiB  1.0 GiB  over-hard-limit-largest
 2  2026-11-21 13:00:00  user:60789   kill    -                            1.0 GiB  1.0 GiB  over-hard-limit-largest
 3  2026-11-21 13:00:00  the machine  term    9 \"\\u{1b}[2Jx\\n\" and 1 more  1.0 GiB        -  machine-low-memory-term
 4  2026-11-21 13:00:00  the machine  kill    \\u{1b}a.service                    -        -  systemd-oomd-kill
 5  2026-11-21 13:00:00  the machine  notify  -                                  -        -  memory-compacted
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Scripts rely on it: fields may be added, not renamed.
#[test]
fn the_json_has_the_fields_scripts_rely_on() {
    let expected: serde_json::Value = serde_json::from_str(SAMPLE).unwrap();
    assert_eq!(serde_json::to_value([sample()]).unwrap(), serde_json::json!([expected]));
}
