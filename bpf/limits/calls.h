/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What user space calls: lines drawn and cleared, victims marked, copies charged, counters read. */
#ifndef PLIMSOLL_LIMITS_CALLS_H
#define PLIMSOLL_LIMITS_CALLS_H

/* A walk settles what was exact before it began. */
static long walk_one(struct bpf_map *map, __u32 *index, struct plimsoll_account *a, void *unused)
{
	a->walked = a->exact;
	return 0;
}

SEC("syscall")
int begin_scan(void *ctx)
{
	__u64 now = bpf_ktime_get_ns(), then = scan_ns;
	__u32 walk = __sync_fetch_and_add(&walk_id, 1) + 1;

	if (task_caches)
		bpf_for_each_map_elem(&accounts, walk_one, 0, 0);
	if (now - then >= scan_apart_ns && __sync_val_compare_and_swap(&scan_ns, then, now) == then)
		__sync_fetch_and_add(&scan_id, 1);
	return walk;
}

/* Two scans, not too close to each other, without a living task of it: its exit event was lost. */
static __always_inline bool is_phantom(struct plimsoll_mm *e, struct plimsoll_sweep *sweep)
{
	return sweep->scan - e->scan >= 2;
}

/*
 * Whether somebody else keeps an address space in which nobody runs: who reads another's memory (/proc/PID/mem, ptrace) has it
 * for as long as that takes. Nobody owns it then (mm_update_next_owner, 6.1 to 7.2). One that is another process's is owned.
 */
static __always_inline bool is_kept(__u64 key)
{
	struct mm_struct *mm = (struct mm_struct *)key;

	return bpf_core_field_exists(mm->owner) && !is_left(key) && !BPF_CORE_READ(mm, owner);
}

static long sweep_one(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e, struct plimsoll_sweep *sweep)
{
	__u64 key = *at;

	if (!is_phantom(e, sweep))
		return 0;
	if (e->flags & PLIMSOLL_MM_GONE) {
		/* Settled, and left over by a deletion that failed. */
		forget_gone(e);
		return 0;
	}
	if (!pin(e, key))
		return 0;
	/* Before it was pinned it may have become the entry of somebody else. */
	if (is_phantom(e, sweep) && is_kept(key)) {
		/* Charged until it is torn down, which is told, and nobody's end gives it back. */
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
	} else if (is_phantom(e, sweep)) {
		settle_gone(key);
		count_one(&counters.phantoms);
		sweep->removed++;
	}
	unpin(e);
	return 0;
}

/* Usage falls without an event of its own when a scan settles it, or a lost exit is swept: nobody else would notice. */
static long leave_near_one(struct bpf_map *map, __u32 *index, struct plimsoll_account *a, void *unused)
{
	becomes_far(a);
	if (task_caches && a->walked && a->walked == a->exact)
		a->settled = a->walked;
	return 0;
}

SEC("syscall")
int sweep(struct plimsoll_sweep *ctx)
{
	struct plimsoll_sweep local = { .scan = scan_id };

	bpf_for_each_map_elem(&mms, sweep_one, &local, 0);
	bpf_for_each_map_elem(&accounts, leave_near_one, 0, 0);
	ctx->scan = local.scan;
	ctx->removed = local.removed;
	return 0;
}

/* However many there are. */
#define ALL_PAGES 0x7fffffffffffffffLL

/* What of shared memory that is there and not charged yet is to raise a line that was drawn just now. */
static __always_inline void draw_shared(struct plimsoll_account *a, struct plimsoll_line_set *ctx, __s64 before)
{
	__s64 there = a->drawn_ns ? a->there_pages : 0;

	/* Nobody raises the own line above what was in force: by no more than it was lowered, and not twice. */
	if (ctx->enforce == PLIMSOLL_LINE_WITHIN && there < ALL_PAGES) {
		there += before - a->effective_pages;
		a->there_pages = there > 0 ? there : 0;
	} else {
		a->there_pages = ctx->enforce == PLIMSOLL_LINE_NOW ? 0 : ALL_PAGES;
	}
	a->drawn_ns = bpf_ktime_get_ns();
}

/* Nobody runs as a group. */
static __always_inline void count_line(struct plimsoll_account *a, __u32 more)
{
	if (a->of != PLIMSOLL_OF_GROUP)
		__sync_fetch_and_add(&uid_gate[a->user % UID_GATE_SLOTS], more);
	if (a->of == PLIMSOLL_OF_JOB)
		__sync_fetch_and_add(&jobs_there, more);
}

