//! An incident in words: the `why` story, and the one journal line per kill.
//!
//! Only the incident is rendered; nothing is looked up or decided here. Names of processes are foreign text and are
//! always quoted ([`crate::human::quoted`]).

use crate::{
    account::Account,
    human::{bytes, quoted, span},
    incident::{Incident, Outcome, Trigger, Victim},
    reason::Reason,
    units::{Bytes, Nanos},
    victim::Signal,
};
use alloc::{format, string::String, vec::Vec};

mod advice;

/// How many other processes are named, in the story and in the line.
const OTHERS_NAMED_MAX: usize = 3;

/// For whom a story is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Plain words.
    User,
    /// The same and the numbers behind it (`why -v`).
    Administrator,
}

/// The incident as a short story, one sentence or two a line, without a line end after the last. `name` is the
/// account's user name, where the reader's machine knows one.
#[must_use]
pub fn story(incident: &Incident, name: Option<&str>, reader: Reader) -> String {
    let reason = incident.reason.parse::<Reason>().ok();
    let mut lines = Vec::new();
    lines.push(crossing(incident, name));
    lines.push(deed(incident, reason));
    lines.extend(comparison(incident));
    lines.extend(timing(incident));
    if reader == Reader::Administrator {
        lines.extend(details(incident, reason));
    }
    for (index, advice) in advice::advice(incident, reason, reader).into_iter().enumerate() {
        lines.push(format!("{} {advice}", if index == 0 { "What to do:" } else { "Or:" }));
    }
    lines.join("\n")
}

/// The incident as one line for the journal: the same words in the same order every time, so that it can be searched.
#[must_use]
pub fn line(incident: &Incident) -> String {
    let reason = incident.reason.parse::<Reason>().ok();
    let named =
        |victim: &Victim| format!("process {} uid {} {}", victim.pid, victim.uid, quoted(&victim.comm));
    let mut who: Vec<String> = incident.victims.iter().take(OTHERS_NAMED_MAX).map(named).collect();
    let unnamed = incident.victims.len().saturating_sub(who.len());
    if unnamed > 0 {
        who.push(format!("{unnamed} more"));
    }
    let who = who.join(" and ");
    let deed = match Deed::of(incident, reason) {
        Deed::Sent(signal) => format!("sent {} to {who}", signal.name()),
        Deed::WouldHave => format!("dry run: would have signalled {who}"),
        Deed::CouldNot => format!("could not signal {who}"),
        Deed::Denied if who.is_empty() => String::from("denied an allocation"),
        Deed::Denied => format!("denied an allocation of {who}"),
        Deed::Refused if who.is_empty() => String::from("refused a reservation"),
        Deed::Refused => format!("refused a reservation of {who}"),
        Deed::Nothing => String::from("sent nothing"),
    };
    let account = match incident.account {
        Some(account) => format!("{account}"),
        None => String::from("the machine"),
    };
    let mut parts = Vec::from([format!("usage {} of {account}", bytes(Bytes(incident.usage_bytes)))]);
    if let Some(hard) = incident.hard_bytes {
        parts.push(format!("line {}", bytes(Bytes(hard))));
        parts.push(format!("over by {}", bytes(Bytes(incident.overshoot_bytes))));
    }
    if let Some(requested) = incident.requested_bytes {
        parts.push(format!("requested {}", bytes(Bytes(requested))));
    }
    parts.push(String::from(trigger(incident.trigger)));
    if let Some(ns) = incident.cross_to_signal_ns {
        parts.push(format!("crossing to signal {}", span(Nanos(ns))));
    }
    if let Some(ns) = incident.signal_to_freed_ns {
        parts.push(format!("signal to freed {}", span(Nanos(ns))));
    }
    if let Some(freed) = incident.freed_bytes {
        parts.push(format!("freed {}", bytes(Bytes(freed))));
    }
    parts.push(format!("reason {}", crate::human::escaped(&incident.reason)));
    parts.push(format!("incident {}", incident.id));
    format!("plimsoll: {deed}: {}", parts.join(", "))
}

/// What an incident says was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Sent(Signal),
    /// A dry run is recorded as `notify` with its victims and the reason that would have acted.
    WouldHave,
    CouldNot,
    Denied,
    Refused,
    Nothing,
}

impl Deed {
    fn of(incident: &Incident, reason: Option<Reason>) -> Self {
        match incident.action {
            Outcome::Notify if incident.victims.is_empty() => Self::Nothing,
            _ if reason == Some(Reason::SignalFailed) => Self::CouldNot,
            Outcome::Notify => Self::WouldHave,
            Outcome::Kill => Self::Sent(Signal::Kill),
            Outcome::Term => Self::Sent(Signal::Term),
            Outcome::Deny => Self::Denied,
            Outcome::Refuse => Self::Refused,
        }
    }
}

const fn trigger(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::InKernel => "in-kernel",
        Trigger::Daemon => "daemon",
        Trigger::LastDefence => "last-defence",
        Trigger::Kernel => "kernel",
    }
}

