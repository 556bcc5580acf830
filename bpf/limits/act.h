/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What happens near a line and past it: knowing the largest, signalling, telling the daemon. */
#ifndef PLIMSOLL_LIMITS_ACT_H
#define PLIMSOLL_LIMITS_ACT_H

/* One charge being judged. */
struct event {
	struct task_struct *task;
	struct mm_struct *mm;
	struct plimsoll_mm *e;
	struct plimsoll_account *account;
	__s64 usage; /* of the account, after */
	__s64 delta;
	__u64 time_ns;
	__u64 signal_ns;
	__s32 signal_error;
	__u32 flags;
};

static __always_inline __s64 pages_of(struct plimsoll_mm *e)
{
	return word_pages(e->word) + e->shared_pages;
}

static __always_inline void fill_process(struct plimsoll_record *r, struct event *ev)
{
	unsigned long start, length;

	r->mm = (__u64)ev->mm;
	r->mm_pages = pages_of(ev->e);
	r->tgid = ev->e->tgid;
	r->start_ns = ev->e->start_ns;
	if (ev->flags & PLIMSOLL_RECORD_REMOTE)
		return;
	r->tgid = ev->task->tgid;
	r->start_ns = ev->task->group_leader->start_boottime;
	r->cgroup_id = ev->task->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), ev->task->group_leader->comm);
	start = ev->mm->arg_start;
	length = ev->mm->arg_end - start;
	if (length > sizeof(r->args))
		length = sizeof(r->args);
	/* May fail where the page is swapped out: nothing here can wait for it. */
	if (!bpf_probe_read_user(r->args, length, (void *)start))
		r->args_bytes = length;
}

static __noinline int emit(struct event *ev, __u32 kind)
{
	struct plimsoll_account *a = ev->account;
	struct plimsoll_record *r;

	if (!a)
		return 0;
	r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		count_one(&counters.records_dropped);
		return -ENOSPC;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->flags = ev->flags;
	r->time_ns = ev->time_ns;
	r->signal_ns = ev->signal_ns;
	r->signal_error = ev->signal_error;
	r->signal = a->signal;
	r->uid = a->uid;
	r->usage_pages = ev->usage;
	r->hard_pages = a->hard_pages;
	r->effective_pages = a->effective_pages;
	r->dying_pages = a->dying_pages;
	r->delta_pages = ev->delta;
	fill_process(r, ev);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

static __always_inline void mark_dying(struct plimsoll_mm *e, struct plimsoll_account *a)
{
	__s64 own = word_pages(e->word);

	__sync_fetch_and_add(&e->dying_pages, own);
	__sync_fetch_and_add(&a->dying_pages, own);
}

static __always_inline bool in_protected_cgroup(void)
{
	__u64 id;
	int level;

	for (level = 1; level < 8; level++) {
		id = bpf_get_current_ancestor_cgroup_id(level);
		if (!id)
			return false;
		if (bpf_map_lookup_elem(&protected_cgroups, &id))
			return true;
	}
	return false;
}

struct search {
	struct plimsoll_account *account;
	__u64 top_mm;
	__s64 top_pages;
	__s64 runner_up_pages;
};

#define PLIMSOLL_MM_NO_VICTIM (PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_DYING | PLIMSOLL_MM_EXPIRED | PLIMSOLL_MM_GONE)

static long search_one(struct bpf_map *map, __u64 *key, struct plimsoll_mm *e, struct search *search)
{
	__s64 pages;

	if (account_at(word_account(e->word)) != search->account || e->flags & PLIMSOLL_MM_NO_VICTIM)
		return 0;
	pages = pages_of(e);
	if (pages > search->top_pages) {
		search->runner_up_pages = search->top_pages;
		search->top_pages = pages;
		search->top_mm = *key;
	} else if (pages > search->runner_up_pages) {
		search->runner_up_pages = pages;
	}
	return 0;
}

/*
 * Finds the account's largest process among all that are tracked: when the account comes near, and when what was
 * known of it has gone. Not a matter of each event: tens of microseconds. Where it found nobody it is not repeated at
 * once.
 */
static __always_inline void find_largest(struct plimsoll_account *a)
{
	struct search search = { .account = a };
	__u64 now = bpf_ktime_get_ns();

	if (now - a->nobody_ns < search_again_ns)
		return;
	bpf_for_each_map_elem(&mms, search_one, &search, 0);
	a->runner_up_pages = search.runner_up_pages;
	a->top_mm = search.top_mm;
	a->nobody_ns = search.top_mm ? 0 : now;
}

/*
 * Keeps the account's largest process while it is near. `runner_up_pages` bounds every other one from above: it
 * follows each that grows.
 */
static __always_inline void note_largest(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	__u64 top_key = a->top_mm;
	struct plimsoll_mm *top;
	__s64 pages = pages_of(ev->e), top_pages;

	if (!top_key || top_key == (__u64)ev->mm || pages <= a->runner_up_pages)
		return;
	top = bpf_map_lookup_elem(&mms, &top_key);
	top_pages = top ? pages_of(top) : 0;
	if (pages > top_pages && !(ev->e->flags & PLIMSOLL_MM_NO_VICTIM)) {
		a->runner_up_pages = top_pages;
		a->top_mm = (__u64)ev->mm;
	} else {
		a->runner_up_pages = pages;
	}
}

static __always_inline bool is_largest(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	__u64 top_key = a->top_mm;
	struct plimsoll_mm *top;

	if (a->processes == 1)
		return true;
	top = bpf_map_lookup_elem(&mms, &top_key);
	if (!top || account_at(word_account(top->word)) != a || top->flags & PLIMSOLL_MM_NO_VICTIM ||
	    pages_of(top) < a->runner_up_pages)
		find_largest(a);
	return a->top_mm == (__u64)ev->mm;
}

/* Asks the daemon, not more often than it could answer. Another CPU's later event may have asked before: signed. */
static __always_inline void ask(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	__u64 asked = a->asked_ns;

	if (ev->time_ns < a->hold_until_ns || (__s64)(ev->time_ns - asked) < (__s64)ask_again_ns)
		return;
	if (__sync_val_compare_and_swap(&a->asked_ns, asked, ev->time_ns) != asked)
		return;
	__sync_val_compare_and_swap(&a->unanswered_ns, 0, ev->time_ns);
	emit(ev, PLIMSOLL_RECORD_CROSSED);
}

static __always_inline bool nobody_answers(struct event *ev)
{
	__u64 since = ev->account->unanswered_ns;

	/* Signed: a search lies between this event and now, and another CPU may have asked meanwhile. */
	return since && (__s64)(ev->time_ns - since) > (__s64)unanswered_ns &&
	       ev->time_ns >= ev->account->hold_until_ns;
}

/*
 * Claims the account's next victim: one CPU at a time takes one, and only while it is still needed. Between the event
 * and here a search may have gone by, in which another CPU took the largest.
 */
static __always_inline bool claim_victim(struct plimsoll_account *a)
{
	if (__sync_val_compare_and_swap(&a->taking, 0, 1))
		return false;
	if (a->usage_pages - a->dying_pages > a->effective_pages)
		return true;
	__sync_lock_test_and_set(&a->taking, 0);
	return false;
}

static __always_inline void take(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	struct plimsoll_mm *e = ev->e;

	if (!claim_victim(a))
		return;
	if (__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_DYING) & PLIMSOLL_MM_DYING) {
		__sync_lock_test_and_set(&a->taking, 0);
		return;
	}
	ev->signal_error = bpf_send_signal(a->signal);
	if (ev->signal_error) {
		/* Nothing is dying that was not signalled. */
		__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_DYING);
		count_one(&counters.signals_failed);
	} else {
		ev->signal_ns = bpf_ktime_get_ns();
		mark_dying(e, a);
		a->top_mm = 0;
		a->unanswered_ns = 0;
		__sync_fetch_and_add(&a->kills, 1);
		count_one(&counters.kills);
	}
	__sync_lock_test_and_set(&a->taking, 0);
	if (ev->mm->mm_users.counter > ev->task->signal->nr_threads)
		ev->flags |= PLIMSOLL_RECORD_MM_SHARED;
	emit(ev, PLIMSOLL_RECORD_ACTED);
}

