// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The limits guard: exact usage of limited users from the kernel's own counter events, and the kill from the event
 * that crosses a line.
 *
 * tp_btf/rss_stat fires at each change of an address space's counters, without the amount. Since Linux 6.2 a counter
 * is a percpu_counter: a shared count, and a remainder on each CPU. The event's CPU is the only one whose remainder
 * it moved, so count and this remainder tell the change in O(1).
 *
 * The programs hold mechanism and the numbers they were given. They run with the page-table lock held, often: no
 * loops but bounded ones, no waiting.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "wire/limits.h"
#include "limits/maps.h"
#include "limits/charge.h"
#include "limits/track.h"
#include "limits/act.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * An address space not tracked yet: found by its first event, at exec or by a scan. At an event of a process that
 * forked and has not called exec, what it has came from a parent of another user (a server that forks, then changes
 * user): inherited, not charged. While a line is being drawn the first event may be of any old process, and a scan
 * and an exec say nothing about a fork: charged in full.
 */
static __noinline int first_sight(struct task_struct *task, struct mm_struct *mm, bool inherits)
{
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	__s64 pages, usage;
	__u32 account;

	if (!task || !mm || task->flags & PF_KTHREAD)
		return 0;
	account = account_of(uid_of(task));
	if (account == PLIMSOLL_NOBODY)
		return 0;
	e = track(task, mm, account, BLANK);
	if (!e)
		return 0;
	pages = settle_all_cpus(e, mm);
	a = account_at(account);
	if (inherits && a && a->effective_pages != PLIMSOLL_NO_LINE && task->group_leader->flags & PF_FORKNOEXEC)
		__sync_fetch_and_add(&e->shared_pages, pages);
	else
		charge(e, pages, &usage);
	/* One more whose remainders are not known: very many small ones must not pass the line unseen. */
	if (a && need_exact(a))
		tell(task, mm, e, a, PLIMSOLL_RECORD_EXACT);
	return 0;
}

static __always_inline __u64 counter_base(struct mm_struct *mm, int member)
{
	switch (member) {
	case PLIMSOLL_MEMBER_FILE:
		return (__u64)mm->rss_stat[PLIMSOLL_MEMBER_FILE].counters;
	case PLIMSOLL_MEMBER_ANON:
		return (__u64)mm->rss_stat[PLIMSOLL_MEMBER_ANON].counters;
	case PLIMSOLL_MEMBER_SWAP:
		return (__u64)mm->rss_stat[PLIMSOLL_MEMBER_SWAP].counters;
	default:
		return (__u64)mm->rss_stat[PLIMSOLL_MEMBER_SHMEM].counters;
	}
}

static __always_inline __s64 settle_event(struct plimsoll_mm *e, struct mm_struct *mm, int member)
{
	switch (member) {
	case PLIMSOLL_MEMBER_FILE:
		return SETTLE_HERE(e, mm, PLIMSOLL_MEMBER_FILE);
	case PLIMSOLL_MEMBER_ANON:
		return SETTLE_HERE(e, mm, PLIMSOLL_MEMBER_ANON);
	case PLIMSOLL_MEMBER_SWAP:
		return SETTLE_HERE(e, mm, PLIMSOLL_MEMBER_SWAP);
	default:
		return SETTLE_HERE(e, mm, PLIMSOLL_MEMBER_SHMEM);
	}
}

/* The first event since the account became exact: what other CPUs hold of it unfolded is settled as well. */
static __noinline __s64 settle_epoch(struct plimsoll_mm *e, struct mm_struct *mm, struct plimsoll_account *a,
				     __s64 usage)
{
	__s64 pages;

	if (!e || !mm || !a)
		return usage;
	e->epoch = a->exact;
	pages = settle_all_cpus(e, mm);
	if (pages)
		charge(e, pages, &usage);
	return usage;
}