/*
 * Usage, and what of it a line is not for: that goes up before usage does, and comes down after it. The other way round
 * somebody would be over the line in between. For accounts in places of a word as `above` has them.
 */
static __always_inline void add_usage(__u64 above, __s64 usage, __s64 dying, __s64 ending)
{
	if (dying > 0)
		add_above(above, DYING, dying);
	if (ending > 0)
		add_above(above, ENDING, ending);
	add_above(above, USAGE, usage);
	if (dying < 0)
		add_above(above, DYING, dying);
	if (ending < 0)
		add_above(above, ENDING, ending);
}

/* All that an account counts, so many times, goes to those above. What is charged in the middle of this may be missed. */
static __always_inline void move_all(struct plimsoll_account *a, __u64 above, int times)
{
	add_above(above, PROCESSES, times * a->processes);
	add_above(above, COPYABLE, times * a->copyable_pages);
	add_above(above, RESERVED, times * a->reserved_pages);
	add_above(above, LASTING, times * a->lasting_pages);
	add_usage(above, times * a->usage_pages, times * a->dying_pages, times * a->ending_pages);
}

/* Of these, those that are of jobs. */
__noinline __u64 jobs_of(__u64 above)
{
	struct plimsoll_account *a;
	__u64 found = 0;
	int i;

	for_each_above (a, above, i)
		if (a->of == PLIMSOLL_OF_JOB)
			found |= above & ABOVE_MASK << i * PLIMSOLL_ABOVE_BITS;
	return found;
}

/* From here on these are charged for what an account is charged, and no others. Global, so that it is verified once. */
__noinline int put_below(__u32 account, __u64 above)
{
	struct plimsoll_account *a = account_at(account);
	__u64 before, more, less;

	if (!a || a->above == above)
		return 0;
	charge_at_once(a);
	before = __sync_lock_test_and_set(&a->above, above);
	more = without(above, before);
	less = without(before, above);
	/* What a job has is its user's as well: that one's account has taken it along to groups. */
	if (a->of == PLIMSOLL_OF_JOB) {
		more = jobs_of(more);
		less = jobs_of(less);
	}
	move_all(a, more, 1);
	move_all(a, less, -1);
	let_usage_spread(a);
	search_anew_from(a->index, false);
	need_exact(a);
	return 0;
}

/* Draws a line in an account, which is its user's and held; `fresh`: it is to become the user's. */
static __always_inline int draw_line(struct plimsoll_account *a, struct plimsoll_line_set *ctx, bool fresh)
{
	__s64 hard = ctx->hard_pages, reach, dying = a->dying_pages, living, most, before = a->effective_pages;
	__u64 key = key_of(ctx->of, ctx->id);
	__u32 index = a->index;
	long err;

	charge_at_once(a);
	/* As the line that has been in force leaves it: another would leave out more, or less. */
	living = fresh ? 0 : remaining(a, a->usage_pages);
	a->id = ctx->id;
	a->of = ctx->of;
	a->user = ctx->user;
	a->signal = ctx->signal;
	if (fresh) {
		a->usage_pages = 0;
		a->effective_pages = PLIMSOLL_NO_LINE;
	} else if (a->from_default != ctx->from_default) {
		/* The gate counts lines by number; whom the default line is for comes in by its range. */
		count_line(a, ctx->from_default ? -1 : 1);
	}
	a->from_default = ctx->from_default;
	a->soft_pages = ctx->soft_pages;
	a->hard_pages = hard;
	/* What is not settled yet may make it more: once all is, the line is drawn again, at the very usage. */
	reach = a->usage_pages;
	if (need_exact(a))
		reach += loose_pages(a);
	/* What is dying and held makes no more room by a line that is drawn again, and what is left out now stays left out. */
	if (dying > a->dying_most)
		dying = a->dying_most;
	most = dying > living ? dying : living;
	a->dying_most = dying_most(most > hard ? most : hard);
	if (ctx->enforce == PLIMSOLL_LINE_WITHIN && reach > a->effective_pages)
		reach = a->effective_pages;
	if (ctx->enforce == PLIMSOLL_LINE_RATCHET || ctx->enforce == PLIMSOLL_LINE_WITHIN)
		a->effective_pages = reach > hard ? reach : hard;
	else
		a->effective_pages = ctx->enforce == PLIMSOLL_LINE_NOW ? hard : PLIMSOLL_NO_LINE;
	/* What a session may hold is another part of it: the next choice is made among all. */
	search_anew(a);
	a->nobody_until_ns = 0;
	a->hold_until_ns = 0;
	__sync_fetch_and_and(&a->told, ~PLIMSOLL_TOLD_NOTIFIED);
	draw_shared(a, ctx, before);
	put_below(index, ctx->above);
	let_usage_spread(a);
	ctx->account = index;
	if (!fresh)
		return 0;
	err = bpf_map_update_elem(&account_numbers, &key, &index, BPF_NOEXIST);
	if (err) {
		leave_exact(a);
		free_account(a);
		/* The default line may just have got this user an account. */
		return err == -EEXIST ? -EAGAIN : -ENOSPC;
	}
	if (!ctx->from_default)
		count_line(a, 1);
	return 0;
}

