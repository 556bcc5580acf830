/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What happens near a line and past it: asking, claiming, signalling. */
#ifndef PLIMSOLL_LIMITS_ACT_H
#define PLIMSOLL_LIMITS_ACT_H

/* Asks the daemon, not more often than it could answer. */
static __always_inline void ask(struct event *ev)
{
	struct plimsoll_account *a = ev->account;

	if (ev->time_ns < a->shared_hold_until_ns && remaining_own(a, ev->usage) <= a->effective_pages)
		return;
	if (ev->time_ns < a->hold_until_ns || !comes_due(&a->asked_ns, ev->time_ns, ask_again_ns))
		return;
	__sync_val_compare_and_swap(&a->unanswered_ns, 0, ev->time_ns);
	emit(ev, PLIMSOLL_RECORD_CROSSED);
}

/* No daemon lives, or it does not answer: known by its end, and by the clock. */
static __always_inline bool nobody_answers(struct event *ev)
{
	__u64 since = ev->account->unanswered_ns;

	if (!daemon_lives())
		return true;
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
	if (remaining(a, a->usage_pages) > a->effective_pages)
		return true;
	__sync_lock_test_and_set(&a->taking, 0);
	return false;
}

/*
 * Nobody waits for it any more: what it would give back is not on its way, and it may be its account's largest again, which the
 * next choice finds out.
 */
__noinline int live_again(__u64 key, __u32 no_more)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e)
		return 0;
	__sync_fetch_and_and(&e->flags, ~(no_more | PLIMSOLL_MM_FOLDED));
	settle_dying_space(key);
	settle_living(e);
	search_anew_from(word_account(e->word), true);
	return 0;
}

/*
 * It became another user's, claimed for the line of the one before and sent nothing that can be seen: its own event does not
 * end it for that line. The daemon's signal may be on its way: dying it stays until the daemon has sent it, or thinks better
 * of it.
 */
__noinline int leave_line(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e || e->sent || is_ending(key))
		return 0;
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_CONDEMNED);
	/* Another thread of its ended it just now: see spare(). */
	if (e->sent || is_ending(key))
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
	return 0;
}

static __always_inline bool claim_for(struct plimsoll_account *a, struct plimsoll_mm *e)
{
	if (!claim_victim(a))
		return false;
	if (!(__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_DYING) & PLIMSOLL_MM_DYING)) {
		e->claimed = a->index;
		if (is_charged(word_account(e->word), a->index))
			return true;
		/* It became another user's meanwhile. */
		live_again(e->mm, PLIMSOLL_MM_DYING);
	}
	__sync_lock_test_and_set(&a->taking, 0);
	return false;
}

/*
 * What a claimed victim is sent. Of an account that asks its victims to end no more is asked than is left out of its usage,
 * but for the first, however much it holds.
 */
static __always_inline void decide_signal(struct event *ev, struct plimsoll_mm *e)
{
	struct plimsoll_account *a = ev->account;
	__s64 dying = a->dying_pages;

	if (ev->signal != SIGTERM || dying <= 0 || dying + word_pages(e->word) + copies_of(e) <= dying_bound(a))
		return;
	ev->signal = SIGKILL;
	ev->flags |= PLIMSOLL_RECORD_NO_GRACE;
}

/*
 * A signal from here waits for an interrupt where interrupts are off: noted before it is sent, so that the victim's next
 * event does not send it again.
 */
static __always_inline void note_sent(struct event *ev, struct plimsoll_mm *e)
{
	if (ev->signal != SIGKILL)
		return;
	e->sent = ev->task->tgid;
	__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
}

