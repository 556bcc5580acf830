//! An incident in words: the `why` story, and the one journal line per kill.
//!
//! Only the incident is rendered; nothing is looked up or decided here. Names of processes are foreign text and are
//! always quoted ([`plimsoll_policy::human::shown`]).

use plimsoll_policy::{
    account::Account,
    human::{bytes, escaped, shown, span},
    incident::{Incident, Outcome, Trigger, Victim},
    reason::Reason,
    units::{Bytes, Nanos},
    victim::Signal,
};
use serde::Serialize;

mod advice;
pub mod course;
mod floor;
mod fragmentation;
mod moment;
mod origin;
mod reader;

use moment::moment;
use reader::OTHERS_NAMED_MAX;
pub use reader::Reader;

/// The story of an incident by its parts, each of them sentences without a line end. Foreign text in them is quoted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Telling {
    /// When, whose line, how far.
    pub happened: Vec<String>,
    /// How it came to that, where it was recorded.
    pub before: Vec<String>,
    /// What was done to whom, and for what reason.
    pub deed: Vec<String>,
    /// Who else could have been taken.
    pub compared: Vec<String>,
    /// How fast it went, and what it brought.
    pub after: Vec<String>,
    /// The numbers behind it; for administrators.
    pub details: Vec<String>,
    /// What to do now, the likelier first.
    pub advice: Vec<String>,
}

/// The story by its parts. `name` is the account's user name, where the reader's machine knows one.
#[must_use]
pub fn tell(incident: &Incident, name: Option<&str>, reader: Reader) -> Telling {
    let reason = incident.reason.parse::<Reason>().ok();
    let happened = unrecorded(incident)
        .or_else(|| origin::opening(incident))
        .or_else(|| floor::opening(incident))
        .or_else(|| fragmentation::opening(incident))
        .unwrap_or_else(|| crossing(incident, name, reason));
    let details = match reader {
        Reader::User => Vec::new(),
        Reader::Administrator => {
            details(incident, reason).into_iter().chain(origin::details(incident)).collect()
        }
    };
    Telling {
        happened: Vec::from([happened]),
        before: course::before(incident, reader),
        deed: [deed(incident, reason)].into_iter().chain(origin::account(incident)).collect(),
        compared: comparison(incident).into_iter().collect(),
        after: timing(incident)
            .into_iter()
            .chain(fragmentation::outcome(incident))
            .chain(course::after(incident))
            .collect(),
        details,
        advice: advice::advice(incident, reason, reader),
    }
}

/// The incident as a short story, one sentence or two a line, without a line end after the last. `name` is the
/// account's user name, where the reader's machine knows one.
#[must_use]
pub fn story(incident: &Incident, name: Option<&str>, reader: Reader) -> String {
    let Telling { happened, before, deed, compared, after, details, advice } = tell(incident, name, reader);
    let mut lines: Vec<String> =
        [happened, before, deed, compared, after, details].into_iter().flatten().collect();
    for (index, advice) in advice.into_iter().enumerate() {
        lines.push(format!("{} {advice}", if index == 0 { "What to do:" } else { "Or:" }));
    }
    lines.join("\n")
}

/// The incident as one line for the journal: the same words in the same order every time, so that it can be searched.
#[must_use]
pub fn line(incident: &Incident) -> String {
    if let Some(text) = origin::line(incident) {
        return text;
    }
    if let Some(count) = incident.unrecorded {
        let (reason, id) = (escaped(&incident.reason), incident.id);
        let trigger = incident.trigger.text();
        return format!(
            "plimsoll: {count} actions were not recorded: {trigger}, reason {reason}, incident {id}"
        );
    }
    let reason = incident.reason.parse::<Reason>().ok();
    let who = victims(incident);
    let deed = match Deed::of(incident, reason) {
        Deed::Sent(_) if by_the_kernel(incident.trigger) && who.is_empty() => {
            String::from("the kernel's OOM killer ended a process")
        }
        Deed::Sent(_) if by_the_kernel(incident.trigger) => format!("the kernel's OOM killer ended {who}"),
        Deed::Sent(signal) => format!("sent {} to {who}", signal.name()),
        Deed::WouldHave => format!("dry run: would have signalled {who}"),
        Deed::CouldNot => format!("could not signal {who}"),
        Deed::Denied if who.is_empty() => String::from("denied an allocation"),
        Deed::Denied => format!("denied an allocation of {who}"),
        Deed::Refused if who.is_empty() => String::from("refused a reservation"),
        Deed::Refused => format!("refused a reservation of {who}"),
        Deed::Nothing => String::from("sent nothing"),
    };
    let measure = floor::measure(incident).or_else(|| fragmentation::measure(incident));
    let mut parts = measure.map_or_else(|| usage(incident), |text| Vec::from([text]));
    let more = [
        incident.requested_bytes.map(|requested| format!("requested {}", bytes(Bytes(requested)))),
        Some(String::from(incident.trigger.text())),
        incident.cross_to_signal_ns.map(|ns| format!("crossing to signal {}", span(Nanos(ns)))),
        incident.signal_to_freed_ns.map(|ns| format!("signal to freed {}", span(Nanos(ns)))),
        incident.freed_bytes.map(|freed| format!("freed {}", bytes(Bytes(freed)))),
        Some(format!("reason {}", escaped(&incident.reason))),
        Some(format!("incident {}", incident.id)),
    ];
    parts.extend(more.into_iter().flatten());
    format!("plimsoll: {deed}: {}", parts.join(", "))
}