/* Draws a line, or moves it. */
SEC("syscall")
int line_set(struct plimsoll_line_set *ctx)
{
	__u64 key = key_of(ctx->of, ctx->id);
	volatile __u32 *known = bpf_map_lookup_elem(&account_numbers, &key);
	struct plimsoll_account *a;
	__u32 index;

	ctx->result = -ENOSPC;
	index = known ? *known : claim_account();
	a = account_at(index);
	if (!a || index == PLIMSOLL_NOBODY)
		return 0;
	/* Idle, and taken for somebody else meanwhile. */
	ctx->result = -EAGAIN;
	if (known && !hold_account_of(a, ctx->of, ctx->id))
		return 0;
	ctx->result = draw_line(a, ctx, !known);
	if (known)
		let_account_go(a);
	return 0;
}

/*
 * Shared memory that was there when a line was drawn ends nobody: as it is charged, the line in force is raised, by no more
 * than it. What was there is all that is found by the first look that began after that; of it, what nobody would end for may
 * come to be charged later, when it does not last any more.
 */
__noinline int raise_line(__u32 account, __s64 more, __s64 less)
{
	struct plimsoll_account *a = account_at(account);
	__s64 usage, effective, there, raise;

	if (!a)
		return 0;
	usage = known_usage(a);
	effective = a->effective_pages;
	there = a->there_pages;
	raise = usage - effective;
	if (!a->drawn_ns && more > less)
		more = less;
	if (raise > more)
		raise = more;
	if (raise > there)
		raise = there;
	if (raise > 0 && __sync_bool_compare_and_swap(&a->effective_pages, effective, effective + raise) &&
	    there < ALL_PAGES)
		a->there_pages = there - raise;
	if (usage > a->peak_pages)
		raise_to(&a->peak_pages, usage);
	need_exact(a);
	becomes_far(a);
	return 0;
}

__noinline int raise_above(__u64 above, __s64 more, __s64 less)
{
	struct plimsoll_account *a;
	int i;

	for_each_above (a, above, i)
		raise_line(a->index, more, less);
	return 0;
}

static __always_inline void charge_shared(struct plimsoll_account *a, struct plimsoll_shared_set *ctx)
{
	__s64 more = ctx->ending_pages - a->ending_pages, less = a->lasting_pages - ctx->lasting_pages;

	a->lasting_pages = ctx->lasting_pages;
	add_usage(a->index, more, 0, more);
	raise_line(a->index, more, less);
	if (a->above) {
		add_above(a->above, LASTING, -less);
		add_usage(a->above, more, 0, more);
		raise_above(a->above, more, less);
	}
}

/* All that was there when its line was drawn may have been found: of a group, all its members'. */
static __always_inline void was_looked_for(struct plimsoll_account *a, __u64 begun_ns)
{
	__s64 there = a->there_pages, lasting = a->lasting_pages;

	if (!begun_ns) {
		a->there_pages = ALL_PAGES;
		a->drawn_ns = bpf_ktime_get_ns();
	} else if (!a->drawn_ns || begun_ns > a->drawn_ns) {
		a->there_pages = there < lasting ? there : lasting;
		a->drawn_ns = 0;
	}
}

SEC("syscall")
int shared_set(struct plimsoll_shared_set *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	ctx->result = -ESRCH;
	if (!a || ctx->account == PLIMSOLL_NOBODY || !hold_account_of(a, ctx->of, ctx->id))
		return 0;
	/* While what already runs is being entered there is no line to raise. */
	if (a->effective_pages != PLIMSOLL_NO_LINE) {
		if (ctx->of == PLIMSOLL_OF_USER)
			charge_shared(a, ctx);
		was_looked_for(a, ctx->begun_ns);
		ctx->result = 0;
	}
	let_account_go(a);
	return 0;
}

