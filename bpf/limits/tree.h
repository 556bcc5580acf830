/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * An account's usage, charged by hundreds of CPUs: a tree of counters, as policy's counter.rs has it. Far from its soft
 * limit a CPU keeps what it charges in a leaf of its own, until that comes to a batch. Then it goes on to a branch, of
 * FAN_OUT CPUs; from there, once that comes to BRANCH_BATCHES of them, to usage_pages.
 *
 * What leaves and branches keep is at most batch * tree_width(): the bound. The batch goes by the room below the soft
 * limit, so that the bound is never more than a part in NARROW_BELOW of it. Nearer than MIN_BATCH allows, all is charged to
 * usage_pages at once; so it is as soon as usage is near, and while somebody needs to know it. A batch that becomes smaller
 * takes along what lies in the tree: whoever comes late adds to its leaf, and then reads the batch, so that it sees the new
 * one, or is seen.
 */
#ifndef PLIMSOLL_LIMITS_TREE_H
#define PLIMSOLL_LIMITS_TREE_H

#define FAN_OUT 16
#define BRANCH_BATCHES 4
#define MIN_BATCH 8
/* Of each CPU's charges one in so many is written where all CPUs write, whatever their number... */
#define BATCH_PER_CPU 8
/* ...up to here: with the branches' own less than one in 1,000. */
#define MAX_BATCH 1280

/*
 * How often the bound fits into the room: less often, and it is made smaller; as chosen; more often, and
 * larger, in halves.
 */
#define NARROW_BELOW 4
#define ROOM_PER_BOUND 5
#define WIDEN_FROM_HALVES 11

static __always_inline __u32 tree_branches(void)
{
	return nr_cpus > FAN_OUT ? (nr_cpus + FAN_OUT - 1) / FAN_OUT : 0;
}

static __always_inline __s64 tree_width(void)
{
	return nr_cpus + BRANCH_BATCHES * tree_branches();
}

static __always_inline __u32 max_batch(void)
{
	__u32 most = nr_cpus * BATCH_PER_CPU;

	if (most < MIN_BATCH)
		return MIN_BATCH;
	return most > MAX_BATCH ? MAX_BATCH : most;
}

/* How far usage_pages may be from usage, either way. */
static __always_inline __s64 tree_bound(struct plimsoll_account *a)
{
	return a->batch * tree_width();
}

/* One CPU's nodes lie together: leaves by CPU, and branches after them. */
static __always_inline volatile __s64 *tree_node(__u32 account, __u32 node)
{
	__u32 key = node * nr_accounts + account;

	return bpf_map_lookup_elem(&tree, &key);
}

/* The batch for so much room below the soft limit; 0: none. */
static __always_inline __u32 batch_for(struct plimsoll_account *a, __s64 room)
{
	__s64 width = tree_width();
	__u64 batch;

	if (a->direct || a->near || a->soft_pages == PLIMSOLL_NO_LINE || room < MIN_BATCH * ROOM_PER_BOUND * width)
		return 0;
	batch = (__u64)room / (ROOM_PER_BOUND * (__u32)width);
	return batch > max_batch() ? max_batch() : batch;
}

/* One by one: who is stopped in the middle of this holds back no more than one of them. */
static long collect_node(__u32 node, __u32 *account)
{
	struct plimsoll_account *a = account_at(*account);
	volatile __s64 *kept = tree_node(*account, node);

	if (a && kept && *kept)
		add_one(a, USAGE, __sync_lock_test_and_set(kept, 0));
	return 0;
}

/*
 * The batch becomes what the room allows that is left after all that lies in the tree came to usage_pages, if
 * that is smaller.
 */
__noinline int narrow_batch(struct plimsoll_account *a)
{
	__u32 before, batch;
	int i;

	for (i = 0; a && i < SETTLE_TRIES; i++) {
		before = a->batch;
		batch = batch_for(a, a->soft_pages - a->usage_pages - before * tree_width());
		/* Another CPU's choice may be older than what was charged here. */
		if (batch >= before || __sync_val_compare_and_swap(&a->batch, before, batch) == before)
			break;
	}
	return 0;
}

