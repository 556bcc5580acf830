/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* When entries for address spaces run out: who has most of them pays, and nobody else. */
#ifndef PLIMSOLL_LIMITS_ROOM_H
#define PLIMSOLL_LIMITS_ROOM_H

/* From one of those that end for want of entries to the next that is told of. */
#define TELL_APART_NS 100000000

/* A process was sent SIGKILL, or was not, because entries run out and its account has most of them. */
static __always_inline void turned_away(struct event *ev, long error)
{
	ev->signal = SIGKILL;
	if (error) {
		count_one(&counters.signals_failed);
		return;
	}
	__sync_fetch_and_add(&ev->account->kills, 1);
	count_one(&counters.kills);
	ev->signal_ns = bpf_ktime_get_ns();
	ev->usage = ev->account->usage_pages;
	ev->flags |= PLIMSOLL_RECORD_TURNED_AWAY;
	/* Each is a fork, of which there may be many. */
	if (comes_due(&turned_away_ns, ev->time_ns, TELL_APART_NS))
		emit(ev, PLIMSOLL_RECORD_ACTED);
}

/* A second apart, so that the daemon walks all tasks: what lost its exit goes by two walks. */
#define CROWDED_APART_NS 1000000000

static __always_inline void tell_crowded(__u32 account)
{
	if (comes_due(&crowded_ns, bpf_ktime_get_ns(), CROWDED_APART_NS))
		tell(account, 0, PLIMSOLL_RECORD_EXACT);
}

/* Its line holds something, and by the programs: neither a line that only tells, nor one that is still being drawn. */
static __always_inline bool holds(struct plimsoll_account *a)
{
	return kernel_trigger && a->signal && a->effective_pages != PLIMSOLL_NO_LINE;
}

struct least {
	__u64 mm;
	__s64 pages;
	__u32 account;
};

static long find_least(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e, struct least *least)
{
	/* What a session stands on comes after all others, however much they hold. */
	__s64 pages = pages_of(e) + ((__s64)(e->flags & PLIMSOLL_MM_SESSION) << 40);
	__u64 key = *at;

	if (is_charged(word_account(e->word), least->account) && pages < least->pages &&
	    !(e->flags & PLIMSOLL_MM_NO_VICTIM) && !is_ending(key)) {
		least->mm = key;
		least->pages = pages;
	}
	return 0;
}

/*
 * An account got one of the last entries, or none: the smallest process of the one that has most makes room for the next. Linux
 * 6.13 and later: before that these entries are the last.
 */
__noinline int make_room(__u32 account)
{
	struct least least = { .pages = PLIMSOLL_NO_LINE };
	struct event ev = { .flags = PLIMSOLL_RECORD_OTHER };
	struct task_struct *victim;
	struct plimsoll_mm *e;
	__u64 key;

	if (account == PLIMSOLL_NOBODY || counters.entries < entries_for_most + entries_for_most / 14)
		return 0;
	tell_crowded(account);
	if (!signals_others())
		return 0;
	account = user_above(account);
	least.account = who_has_most(account);
	ev.account = account_at(least.account);
	if (least.account == account || !ev.account || !holds(ev.account))
		return 0;
	bpf_for_each_map_elem(&mms, find_least, &least, 0);
	key = least.mm;
	victim = key ? find_task(BPF_CORE_READ((struct mm_struct *)key, owner, pid)) : 0;
	if (!victim)
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	ev.task = victim;
	ev.mm = victim->mm;
	ev.time_ns = bpf_ktime_get_ns();
	if ((__u64)ev.mm == key && e && is_charged(word_account(e->word), least.account) &&
	    !in_protected_cgroup(victim)) {
		count_one(&counters.mms_full);
		turned_away(&ev, send_signal(victim, SIGKILL));
	}
	bpf_task_release(victim);
	return 0;
}

/*
 * A process got no entry. Nobody can charge it: where its account has most of them it ends, so that its account's line
 * holds, by its own event, or since Linux 6.13 by the fork that made it. Else there shall be room at its next event.
 */
static __noinline int turn_away(struct task_struct *task, struct mm_struct *mm)
{
	struct event ev = { .task = task, .mm = mm };
	__u64 key = (__u64)mm, owner;
	__u32 account;

	if (!task || !mm || counters.entries < entries_for_most || bpf_map_lookup_elem(&mms, &key))
		return 0;
	owner = owner_of(key, task);
	account = account_of(user_of_leader(owner));
	ev.account = account_at(account);
	if (account == PLIMSOLL_NOBODY || !ev.account)
		return 0;
	if (!has_its_share(account))
		return make_room(account);
	tell_crowded(account);
	if (!holds(ev.account))
		return 0;
	if (task->tgid == 1 || is_dying(task->signal) || exe_is_protected(mm, uid_of(owner)) ||
	    in_protected_cgroup(task))
		return 0;
	ev.time_ns = bpf_ktime_get_ns();
	if (task == bpf_get_current_task_btf() || signals_others())
		turned_away(&ev, send_signal(task, SIGKILL));
	return 0;
}

/* Whether a process may not fork, because its account has most entries and few are left. */
static __noinline bool has_no_room(struct task_struct *parent, __u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__u32 account;

	if (!parent || !e || e->flags & (PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_NEVER))
		return false;
	account = user_above(word_account(e->word));
	a = account_at(account);
	if (account == PLIMSOLL_NOBODY || !a || !holds(a) || !has_its_share(account) || in_protected_cgroup(parent))
		return false;
	count_one(&counters.mms_full);
	tell_crowded(account);
	return true;
}

#endif
