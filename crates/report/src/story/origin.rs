//! The words for kills that were not ours.

use super::{advice, moment::moment, reader::Reader, victims};
use crate::oom::SYSRQ_ADVICE;
use plimsoll_policy::{
    container::Container,
    human::{bytes, escaped, is_hazardous, shown, shown_whole as path},
    incident::{
        Guard, Incident, Outcome,
        origin::{Killer, Origin, Scope},
    },
    reason::Reason,
    units::Bytes,
};

/// Up to this order what was asked for is told in pages; no kernel gives more in one piece.
const ORDER_MAX: i32 = 20;

fn not_ours(incident: &Incident) -> Option<&Origin> {
    incident.origin.as_ref().filter(|_| incident.guard == Guard::Kernel)
}

/// `container 0123456789ab (docker) of pod ...`.
fn container(container: &Container) -> String {
    let mut words = match &container.id {
        // As the tools of runtimes show it.
        Some(id) => format!("container {}", escaped(id.get(..12).filter(|_| id.len() == 64).unwrap_or(id))),
        None => String::new(),
    };
    if let Some(runtime) = &container.runtime {
        words.push_str(&format!(" ({})", escaped(runtime)));
    }
    if let Some(pod) = &container.pod {
        let of = if words.is_empty() { "" } else { " of " };
        words.push_str(&format!("{of}pod {}", escaped(pod)));
    }
    words
}

fn limit_of(origin: &Origin) -> String {
    let cgroup = origin.cgroup.as_ref().map(|cgroup| path(cgroup));
    match (&origin.container, cgroup) {
        (Some(one), Some(cgroup)) => format!("{} (cgroup {cgroup})", container(one)),
        (Some(one), None) => container(one),
        (None, Some(cgroup)) => format!("the cgroup {cgroup}"),
        (None, None) => String::from("a cgroup"),
    }
}

/// Whether somebody asked for the kill itself, with the keyboard or through `/proc/sysrq-trigger`: whether memory was short
/// did not matter.
fn is_sysrq(origin: &Origin) -> bool {
    origin.killer == Killer::Kernel && origin.order == Some(-1)
}

/// What had no memory left.
pub(super) fn opening(incident: &Incident) -> Option<String> {
    let origin = not_ours(incident)?;
    let time = moment(incident);
    let what = match (origin.killer, origin.scope) {
        (Killer::Kernel, _) if is_sysrq(origin) => {
            String::from("somebody asked the kernel to end a process (SysRq).")
        }
        (Killer::Kernel, Some(Scope::Machine)) => String::from("the kernel found no memory for a request."),
        (Killer::Kernel, Some(Scope::Cgroup)) => format!("{} was at its memory limit.", limit_of(origin)),
        (Killer::Kernel, Some(Scope::Cpuset)) => {
            String::from("the memory nodes of a cpuset had no memory left.")
        }
        (Killer::Kernel, Some(Scope::Mempolicy)) => {
            String::from("the memory nodes that a process is bound to had no memory left.")
        }
        (Killer::Kernel, None) => String::from("the kernel's own OOM killer was at work."),
        (Killer::SystemdOomd, _) => format!("systemd-oomd ended all of {}.", limit_of(origin)),
        (Killer::Earlyoom, _) => String::from("earlyoom found the machine short of memory."),
    };
    Some(format!("{time}: {what}"))
}

/// What was done to `who`, and `why`.
pub(super) fn deed(incident: &Incident, who: &str, why: &str) -> Option<String> {
    let why = if is_sysrq(not_ours(incident)?) {
        "It was the kernel's choice; that one be made was somebody's, and whether memory was short did not matter."
    } else {
        why
    };
    let held = match incident.victims.first().map(|first| first.usage_bytes) {
        Some(0) | None => String::new(),
        Some(usage) => format!("; it held {}", bytes(Bytes(usage))),
    };
    let verb = match incident.action {
        Outcome::Term => "was asked to end (SIGTERM)",
        Outcome::Kill | Outcome::Deny | Outcome::Notify | Outcome::Refuse => "was killed",
    };
    let inside = not_ours(incident)
        .filter(|origin| origin.scope != Some(Scope::Cgroup))
        .and_then(|origin| origin.container.as_ref())
        .map_or_else(String::new, |one| format!(" in {}", container(one)));
    Some(format!("{who}{inside} {verb}{held}. {why}"))
}

/// Who asked for memory, and what the killer's own log says.
pub(super) fn account(incident: &Incident) -> Vec<String> {
    let Some(origin) = &incident.origin else {
        return Vec::new();
    };
    if let (Killer::SystemdOomd, Some(summary)) = (origin.killer, &origin.summary) {
        return Vec::from([format!("Its log says: {}.", harmless(summary).trim_end_matches('.'))]);
    }
    if let Some(summary) = &origin.summary {
        // It tells of the request, too.
        return Vec::from([harmless(summary)]);
    }
    request(origin).into_iter().collect()
}

