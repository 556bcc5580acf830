/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What is granted and not touched yet. It is part of its account's usage from the grant on, so that a grant is one
 * compare-and-swap of that; an entry's `reserved` says how much of it is whose, and of which account. Whoever takes pages
 * out of that word moves just these, so that each is given back or used once.
 */
#ifndef PLIMSOLL_LIMITS_RESERVED_H
#define PLIMSOLL_LIMITS_RESERVED_H

/*
 * Functions that are not static are each verified once, not once per caller and path. Whoever calls them with an entry, or its
 * key, has it pinned, or runs in it.
 */

/* Each try that fails is another thread's page that went through. */
#define PASS_TRIES 1000

/* Never down. Bounded: where every try was another CPU's, those had more and more. */
__noinline int raise_to(volatile __s64 *number, __s64 least)
{
	__s64 now;
	int i;

	for (i = 0; number && i < SWAP_TRIES; i++) {
		now = *number;
		if (least <= now || __sync_val_compare_and_swap(number, now, least) == now)
			return 0;
	}
	return 0;
}

/* Far from the line nobody asks for it, and events there touch one cache line of the account only. */
static __always_inline void note_peak(struct plimsoll_account *a, __s64 usage)
{
	if (usage >= a->soft_pages && usage > a->peak_pages)
		raise_to(&a->peak_pages, usage);
}

/* Not below 0: what is told as given back is the process's word. */
static __always_inline void lower_granted(struct plimsoll_mm *e, __s64 pages)
{
	__s64 granted = e->granted_pages;

	if (pages > granted)
		pages = granted;
	if (pages <= 0)
		return;
	granted = __sync_fetch_and_add(&e->granted_pages, -pages) - pages;
	/* Another lowered it meanwhile. */
	if (granted < 0)
		__sync_val_compare_and_swap(&e->granted_pages, granted, 0);
}

/*
 * Who frees what it was granted holds it no more, whether it says so or not: no more is held by grants than there is, and is
 * still to come, and the allowance. What this took is not taken once more when the process does say so.
 */
static __always_inline void cap_granted(struct plimsoll_mm *e, struct plimsoll_account *a)
{
	__u32 shifts = e->shifts;
	__s64 granted = e->granted_pages, reserved = word_pages(e->reserved), limit;

	limit = pages_of(e) + (reserved > 0 ? reserved : 0) + allowance_pages;
	/* Far from the line some of what it has is not settled. */
	if (!a->exact || e->epoch != a->exact)
		limit += loose_pages_per_mm;
	if (limit < 0)
		limit = 0;
	barrier();
	/* In the middle of a shift its pages may have seemed fewer. The next one that it frees is a new occasion. */
	if (granted <= limit || shifts & (SHIFT_ENDED - 1) || e->shifts != shifts)
		return;
	if ((__s64)__sync_val_compare_and_swap(&e->granted_pages, granted, limit) == granted)
		__sync_fetch_and_add(&e->untold_pages, granted - limit);
}

/*
 * Gives back what is left of a reservation; returns how much that was. What of it was never touched was no grant then: who
 * asks, does not touch and takes pages without asking is like everybody else.
 */
__noinline __s64 release_reserved(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__s64 pages, untouched;
	__u64 reserved;

	if (!e || (!(e->flags & PLIMSOLL_MM_RESERVED) && word_pages(e->reserved) <= 0))
		return 0;
	/* The flag first: a grant sets it last, so that pages without it are those of a grant that is being made. */
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_RESERVED);
	/* A grant adds to these after it has added to `reserved`: never less is open than is reserved. */
	__sync_lock_test_and_set(&e->open_pages, 0);
	untouched = __sync_lock_test_and_set(&e->untouched_pages, 0);
	reserved = __sync_lock_test_and_set(&e->reserved, PLIMSOLL_WORD_BIAS);
	pages = word_pages(reserved);
	a = account_at(word_account(reserved));
	if (pages <= 0 || !a)
		return 0;
	add_to_all(a, RESERVED, -pages);
	account_add(a, -pages);
	if (untouched > 0)
		lower_granted(e, untouched < pages ? untouched : pages);
	return pages;
}

/* Pages on their way between what is reserved for an address space and what it uses: > 0 to be used, < 0 back. */
struct passage {
	struct plimsoll_mm *e;
	__s64 delta;
	__s64 moved;
	__u32 account;
};

static long pass_once(__u32 attempt, struct passage *passage)
{
	struct plimsoll_mm *e = passage->e;
	__u64 reserved = e->reserved;
	__s64 held = word_pages(reserved), room = e->open_pages - held, moved = passage->delta;

	/* On its way to another account, or released: then nothing is open, and what is put there would be nobody's. */
	if (word_account(reserved) != passage->account)
		return 1;
	if (moved > held)
		moved = held;
	if (moved < 0 && -moved > room)
		moved = room > 0 ? -room : 0;
	if (moved && __sync_val_compare_and_swap(&e->reserved, reserved, reserved - moved) != reserved)
		return 0;
	passage->moved = moved;
	return 1;
}

/*
 * A change of an address space to which something was granted: how much of it the account's usage does not see. Up to `delta`
 * pages of the reservation become used; pages that were freed become reserved again, as far as they may have come from
 * there: another thread may have used up what this process was granted and is about to touch. Only while its account holds
 * the reservation too: in the middle of a move to another one pages are charged, and what is left of the reservation goes
 * back when it is settled.
 */
__noinline __s64 move_granted(__u64 key, __u32 account, __s64 delta)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a = account_at(account);
	struct passage passage = { .e = e, .delta = delta, .account = account };

	if (!e || !a)
		return 0;
	if (e->flags & PLIMSOLL_MM_RESERVED && account != PLIMSOLL_NOBODY) {
		if (delta > 0)
			__sync_fetch_and_add(&e->untouched_pages, -delta);
		bpf_loop(PASS_TRIES, pass_once, &passage, 0);
		add_to_all(a, RESERVED, -passage.moved);
	}
	if (delta < 0)
		cap_granted(e, a);
	return passage.moved;
}

/* A reservation follows its process's charge to another account. */
__noinline int move_reserved(__u64 key, __u32 index)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__u64 reserved, moved;
	__s64 pages;
	int i;

	for (i = 0; e && i < SWAP_TRIES; i++) {
		reserved = e->reserved;
		pages = word_pages(reserved);
		if (pages <= 0 || word_account(reserved) == index || !account_at(index))
			return 0;
		moved = (reserved & PLIMSOLL_WORD_MASK) | (__u64)index << PLIMSOLL_WORD_SHIFT;
		if (__sync_val_compare_and_swap(&e->reserved, reserved, moved) != reserved)
			continue;
		if (!account_at(word_account(reserved)))
			return 0;
		shift_usage(word_account(reserved), pages, index, pages);
		add_beside(index, word_account(reserved), RESERVED, pages);
		add_beside(word_account(reserved), index, RESERVED, -pages);
		return 0;
	}
	return 0;
}

#endif