/* What an event on this CPU changed, charged and judged. */
static __always_inline int judge_event(struct task_struct *task, struct mm_struct *mm, struct plimsoll_mm *e,
				       int member)
{
	struct plimsoll_account *a;
	__s64 delta, usage;

	delta = settle_event(e, mm, member);
	if (!delta)
		return 0;
	a = charge(e, delta, &usage);
	if (!a)
		return 0;
	if ((!a->exact || delta < 0) && need_exact(a))
		tell(task, mm, e, a, PLIMSOLL_RECORD_EXACT);
	if (a->exact && e->epoch != a->exact)
		usage = settle_epoch(e, mm, a, usage);
	if (delta > 0 && usage >= a->soft_pages) {
		/* Known to be near, by its largest, and under the line: nothing to do. */
		if (a->near && (!a->top_mm || a->top_mm == (__u64)mm) && usage - a->dying_pages <= a->effective_pages)
			return 0;
		return near(task, mm, e, usage, delta);
	}
	if (delta < 0 && becomes_far(a))
		tell(task, mm, e, a, PLIMSOLL_RECORD_FAR);
	return 0;
}

/* An event done by somebody else than the process: reclaim, khugepaged, ptrace; its own last unmapping at exit. */
static __noinline int on_remote_rss_stat(struct task_struct *task, struct mm_struct *mm, struct plimsoll_mm *e,
					 int member)
{
	__u64 key = (__u64)mm;

	if (!task || !mm || !pin(e, key))
		return 0;
	judge_event(task, mm, e, member);
	unpin(e, key, mm);
	return 0;
}

/* An event of a tracked or limited process. Apart, so that all others pay for no stack of its size. */
static __noinline int on_limited_rss_stat(struct task_struct *task, struct mm_struct *mm, int member)
{
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e;

	if (!task || !mm)
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e) {
		if (task->mm == mm)
			first_sight(task, mm, true);
		return 0;
	}
	if (task->mm != mm)
		return on_remote_rss_stat(task, mm, e, member);
	/* Still being made by another CPU: what this event changed is settled with the next. */
	if (!e->word)
		return 0;
	if (e->flags & PLIMSOLL_MM_GONE) {
		/* Of the address space that was here before; the next event enters this one. */
		forget_gone(e, key, mm);
		return 0;
	}
	if (task->cred->uid.val != e->uid)
		follow_user(e, task);
	if (e->family)
		absorb_family(e);
	return judge_event(task, mm, e, member);
}

SEC("tp_btf/rss_stat")
int BPF_PROG(on_rss_stat, struct mm_struct *mm, int member)
{
	struct task_struct *task;
	__u32 uid;

	if (!(charged_members & 1u << (member & 31)))
		return 0;
	task = bpf_get_current_task_btf();
	uid = task->cred->uid.val;
	if (uid_may_be_limited(uid)) {
		if (!exact_gate[uid % UID_GATE_SLOTS] && !folded(counter_base(mm, member)))
			return 0;
	} else if (!mm_may_be_tracked(mm)) {
		return 0;
	}
	return on_limited_rss_stat(task, mm, member);
}

/* The end of an address space. All its pages are unmapped by now, so what is left of its charge is settled here. */
SEC("tp_btf/exit_mmap")
int BPF_PROG(on_exit_mmap, struct mm_struct *mm)
{
	__u64 key = (__u64)mm;
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_account *a;
	struct plimsoll_mm *e;

	if (!mm_may_be_tracked(mm))
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !pin(e, key))
		return 0;
	a = settle_gone(e);
	if (a) {
		if (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_EXPIRED))
			tell(task, mm, e, a, PLIMSOLL_RECORD_FREED);
		if (becomes_far(a))
			tell(task, mm, e, a, PLIMSOLL_RECORD_FAR);
		/* While nobody waits for it, so that the next crossing need not search. */
		else if (a->near && (!a->top_mm || a->top_mm == key))
			find_largest(a);
		need_exact(a);
	}
	unpin(e, key, mm);
	return 0;
}

