/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the daemon is told, and whether there is one. */
#ifndef PLIMSOLL_LIMITS_TELL_H
#define PLIMSOLL_LIMITS_TELL_H

/* One charge being judged. */
struct event {
	struct task_struct *task;
	struct mm_struct *mm;  /* that the task runs in: another than `e` is of where the event is remote */
	struct plimsoll_mm *e; /* NULL: it has none */
	struct plimsoll_account *account;
	__s64 usage; /* of the account, after */
	__s64 delta;
	__u64 time_ns;
	__u64 signal_ns;
	__s16 signal_error;
	__u16 signal; /* that is sent: the line's may be another by the time that it is told of; 0: none is */
	__u32 flags;
};

static __always_inline void fill_account(struct plimsoll_record *r, struct plimsoll_account *a, __s64 usage)
{
	r->signal = a->signal;
	r->id = a->id;
	r->uid = a->user;
	r->of = a->of;
	r->account = a->index;
	r->usage_pages = usage;
	r->hard_pages = a->hard_pages;
	r->effective_pages = a->effective_pages;
	r->dying_pages = a->dying_pages;
}

static __always_inline void fill_space(struct plimsoll_record *r, struct plimsoll_mm *e, __u64 mm)
{
	r->mm = mm;
	r->mm_pages = pages_of(e);
	r->tgid = e->tgid;
	r->uid = e->uid;
	r->job = e->job;
	r->start_ns = e->start_ns;
	r->weight = weight_of(e);
}

static __always_inline void fill_process(struct plimsoll_record *r, struct event *ev)
{
	struct task_struct *task = ev->task, *leader = BPF_CORE_READ(task, group_leader);
	struct mm_struct *mm = ev->mm;
	unsigned long start, length;

	if (ev->e)
		fill_space(r, ev->e, ev->e->mm);
	if (ev->flags & PLIMSOLL_RECORD_REMOTE)
		return;
	r->tgid = task->tgid;
	r->start_ns = start_of(task);
	r->cgroup_id = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), leader->comm);
	if (ev->flags & PLIMSOLL_RECORD_OTHER)
		return;
	start = BPF_CORE_READ(mm, arg_start);
	length = BPF_CORE_READ(mm, arg_end) - start;
	if (length > sizeof(r->args))
		length = sizeof(r->args);
	/* May fail where the page is swapped out: nothing here can wait for it. */
	if (!bpf_probe_read_user(r->args, length, (void *)start))
		r->args_bytes = length;
}

/*
 * Whether a fatal signal was sent to the process of an address space. It may be gone while this looks: whatever is read
 * then is no fault, and the entry is about to go. Without CONFIG_MEMCG nobody knows the process: taken for ending.
 */
static __always_inline bool is_ending(__u64 key)
{
	struct mm_struct *mm = (struct mm_struct *)key;
	struct task_struct *owner;

	if (!bpf_core_field_exists(mm->owner))
		return true;
	/* Its last process has let go of it (mm_update_next_owner): it is being torn down. */
	owner = BPF_CORE_READ(mm, owner);
	return !owner || BPF_CORE_READ(owner, signal, flags) & SIGNAL_GROUP_EXIT;
}

/*
 * Whether its process is in its own exit, and nobody else runs in it; one that writes a core dump first may take any time.
 * Read of who may be gone as in is_ending. Taken for leaving by mistake, it lives again: check_claims. Global, so that who
 * calls it needs less of the stack.
 */
__noinline int is_leaving(__u64 key)
{
	struct mm_struct *mm = (struct mm_struct *)key;
	struct signal_struct *signal;
	int live;

	if (!bpf_core_field_exists(mm->owner))
		return false;
	signal = BPF_CORE_READ(mm, owner, signal);
	if (!signal || !(BPF_CORE_READ(signal, flags) & SIGNAL_GROUP_EXIT) || BPF_CORE_READ(signal, core_state))
		return false;
	live = BPF_CORE_READ(signal, live.counter);
	return BPF_CORE_READ(mm, mm_users.counter) <= (live > 0 ? live : 1);
}

