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
#include "known.h"
#include "wire/limits.h"
#include "kill.h"
#include "user.h"
#include "counters.h"
#include "limits/maps.h"
#include "limits/account.h"
#include "limits/reserved.h"
#include "limits/family.h"
#include "limits/charge.h"
#include "limits/exchange.h"
#include "limits/container.h"
#include "limits/exact.h"
#include "limits/track.h"
#include "limits/rank.h"
#include "limits/tell.h"
#include "limits/largest.h"
#include "limits/act.h"
#include "limits/room.h"
#include "limits/calls.h"
#include "limits/grants.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Whether it has what it has from a fork, by somebody who was not charged for it: not while a line is being drawn. */
static __always_inline bool has_inherited(struct task_struct *task, struct plimsoll_account *a)
{
	return a && a->effective_pages != PLIMSOLL_NO_LINE && BPF_CORE_READ(task, group_leader, flags) & PF_FORKNOEXEC;
}

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
	__s64 pages, usage = 0;

	if (!task || !mm || task->flags & PF_KTHREAD)
		return 0;
	e = track(task, mm, BLANK);
	if (!e)
		return 0;
	pages = settle_all_cpus(e->mm);
	a = account_at(word_account(e->word));
	if (inherits && has_inherited(task, a))
		__sync_fetch_and_add(&e->inherited_pages, pages);
	else
		charge(e, pages, &usage);
	return 0;
}

/* As first_sight(), and what comes of it. Apart, because Linux 6.1 adds up the stacks of all who are in a call. */
static __always_inline void see(struct task_struct *task, struct mm_struct *mm, bool inherits)
{
	__u64 key = (__u64)mm;
	struct plimsoll_account *a;
	struct plimsoll_mm *e;

	first_sight(task, mm, inherits);
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e)
		turn_away(task, mm);
	a = e ? account_at(word_account(e->word)) : 0;
	/* One more whose remainders are not known, too: very many small ones must not pass the line unseen. */
	if (!a)
		return;
	come_to(a, e->mm);
	make_room(a->index);
}

/* The first event since the account became exact: what other CPUs hold of it unfolded is settled as well. */
static __noinline __s64 settle_epoch(struct plimsoll_mm *e, struct plimsoll_account *a, __s64 usage)
{
	__s64 pages;

	if (!e || !a)
		return usage;
	e->epoch = a->exact;
	pages = settle_all_cpus(e->mm);
	if (pages)
		charge(e, pages, &usage);
	return known_usage(a);
}

static __always_inline void tell_copies(struct plimsoll_account *a, __u64 mm)
{
	if (a->copyable_pages > 0 && may_copy(a))
		tell(a->index, mm, PLIMSOLL_RECORD_COPIES);
}

__noinline int tell_copies_above(__u64 above, __u64 mm)
{
	struct plimsoll_account *a;
	int i;

	for_each_above (a, above, i)
		tell_copies(a, mm);
	return 0;
}

/* Whether an account is to be looked at closely, near(), after a change. */
static __always_inline bool concerns(struct plimsoll_account *a, struct plimsoll_mm *e, __s64 usage, __s64 delta)
{
	bool known;

	if (delta > 0 && (usage >= a->soft_pages || a->near)) {
		/* By its largest, or by one that is none of them: nothing to note. */
		known = a->near && (is_largest(a, e->mm) || rank_of(a, e) <= a->floor_rank);
		if (usage < a->soft_pages) {
			if (!known)
				note_largest(a->index, e->mm);
			return false;
		}
		note_peak(a, usage);
		/* Under the line even with what is dying: nothing to do. */
		return !known || usage > a->effective_pages;
	}
	if (delta < 0 && becomes_far(a))
		tell(a->index, e->mm, PLIMSOLL_RECORD_FAR);
	return false;
}

/*
 * Of a change in an account, its process's own or one above it: its usage, where it is to be looked at closely; else less than
 * 0. Global: see settle_count().
 */
__noinline __s64 look_closely(struct plimsoll_account *a, struct plimsoll_mm *e, __s64 usage, __s64 delta, __u32 own)
{
	if (!a || !e)
		return -1;
	if (!own)
		usage = known_usage(a);
	if ((!a->exact || delta < 0) && need_exact(a))
		tell(a->index, e->mm, PLIMSOLL_RECORD_EXACT);
	tell_copies(a, e->mm);
	if (own && a->exact && e->epoch != a->exact)
		usage = settle_epoch(e, a, usage);
	return concerns(a, e, usage, delta) ? usage : -1;
}