fn crossing(incident: &Incident, name: Option<&str>) -> String {
    let usage = bytes(Bytes(incident.usage_bytes));
    let time = incident.time.strftime("%Y-%m-%d %H:%M:%S UTC");
    let line = incident.hard_bytes.map(|hard| (bytes(Bytes(hard)), bytes(Bytes(incident.overshoot_bytes))));
    match (incident.account, line) {
        (Some(Account::User(uid)), line) => {
            let who = name.map_or_else(
                || format!("User {uid}"),
                |name| format!("User {} (uid {uid})", crate::human::escaped(name)),
            );
            match line {
                Some((line, over)) if incident.overshoot_bytes > 0 => {
                    format!("{time}: {who} was using {usage}, {over} over the line of {line}.")
                }
                Some((line, _)) => format!("{time}: {who} was using {usage}, with a line of {line}."),
                None => format!("{time}: {who} was using {usage}."),
            }
        }
        (None, Some((line, over))) => format!(
            "{time}: the machine was short of memory. Programs were using {usage}, {over} over the {line} \
             at which the guard acts, and free swap was low or there is none."
        ),
        (None, None) => format!("{time}: the machine was short of memory; programs were using {usage}."),
    }
}

fn deed(incident: &Incident, reason: Option<Reason>) -> String {
    let why = reason.map_or_else(
        || format!("Reason: {}.", crate::human::escaped(&incident.reason)),
        |reason| String::from(reason.sentence()),
    );
    let deed = Deed::of(incident, reason);
    let Some(first) = incident.victims.first() else { return why };
    let more = match incident.victims.len() {
        0 | 1 => String::new(),
        2 => String::from(", and one more that shares its memory,"),
        count => format!(", and {} more that share its memory,", count.saturating_sub(1)),
    };
    let who = format!("Process {} ({}){more}", first.pid, quoted(&first.comm));
    let usage = bytes(Bytes(first.usage_bytes));
    match deed {
        Deed::Sent(Signal::Kill) => format!("{who} was killed; it was using {usage}. {why}"),
        Deed::Sent(Signal::Term) => format!("{who} was asked to end (SIGTERM); it was using {usage}. {why}"),
        Deed::WouldHave => {
            format!("Dry run, nothing was sent: {who} would have been signalled; it was using {usage}. {why}")
        }
        Deed::CouldNot => format!("{who} was to be signalled; it was using {usage}. {why}"),
        Deed::Denied => format!("{who} had an allocation refused; it was using {usage}. {why}"),
        Deed::Refused => format!("{who} had a reservation refused; it was using {usage}. {why}"),
        Deed::Nothing => why,
    }
}

fn comparison(incident: &Incident) -> Option<String> {
    let named = |peer: &Victim| {
        format!("{} (process {}) with {}", quoted(&peer.comm), peer.pid, bytes(Bytes(peer.usage_bytes)))
    };
    let list = |peers: &[&Victim]| {
        peers.iter().take(OTHERS_NAMED_MAX).map(|peer| named(peer)).collect::<Vec<_>>().join(", ")
    };
    let Some(first) = incident.victims.first() else {
        let peers: Vec<&Victim> = incident.peers.iter().collect();
        return (!peers.is_empty()).then(|| format!("The largest there: {}.", list(&peers)));
    };
    let (larger, rest): (Vec<&Victim>, Vec<&Victim>) =
        incident.peers.iter().partition(|peer| peer.usage_bytes > first.usage_bytes);
    let mut sentences = Vec::new();
    if !larger.is_empty() {
        sentences.push(format!(
            "Larger, and left alone (protected, already ending, or not the one that was allocating): {}.",
            list(&larger)
        ));
    }
    if !rest.is_empty() {
        sentences.push(format!("Compared with, next in size: {}.", list(&rest)));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn timing(incident: &Incident) -> Option<String> {
    let signal = incident.cross_to_signal_ns.map(|ns| span(Nanos(ns)));
    let freed = incident.signal_to_freed_ns.map(|ns| span(Nanos(ns)));
    let (amount, verb) = incident
        .freed_bytes
        .map_or_else(|| (String::from("the memory"), "was"), |freed| (bytes(Bytes(freed)), "were"));
    match (signal, freed) {
        (Some(signal), Some(freed)) => Some(format!(
            "The signal came {signal} after the crossing, and {amount} {verb} back {freed} after the signal."
        )),
        (Some(signal), None) => Some(format!("The signal came {signal} after the crossing.")),
        (None, Some(freed)) => Some(format!("After the signal, {amount} {verb} back in {freed}.")),
        (None, None) => None,
    }
}

fn details(incident: &Incident, reason: Option<Reason>) -> Vec<String> {
    let known = if reason.is_some() { "" } else { " (not known to this version)" };
    let mut lines = Vec::from([format!(
        "Incident {}: trigger {}, reason {}{known}.",
        incident.id,
        trigger(incident.trigger),
        crate::human::escaped(&incident.reason)
    )]);
    if let Some(requested) = incident.requested_bytes {
        lines.push(format!("The crossing request asked for {}.", bytes(Bytes(requested))));
    }
    for victim in &incident.victims {
        let part = |name: &str, text: &Option<String>| {
            text.as_ref().map_or_else(String::new, |text| format!(", {name} {}", quoted(text)))
        };
        lines.push(format!(
            "Process {}: uid {}, started {} after boot{}{}.",
            victim.pid,
            victim.uid,
            span(Nanos(victim.start_ns)),
            part("command", &victim.cmdline),
            part("cgroup", &victim.cgroup)
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