/* What put_below() missed, or counted twice. */
SEC("syscall")
int correct(struct plimsoll_correction *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);
	__s64 effective;

	ctx->result = -ESRCH;
	if (!a || ctx->account == PLIMSOLL_NOBODY || !hold_account_of(a, PLIMSOLL_OF_GROUP, ctx->id))
		return 0;
	effective = a->effective_pages;
	add_one(a, PROCESSES, ctx->processes);
	add_one(a, COPYABLE, ctx->copyable_pages);
	add_one(a, RESERVED, ctx->reserved_pages);
	add_one(a, LASTING, ctx->lasting_pages);
	/* A line that was drawn over what is there was drawn too low by what was missed. */
	if (ctx->usage_pages > 0 && effective > a->hard_pages && effective != PLIMSOLL_NO_LINE)
		__sync_val_compare_and_swap(&a->effective_pages, effective, effective + ctx->usage_pages);
	add_usage(a->index, ctx->usage_pages, ctx->dying_pages, ctx->ending_pages);
	search_anew(a);
	need_exact(a);
	becomes_far(a);
	ctx->result = 0;
	let_account_go(a);
	return 0;
}

static long release_one(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e, __u32 *account)
{
	__u64 key = *at;

	if ((word_account(e->word) != *account && word_account(e->reserved) != *account) || !pin(e, key))
		return 0;
	if (word_account(e->word) == *account)
		settle_gone(key);
	else if (word_account(e->reserved) == *account)
		/* Of a process on its way to another account. */
		release_reserved(e->mm);
	unpin(e);
	return 0;
}

static long leave_one_above(struct bpf_map *map, __u32 *index, struct plimsoll_account *a, __u32 *gone)
{
	__u64 above = a->above;

	if (is_above(above, *gone))
		__sync_lock_test_and_set(&a->above, without(above, *gone));
	return 0;
}

/* Takes a line away, and stops tracking the processes of a user; those of a group's members stay charged to these. */
SEC("syscall")
int line_clear(struct plimsoll_line_clear *ctx)
{
	__u64 key = key_of(ctx->of, ctx->id);
	volatile __u32 *known = bpf_map_lookup_elem(&account_numbers, &key);
	struct plimsoll_account *a;
	__u32 index;

	ctx->result = -ENOENT;
	if (!known)
		return 0;
	index = *known;
	a = account_at(index);
	/* Idle, and taken for somebody else meanwhile: it is gone. */
	if (!a || !hold_account_of(a, ctx->of, ctx->id))
		return 0;
	if (!a->from_default)
		count_line(a, -1);
	ctx->result = bpf_map_delete_elem(&account_numbers, &key);
	/* A reservation that did not follow its process names it as well, for as long as there is something in it. */
	if (a->named || a->reserved_pages) {
		bpf_for_each_map_elem(&mms, release_one, &index, 0);
		/* A member that changed its user since keeps its family: it must not charge who gets this account next. */
		bpf_for_each_map_elem(&families, orphan_one, &index, 0);
	}
	bpf_for_each_map_elem(&accounts, leave_one_above, &index, 0);
	/* What is left is of such families: those above are not charged for it any more, either. */
	charge_at_once(a);
	move_all(a, a->above, -1);
	leave_exact(a);
	/* Nobody else's number. */
	__sync_fetch_and_add(&counters.actions_dropped, a->folded);
	/* Somebody's until the very end: a CPU that takes it in between would find it half cleared. */
	clear_account(a);
	free_account(a);
	let_account_go(a);
	return 0;
}

/* What became of the process that an entry names, which no event has told yet: a walk does. */
struct whereabouts {
	/* It runs in another address space (vfork, then exec): who runs in this one the next walk tells. */
	bool runs_elsewhere;
	/* It is another user's; what is read of one that ends meanwhile may be anything: at worst one walk too many. */
	bool changed_user;
};

