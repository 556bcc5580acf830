/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What address spaces share since a fork: a family is charged for it once. Functions that are not static are each verified
 * once, as in reserved.h: they take an entry by its key, which is pinned, or the process's own.
 */
#ifndef PLIMSOLL_LIMITS_FAMILY_H
#define PLIMSOLL_LIMITS_FAMILY_H

/* Each try that fails is another CPU's change of the same entry. */
#define LIVING_TRIES 3

/* Of its family's copies, what goes with a member. */
static __always_inline __s64 copies_of(struct plimsoll_mm *e)
{
	__s64 copied = e->copied_pages;
	struct plimsoll_family *f;
	__u64 id;

	if (!copied)
		return 0;
	id = e->family;
	f = bpf_map_lookup_elem(&families, &id);
	if (!f)
		return 0;
	return f->copied_pages < copied ? f->copied_pages : copied;
}

static __always_inline __u64 dying_word(struct plimsoll_mm *e)
{
	__u32 flags = e->flags;

	if (!(flags & PLIMSOLL_MM_DYING) || flags & PLIMSOLL_MM_GONE)
		return PLIMSOLL_WORD_BIAS;
	return e->word + copies_of(e);
}

/*
 * What an address space adds to its account's dying pages: its own, and of its family's copies those that go with it, from
 * the moment on in which somebody claims it as a victim. Whoever changes what that depends on looks again after the
 * exchange; in one word with whose it is, as `word` has them. The entry is pinned, or the process's own.
 */
__noinline int settle_dying_space(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *from, *to;
	__u64 dying, before;
	int i;

	for (i = 0; e && i < SETTLE_TRIES; i++) {
		dying = dying_word(e);
		before = e->dying;
		if (dying == before)
			return 0;
		before = __sync_lock_test_and_set(&e->dying, dying);
		from = account_at(word_account(before));
		to = account_at(word_account(dying));
		/* In one step where both are the same; else it is dying in both for a moment: nobody else is taken. */
		if (to)
			add_to_all(to, DYING, word_pages(dying) - (from == to ? word_pages(before) : 0));
		if (from && from != to)
			add_to_all(from, DYING, -word_pages(before));
	}
	return 0;
}

/*
 * What a family shares goes with its last member: it is dying while none of them lives. Whoever changes its charge or
 * its living looks again after the exchange, so that the last to look has seen both.
 */
static __always_inline void settle_dying_family(struct plimsoll_family *f, struct plimsoll_account *a)
{
	__s64 dying;
	int i;

	for (i = 0; i < SETTLE_TRIES; i++) {
		dying = f->living ? 0 : f->pages;
		if (dying == f->dying_pages)
			return;
		add_to_all(a, DYING, dying - (__s64)__sync_lock_test_and_set(&f->dying_pages, dying));
	}
}

/* What copy-on-write could still add follows each change of a family's shares and of its charge, copies among it. */
static __always_inline void family_moved(struct plimsoll_account *a, __s64 shares, __s64 charged)
{
	add_to_all(a, COPYABLE, shares - charged);
}

/* Takes what a family is charged, and what it could have copied, from its account. Its last member does. */
static __always_inline void end_family(struct plimsoll_family *f, struct plimsoll_account *a)
{
	__s64 charged = __sync_lock_test_and_set(&f->pages, 0), shares = __sync_lock_test_and_set(&f->shares, 0);

	charged += __sync_lock_test_and_set(&f->copied_pages, 0);
	family_moved(a, -shares, -charged);
	account_add(a, -charged);
	add_to_all(a, DYING, -(__s64)__sync_lock_test_and_set(&f->dying_pages, 0));
}

/* Where it still names this account, it names nobody's from here on: before its memory is another family's. */
static __always_inline void orphan(struct plimsoll_family *f, __u32 account)
{
	if (__sync_val_compare_and_swap(&f->account, account, PLIMSOLL_NOBODY) == account)
		count_name(account, -1);
}

/* Takes away a family that nobody is a member of any more. */
static __always_inline void drop_family(struct plimsoll_family *f, __u64 id)
{
	__u32 account = f->account;
	struct plimsoll_account *a = account_at(account);

	if (a)
		end_family(f, a);
	orphan(f, account);
	if (bpf_map_delete_elem(&families, &id))
		count_one(&counters.deletes_failed);
}

/* One member fewer; the last one takes the family's charge with it. */
static __always_inline void leave_one(struct plimsoll_family *f, __u64 id)
{
	if ((__u32)__sync_fetch_and_add(&f->members, -1) == 1)
		drop_family(f, id);
}