/*
 * What comes of `delta` pages that are charged by now: `usage` has them. Nothing is near by what goes: where the compiler knows
 * that it does, as in on_page_free, near() is no part of the program.
 */
static __always_inline int judge_usage(struct plimsoll_mm *e, struct plimsoll_account *a, __s64 usage, __s64 delta)
{
	__u64 above = a->above;
	int i;

	usage = look_closely(a, e, usage, delta, true);
	if (delta > 0 && usage >= 0)
		near(a->index, e->mm, usage, delta);
	for_each_above (a, above, i) {
		usage = look_closely(a, e, 0, delta, false);
		if (delta > 0 && usage >= 0)
			near(a->index, e->mm, usage, delta);
	}
	return 0;
}

/* A change, charged and judged; `granted`: see charge_as(). */
static __always_inline int judge(struct plimsoll_mm *e, __s64 delta, bool granted)
{
	struct plimsoll_account *a;
	__s64 usage;

	if (!delta)
		return 0;
	a = charge_as(e, delta, &usage, granted, true);
	return a ? judge_usage(e, a, usage, delta) : 0;
}

/*
 * Whether pages of a change may be such as were granted. A page that is swapped out is one anonymous page fewer and then one
 * entry more: nothing was freed or touched. Who reclaims says so in its flags. The page that is swapped in cannot be told
 * from one that is new; its entry, which goes then, gives back what it took of a reservation.
 */
static __always_inline bool may_be_granted(struct task_struct *task, int member, __s64 delta)
{
	if (delta > 0)
		return member != PLIMSOLL_MEMBER_SWAP;
	return member != PLIMSOLL_MEMBER_ANON || !(task->flags & PF_MEMALLOC);
}

/*
 * Whether pages that went are looked at as they are freed: those of a process that shares some, by its own doing. With no
 * daemon alive nobody counts; a dying one gives back all. Where pages of files are charged, they are among its own, and freed
 * by others.
 */
static __always_inline bool gives_up(struct plimsoll_mm *e, struct task_struct *task, int member, __s64 delta)
{
	return copies_watched && !(charged_members & 1u << PLIMSOLL_MEMBER_FILE) && delta < 0 &&
	       member == PLIMSOLL_MEMBER_ANON && e->shared_pages > 0 && daemon_lives() &&
	       !(e->flags & PLIMSOLL_MM_DYING) && !(task->flags & PF_MEMALLOC);
}

/* It takes another's memory apart (process_mrelease): what it frees from here on may be of that. */
static __always_inline void frees_for_another(struct task_struct *task)
{
	__u64 key = (__u64)BPF_CORE_READ(task, mm);
	struct plimsoll_mm *e = key ? bpf_map_lookup_elem(&mms, &key) : 0;

	if (e)
		forget_given(e);
}

/* An event done by somebody else than the process: reclaim, khugepaged, ptrace; its own last unmapping at exit. */
static __noinline int on_remote_rss_stat(struct task_struct *task, struct mm_struct *mm, int member)
{
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e;
	__s64 delta;

	if (!task || !mm)
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !pin(e, key))
		return 0;
	delta = settle_here(e, member, false);
	if (copies_watched && delta < 0 && member == PLIMSOLL_MEMBER_ANON && !(task->flags & PF_MEMALLOC))
		frees_for_another(task);
	if (copies_watched && delta > 0 && member == PLIMSOLL_MEMBER_ANON)
		note_elsewhere();
	judge(e, delta, may_be_granted(task, member, delta));
	unpin(e);
	return 0;
}

/* The entry of who runs, as it is charged from here on. NULL: it has none that can be charged now. */
static __always_inline struct plimsoll_mm *entry_of(struct task_struct *task, struct mm_struct *mm, __u32 uid)
{
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e) {
		see(task, mm, true);
		return 0;
	}
	/* Still being made by another CPU, which settles it after that. */
	if (!e->mm)
		return 0;
	if (e->flags & PLIMSOLL_MM_GONE) {
		/* Of the address space that was here before; the next event enters this one. */
		forget_gone(e);
		return 0;
	}
	if (uid != e->uid)
		follow_user(e, task);
	if (e->family)
		absorb_family(e->mm);
	return e;
}

