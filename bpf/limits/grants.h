/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Memory promised before it is touched. A grant adds to its account's usage at once, if that stays below the line with
 * room to spare; what the process then touches comes out of the grant, so that usage does not move; what is left when it
 * says so, or when it ends, goes back. All of it is in the maps: no daemon has to live for that.
 */
#ifndef PLIMSOLL_LIMITS_GRANTS_H
#define PLIMSOLL_LIMITS_GRANTS_H

/* Other CPUs charge the account all the time; each try that fails is a charge that went through. */
#define GRANT_TRIES 1000
/* More than any machine has: what plimsoll_mm.reserved can hold several of. */
#define GRANT_PAGES_MAX (1LL << 44)

static long settle_one(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e,
		       struct plimsoll_account **account)
{
	struct plimsoll_account *a = *account, *its;
	__u64 key = *at;

	/* What nobody runs in may be freed: its exit was lost, or is under way. */
	if (!a || !is_charged(word_account(e->word), a->index) || is_left(key) || !pin(e, key))
		return 0;
	/* Before it was pinned it may have become the entry of somebody else. */
	its = account_at(word_account(e->word));
	if (its && is_charged(its->index, a->index)) {
		e->epoch = its->exact;
		settle_space(e);
	}
	unpin(e);
	return 0;
}

struct claim {
	struct plimsoll_account *account;
	__s64 pages;
	__s64 limit; /* usage may become so much */
	__s64 usage; /* the account's, after a claim that went through; else as it was */
	int result;
};

static long claim_once(__u32 attempt, struct claim *claim)
{
	struct plimsoll_account *a = claim->account;

	if (!a)
		return 1;
	claim->usage = a->usage_pages;
	if (claim->usage + claim->pages > claim->limit) {
		claim->result = -ENOSPC;
		return 1;
	}
	if (__sync_val_compare_and_swap(&a->usage_pages, claim->usage, claim->usage + claim->pages) != claim->usage)
		return 0;
	claim->usage += claim->pages;
	claim->result = 0;
	return 1;
}

static __always_inline bool is_settled(struct plimsoll_account *a)
{
	return a->exact && a->settled == a->exact;
}

/*
 * From here on every event of the account is settled; so is what each of its processes had before. Where threads keep
 * counts to themselves only a walk of all tasks does that: its sweep says so. No function of its own: see choose().
 */
static __always_inline int settle_account(struct plimsoll_account *a)
{
	__u32 epoch;

	become_exact(a);
	epoch = a->exact;
	if (task_caches)
		return -EAGAIN;
	bpf_for_each_map_elem(&mms, settle_one, &a, 0);
	/* An event may have found meanwhile that it need not be exact; then it is far from any limit that matters. */
	a->settled = epoch;
	return 0;
}

/*
 * Takes `pages` of what is left below the limit. An account that is not settled may have, or be short of, what lies
 * unsettled: within that distance of the limit it is settled first.
 */
static __always_inline int claim_pages(struct plimsoll_account *a, struct claim *claim, __s64 limit)
{
	__s64 loose = is_settled(a) ? 0 : loose_pages(a);

	claim->result = -EAGAIN;
	claim->limit = limit - loose;
	bpf_loop(GRANT_TRIES, claim_once, claim, 0);
	if (claim->result != -ENOSPC || !loose || claim->usage - loose + claim->pages > limit)
		return claim->result;
	if (settle_account(a))
		return -EAGAIN;
	claim->result = -EAGAIN;
	claim->limit = limit;
	bpf_loop(GRANT_TRIES, claim_once, claim, 0);
	return claim->result;
}

/* What was claimed of an account is a process's, unless that one ends meanwhile. */
static __always_inline int hand_over(struct plimsoll_mm *e, struct plimsoll_account *a, __s64 pages)
{
	__u64 reserved, given;
	__s64 held;
	int i;

	add_to_all(a, RESERVED, pages);
	for (i = 0; i < SWAP_TRIES; i++) {
		reserved = e->reserved;
		held = word_pages(reserved);
		if (held > 0 && word_account(reserved) != a->index) {
			/* Left behind by a move to another account. */
			release_reserved(e->mm);
			continue;
		}
		given = ((reserved + pages) & PLIMSOLL_WORD_MASK) | (__u64)a->index << PLIMSOLL_WORD_SHIFT;
		if (__sync_val_compare_and_swap(&e->reserved, reserved, given) == reserved)
			break;
	}
	if (i == SWAP_TRIES) {
		add_to_all(a, RESERVED, -pages);
		account_add(a, -pages);
		return -EAGAIN;
	}
	__sync_fetch_and_add(&e->open_pages, pages);
	__sync_fetch_and_add(&e->untouched_pages, pages);
	__sync_fetch_and_add(&e->granted_pages, pages);
	__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_RESERVED | PLIMSOLL_MM_GRANTED);
	/* Another account's since it was looked whose it is; or nobody's, and its end may have found nothing to give back. */
	move_reserved(e->mm, word_account(e->word));
	if (!(e->flags & (PLIMSOLL_MM_GONE | PLIMSOLL_MM_DYING)))
		return 0;
	release_reserved(e->mm);
	return -ESRCH;
}

