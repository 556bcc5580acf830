/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The largest processes of an account, of those that may be victims: kept while it is near, and searched for. */
#ifndef PLIMSOLL_LIMITS_LARGEST_H
#define PLIMSOLL_LIMITS_LARGEST_H

/* How deep below the root cgroups are looked through for one that is protected. */
#define CGROUP_LEVELS 32

static __always_inline void mark_dying(struct plimsoll_mm *e)
{
	settle_dying_space(e->mm);
	settle_living(e);
	/* It touches nothing more, or is charged for it as dying. */
	release_reserved(e->mm);
}

struct protection {
	struct cgroup *from;
	bool found;
};

static long is_protected_at(__u32 level, struct protection *protection)
{
	struct cgroup *from = protection->from;
	__u64 id;

	id = BPF_CORE_READ(cgroup_at(from, level), kn, id);
	protection->found = bpf_map_lookup_elem(&protected_cgroups, &id);
	return protection->found;
}

/*
 * Whether a cgroup (v2) or one above it is protected. From the root down: a user may have cgroups of any depth, and one that is
 * protected is CGROUP_LEVELS deep at most. Global: see user_of_leader().
 */
__noinline int is_protected_cgroup(__u64 address)
{
	struct cgroup *from = (struct cgroup *)address;
	struct protection protection = { .from = from };
	__u32 levels = BPF_CORE_READ(from, level) + 1;

	/* Nothing is known of it. */
	if (!address)
		return true;
	bpf_loop(levels < CGROUP_LEVELS ? levels : CGROUP_LEVELS, is_protected_at, &protection, 0);
	return protection.found;
}

static __always_inline bool in_protected_cgroup(struct task_struct *task)
{
	return is_protected_cgroup((__u64)BPF_CORE_READ(task, cgroups, dfl_cgrp));
}

/*
 * Whether nobody runs in an address space any more: its end is under way, or its exit event was lost. What is read of
 * the mm may be of one that was freed, which nobody uses either, or that is another process's by now: then it was
 * entered anew at that one's fork.
 */
static __always_inline bool is_left(__u64 mm)
{
	int users = 0;

	bpf_probe_read_kernel(&users, sizeof(users), (void *)(mm + bpf_core_field_offset(struct mm_struct, mm_users)));
	return !users;
}

/*
 * What follows up to `choose` are global functions, as is `tell`: each is verified once, not once per caller and path,
 * which took the verifier seconds. So they take numbers and look up what these stand for.
 *
 * Counts an address space that nobody runs in as dying: nobody has to be killed for memory that is on its way. With no
 * daemon alive, to whom it is told that the largest cannot be taken, also one whose process is in its own exit: whoever
 * allocates meanwhile would go in its place.
 */
__noinline int note_left(__u32 account, __u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__u32 left = 0;

	if (!e || !pin(e, key))
		return true;
	if (is_charged(word_account(e->word), account)) {
		if (is_left(e->mm)) {
			left = PLIMSOLL_MM_LEFT | PLIMSOLL_MM_DYING;
		} else if (!daemon_lives()) {
			a = account_at(account);
			if (a && a->signal == SIGKILL && is_leaving(e->mm))
				left = PLIMSOLL_MM_DYING;
		}
		if (left && !(__sync_fetch_and_or(&e->flags, left) & PLIMSOLL_MM_DYING)) {
			e->claimed = account;
			mark_dying(e);
		}
	}
	unpin(e);
	return left != 0;
}

struct search {
	struct plimsoll_account *account;
	__s64 floor_rank;
	__u64 mm[PLIMSOLL_LARGEST];
	__s64 rank[PLIMSOLL_LARGEST];
};

#define PLIMSOLL_MM_NO_VICTIM \
	(PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_NEVER | PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED | PLIMSOLL_MM_GONE)