/* Nothing is known of a leader that has ended before its threads, nor where no process can be looked up (before Linux 6.2). */
static __always_inline struct whereabouts whereabouts_of(struct plimsoll_mm *e)
{
	struct whereabouts found = {};
	struct task_struct *task;
	__u64 leader, mm;

	task = find_task(e->tgid);
	if (!task)
		return found;
	leader = owner_of(e->mm, task);
	mm = (__u64)BPF_CORE_READ(task, mm);
	found.runs_elsewhere = mm && mm != e->mm;
	/* A subordinate uid that became another is the same user. */
	found.changed_user = uid_of(leader) != e->uid && user_of_leader(leader) != e->user;
	bpf_task_release(task);
	return found;
}

/* Both sides select and act on their own: who claims first has the victim, and the other finds that none is needed. */
static __always_inline int mark_claimed(struct plimsoll_mm *e, struct plimsoll_account *a)
{
	struct whereabouts its = whereabouts_of(e);

	/* Nobody's any more, or another user's: not a victim, and no reason for one. */
	if (note_left(a->index, e->mm) || its.runs_elsewhere || its.changed_user)
		return -ESRCH;
	/* Until the daemon answers, which is after its signal. */
	a->unanswered_ns = bpf_ktime_get_ns();
	if (!claim_for(a, e)) {
		a->unanswered_ns = 0;
		return -EAGAIN;
	}
	if (a->signal == SIGKILL)
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
	/* It became another user's meanwhile: who moved it may have come before the flag. */
	if (!is_charged(word_account(e->word), a->index))
		leave_line(e->mm);
	mark_dying(e);
	__sync_lock_test_and_set(&a->taking, 0);
	return 0;
}

static __always_inline int mark(struct plimsoll_mm *e, struct plimsoll_victim *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);
	__u32 mark = ctx->mark;

	/* Another user's since it was selected: not this line's victim. */
	if (mark == PLIMSOLL_VICTIM_DYING)
		return a && is_charged(word_account(e->word), ctx->account) ? mark_claimed(e, a) : -ESRCH;
	/* By its own event meanwhile, it was. */
	if (mark == PLIMSOLL_VICTIM_SPARED)
		return !may_be_ending(e, e->mm) && spare(e, e->mm) ? 0 : -EAGAIN;
	/* By exec it has left what was dying; or that was said before. */
	if (mark == PLIMSOLL_VICTIM_EXPIRED && !(e->flags & PLIMSOLL_MM_DYING))
		return -EAGAIN;
	__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
	if (mark == PLIMSOLL_VICTIM_EXPIRED)
		live_again(e->mm, PLIMSOLL_MM_DYING);
	return 0;
}

/* A victim that is about to be signalled, could not be, did not end in time, or was asked and then killed. */
SEC("syscall")
int mark_victim(struct plimsoll_victim *ctx)
{
	__u64 key = ctx->mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	ctx->result = -ESRCH;
	if (!e || !pin(e, key))
		return 0;
	if (account_at(word_account(e->word)) && e->tgid == ctx->tgid)
		ctx->result = mark(e, ctx);
	unpin(e);
	return 0;
}

/* In one step, so that nobody who is never to be one is a victim in between. */
static __always_inline int set_weight(struct plimsoll_mm *e, __u32 said)
{
	__u32 flags;
	int i;

	for (i = 0; i < SWAP_TRIES; i++) {
		flags = e->flags;
		if (__sync_val_compare_and_swap(&e->flags, flags, (flags & ~PLIMSOLL_MM_JUDGEMENT) | said) == flags)
			return 0;
	}
	return -EAGAIN;
}

/* Without an event: whoever counts more, or holds less by grants, may now weigh more than all others. */
static __always_inline void weighs_more(struct plimsoll_account *a, __u64 key)
{
	if (a)
		note_in_all(a, key);
}

/* What user space found that a process counts: of this process, this user, this program, or of nobody. */
SEC("syscall")
int weigh(struct plimsoll_weight *ctx)
{
	__u32 said = PLIMSOLL_MM_JUDGED | ctx->weight << PLIMSOLL_MM_WEIGHT_SHIFT |
		     (ctx->never ? PLIMSOLL_MM_NEVER : 0) | (ctx->session ? PLIMSOLL_MM_SESSION : 0);
	__u64 key = ctx->mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	ctx->result = -EINVAL;
	if (!ctx->weight || ctx->weight > PLIMSOLL_WEIGHT_MAX)
		return 0;
	ctx->result = -ESRCH;
	if (!e || !pin(e, key))
		return 0;
	if (e->tgid == ctx->tgid && e->start_ns == ctx->start_ns && e->tracked_ns == ctx->tracked_ns &&
	    e->uid == ctx->uid && !whereabouts_of(e).runs_elsewhere) {
		ctx->result = set_weight(e, said);
		/* It became another user's meanwhile: that one's processes are judged anew. */
		if (e->uid != ctx->uid) {
			forget_judgement(e);
			ctx->result = -ESRCH;
		}
		/* It may weigh more than before; who weighs less is found out when it would be taken. */
		weighs_more(account_at(word_account(e->word)), key);
	}
	unpin(e);
	return 0;
}

