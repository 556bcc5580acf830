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
#include "wire/pressure.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_LOOKS);
	__type(key, __u32);
	__type(value, __u64);
} looks SEC(".maps");

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
	return 0;
}

SEC("tp_btf/mm_vmscan_wakeup_kswapd")
int on_wakeup_kswapd(void *ctx)
{
	tell(PLIMSOLL_LOOK_RECLAIM);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_reclaim(void *ctx)
{
	tell(PLIMSOLL_LOOK_RECLAIM);
	return 0;
}
