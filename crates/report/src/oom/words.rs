//! The story of a report in plain words.

use super::{Cause, Kind, Memcg, Report, Victim, Zone, diagnosis::View, holders};
use crate::stack;
use plimsoll_policy::{
    container::container_of,
    human::{bytes, shown, shown_whole},
    units::Bytes,
};

/// How many zones and how many processes are named.
const ZONES_NAMED_MAX: usize = 6;
const TASKS_NAMED_MAX: usize = 3;
/// A holder is named from this share of memory on.
const NAMED_PARTS: (u64, u64) = (1, 10);

/// Sentence by sentence, in the order of a question: who asked, what was free, why that did not serve, who paid, who
/// held the memory, what swap did.
pub(super) fn story(view: &View<'_>, cause: Cause) -> Vec<String> {
    let why = Some(why(view, cause));
    // What a cgroup used can only be read after which cgroup it was.
    let (first, then) =
        if view.report.kind == Kind::Memcg { (why, memcg_use(view)) } else { (free(view), why) };
    let parts = [Some(asked(view)), first, then, Some(killed(view)), held(view), swap(view), cut(view)];
    parts.into_iter().flatten().collect()
}

fn count_of(order: i32) -> String {
    let pages = u32::try_from(order).map_or(Some(1), |order| 1_u64.checked_shl(order)).unwrap_or(u64::MAX);
    if pages == 1 { String::from("one page") } else { format!("{pages} pages in a row") }
}

/// Who asked, for what, and from where in the kernel.
fn asked(view: &View<'_>) -> String {
    let report = view.report;
    let who = match (&report.invoker.comm, report.invoker.pid) {
        (Some(comm), Some(pid)) => format!("Process {pid} ({})", shown(comm)),
        (Some(comm), None) => format!("Process {}", shown(comm)),
        (None, Some(pid)) => format!("Process {pid}"),
        (None, None) => String::from("Somebody (the report's head is missing)"),
    };
    if report.kind == Kind::Sysrq {
        return String::from(
            "Somebody asked the kernel to kill a process, with the keyboard (Alt+SysRq+F) or through /proc/sysrq-trigger.",
        );
    }
    let purpose = stack::purpose(&report.stack);
    let what = match report.order {
        Some(order) => {
            let whose = match &report.gfp {
                _ if purpose.is_some() => "",
                Some(gfp) if gfp.bits == 0 => "",
                Some(gfp) if gfp.is_for_users() => " for a process",
                Some(_) => " for the kernel's own use",
                None => "",
            };
            format!("{}{whose} (order {order}, {})", count_of(order), bytes(view.request.size))
        }
        None => String::from("memory"),
    };
    let purpose = purpose.map_or_else(String::new, |purpose| format!(", {purpose}"));
    let site = report.call_site().map_or_else(String::new, |site| format!(" The request came from {site}."));
    format!("{who} asked for {what}{purpose}.{site}")
}

/// What was free, zone by zone, and in which pieces.
fn free(view: &View<'_>) -> Option<String> {
    if view.report.zones.iter().all(|zone| zone.free.is_none()) {
        return view.report.free().map(|free| format!("Free on the whole machine: {}.", bytes(free)));
    }
    let several_nodes = view.report.zones.iter().any(|zone| zone.node > 0);
    let mut zones: Vec<String> = Vec::new();
    for (zones_of, may) in [(&view.eligible, true), (&view.others, false)] {
        for zone in zones_of.iter().filter(|zone| zone.free.is_some()) {
            zones.push(zone_words(view, zone, may, several_nodes));
        }
    }
    let left_out = zones.len().saturating_sub(ZONES_NAMED_MAX);
    zones.truncate(ZONES_NAMED_MAX);
    if left_out > 0 {
        zones.push(format!("{left_out} zones more"));
    }
    Some(format!("Free: {}.", zones.join("; ")))
}

/// The kernel's own number stands beside ours, so that it can be found in the report.
fn zone_words(view: &View<'_>, zone: &Zone, may: bool, several_nodes: bool) -> String {
    let node = if several_nodes { format!(" of node {}", zone.node) } else { String::new() };
    let free = zone.free.unwrap_or_default();
    let mut text = format!("{} ({} kB) in the {} zone{node}", bytes(free), free.0 >> 10, zone.kind.name());
    if !may {
        text.push_str(", which this request may not use");
        return text;
    }
    if let Some(min) = zone.min {
        text = format!("{text} (to be kept: {})", bytes(min));
    }
    if let Some(cma) = zone.free_cma.filter(|cma| cma.0 > 0 && !view.request.movable) {
        text = format!("{text}, {} of it in CMA areas, for movable pages only", bytes(cma));
    }
    if view.order() > 0 && !zone.blocks.is_empty() {
        let (large, reserved) = zone.in_blocks_of(view.request.size);
        let size = bytes(view.request.size);
        text = match (large.0, reserved) {
            (0, _) => format!("{text}, nothing of it in pieces of {size} (order {}) or more", view.order()),
            (_, true) => format!(
                "{text}, {} of it in pieces of {size} (order {}) or more, all of them reserved (H) for atomic requests",
                bytes(large),
                view.order()
            ),
            (_, false) => format!("{text}, {} of it in pieces of {size} or more", bytes(large)),
        };
    }
    text
}