/* In plimsoll_family.members: a member, or who needs the family to stay what it is; and a child, by a fork. */
#define ONE_MEMBER 1ULL
#define ONE_CHILD (1ULL << 32 | ONE_MEMBER)

/* One more member of a family that has not ended: that family. */
static __always_inline struct plimsoll_family *join_one(__u64 id, __u64 one)
{
	struct plimsoll_family *f = bpf_map_lookup_elem(&families, &id);
	__u64 members;
	int i;

	for (i = 0; f && i < SWAP_TRIES; i++) {
		members = f->members;
		if (!(__u32)members)
			return 0;
		if (__sync_val_compare_and_swap(&f->members, members, members + one) != members)
			continue;
		if (f->id == id)
			return f;
		/* It ended since it was found, and the memory is another family's. */
		leave_one(f, f->id);
		return 0;
	}
	return 0;
}

/* There are no more copies than shares beyond the charge: what was copied and then freed is charged no longer. */
static __always_inline __s64 cap_copies(struct plimsoll_family *f)
{
	__s64 copied = f->copied_pages, room = f->shares - f->pages;

	if (room < 0)
		room = 0;
	if (copied <= room || (__s64)__sync_val_compare_and_swap(&f->copied_pages, copied, room) != copied)
		return 0;
	return copied - room;
}

/* Takes from a family's charge what none of its members can have any more, and tells how much that was. */
static __always_inline __s64 take_shares(struct plimsoll_family *f, struct plimsoll_account *a, __s64 pages)
{
	__s64 over = pages - __sync_fetch_and_add(&f->shares, -pages), charged, copies;

	copies = cap_copies(f);
	family_moved(a, -pages, -copies);
	charged = f->pages;
	over += charged;
	if (over > charged)
		over = charged;
	/* A fork that moves pages in meanwhile keeps its own; the next to give up sees to the rest. */
	if (over <= 0 || (__s64)__sync_val_compare_and_swap(&f->pages, charged, charged - over) != charged)
		return copies;
	family_moved(a, 0, -over);
	settle_dying_family(f, a);
	return copies + over;
}

/*
 * Members of a family gave up pages of it. Which ones no event tells, and others may still have them, so the family
 * stays charged as long as all that its members have could be them: a parent that allocates, forks and frees again
 * and again would else be charged more each time. `kept` of them are a member's own from here on, and charged to
 * `account`. Returns how much less the family is charged.
 */
__noinline __s64 give_up_shares(__u64 id, __s64 pages, __u32 account, __s64 kept)
{
	__u32 from = PLIMSOLL_NOBODY;
	struct plimsoll_family *f = join_one(id, ONE_MEMBER);
	struct plimsoll_account *a;
	__s64 taken = 0;

	if (f) {
		from = f->account;
		a = account_at(from);
		if (a)
			taken = take_shares(f, a, pages);
	}
	shift(from, taken, account, kept);
	if (f)
		leave_one(f, id);
	return taken;
}

/* Its copies go with a member: at most those that it was found to have, so that what the others copied stays charged. */
__noinline int give_up_copies(__u64 id, __s64 pages)
{
	struct plimsoll_family *f = bpf_map_lookup_elem(&families, &id);
	struct plimsoll_account *a;
	__s64 copied;

	if (!f)
		return 0;
	copied = f->copied_pages;
	if (pages > copied)
		pages = copied;
	if (pages <= 0 || (__s64)__sync_val_compare_and_swap(&f->copied_pages, copied, copied - pages) != copied)
		return 0;
	a = account_at(f->account);
	if (a) {
		family_moved(a, 0, -pages);
		account_add(a, -pages);
	}
	return 0;
}

/*
 * One living member more, or fewer. Returns in which account, and those above it, somebody may weigh more by that. Joined for
 * that long: it cannot end meanwhile, and be another family. Global: the verifier walks it once, and not on each path that
 * comes to it, which took half of the time that loading took.
 */
__noinline __u32 count_living(__u64 id, __u32 change)
{
	struct plimsoll_family *f;
	struct plimsoll_account *a;
	__u32 account;

	f = id ? join_one(id, ONE_MEMBER) : 0;
	if (!f)
		return PLIMSOLL_NOBODY;
	__sync_fetch_and_add(&f->living, change);
	a = account_at(f->account);
	if (a)
		settle_dying_family(f, a);
	/* What they share goes with the last that lives. */
	account = f->living <= 1 ? f->account : PLIMSOLL_NOBODY;
	leave_one(f, f->id);
	return account;
}