/* Charges what is still to be settled of a parent, so that its child shares all that it had. */
static __noinline int settle_parent(struct plimsoll_mm *p, struct mm_struct *mm)
{
	__s64 pages, usage;

	if (!p || !mm)
		return 0;
	pages = settle_all_cpus(p, mm);
	if (pages)
		charge(p, pages, &usage);
	return 0;
}

/* The child has its address space and does not run yet: what it inherits is not charged to it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct mm_struct *mm = child->mm, *parent_mm = parent->mm;
	__u64 parent_key = (__u64)parent_mm;
	__u32 uid = child->cred->uid.val, account;
	struct plimsoll_account *a;
	struct plimsoll_mm *e, *p;
	__s64 pages, usage;

	if (!mm || mm == parent_mm)
		return 0;
	if (mm_may_be_tracked(mm))
		drop_stale(mm, child->tgid);
	if (!uid_may_be_limited(uid))
		return 0;
	account = account_of(uid);
	if (account == PLIMSOLL_NOBODY)
		return 0;
	p = bpf_map_lookup_elem(&mms, &parent_key);
	if (!p && parent_mm) {
		first_sight(parent, parent_mm, true);
		p = bpf_map_lookup_elem(&mms, &parent_key);
	}
	e = track(child, mm, account, BLANK);
	if (!e)
		return 0;
	pages = settle_all_cpus(e, mm);
	if (p)
		settle_parent(p, parent_mm);
	if (!p || !share_on_fork(p, e, pages))
		charge(e, pages, &usage);
	a = account_at(account);
	if (a && need_exact(a))
		tell(child, mm, e, a, PLIMSOLL_RECORD_EXACT);
	return 0;
}

/* A new address space of an old process; the old one ends by exit_mmap. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	if (!mm)
		return 0;
	if (mm_may_be_tracked(mm))
		drop_stale(mm, task->tgid);
	if (uid_may_be_limited(task->cred->uid.val))
		first_sight(task, mm, false);
	return 0;
}

/* A signal ends one process; an address space goes when all that use it have gone. User space sees to the others. */
static __always_inline void report_holder(struct seq_file *seq, struct task_struct *task, __u64 mm)
{
	struct plimsoll_holder holder = {
		.mm = mm,
		.start_ns = task->group_leader->start_boottime,
		.tgid = task->tgid,
		.uid = uid_of(task),
	};

	bpf_seq_write(seq, &holder, sizeof(holder));
}

/*
 * Walks all tasks: enters what ran before its line was set, settles every counter exactly, follows users that changed
 * without an event, and notes who lives. One scan at a time.
 */
SEC("iter/task")
int scan(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	struct mm_struct *mm;
	__s64 pages, usage;
	__u32 account;
	__u64 key;

	if (!task)
		return 0;
	mm = task->mm;
	key = (__u64)mm;
	/* Threads repeat their leader, unless it has exited before them. */
	if (!mm || task->flags & PF_KTHREAD || (task != task->group_leader && task->group_leader->mm == mm))
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (e) {
		if (!pin(e, key))
			return 0;
	} else {
		if (!uid_may_be_limited(uid_of(task)))
			return 0;
		account = account_of(uid_of(task));
		if (account == PLIMSOLL_NOBODY)
			return 0;
		e = track(task, mm, account, BLANK_PINNED);
		if (!e)
			return 0;
	}
	/* It may have ended before it was pinned: then its exit event found nothing to remove. */
	if (task->mm != mm) {
		settle_gone(e);
		unpin(e, key, mm);
		return 0;
	}
	if (uid_of(task) != e->uid)
		follow_user(e, task);
	if (e->family)
		absorb_family(e);
	pages = settle_all_cpus(e, mm);
	a = pages ? charge(e, pages, &usage) : 0;
	if (a)
		need_exact(a);
	e->scan = scan_id;
	if (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_EXPIRED))
		report_holder(ctx->meta->seq, task, key);
	unpin(e, key, mm);
	return 0;
}

SEC("syscall")
int begin_scan(void *ctx)
{
	return __sync_fetch_and_add(&scan_id, 1) + 1;
}

