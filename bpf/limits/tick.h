/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The coarse tier. While every account is farther from its line than memory can be taken between two looks, no program is
 * attached where pages are charged: user space walks all tasks as often as that distance asks for, and has each event
 * looked at before anybody can be near (policy's coarse.rs).
 *
 * It may be late, or live no more, and then nobody can attach a program. A CPU that works takes ticks: each settles who runs
 * there, and judges as an event does; and where the look is overdue, all address spaces are settled at every few of them.
 */
#ifndef PLIMSOLL_LIMITS_TICK_H
#define PLIMSOLL_LIMITS_TICK_H

/* Settling all of them takes no more than this part of a CPU: a sixty-fourth. */
#define SETTLE_REST 64

/*
 * So many counters of CPUs are read at once at most, while interrupts are off: a few milliseconds. Where there are more, only
 * who runs is settled.
 */
#define SETTLE_MOST 32768

/*
 * Whoever sets timers has as many ticks as they like. Looked at each time, they would cost a CPU a microsecond each, while
 * interrupts are off; what one process takes within so long is less than what any takes between two ticks of the kernel's.
 */
#define TICK_APART_NS 1000000ULL

/* Whom the last tick on a CPU looked at. */
struct ticked {
	__u64 mm;
	__u64 time_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ticked);
} last_tick SEC(".maps");

/* In look_due_ns: it is overdue. User space writes even numbers. */
#define LOOK_OVERDUE 1ULL

/* All that an address space came to have, charged and judged: of who runs, or pinned. */
static __always_inline void settle_and_judge(struct plimsoll_mm *e)
{
	__s64 pages = settle_all_cpus(e->mm);

	if (pages)
		judge(e, pages, true);
}

/*
 * Somebody took an account past its line between two ticks, and takes nothing now: its largest goes. Whoever runs at this tick
 * is nobody's victim but as that one. Called from there, as the kernel takes no deeper calls than eight.
 */
__noinline int end_largest(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	struct plimsoll_mm *e;
	__u64 key;

	if (!a || remaining_own(a, a->usage_pages) <= a->effective_pages)
		return 0;
	key = choose(a);
	e = key ? bpf_map_lookup_elem(&mms, &key) : 0;
	if (!e || !pin(e, key))
		return 0;
	near(account, key, a->usage_pages, 0);
	unpin(e);
	return 0;
}

/* Whose account is charged for it. */
static __noinline int settle_running(struct task_struct *task, struct mm_struct *mm, __u32 uid)
{
	struct plimsoll_mm *e;

	if (!task || !mm)
		return PLIMSOLL_NOBODY;
	e = entry_of(task, mm, uid);
	if (!e)
		return PLIMSOLL_NOBODY;
	settle_and_judge(e);
	if (e->flags & PLIMSOLL_MM_CONDEMNED)
		end_with_victim(e->mm);
	return word_account(e->word);
}

static long settle_each(struct bpf_map *map, volatile __u64 *at, struct plimsoll_mm *e, void *unused)
{
	__u64 key = *at;

	/* What nobody runs in may be freed: its exit was lost, or is under way. */
	if (is_left(key) || !pin(e, key))
		return 0;
	/* Nobody else goes for what a dying one takes. */
	if (e->flags & PLIMSOLL_MM_DYING)
		settle_space(e);
	else
		settle_and_judge(e);
	unpin(e);
	return 0;
}

/* User space gets as long again before others do its work: CPUs that idled wake it only now. */
static __always_inline void settle_if_overdue(__u64 due, __u64 now)
{
	__u64 next = (now + settle_apart_ns) | LOOK_OVERDUE, rested;

	if ((__s64)(now - due) < 0 || __sync_val_compare_and_swap(&look_due_ns, due, next) != due ||
	    !(due & LOOK_OVERDUE) || counters.entries * nr_cpus > SETTLE_MOST)
		return;
	bpf_for_each_map_elem(&mms, settle_each, 0, 0);
	rested = now + (bpf_ktime_get_ns() - now) * SETTLE_REST;
	/* Unless user space came meanwhile. */
	if (rested > next)
		__sync_val_compare_and_swap(&look_due_ns, next, rested | LOOK_OVERDUE);
}

/* Whether this address space is looked at here for the first time, or the first time since TICK_APART_NS. */
static __always_inline bool is_looked_at(struct mm_struct *mm, __u64 now)
{
	struct ticked *t;
	__u32 zero = 0;

	t = bpf_map_lookup_elem(&last_tick, &zero);
	if (!t || (t->mm == (__u64)mm && now - t->time_ns < TICK_APART_NS))
		return false;
	t->mm = (__u64)mm;
	t->time_ns = now;
	return true;
}

/*
 * The tick is a timer (tick_setup_sched_timer, kernel/time/tick-sched.c, 6.1 to 7.2), which no lock is held for any more
 * (__run_hrtimer, kernel/time/hrtimer.c). One that wakes somebody up is as good.
 */
SEC("tp_btf/hrtimer_expire_entry")
int on_tick(void *ctx)
{
	__u64 due = look_due_ns, now;
	struct plimsoll_account *a;
	struct task_struct *task;
	struct mm_struct *mm;
	__u32 uid, account;
	__u64 above;
	int i;

	if (!due)
		return 0;
	task = bpf_get_current_task_btf();
	mm = task->mm;
	/* A CPU that idles has nobody who runs. */
	if (!mm || task->flags & PF_KTHREAD)
		return 0;
	uid = task->real_cred->uid.val;
	now = bpf_ktime_get_ns();
	if ((uid_may_be_limited(uid) || mm_may_be_tracked(mm)) && is_looked_at(mm, now)) {
		account = settle_running(task, mm, uid);
		end_largest(account);
		a = account_at(account);
		above = a ? a->above : 0;
		for_each_above (a, above, i)
			end_largest(a->index);
	}
	settle_if_overdue(due, now);
	return 0;
}

/* From here on user space looks by this moment, and no event is looked at; 0: each is, since it has seen to that. */
SEC("syscall")
int set_look(struct plimsoll_set_look *ctx)
{
	look_due_ns = ctx->due_ns;
	return 0;
}

#endif
