// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The facts that a victim is selected by, without /proc: a sweep over all processes with approximate counts, exact counts
 * of a few, and, while it is asked for, notice of who grows past a floor. Mechanism only: who is a victim user space decides.
 *
 * Numbers of processes are those of the initial pid namespace.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "known.h"
#include "wire/select.h"
#include "kill.h"
#include "counters.h"
#include "select/describe.h"
#include "select/exact.h"
#include "select/watch.h"
#include "select/shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * Every process that has memory, once: at its leader, which stays listed as long as any of its threads lives. Other
 * threads pass by here and are left after one comparison.
 */
SEC("iter/task")
int sweep_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct plimsoll_task out = {};
	struct walk walk = {};

	if (!task || task->pid != task->tgid || task->flags & PF_KTHREAD)
		return 0;
	walk.thread = (__u64)task;
	walk.mm = (__u64)task->mm;
	if (!walk.mm) {
		/* A zombie, but for threads that live on. */
		if (task->signal->nr_threads <= 1)
			return 0;
		walk_threads(&walk, task);
		if (!walk.mm)
			return 0;
	}
	describe(&out, task, (struct task_struct *)walk.thread, (struct mm_struct *)walk.mm);
	read_counts(out.pages, (struct mm_struct *)walk.mm);
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

/* One process, exactly (Linux 6.2). */
SEC("syscall")
int measure(struct plimsoll_measure *ctx)
{
	struct plimsoll_task out = {};
	struct task_struct *task;
	int result = -ESRCH;

	if (!finds_others())
		return 0;
	task = find_task(ctx->tgid);
	if (task) {
		if (task->pid == task->tgid && !(task->flags & PF_KTHREAD))
			result = measure_leader(&out, task);
		bpf_task_release(task);
	}
	ctx->task = out;
	ctx->result = result;
	return 0;
}

/* The same where there is no bpf_task_from_pid (Linux 6.1): by an iterator over one task, made for each question. */
SEC("iter/task")
int measure_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct plimsoll_measure out = {};

	if (!task || task->pid != task->tgid || task->flags & PF_KTHREAD)
		return 0;
	out.tgid = task->tgid;
	out.result = measure_leader(&out.task, task);
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}
