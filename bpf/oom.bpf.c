// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Whom the kernel's own OOM killer takes, told at once and with what only the kernel knows by then: a victim's memory and
 * often its cgroup are gone before user space can look. Runs at nothing but oom/mark_victim, so it costs nothing else.
 *
 * Mechanism only: what the kill was about is worked out in user space. The current process here is the one that needed
 * memory, not the victim.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "known.h"
#include "wire/oom.h"
#include "kill.h"
#include "counters.h"
#include "select/describe.h"
#include "select/exact.h"
#include "oom/cgroup_path.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* About 200 kills: what is done while no daemon runs waits here for the next one. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} marked SEC(".maps");

/* [0]: victims marked, [1]: of those, records that found no room. [2] is user space's: lost ones that were told. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} marked_counts SEC(".maps");

static __always_inline __u64 count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&marked_counts, &which);

	return counter ? __sync_fetch_and_add(counter, 1) + 1 : 0;
}

static __always_inline void tell(const struct plimsoll_task *victim, struct task_struct *task, __u32 thread,
				 __u32 flags)
{
	struct task_struct *invoker = bpf_get_current_task_btf();
	__u64 number = count(0);
	struct plimsoll_marked *out = bpf_ringbuf_reserve(&marked, sizeof(*out), 0);

	if (!out) {
		count(1);
		return;
	}
	out->victim = *victim;
	out->time_ns = bpf_ktime_get_ns();
	out->number = number;
	out->thread = thread;
	out->invoker = invoker->tgid;
	out->invoker_thread = invoker->pid;
	out->invoker_uid = BPF_CORE_READ(invoker, real_cred, uid.val);
	bpf_get_current_comm(out->invoker_comm, sizeof(out->invoker_comm));
	out->path_bytes = 0;
	if (flags & PLIMSOLL_MARKED_KNOWN && !write_cgroup_path(out, task))
		flags |= PLIMSOLL_MARKED_PATH_CUT;
	out->flags = flags;
	bpf_ringbuf_submit(out, 0);
}

/* Its flags before it was marked tell whether it was on its way out by itself. */
static __always_inline __u32 known(struct task_struct *task)
{
	return PLIMSOLL_MARKED_KNOWN | (task->flags & PF_EXITING ? PLIMSOLL_MARKED_EXITING : 0);
}

/* Since 72ba14deb40a ("mm: update mark_victim tracepoints fields": 6.8, 6.6.18, 6.1.79) the victim is handed over. */
SEC("tp_btf/mark_victim")
int BPF_PROG(on_mark, struct task_struct *task)
{
	struct plimsoll_task victim = {};
	struct task_struct *leader = task->group_leader;
	struct sum sum = { .out = &victim, .leader = leader };

	sum.mm = (__u64)task->mm;
	/* It is locked, and has memory: find_lock_task_mm() found it. */
	if (sum.mm) {
		describe(&victim, leader, task, (struct mm_struct *)sum.mm);
		bpf_loop(SUM_TRIES, sum_once, &sum, 0);
	}
	tell(&victim, task, task->pid, sum.mm ? known(task) : 0);
	return 0;
}

/* Before that, only its number: it may be the process that needed memory itself, as it is for most. */
SEC("raw_tp/mark_victim")
int on_mark_number(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct plimsoll_task victim = {};
	__u32 thread = ctx->args[0], flags = 0;
	__u64 mm = 0;

	bpf_probe_read_kernel(&mm, sizeof(mm), &current->mm);
	if ((__u32)current->pid == thread && mm) {
		describe(&victim, current->group_leader, current, (struct mm_struct *)mm);
		read_counts(victim.pages, (struct mm_struct *)mm);
		flags = known(current);
	}
	tell(&victim, current, thread, flags);
	return 0;
}