/* A tracked or limited process's own event. Apart, as the one above, so that all others pay for no stack of its size. */
static __noinline int on_limited_rss_stat(struct task_struct *task, struct mm_struct *mm, int member, __u32 uid)
{
	struct plimsoll_mm *e;
	__s64 delta;

	if (!task || !mm)
		return 0;
	e = entry_of(task, mm, uid);
	if (!e)
		return 0;
	delta = settle_here(e, member, true);
	if (gives_up(e, task, member, delta))
		delta += keep_given(e->mm, -delta);
	judge(e, delta, may_be_granted(task, member, delta));
	if (e->flags & PLIMSOLL_MM_CONDEMNED)
		end_with_victim(e->mm);
	return 0;
}

SEC("tp_btf/rss_stat")
int BPF_PROG(on_rss_stat, struct mm_struct *mm, int member)
{
	struct mm_struct *running;
	struct task_struct *task;
	__u32 uid;
	bool own;

	if ((__u32)member >= PLIMSOLL_MEMBERS || !(charged_members & 1u << member))
		return 0;
	task = bpf_get_current_task_btf();
	/* Before all branches: see start_of(). */
	running = task->mm;
	uid = task->real_cred->uid.val;
	if (uid_may_be_limited(uid)) {
		/* The gate is of who runs; a subordinate uid's account is another's, and so is the memory of another. */
		if (!exact_gate[uid % UID_GATE_SLOTS] && running == mm && !task->real_cred->user_ns->level &&
		    !folded(counter_at((__u64)mm, member)))
			return 0;
	} else if (!mm_may_be_tracked(mm)) {
		return 0;
	}
	/* A kernel thread that borrows an address space (kthread_use_mm) is not who runs in it. */
	own = running == mm && !(task->flags & PF_KTHREAD);
	return own ? on_limited_rss_stat(task, mm, member, uid) : on_remote_rss_stat(task, mm, member);
}

/*
 * Linux 6.1, after each fault: what the thread keeps to itself is charged at once while its account is exact, so that
 * the line holds there too. The fault's own arguments may be gone by now; the cache is of the thread's own mm anyway.
 */
static __noinline int on_limited_fault(struct task_struct *task, struct mm_struct *mm)
{
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	__u64 key = (__u64)mm;

	if (!task || !mm)
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !e->mm || e->flags & PLIMSOLL_MM_GONE)
		return 0;
	a = account_at(word_account(e->word));
	if (a && a->exact)
		judge(e, settle_caches(task), true);
	if (e->flags & PLIMSOLL_MM_CONDEMNED)
		end_with_victim(key);
	return 0;
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(on_fault)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 uid = task->real_cred->uid.val;
	struct mm_struct *mm = task->mm;

	if (!exact_gate[uid % UID_GATE_SLOTS] && (!task->real_cred->user_ns->level || !mm_may_be_tracked(mm)))
		return 0;
	on_limited_fault(task, mm);
	return 0;
}

/* One that an account was charged for has ended. */
__noinline int left_by(__u32 account, __u64 mm)
{
	struct plimsoll_account *a = account_at(account);

	if (!a)
		return 0;
	/* An account that nobody runs in counts nothing, and can be another's. */
	if (!a->processes && a->batch)
		collect_usage(account);
	if (becomes_far(a))
		tell(account, mm, PLIMSOLL_RECORD_FAR);
	/* While nobody waits for it, so that the next crossing need not search. */
	else if (a->near && !largest_known(a).mm)
		find_largest(account);
	need_exact(a);
	return 0;
}

/* The end of an address space. All its pages are unmapped by now, so what is left of its charge is settled here. */
SEC("tp_btf/exit_mmap")
int BPF_PROG(on_exit_mmap, struct mm_struct *mm)
{
	__u64 key = (__u64)mm, above;
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	__u32 account, claimant;
	int i;

	if (key == daemon_mm)
		daemon_mm = 0;
	if (!mm_may_be_tracked(mm))
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !pin(e, key))
		return 0;
	account = settle_gone(e->mm);
	a = account == PLIMSOLL_NOBODY ? 0 : account_at(account);
	if (a) {
		if (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED) && !(e->flags & PLIMSOLL_MM_FOLDED)) {
			claimant = is_charged(account, e->claimed) ? e->claimed : account;
			tell(claimant, e->mm, PLIMSOLL_RECORD_FREED);
		}
		above = a->above;
		left_by(account, e->mm);
		for_each_above (a, above, i)
			left_by(a->index, e->mm);
	}
	unpin(e);
	return 0;
}

