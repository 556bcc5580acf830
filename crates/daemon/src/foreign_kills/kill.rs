//! One kill that was not ours, from all that was heard of it: pure.

use super::log_window::{Told, judged};
use crate::guard::ArrangedKill;
use plimsoll_policy::{
    account::Account,
    container::container_of,
    incident::{
        Outcome, Victim,
        origin::{Invoker, Killer, Origin, Scope},
    },
    reason::Reason,
    units::{Nanos, PageSize, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_report::oom::Kind;
use plimsoll_wire::marked::Marked;

/// The kernel's own 'no user' (`INVALID_UID`): nobody's account, so only root sees it.
const NO_UID: Uid = Uid(u32::MAX);

/// What is to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KillFacts {
    /// When, on `CLOCK_MONOTONIC`.
    pub(crate) time: Nanos,
    pub(crate) account: Option<Account>,
    pub(crate) action: Outcome,
    pub(crate) reason: Reason,
    pub(crate) victims: Vec<Victim>,
    pub(crate) origin: Origin,
    /// The last defence had arranged it.
    pub(crate) arranged: Option<ArrangedKill>,
}

/// What the guard is asked to write down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForeignKill {
    Known(Box<KillFacts>),
    /// The last defence saw it, and nobody else.
    Arranged(ArrangedKill),
    /// So many found no room in the ring.
    Unrecorded(u64),
}

impl KillFacts {
    /// Tells it from others; `None` where its number alone is known.
    pub(crate) fn id(&self) -> Option<VictimId> {
        let first = self.victims.first().filter(|first| first.start_ns > 0)?;
        Some(VictimId { pid: first.pid, start_ns: first.start_ns })
    }
}

/// The victim as the kernel told it when it was marked, else as its log does.
pub(super) fn victim(marked: &Marked, told: &Told, page_size: PageSize) -> Victim {
    let killed = told.killed.as_ref();
    let cgroup =
        marked.cgroup.clone().or_else(|| told.report.as_ref().and_then(|report| report.task_memcg.clone()));
    match &marked.victim {
        Some(facts) => {
            let pages = [facts.anonymous, facts.swapped, facts.shared]
                .into_iter()
                .fold(Pages(0), |sum, part| Pages(sum.0.saturating_add(part.0)));
            Victim {
                pid: facts.pid,
                start_ns: facts.start_ns,
                uid: facts.uid,
                comm: facts.comm.to_string(),
                cmdline: None,
                cgroup,
                usage_bytes: page_size.to_bytes(pages).0,
                weight_permille: None,
                session: false,
                jobs: Vec::new(),
            }
        }
        // Older kernels tell a thread's number: of most processes it is the process's, too.
        None => Victim {
            pid: marked.thread,
            start_ns: 0,
            uid: killed.and_then(|line| line.uid).unwrap_or(NO_UID),
            comm: killed.map(|line| line.comm.clone()).unwrap_or_default(),
            cmdline: None,
            cgroup,
            usage_bytes: killed.and_then(|line| line.bytes).unwrap_or_default(),
            weight_permille: None,
            session: false,
            jobs: Vec::new(),
        },
    }
}

fn scope(told: &Told) -> Option<Scope> {
    match told.report.as_ref().map(|report| report.kind) {
        Some(Kind::Global | Kind::Sysrq) => Some(Scope::Machine),
        Some(Kind::Memcg) => Some(Scope::Cgroup),
        Some(Kind::Cpuset) => Some(Scope::Cpuset),
        Some(Kind::Mempolicy) => Some(Scope::Mempolicy),
        None => match &told.killed {
            Some(killed) if killed.in_cgroup => Some(Scope::Cgroup),
            // The line alone does not tell the machine from a cpuset.
            Some(_) | None => None,
        },
    }
}

/// Where it came from.
fn origin(marked: &Marked, told: &Told, cgroup: Option<&str>) -> Origin {
    let report = told.report.as_ref();
    let (cause, summary, advice) = match report.map(judged) {
        Some((cause, summary, advice)) => (Some(cause), Some(summary), advice),
        None => (None, None, Vec::new()),
    };
    let limit = report.and_then(|report| report.memcg.as_ref()).and_then(|memcg| memcg.path.clone());
    Origin {
        killer: Killer::Kernel,
        scope: scope(told),
        container: cgroup.or(limit.as_deref()).and_then(container_of),
        cgroup: limit,
        invoker: (marked.invoker.pid != Pid(0)).then(|| Invoker {
            pid: marked.invoker.pid,
            uid: Some(marked.invoker.uid),
            comm: marked.invoker.comm.to_string(),
        }),
        order: report.and_then(|report| report.order),
        gfp: report.and_then(|report| report.gfp.as_ref()).map(|gfp| match &gfp.names {
            Some(names) => format!("{:#x}({names})", gfp.bits),
            None => format!("{:#x}", gfp.bits),
        }),
        cause,
        summary,
        advice,
    }
}

/// Puts a kill of the kernel together.
pub(super) fn of_kernel(
    marked: &Marked,
    told: &Told,
    victim: Victim,
    arranged: Option<ArrangedKill>,
) -> KillFacts {
    let origin = origin(marked, told, victim.cgroup.as_deref());
    let reason = match (&arranged, origin.scope) {
        (Some(deed), _) => deed.reason,
        (None, Some(Scope::Machine)) => Reason::KernelOutOfMemory,
        (None, Some(Scope::Cgroup)) => Reason::KernelCgroupLimit,
        (None, Some(Scope::Cpuset | Scope::Mempolicy)) => Reason::KernelNodesFull,
        (None, None) => Reason::KernelOomKill,
    };
    // What befell the whole machine is everybody's; a cgroup, and what is not known, the user's alone.
    let account = match origin.scope {
        Some(Scope::Machine | Scope::Cpuset | Scope::Mempolicy) => None,
        Some(Scope::Cgroup) | None => Some(Account::User(victim.uid)),
    };
    KillFacts {
        time: marked.time,
        account,
        action: Outcome::Kill,
        reason,
        victims: vec![victim],
        origin,
        arranged,
    }
}

#[cfg(test)]
mod tests;
