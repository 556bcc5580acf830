//! What to do about an OOM report: at most three pieces of advice that fit it, the likeliest first.

use super::{
    Cause, Kind, Memcg, ZoneKind,
    diagnosis::View,
    holders,
    words::{names_pod, path_words},
};
use plimsoll_policy::{container::container_of, human::shown, units::Bytes};

/// More is not read.
const ADVICE_MAX: usize = 3;

pub(super) fn advice(view: &View<'_>, cause: Cause) -> Vec<String> {
    let mut advice = match cause {
        Cause::Exhausted => exhausted(view),
        Cause::Fragmented => fragmented(view),
        Cause::MemcgLimit => memcg(view),
        Cause::LowZone => low_zone(view),
        Cause::KernelMemory => kernel(view),
        Cause::Unreclaimable => pinned(view),
        Cause::Unknown => unknown(view),
    };
    advice.truncate(ADVICE_MAX);
    advice
}

fn swap_advice(view: &View<'_>) -> Option<String> {
    if holders::loses_swap(view.report) {
        return Some(String::from(
            "turn swap off (swapoff) only while memory has room for what it holds, or leave it on.",
        ));
    }
    match (view.report.swap_total?, view.report.swap_free) {
        (Bytes(0), _) => {
            Some(String::from("add swap or zram: without it, idle memory of processes cannot make room."))
        }
        (total, Some(free)) if holders::is_share(total.saturating_sub(free), total, (49, 50)) => {
            Some(String::from("add memory, or swap: what there is was full."))
        }
        _ => None,
    }
}

fn exhausted(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    let mut advice = Vec::new();
    match report.kind {
        Kind::Cpuset => advice.push(String::from("give the cpuset more memory nodes (cpuset.mems), or what runs in it less to do.")),
        Kind::Mempolicy => advice.push(String::from(
            "let the process prefer its node instead of being bound to it (numactl --preferred), or spread it (--interleave).",
        )),
        Kind::Global | Kind::Memcg | Kind::Sysrq => {}
    }
    if holders::is_part(report, report.counters.shmem, (1, 4)) {
        advice.push(String::from(
            "look at shared memory and tmpfs, which no kill frees: df -t tmpfs; ipcs -m; du -sh /dev/shm.",
        ));
    }
    if let Some((task, held)) = holders::largest(report, 1).first()
        && holders::is_part(report, Some(*held), (1, 3))
    {
        let name = shown(&task.comm);
        advice.push(match task.uid {
            Some(uid) => format!(
                "draw a line for who held most, so that {name} ends before the machine does: plimsoll limit set {uid} SIZE."
            ),
            None => format!("find out why {name} took so much, or give it a limit."),
        });
    } else {
        advice.push(String::from(
            "draw a line for each user, so that one cannot take the memory of all: plimsoll limit set default 50%.",
        ));
    }
    advice.extend(swap_advice(view));
    if report.victim.as_ref().is_some_and(|victim| victim.oom_score_adj.is_some_and(|adj| adj >= 500)) {
        advice.push(String::from(
            "look at the victim's oom_score_adj: it was chosen for that rather than for its size.",
        ));
    }
    advice
}

fn fragmented(view: &View<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    let through_kmalloc =
        crate::stack::passes(&view.report.stack, &["kmalloc", "__kmalloc", "kmem_cache_alloc"]);
    advice.push(String::from(if view.report.call_site().is_none() {
        "see whether a newer kernel or driver asks for smaller pieces: the report's call trace, not seen here, names who asked."
    } else if through_kmalloc {
        "have the code that asked take scattered pages, kvmalloc or kvcalloc instead of kmalloc or kcalloc, where it needs no \
         contiguous memory; report it to the driver's or the kernel's developers, or update."
    } else {
        "see whether a newer kernel or driver asks for smaller pieces: the call site above names who asked."
    }));
    advice.push(String::from(
        "keep more memory free, so that pieces can form: raise vm.min_free_kbytes, or vm.watermark_scale_factor.",
    ));
    advice.push(String::from(
        "have memory compacted before it is needed: run plimsoll daemon, or raise vm.compaction_proactiveness. See who asks: sudo plimsoll frag --record 10m.",
    ));
    advice
}