static long sweep_one(struct bpf_map *map, __u64 *key, struct plimsoll_mm *e, struct plimsoll_sweep *sweep)
{
	/* Two scans without a living task of it: its exit event was lost. */
	if (sweep->scan - e->scan < 2)
		return 0;
	if (e->flags & PLIMSOLL_MM_GONE) {
		/* Settled, and left over by a deletion that failed. */
		forget(*key, (struct mm_struct *)*key);
		return 0;
	}
	if (!pin(e, *key))
		return 0;
	settle_gone(e);
	unpin(e, *key, (struct mm_struct *)*key);
	count_one(&counters.phantoms);
	sweep->removed++;
	return 0;
}

SEC("syscall")
int sweep(struct plimsoll_sweep *ctx)
{
	struct plimsoll_sweep local = { .scan = scan_id };

	bpf_for_each_map_elem(&mms, sweep_one, &local, 0);
	ctx->scan = local.scan;
	ctx->removed = local.removed;
	return 0;
}

/* Draws a user's line, or moves it. */
SEC("syscall")
int line_set(struct plimsoll_line_set *ctx)
{
	__u32 uid = ctx->uid, index = 0, *known = bpf_map_lookup_elem(&uid_accounts, &uid);
	__s64 hard = ctx->hard_pages;
	struct plimsoll_account *a;
	bool fresh = !known;
	__s64 reach;

	ctx->result = -ENOSPC;
	if (known)
		index = *known;
	else if (bpf_map_pop_elem(&free_accounts, &index))
		return 0;
	a = account_at(index);
	if (!a)
		return 0;
	a->uid = uid;
	a->signal = ctx->signal;
	a->from_default = ctx->from_default;
	if (fresh) {
		a->usage_pages = 0;
		a->effective_pages = PLIMSOLL_NO_LINE;
	}
	a->soft_pages = ctx->soft_pages;
	a->hard_pages = hard;
	/* What is not settled yet may make it more: once all is, the line is drawn again, at the very usage. */
	reach = a->usage_pages;
	if (need_exact(a))
		reach += (__s64)a->processes * loose_pages_per_mm;
	if (ctx->enforce == PLIMSOLL_LINE_RATCHET)
		a->effective_pages = reach > hard ? reach : hard;
	else
		a->effective_pages = ctx->enforce == PLIMSOLL_LINE_NOW ? hard : PLIMSOLL_NO_LINE;
	a->hold_until_ns = 0;
	a->notified = 0;
	a->in_use = 1;
	if (fresh) {
		if (bpf_map_update_elem(&uid_accounts, &uid, &index, BPF_NOEXIST)) {
			a->in_use = 0;
			bpf_map_push_elem(&free_accounts, &index, BPF_ANY);
			return 0;
		}
		if (!ctx->from_default)
			__sync_fetch_and_add(&uid_gate[uid % UID_GATE_SLOTS], 1);
	}
	ctx->account = index;
	ctx->result = 0;
	return 0;
}

static long release_one(struct bpf_map *map, __u64 *key, struct plimsoll_mm *e, __u32 *account)
{
	if (word_account(e->word) != *account || !pin(e, *key))
		return 0;
	settle_gone(e);
	unpin(e, *key, (struct mm_struct *)*key);
	return 0;
}

static long orphan_one(struct bpf_map *map, __u64 *key, struct plimsoll_family *f, __u32 *account)
{
	if (f->account == *account)
		f->account = PLIMSOLL_NOBODY;
	return 0;
}