/* A child of who was asked to end is asked as well: else what that one holds would be the child's, and so on without end. */
__noinline int ask_child(__u64 key, __u64 parent_key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key), *parent = bpf_map_lookup_elem(&mms, &parent_key);
	struct plimsoll_account *a = parent ? account_at(parent->claimed) : 0;

	if (!e || !a || !was_asked(parent, a) || !is_charged(word_account(e->word), a->index))
		return 0;
	e->claimed = a->index;
	__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_DYING);
	mark_dying(e);
	return 0;
}

/* A child is in its parent's job. Without memory for that it is in none, which is counted. */
static __always_inline void inherit_job(struct task_struct *parent, struct task_struct *child)
{
	__u32 job = job_of(parent);

	if (job && !bpf_task_storage_get(&jobs, child, &job, BPF_LOCAL_STORAGE_GET_F_CREATE))
		count_one(&counters.jobs_lost);
}

/* The child has its address space and does not run yet: what it inherits is not charged to it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct mm_struct *mm = child->mm, *parent_mm = parent->mm;
	__u64 parent_key = (__u64)parent_mm, key = 0;
	struct plimsoll_account *a;
	struct plimsoll_mm *e, *p;
	__s64 pages, usage;

	if (!mm)
		return 0;
	inherit_job(parent, child);
	if (mm == parent_mm) {
		if (mm_may_be_tracked(mm))
			end_child(parent_key, parent, child);
		return 0;
	}
	if (mm_may_be_tracked(mm))
		drop_stale(mm, child);
	if (!uid_may_be_limited(user_of_leader(owner_of((__u64)mm, child))))
		return 0;
	p = bpf_map_lookup_elem(&mms, &parent_key);
	if (!p && parent_mm) {
		first_sight(parent, parent_mm, true);
		p = bpf_map_lookup_elem(&mms, &parent_key);
	}
	e = enter(child, mm, BLANK);
	if (!e) {
		turn_away(child, mm);
		return 0;
	}
	/* As a number: see user_of_leader(). */
	bpf_core_read(&key, sizeof(key), &child->mm);
	pages = settle_all_cpus(key);
	if (p && (!p->mm || p->flags & PLIMSOLL_MM_GONE)) {
		/*
		 * The parent is being entered by another CPU, which charges what it has, or will be at its next event: what is
		 * charged before that is lost. The child has only what it inherited.
		 */
		__sync_fetch_and_add(&e->inherited_pages, pages);
	} else {
		if (p) {
			/* So that the child shares all that it had. */
			settle_space(p);
			inherit_weight(e, p);
		}
		if (!p || !share_on_fork(p, e, pages))
			charge(e, pages, &usage);
	}
	/* A walk that came upon it before would have charged it what it shares. */
	publish(e, mm);
	a = account_at(word_account(e->word));
	if (p && p->flags & PLIMSOLL_MM_DYING)
		ask_child(e->mm, p->mm);
	if (a) {
		come_to(a, e->mm);
		tell_copies(a, e->mm);
		if (a->above)
			tell_copies_above(a->above, e->mm);
		make_room(a->index);
	}
	return 0;
}

/*
 * Before Linux 6.13 nothing can be sent to a child: it is not born, where functions of the kernel can be hooked, if it is to
 * run in a victim's address space or no entry is left for its own. Refused by another, it is refused.
 */
SEC("fmod_ret/security_task_alloc")
int BPF_PROG(on_task_alloc, struct task_struct *child, unsigned long clone_flags, int refused)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct mm_struct *mm = parent->mm;
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e;

	if (refused || clone_flags & CLONE_THREAD || !mm || !mm_may_be_tracked(mm))
		return refused;
	if (!(clone_flags & CLONE_VM))
		return has_no_room(parent, key) ? -EAGAIN : 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !(e->flags & PLIMSOLL_MM_CONDEMNED) || in_protected_cgroup(parent))
		return 0;
	end_with_victim(e->mm);
	return -EAGAIN;
}