/// Foreign names in it were quoted by whoever wrote it; what a terminal might obey goes all the same.
fn harmless(text: &str) -> String {
    text.chars().map(|character| if is_hazardous(character) { ' ' } else { character }).collect()
}

fn request(origin: &Origin) -> Option<String> {
    let invoker = origin.invoker.as_ref()?;
    let who = format!("process {} ({})", invoker.pid, shown(&invoker.comm));
    Some(match origin.order {
        // It is done in a worker of the kernel's, whoever asked.
        Some(-1) => format!("The kernel did it in {who}; who asked it does not say."),
        Some(order @ 0..=ORDER_MAX) => {
            let pages = 1_u64.checked_shl(order.unsigned_abs()).unwrap_or_default();
            let piece = if order == 0 {
                String::from("a page")
            } else {
                format!("{pages} pages in a row (order {order})")
            };
            format!("It was {who} that asked for {piece}.")
        }
        Some(_) | None => format!("It was {who} that needed memory."),
    })
}

/// The rest, for an administrator.
pub(super) fn details(incident: &Incident) -> Vec<String> {
    let Some(origin) = &incident.origin else {
        return Vec::new();
    };
    let container = origin.container.as_ref().and_then(|container| container.id.as_ref());
    let parts = [
        origin.cause.as_ref().map(|cause| format!("cause {}", escaped(cause))),
        origin.order.map(|order| format!("order {order}")),
        origin.gfp.as_ref().map(|gfp| format!("gfp {}", path(gfp))),
        origin.cgroup.as_ref().map(|cgroup| format!("cgroup {}", path(cgroup))),
        container.map(|id| format!("container {}", path(id))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let asked = origin.summary.as_ref().and_then(|_| request(origin));
    let by = (!parts.is_empty()).then(|| format!("By {}: {}.", origin.killer.name(), parts.join(", ")));
    asked.into_iter().chain(by).collect()
}

/// The one line for the journal.
pub(super) fn line(incident: &Incident) -> Option<String> {
    let origin = not_ours(incident)?;
    let who = if incident.victims.is_empty() { limit_of(origin) } else { victims(incident) };
    let verb = if incident.action == Outcome::Term { "sent SIGTERM to" } else { "ended" };
    let mut parts = Vec::new();
    if incident.usage_bytes > 0 {
        parts.push(format!("held {}", bytes(Bytes(incident.usage_bytes))));
    }
    if let Some(account) = &incident.account {
        parts.push(format!("of {}", escaped(&account.to_string())));
    }
    // Where nobody is named, these are who it was.
    if !incident.victims.is_empty() {
        parts.extend(origin.cgroup.iter().map(|cgroup| format!("cgroup {}", path(cgroup))));
        parts.extend(origin.container.iter().map(container));
    }
    if let Some(invoker) = &origin.invoker {
        parts.push(format!("asked by process {} {}", invoker.pid, shown(&invoker.comm)));
    }
    match origin.order {
        Some(_) if is_sysrq(origin) => parts.push(String::from("asked for with SysRq")),
        Some(order) => parts.push(format!("order {order}")),
        None => {}
    }
    parts.push(format!("reason {}", escaped(&incident.reason)));
    parts.push(format!("incident {}", incident.id));
    Some(format!("plimsoll: {} {verb} {who}: {}", origin.killer.name(), parts.join(", ")))
}

/// What to do: what the report suggests, else what always fits.
pub(super) fn advice(incident: &Incident, reason: Reason, reader: Reader) -> Vec<String> {
    if let Some(origin) = incident.origin.as_ref().filter(|origin| !origin.advice.is_empty()) {
        return origin.advice.iter().take(2).map(|text| harmless(text)).collect();
    }
    if incident.origin.as_ref().is_some_and(is_sysrq) {
        return Vec::from([String::from(SYSRQ_ADVICE)]);
    }
    let last = match &incident.origin {
        Some(Origin { killer: killer @ (Killer::SystemdOomd | Killer::Earlyoom), .. }) => killer.name(),
        Some(Origin { killer: Killer::Kernel, .. }) | None => "the kernel",
    };
    let lines = match reader {
        Reader::User => {
            format!("ask the administrator for lines per user, which act before {last} has to.")
        }
        Reader::Administrator => format!(
            "draw a line for each user, which acts before {last} has to: plimsoll limit set default 50%."
        ),
    };
    if reason == Reason::KernelCgroupLimit {
        return Vec::from([String::from(
            "let what runs there hold less at once, or give it more (memory.max, MemoryMax=).",
        )]);
    }
    if reason == Reason::SystemdOomdKill {
        let limits = String::from("see what systemd-oomd watches and from where on it acts: oomctl.");
        return Vec::from([advice::lighter(incident), limits]);
    }
    if reason == Reason::KernelKillsNotRecorded {
        return Vec::from([String::from(
            "read the kernel's own log, which names them: journalctl -k -g 'Killed process'.",
        )]);
    }
    Vec::from([advice::lighter(incident), lines])
}