/* Sends the signal to a claimed victim, and ends the claim. Whether it was sent. */
static __always_inline bool signal_claimed(struct event *ev, struct plimsoll_mm *e)
{
	struct plimsoll_account *a = ev->account;
	struct task_struct *task = ev->task;

	decide_signal(ev, e);
	note_sent(ev, e);
	ev->signal_error = send_signal(ev->task, ev->signal);
	if (ev->signal_error) {
		/* Nothing is dying that was not signalled. */
		e->sent = 0;
		live_again(e->mm, PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED);
		count_one(&counters.signals_failed);
	} else {
		ev->signal_ns = bpf_ktime_get_ns();
		/* From here on others that use its memory have as long to end as an answer may take: see claims_are_old(). */
		if (!daemon_lives())
			a->asked_ns = ev->signal_ns;
		mark_dying(e);
		a->unanswered_ns = 0;
		__sync_fetch_and_add(&a->kills, 1);
		count_one(&counters.kills);
	}
	__sync_lock_test_and_set(&a->taking, 0);
	if (ev->mm->mm_users.counter > BPF_CORE_READ(task, signal, nr_threads))
		ev->flags |= PLIMSOLL_RECORD_MM_SHARED;
	return !ev->signal_error;
}

/* The process whose event this is. */
static __always_inline void take(struct event *ev)
{
	if (!claim_for(ev->account, ev->e))
		return;
	signal_claimed(ev, ev->e);
	emit(ev, PLIMSOLL_RECORD_ACTED);
}

/* Whether its process was sent a fatal signal, arrived or not. Another that uses the same memory was not. */
static __always_inline bool may_be_ending(struct plimsoll_mm *e, __u64 key)
{
	struct mm_struct *mm = (struct mm_struct *)key;

	return is_ending(key) || (e->sent && e->sent == (__u32)BPF_CORE_READ(mm, owner, tgid));
}

/*
 * A claim that came to nothing. Its own event may end it just now: it looks for the flag after it has noted itself, and here it
 * is the other way round. False: it is ending.
 */
static __always_inline bool spare(struct plimsoll_mm *e, __u64 key)
{
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_CONDEMNED);
	if (may_be_ending(e, key)) {
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
		return false;
	}
	e->sent = 0;
	live_again(key, PLIMSOLL_MM_DYING);
	return true;
}

/* Claimed as a victim of this account, and sent nothing that can be seen. */
static __always_inline bool is_unsent(struct plimsoll_mm *e, struct plimsoll_account *a, __u64 key)
{
	return e->claimed == a->index && is_charged(word_account(e->word), a->index) && e->flags & PLIMSOLL_MM_DYING &&
	       !(e->flags & PLIMSOLL_MM_LEFT) && !may_be_ending(e, key);
}

static long revive_one(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e,
		       struct plimsoll_account **account)
{
	struct plimsoll_account *a = *account;
	__u64 key = *at;

	if (!is_unsent(e, a, key) || !pin(e, key))
		return 0;
	/* Before it was pinned it may have become the entry of somebody else. */
	if (is_unsent(e, a, key))
		spare(e, key);
	unpin(e);
	return 0;
}

/* When it began that nobody answers; without a daemon, when claims were looked at last. */
static __always_inline volatile __u64 *claims_clock(struct plimsoll_account *a)
{
	return daemon_lives() ? &a->unanswered_ns : &a->asked_ns;
}

/* Whether claims are to be looked at: unanswered for too long; with no daemon alive now and then, nobody else does. */
static __always_inline bool claims_are_old(struct plimsoll_account *a)
{
	__u64 now = bpf_ktime_get_ns(), since = *claims_clock(a), claimed = a->unanswered_ns;

	/* A daemon that died just now may have a signal on its way. */
	if (claimed && (__s64)(now - claimed) <= (__s64)unanswered_ns)
		return false;
	return (since || !daemon_lives()) && (__s64)(now - since) > (__s64)unanswered_ns;
}

/*
 * The line is kept only by what is dying. A victim that the daemon claimed and did not live to signal is not dying, nor
 * one that only seemed to be leaving: it lives again, so that the next event takes one. A victim that was asked by
 * SIGTERM may take its time. Nobody claims one meanwhile: it would be let go.
 */