/* The line is crossed, what is dying left out: one victim, by this very event if it may be the one. */
static __always_inline void crossed(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	bool unanswered;

	if (ev->e->flags & PLIMSOLL_MM_DYING)
		return;
	if (!a->signal) {
		if (!__sync_lock_test_and_set(&a->notified, 1))
			emit(ev, PLIMSOLL_RECORD_NOTIFY);
		return;
	}
	/* A fault done for somebody else (ptrace, process_vm_writev, khugepaged) never kills the one who did it. */
	if (ev->flags & PLIMSOLL_RECORD_REMOTE || ev->e->flags & (PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_EXPIRED) ||
	    in_protected_cgroup()) {
		ask(ev);
		return;
	}
	if (is_largest(ev)) {
		ev->flags |= PLIMSOLL_RECORD_LARGEST;
		take(ev);
		return;
	}
	unanswered = nobody_answers(ev);
	if (unanswered) {
		ev->flags |= PLIMSOLL_RECORD_UNANSWERED;
		take(ev);
		return;
	}
	ask(ev);
}

/* Usage is at or above the soft limit. */
static __noinline int near(struct task_struct *task, struct mm_struct *mm, struct plimsoll_mm *e, __s64 usage,
			   __s64 delta)
{
	struct plimsoll_account *a = account_at(word_account(e->word));
	struct event ev = { .task = task, .mm = mm, .e = e, .account = a, .usage = usage, .delta = delta };

	if (!a || !task || !mm)
		return 0;
	if (task->mm != mm)
		ev.flags = PLIMSOLL_RECORD_REMOTE;
	if (!a->near && !__sync_val_compare_and_swap(&a->near, 0, 1)) {
		ev.time_ns = bpf_ktime_get_ns();
		find_largest(a);
		/* A huge page, or a whole process, can take usage here in one step; the daemon scans for this record too. */
		need_exact(a);
		emit(&ev, PLIMSOLL_RECORD_NEAR);
	}
	note_largest(&ev);
	if (usage - a->dying_pages <= a->effective_pages)
		return 0;
	ev.time_ns = bpf_ktime_get_ns();
	crossed(&ev);
	return 0;
}

/* What an account is told apart from its events: the daemon scans, plans ahead or stops watching. */
static __noinline int tell(struct task_struct *task, struct mm_struct *mm, struct plimsoll_mm *e,
			   struct plimsoll_account *a, __u32 kind)
{
	struct event ev = { .task = task, .mm = mm, .e = e, .account = a, .flags = PLIMSOLL_RECORD_REMOTE };

	if (!a || !e)
		return 0;
	ev.usage = a->usage_pages;
	ev.time_ns = bpf_ktime_get_ns();
	return emit(&ev, kind);
}

/* Far again 1/64 below the soft limit, so that usage hovering at it does not wake the daemon each time. */
static __always_inline bool becomes_far(struct plimsoll_account *a)
{
	if (!a->near || a->usage_pages >= a->soft_pages - (a->soft_pages >> 6) ||
	    __sync_val_compare_and_swap(&a->near, 1, 0) != 1)
		return false;
	a->notified = 0;
	a->unanswered_ns = 0;
	return true;
}

#endif
