// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Strict jobs: memory past a job's line is refused when it is asked for, and nobody is ended.
 *
 * The kernel asks security_vm_enough_memory_mm() before an address space gets more private memory that it can write to, and
 * before its stack grows. Of what is mapped MAP_NORESERVE, and made writable or larger later, it asks nothing:
 * security_mmap_file(), security_file_mprotect() and security_mmap_addr() see those, and security_task_alloc() a fork. What is
 * asked is whether the address space may be as large as it will be then: it does not matter which of them see a request.
 *
 * Linked while there are strict jobs, through pins: they go on without the daemon. A thread in no such job pays for two lookups
 * in each call.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "wire/strict.h"
#include "kill.h"
#include "user.h"
#include "strict/maps.h"
#include "strict/call.h"
#include "strict/sum.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A page has 2 to the power of this many bytes: set before load. */
const volatile __u32 page_shift = 12;

/* Since Linux 6.15 functions of its own may be called meanwhile: set before load. */
const volatile bool keeps_cpu = false;

/* From one record of a job to the next. */
const volatile __u64 told_apart_ns = 1000000000ull;

/* Linux 6.10 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/*
 * A program that is at work on a CPU does not run there again before it is done (`prog->active`, kernel/bpf/trampoline.c):
 * another thread that took the CPU from it meanwhile would not be asked. Where nobody takes it within the kernel that cannot be
 * (until 6.19, unless it was booted with preempt=full).
 */
static __always_inline void keep_cpu(bool keep)
{
	if (!keeps_cpu || !bpf_ksym_exists(bpf_preempt_disable) || !bpf_ksym_exists(bpf_preempt_enable))
		return;
	if (keep)
		bpf_preempt_disable();
	else
		bpf_preempt_enable();
}

/*
 * The job that a thread is charged to; 0: none. One that was not noted in its thread, for want of memory, or because the kernel
 * was busy with such a note on this CPU, is in that of its address space.
 */
static __always_inline __u32 job_of(struct task_struct *task, struct space *space)
{
	struct plimsoll_strict_member *member = bpf_task_storage_get(&strict_members, task, 0, 0);
	__u32 job = member ? member->job : space ? space->job : 0;
	struct plimsoll_strict_line *line = line_of(job);

	return line && user_of_cred(BPF_CORE_READ(task, real_cred)) == line->uid ? job : 0;
}

static __always_inline struct space *find(__u64 mm)
{
	return bpf_map_lookup_elem(&strict_spaces, &mm);
}

/* Tells of a refusal, by the job whose line it was. */
__noinline int tell(__u32 job, __s64 asked, __u32 call)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_strict_line *line = line_of(job);
	struct plimsoll_strict_sum *sum = sum_of(job);
	struct plimsoll_refusal out = {};
	__u64 refused;

	if (!sum || !line)
		return 0;
	out.time_ns = bpf_ktime_get_ns();
	refused = __sync_fetch_and_add(&sum->refused, 1) + 1;
	if (!comes_due(&sum->told_ns, out.time_ns, told_apart_ns))
		return 0;
	out.start_ns = start_of(task);
	out.asked_pages = asked;
	out.committed_pages = sum->committed_pages > 0 ? sum->committed_pages : 0;
	out.limit_pages = line->limit_pages;
	out.untold = refused - sum->told - 1;
	out.job = job;
	out.tgid = task->tgid;
	out.uid = BPF_CORE_READ(task, real_cred, uid.val);
	out.call = call;
	bpf_get_current_comm(out.comm, sizeof(out.comm));
	sum->told = refused;
	/* In one piece: a record that is not whole would keep its reader awake. */
	if (bpf_ringbuf_output(&refusals, &out, sizeof(out), 0))
		count(PLIMSOLL_STRICT_UNTOLD);
	return 0;
}

static __always_inline void note_peak(__u32 job)
{
	struct plimsoll_strict_sum *sum = sum_of(job);

	if (sum && sum->committed_pages > sum->peak_pages)
		sum->peak_pages = sum->committed_pages;
}

/* How a request is made: with the lock of its address space held, or not. */
enum {
	LOCKED,
	LOOSE,
	FORKED, /* likewise, for as much as there is */
};

/* What an address space has, with what was asked for and does not show yet; and this request noted. */
static __always_inline __s64 note_request(struct space *space, __u64 mm, __s64 pages, __u32 way)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__s64 now = writable_pages(mm), more = pending(space, now, now_ns);

	if (way == LOCKED) {
		space->before = now;
		space->asked = pages;
		return now + more;
	}
	if (!more) {
		space->loose_before = now;
		space->loose = 0;
	}
	space->loose_ns = now_ns;
	__sync_fetch_and_add(&space->loose, pages);
	/* dup_mmap() holds the lock. */
	if (way == FORKED) {
		space->before = now;
		space->asked = pages;
	}
	return now + more;
}

static __always_inline void take_back(struct space *space, __s64 pages, __u32 way, __s64 had)
{
	space->asked = 0;
	if (way != LOCKED)
		__sync_fetch_and_add(&space->loose, -pages);
	have_counted(space, had);
}