static long search_one(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e, struct search *search)
{
	struct plimsoll_account *a = search->account;
	__u64 key = *at;
	__s64 rank, out;
	int i, least = 0;

	if (!a || !is_charged(word_account(e->word), a->index))
		return 0;
	if (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_GONE))
		return 0;
	/* Also what was protected: nobody is to die for what it left behind. */
	if (note_left(a->index, key) || e->flags & PLIMSOLL_MM_NO_VICTIM)
		return 0;
	rank = out = standing_of(a->index, key);
	for (i = 1; i < PLIMSOLL_LARGEST; i++)
		if (search->rank[i] < search->rank[least])
			least = i;
	least &= PLIMSOLL_LARGEST - 1;
	if (rank > search->rank[least]) {
		out = search->rank[least];
		search->rank[least] = rank;
		search->mm[least] = key;
	}
	out = rank_in(out);
	if (out > search->floor_rank)
		search->floor_rank = out;
	return 0;
}

/* Of searches in vain a sixty-fourth of a CPU, or one in search_again_ns. */
#define SEARCH_REST 64

/*
 * Finds the account's largest processes, as weighed, among all that are tracked, and which of them nobody runs in any
 * more: when the account comes near, and when those that were known have gone. Not a matter of each event: tens of
 * microseconds. Past the line those come first whose end is enough; where there are none it is repeated no sooner than
 * SEARCH_REST times what it took later, or search_again_ns where that is less.
 */
__noinline int find_largest(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	struct search search = { .account = a, .floor_rank = RANK_NONE };
	__u64 now = bpf_ktime_get_ns(), ended, rest;
	__s64 none_enough = -1;
	int i;

	if (!a || (__s64)(a->nobody_until_ns - now) > 0)
		return 0;
	for (i = 0; i < PLIMSOLL_LARGEST; i++)
		search.rank[i] = RANK_NONE;
	/* Before it: what changes meanwhile is for the next one. */
	a->must_search = 0;
	bpf_for_each_map_elem(&mms, search_one, &search, 0);
	a->floor_rank = search.floor_rank;
	for (i = 0; i < PLIMSOLL_LARGEST; i++) {
		a->largest[i] = search.mm[i];
		/* Negative if all are: without a branch. */
		none_enough &= search.rank[i] + TIER_RANKS;
	}
	a->nobody_until_ns = 0;
	if (none_enough < 0) {
		ended = bpf_ktime_get_ns();
		rest = (ended - now) * SEARCH_REST;
		a->nobody_until_ns = ended + (rest < search_again_ns ? rest : search_again_ns);
	}
	return 0;
}

static __always_inline bool is_largest(struct plimsoll_account *a, __u64 key)
{
	bool known = false;
	int i;

	for (i = 0; i < PLIMSOLL_LARGEST; i++)
		known |= a->largest[i] == key;
	return known;
}

/* One that was of an account, and no victim yet, and may be neither by now. */
static __always_inline bool may_be_taken(struct plimsoll_mm *e, __u32 account)
{
	return !(e->flags & PLIMSOLL_MM_NO_VICTIM) && is_charged(word_account(e->word), account);
}

/* Of one that is known as one of the largest. */
__noinline __s64 known_rank(__u32 account, __u64 key)
{
	struct plimsoll_mm *e = key ? bpf_map_lookup_elem(&mms, &key) : 0;
	struct plimsoll_account *a = account_at(account);

	if (!e || !a || !may_be_taken(e, account))
		return RANK_NONE;
	return rank_of(a, e);
}

/*
 * Keeps the account's largest processes while it is near. `floor_rank` bounds every other one from above: it follows
 * each that grows and does not get in. User space is told, once, of one that gets in before anybody weighed it, as far as its
 * account's pace lets it be; else it finds it by its look of each second.
 */