fn memcg(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    let memcg = report.memcg.clone().unwrap_or_default();
    let usage = memcg.usage.unwrap_or_default();
    let mut advice = Vec::new();
    let path = memcg.path.as_deref().unwrap_or_default();
    let raise = if names_pod(path) {
        String::from("raise the pod's memory limit (resources.limits.memory), or let it hold less at once.")
    } else if path.contains("kubepods") {
        advice.push(String::from(
            "give the pods limits that fit the node together (resources.limits.memory): one without a limit can take all of it.",
        ));
        String::from(
            "leave more of the node to pods (kubeReserved, systemReserved and evictionHard of the kubelet), or run fewer there.",
        )
    } else if container_of(path).is_some() {
        String::from("raise the container's limit (--memory), or let it hold less at once.")
    } else if path.is_empty() {
        String::from("raise the cgroup's limit (memory.max), or let it hold less at once.")
    } else if path.ends_with(".service") || path.ends_with(".slice") || path.ends_with(".scope") {
        let unit = path.rsplit('/').next().unwrap_or(path);
        format!("raise MemoryMax= of the unit {}, or let it hold less at once.", path_words(unit))
    } else {
        let file = limit_file(&memcg, report.group.is_some());
        format!("raise {file} of the cgroup {}, or let it hold less at once.", path_words(path))
    };
    advice.push(raise);
    let is_quarter = |part: Option<Bytes>| part.is_some_and(|part| holders::is_share(part, usage, (1, 4)));
    if is_quarter(memcg.shmem) {
        advice.push(String::from(
            "look at its files in tmpfs (/dev/shm, emptyDir with medium Memory): they count, and no kill frees them.",
        ));
    }
    if is_quarter(memcg.kernel.or(memcg.slab)) {
        advice.push(String::from(
            "look at kernel memory that is charged to it: many open files, threads or sockets.",
        ));
    }
    if memcg.swap_limit == Some(Bytes(0)) {
        advice.push(String::from(
            "let it swap a little (memory.swap.max), so that a short peak does not end it.",
        ));
    }
    if report.group.is_none() && report.tasks.len() > 1 {
        advice.push(String::from(
            "set memory.oom.group if what is left is of no use without the process that was killed.",
        ));
    }
    advice
}

/// The file of the limit. `memory+swap` alone does not tell the version: before 5.3 it was printed with cgroup v2, too
/// (`mem_cgroup_print_oom_info`, mm/memcontrol.c), where it counts nothing. memory.oom.group is v2's (4.19).
fn limit_file(memcg: &Memcg, has_group: bool) -> &'static str {
    if !memcg.swap_with_memory || has_group {
        return "memory.max";
    }
    if memcg.swap_usage.zip(memcg.usage).is_some_and(|(both, memory)| both.0 > 0 && both >= memory) {
        return "memory.limit_in_bytes";
    }
    "memory.max (memory.limit_in_bytes with cgroup v1)"
}

fn low_zone(view: &View<'_>) -> Vec<String> {
    let mut advice = Vec::new();
    if view.eligible.is_empty() {
        return Vec::from([String::from(
            "allow a node with ordinary memory, too (cpuset.mems, numactl): these hold movable memory only, which the kernel \
             cannot use for itself.",
        )]);
    }
    if view.others.iter().any(|zone| zone.kind == ZoneKind::Movable) {
        advice.push(String::from(
            "make the Movable zone smaller (movablecore=, kernelcore= on the kernel command line), or bring less memory online \
             as movable.",
        ));
    }
    if view.only_cma().is_some() {
        advice.push(String::from(
            "make the CMA area smaller (cma= on the kernel command line, or in the device tree).",
        ));
    }
    if view.request.has_highmem {
        advice.push(String::from("run a 64-bit kernel: it can use all memory for itself."));
        advice.push(String::from("shrink what the kernel keeps in low memory: vm.vfs_cache_pressure above 100, fewer threads and open files."));
    }
    match view.request.widest {
        ZoneKind::Dma | ZoneKind::Dma32 => advice.push(format!(
            "look at the driver that asked: it may take memory from the {} zone only; a newer one may not need to.",
            view.request.widest.name()
        )),
        ZoneKind::Normal | ZoneKind::HighMem | ZoneKind::Movable | ZoneKind::Device => advice.push(String::from(
            "keep more of the low zones free: raise vm.min_free_kbytes, lower the numbers in vm.lowmem_reserve_ratio (smaller reserves more).",
        )),
    }
    advice
}