/* Asks for so many pages for an address space, of a job. Returns 0, or the job whose line refuses it. */
__noinline __u32 ask_of(__u32 job, __u64 mm, __s64 pages, __u32 way)
{
	struct space *space = find(mm);
	__u32 over, before = 0;
	__s64 had;
	int i;

	if (!space)
		return 0;
	had = writable_pages(mm);
	/* The same request once more, or one like it of memory that was given back: it is in the sum. */
	if (way == LOCKED && space->before == had && space->asked == pages && space->counted >= had + pages)
		return 0;
	/* It needs no look at others, and no sum that is out of all bounds meanwhile. */
	over = alone_over(job, had + pages);
	if (over)
		return over;
	for (i = 0; i < PLIMSOLL_STRICT_DEPTH; i++) {
		had = note_request(space, mm, pages, way);
		over = have_counted(space, had + pages);
		if (!over)
			break;
		take_back(space, pages, way, had);
		if (over == before)
			break;
		recount_job(over, mm);
		before = over;
	}
	return over;
}

__noinline int ask(__s64 pages, __u32 way)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	struct space *space = find(mm);
	__u32 job, over;

	if (pages <= 0)
		return 0;
	job = job_of(task, space);
	if (space && space->job != job) {
		/* Its user is another by now, or was. No two threads do this at once: they hold its lock. */
		if (way != LOCKED)
			return 0;
		have_counted(space, 0);
		space->job = job;
		have_counted(space, job ? writable_pages(mm) : 0);
	}
	if (!job)
		return 0;
	if (!space)
		space = enter(mm, job);
	if (!space)
		return -ENOMEM;
	if (way == FORKED)
		pages = writable_pages(mm);
	over = ask_of(job, mm, pages, way);
	if (!over) {
		note_peak(job);
		return 0;
	}
	tell(over, pages, way == FORKED ? PLIMSOLL_REFUSED_FORK : 0);
	return -ENOMEM;
}

/* Whether this thread is to be asked about. */
static __always_inline bool concerns(struct task_struct *task, __u64 mm)
{
	return mm && (bpf_task_storage_get(&strict_members, task, 0, 0) || find(mm));
}

static __always_inline __s64 pages_of(__u64 bytes)
{
	return bytes + (1ull << page_shift) - 1 < bytes ? 0 : (bytes + (1ull << page_shift) - 1) >> page_shift;
}

/* Private memory that can be written to. */
static __always_inline int judge_enough(__u64 asked, __s64 pages)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	struct space *space;

	/* Of an exec, the address space is not its own yet. */
	if (mm != asked || !concerns(task, mm))
		return 0;
	switch (call_of(task)) {
	case OTHER:
		return 0;
	case FORK:
		/* It was asked for, and goes on. */
		space = find(mm);
		if (space)
			space->loose_ns = bpf_ktime_get_ns();
		return 0;
	default:
		return ask(pages, LOCKED);
	}
}

/* A mapping that nobody will be asked about when it is made. */
static __always_inline int judge_mmap(unsigned long prot, unsigned long flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm), arguments[3] = {};
	unsigned long type = flags & MAP_TYPE;
	__u32 length = 0;

	if (!(prot & PROT_WRITE) || !concerns(task, mm))
		return 0;
	if (type != MAP_DROPPABLE && (type != MAP_PRIVATE || !(flags & (MAP_NORESERVE | MAP_HUGETLB))))
		return 0;
	switch (call_of(task)) {
	case MAP:
		read_arguments(task, arguments);
		return ask(pages_of(arguments[1]), LOOSE);
	case MAP_BY_POINTER:
		/* struct mmap_arg_struct32: the address, the length. If another thread changes it, the next request sees it. */
		read_arguments(task, arguments);
		bpf_probe_read_user(&length, sizeof(length), (void *)(arguments[0] + 4));
		return ask(pages_of(length), LOOSE);
	default:
		return 0;
	}
}

/* A mapping that becomes writable, of which nobody is asked where it is MAP_NORESERVE, or was writable before. */
static __always_inline int judge_mprotect(struct vm_area_struct *vma, unsigned long prot)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm), arguments[3] = {}, start, end, from, to;

	if (!(prot & PROT_WRITE) || !concerns(task, mm) ||
	    BPF_CORE_READ(vma, vm_flags) & (VM_WRITE | VM_SHARED | VM_GROWSDOWN) || call_of(task) != PROTECT)
		return 0;
	read_arguments(task, arguments);
	start = BPF_CORE_READ(vma, vm_start);
	end = BPF_CORE_READ(vma, vm_end);
	from = start > arguments[0] ? start : arguments[0];
	to = end < arguments[0] + arguments[1] ? end : arguments[0] + arguments[1];
	/* Bits of the address that mean nothing to the kernel may have been given: then it is all of the mapping at most. */
	if (from >= to) {
		from = start;
		to = end;
	}
	return ask(pages_of(to - from), LOCKED);
}