/// The first of those who paid, and how many more there are; empty where there is none.
fn victims(incident: &Incident) -> String {
    let named =
        |victim: &Victim| format!("process {} uid {} {}", victim.pid, victim.uid, shown(&victim.comm));
    let unnamed = incident.victims.len().saturating_sub(OTHERS_NAMED_MAX);
    let more = (unnamed > 0).then(|| format!("{unnamed} more"));
    let who: Vec<String> = incident.victims.iter().take(OTHERS_NAMED_MAX).map(named).chain(more).collect();
    who.join(" and ")
}

/// How much was used, and how much the line allowed.
fn usage(incident: &Incident) -> Vec<String> {
    let account = match &incident.account {
        Some(account) => escaped(&account.to_string()),
        None => String::from("the machine"),
    };
    let mut parts = Vec::from([format!("usage {} of {account}", bytes(Bytes(incident.usage_bytes)))]);
    if let Some(hard) = incident.hard_bytes {
        parts.push(format!("line {}", bytes(Bytes(hard))));
        parts.push(format!("over by {}", bytes(Bytes(incident.overshoot_bytes))));
    }
    parts
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

/// Whether the kernel's own OOM killer chose and killed.
const fn by_the_kernel(trigger: Trigger) -> bool {
    match trigger {
        Trigger::LastDefence | Trigger::Kernel => true,
        Trigger::InKernel | Trigger::Daemon => false,
    }
}

fn unrecorded(incident: &Incident) -> Option<String> {
    let time = moment(incident);
    let folded = incident.reason == Reason::IncidentsFolded.text();
    incident.unrecorded.map(|count| match (folded, &incident.account) {
        (true, Some(account)) => {
            format!(
                "Up to {time}: {count} incidents of {} are told only as their number.",
                escaped(&account.to_string())
            )
        }
        (true, None) => format!("Up to {time}: {count} incidents are told only as their number."),
        (false, _) => format!("{time}: {count} actions were not recorded."),
    })
}

/// An account, as it begins a sentence.
fn whose(account: &Account, name: Option<&str>) -> String {
    match (account, name) {
        (Account::User(uid), Some(name)) => format!("User {} (uid {uid})", escaped(name)),
        (Account::User(uid), None) => format!("User {uid}"),
        (Account::Group(gid), Some(name)) => format!("Group {} (gid {gid})", escaped(name)),
        (Account::Group(gid), None) => format!("Group {gid}"),
        (Account::Job(id), Some(name)) => format!("Job {} (job {id})", escaped(name)),
        (Account::Job(id), None) => format!("Job {id}"),
        (Account::Cgroup(path), _) => format!("Cgroup {}", escaped(path.as_str())),
        (Account::System, _) => String::from("The machine"),
    }
}

fn crossing(incident: &Incident, name: Option<&str>, reason: Option<Reason>) -> String {
    let usage = bytes(Bytes(incident.usage_bytes));
    let time = moment(incident);
    let line = incident.hard_bytes.map(|hard| (bytes(Bytes(hard)), bytes(Bytes(incident.overshoot_bytes))));
    if let (Outcome::Deny, Some(account), Some((line, _))) = (incident.action, &incident.account, &line) {
        let who = whose(account, name);
        return format!("{time}: {who} may write to {usage} already, touched or not, with a line of {line}.");
    }
    match (&incident.account, line) {
        (None, Some((line, _))) if reason == Some(Reason::MachineLowMemoryNotice) => format!(
            "{time}: the machine was getting short of memory. Programs were using {usage}; it is said from {line} on."
        ),
        (Some(account), line) => {
            let who = whose(account, name);
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
    let deed = Deed::of(incident, reason);
    let why = reason.map_or_else(
        || {
            let word = match deed {
                Deed::Refused => "Used, asked for and allowed",
                Deed::Denied => "Committed, asked for and allowed",
                Deed::Sent(_) | Deed::WouldHave | Deed::CouldNot | Deed::Nothing => "Reason",
            };
            format!("{word}: {}.", escaped(&incident.reason))
        },
        |reason| String::from(reason.sentence()),
    );
    let Some(first) = incident.victims.first() else { return why };
    let more = match incident.victims.len() {
        0 | 1 => String::new(),
        2 => String::from(", and one more that shares its memory,"),
        count => format!(", and {} more that share its memory,", count.saturating_sub(1)),
    };
    let who = format!("Process {} ({}){more}", first.pid, shown(&first.comm));
    if let Some(text) = origin::deed(incident, &who, &why) {
        return text;
    }
    let usage = format!("{}{}", bytes(Bytes(first.usage_bytes)), counting(first));
    match deed {
        Deed::Sent(Signal::Kill) => format!("{who} was killed; it was using {usage}. {why}"),
        Deed::Sent(Signal::Term) => format!("{who} was asked to end (SIGTERM); it was using {usage}. {why}"),
        Deed::WouldHave => {
            format!("Dry run, nothing was sent: {who} would have been signalled; it was using {usage}. {why}")
        }
        Deed::CouldNot => format!("{who} was to be signalled; it was using {usage}. {why}"),
        Deed::Denied => {
            let asked = incident
                .requested_bytes
                .map_or_else(String::new, |asked| format!(" {}", bytes(Bytes(asked))));
            format!(
                "{who} asked for{asked} more and was refused (ENOMEM); nobody was ended. It had touched {usage}. {why}"
            )
        }
        Deed::Refused => format!("{who} had a reservation refused; it was using {usage}. {why}"),
        Deed::Nothing => why,
    }
}

fn comparison(incident: &Incident) -> Option<String> {
    let named = |peer: &Victim| {
        let usage = bytes(Bytes(peer.usage_bytes));
        format!("{} (process {}) with {usage}{}", shown(&peer.comm), peer.pid, counting(peer))
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
            "Larger, and left alone (counting less, giving back too little, carrying the session, protected, already ending, or not the one that was allocating): {}.",
            list(&larger)
        ));
    }
    if !rest.is_empty() {
        sentences.push(format!("Compared with, next in size: {}.", list(&rest)));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// What a process counted where that is not its size: by a rule, a mark or `oom_score_adj`; and whether it was the last to go.
fn counting(victim: &Victim) -> String {
    let weight = victim.weight_permille.map_or_else(String::new, |permille| {
        let (whole, tenth) = (permille.checked_div(10), permille.checked_rem(10).unwrap_or(0));
        let tenth = if tenth == 0 { String::new() } else { format!(".{tenth}") };
        format!(", counting {}{tenth} %", whole.unwrap_or(0))
    });
    let session = if victim.session { ", which carries the user's session" } else { "" };
    format!("{weight}{session}")
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
    // A refusal's is its numbers.
    let refused = matches!(incident.action, Outcome::Refuse | Outcome::Deny);
    let known = if reason.is_some() || refused { "" } else { " (not known to this version)" };
    let mut lines = Vec::from([format!(
        "Incident {}: trigger {}, reason {}{known}.",
        incident.id,
        incident.trigger.text(),
        escaped(&incident.reason)
    )]);
    if let Some(requested) = incident.requested_bytes {
        let which = if refused { "refused" } else { "crossing" };
        lines.push(format!("The {which} request asked for {}.", bytes(Bytes(requested))));
    }
    for victim in &incident.victims {
        let part = |name: &str, text: &Option<String>| {
            text.as_ref().map_or_else(String::new, |text| format!(", {name} {}", shown(text)))
        };
        // 0: it was gone before that could be read.
        let started = match victim.start_ns {
            0 => String::new(),
            start => format!(", started {} after boot", span(Nanos(start))),
        };
        lines.push(format!(
            "Process {}: uid {}{started}{}{}.",
            victim.pid,
            victim.uid,
            part("command", &victim.cmdline),
            part("cgroup", &victim.cgroup)
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
