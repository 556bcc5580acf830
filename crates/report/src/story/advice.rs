//! What to do next: at most two pieces of advice, each something the reader can do now.

use super::Reader;
use plimsoll_policy::{
    account::Account,
    human::escaped,
    incident::{Incident, Outcome},
    reason::Reason,
};

const FOLDED: &str = "of older ones more are kept with a larger history.max_bytes in the configuration; a program that \
                      starts anew whatever is killed is best ended itself, or given a higher line.";

const LASTING: &str = "delete what is not needed: files in /dev/shm and other tmpfs, and System V segments (ipcs -m, ipcrm \
                       -m ID).";

const NOTIFIED: &str = "end what is not needed; nothing is killed on this line.";

/// The advice for an incident, the likelier first.
pub(super) fn advice(incident: &Incident, reason: Option<Reason>, reader: Reader) -> Vec<String> {
    let Some(reason) = reason else { return without_reason(incident, reader) };
    let raise = higher(incident, reader);
    match reason {
        Reason::OverHardLimitLargest
        | Reason::OverHardLimitOther
        | Reason::OverHardLimitAllocating
        | Reason::OverHardLimitSelected
        | Reason::OverHardLimitTerm
        | Reason::OverHardLimitNoGrace
        | Reason::TermDeadlinePassed => Vec::from([lighter(incident), raise]),
        Reason::LastDefenceMemoryMax | Reason::LastDefenceOutOfMemory => Vec::from([
            String::from("look at what is in force and why it did not act: plimsoll status."),
            raise,
        ]),
        Reason::OverHardLimitUnanswered => Vec::from([
            String::from(
                "check that the daemon runs (plimsoll status): it did not choose the largest in time.",
            ),
            raise,
        ]),
        Reason::TableFullMostProcesses => Vec::from([String::from(
            "run fewer processes at the same time, or have room for more: maps.max_processes in the configuration.",
        )]),
        Reason::OverHardLimitNotify => Vec::from([String::from(NOTIFIED), raise]),
        Reason::OverHardLimitSharedLasts => Vec::from([String::from(LASTING), raise]),
        Reason::OverHardLimitOnlyProtectedLeft | Reason::OverHardLimitNothingToFree => Vec::from([
            raise,
            String::from("look at what is charged and what could not be counted: plimsoll status."),
        ]),
        Reason::MachineLowMemoryTerm
        | Reason::MachineLowMemoryKill
        | Reason::MachineThrashing
        | Reason::MachineTermDeadlinePassed => Vec::from([
            lighter(incident),
            String::from(match reader {
                Reader::User => {
                    "ask the administrator for lines per user, so that one user's programs cannot take \
                         the memory of all."
                }
                Reader::Administrator => {
                    "draw a line for each user, so that one cannot take the memory of all: plimsoll \
                         limit set default 50%."
                }
            }),
        ]),
        Reason::MachineLowMemoryNotice => Vec::from([String::from(
            "end what is not needed, or close some of it, before something is ended.",
        )]),
        Reason::WorkingsetFloor | Reason::WorkingsetNoProgress => {
            super::floor::advice(lighter(incident), reader)
        }
        Reason::MemoryCompacted | Reason::CompactionInVain => super::fragmentation::advice(reason),
        Reason::MachineOnlyProtectedLeft | Reason::WorkingsetFloorOnlyProtectedLeft => {
            Vec::from([String::from("protect less, or give the machine more memory or swap.")])
        }
        Reason::ActionsNotRecorded => Vec::from([String::from(
            "see that the daemon is started again at once when it ends (systemctl status plimsoll).",
        )]),
        Reason::IncidentsFolded => Vec::from([String::from(FOLDED)]),
        Reason::KernelOutOfMemory
        | Reason::KernelCgroupLimit
        | Reason::KernelNodesFull
        | Reason::KernelOomKill
        | Reason::KernelKillsNotRecorded
        | Reason::SystemdOomdKill
        | Reason::EarlyoomKill => super::origin::advice(incident, reason, reader),
        Reason::SignalFailed => Vec::from([String::from(
            "see 'plimsoll doctor' for what the daemon may not do here; it needs CAP_KILL.",
        )]),
    }
}

/// A refusal goes by numbers, not by a reason; any other incident without one is a later version's.
fn without_reason(incident: &Incident, reader: Reader) -> Vec<String> {
    match incident.action {
        Outcome::Refuse => Vec::from([
            String::from(
                "have the program ask for less, or wait until others give memory back (tmalloc_wait).",
            ),
            higher(incident, reader),
        ]),
        Outcome::Deny => Vec::from([
            String::from(
                "have it ask for less at once, or for fewer threads and children: each counts whole.",
            ),
            higher(incident, reader),
        ]),
        Outcome::Kill | Outcome::Term | Outcome::Notify => {
            Vec::from([String::from("see the documentation of the version that recorded this incident.")])
        }
    }
}

fn higher(incident: &Incident, reader: Reader) -> String {
    match (&incident.account, reader) {
        (Some(Account::User(uid)), Reader::Administrator) => {
            format!("give the user a higher line: plimsoll limit set {uid} SIZE.")
        }
        (Some(Account::Group(gid)), Reader::Administrator) => {
            format!("give the group a higher line: plimsoll limit set group:{gid} SIZE.")
        }
        (Some(Account::Job(_)), _) => String::from("start it with a higher line: plimsoll run --limit SIZE."),
        (Some(account @ (Account::Cgroup(_) | Account::System)), Reader::Administrator) => {
            format!("draw a higher line: plimsoll limit set {} SIZE.", quoted(&account.to_string()))
        }
        _ => String::from(
            "ask the administrator for a higher line; 'plimsoll limit show' shows the present one.",
        ),
    }
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/:._-@".contains(character);
    let text = escaped(text);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

pub(super) fn lighter(incident: &Incident) -> String {
    match incident.action {
        Outcome::Notify => String::from("nothing: this was a dry run; without it the process would be gone."),
        Outcome::Kill | Outcome::Term | Outcome::Deny | Outcome::Refuse => {
            String::from("start it again with less to do at once, or end other programs first.")
        }
    }
}
