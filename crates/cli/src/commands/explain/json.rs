//! What `--json` prints: null where the report does not say.

use plimsoll_policy::units::Bytes;
use plimsoll_report::oom::{Diagnosis, Memcg, Report, Task, Victim, Zone};
use serde::Serialize;

/// One report.
#[derive(Debug, Serialize)]
pub(super) struct Explained<'a> {
    kind: &'static str,
    time: Option<&'a str>,
    since_boot_ns: Option<u64>,
    host: Option<&'a str>,
    kernel: Option<&'a str>,
    invoker: Option<&'a str>,
    invoker_pid: Option<u32>,
    invoker_oom_score_adj: Option<i32>,
    gfp: Option<String>,
    order: Option<i32>,
    page_bytes: u64,
    free_bytes: Option<u64>,
    victim: Option<Killed<'a>>,
    killed_with_it: Vec<Killed<'a>>,
    cause: &'static str,
    call_site: Option<&'a str>,
    summary: &'a str,
    advice: &'a [String],
    memcg: Option<Group<'a>>,
    zones: Vec<ZoneRow>,
    swap_total_bytes: Option<u64>,
    swap_free_bytes: Option<u64>,
    tasks: Vec<TaskRow<'a>>,
    tasks_left_out: u64,
    truncated: bool,
}

/// Who was killed.
#[derive(Debug, Serialize)]
struct Killed<'a> {
    pid: Option<u32>,
    comm: Option<&'a str>,
    uid: Option<u32>,
    total_vm_bytes: Option<u64>,
    anon_bytes: Option<u64>,
    file_bytes: Option<u64>,
    shmem_bytes: Option<u64>,
    pgtables_bytes: Option<u64>,
    oom_score_adj: Option<i32>,
    cgroup: Option<&'a str>,
}

/// The cgroup at its limit.
#[derive(Debug, Serialize)]
struct Group<'a> {
    path: Option<&'a str>,
    usage_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    failures: Option<u64>,
    swap_usage_bytes: Option<u64>,
    swap_limit_bytes: Option<u64>,
    swap_with_memory: bool,
    anon_bytes: Option<u64>,
    file_bytes: Option<u64>,
    shmem_bytes: Option<u64>,
    kernel_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ZoneRow {
    node: u32,
    zone: &'static str,
    free_bytes: Option<u64>,
    min_bytes: Option<u64>,
    low_bytes: Option<u64>,
    high_bytes: Option<u64>,
    free_cma_bytes: Option<u64>,
    reserved_highatomic_bytes: Option<u64>,
    managed_bytes: Option<u64>,
    free_blocks: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct TaskRow<'a> {
    pid: u32,
    uid: Option<u32>,
    comm: &'a str,
    rss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    pgtables_bytes: Option<u64>,
    oom_score_adj: Option<i32>,
}

fn number(bytes: Option<Bytes>) -> Option<u64> {
    bytes.map(|bytes| bytes.0)
}

/// A report and what it comes to.
pub(super) fn explained<'a>(report: &'a Report, diagnosis: &'a Diagnosis) -> Explained<'a> {
    Explained {
        kind: report.kind.name(),
        time: report.when.clock.as_deref(),
        since_boot_ns: report.when.since_boot.map(|since| since.0),
        host: report.when.host.as_deref(),
        kernel: report.kernel.as_deref(),
        invoker: report.invoker.comm.as_deref(),
        invoker_pid: report.invoker.pid.map(|pid| pid.0),
        invoker_oom_score_adj: report.invoker.oom_score_adj,
        gfp: report.gfp.as_ref().map(|gfp| gfp.names.clone().unwrap_or_else(|| format!("{:#x}", gfp.bits))),
        order: report.order,
        page_bytes: report.page_bytes().0,
        free_bytes: number(diagnosis.free),
        victim: report.victim.as_ref().map(|victim| killed(victim, report.task_memcg.as_deref())),
        killed_with_it: report
            .killed_with_it
            .iter()
            .map(|victim| killed(victim, report.group.as_deref()))
            .collect(),
        cause: diagnosis.cause.name(),
        call_site: diagnosis.call_site.as_deref(),
        summary: &diagnosis.summary,
        advice: &diagnosis.advice,
        memcg: report.memcg.as_ref().map(group),
        zones: report.zones.iter().map(zone).collect(),
        swap_total_bytes: number(report.swap_total),
        swap_free_bytes: number(report.swap_free),
        tasks: report.tasks.iter().map(task).collect(),
        tasks_left_out: report.tasks_left_out,
        truncated: report.truncated,
    }
}

fn killed<'a>(victim: &'a Victim, cgroup: Option<&'a str>) -> Killed<'a> {
    Killed {
        pid: victim.pid.map(|pid| pid.0),
        comm: victim.comm.as_deref(),
        uid: victim.uid.map(|uid| uid.0),
        total_vm_bytes: number(victim.total_vm),
        anon_bytes: number(victim.anon),
        file_bytes: number(victim.file),
        shmem_bytes: number(victim.shmem),
        pgtables_bytes: number(victim.pgtables),
        oom_score_adj: victim.oom_score_adj,
        cgroup,
    }
}

fn group(memcg: &Memcg) -> Group<'_> {
    Group {
        path: memcg.path.as_deref(),
        usage_bytes: number(memcg.usage),
        limit_bytes: number(memcg.limit),
        failures: memcg.failures,
        swap_usage_bytes: number(memcg.swap_usage),
        swap_limit_bytes: number(memcg.swap_limit),
        swap_with_memory: memcg.swap_with_memory,
        anon_bytes: number(memcg.anon),
        file_bytes: number(memcg.file),
        shmem_bytes: number(memcg.shmem),
        kernel_bytes: number(memcg.kernel),
    }
}

fn zone(zone: &Zone) -> ZoneRow {
    ZoneRow {
        node: zone.node,
        zone: zone.kind.name(),
        free_bytes: number(zone.free),
        min_bytes: number(zone.min),
        low_bytes: number(zone.low),
        high_bytes: number(zone.high),
        free_cma_bytes: number(zone.free_cma),
        reserved_highatomic_bytes: number(zone.reserved_highatomic),
        managed_bytes: number(zone.managed),
        free_blocks: zone.blocks.iter().map(|block| block.count).collect(),
    }
}

fn task(task: &Task) -> TaskRow<'_> {
    TaskRow {
        pid: task.pid.0,
        uid: task.uid.map(|uid| uid.0),
        comm: &task.comm,
        rss_bytes: number(task.rss),
        swap_bytes: number(task.swap),
        pgtables_bytes: number(task.pgtables),
        oom_score_adj: task.oom_score_adj,
    }
}
