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
    memcg: Option<&'a Memcg>,
    zones: Vec<ZoneRow>,
    swap_total_bytes: Option<u64>,
    swap_free_bytes: Option<u64>,
    tasks: &'a [Task],
    tasks_left_out: u64,
    truncated: bool,
}

/// Who was killed, and where it ran.
#[derive(Debug, Serialize)]
struct Killed<'a> {
    #[serde(flatten)]
    victim: &'a Victim,
    cgroup: Option<&'a str>,
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

fn number(bytes: Option<Bytes>) -> Option<u64> {
    bytes.map(|bytes| bytes.0)
}

fn killed_in<'a>(cgroup: &'a Option<String>) -> impl Fn(&'a Victim) -> Killed<'a> {
    move |victim| Killed { victim, cgroup: cgroup.as_deref() }
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
        victim: report.victim.as_ref().map(killed_in(&report.task_memcg)),
        killed_with_it: report.killed_with_it.iter().map(killed_in(&report.group)).collect(),
        cause: diagnosis.cause.name(),
        call_site: diagnosis.call_site.as_deref(),
        summary: &diagnosis.summary,
        advice: &diagnosis.advice,
        memcg: report.memcg.as_ref(),
        zones: report.zones.iter().map(zone).collect(),
        swap_total_bytes: number(report.swap_total),
        swap_free_bytes: number(report.swap_free),
        tasks: &report.tasks,
        tasks_left_out: report.tasks_left_out,
        truncated: report.truncated,
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