SEC("syscall")
int answer(struct plimsoll_answer *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	ctx->result = -EINVAL;
	if (!a)
		return 0;
	if (ctx->shared)
		a->shared_hold_until_ns = ctx->hold_until_ns;
	else
		a->hold_until_ns = ctx->hold_until_ns;
	a->unanswered_ns = 0;
	ctx->result = 0;
	return 0;
}

/* So many of the actions without a record were told of. */
SEC("syscall")
int actions_told(struct plimsoll_told *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	if (ctx->account && a)
		__sync_fetch_and_add(&a->folded, -(__u32)ctx->count);
	if (ctx->account)
		return 0;
	__sync_fetch_and_add(&counters.actions_dropped, -ctx->count);
	return 0;
}

/*
 * What user space found copied. A member's part first, then the family's sum: usage changes by what that differs from
 * the one before. No event comes with it: user space judges what becomes of it.
 */
SEC("syscall")
int copies_set(struct plimsoll_copies *ctx)
{
	__u64 key = ctx->mm, family = ctx->family;
	struct plimsoll_family *f;
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	__s64 more;

	ctx->result = -ESRCH;
	if (key) {
		e = bpf_map_lookup_elem(&mms, &key);
		if (!e || !pin(e, key))
			return 0;
		if (e->tgid == ctx->tgid && e->family == family) {
			__sync_lock_test_and_set(&e->copied_pages, ctx->pages);
			ctx->result = 0;
		}
		unpin(e);
		return 0;
	}
	/* As a member for that long: it cannot end meanwhile, nor become another family. */
	f = join_one(family, ONE_MEMBER);
	if (!f)
		return 0;
	a = account_at(f->account);
	if (a) {
		more = ctx->pages - (__s64)__sync_lock_test_and_set(&f->copied_pages, ctx->pages);
		family_moved(a, 0, more);
		account_add(a, more);
		search_anew_from(a->index, false);
	}
	ctx->result = 0;
	leave_one(f, family);
	return 0;
}

SEC("syscall")
int measured(struct plimsoll_measured *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	ctx->result = -EINVAL;
	if (!a)
		return 0;
	if (!ctx->unread)
		a->stray_pages = 0;
	if (ctx->unread != PLIMSOLL_UNREADABLE)
		a->trusted_pages = 0;
	__sync_fetch_and_and(&a->told, ~PLIMSOLL_TOLD_COPIES);
	ctx->result = may_copy(a);
	return 0;
}

/*
 * Before user space selects: what nobody runs in any more is found among all that the account is charged for, and its
 * largest anew.
 */
SEC("syscall")
int verify(struct plimsoll_of_account *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	ctx->result = -EINVAL;
	if (!a)
		return 0;
	a->nobody_until_ns = 0;
	find_largest(a->index);
	ctx->result = 0;
	return 0;
}

/* Before user space reads an account: usage_pages has all that was charged. */
SEC("syscall")
int collect(struct plimsoll_of_account *ctx)
{
	ctx->result = collect_usage(ctx->account);
	return 0;
}

/* The daemon is there: its end is noticed by the end of its address space. It says so again as it draws lines. */
SEC("syscall")
int attend(struct plimsoll_attend *ctx)
{
	__u64 mm = (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), mm);

	/* What the one before attached is detached. */
	if (mm != daemon_mm)
		copies_watched = 0;
	daemon_mm = mm;
	kernel_trigger = ctx->kernel_trigger;
	ctx->result = 0;
	return 0;
}

/* Said once what takes and frees pages is attached, and before it is not any more. */
SEC("syscall")
int watch_copies(struct plimsoll_watch_copies *ctx)
{
	copies_watched = ctx->watched;
	return 0;
}

SEC("syscall")
int default_set(struct plimsoll_default *ctx)
{
	default_line = *ctx;
	return 0;
}

SEC("syscall")
int read_counters(struct plimsoll_counters *ctx)
{
	*ctx = counters;
	return 0;
}

#endif