/* Takes a user's line away and stops tracking its processes. */
SEC("syscall")
int line_clear(struct plimsoll_line_clear *ctx)
{
	__u32 uid = ctx->uid, index, *known = bpf_map_lookup_elem(&uid_accounts, &uid);
	struct plimsoll_account *a, empty = {};

	ctx->result = -ENOENT;
	if (!known)
		return 0;
	index = *known;
	a = account_at(index);
	if (!a)
		return 0;
	if (!a->from_default)
		__sync_fetch_and_add(&uid_gate[uid % UID_GATE_SLOTS], -1);
	ctx->result = bpf_map_delete_elem(&uid_accounts, &uid);
	bpf_for_each_map_elem(&mms, release_one, &index, 0);
	/* A member that changed its user since keeps its family: it must not charge who gets this account next. */
	bpf_for_each_map_elem(&families, orphan_one, &index, 0);
	if (a->exact)
		__sync_fetch_and_add(&exact_gate[uid % UID_GATE_SLOTS], -1);
	bpf_map_update_elem(&accounts, &index, &empty, BPF_ANY);
	bpf_map_push_elem(&free_accounts, &index, BPF_ANY);
	return 0;
}

/* Both sides select and act on their own: who claims first has the victim, and the other finds that none is needed. */
static __always_inline int mark_claimed(struct plimsoll_mm *e, struct plimsoll_account *a)
{
	bool claimed = claim_victim(a);

	a->unanswered_ns = 0;
	if (!claimed)
		return -EAGAIN;
	if (__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_DYING) & PLIMSOLL_MM_DYING) {
		__sync_lock_test_and_set(&a->taking, 0);
		return -EAGAIN;
	}
	mark_dying(e, a);
	a->top_mm = 0;
	__sync_lock_test_and_set(&a->taking, 0);
	return 0;
}

static __always_inline int mark(struct plimsoll_mm *e, struct plimsoll_account *a, __u32 mark)
{
	if (mark == PLIMSOLL_VICTIM_DYING)
		return mark_claimed(e, a);
	if (mark == PLIMSOLL_VICTIM_EXPIRED)
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_EXPIRED);
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_DYING);
	__sync_fetch_and_add(&a->dying_pages, -(__s64)__sync_lock_test_and_set(&e->dying_pages, 0));
	return 0;
}

/* A victim that user space is about to signal, that could not be signalled, or that did not end in time. */
SEC("syscall")
int mark_victim(struct plimsoll_victim *ctx)
{
	__u64 key = ctx->mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;

	ctx->result = -ESRCH;
	if (!e || !pin(e, key))
		return 0;
	a = account_at(word_account(e->word));
	if (a && e->tgid == ctx->tgid)
		ctx->result = mark(e, a, ctx->mark);
	unpin(e, key, (struct mm_struct *)key);
	return 0;
}

SEC("syscall")
int answer(struct plimsoll_answer *ctx)
{
	struct plimsoll_account *a = account_at(ctx->account);

	ctx->result = -EINVAL;
	if (!a)
		return 0;
	a->hold_until_ns = ctx->hold_until_ns;
	a->unanswered_ns = 0;
	ctx->result = 0;
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

/*
 * CONFIG_KALLSYMS_ALL is not everywhere, so __per_cpu_offset cannot be had by name. The copies of a per-CPU array's
 * value lie at the array's own per-CPU pointer plus that offset; their difference is it. Pointers become numbers by
 * a store to the map and a load from it.
 */
SEC("syscall")
int find_cpu_offsets(void *ctx)
{
	volatile __u64 *cell;
	__u64 map, base = 0;
	__u32 zero = 0, cpu;
	void *copy;

	cell = bpf_map_lookup_elem(&cpu_offsets, &zero);
	if (!cell)
		return -ENOENT;
	*(void *volatile *)cell = &anchor;
	map = *cell;
	bpf_probe_read_kernel(&base, sizeof(base), (void *)(map + bpf_core_field_offset(struct bpf_array, pptrs)));
	for (cpu = 0; cpu < nr_cpus; cpu++) {
		copy = bpf_map_lookup_percpu_elem(&anchor, &zero, cpu);
		cell = bpf_map_lookup_elem(&cpu_offsets, &cpu);
		if (!copy || !cell)
			return -ENOENT;
		*(void *volatile *)cell = copy;
		*cell -= base;
	}
	return 0;
}