fn kernel(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    let counters = &report.counters;
    let named = holders::largest_slab(report);
    let slab = match named {
        Some(slab) => format!(
            "find out who fills the slab cache {} (slabtop), and update the kernel or that driver: it may leak.",
            shown(&slab.name)
        ),
        None => String::from(
            "find out which slab cache grows (slabtop -s c), and update the kernel or that driver: it may leak.",
        ),
    };
    let largest = named.map(|slab| slab.total);
    let mut parts = [
        (counters.slab_unreclaimable.max(counters.slab_reclaimable).max(largest), slab.as_str()),
        (
            counters.pagetables,
            "use huge pages for large shared memory, and map less of it in fewer processes: each has page tables of its own.",
        ),
        (
            counters.kernel_stack,
            "run fewer threads: limit them with pids.max or TasksMax=; each has a stack in the kernel.",
        ),
        (
            holders::uncounted(report),
            "look at what the report counts nowhere: memory of drivers and of a GPU, a balloon of the hypervisor, the ARC of ZFS.",
        ),
    ];
    parts.sort_by_key(|(held, _)| core::cmp::Reverse(held.unwrap_or_default()));
    let is_known = report.managed().is_some_and(|managed| managed.0 > 0);
    // Without the whole, only a cache that the kernel named is known to be large.
    let is_large = |held: Option<Bytes>| {
        holders::is_part(report, held, (1, 10)) || !is_known && largest == Some(held.unwrap_or_default())
    };
    let mut advice: Vec<String> =
        parts.into_iter().filter(|(held, _)| is_large(*held)).map(|(_, text)| text.to_owned()).collect();
    if advice.is_empty() {
        advice.push(String::from(
            "watch Slab, PageTables and KernelStack in /proc/meminfo, to see which grows.",
        ));
    }
    advice
}

fn pinned(view: &View<'_>) -> Vec<String> {
    let counters = &view.report.counters;
    let mut advice = Vec::new();
    if counters.hugetlb.is_some_and(|huge| huge.0 > 0 && huge >= counters.unevictable.unwrap_or_default()) {
        advice.push(String::from(
            "set fewer huge pages aside (vm.nr_hugepages, hugepages= on the kernel command line).",
        ));
    }
    if counters.unevictable.is_some_and(|pages| pages.0 > 0) {
        advice.push(String::from(
            "find out who locks memory (VmLck in /proc/PID/status), and limit it: ulimit -l, LimitMEMLOCK=.",
        ));
    }
    advice.push(String::from("give the machine more memory for what is not locked."));
    advice
}

/// After a kill that somebody asked for with SysRq.
pub(crate) const SYSRQ_ADVICE: &str =
    "nothing, if you asked for it; else see who may: kernel.sysrq and who can write /proc/sysrq-trigger.";

fn unknown(view: &View<'_>) -> Vec<String> {
    let report = view.report;
    if report.kind == Kind::Sysrq {
        return Vec::from([String::from(SYSRQ_ADVICE)]);
    }
    if report.zones.is_empty() {
        return Vec::from([String::from(
            "get the whole report, from 'invoked oom-killer' to 'Killed process': journalctl -k, or the serial console's log.",
        )]);
    }
    Vec::from([String::from(
        "see whether it happens again, and keep the whole report with the kernel messages before it: a driver may say there what it lacked.",
    )])
}