/* A new address space of an old process; the old one ends by exit_mmap. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	if (!mm)
		return 0;
	if (mm_may_be_tracked(mm))
		drop_stale(mm, task);
	if (uid_may_be_limited(user_of_leader(owner_of((__u64)mm, task))))
		see(task, mm, false);
	return 0;
}

/* A signal ends one process; an address space goes when all that use it have gone. User space sees to the others. */
static __always_inline void report_holder(struct seq_file *seq, struct task_struct *task, struct plimsoll_mm *e)
{
	struct plimsoll_holder holder = {
		.mm = e->mm,
		.tracked_ns = e->tracked_ns,
		.start_ns = start_of(task),
		.tgid = task->tgid,
		.uid = BPF_CORE_READ(task, group_leader, real_cred, uid.val),
	};

	bpf_seq_write(seq, &holder, sizeof(holder));
}

/* A thread's own cache, of an address space that its leader settles. */
static __noinline int scan_thread(struct task_struct *task, struct mm_struct *mm)
{
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e;
	__s64 usage;

	if (!task || !mm)
		return 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !pin(e, key))
		return 0;
	if (task->mm == mm)
		charge(e, settle_caches(task), &usage);
	unpin(e);
	return 0;
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
	bool entered = false;
	__s64 pages, usage;
	__u64 key, above;
	int i;

	if (!task)
		return 0;
	mm = task->mm;
	key = (__u64)mm;
	/* Threads repeat their leader, unless it has exited before them. */
	if (!mm || task->flags & PF_KTHREAD)
		return 0;
	if (task != task->group_leader && task->group_leader->mm == mm)
		return task_caches ? scan_thread(task, mm) : 0;
	e = bpf_map_lookup_elem(&mms, &key);
	if (e) {
		if (!pin(e, key))
			return 0;
	} else {
		if (!uid_may_be_limited(user_of_leader(owner_of((__u64)mm, task))))
			return 0;
		e = track(task, mm, BLANK_PINNED);
		if (!e) {
			make_room(account_of(user_of_leader(owner_of((__u64)mm, task))));
			return 0;
		}
		entered = true;
	}
	/*
	 * It may have ended before it was entered here: then its exit event found nothing to remove. One that was found is not
	 * there any more, or is another process's by now.
	 */
	if (BPF_CORE_READ(task, mm) != mm) {
		if (entered)
			settle_gone(e->mm);
		unpin(e);
		return 0;
	}
	if (BPF_CORE_READ(task, group_leader, real_cred, uid.val) != e->uid)
		follow_user(e, task);
	if (e->family)
		absorb_family(e->mm);
	pages = settle_all_cpus(e->mm);
	if (task_caches)
		pages += settle_caches(task);
	/* No event can have come before this walk. */
	if (entered && look_due_ns && has_inherited(task, account_at(word_account(e->word)))) {
		__sync_fetch_and_add(&e->inherited_pages, pages);
		pages = 0;
	}
	a = pages ? charge(e, pages, &usage) : 0;
	if (a) {
		above = a->above;
		need_exact(a);
		for_each_above (a, above, i)
			need_exact(a);
	}
	/*
	 * Who it was entered for may have left it: a vfork child that faulted first, and is another program by now, of
	 * another user perhaps. Its process is who runs in it.
	 */
	if (e->walk != walk_id) {
		e->walk = walk_id;
		if (e->tgid != (__u32)task->tgid) {
			forget_judgement(e);
			/* Whoever was granted it is not there to settle it. */
			release_reserved(e->mm);
		}
		e->tgid = task->tgid;
		e->start_ns = start_of(task);
	}
	/* It was replaced by an upgrade, and run, before this was heard of. */
	if (!(e->flags & PLIMSOLL_MM_PROTECTED) && exe_is_protected(mm, e->uid))
		__sync_fetch_and_or(&e->flags, PLIMSOLL_MM_PROTECTED);
	a = account_at(word_account(e->word));
	if (a)
		note_in_all(a, e->mm);
	e->scan = scan_id;
	if (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_CONDEMNED) && !in_protected_cgroup(task))
		report_holder(ctx->meta->seq, task, e);
	unpin(e);
	return 0;
}

/* They judge as the programs above do. */
#include "limits/copies.h"
#include "limits/tick.h"
