/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The floor: before reclaim takes clean file memory below the line, the first living process of a table that user space
 * keeps is ended. One at a time: nobody else until it is gone, or has not gone for too long.
 */
#ifndef PLIMSOLL_WORKINGSET_FLOOR_H
#define PLIMSOLL_WORKINGSET_FLOOR_H

/* Reclaim looks for 32 pages (SWAP_CLUSTER_MAX); half of that is progress. */
#define PROGRESS_PAGES 16
#define SOFT_APART_NS 1000000
/*
 * So often in a row a thread found nothing at all, at any priority. The kernel lets it try sixteen times
 * (MAX_RECLAIM_RETRIES, mm/internal.h, 6.1 to 7.2) before it has its OOM killer choose.
 */
#define BARREN_MAX 8
/* Reclaim that finds nothing may be put to sleep for half a second (VMSCAN_THROTTLE_NOPROGRESS, mm/vmscan.c). */
#define BARREN_APART_NS 1000000000ll
/* A cgroup with less left than is charged at once (MEMCG_CHARGE_BATCH) is at its limit; of a huge page, one below. */
#define CHARGE_PAGES 64
#define CHARGE_HUGE_PAGES 512
/* include/linux/gfp_types.h, 6.1 to 7.2 */
#define GFP_FS 0x80u
#define GFP_RETRY_MAYFAIL 0x4000u
#define GFP_NORETRY 0x10000u
#define COSTLY_ORDER 3
/* Nobody of the table lives: the next one is due within 100 ms. */
#define NOBODY_APART_NS 10000000
/* From one word that a table is wanted to the next. */
#define NEAR_APART_NS 10000000
/* A victim that is exiting is waited for as many times as long. */
#define EXITING_TIMES 10

#define TICK_NS 10000000

enum scope {
	MACHINE,
	CGROUP,
};

enum condition {
	GONE,
	LIVING,
	DYING,
	EXITING,
};

/* What the line was crossed with. */
struct crossing {
	struct plimsoll_floor *floor;
	struct plimsoll_floor_state *state;
	__u64 now;
	__u64 claim;
	__s64 clean_pages;
	__s64 free_pages;
	bool barren;
};