/*
 * A member that nobody has signalled is among the living of its family. Whoever changes what that depends on looks again
 * after the exchange.
 */
static __always_inline void settle_living(struct plimsoll_mm *e)
{
	__u64 family, before;
	int i;

	for (i = 0; i < LIVING_TRIES; i++) {
		family = e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_GONE) ? 0 : e->family;
		if (e->living_in == family)
			return;
		before = __sync_lock_test_and_set(&e->living_in, family);
		if (before == family)
			continue;
		search_anew_from(count_living(family, 1), false);
		search_anew_from(count_living(before, -1), false);
	}
}

/* So many of these pages, unless others keep changing them meanwhile. */
static __always_inline __s64 take_up_to(volatile __s64 *pages, __s64 most)
{
	__s64 have, taken;
	int i;

	for (i = 0; i < SETTLE_TRIES; i++) {
		have = *pages;
		taken = most < have ? most : have;
		if (taken <= 0)
			return 0;
		if ((__s64)__sync_val_compare_and_swap(pages, have, have - taken) == have)
			return taken;
	}
	return 0;
}

/*
 * More pages went than were its own: inherited ones did, those first that nobody is charged for. They make up for as many of
 * its own, in `account`; returned is how many. Where its charge is on its way to another one, that one is charged.
 */
__noinline __s64 take_inherited(__u64 key, __s64 pages, __u32 account)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *moved;
	__s64 back, shared = 0;
	__u64 family, old;

	if (!e)
		return 0;
	begin_shift(e);
	back = take_up_to(&e->inherited_pages, pages);
	/* Before the shares: who leaves a family, or ends it, takes these after it. */
	family = e->family;
	if (family)
		shared = take_up_to(&e->shared_pages, pages - back);
	back += shared;
	old = __sync_fetch_and_add(&e->word, back);
	if (shared)
		give_up_shares(family, shared, PLIMSOLL_NOBODY, 0);
	end_shift(e);
	if (word_account(old) == account)
		return back;
	moved = account_at(word_account(old));
	if (moved)
		account_add(moved, back);
	return 0;
}

/* From here on nothing that it frees is something that it gave up before: see exchange.h. */
static __always_inline void forget_given(struct plimsoll_mm *e)
{
	e->kept_pages = 0;
	e->trusted_pages = 0;
	e->freed_pages = 0;
}

/* Leaves the family. */
static __always_inline void leave_family(struct plimsoll_mm *e)
{
	__u64 id = __sync_lock_test_and_set(&e->family, 0);
	struct plimsoll_family *f;

	if (!id)
		return;
	forget_given(e);
	/* While it is a member still: the family cannot end meanwhile. */
	settle_living(e);
	give_up_shares(id, __sync_lock_test_and_set(&e->shared_pages, 0), PLIMSOLL_NOBODY, 0);
	give_up_copies(id, __sync_lock_test_and_set(&e->copied_pages, 0));
	f = bpf_map_lookup_elem(&families, &id);
	if (f)
		leave_one(f, id);
}

/*
 * What a process has as its own, up to `pages`, becomes its family's: usage stays what it was. A family stays its first
 * user's; who became another's since brings its own pages along.
 */
static __always_inline void share_own(struct plimsoll_mm *e, struct plimsoll_family *f, __s64 pages)
{
	__s64 own = word_pages(e->word);
	__u64 old;

	if (own > pages)
		own = pages;
	if (own <= 0)
		return;
	/* The shares come first: who gives some up meanwhile must not find fewer than what is charged. */
	__sync_fetch_and_add(&f->shares, own);
	__sync_fetch_and_add(&f->pages, own);
	begin_shift(e);
	__sync_fetch_and_add(&e->shared_pages, own);
	old = __sync_fetch_and_add(&e->word, -own);
	end_shift(e);
	if (e->flags & PLIMSOLL_MM_DYING)
		settle_dying_space(e->mm);
	if (word_account(old) != f->account)
		shift_usage(word_account(old), own, f->account, own);
}

/*
 * Pages that a member copied are its own from here on, and charged besides what the others still share: as many as it
 * shares at most. Returns how many. What it is granted is not touched by that.
 */
