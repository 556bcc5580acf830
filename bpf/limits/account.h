/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Accounts, and what an entry says of its own. */
#ifndef PLIMSOLL_LIMITS_ACCOUNT_H
#define PLIMSOLL_LIMITS_ACCOUNT_H

/* How often a compare-and-swap that others win is tried. */
#define SWAP_TRIES 8

/* How often a count that others move is looked at again. Each try multiplies the paths that the verifier walks. */
#define SETTLE_TRIES 4

static __always_inline void count_one(volatile __u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static __always_inline struct plimsoll_account *account_at(__u32 index)
{
	return bpf_map_lookup_elem(&accounts, &index);
}

/* One more, or one fewer, names an account: counted before it does, and until nothing of it is charged there any more. */
static __always_inline void count_name(__u32 account, __u32 change)
{
	struct plimsoll_account *a = account_at(account);

	if (a)
		__sync_fetch_and_add(&a->named, change);
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

/* Whose an account is, as `account_numbers` has it. */
static __always_inline __u64 key_of(__u32 of, __u32 id)
{
	return (__u64)of << 32 | id;
}

#define ABOVE_MASK ((1ULL << PLIMSOLL_ABOVE_BITS) - 1)
/* In each of the places of plimsoll_account.above a one. */
#define ABOVE_ONES (~0ULL / ABOVE_MASK)

static __always_inline __u32 above_at(__u64 above, int place)
{
	return above >> place * PLIMSOLL_ABOVE_BITS & ABOVE_MASK;
}

static __always_inline struct plimsoll_account *account_above(__u64 above, int place)
{
	__u32 index = above_at(above, place);

	return index ? account_at(index) : 0;
}

/* Each account above: what follows is done for it, as `a`. */
#define for_each_above(a, above, i)                          \
	for (i = 0; (above) && i < PLIMSOLL_ABOVE_MOST; i++) \
		if (!(a = account_above(above, i))) {        \
		} else

static __always_inline void search_anew_in(struct plimsoll_account *a, bool at_once)
{
	search_anew(a);
	if (at_once)
		a->nobody_until_ns = 0;
}

/* Not 0 if a number is in one of the places: is there a 0 where it is taken from each? */
static __always_inline __u64 find_place(__u64 above, __u32 account)
{
	__u64 rest = above ^ account * ABOVE_ONES;

	return (rest - ABOVE_ONES) & ~rest & ABOVE_ONES << (PLIMSOLL_ABOVE_BITS - 1);
}

/* Whether an account is among those above another. */
static __always_inline bool is_above(__u64 above, __u32 account)
{
	return account && find_place(above, account);
}

/* Those of the one word that are not in the other. Without a branch: each would double the paths that the verifier walks. */
static __always_inline __u64 without(__u64 above, __u64 others)
{
	__u64 found, less;
	int i;

	for (i = 0; i < PLIMSOLL_ABOVE_MOST; i++) {
		found = find_place(others, above_at(above, i));
		less = -found;
		/* Or the compiler asks whether it is 0. */
		barrier_var(less);
		above &= ~(ABOVE_MASK << i * PLIMSOLL_ABOVE_BITS & -((found | less) >> 63));
	}
	return above;
}

/*
 * As search_anew(), in an account and those above it; `at_once`: without the rest after a search in vain. What walks the
 * accounts above one is global, here and below: it is verified once, not on each path that comes to it.
 */
__noinline int search_anew_from(__u32 account, __u32 at_once)
{
	struct plimsoll_account *a = account == PLIMSOLL_NOBODY ? 0 : account_at(account);
	__u64 above = a ? a->above : 0;
	int i;

	if (a)
		search_anew_in(a, at_once);
	for_each_above (a, above, i)
		search_anew_in(a, at_once);
	return 0;
}

/* Whether what is charged to one account is charged to the other: that one, or one above it. */
__noinline int is_charged(__u32 leaf, __u32 account)
{
	struct plimsoll_account *a = account_at(leaf);

	return leaf == account || (a && is_above(a->above, account));
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
	return a->signal == SIGTERM && e->claimed == a->index && is_charged(word_account(e->word), a->index) &&
	       (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED | PLIMSOLL_MM_LEFT | PLIMSOLL_MM_GONE)) ==
		       PLIMSOLL_MM_DYING;
}

/* A lowered line follows usage down until it meets the line that was set. */
static __always_inline void let_line_fall(struct plimsoll_account *a, __s64 usage)
{
	__s64 effective = a->effective_pages, hard = a->hard_pages;

	if (effective != hard && usage < effective && effective != PLIMSOLL_NO_LINE)
		__sync_val_compare_and_swap(&a->effective_pages, effective, usage > hard ? usage : hard);
}

/* Which of an account's counts, by its place there: those that those above it have as well. */
#define COUNT(name) offsetof(struct plimsoll_account, name)
enum count {
	USAGE = COUNT(usage_pages),
	DYING = COUNT(dying_pages),
	PROCESSES = COUNT(processes),
	COPYABLE = COUNT(copyable_pages),
	RESERVED = COUNT(reserved_pages),
	ENDING = COUNT(ending_pages),
	LASTING = COUNT(lasting_pages),
};

/* Where it is not known which, bounded and at a whole word, for the verifier. */
static __always_inline volatile __s64 *count_of(struct plimsoll_account *a, __u32 count)
{
	if (__builtin_constant_p(count))
		return (volatile __s64 *)((void *)a + count);
	count &= ~7u;
	if (count > sizeof(*a) - sizeof(__s64))
		count = USAGE;
	/* Keeps the compiler from forming the address before the check. */
	barrier_var(count);
	return (volatile __s64 *)((void *)a + count);
}

static __always_inline __s64 add_one(struct plimsoll_account *a, __u32 count, __s64 pages)
{
	__s64 now = __sync_fetch_and_add(count_of(a, count), pages) + pages;

	if (count == USAGE && pages < 0)
		let_line_fall(a, now);
	return now;
}

__noinline int add_above(__u64 above, __u32 count, __s64 pages)
{
	struct plimsoll_account *a;
	int i;

	for_each_above (a, above, i)
		add_one(a, count, pages);
	return 0;
}

/* To an account and to those above it. Returns what the account itself has then. */
static __always_inline __s64 add_to_all(struct plimsoll_account *a, enum count count, __s64 pages)
{
	__s64 now = add_one(a, count, pages);
	__u64 above = a->above;

	if (above)
		add_above(above, count, pages);
	return now;
}

/* All at once, past the tree: what forks, ends, moves. The next event of the account sees what room that leaves. */
static __always_inline __s64 account_add(struct plimsoll_account *a, __s64 pages)
{
	return add_to_all(a, USAGE, pages);
}

/* Of the accounts above one those that are not charged for the other, in places of a word as `above` has them. */
__noinline __u64 above_alone(__u32 account, __u32 other)
{
	struct plimsoll_account *a = account_at(other);
	__u64 others = a ? a->above : 0;

	a = account_at(account);
	return a ? without(without(a->above, others), other) : 0;
}

/* So many pages to those that are charged for one account and not for the other. */
__noinline int add_beside(__u32 account, __u32 other, __u32 count, __s64 pages)
{
	struct plimsoll_account *a = is_charged(other, account) ? 0 : account_at(account);
	__u64 above = above_alone(account, other);

	if (a)
		add_one(a, count, pages);
	if (above)
		add_above(above, count, pages);
	return 0;
}

/*
 * Usage of `from` is so much less, and that of `to` so much more. Whoever is charged for both sees that in one step: in
 * between usage would be less than it is, which a line that falls follows, or more, which somebody would go for.
 */
static __always_inline void shift(__u32 from, __s64 less, __u32 to, __s64 more)
{
	struct plimsoll_account *a = account_at(to);

	if (a && is_charged(from, to))
		add_one(a, USAGE, more - less);
	if (a && a->above)
		add_above(without(a->above, above_alone(to, from)), USAGE, more - less);
	add_beside(to, from, USAGE, more);
	add_beside(from, to, USAGE, -less);
}

/* So that who calls it needs less of the stack. */
__noinline int shift_usage(__u32 from, __s64 less, __u32 to, __s64 more)
{
	shift(from, less, to, more);
	return 0;
}

#include "tree.h"

#endif