/* A killed daemon has been told so long before its address space is gone: nobody answers from then on. */
__noinline int daemon_lives(void)
{
	__u64 mm = daemon_mm;

	return mm && !(bpf_core_field_exists(((struct mm_struct *)mm)->owner) && is_ending(mm));
}

/* Everything but what was done the daemon finds out by itself, later. */
static __always_inline bool was_done(__u32 kind)
{
	return kind == PLIMSOLL_RECORD_ACTED || kind == PLIMSOLL_RECORD_NOTIFY;
}

/*
 * Half of the ring is for what was done, which has to reach the daemon that is late or not there yet.
 */
static __always_inline bool has_room_for(__u32 kind)
{
	return was_done(kind) ||
	       bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < bpf_ringbuf_query(&records, BPF_RB_RING_SIZE) / 2;
}

/* Room for a record of this kind, blank; NULL, and counted, where there is none. */
static __always_inline struct plimsoll_record *new_record(__u32 kind)
{
	struct plimsoll_record *r = has_room_for(kind) ? bpf_ringbuf_reserve(&records, sizeof(*r), 0) : 0;

	if (!r) {
		count_one(&counters.records_dropped);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->kind = kind;
	return r;
}

/*
 * Whether one more of an account's records of a kind, whose clock this is, is told of. To tell costs the daemon more than a
 * kill costs here, and anybody can have their processes killed all the time: what goes beyond this is counted, and no kill
 * waits for it. Whom it signalled and does not end, the daemon finds by its look of each second. Global, as those in
 * largest.h.
 */
__noinline int is_told(volatile __u64 *clock)
{
	__u64 now = bpf_ktime_get_ns(), paced, from;
	int i;

	for (i = 0; clock && i < SWAP_TRIES; i++) {
		paced = *clock;
		/* Signed: another CPU's clock may be ahead. */
		from = (__s64)(paced - now) > 0 ? paced : now;
		if (from - now >= told_at_once * told_apart_ns)
			return false;
		if (__sync_val_compare_and_swap(clock, paced, from + told_apart_ns) == paced)
			return true;
	}
	return false;
}

/* Whether a kill is one of those that are only counted. */
static __always_inline bool is_folded(struct event *ev)
{
	struct plimsoll_account *a = ev->account;

	/* Those that were turned away have a pace of their own: see room.h. */
	if (ev->signal_error || !ev->e || is_told(&a->paced_ns))
		return false;
	__sync_fetch_and_or(&ev->e->flags, PLIMSOLL_MM_FOLDED);
	__sync_fetch_and_add(&a->folded, 1);
	return true;
}

static __noinline int emit(struct event *ev, __u32 kind)
{
	struct plimsoll_account *a = ev->account;
	struct plimsoll_record *r;

	if (!a)
		return 0;
	/* For the next daemon only what was done: everything else it finds out, and this has to last until it comes. */
	if (!was_done(kind) && !daemon_lives())
		return 0;
	if (kind == PLIMSOLL_RECORD_ACTED && is_folded(ev))
		return 0;
	r = new_record(kind);
	if (!r) {
		if (kind == PLIMSOLL_RECORD_ACTED && !ev->signal_error)
			count_one(&counters.actions_dropped);
		return -ENOSPC;
	}
	r->flags = ev->flags;
	r->time_ns = ev->time_ns;
	r->signal_ns = ev->signal_ns;
	r->signal_error = ev->signal_error;
	r->delta_pages = ev->delta;
	fill_account(r, a, ev->usage);
	if (ev->signal)
		r->signal = ev->signal;
	fill_process(r, ev);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

/* What is told of an account apart from its crossings: the daemon scans, plans ahead or stops watching. `mm` may be 0. */
__noinline int tell(__u32 account, __u64 mm, __u32 kind)
{
	struct plimsoll_account *a = account_at(account);
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &mm);
	struct plimsoll_record *r;

	if (!a || (mm && !e) || !daemon_lives())
		return 0;
	r = new_record(kind);
	if (!r)
		return -ENOSPC;
	r->flags = PLIMSOLL_RECORD_REMOTE;
	r->time_ns = bpf_ktime_get_ns();
	fill_account(r, a, a->usage_pages);
	if (e)
		fill_space(r, e, mm);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

#endif