static __always_inline void check_claims(struct event *ev)
{
	struct plimsoll_account *a = ev->account;

	if (a->signal != SIGKILL || !claims_are_old(a) || __sync_val_compare_and_swap(&a->taking, 0, 1))
		return;
	if (claims_are_old(a)) {
		*claims_clock(a) = daemon_lives() ? 0 : bpf_ktime_get_ns();
		bpf_for_each_map_elem(&mms, revive_one, &a, 0);
	}
	__sync_lock_test_and_set(&a->taking, 0);
}

/* For whose line a dying one was taken; whose it is now, where nobody knows. */
static __always_inline struct plimsoll_account *claimant_of(struct plimsoll_mm *e)
{
	__u32 account = word_account(e->word);

	return account_at(is_charged(account, e->claimed) ? e->claimed : account);
}

/*
 * Whoever runs in a condemned address space ends by its own next event, until that is gone: another process than the
 * victim, or the victim itself where the daemon that claimed it died before its signal, or has not come to it yet. In the
 * middle of an exec (load_elf_binary sets start_stack last, 6.1 to 7.2) the entry may be of what was at this address
 * before. Global: see note_left.
 */
__noinline int end_with_victim(__u64 key)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a = e ? claimant_of(e) : 0;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct event ev = {
		.task = task, .mm = mm, .e = e, .account = a, .signal = SIGKILL, .flags = PLIMSOLL_RECORD_LARGEST
	};
	__u32 sent;

	/* Its line asks: it was to have a grace period, and ends before that is over. */
	if (a && a->signal == SIGTERM)
		ev.flags |= PLIMSOLL_RECORD_NO_GRACE;
	if (!e || !a || !mm || !BPF_CORE_READ(mm, start_stack) || is_dying(task->signal) || in_protected_cgroup(task))
		return 0;
	sent = __sync_lock_test_and_set(&e->sent, task->tgid);
	if (sent == (__u32)task->tgid)
		return 0;
	/* Spared just now: see spare(). */
	if (!(e->flags & PLIMSOLL_MM_CONDEMNED)) {
		__sync_val_compare_and_swap(&e->sent, task->tgid, sent);
		return 0;
	}
	ev.time_ns = bpf_ktime_get_ns();
	ev.signal_error = send_signal(task, SIGKILL);
	if (ev.signal_error) {
		__sync_val_compare_and_swap(&e->sent, task->tgid, sent);
		return 0;
	}
	count_one(&counters.kills);
	/* Told is the first one: the daemon may come too late to signal whom it claimed. Who shared its memory is not. */
	if (sent && daemon_lives())
		return 0;
	ev.signal_ns = bpf_ktime_get_ns();
	ev.usage = a->usage_pages;
	__sync_fetch_and_add(&a->kills, 1);
	emit(&ev, PLIMSOLL_RECORD_ACTED);
	return 0;
}

/* A process that is born in a condemned address space ends before it runs: a chain of them would hold the memory for ever. */
static __always_inline void end_child(__u64 key, struct task_struct *parent, struct task_struct *child)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e || !(e->flags & PLIMSOLL_MM_CONDEMNED) || child->tgid == parent->tgid)
		return;
	end_with_victim(e->mm);
	if (!in_protected_cgroup(child) && !send_signal(child, SIGKILL))
		count_one(&counters.kills);
}

/*
 * Whether a process other than the event's was taken, or need not be any more. Else the programs cannot or must not: the
 * daemon may know more.
 */
static __always_inline bool signal_other(struct event *ev, struct plimsoll_mm *e, struct task_struct *victim, __u64 key)
{
	struct mm_struct *mm = victim->mm;
	struct event done = { .task = victim,
			      .mm = mm,
			      .e = e,
			      .account = ev->account,
			      .usage = ev->usage,
			      .delta = ev->delta,
			      .time_ns = ev->time_ns,
			      .signal = ev->signal,
			      .flags = PLIMSOLL_RECORD_LARGEST | PLIMSOLL_RECORD_OTHER };

	/* It may be another user's by now, or its subordinate uid another: for the daemon to find out. */
	if (victim->start_boottime != e->start_ns || !mm || (__u64)mm != key || victim->flags & PF_EXITING ||
	    in_protected_cgroup(victim) || uid_of(owner_of(key, victim)) != e->uid)
		return false;
	if (!claim_for(ev->account, e))
		return true;
	if (!signal_claimed(&done, e))
		return false;
	emit(&done, PLIMSOLL_RECORD_ACTED);
	return true;
}

