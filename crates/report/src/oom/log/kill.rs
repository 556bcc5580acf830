//! Who was killed.

use super::{
    draft::{Draft, name, printable},
    head::adj_of,
    scan::{
        after, after_last, before, contains, find, find_last, kilobytes_after, leading_number, nodes,
        number_u32_after,
    },
};
use crate::oom::{Kind, Memcg, Victim};
use plimsoll_policy::units::{Pid, Uid};

/// Paths of cgroups in reports; the kernel's own limit is `PATH_MAX`.
pub(super) const PATH_BYTES_MAX: usize = 4096;
/// A cgroup with `memory.oom.group` may hold many.
const KILLED_WITH_IT_MAX: usize = 4096;

/// One line of a kill.
#[derive(Debug)]
pub(super) struct KillLine {
    /// Who.
    pub(super) victim: Victim,
    /// It is done (`Killed`), not only announced (`Kill`).
    pub(super) done: bool,
    /// A cgroup's limit was the reason; the line says so itself.
    pub(super) of_memcg: bool,
}

/// `Out of memory: Killed process 2092 (node) total-vm:2546008kB, anon-rss:1665620kB, ...`
pub(super) fn kill_line(text: &[u8]) -> Option<KillLine> {
    let at = find(text, b"Kill")?;
    let rest = text.get(at..)?;
    // Before 4.8 each process that shared the victim's memory was named; they are threads of it, as it were.
    if contains(rest, b"sharing same memory") {
        return None;
    }
    let done = rest.starts_with(b"Killed");
    let rest = after(rest, b"process ")?.trim_ascii_start();
    let (pid, rest) = leading_number(rest)?;
    // The name may hold anything, brackets, too: it ends before the first of what must follow it.
    let ends = [b" total-vm:".as_slice(), b", total-vm:", b" vsz:", b" score ", b", UID "];
    let end = ends.into_iter().filter_map(|mark| find(rest, mark)).filter(|end| *end > 0).min();
    let named = end.and_then(|end| rest.get(..end)).unwrap_or(rest);
    // 2.6.32 of RHEL 6: `Killed process 9682, UID 27, (mysqld) total-vm:...`
    let named = if named.contains(&b'(') { named } else { before(rest, b"total-vm:") };
    let comm = find(named, b"(").zip(find_last(named, b")"));
    let comm = comm.and_then(|(open, close)| named.get(open.checked_add(1)?..close));
    let uid = number_u32_after(rest, b"UID:").or_else(|| number_u32_after(rest, b"UID "));
    Some(KillLine {
        victim: Victim {
            pid: u32::try_from(pid).ok().map(Pid),
            comm: comm.and_then(name),
            uid: uid.map(Uid),
            total_vm: kilobytes_after(rest, b"total-vm:").or_else(|| kilobytes_after(rest, b"vsz:")),
            anon: kilobytes_after(rest, b"anon-rss:"),
            file: kilobytes_after(rest, b"file-rss:"),
            shmem: kilobytes_after(rest, b"shmem-rss:"),
            pgtables: kilobytes_after(rest, b"pgtables:"),
            oom_score_adj: adj_of(rest),
            score: number_u32_after(rest, b" score "),
        },
        done,
        of_memcg: text.starts_with(b"Memory cgroup"),
    })
}

/// Whether the line belongs to the report at hand rather than to one of which nothing else is left.
pub(super) fn belongs(draft: &Draft, line: &KillLine) -> bool {
    let pid = line.victim.pid;
    if draft.killed.is_none() {
        // Announced twice is killed twice.
        return line.done || draft.announced.is_none() || draft.announced == pid;
    }
    draft.report.group.is_some() || draft.killed == pid && line.done
}

