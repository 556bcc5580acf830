// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Tells the daemon when to look at memory, so that it needs no timer: as soon as a CPU works after the moment that it asked
 * for, and as soon as pages are taken back. While all CPUs idle nobody can use memory up, and nobody is woken.
 *
 * A CPU that works takes ticks, each of which expires a timer; one that idles takes none (NOHZ_IDLE). Whoever sees to it that
 * they never run at a tick is seen when pages are taken back.
 *
 * Attached by the daemon, and gone with it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "wire/pressure.h"
#include "gfp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_LOOKS);
	__type(key, __u32);
	__type(value, __u64);
} looks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_missed);
} missed SEC(".maps");

/* What was told. A full one can be read all the same. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} told SEC(".maps");

static __always_inline void tell(__u32 look)
{
	__u64 *due = bpf_map_lookup_elem(&looks, &look);
	struct plimsoll_look record = { .look = look };
	__u64 when;

	if (!due)
		return;
	when = *(volatile __u64 *)due;
	if (!when)
		return;
	record.at_ns = bpf_ktime_get_ns();
	if (record.at_ns < when)
		return;
	if (__sync_val_compare_and_swap(due, when, 0) != when)
		return;
	bpf_ringbuf_output(&told, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
}

/* After the lock of the timers was let go of (__run_hrtimer, kernel/time/hrtimer.c, 6.1 to 7.2). */
SEC("tp_btf/hrtimer_expire_entry")
int on_tick(void *ctx)
{
	/* The timer of somebody who sleeps, on a CPU that does. */
	if (!bpf_get_current_pid_tgid())
		return 0;
	tell(PLIMSOLL_LOOK_MEMORY);
	tell(PLIMSOLL_LOOK_USAGE);
	tell(PLIMSOLL_LOOK_SHARED);
	tell(PLIMSOLL_LOOK_BLOCKS);
	tell(PLIMSOLL_LOOK_LINES);
	return 0;
}

/*
 * Whoever has smaller blocks instead says so: by one try, or by neither waiting nor warning (policy's frag.rs). So has nearly
 * everybody who asks for what can be moved, pages of programs and of files: khugepaged would have all of memory compacted for
 * huge pages. Who has not, the cache of file systems with blocks larger than a page, compacts on its own.
 */
static __always_inline void miss(__u32 order, __u32 gfp)
{
	struct plimsoll_missed *counts;
	__u32 only = 0;

	if (gfp & __GFP_MOVABLE)
		return;
	if (!(gfp & __GFP_NOFAIL) && (gfp & __GFP_NORETRY || (!(gfp & __GFP_DIRECT_RECLAIM) && gfp & __GFP_NOWARN)))
		return;
	counts = bpf_map_lookup_elem(&missed, &only);
	if (!counts)
		return;
	/* No kernel has larger ones. */
	__sync_fetch_and_add(&counts->by_order[order & (PLIMSOLL_ORDERS - 1)], 1);
	tell(PLIMSOLL_LOOK_MISSED);
}

/* No zone that the request may use has a block of its order to spare, or as much memory as is kept free, and kswapd sleeps. */
SEC("tp_btf/mm_vmscan_wakeup_kswapd")
int BPF_PROG(on_wakeup_kswapd, int node, int zone, int order, __u32 gfp)
{
	tell(PLIMSOLL_LOOK_RECLAIM);
	if (order > 0)
		miss(order, gfp);
	return 0;
}

/*
 * A request finds no block, and compacts memory itself: kswapd need not have been woken for it, as where it is given up on
 * since it finds nothing to take back (wakeup_kswapd, mm/vmscan.c, 6.1 to 7.2). Each try counts.
 */
SEC("tp_btf/mm_compaction_try_to_compact_pages")
int BPF_PROG(on_try_to_compact, int order, __u32 gfp)
{
	miss(order, gfp);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_reclaim(void *ctx)
{
	tell(PLIMSOLL_LOOK_RECLAIM);
	return 0;
}
