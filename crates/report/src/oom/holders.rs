//! Who held the memory: the kernel's own parts, what cannot be reclaimed, and the largest processes.

use super::{Counters, Report, Slab, Task};
use plimsoll_policy::units::Bytes;

/// Shares below these parts of memory are not worth a cause.
const KERNEL_PARTS: (u64, u64) = (2, 5);
/// What the report counts nowhere is only blamed when it is at least half of memory: reports leave something out always.
const UNCOUNTED_PARTS: (u64, u64) = (1, 2);
/// Locked or otherwise pinned memory.
const PINNED_PARTS: (u64, u64) = (1, 3);

/// Whether `part` is at least `share.0 / share.1` of `whole`.
pub(super) fn is_share(part: Bytes, whole: Bytes, share: (u64, u64)) -> bool {
    let times = |bytes: Bytes, factor: u64| u128::from(bytes.0).saturating_mul(u128::from(factor));
    whole.0 > 0 && times(part, share.1) >= times(whole, share.0)
}

/// Whether it is known to be at least that share of all memory.
pub(super) fn is_part(report: &Report, part: Option<Bytes>, share: (u64, u64)) -> bool {
    part.zip(report.managed()).is_some_and(|(part, managed)| is_share(part, managed, share))
}

/// The kernel's own memory that the report counts and that reclaim cannot take back.
pub(super) fn kernel_memory(counters: &Counters) -> Bytes {
    [counters.slab_unreclaimable, counters.pagetables, counters.kernel_stack].into_iter().flatten().sum()
}

/// Memory that is managed and in none of the report's counters: drivers, vmalloc, a GPU, a balloon, ZFS. `None` where the
/// report lacks what is needed to tell.
pub(super) fn uncounted(report: &Report) -> Option<Bytes> {
    let counters = &report.counters;
    let needed = [counters.anon?, counters.file?, counters.slab_unreclaimable?, counters.free?];
    let others = [
        counters.slab_reclaimable,
        counters.unevictable,
        counters.pagetables,
        counters.kernel_stack,
        counters.hugetlb,
    ];
    let known = needed.into_iter().chain(others.into_iter().flatten()).sum();
    Some(report.managed()?.saturating_sub(known))
}

/// Whether the kernel itself holds so much that it, and no process, is the cause.
pub(super) fn is_kernels(report: &Report) -> bool {
    let Some(managed) = report.managed() else { return false };
    let counters = &report.counters;
    let users = counters.anon.max(counters.shmem).unwrap_or_default();
    let own = kernel_memory(counters);
    // Caches that can shrink did not: the kernel was at its end, and they are what most of memory is.
    let caches = own.saturating_add(counters.slab_reclaimable.unwrap_or_default());
    let dominates = is_share(caches, managed, (3, 5))
        || is_share(own, managed, KERNEL_PARTS)
        || is_share(own, managed, (1, 4)) && own > users;
    let hidden =
        !report.slabs.is_empty() && own > users || is_part(report, uncounted(report), UNCOUNTED_PARTS);
    dominates || hidden && !is_pinned(report)
}

/// Whether the kernel's own memory alone fills most of what the request could have had. Where that is a small part of
/// the machine, it may lie anywhere.
pub(super) fn is_mostly_kernels(report: &Report, eligible: Bytes) -> bool {
    is_part(report, Some(eligible), (1, 2)) && is_share(kernel_memory(&report.counters), eligible, (1, 2))
}

/// Whether swap was being turned off: there was none any more to swap to, and what it held came back.
pub(super) fn loses_swap(report: &Report) -> bool {
    let turns_off = crate::stack::passes(
        &report.stack,
        &["swapoff", "__do_sys_swapoff", "__se_sys_swapoff", "try_to_unuse"],
    );
    report.swap_leaving.is_some_and(|held| held.0 > 0) || report.swap_total == Some(Bytes(0)) && turns_off
}

/// Whether locked memory or huge pages set aside hold so much that they are the cause.
pub(super) fn is_pinned(report: &Report) -> bool {
    let Counters { unevictable, anon, hugetlb, .. } = report.counters;
    is_part(report, unevictable, PINNED_PARTS) && unevictable >= anon || is_part(report, hugetlb, (1, 2))
}

/// The largest slab cache that cannot shrink, where it is worth naming: from a tenth of memory on, or where the report does
/// not say how much there is. That it is listed at all says that such caches hold much together.
pub(super) fn largest_slab(report: &Report) -> Option<&Slab> {
    let managed = report.managed().unwrap_or_default();
    let largest = report.slabs.iter().max_by_key(|slab| slab.total)?;
    (managed.0 == 0 || is_share(largest.total, managed, (1, 10))).then_some(largest)
}

/// Whether the table of processes seems whole. One that lacks even the victim is cut, and may lack larger ones.
pub(super) fn has_whole_table(report: &Report) -> bool {
    if report.tasks.is_empty() {
        // Nothing is told from it then.
        return true;
    }
    match report.victim.as_ref().and_then(|victim| victim.pid) {
        Some(pid) => report.tasks.iter().any(|task| task.pid == pid || task.tgid == Some(pid)),
        None => !report.truncated,
    }
}

/// The `count` largest processes by what they held, resident and swapped; threads of one group count once.
pub(super) fn largest(report: &Report, count: usize) -> Vec<(&Task, Bytes)> {
    let mut held: Vec<(&Task, Bytes)> = report
        .tasks
        .iter()
        .filter(|task| task.tgid.is_none_or(|tgid| tgid == task.pid))
        .filter_map(|task| Some((task, task.rss?.saturating_add(task.swap.unwrap_or_default()))))
        .collect();
    held.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.pid.cmp(&other.0.pid)));
    held.truncate(count);
    held
}