/* Another process than the event's, asleep or not: Linux 6.13 and later. */
static __noinline bool take_other(struct event *ev, __u64 key)
{
	struct task_struct *victim;
	struct plimsoll_mm *e;
	bool taken = false;

	if (!ev || !signals_others())
		return false;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !pin(e, key))
		return false;
	if (ev->account && is_charged(word_account(e->word), ev->account->index)) {
		victim = find_task(e->tgid);
		if (victim) {
			taken = signal_other(ev, e, victim, key);
			bpf_task_release(victim);
		}
	}
	unpin(e);
	return taken;
}

/* Whether the process that allocated may be taken by its own event. */
static __always_inline bool may_take_own(struct event *ev)
{
	/* A fault done for somebody else (ptrace, process_vm_writev, khugepaged) never kills the one who did it. */
	return !(ev->flags & PLIMSOLL_RECORD_REMOTE) &&
	       !(ev->e->flags & (PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_NEVER | PLIMSOLL_MM_CONDEMNED)) &&
	       !in_protected_cgroup(ev->task);
}

/*
 * Whether somebody could go, if not by this event, who comes before it: because it keeps to its grants, or a session stands
 * on it. No further past the line than one process of a session may hold.
 */
static __always_inline bool goes_after_another(struct event *ev)
{
	struct plimsoll_account *a = ev->account;

	return tiers_of(rank_of(a, ev->e)) > tiers_of(rank_in(largest_known(a).rank)) &&
	       ev->usage - a->effective_pages <= a->hard_pages >> PLIMSOLL_SESSION_SHIFT;
}

/* Whether both are forks of one process: who they are forks of gives nothing back that they share. */
static __always_inline bool are_forks(struct plimsoll_mm *e, struct plimsoll_mm *other)
{
	__u64 family = e->family;
	struct plimsoll_family *f = family && family == other->family ? bpf_map_lookup_elem(&families, &family) : 0;

	return f && f->founder != e->mm;
}

/*
 * Whether who allocates goes before the largest, enough or not: while much is dying and not freed, if both are forks of one
 * process, or it has half as much of its own. Where very many want a CPU, those that are dying wait for one, and would be
 * more and more; who allocates has one to end with.
 */
static __always_inline bool goes_before_largest(struct event *ev, __u64 largest)
{
	struct plimsoll_account *a = ev->account;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &largest);

	if (!e || ev->signal != SIGKILL || a->dying_pages <= a->hard_pages >> PLIMSOLL_DYING_SHIFT)
		return false;
	return tiers_of(rank_of(a, ev->e)) == tiers_of(rank_of(a, e)) &&
	       (are_forks(ev->e, e) || 2 * word_pages(ev->e->word) * weight_of(ev->e) >= pages_of(e) * weight_of(e));
}

/* The largest goes by this very event, whoever it is. Those that are leaving by themselves are passed over. */
static __always_inline bool take_largest(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	__u64 key = 0;
	int i;

	note_known_left(a->index);
	if (remaining_own(a, a->usage_pages) <= a->effective_pages)
		return true;
	for (i = 0; i <= PLIMSOLL_LARGEST; i++) {
		key = choose(a);
		if (!key)
			return false;
		if (key == ev->e->mm || !note_left(a->index, key))
			break;
		if (remaining_own(a, a->usage_pages) <= a->effective_pages)
			return true;
	}
	if ((key == ev->e->mm || goes_before_largest(ev, key)) && may_take_own(ev)) {
		if (key == ev->e->mm)
			ev->flags |= PLIMSOLL_RECORD_LARGEST;
		take(ev);
		return true;
	}
	return take_other(ev, key);
}

/*
 * Who was asked to end ends by its own event where it takes still more: while more is dying than is left out of the usage, or
 * while the account is past its line by as much as may be asked beyond it, since what is shared with others of a family is not
 * dying with it. No daemon has to live for that.
 */