__noinline int note_largest(__u32 account, __u64 mm)
{
	struct plimsoll_account *a = account_at(account);
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &mm);
	__s64 rank, its_rank, least_rank = PLIMSOLL_NO_LINE;
	__u64 key, least_key = 0;
	int i, least = 0;

	if (!a || !e || e->flags & PLIMSOLL_MM_NO_VICTIM || is_largest(a, mm))
		return 0;
	rank = rank_of(a, e);
	if (rank <= a->floor_rank)
		return 0;
	for (i = 0; i < PLIMSOLL_LARGEST; i++) {
		key = a->largest[i];
		its_rank = known_rank(account, key);
		if (its_rank < least_rank) {
			least = i;
			least_key = key;
			least_rank = its_rank;
		}
	}
	/*
	 * Left out, for its size or because another came first; one that sleeps has no next event. The floor never goes
	 * down: only a search for the largest may find that nobody left out weighs so much.
	 */
	if (rank <= least_rank ||
	    __sync_val_compare_and_swap(&a->largest[least & (PLIMSOLL_LARGEST - 1)], least_key, mm) != least_key) {
		raise_to(&a->floor_rank, rank);
		return 0;
	}
	raise_to(&a->floor_rank, least_rank);
	if (!(e->flags & PLIMSOLL_MM_JUDGED) && daemon_lives() && is_told(&a->introduced_ns) &&
	    !(__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_JUDGED) & PLIMSOLL_MM_JUDGED) &&
	    tell(account, mm, PLIMSOLL_RECORD_JUDGE))
		__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_JUDGED);
	return 0;
}

/* As come_to(), of one account. The daemon looks. */
__noinline int came_to(__u32 account, __u64 mm)
{
	struct plimsoll_account *a = account_at(account);
	__s64 usage;

	if (!a)
		return 0;
	usage = known_usage(a);
	if (usage > a->peak_pages)
		raise_to(&a->peak_pages, usage);
	if (need_exact(a))
		tell(account, mm, PLIMSOLL_RECORD_EXACT);
	if (usage < a->soft_pages && !a->near)
		return 0;
	if (a->near || __sync_val_compare_and_swap(&a->near, 0, moment())) {
		note_largest(account, mm);
		return 0;
	}
	a->nobody_until_ns = 0;
	find_largest(account);
	tell(account, mm, PLIMSOLL_RECORD_NEAR);
	return 0;
}

/* One that is smaller than who crosses may have ended without an event: nobody is to die for what it left behind. */
__noinline int note_known_left(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	__u64 key;
	int i;

	for (i = 0; a && i < PLIMSOLL_LARGEST; i++) {
		key = a->largest[i];
		if (key)
			note_left(account, key);
	}
	return 0;
}

struct choice {
	__u64 mm; /* 0: nobody */
	__s64 rank;
};

static __always_inline struct choice largest_known(struct plimsoll_account *a)
{
	struct choice best = { .rank = RANK_NONE };
	struct plimsoll_mm *e;
	__s64 rank;
	__u64 key;
	int i;

	for (i = 0; i < PLIMSOLL_LARGEST; i++) {
		key = a->largest[i];
		e = key ? bpf_map_lookup_elem(&mms, &key) : 0;
		if (!e || !may_be_taken(e, a->index))
			continue;
		rank = standing_of(a->index, key);
		if (rank > best.rank) {
			best.mm = key;
			best.rank = rank;
		}
	}
	return best;
}

/* The account's largest, if nobody can be larger; 0: it has to be searched for. */
__noinline __u64 choose_known(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	struct choice best;

	if (!a)
		return 0;
	best = largest_known(a);
	return best.rank >= a->floor_rank && !a->must_search ? best.mm : 0;
}

/* The largest that the last search found, or came to be known since. */
__noinline __u64 choose_found(__u32 account)
{
	struct plimsoll_account *a = account_at(account);

	return a ? largest_known(a).mm : 0;
}

/*
 * The account's largest process that may be a victim, as weighed and as far as it is tracked, of those whose end is enough if
 * there are any; 0: none. No function of its own: the kernel takes no deeper calls than eight, and a search makes five.
 */
static __always_inline __u64 choose(struct plimsoll_account *a)
{
	__u64 known = choose_known(a->index);

	if (known)
		return known;
	find_largest(a->index);
	return choose_found(a->index);
}

#endif
