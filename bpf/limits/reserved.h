/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What is granted and not touched yet. It is part of its account's usage from the grant on, so that a grant is one
 * compare-and-swap of that; an entry's `reserved` says how much of it is whose, and of which account. Whoever takes pages
 * out of that word moves just these, so that each is given back or used once.
 */
#ifndef PLIMSOLL_LIMITS_RESERVED_H
#define PLIMSOLL_LIMITS_RESERVED_H

/*
 * The largest usage that was seen. Bounded: where every try was another CPU's, that one saw as much, all but a page or two.
 * A global function, so that its loop is verified once and not on each path that a charge can have taken.
 */
__noinline int raise_peak(__u32 account, __s64 usage)
{
	struct plimsoll_account *a = account_at(account);
	__s64 peak;
	int i;

	if (!a)
		return 0;
	for (i = 0; i < SWAP_TRIES; i++) {
		peak = a->peak_pages;
		if (usage <= peak || __sync_val_compare_and_swap(&a->peak_pages, peak, usage) == peak)
			return 0;
	}
	return 0;
}

/* Far from the line nobody asks for it, and events there touch one cache line of the account only. */
static __always_inline void note_peak(struct plimsoll_account *a, __s64 usage)
{
	if (usage >= a->soft_pages && usage > a->peak_pages)
		raise_peak(a->index, usage);
}

/* Gives back what is left of a reservation; returns how much that was. */
static __always_inline __s64 release_reserved(struct plimsoll_mm *e)
{
	struct plimsoll_account *a;
	__u64 reserved;
	__s64 pages;

	if (!(e->flags & PLIMSOLL_MM_RESERVED) && word_pages(e->reserved) <= 0)
		return 0;
	/* The flag first: a grant sets it last, so that pages without it are those of a grant that is being made. */
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_RESERVED);
	reserved = __sync_lock_test_and_set(&e->reserved, PLIMSOLL_WORD_BIAS);
	pages = word_pages(reserved);
	a = account_at(word_account(reserved));
	/* Less than none: another CPU is about to put back what it took too much, which is nobody's then. */
	if (pages <= 0 || !a)
		return 0;
	__sync_fetch_and_add(&a->reserved_pages, -pages);
	account_add(a, -pages);
	return pages;
}

/* A reservation follows its process's charge to another account. */
static __always_inline void move_reserved(struct plimsoll_mm *e, __u32 index)
{
	struct plimsoll_account *from, *to;
	__u64 reserved, moved;
	__s64 pages;
	int i;

	for (i = 0; i < SWAP_TRIES; i++) {
		reserved = e->reserved;
		pages = word_pages(reserved);
		if (pages <= 0 || word_account(reserved) == index)
			return;
		moved = (reserved & PLIMSOLL_WORD_MASK) | (__u64)index << PLIMSOLL_WORD_SHIFT;
		if (__sync_val_compare_and_swap(&e->reserved, reserved, moved) != reserved)
			continue;
		from = account_at(word_account(reserved));
		to = account_at(index);
		if (!from || !to)
			return;
		account_add(from, -pages);
		account_add(to, pages);
		__sync_fetch_and_add(&from->reserved_pages, -pages);
		__sync_fetch_and_add(&to->reserved_pages, pages);
		return;
	}
}

#endif