static __always_inline bool outgrows_grace(struct event *ev)
{
	struct plimsoll_account *a = ev->account;

	return kernel_trigger && ev->delta > 0 && was_asked(ev->e, a) &&
	       (a->dying_pages > dying_bound(a) ||
		remaining_own(a, ev->usage) - a->effective_pages > a->hard_pages >> PLIMSOLL_GRACE_SHIFT) &&
	       may_take_own(ev);
}

/* The line is crossed, what is dying left out: one victim, by this very event if that is possible. */
static __always_inline void crossed(struct event *ev)
{
	struct plimsoll_account *a = ev->account;
	bool dying = ev->e->flags & PLIMSOLL_MM_DYING;

	/* Unless others write into its memory. */
	if (dying && !(ev->flags & PLIMSOLL_RECORD_REMOTE && ev->delta > 0))
		return;
	/* Once: it may change meanwhile. */
	ev->signal = a->signal;
	if (!ev->signal) {
		if (!(__sync_fetch_and_or(&a->told, PLIMSOLL_TOLD_NOTIFIED) & PLIMSOLL_TOLD_NOTIFIED))
			emit(ev, PLIMSOLL_RECORD_NOTIFY);
		return;
	}
	/* What a kernel thread does (khugepaged, vhost) is for the daemon. */
	if (kernel_trigger && !(ev->task->flags & PF_KTHREAD) && remaining_own(a, ev->usage) > a->effective_pages) {
		/* Where it was only asked the daemon ends it, before anybody else goes for what is written into it. */
		if ((!dying || nobody_answers(ev)) && take_largest(ev))
			return;
		if (nobody_answers(ev) && may_take_own(ev) && !goes_after_another(ev)) {
			ev->flags |= PLIMSOLL_RECORD_UNANSWERED;
			take(ev);
			return;
		}
	}
	ask(ev);
}

/*
 * Usage of an account is at or above its soft limit, by an event of who runs here. Global as those above: it is most of what an
 * event may come to, and would be walked on each path to it.
 */
__noinline int near(__u32 account, __u64 key, __s64 usage, __s64 delta)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a = account_at(account);
	struct task_struct *task = bpf_get_current_task_btf();
	struct event ev = { .task = task, .mm = task->mm, .e = e, .account = a, .usage = usage, .delta = delta };

	if (!e || !a)
		return 0;
	if ((__u64)ev.mm != key || task->flags & PF_KTHREAD)
		ev.flags = PLIMSOLL_RECORD_REMOTE;
	if (!a->near && !__sync_val_compare_and_swap(&a->near, 0, moment())) {
		ev.time_ns = bpf_ktime_get_ns();
		a->nobody_until_ns = 0;
		find_largest(a->index);
		/* A huge page, or a whole process, can take usage here in one step; the daemon scans for this record too. */
		need_exact(a);
		emit(&ev, PLIMSOLL_RECORD_NEAR);
	}
	note_largest(a->index, e->mm);
	if (outgrows_grace(&ev)) {
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_CONDEMNED);
		end_with_victim(key);
		return 0;
	}
	if (remaining(a, usage) <= a->effective_pages) {
		if (usage > a->effective_pages)
			check_claims(&ev);
		return 0;
	}
	ev.time_ns = bpf_ktime_get_ns();
	crossed(&ev);
	return 0;
}

/* Far again 1/64 below the soft limit, and after a while, so that usage hovering at it does not wake the daemon each time. */
static __always_inline bool becomes_far(struct plimsoll_account *a)
{
	__u32 since = a->near;

	if (!since || a->usage_pages >= a->soft_pages - (a->soft_pages >> 6) || !has_lasted(since) ||
	    __sync_val_compare_and_swap(&a->near, since, 0) != since)
		return false;
	__sync_fetch_and_and(&a->told, ~PLIMSOLL_TOLD_NOTIFIED);
	a->unanswered_ns = 0;
	return true;
}

#endif