/// Takes the line in.
pub(super) fn kill(draft: &mut Draft, line: KillLine) {
    draft.has_kill = true;
    draft.is_memcg |= line.of_memcg;
    let pid = line.victim.pid;
    if !line.done {
        draft.announced = pid;
        draft.report.victim.get_or_insert(line.victim);
        return;
    }
    let chosen = draft.report.victim.as_ref().and_then(|victim| victim.pid);
    let with_it = draft.report.group.is_some() && chosen.is_some() && chosen != pid || draft.killed.is_some();
    if with_it && chosen != pid {
        if draft.report.killed_with_it.len() < KILLED_WITH_IT_MAX {
            draft.report.killed_with_it.push(line.victim);
        }
        return;
    }
    draft.killed = pid;
    let before = draft.report.victim.take().filter(|victim| victim.pid == pid).unwrap_or_default();
    let new = line.victim;
    draft.report.victim = Some(Victim {
        pid: new.pid,
        comm: new.comm.or(before.comm),
        uid: new.uid.or(before.uid),
        score: new.score.or(before.score),
        oom_score_adj: new.oom_score_adj.or(before.oom_score_adj),
        ..new
    });
}

/// `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/a,task_memcg=/a/b,
/// task=node,pid=1,uid=0`
pub(super) fn oom_kill(draft: &mut Draft, text: &[u8]) {
    draft.has_oom_kill = true;
    // Wrapped by mail inside, it got blanks; neither paths nor lists have any but those of names.
    let field = |key: &[u8]| {
        let value = after(text, key)?;
        let ends = [
            b",nodemask=".as_slice(),
            b",cpuset=",
            b",mems_allowed=",
            b",global_oom",
            b",oom_memcg=",
            b",task_memcg=",
            b",task=",
            b",pid=",
        ];
        let end = ends.into_iter().filter_map(|mark| find(value, mark)).min().unwrap_or(value.len());
        value.get(..end).map(<[u8]>::trim_ascii)
    };
    draft.constraint = match field(b"constraint=CONSTRAINT_") {
        Some(b"NONE") => Some(Kind::Global),
        Some(b"MEMCG") => Some(Kind::Memcg),
        Some(b"CPUSET") => Some(Kind::Cpuset),
        Some(b"MEMORY_POLICY") => Some(Kind::Mempolicy),
        _ => None,
    };
    let report = &mut draft.report;
    report.nodes_of_policy = field(b",nodemask=").and_then(nodes).or(report.nodes_of_policy.take());
    report.cpuset = field(b",cpuset=").map(|path| printable(path, PATH_BYTES_MAX)).or(report.cpuset.take());
    report.mems_allowed = field(b",mems_allowed=").and_then(nodes).or(report.mems_allowed.take());
    report.task_memcg =
        field(b",task_memcg=").map(|path| printable(path, PATH_BYTES_MAX)).or(report.task_memcg.take());
    if let Some(path) = field(b",oom_memcg=") {
        report.memcg.get_or_insert_with(Memcg::default).path = Some(printable(path, PATH_BYTES_MAX));
    }
    // A process may call itself `x,pid=1`: the last of each counts.
    let number = |key: &[u8]| {
        leading_number(after_last(text, key)?).and_then(|(number, _)| u32::try_from(number).ok())
    };
    let comm =
        after(text, b",task=").and_then(|rest| rest.get(..find_last(rest, b",pid=").unwrap_or(rest.len())));
    if let Some(pid) = number(b",pid=") {
        report.victim = Some(Victim {
            pid: Some(Pid(pid)),
            comm: comm.and_then(name),
            uid: number(b",uid=").map(Uid),
            ..Victim::default()
        });
    }
}

/// `Tasks in /a are going to be killed due to memory.oom.group set`
pub(super) fn group(draft: &mut Draft, text: &[u8]) {
    if !contains(text, b"memory.oom.group") {
        return;
    }
    let path = after(text, b"Tasks in ").map(|rest| before(rest, b" are going to be killed"));
    draft.report.group = path.map(|path| printable(path, PATH_BYTES_MAX));
}