fn memcg_use(view: &View<'_>) -> Option<String> {
    let memcg = view.report.memcg.as_ref()?;
    let used = match (memcg.usage, memcg.limit) {
        (Some(usage), Some(limit)) => format!("used {} of {}", bytes(usage), bytes(limit)),
        (Some(usage), None) => format!("used {}", bytes(usage)),
        (None, _) => return None,
    };
    let parts = [
        ("anonymous", memcg.anon),
        ("page cache and shared memory", memcg.file),
        ("of that shared memory and tmpfs", memcg.shmem.filter(|shmem| shmem.0 > 0)),
        ("kernel memory", memcg.kernel),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter_map(|(name, part)| Some(format!("{} {name}", bytes(part?)))).collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    Some(format!("It {used}{colon}{}.", parts.join(", ")))
}

/// Whether the limit is of a cgroup above the victim's, and not of the container or the pod that it belongs to.
pub(super) fn has_limit_of_parent(report: &Report) -> bool {
    let limited = report.memcg.as_ref().and_then(|memcg| memcg.path.as_deref());
    let (Some(limited), Some(own)) = (limited, report.task_memcg.as_deref()) else { return false };
    let below = own.strip_prefix(limited.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
    below && !names_pod(limited) && container_of(limited).is_none()
}

/// Whether a path is of a pod or of what runs in it: `pod0a1b...`, `kubepods-burstable-pod0a1b_....slice`.
pub(super) fn names_pod(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with("pod") || name.contains("-pod"))
}

fn cgroup(memcg: Option<&Memcg>) -> String {
    memcg.and_then(|memcg| memcg.path.as_ref()).map_or_else(
        || String::from("a memory cgroup"),
        |path| format!("the memory cgroup {}", path_words(path)),
    )
}

/// A path in quotes, whole: names of pods and units stand at its end.
pub(super) fn path_words(path: &str) -> String {
    format!("\"{}\"", shown_whole(path))
}

fn why(view: &View<'_>, cause: Cause) -> String {
    let report = view.report;
    match cause {
        Cause::MemcgLimit => format!(
            "Not the machine was out of memory but {}, which had reached its limit.{}",
            cgroup(report.memcg.as_ref()),
            if has_limit_of_parent(report) {
                " It is above the cgroup of the process: a limit of that one's own was not reached."
            } else {
                ""
            }
        ),
        Cause::Fragmented => format!(
            "Memory was fragmented, not exhausted: single pages could be had, but not {}. Up to order 3 the kernel goes \
             on trying and kills; it cannot know that killing seldom makes such pieces.",
            count_of(view.order())
        ),
        Cause::LowZone => low_zone(view),
        Cause::KernelMemory => {
            let parts = kernel_parts(view).map_or_else(String::new, |parts| format!(": {parts}"));
            format!("Memory was exhausted, and the kernel itself held most of it{parts}.")
        }
        Cause::Unreclaimable => {
            let counters = &report.counters;
            let parts = [
                ("locked or otherwise unevictable", counters.unevictable),
                ("set aside as huge pages", counters.hugetlb),
            ];
            let parts = sizes(&parts).join(", ");
            format!("Memory was exhausted, and much of it could not be reclaimed: {parts}.")
        }
        Cause::Exhausted => match report.kind {
            Kind::Cpuset => format!(
                "The memory nodes of {} were exhausted; other nodes do not count for it.",
                cpuset(view)
            ),
            Kind::Mempolicy => String::from(
                "The memory nodes that the process's NUMA policy allows were exhausted; other nodes do not count for it.",
            ),
            Kind::Global | Kind::Memcg | Kind::Sysrq => format!(
                "Memory was exhausted: what was free lay {} what the kernel keeps for itself, and reclaim found nothing more.",
                // What was freed until it was printed, and what other zones' requests may not have, stand in that number, too.
                if view.is_above_min() { "close to" } else { "below" }
            ),
        },
        Cause::Unknown => unknown(view),
    }
}

fn cpuset(view: &View<'_>) -> String {
    view.report
        .cpuset
        .as_ref()
        .map_or_else(|| String::from("its cpuset"), |name| format!("the cpuset {}", path_words(name)))
}

fn low_zone(view: &View<'_>) -> String {
    if let Some(cma) = view.only_cma() {
        return format!(
            "The zones that this request may use had almost nothing left but {} in CMA areas, which are for movable pages only.",
            bytes(cma)
        );
    }
    let elsewhere = view
        .elsewhere()
        .map_or_else(String::new, |held| format!(", while {} were free or cache in others", bytes(held)));
    if view.eligible.is_empty() {
        return format!(
            "None of the zones on the nodes that were allowed may serve this request{elsewhere}."
        );
    }
    format!(
        "Only the {} zone and those below it may serve this request, and they were exhausted{elsewhere}.",
        view.request.top.name()
    )
}

fn unknown(view: &View<'_>) -> String {
    let report = view.report;
    let has_numbers = report.zones.iter().any(|zone| zone.free.is_some());
    if report.kind == Kind::Sysrq {
        return String::from(if has_numbers {
            "Whether memory was short does not matter for that, and the report's numbers show no shortage."
        } else {
            "Whether memory was short does not matter for that, and this report does not show it."
        });
    }
    if !has_numbers {
        return String::from(
            "Why cannot be told: the part of the report that shows where memory was is missing.",
        );
    }
    String::from(
        "Why cannot be told: the report's own numbers show enough free memory for this request. It may have become free \
         meanwhile, or a driver refused a page fault for a reason of its own.",
    )
}

/// `1.0 GiB anonymous`, for each of which the report tells something.
fn sizes(parts: &[(&str, Option<Bytes>)]) -> Vec<String> {
    let told = parts.iter().filter_map(|(name, part)| Some((name, part.filter(|part| part.0 > 0)?)));
    told.map(|(name, part)| format!("{} {name}", bytes(part))).collect()
}

/// The kernel's own memory, part by part; small parts left out. `None` where the report shows none that is worth naming.
fn kernel_parts(view: &View<'_>) -> Option<String> {
    let report = view.report;
    let counters = &report.counters;
    let mut parts = [
        ("in slab caches that cannot shrink", counters.slab_unreclaimable),
        ("in slab caches that should have shrunk", counters.slab_reclaimable),
        ("in page tables", counters.pagetables),
        ("in kernel stacks", counters.kernel_stack),
        ("that the report counts nowhere (drivers, a GPU, a balloon, ZFS)", holders::uncounted(report)),
    ];
    parts.sort_by_key(|(_, held)| core::cmp::Reverse(*held));
    let worth = sizes(&parts.map(|(name, part)| (name, worth(report, part))));
    let slab = holders::largest_slab(report).map(|slab| {
        let (name, total) = (shown(&slab.name), bytes(slab.total));
        format!("the largest slab cache that cannot shrink is {name} with {total}")
    });
    let parts = (!worth.is_empty()).then(|| worth.join(", "));
    let told: Vec<String> = parts.into_iter().chain(slab).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Where it is worth naming.
fn worth(report: &Report, part: Option<Bytes>) -> Option<Bytes> {
    part.filter(|_| holders::is_part(report, part, NAMED_PARTS))
}

fn named(victim: &Victim) -> String {
    let name = victim.comm.as_deref().map_or_else(String::new, |comm| format!(" ({})", shown(comm)));
    let pid = victim.pid.map_or_else(String::new, |pid| format!(" {pid}"));
    let uid = victim.uid.map_or_else(String::new, |uid| format!(" of user {uid}"));
    format!("Process{pid}{name}{uid}")
}

fn killed(view: &View<'_>) -> String {
    let report = view.report;
    let Some(victim) = &report.victim else {
        return String::from(if report.panicked {
            "Nobody was killed; the kernel panicked instead."
        } else if report.nobody_left {
            "Nobody was left whom the kernel may kill."
        } else {
            "The report does not say who was killed."
        });
    };
    let parts = [
        ("anonymous", victim.anon),
        ("files", victim.file),
        ("shared", victim.shmem),
        ("page tables", victim.pgtables),
    ];
    let parts = sizes(&parts);
    let held = match (victim.resident(), parts.is_empty()) {
        (Some(resident), false) => format!("; it held {} ({})", bytes(resident), parts.join(", ")),
        (Some(_), true) => String::from("; it held no memory any more"),
        (None, _) => String::new(),
    };
    let group = match report.killed_with_it.len() {
        0 => String::new(),
        1 => String::from(" One process more of its cgroup was killed with it, as memory.oom.group says."),
        count => {
            format!(" {count} processes more of its cgroup were killed with it, as memory.oom.group says.")
        }
    };
    let adj = match victim.oom_score_adj {
        Some(adj @ 1..) => format!(" Its oom_score_adj of {adj} put it before others."),
        _ => String::new(),
    };
    format!("{} was killed{held}.{adj}{group}", named(victim))
}

/// Who held the memory: the largest processes, and what no process is charged for.
fn held(view: &View<'_>) -> Option<String> {
    let report = view.report;
    let whole = match report.kind {
        Kind::Memcg => report.memcg.as_ref().and_then(|memcg| memcg.usage),
        Kind::Global | Kind::Cpuset | Kind::Mempolicy | Kind::Sysrq => report.managed(),
    };
    let tasks = holders::largest(report, TASKS_NAMED_MAX);
    let by_tasks = tasks.iter().map(|(_, held)| *held).sum();
    let largest: Vec<String> = tasks
        .into_iter()
        .filter(|(_, held)| held.0 > 0 && whole.is_none_or(|whole| holders::is_share(*held, whole, (1, 100))))
        .map(|(task, held)| {
            let swapped = task.swap.filter(|swap| swap.0 > 0);
            let swapped =
                swapped.map_or_else(String::new, |swap| format!(" ({} of it in swap)", bytes(swap)));
            format!("process {} ({}) {}{swapped}", task.pid, shown(&task.comm), bytes(held))
        })
        .collect();
    let mut parts = largest;
    if report.kind != Kind::Memcg {
        let counters = &report.counters;
        // Told where no single process stands for it.
        let anonymous = counters.anon.map(|anon| anon.saturating_sub(counters.shmem.unwrap_or_default()));
        let anonymous = anonymous.filter(|anonymous| !holders::is_share(by_tasks, *anonymous, (1, 2)));
        let others = [
            ("processes together, in anonymous memory,", anonymous),
            ("shared memory and tmpfs", counters.shmem),
            ("the page cache", counters.file),
            ("unevictable pages", counters.unevictable),
            ("the kernel itself", Some(holders::kernel_memory(counters))),
            ("slab caches that can shrink", counters.slab_reclaimable),
            ("huge pages set aside", counters.hugetlb),
        ];
        let told = |(name, part)| Some(format!("{name} {}", bytes(worth(report, part)?)));
        parts.extend(others.into_iter().filter_map(told));
    }
    let all = report.managed().filter(|_| report.kind != Kind::Memcg);
    // Processes are told with what they had in swap: then swap belongs to the whole, too.
    let in_swap = report.tasks.iter().any(|task| task.swap.is_some_and(|swap| swap.0 > 0));
    let of_swap = report.swap_total.filter(|total| in_swap && total.0 > 0);
    let of_swap =
        of_swap.map_or_else(String::new, |total| format!(" of memory and {} of swap", bytes(total)));
    let of = all.map_or_else(String::new, |all| format!(", of {}{of_swap} in all", bytes(all)));
    let who = if holders::has_whole_table(report) {
        "Who held most"
    } else {
        "Who held how much, as far as the table of processes goes"
    };
    (!parts.is_empty()).then(|| format!("{who}: {}{of}.", parts.join(", ")))
}

fn swap(view: &View<'_>) -> Option<String> {
    let report = view.report;
    if let (Kind::Memcg, Some(memcg)) = (report.kind, &report.memcg) {
        let usage = memcg.swap_usage?;
        return Some(match memcg.swap_limit {
            Some(Bytes(0)) => String::from("The cgroup may not swap."),
            Some(limit) if memcg.swap_with_memory => {
                format!("Memory and swap together: {} of {}.", bytes(usage), bytes(limit))
            }
            Some(limit) => format!("Swap: {} of {} used.", bytes(usage), bytes(limit)),
            None => format!("Swap: {} used, without a limit.", bytes(usage)),
        });
    }
    let (total, free) = (report.swap_total?, report.swap_free);
    if holders::loses_swap(report) {
        let held = report.swap_leaving.map_or_else(String::new, |held| format!(": {} of it", bytes(held)));
        return Some(format!(
            "Swap was being turned off, and what it held had to come back into memory{held}."
        ));
    }
    Some(match (total, free) {
        (Bytes(0), _) => String::from("There was no swap."),
        (total, Some(free)) if holders::is_share(total.saturating_sub(free), total, (49, 50)) => {
            format!("Swap was full: {} of {} free.", bytes(free), bytes(total))
        }
        (total, Some(free)) => format!("Swap was not full: {} of {} free.", bytes(free), bytes(total)),
        (total, None) => format!("There was swap of {}.", bytes(total)),
    })
}

fn cut(view: &View<'_>) -> Option<String> {
    let report = view.report;
    // `oom_rs` in mm/oom_kill.c, 3.1 to 7.0.
    let alone = report.victim.is_some()
        && report.order.is_none()
        && report.zones.is_empty()
        && report.memcg.is_none();
    report.truncated.then(|| {
        String::from(if alone {
            "The rest of the report is missing: cut from the log, or never written, as the kernel does when it kills more than \
             ten times in five seconds."
        } else {
            "Parts of the report are missing; what is not said here, it does not show."
        })
    })
}