static __always_inline bool is_too_near(struct plimsoll_account *a)
{
	return a->batch && a->soft_pages - a->usage_pages < NARROW_BELOW * tree_bound(a);
}

/*
 * All that lies in the tree comes to usage_pages. O(CPUs): once while the room becomes smaller by a fifth. Twice, where the
 * batch became larger while it was on its way, by who did not see it. Global, as is spread(): it is verified once, not
 * where each page is charged.
 */
__noinline int collect_usage(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	int i;

	for (i = 0; a && i < 2; i++) {
		narrow_batch(a);
		bpf_loop(nr_cpus + tree_branches(), collect_node, &account, 0);
		if (!is_too_near(a))
			break;
	}
	return 0;
}

/* Usage for a decision: all of it, where what was charged past the tree leaves too little room for what lies there. */
static __always_inline __s64 known_usage(struct plimsoll_account *a)
{
	if (is_too_near(a))
		collect_usage(a->index);
	return a->usage_pages;
}

/* From here on all is charged to usage_pages at once, until as many let_usage_spread(). It has all now. */
static __always_inline void charge_at_once(struct plimsoll_account *a)
{
	__sync_fetch_and_add(&a->direct, 1);
	__sync_lock_test_and_set(&a->batch, 0);
	collect_usage(a->index);
}

static __always_inline void let_usage_spread(struct plimsoll_account *a)
{
	__sync_fetch_and_add(&a->direct, -1);
}

/* The batch for usage as it is known. Returns what is known then. */
static __always_inline __s64 fit_batch(struct plimsoll_account *a)
{
	__s64 usage = a->usage_pages, room = a->soft_pages - usage;
	__u32 before = a->batch, batch;

	if (is_too_near(a)) {
		collect_usage(a->index);
		return a->usage_pages;
	}
	if (2 * room < WIDEN_FROM_HALVES * before * tree_width() || before == max_batch())
		return usage;
	batch = batch_for(a, room);
	if (batch <= before || __sync_val_compare_and_swap(&a->batch, before, batch) != before)
		return usage;
	/*
	 * Who came in between has collected what was there before, and found no batch that was too large for what it
	 * charged.
	 */
	if (a->direct || a->near || is_too_near(a))
		collect_usage(a->index);
	return usage;
}

/* A node keeps these pages as well. Returns what goes on from there: all, once it comes to so many batches. */
static __always_inline __s64 keep(struct plimsoll_account *a, __u32 node, __s64 pages, __u32 batches)
{
	volatile __s64 *kept = tree_node(a->index, node);
	__s64 now, most;

	if (!kept)
		return pages;
	now = __sync_fetch_and_add(kept, pages) + pages;
	/* After that: see above. */
	most = a->direct ? 0 : (__s64)a->batch * batches;
	return now < most && now > -most ? 0 : (__s64)__sync_lock_test_and_set(kept, 0);
}

/* Returns usage as far as it is known: all of it, where it could be near. Global: see collect_usage(). */
__noinline __s64 spread(__u32 account, __s64 pages)
{
	struct plimsoll_account *a = account_at(account);
	__u32 cpu = bpf_get_smp_processor_id();

	if (!a)
		return 0;
	if (a->batch && !a->direct)
		pages = keep(a, cpu, pages, 1);
	if (pages && a->batch && !a->direct && tree_branches())
		pages = keep(a, nr_cpus + cpu / FAN_OUT, pages, BRANCH_BATCHES);
	if (pages)
		add_one(a, USAGE, pages);
	return fit_batch(a);
}

__noinline int spread_above(__u64 above, __s64 pages)
{
	struct plimsoll_account *a;
	int i;

	for_each_above (a, above, i)
		spread(a->index, pages);
	return 0;
}

/* As account_add(), of an event. */
static __always_inline __s64 spread_to_all(struct plimsoll_account *a, __s64 pages)
{
	__s64 usage = spread(a->index, pages);
	__u64 above = a->above;

	if (above)
		spread_above(above, pages);
	return usage;
}

#endif