/* A mapping that grows, in place or not, of which nobody is asked where it is MAP_NORESERVE: a place is looked for. */
static __always_inline int judge_mremap(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm), arguments[3] = {};

	if (!concerns(task, mm) || call_of(task) != REMAP)
		return 0;
	read_arguments(task, arguments);
	return arguments[2] > arguments[1] ? ask(pages_of(arguments[2] - arguments[1]), LOCKED) : 0;
}

/* A child that will have what its parent has. */
static __always_inline int judge_child(unsigned long clone_flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);

	return clone_flags & CLONE_VM || !concerns(task, mm) ? 0 : ask(1, FORKED);
}

/* What another program has refused is refused. */
#define JUDGE(refused, judgement)          \
	({                                 \
		int error = refused;       \
                                           \
		keep_cpu(true);            \
		if (!error)                \
			error = judgement; \
		keep_cpu(false);           \
		error;                     \
	})

SEC("fmod_ret/security_vm_enough_memory_mm")
int BPF_PROG(on_enough, struct mm_struct *asked, long pages, int refused)
{
	return JUDGE(refused, judge_enough((__u64)asked, pages));
}

/* Where a program may be interrupted before it keeps its CPU, and after: whoever runs meanwhile is asked by the other one. */
SEC("fmod_ret/security_vm_enough_memory_mm")
int BPF_PROG(on_enough_again, struct mm_struct *asked, long pages, int refused)
{
	return JUDGE(refused, judge_enough((__u64)asked, pages));
}

SEC("fmod_ret/security_mmap_file")
int BPF_PROG(on_mmap_file, void *file, unsigned long prot, unsigned long flags, int refused)
{
	return JUDGE(refused, judge_mmap(prot, flags));
}

SEC("fmod_ret/security_file_mprotect")
int BPF_PROG(on_mprotect, struct vm_area_struct *vma, unsigned long asked, unsigned long prot, int refused)
{
	return JUDGE(refused, judge_mprotect(vma, prot));
}

SEC("fmod_ret/security_file_mprotect")
int BPF_PROG(on_mprotect_again, struct vm_area_struct *vma, unsigned long asked, unsigned long prot, int refused)
{
	return JUDGE(refused, judge_mprotect(vma, prot));
}

SEC("fmod_ret/security_mmap_addr")
int BPF_PROG(on_mmap_addr, unsigned long addr, int refused)
{
	return JUDGE(refused, judge_mremap());
}

SEC("fmod_ret/security_task_alloc")
int BPF_PROG(on_child, struct task_struct *child, unsigned long clone_flags, int refused)
{
	return JUDGE(refused, judge_child(clone_flags));
}

/* A child is in its parent's job, and has what its parent has: that was asked about. */
static __always_inline int follow_fork(struct task_struct *parent, struct task_struct *child)
{
	struct plimsoll_strict_member *member = bpf_task_storage_get(&strict_members, parent, 0, 0), copy;
	__u64 own = (__u64)BPF_CORE_READ(parent, mm), mm = (__u64)BPF_CORE_READ(child, mm);
	struct space *space = own ? find(own) : 0;
	__u32 job;

	if (member) {
		copy = *member;
		if (!bpf_task_storage_get(&strict_members, child, &copy, BPF_LOCAL_STORAGE_GET_F_CREATE))
			count(PLIMSOLL_STRICT_LOST);
	}
	if (!mm || mm == own)
		return 0;
	leave(mm);
	job = job_of(parent, space);
	if (!job)
		return 0;
	enter(mm, job);
	if (space && space->job == job) {
		/* What was counted for the child. */
		space->asked = 0;
		space->loose = 0;
		space->loose_before = 0;
		have_counted(space, writable_pages(own));
	}
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_strict_fork, struct task_struct *parent, struct task_struct *child)
{
	return JUDGE(0, follow_fork(parent, child));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_strict_fork_again, struct task_struct *parent, struct task_struct *child)
{
	return JUDGE(0, follow_fork(parent, child));
}

static __always_inline int follow_exec(struct task_struct *task)
{
	struct plimsoll_strict_member *member = bpf_task_storage_get(&strict_members, task, 0, 0);
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	__u32 job;

	if (!mm)
		return 0;
	leave(mm);
	if (!member)
		return 0;
	if (member->next) {
		member->job = member->next;
		member->next = 0;
	}
	job = job_of(task, 0);
	if (job)
		enter(mm, job);
	return 0;
}

/* One that is missed is made good with its next request, but for whoever starts a job. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_strict_exec, struct task_struct *task)
{
	return JUDGE(0, follow_exec(task));
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_strict_exec_again, struct task_struct *task)
{
	return JUDGE(0, follow_exec(task));
}

/* Not the tracepoint: in 6.1 and 6.12 an address space without mappings does not come there. */
SEC("fentry/exit_mmap")
int BPF_PROG(on_strict_exit, struct mm_struct *mm)
{
	keep_cpu(true);
	leave((__u64)mm);
	keep_cpu(false);
	return 0;
}

SEC("fentry/exit_mmap")
int BPF_PROG(on_strict_exit_again, struct mm_struct *mm)
{
	keep_cpu(true);
	leave((__u64)mm);
	keep_cpu(false);
	return 0;
}
