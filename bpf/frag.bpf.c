// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Who asks for blocks of several pages, counted where the page allocator answers: by stack, order, gfp and name. And how long
 * they reclaimed or compacted memory for it.
 *
 * Attached while somebody records, and gone with them. A request for less costs one comparison.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "wire/frag.h"
#include "gfp.h"
#include "user.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* include/linux/mmzone.h */
#define MIGRATE_MOVABLE 1

/* Requests of a smaller order are nobody's business here. */
const volatile __u32 order_min = 2;

/* A pageblock has 2 to the power of this many pages. Who takes one whole spoils none (`fragmenting`, trace/events/kmem.h). */
const volatile __u32 pageblock_order = 9;

/* One user's sites: so many with the names of who asks, and so many in all. Root's are those of the kernel's threads, too. */
#define NAMED_MAX 128
#define SITES_MAX 256
#define ROOT_SITES_MAX 4096

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__uint(value_size, PLIMSOLL_FRAG_FRAMES * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct plimsoll_frag_site);
	__type(value, struct plimsoll_frag_counts);
} sites SEC(".maps");

/* How many sites each user has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLIMSOLL_FRAG_TOTALS);
	__type(key, __u32);
	__type(value, __u64);
} frag_totals SEC(".maps");

/* A thread in a request that has to reclaim or to compact. */
struct stall {
	__u64 since_ns; /* 0: not at the moment */
	__u64 total_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct stall);
} stalls SEC(".maps");

/* How many there are in `stalls`: while it is 0, no request looks there. */
static volatile __s64 stalled;

static __always_inline void count(__u32 which)
{
	__u64 *total = bpf_map_lookup_elem(&frag_totals, &which);

	if (total)
		(*total)++;
}

static __always_inline struct stall *own_stall(bool begin)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct stall *found = bpf_map_lookup_elem(&stalls, &thread), none = {};

	if (found || !begin)
		return found;
	if (bpf_map_update_elem(&stalls, &thread, &none, BPF_NOEXIST))
		return 0;
	__sync_fetch_and_add(&stalled, 1);
	return bpf_map_lookup_elem(&stalls, &thread);
}

static __always_inline void stall_begins(struct stall *stall)
{
	if (stall)
		stall->since_ns = bpf_ktime_get_ns();
}

static __always_inline void stall_ends(struct stall *stall)
{
	if (!stall || !stall->since_ns)
		return;
	stall->total_ns += bpf_ktime_get_ns() - stall->since_ns;
	stall->since_ns = 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int on_reclaim(void *ctx)
{
	stall_begins(own_stall(true));
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int on_reclaimed(void *ctx)
{
	stall_ends(own_stall(false));
	return 0;
}

/* Only on behalf of a request: neither kcompactd nor who writes to compact_memory comes here. */
SEC("tp_btf/mm_compaction_try_to_compact_pages")
int on_compact(void *ctx)
{
	own_stall(true);
	return 0;
}

/* Of one zone, by whomever. */
SEC("tp_btf/mm_compaction_begin")
int on_compaction(void *ctx)
{
	stall_begins(own_stall(false));
	return 0;
}

SEC("tp_btf/mm_compaction_end")
int on_compacted(void *ctx)
{
	stall_ends(own_stall(false));
	return 0;
}

SEC("tp_btf/mm_page_alloc_extfrag")
int BPF_PROG(on_stolen, void *page, int order, int from_order, int kind, int from_kind)
{
	count(PLIMSOLL_FRAG_STOLEN);
	if (kind != MIGRATE_MOVABLE && from_kind == MIGRATE_MOVABLE && (__u32)from_order < pageblock_order)
		count(PLIMSOLL_FRAG_POLLUTING);
	return 0;
}

/*
 * How long the request that ends here has stalled. What comes in between, an interrupt's and that of reclaim itself, leaves it
 * to the one that waits.
 */
static __always_inline __u64 take_stall(__u32 gfp)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct stall *stall;
	__u64 total;

	if (!stalled || !(gfp & __GFP_DIRECT_RECLAIM))
		return 0;
	stall = bpf_map_lookup_elem(&stalls, &thread);
	if (!stall || stall->since_ns)
		return 0;
	total = stall->total_ns;
	if (!bpf_map_delete_elem(&stalls, &thread))
		__sync_fetch_and_add(&stalled, -1);
	return total;
}

/* The counts of a site. A user's that are too many by name go without, and what is too much even so has none. */
static __always_inline struct plimsoll_frag_counts *counts_of(struct plimsoll_frag_site *site)
{
	struct plimsoll_frag_counts *counts = bpf_map_lookup_elem(&sites, site), none = {};
	__u32 *had, first = 0;

	if (counts)
		return counts;
	had = bpf_map_lookup_elem(&shares, &site->user);
	if (!had) {
		bpf_map_update_elem(&shares, &site->user, &first, BPF_NOEXIST);
		had = bpf_map_lookup_elem(&shares, &site->user);
		if (!had)
			return 0;
	}
	/* Root's are the kernel's own threads, each with a name of its own. */
	if (site->user && *had >= NAMED_MAX) {
		__builtin_memset(site->comm, 0, sizeof(site->comm));
		counts = bpf_map_lookup_elem(&sites, site);
		if (counts)
			return counts;
	}
	if (*had >= (site->user ? SITES_MAX : ROOT_SITES_MAX))
		return 0;
	if (!bpf_map_update_elem(&sites, site, &none, BPF_NOEXIST))
		__sync_fetch_and_add(had, 1);
	return bpf_map_lookup_elem(&sites, site);
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_request, void *page, unsigned int order, __u32 gfp, int kind)
{
	struct plimsoll_frag_site site = {};
	struct plimsoll_frag_counts *counts;
	struct task_struct *task;
	__u64 stall;

	if (order < order_min && !stalled)
		return 0;
	stall = take_stall(gfp);
	if (order < order_min)
		return 0;
	count(PLIMSOLL_FRAG_REQUESTS);
	task = bpf_get_current_task_btf();
	site.stack = bpf_get_stackid(ctx, &stacks, 0);
	/* Another one has its place: with fewer frames of this program's own it has another. */
	if (site.stack < 0)
		site.stack = bpf_get_stackid(ctx, &stacks, 1);
	if (site.stack < 0)
		site.stack = bpf_get_stackid(ctx, &stacks, 2);
	if (site.stack < 0)
		site.stack = -1;
	site.order = order;
	site.gfp = gfp;
	site.user = user_of_cred(BPF_CORE_READ(task, real_cred));
	bpf_get_current_comm(site.comm, sizeof(site.comm));
	counts = counts_of(&site);
	if (!counts) {
		count(PLIMSOLL_FRAG_UNKEPT);
		return 0;
	}
	__sync_fetch_and_add(&counts->requests, 1);
	if (!page)
		__sync_fetch_and_add(&counts->failures, 1);
	if (!stall)
		return 0;
	__sync_fetch_and_add(&counts->stalls, 1);
	__sync_fetch_and_add(&counts->stalled_ns, stall);
	/* Two CPUs at once may leave the shorter one. */
	if (stall > counts->longest_ns)
		counts->longest_ns = stall;
	return 0;
}
