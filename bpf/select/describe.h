/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * One process into one record. Its leader tells who it is; whoever of its threads still has memory tells the rest: a
 * leader may exit before the others, and is then all but gone.
 */
#ifndef PLIMSOLL_SELECT_DESCRIBE_H
#define PLIMSOLL_SELECT_DESCRIBE_H

/*
 * Threads looked at for one that has memory, or for their caches. Those without are about to leave the list, but for dead
 * ones that a tracer does not wait for.
 */
#define THREADS_MAX (1 << 16)

/* 6.1 has only the helper: some 30 ns for each, of which there are a dozen for each of ten thousand processes. */
#define READ_MM(mm, field) (task_caches ? BPF_CORE_READ(mm, field) : KNOWN(mm_struct, mm)->field)
#define READ_TASK(task, field) (task_caches ? BPF_CORE_READ(task, field) : KNOWN(task_struct, task)->field)

/* A list of threads is read as plain memory: the kernel's verifier follows no list. Read-copy-update keeps it whole. */
struct walk {
	__u64 head;
	__u64 node;
	__u64 thread; /* the first one with memory; 0: none yet */
	__u64 mm;
	__s64 cached[PLIMSOLL_MEMBERS]; /* what the threads of that memory keep to themselves */
	bool to_end;
};

static __always_inline void add_caches(struct walk *walk, struct task_struct *thread)
{
	int cached[PLIMSOLL_MEMBERS] = {};

	bpf_probe_read_kernel(cached, sizeof(cached), &((struct task_struct___61 *)thread)->rss_stat.count);
	walk->cached[0] += cached[0];
	walk->cached[1] += cached[1];
	walk->cached[2] += cached[2];
	walk->cached[3] += cached[3];
}

static long next_thread(__u32 index, struct walk *walk)
{
	struct task_struct *thread;
	__u64 mm = 0;

	if (bpf_probe_read_kernel(&walk->node, sizeof(walk->node), (void *)walk->node) || walk->node == walk->head)
		return 1;
	thread = (struct task_struct *)(walk->node - bpf_core_field_offset(struct task_struct, thread_node));
	bpf_probe_read_kernel(&mm, sizeof(mm), &thread->mm);
	if (!mm)
		return 0;
	if (!walk->mm) {
		walk->thread = (__u64)thread;
		walk->mm = mm;
	}
	if (!walk->to_end)
		return 1;
	if (task_caches && mm == walk->mm)
		add_caches(walk, thread);
	return 0;
}

/* Goes through the threads of a process, as far as is needed. */
static __always_inline void walk_threads(struct walk *walk, struct task_struct *leader)
{
	__u64 signal = 0;

	bpf_probe_read_kernel(&signal, sizeof(signal), &leader->signal);
	walk->head = signal + bpf_core_field_offset(struct signal_struct, thread_head);
	walk->node = walk->head;
	if (signal)
		bpf_loop(THREADS_MAX, next_thread, walk, 0);
}

static __always_inline void read_counts(__s64 *pages, struct mm_struct *mm)
{
	if (task_caches) {
		bpf_probe_read_kernel(pages, PLIMSOLL_MEMBERS * sizeof(*pages),
				      &((struct mm_struct___61 *)mm)->rss_stat.count);
		return;
	}
	mm = KNOWN(mm_struct, mm);
	pages[0] = *(volatile __s64 *)&mm->rss_stat[0].count;
	pages[1] = *(volatile __s64 *)&mm->rss_stat[1].count;
	pages[2] = *(volatile __s64 *)&mm->rss_stat[2].count;
	pages[3] = *(volatile __s64 *)&mm->rss_stat[3].count;
}

static __always_inline bool killed(struct task_struct *leader, struct task_struct *thread, struct signal_struct *signal)
{
	/* One thread alone may exit; the process goes when it is the last. */
	return is_dying(signal) || READ_TASK(thread, pending.signal.sig[0]) & 1ul << (SIGKILL - 1) ||
	       (signal->nr_threads <= 1 && READ_TASK(thread, flags) & PF_EXITING);
}

static __always_inline __u32 flags_of(struct task_struct *leader, struct task_struct *thread, struct mm_struct *mm)
{
	struct signal_struct *signal = leader->signal;
	__u32 flags = 0, state = READ_TASK(thread, __state);

	if (killed(leader, thread, signal))
		flags |= PLIMSOLL_TASK_DYING;
	if (signal->core_state)
		flags |= PLIMSOLL_TASK_DUMPING;
	if (thread != leader)
		flags |= PLIMSOLL_TASK_LEADER_EXITED;
	/* A killable sleep (TASK_KILLABLE) is shown as D in /proc too, but ends with SIGKILL; an idle one is no sleep. */
	if ((state & (TASK_UNINTERRUPTIBLE | TASK_WAKEKILL | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE)
		flags |= PLIMSOLL_TASK_UNINTERRUPTIBLE;
	if (state & TASK_STOPPED_OR_TRACED)
		flags |= PLIMSOLL_TASK_STOPPED;
	if (signal->oom_mm)
		flags |= PLIMSOLL_TASK_OOM_VICTIM;
	if (leader->vfork_done && (__u64)leader->real_parent->mm == (__u64)mm)
		flags |= PLIMSOLL_TASK_VFORK_CHILD;
	return flags;
}

/* All but the counts. */
static __always_inline void describe(struct plimsoll_task *out, struct task_struct *leader, struct task_struct *thread,
				     struct mm_struct *mm)
{
	leader = LOOSE(task_struct, leader);
	out->start_ns = leader->start_boottime;
	out->mm = (__u64)mm;
	out->cgroup_id = leader->cgroups->dfl_cgrp->kn->id;
	out->mapped_pages = READ_MM(mm, total_vm);
	out->table_bytes = READ_MM(mm, pgtables_bytes.counter);
	out->tgid = leader->tgid;
	out->parent = leader->real_parent->tgid;
	out->uid = leader->real_cred->uid.val;
	out->oom_score_adj = leader->signal->oom_score_adj;
	out->threads = leader->signal->nr_threads;
	out->mm_users = READ_MM(mm, mm_users.counter);
	out->flags = flags_of(leader, thread, mm);
	out->execs = leader->self_exec_id;
	bpf_probe_read_kernel(out->comm, sizeof(out->comm), &leader->comm);
}

#endif
