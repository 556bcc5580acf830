/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Accounts, and what an entry says of its own. */
#ifndef PLIMSOLL_LIMITS_ACCOUNT_H
#define PLIMSOLL_LIMITS_ACCOUNT_H

/* How often a compare-and-swap that others win is tried. */
#define SWAP_TRIES 8

/*
 * How often a count that others move is looked at again. Each try multiplies the paths that the verifier walks, in the
 * middle of every event: with 8 loading took three times as long.
 */
#define SETTLE_TRIES 4

static __always_inline void count_one(volatile __u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static __always_inline struct plimsoll_account *account_at(__u32 index)
{
	return bpf_map_lookup_elem(&accounts, &index);
}

/* Pages times weight stay below it: what comes after others is so many of these below them, which add up as bits do. */
#define TIER_SHIFT 60
#define TIER_RANKS (1LL << TIER_SHIFT)

/*
 * Who is not known as one of the largest may count more by now, without an event of its own: the next choice searches. Until
 * then those who grow come to be known by their events as ever: a search may have to wait, see find_largest().
 */
static __always_inline void search_anew(struct plimsoll_account *a)
{
	a->must_search = 1;
}

static __always_inline __u32 word_account(__u64 word)
{
	return word >> PLIMSOLL_WORD_SHIFT;
}

static __always_inline __s64 word_pages(__u64 word)
{
	return (__s64)(word & PLIMSOLL_WORD_MASK) - (__s64)PLIMSOLL_WORD_BIAS;
}

static __always_inline __s64 pages_of(struct plimsoll_mm *e)
{
	return word_pages(e->word) + e->shared_pages + e->inherited_pages;
}

/*
 * Pages that change from an entry's own to its inherited ones, or back, are for an instant in neither or in both. The low
 * half of `shifts` says how many such changes are under way, the high half how many there were.
 */
#define SHIFT_ENDED (1u << 16)

static __always_inline void begin_shift(struct plimsoll_mm *e)
{
	__sync_fetch_and_add(&e->shifts, 1);
}

static __always_inline void end_shift(struct plimsoll_mm *e)
{
	__sync_fetch_and_add(&e->shifts, SHIFT_ENDED - 1);
}

/* In 32 bits: with pages of 4 KiB 16 TiB. */
static __always_inline __u32 dying_most(__s64 pages)
{
	return pages < 0xffffffffLL ? pages : 0xffffffff;
}

/*
 * Of what is dying no more than this is left out of the usage: else each victim that is held (its owner can: a file system of
 * theirs, ptrace), or does not listen to SIGTERM, makes room for the next. A line's worth; and who was asked to end may take
 * a little more for it.
 */
static __always_inline __s64 dying_bound(struct plimsoll_account *a)
{
	return (__s64)a->dying_most + (a->signal == SIGTERM ? a->hard_pages >> PLIMSOLL_GRACE_SHIFT : 0);
}

/* Usage without what is dying, which a line is for. */
static __always_inline __s64 remaining(struct plimsoll_account *a, __s64 usage)
{
	__s64 dying = a->dying_pages, bound = dying_bound(a);

	return usage - (dying > bound ? bound : dying);
}

/*
 * Of that, what its processes have each for themselves. Only for this do the programs end one: who holds shared memory, and
 * whether it is still there, only user space knows.
 */
static __always_inline __s64 remaining_own(struct plimsoll_account *a, __s64 usage)
{
	return remaining(a, usage - a->ending_pages);
}

/* Whether an address space's process was sent SIGTERM for this account's line, or is a fork of one that was, and no more. */
static __always_inline bool was_asked(struct plimsoll_mm *e, struct plimsoll_account *a)
{
	return a->signal == SIGTERM && account_at(word_account(e->word)) == a &&
	       (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED | PLIMSOLL_MM_LEFT | PLIMSOLL_MM_GONE)) ==
		       PLIMSOLL_MM_DYING;
}

/* Adds to an account, and lets a lowered line follow usage down until it meets the line that was set. */
static __always_inline __s64 account_add(struct plimsoll_account *a, __s64 delta)
{
	__s64 usage = __sync_fetch_and_add(&a->usage_pages, delta) + delta;

	if (delta < 0) {
		__s64 effective = a->effective_pages, hard = a->hard_pages;

		if (effective != hard && usage < effective && effective != PLIMSOLL_NO_LINE)
			__sync_val_compare_and_swap(&a->effective_pages, effective, usage > hard ? usage : hard);
	}
	return usage;
}

#endif