/*
 * What copy-on-write may still add is kept free, since nobody asks for it: what is copied is found later, by a survey. For
 * each process no more than the allowance, which is all that one that keeps to its grants may have besides: of what a server
 * of gigabytes shares with its workers little is copied as a rule, and all of it kept free would leave no room for grants.
 */
static __always_inline __s64 kept_for_copies(struct plimsoll_account *a)
{
	__s64 copyable = a->copyable_pages, most = (__s64)a->processes * allowance_pages;

	if (copyable > most)
		copyable = most;
	return copyable > 0 ? copyable : 0;
}

/* What is not to be granted of an account's line. */
static __always_inline __s64 kept_free(struct plimsoll_account *a)
{
	return kept_for_copies(a) + a->lasting_pages;
}

/* Takes `pages` of one account's line. Returns its usage then, or a negative errno. Global: it is done for those above, too. */
__noinline __s64 claim_of(__u32 account, __s64 pages, __s64 headroom)
{
	struct plimsoll_account *a = account_at(account);
	struct claim claim = { .account = a, .pages = pages };
	__s64 result;

	/* What already runs is still being entered: usage is not known. */
	if (!a || a->effective_pages == PLIMSOLL_NO_LINE)
		return -EAGAIN;
	charge_at_once(a);
	result = claim_pages(a, &claim, a->hard_pages - headroom - kept_free(a));
	let_usage_spread(a);
	return result ? result : claim.usage;
}

/* Of an account that stays this user's for as long as this takes, and of those above it: all or none. */
static __always_inline int grant_from(struct plimsoll_account *a, struct plimsoll_mm *e, __u64 key,
				      struct plimsoll_reserve *ctx)
{
	struct plimsoll_account *one, *refusing = a;
	__s64 pages = ctx->pages, headroom = ctx->headroom_pages, usage, claimed;
	__u64 above = a->above, paid = 0;
	int i, result = 0;

	/* Its line went, and the account became another's, before it was held. */
	if (word_account(e->word) != a->index)
		return -EAGAIN;
	if (a->hard_pages == PLIMSOLL_NO_LINE)
		return -ENOENT;
	/* Nor is usage known while no event is looked at: whoever is told this sees to it that each is. */
	if (look_due_ns) {
		tell(a->index, key, PLIMSOLL_RECORD_EXACT);
		return -EAGAIN;
	}
	usage = claim_of(a->index, pages, headroom);
	if (usage < 0)
		result = usage;
	for_each_above (one, result ? 0 : above, i) {
		claimed = result ? result : claim_of(one->index, pages, headroom);
		if (claimed >= 0) {
			paid |= above & ABOVE_MASK << i * PLIMSOLL_ABOVE_BITS;
		} else if (!result) {
			result = claimed;
			refusing = one;
		}
	}
	if (result && refusing != a) {
		add_one(a, USAGE, -pages);
		add_above(paid, USAGE, -pages);
	}
	ctx->hard_pages = refusing->hard_pages;
	ctx->of = refusing->of;
	ctx->id = refusing->id;
	ctx->usage_pages = result ? refusing->usage_pages + kept_free(refusing) : usage;
	if (result)
		return result;
	result = hand_over(e, a, pages);
	if (!result)
		come_to(a, key);
	return result;
}

static __always_inline int grant(struct plimsoll_mm *e, __u64 key, struct plimsoll_reserve *ctx)
{
	struct whereabouts its = whereabouts_of(e);
	struct plimsoll_account *a;
	int result;

	if (e->flags & PLIMSOLL_MM_DYING || its.runs_elsewhere)
		return -ESRCH;
	if (its.changed_user)
		return -EAGAIN;
	/* What it has touched before is no part of this grant. */
	settle_space(e);
	a = account_at(word_account(e->word));
	if (!a || a->index == PLIMSOLL_NOBODY || !hold_account(a))
		return -ENOENT;
	result = grant_from(a, e, key, ctx);
	let_account_go(a);
	return result;
}

