// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Tells the machine guard when to look at memory, so that it needs no timer: as soon as a CPU works after the moment that it
 * asked for, and as soon as pages are taken back. While all CPUs idle nobody can use memory up, and nobody is woken.
 *
 * A CPU that works takes ticks, each of which expires a timer; one that idles takes none (NOHZ_IDLE). Whoever sees to it that
 * they never run at a tick is seen when pages are taken back.
 *
 * Attached by the daemon while it guards the machine, and gone with it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "wire/pressure.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_looks);
} looks SEC(".maps");

/* When it was told. A full one can be read all the same. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} told SEC(".maps");

static __always_inline void tell(__u64 *due)
{
	__u64 when = *(volatile __u64 *)due, now;

	if (!when)
		return;
	now = bpf_ktime_get_ns();
	if (now < when)
		return;
	if (__sync_val_compare_and_swap(due, when, 0) != when)
		return;
	bpf_ringbuf_output(&told, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct plimsoll_looks *wanted(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&looks, &key);
}

/* After the lock of the timers was let go of (__run_hrtimer, kernel/time/hrtimer.c, 6.1 to 7.2). */
SEC("tp_btf/hrtimer_expire_entry")
int on_tick(void *ctx)
{
	struct plimsoll_looks *look;

	/* The timer of somebody who sleeps, on a CPU that does. */
	if (!bpf_get_current_pid_tgid())
		return 0;
	look = wanted();
	if (look)
		tell(&look->due_ns);
	return 0;
}

static __always_inline int on_reclaim(void)
{
	struct plimsoll_looks *look = wanted();

	if (look)
		tell(&look->pressed_ns);
	return 0;
}

SEC("tp_btf/mm_vmscan_wakeup_kswapd")
int on_wakeup_kswapd(void *ctx)
{
	return on_reclaim();
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_direct_reclaim(void *ctx)
{
	return on_reclaim();
}
