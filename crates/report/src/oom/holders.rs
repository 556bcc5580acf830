//! Who held the memory: the kernel's own parts, what cannot be reclaimed, and the largest processes.

use super::{Counters, Report, Slab, Task};
use plimsoll_policy::units::Bytes;

/// Shares below these parts of memory are not worth a cause.
const KERNEL_PARTS: (u64, u64) = (2, 5);
/// What the report counts nowhere is only blamed when it is at least half of memory: reports leave something out always.
const UNCOUNTED_PARTS: (u64, u64) = (1, 2);
/// Locked or otherwise pinned memory.
const PINNED_PARTS: (u64, u64) = (1, 3);

/// The kernel's memory, part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KernelMemory {
    pub(super) slab: Bytes,
    pub(super) pagetables: Bytes,
    pub(super) stacks: Bytes,
    /// All of it: these three.
    pub(super) sum: Bytes,
}

fn or_none(bytes: Option<Bytes>) -> u64 {
    bytes.map_or(0, |bytes| bytes.0)
}

/// Whether `part` is at least `share.0 / share.1` of `whole`.
pub(super) fn is_share(part: u64, whole: u64, share: (u64, u64)) -> bool {
    whole > 0
        && u128::from(part).saturating_mul(u128::from(share.1))
            >= u128::from(whole).saturating_mul(u128::from(share.0))
}

/// The kernel's own memory that the report counts and that reclaim cannot take back.
pub(super) fn kernel_memory(counters: &Counters) -> KernelMemory {
    let (slab, pagetables) = (or_none(counters.slab_unreclaimable), or_none(counters.pagetables));
    let stacks = or_none(counters.kernel_stack);
    KernelMemory {
        slab: Bytes(slab),
        pagetables: Bytes(pagetables),
        stacks: Bytes(stacks),
        sum: Bytes(slab.saturating_add(pagetables).saturating_add(stacks)),
    }
}

/// Memory that is managed and in none of the report's counters: drivers, vmalloc, a GPU, a balloon, ZFS. `None` where the
/// report lacks what is needed to tell.
pub(super) fn uncounted(report: &Report) -> Option<Bytes> {
    let counters = &report.counters;
    let (managed, anon, file) = (report.managed()?, counters.anon?, counters.file?);
    let slab = counters.slab_unreclaimable?;
    let known = [
        Some(anon),
        Some(file),
        Some(slab),
        counters.slab_reclaimable,
        counters.unevictable,
        counters.pagetables,
        counters.kernel_stack,
        counters.hugetlb,
        Some(counters.free?),
    ];
    let known = known.into_iter().flatten().fold(0_u64, |sum, part| sum.saturating_add(part.0));
    Some(managed.saturating_sub(Bytes(known)))
}

/// Whether the kernel itself holds so much that it, and no process, is the cause.
pub(super) fn is_kernels(report: &Report) -> bool {
    let Some(managed) = report.managed() else { return false };
    let counters = &report.counters;
    let users = or_none(counters.anon).max(or_none(counters.shmem));
    let own = kernel_memory(counters).sum.0;
    // Caches that can shrink did not: the kernel was at its end, and they are what most of memory is.
    let caches = own.saturating_add(or_none(counters.slab_reclaimable));
    let dominates = is_share(caches, managed.0, (3, 5))
        || is_share(own, managed.0, KERNEL_PARTS)
        || is_share(own, managed.0, (1, 4)) && own > users;
    let hidden = !report.slabs.is_empty() && own > users
        || uncounted(report).is_some_and(|hidden| is_share(hidden.0, managed.0, UNCOUNTED_PARTS));
    dominates || hidden && !is_pinned(report)
}

/// Whether the kernel's own memory alone fills most of what the request could have had. Where that is a small part of
/// the machine, it may lie anywhere.
pub(super) fn is_mostly_kernels(report: &Report, eligible_bytes: u64) -> bool {
    let is_most = report.managed().is_some_and(|managed| is_share(eligible_bytes, managed.0, (1, 2)));
    is_most && is_share(kernel_memory(&report.counters).sum.0, eligible_bytes, (1, 2))
}

/// Whether swap was being turned off: there was none any more to swap to, and what it held came back.
pub(super) fn loses_swap(report: &Report) -> bool {
    let turns_off =
        super::stack::passes(report, &["swapoff", "__do_sys_swapoff", "__se_sys_swapoff", "try_to_unuse"]);
    report.swap_leaving.is_some_and(|held| held.0 > 0) || report.swap_total == Some(Bytes(0)) && turns_off
}

/// Whether locked memory or huge pages set aside hold so much that they are the cause.
pub(super) fn is_pinned(report: &Report) -> bool {
    let Some(managed) = report.managed() else { return false };
    let counters = &report.counters;
    let unevictable = or_none(counters.unevictable);
    let locked = is_share(unevictable, managed.0, PINNED_PARTS) && unevictable >= or_none(counters.anon);
    locked || is_share(or_none(counters.hugetlb), managed.0, (1, 2))
}

/// The largest slab cache that cannot shrink, where it is worth naming: from a tenth of memory on, or where the report does
/// not say how much there is. That it is listed at all says that such caches hold much together.
pub(super) fn largest_slab(report: &Report) -> Option<&Slab> {
    let managed = report.managed().unwrap_or_default();
    let largest = report.slabs.iter().max_by_key(|slab| slab.total)?;
    (managed.0 == 0 || is_share(largest.total.0, managed.0, (1, 10))).then_some(largest)
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
        .filter_map(|task| {
            let swap = task.swap.map_or(0, |bytes| bytes.0);
            Some((task, Bytes(task.rss?.0.saturating_add(swap))))
        })
        .collect();
    held.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.pid.cmp(&other.0.pid)));
    held.truncate(count);
    held
}