/* The entry of a key, pinned, while the process that it was asked for runs in it. */
static __always_inline struct plimsoll_mm *pin_of(__u64 key, __u32 tgid, __u64 start_ns)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e || !pin(e, key))
		return 0;
	if (e->tgid == tgid && e->start_ns == start_ns)
		return e;
	unpin(e);
	return 0;
}

SEC("syscall")
int reserve(struct plimsoll_reserve *ctx)
{
	__u64 key = ctx->mm;
	struct plimsoll_mm *e;

	ctx->result = -EINVAL;
	if (ctx->pages <= 0 || ctx->pages > GRANT_PAGES_MAX || ctx->headroom_pages < 0)
		return 0;
	ctx->result = -ESRCH;
	e = pin_of(key, ctx->tgid, ctx->start_ns);
	if (!e)
		return 0;
	ctx->result = grant(e, key, ctx);
	unpin(e);
	return 0;
}

/* How many of so many pages that a process says it gave back were seen to go. */
static __always_inline __s64 take_untold(struct plimsoll_mm *e, __s64 pages)
{
	__s64 untold, taken;
	int i;

	for (i = 0; i < SWAP_TRIES; i++) {
		untold = e->untold_pages;
		taken = pages < untold ? pages : untold;
		if (__sync_val_compare_and_swap(&e->untold_pages, untold, untold - taken) == untold)
			return taken;
	}
	return 0;
}

/* The process has touched what it was granted, or does not want it: what is left of its reservations goes back. */
SEC("syscall")
int settle(struct plimsoll_grant *ctx)
{
	__u64 key = ctx->mm;
	struct plimsoll_mm *e = pin_of(key, ctx->tgid, ctx->start_ns);
	struct plimsoll_account *a;

	ctx->pages = 0;
	ctx->result = -ESRCH;
	if (!e)
		return 0;
	settle_space(e);
	ctx->pages = release_reserved(e->mm);
	ctx->result = 0;
	a = account_at(word_account(e->word));
	if (a) {
		cap_granted(e, a);
		weighs_more(a, key);
		if (need_exact(a))
			tell(a->index, key, PLIMSOLL_RECORD_EXACT);
		if (becomes_far(a))
			tell(a->index, key, PLIMSOLL_RECORD_FAR);
	}
	unpin(e);
	return 0;
}

/* So many pages are no longer held by grants: they were given back to the kernel, or are anybody's pages from now on. */
SEC("syscall")
int give_up(struct plimsoll_grant *ctx)
{
	__u64 key = ctx->mm;
	struct plimsoll_mm *e;

	ctx->result = -EINVAL;
	if (ctx->pages < 0)
		return 0;
	ctx->result = -ESRCH;
	e = pin_of(key, ctx->tgid, ctx->start_ns);
	if (!e)
		return 0;
	lower_granted(e, ctx->pages - take_untold(e, ctx->pages));
	weighs_more(account_at(word_account(e->word)), key);
	ctx->result = 0;
	unpin(e);
	return 0;
}

/* Whether it is the entry looked for; what is told of it goes to `space`. */
static __always_inline bool is_space_of(struct plimsoll_mm *e, __u64 key, struct plimsoll_space *space)
{
	bool found = false;

	if (!e || e->tgid != space->tgid || !pin(e, key))
		return false;
	if (e->tgid == space->tgid && !whereabouts_of(e).runs_elsewhere) {
		space->mm = key;
		space->start_ns = e->start_ns;
		space->uid = e->uid;
		space->user = e->user;
		space->result = 0;
		found = true;
	}
	unpin(e);
	return found;
}

static long find_one(struct bpf_map *map, volatile __u64 *key, struct plimsoll_mm *e, struct plimsoll_space *space)
{
	return is_space_of(e, *key, space);
}

/* By its process; by a search of all where that cannot be asked (Linux 6.1) or ended before its threads. */
SEC("syscall")
int find_space(struct plimsoll_space *ctx)
{
	struct plimsoll_space space = { .tgid = ctx->tgid, .result = -ESRCH };
	struct task_struct *task;
	__u64 key = 0;

	task = find_task(space.tgid);
	if (task) {
		key = (__u64)task->mm;
		bpf_task_release(task);
	}
	if (key)
		is_space_of(bpf_map_lookup_elem(&mms, &key), key, &space);
	else
		bpf_for_each_map_elem(&mms, find_one, &space, 0);
	*ctx = space;
	return 0;
}

#endif