static __always_inline void count(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* User space may know the start of a process by clock ticks alone: /proc/PID/stat tells no more (USER_HZ is 100). */
static __always_inline bool has_started(struct task_struct *leader, __u64 start_ns)
{
	return leader->start_boottime / TICK_NS == start_ns / TICK_NS;
}

/* Of a process's leader. Its memory is freed before its last thread becomes a zombie (do_exit(): exit_mm, exit_notify). */
static __always_inline enum condition condition_of(struct task_struct *leader, __u64 start_ns)
{
	struct signal_struct *signal = leader->signal;

	if (!has_started(leader, start_ns) || (leader->exit_state && signal->nr_threads <= 1))
		return GONE;
	if (leader->flags & PF_EXITING && is_dying(signal))
		return EXITING;
	return is_dying(signal) ? DYING : LIVING;
}

__noinline int look_up(__u32 tgid, __u64 start_ns)
{
	enum condition condition = GONE;
	struct task_struct *leader;

	if (!finds_others())
		return LIVING;
	leader = find_task(tgid);
	if (!leader)
		return GONE;
	condition = condition_of(leader, start_ns);
	bpf_task_release(leader);
	return condition;
}

static __always_inline bool is_current(const struct plimsoll_floor_victim *victim)
{
	struct task_struct *task = LOOSE(task_struct, bpf_get_current_task_btf());

	return task->tgid == (int)victim->tgid && has_started(task->group_leader, victim->start_ns);
}

/* Whether somebody was taken who has to be waited for. `until` is the claim as it was read once. */
static __always_inline bool is_held(struct crossing *at, __u64 until)
{
	struct plimsoll_floor_state *state = at->state;
	__u64 long_until = until + (EXITING_TIMES - 1) * at->floor->hold_ns;

	/* Whoever claimed has not said yet whom. */
	if (!until || state->victim_claim != until)
		return at->now < until;
	/* The kernel's OOM killer takes one that is dying already again, and then its memory at once: better than another. */
	if (at->barren)
		until = long_until;
	if (!finds_others())
		return at->now < until;
	switch (look_up(state->victim.tgid, state->victim.start_ns)) {
	case GONE:
		return false;
	case EXITING:
		return at->now < long_until;
	default:
		return at->now < until;
	}
}

static __noinline int tell(struct crossing *at, struct plimsoll_floor_victim *victim, __u32 kind)
{
	struct plimsoll_workingset_record *out;
	struct task_struct *task = bpf_get_current_task_btf();

	if (!at || !victim)
		return 0;
	out = bpf_ringbuf_reserve(&events, sizeof(*out), 0);
	if (!out) {
		count(&at->state->lost);
		return 0;
	}
	__builtin_memset(out, 0, sizeof(*out));
	out->time_ns = at->now;
	out->cgroup = inode_of(group_of(task));
	out->clean_pages = at->clean_pages;
	out->line_pages = at->floor->line_pages;
	out->locked_pages = at->floor->locked_pages;
	out->free_pages = at->free_pages;
	out->victim = *victim;
	out->kind = kind;
	out->reclaimer = task->tgid;
	bpf_ringbuf_submit(out, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Whom a claim is about. Last of all that it is: who reads it sees the rest (is_held()). */
static __always_inline void name_victim(struct crossing *at, struct plimsoll_floor_victim *victim, __u64 asked_ns)
{
	at->state->victim = *victim;
	at->state->asked_ns = asked_ns;
	__sync_lock_test_and_set(&at->state->victim_claim, at->claim);
}

static __always_inline long send(struct plimsoll_floor_victim *victim)
{
	struct task_struct *leader;
	long result = -ESRCH;

	if (is_current(victim))
		return send_signal(bpf_get_current_task_btf(), SIGKILL);
	leader = find_task(victim->tgid);
	if (leader) {
		if (has_started(leader, victim->start_ns))
			result = send_signal(leader, SIGKILL);
		bpf_task_release(leader);
	}
	return result;
}

/* Whether the daemon was asked for this one before, and has not answered by now. */
static __always_inline bool is_unanswered(struct crossing *at, struct plimsoll_floor_victim *victim)
{
	struct plimsoll_floor_state *state = at->state;

	return state->asked_ns && state->victim.tgid == victim->tgid && state->victim.start_ns == victim->start_ns;
}

static __always_inline bool is_in_table(struct crossing *at, struct plimsoll_floor_victim *found)
{
	int place;

	for (place = 0; place < PLIMSOLL_FLOOR_VICTIMS; place++) {
		struct plimsoll_floor_victim *one = &at->floor->victims[place];

		if (one->tgid && is_current(one)) {
			*found = *one;
			return true;
		}
	}
	return false;
}

static __noinline int take(struct crossing *at, struct plimsoll_floor_victim *victim)
{
	struct plimsoll_floor_victim own = {};

	if (!at || !victim)
		return 0;
	if (!is_current(victim) && is_unanswered(at, victim) && is_in_table(at, &own))
		*victim = own;
	if (!send(victim)) {
		name_victim(at, victim, 0);
		count(&at->state->taken);
		return tell(at, victim, PLIMSOLL_WORKINGSET_TAKEN);
	}
	/* Before Linux 6.13, and for kswapd, which may signal nobody. */
	name_victim(at, victim, at->now);
	return tell(at, victim, PLIMSOLL_WORKINGSET_ASK);
}

/*
 * Who is in reclaim may do what kswapd, or another, could but ask for: the daemon may be waiting for its own pages. It kills
 * the same process if it comes to it.
 */
static __noinline int take_asked(struct crossing *at, __u64 until)
{
	struct plimsoll_floor_victim victim = {};
	__u64 asked;

	if (!at || at->state->victim_claim != until || bpf_get_current_task_btf()->flags & PF_KTHREAD)
		return 0;
	asked = at->state->asked_ns;
	victim = at->state->victim;
	if (!asked || (!is_current(&victim) && !signals_others()) ||
	    __sync_val_compare_and_swap(&at->state->asked_ns, asked, 0) != asked)
		return 0;
	if (send(&victim)) {
		at->state->asked_ns = asked;
		return 0;
	}
	count(&at->state->taken);
	return tell(at, &victim, PLIMSOLL_WORKINGSET_TAKEN);
}

/* The first of the table that lives; nobody while one before it is dying. */
static __noinline int choose(struct crossing *at)
{
	struct plimsoll_floor_victim victim = {};
	int place;

	if (!at)
		return 0;
	for (place = 0; place < PLIMSOLL_FLOOR_VICTIMS; place++) {
		victim = at->floor->victims[place];
		if (!victim.tgid)
			break;
		/* It had its time, and where the kernel cannot be asked that is all that is known. */
		if (!finds_others() && !at->state->asked_ns && at->state->victim.start_ns == victim.start_ns &&
		    at->state->victim.tgid == victim.tgid)
			continue;
		switch (look_up(victim.tgid, victim.start_ns)) {
		case GONE:
			continue;
		case LIVING:
			return take(at, &victim);
		default:
			/* One that had its time is stuck. */
			if (at->state->victim.tgid == victim.tgid && at->state->victim.start_ns == victim.start_ns)
				continue;
			name_victim(at, &victim, 0);
			return 0;
		}
	}
	victim.tgid = 0;
	at->state->claimed_until_ns = at->now + NOBODY_APART_NS;
	return tell(at, &victim, PLIMSOLL_WORKINGSET_NOBODY);
}

/* Memory is short, and clean memory is below the line or none of it can be taken. */
static __noinline int act(struct crossing *at)
{
	__u64 until;

	if (!at)
		return 0;
	count(&at->state->below);
	if (at->now >= at->floor->valid_until_ns) {
		count(&at->state->stale);
		return 0;
	}
	until = at->state->claimed_until_ns;
	if (at->now < at->floor->hold_until_ns)
		return 0;
	if (is_held(at, until))
		return take_asked(at, until);
	at->claim = at->now + at->floor->hold_ns;
	if (__sync_val_compare_and_swap(&at->state->claimed_until_ns, until, at->claim) != until)
		return 0;
	return choose(at);
}

/* User space looks ten times a second, too late where little memory is left to take: reclaim near the line wakes it. */
static __noinline int want_table(struct crossing *at)
{
	struct plimsoll_floor_victim nobody = {};

	if (!at || at->now < at->floor->valid_until_ns || !comes_due(&at->state->near_ns, at->now, NEAR_APART_NS))
		return 0;
	return tell(at, &nobody, PLIMSOLL_WORKINGSET_NEAR);
}

/* Once in a while: the soft tier is to go. */
static __noinline int tell_soft(struct plimsoll_floor_state *state, bool limited, unsigned long reclaimed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_workingset_record *out;
	__u64 now = bpf_ktime_get_ns();

	if (!state || !comes_due(&state->soft_ns, now, SOFT_APART_NS))
		return 0;
	out = bpf_ringbuf_reserve(&events, sizeof(*out), 0);
	if (!out) {
		count(&state->lost);
		return 0;
	}
	__builtin_memset(out, 0, sizeof(*out));
	out->time_ns = now;
	out->cgroup = inode_of(group_of(task));
	out->kind = PLIMSOLL_WORKINGSET_SOFT;
	out->reclaimer = task->tgid;
	out->limited = limited;
	out->reclaimed = reclaimed;
	bpf_ringbuf_submit(out, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/*
 * Whether more is free than where memory is short. Where reclaim found nothing that is much less: a cgroup is at its limit, and
 * a machine has what the kernel keeps for itself.
 */
static __always_inline bool is_free(const struct plimsoll_floor *told, __s64 free_pages, bool barren)
{
	if (!barren)
		return free_pages > told->free_max_pages;
	return free_pages > (told->cgroup ? CHARGE_PAGES : told->free_max_pages >> 2);
}

/* At the begin of reclaim; or, `barren`, after it has found nothing again and again. */
static __noinline int look_at_floor(enum scope scope, bool barren)
{
	struct plimsoll_floor *told;
	struct crossing at = {};
	struct stock stock = {};
	__u32 zero = 0;
	bool known;
	__u64 group;

	told = bpf_map_lookup_elem(&floor_line, &zero);
	if (!told || !(told->line_pages || told->reserve_pages) || (scope == CGROUP) != (told->cgroup != 0))
		return 0;
	at.floor = told;
	at.state = bpf_map_lookup_elem(&floor_state, &zero);
	if (!at.state)
		return 0;
	group = group_of(bpf_get_current_task_btf());
	if (scope == CGROUP) {
		group = find_above(group, told->cgroup);
		if (!group)
			return 0;
		known = read_cgroup(&stock, group, told->dirty_pages);
	} else {
		known = group && read_machine(&stock, group);
	}
	count(known ? &at.state->checks : &at.state->blind);
	at.clean_pages = (stock.clean_pages > 0 ? stock.clean_pages : 0) + told->locked_pages;
	at.free_pages = stock.free_pages;
	if (!known || is_free(told, at.free_pages, barren))
		return 0;
	/* Ahead of need: the kernel tries sixteen times, and waits for nobody to wake up. */
	if (!barren && told->reserve_pages && stock.clean_pages < told->reserve_pages)
		tell_soft(at.state, scope == CGROUP, 0);
	if (at.clean_pages >= 2 * told->line_pages)
		return 0;
	at.now = bpf_ktime_get_ns();
	at.barren = barren;
	want_table(&at);
	return barren || at.clean_pages < told->line_pages ? act(&at) : 0;
}

/*
 * Who has found nothing before is about to try again: whether the OOM killer comes if that is in vain (mm/page_alloc.c). The
 * tracepoints tell order and flags, since 7.0 or so the other way round: who reclaims has a flag that is larger than any order.
 */
static __always_inline void note_try(enum scope scope, __u32 one, __u32 other)
{
	__u32 order = one < other ? one : other;
	__u32 gfp = one < other ? other : one;
	__u32 thread = bpf_get_current_pid_tgid();
	struct barren *known = bpf_map_lookup_elem(&barren_threads, &thread);

	if (known)
		known->ends = !(gfp & (GFP_RETRY_MAYFAIL | GFP_NORETRY)) && order <= COSTLY_ORDER &&
			      (scope == CGROUP || gfp & GFP_FS);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(on_direct_begin, __u32 one, __u32 other)
{
	note_try(MACHINE, one, other);
	return look_at_floor(MACHINE, false);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(on_limit_begin, __u32 one, __u32 other)
{
	note_try(CGROUP, one, other);
	return look_at_floor(CGROUP, false);
}

/* kswapd's loop has no place of its own before 7.0 or so: this is once for some 32 pages that it looked at. */
SEC("tp_btf/mm_vmscan_lru_shrink_inactive")
int BPF_PROG(on_shrink)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->flags & PF_KSWAPD ? look_at_floor(MACHINE, false) : 0;
}

static long find_bound(__u32 level, struct ascent *ascent)
{
	struct mem_cgroup *bounded = (struct mem_cgroup *)ascent->group;
	__s64 usage;

	if (!bounded || inode_of(ascent->group) == ascent->inode)
		return 1;
	usage = BPF_CORE_READ(bounded, memory.usage.counter);
	if ((__s64)BPF_CORE_READ(bounded, memory.max) - usage < CHARGE_HUGE_PAGES ||
	    (__s64)BPF_CORE_READ(bounded, memory.high) < usage)
		ascent->found = ascent->group;
	ascent->group = parent_of(ascent->group);
	return ascent->found != 0;
}

/* Whether a cgroup from this one up to the one that is protected, and not that one, reclaims for a bound of its own. */
__noinline int is_bound_below(__u64 group, __u64 inode)
{
	struct ascent ascent = { .group = group, .inode = inode };

	bpf_loop(CGROUP_DEPTH, find_bound, &ascent, 0);
	return ascent.found != 0;
}

/*
 * Counts reclaim that found nothing: whether it is time to choose before the kernel does. Pages that are being read, or that
 * somebody else has locked, are clean file memory, too, and cannot be taken. While the soft tier holds something, that is
 * what goes.
 */
static __always_inline bool is_barren(const struct plimsoll_floor *told, __u64 claim, unsigned long reclaimed)
{
	struct barren first = { .time_ns = bpf_ktime_get_ns(), .claim = claim, .times = 1 };
	__u32 thread = bpf_get_current_pid_tgid();
	struct barren *known = bpf_map_lookup_elem(&barren_threads, &thread);

	if (reclaimed) {
		if (known)
			known->times = 0;
		return false;
	}
	if (!known) {
		bpf_map_update_elem(&barren_threads, &thread, &first, BPF_ANY);
		return false;
	}
	if (!known->ends)
		return false;
	if (known->claim != claim || (__s64)(first.time_ns - known->time_ns) > BARREN_APART_NS)
		known->times = 0;
	known->time_ns = first.time_ns;
	known->claim = claim;
	known->times++;
	return known->times >= BARREN_MAX && !told->reserve_pages;
}

/* Reclaim ended with so many pages: next comes the kernel's OOM killer, unless the soft tier goes or somebody ends. */
static __always_inline int look_at_progress(enum scope scope, unsigned long reclaimed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_floor_state *state;
	struct plimsoll_floor *told;
	__u32 zero = 0;

	if (is_dying(task->signal))
		return 0;
	told = bpf_map_lookup_elem(&floor_line, &zero);
	state = bpf_map_lookup_elem(&floor_state, &zero);
	if (!told || !state || !(told->line_pages || reclaimed < PROGRESS_PAGES))
		return 0;
	if (told->cgroup && !find_above(group_of(task), told->cgroup))
		return 0;
	if (told->line_pages && (scope == CGROUP) == (told->cgroup != 0) &&
	    !(told->cgroup && is_bound_below(group_of(task), told->cgroup)) &&
	    is_barren(told, state->claimed_until_ns, reclaimed))
		look_at_floor(scope, true);
	return reclaimed < PROGRESS_PAGES ? tell_soft(state, scope == CGROUP, reclaimed) : 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(on_direct_end, unsigned long reclaimed)
{
	return look_at_progress(MACHINE, reclaimed);
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(on_limit_end, unsigned long reclaimed)
{
	return look_at_progress(CGROUP, reclaimed);
}

#endif
