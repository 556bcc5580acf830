/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which accounts are exact: they may be near their line, and each event of theirs is settled. */
#ifndef PLIMSOLL_LIMITS_EXACT_H
#define PLIMSOLL_LIMITS_EXACT_H

/* An account that is near, or exact, stays so for this long. */
#define DWELL_NS 1000000000ULL

/* How far an account may be from its usage while it is not exact. */
static __always_inline __s64 loose_pages(struct plimsoll_account *a)
{
	return a->processes * loose_pages_per_mm;
}

/* Since when something is so, in 2^20 ns: in 32 bits, and never 0. */
static __always_inline __u32 moment(void)
{
	return bpf_ktime_get_ns() >> 20 | 1;
}

/* Whether it was so for long enough: coming and going cost what all others wait for, a search, a record, a walk. */
static __always_inline bool has_lasted(__u32 since)
{
	return moment() - since >= DWELL_NS >> 20;
}

/* A number that no account was exact by before, and as good as moment(). */
static __always_inline __u32 new_epoch(void)
{
	__u32 now = moment(), last = next_epoch;

	/* Not where as many came within this moment, or a few more. */
	if (last - now >= 1u << 20 && __sync_val_compare_and_swap(&next_epoch, last, now) == last)
		return now;
	return __sync_fetch_and_add(&next_epoch, 2) + 2;
}

/* Nobody runs as a group. */
static __always_inline void count_exact(struct plimsoll_account *a, __u32 more)
{
	if (a->of != PLIMSOLL_OF_GROUP)
		__sync_fetch_and_add(&exact_gate[a->user % UID_GATE_SLOTS], more);
}

static __always_inline bool begin_exact(struct plimsoll_account *a)
{
	__u32 epoch = new_epoch();

	if (__sync_val_compare_and_swap(&a->exact, 0, epoch))
		return false;
	count_exact(a, 1);
	return true;
}

static long begin_below(struct bpf_map *map, __u32 *index, struct plimsoll_account *a, __u32 *above)
{
	if (is_above(a->above, *above))
		begin_exact(a);
	return 0;
}

/* From here on every event of the account is settled, and of those below it; false: it was so already. */
static __always_inline bool become_exact(struct plimsoll_account *a)
{
	__u32 index = a->index;

	if (!begin_exact(a))
		return false;
	if (a->of != PLIMSOLL_OF_USER || jobs_there)
		bpf_for_each_map_elem(&accounts, begin_below, &index, 0);
	return true;
}

static __always_inline void leave_exact(struct plimsoll_account *a)
{
	__u32 epoch = a->exact;

	if (epoch && __sync_val_compare_and_swap(&a->exact, epoch, 0) == epoch)
		count_exact(a, -1);
}

/* Whether one of these needs each event of those below it. Global: see search_anew_from(). */
__noinline int is_exact_above(__u64 above)
{
	struct plimsoll_account *a;
	bool exact = false;
	int i;

	for_each_above (a, above, i)
		exact |= a->exact != 0;
	return exact;
}

/*
 * Whether usage could be at the soft limit, all that is unsettled and all that may be copied counted: then every event is
 * settled. Leaves with slack, and after a while, so that usage hovering there does not flip it. Returns true when it became
 * exact.
 */
static __noinline bool need_exact(struct plimsoll_account *a)
{
	__s64 loose = loose_pages(a) + tree_bound(a), copyable = a->copyable_pages;
	__s64 room = a->soft_pages - a->usage_pages - loose - (copyable > 0 ? copyable : 0);
	__u32 epoch = a->exact;

	if (a->soft_pages == PLIMSOLL_NO_LINE)
		return false;
	if (!epoch && (room <= 0 || is_exact_above(a->above)))
		return become_exact(a);
	if (epoch && room > (a->soft_pages >> 6) + loose && has_lasted(epoch) && !is_exact_above(a->above))
		leave_exact(a);
	return false;
}

/*
 * Whether copy-on-write, which no event tells, could bring usage to the soft limit; once, until user space has
 * measured it.
 */
static __always_inline bool may_copy(struct plimsoll_account *a)
{
	__s64 copyable = a->copyable_pages;

	return copyable > 0 && !(a->told & PLIMSOLL_TOLD_COPIES) && a->soft_pages != PLIMSOLL_NO_LINE &&
	       a->usage_pages + tree_bound(a) + copyable >= a->soft_pages &&
	       !(__sync_fetch_and_or(&a->told, PLIMSOLL_TOLD_COPIES) & PLIMSOLL_TOLD_COPIES);
}

#endif