__noinline __s64 own_copies(__u64 key, __s64 pages)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__u64 id, old;

	if (!e)
		return 0;
	begin_shift(e);
	id = e->family;
	pages = id ? take_up_to(&e->shared_pages, pages) : 0;
	old = __sync_fetch_and_add(&e->word, pages);
	end_shift(e);
	if (pages <= 0)
		return 0;
	/* Dying before it is charged: in between another victim would be taken. */
	if (e->flags & PLIMSOLL_MM_DYING)
		settle_dying_space(e->mm);
	give_up_shares(id, pages, word_account(old), pages);
	return pages;
}

/*
 * The only member left owns what was shared, and the family ends. Where a fork joins it meanwhile, it is shared again. Nothing
 * of it was touched just now: it takes no part of a reservation.
 */
__noinline int absorb_family(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__u64 id = e ? e->family : 0, members, old;
	struct plimsoll_family *f = bpf_map_lookup_elem(&families, &id);
	__s64 pages;

	if (!e || !f)
		return 0;
	members = f->members;
	/* It is the only one unless it has left by now, at its end: then another is. */
	if ((__u32)members != 1 || e->family != id)
		return 0;
	begin_shift(e);
	pages = __sync_lock_test_and_set(&e->shared_pages, 0);
	old = __sync_fetch_and_add(&e->word, pages);
	end_shift(e);
	__sync_lock_test_and_set(&e->copied_pages, 0);
	forget_given(e);
	/* Dying before it is charged: in between another victim would be taken. */
	if (e->flags & PLIMSOLL_MM_DYING)
		settle_dying_space(e->mm);
	give_up_shares(id, pages, word_account(old), pages);
	if (__sync_val_compare_and_swap(&f->members, members, members - ONE_MEMBER) == members) {
		/* Not a plain store: another thread may be forking, and have joined a new family already. */
		__sync_val_compare_and_swap(&e->family, id, 0);
		__sync_val_compare_and_swap(&e->living_in, id, 0);
		drop_family(f, id);
	} else if (join_one(id, ONE_MEMBER)) {
		if ((f->members ^ members) >> 32)
			share_own(e, f, pages);
		leave_one(f, id);
	}
	return 0;
}

/*
 * The family of a forking parent, joined by one more member; 0 if there is none to be had. Two threads may fork at
 * once: the family of the first is the second's as well.
 */
static __always_inline __u64 join_family(struct plimsoll_mm *parent)
{
	struct plimsoll_family fresh = { .founder = parent->mm, .account = word_account(parent->word) };
	__u64 known = parent->family, id, winner;
	struct plimsoll_family *f;

	if (known && join_one(known, ONE_CHILD))
		return known;
	id = __sync_fetch_and_add(&next_family, 1) + 1;
	fresh.id = id;
	/* Unlike that of the family before at the same place. */
	fresh.members = id << 32 | 2;
	count_name(fresh.account, 1);
	if (bpf_map_update_elem(&families, &id, &fresh, BPF_NOEXIST)) {
		count_name(fresh.account, -1);
		count_one(&counters.families_full);
		return 0;
	}
	winner = __sync_val_compare_and_swap(&parent->family, known, id);
	/* A scan ended the one that was known meanwhile. */
	if (winner != known && !winner && !__sync_val_compare_and_swap(&parent->family, 0, id))
		winner = known;
	if (winner == known)
		return id;
	f = bpf_map_lookup_elem(&families, &id);
	if (f)
		orphan(f, fresh.account);
	if (bpf_map_delete_elem(&families, &id))
		count_one(&counters.deletes_failed);
	return winner && join_one(winner, ONE_CHILD) ? winner : 0;
}

/*
 * A forked child has `pages` that it did not ask for; what the parent had as its own becomes the family's. Apart, because Linux
 * 6.1 adds up the stacks of all who are in a call.
 */
static __noinline bool share_on_fork(struct plimsoll_mm *parent, struct plimsoll_mm *child, __s64 pages)
{
	struct plimsoll_family *f;
	struct plimsoll_account *a;
	__u64 id;

	if (!parent || !child)
		return false;
	id = join_family(parent);
	f = id ? bpf_map_lookup_elem(&families, &id) : 0;
	if (!f)
		return false;
	a = account_at(f->account);
	__sync_fetch_and_add(&f->shares, pages);
	if (a)
		family_moved(a, pages, 0);
	share_own(parent, f, PLIMSOLL_WORD_BIAS);
	child->family = id;
	__sync_fetch_and_add(&child->shared_pages, pages);
	settle_living(child);
	settle_living(parent);
	if (a)
		settle_dying_family(f, a);
	return true;
}

#endif
