// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Strict jobs: memory past a job's line is refused when it is asked for, and nobody is ended.
 *
 * The kernel asks security_vm_enough_memory_mm() before an address space gets more private memory that it can write to, and
 * before its stack grows. Of what is mapped MAP_NORESERVE, and made writable later, it asks nothing:
 * security_mmap_addr() and security_file_mprotect() see those, with the lock of the address space held as well. What is asked
 * is whether it may be as large as it will be then: it does not matter which of them see a request. security_task_alloc() sees
 * a fork.
 *
 * Linked while there are strict jobs, through pins: they go on without the daemon. A thread in no such job pays for two lookups
 * in each call.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "known.h"
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

static __always_inline struct plimsoll_strict_member *member_of(struct task_struct *task)
{
	return bpf_task_storage_get(&strict_members, task, 0, 0);
}

/*
 * The job that a thread is charged to; 0: none. One that was not noted in its thread, for want of memory, or because the kernel
 * was busy with such a note on this CPU, is in that of its address space.
 */
static __always_inline __u32 job_of(struct task_struct *task, struct space *space)
{
	struct plimsoll_strict_member *member = member_of(task);
	__u32 job = member ? member->job : space ? space->job : 0;
	struct plimsoll_strict_line *line = line_of(job);

	return line && user_of_cred(BPF_CORE_READ(task, real_cred)) == line->uid ? job : 0;
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

/* Has so many more counted, if they fit. Returns 0, or a job whose line refuses it. */
static __always_inline __u32 try_to_have(struct space *space, __u64 mm, __s64 pages, bool children, __u64 now_ns)
{
	__s64 now = writable_pages(mm), had;
	__u32 over;

	if (children) {
		had = now + under_way(space, mm, now, now_ns);
		__sync_fetch_and_add(&space->forks, pages);
		space->forks_ns = now_ns;
	} else {
		had = now + held_for_children(space, mm, now_ns);
		space->before = now;
		space->asked = pages;
		space->asked_ns = now_ns;
	}
	over = have_counted(space, had + pages);
	if (!over)
		return 0;
	/* Others see no more of it than there is, while they are counted anew. */
	if (children)
		__sync_fetch_and_add(&space->forks, -pages);
	else
		space->asked = 0;
	have_counted(space, had);
	return over;
}

/*
 * Asks for so many pages for an address space, whose lock who runs holds; `children`: they are for a child, and not asked for
 * by then. Returns 0, or a job whose line refuses it.
 */
__noinline __u32 ask_of(__u32 job, __u64 mm, __s64 pages, bool children)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct space *space = space_of(mm);
	__s64 had, forks;
	__u32 over;

	if (!space)
		return 0;
	had = writable_pages(mm);
	forks = held_for_children(space, mm, now_ns);
	if (!forks && space->forks > 0)
		space->forks = 0;
	/* The same request once more, or one like it of memory that was given back: it is in the sum. */
	if (!children && space->before == had && space->asked == pages && space->counted >= had + forks + pages)
		return 0;
	/* It needs no look at others, and no sum that is out of all bounds meanwhile. */
	over = alone_over(job, had + pages);
	if (over)
		return over;
	over = try_to_have(space, mm, pages, children, now_ns);
	if (!over)
		return 0;
	recount_job(over, mm);
	return try_to_have(space, mm, pages, children, now_ns);
}

/* What a thread has counted for a child that did not come is given back. */
static __always_inline void drop_fork(struct plimsoll_strict_member *member, struct space *space)
{
	__s64 pages = member ? member->fork_pages : 0;

	if (!pages)
		return;
	member->fork_pages = 0;
	if (space && space->forks >= pages)
		__sync_fetch_and_add(&space->forks, -pages);
}

/* Who runs asks for so many pages: 0, or an error. */
__noinline int ask(__s64 pages, bool children)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_strict_member *member = member_of(task);
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	struct space *space = space_of(mm);
	__u32 job, over;

	if (pages <= 0)
		return 0;
	job = job_of(task, space);
	if (!children)
		drop_fork(member, space);
	if (space && space->job != job) {
		/* Its user is another by now, or was. No two threads do this at once: they hold its lock. */
		if (children)
			return 0;
		have_counted(space, 0);
		add_space(space->job, -1);
		space->job = job;
		add_space(job, 1);
		have_counted(space, job ? writable_pages(mm) : 0);
	}
	if (!job)
		return 0;
	if (!space)
		space = enter(mm, job);
	if (!space)
		return -ENOMEM;
	over = ask_of(job, mm, pages, children);
	if (!over) {
		note_peak(job);
		return 0;
	}
	tell(over, pages, children ? PLIMSOLL_REFUSED_FORK : 0);
	return -ENOMEM;
}

/*
 * A child will have what its parent has: it is asked for as it is begun, without the lock of the parent's address space, and
 * what that has grown by until it is copied, with the lock.
 */
__noinline int ask_for_child(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct plimsoll_strict_member fresh = {}, *member = member_of(task);
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	struct space *space = space_of(mm);
	__s64 more;

	if (!member) {
		/* In the job of its address space, which could not be noted. */
		fresh.job = job_of(task, space);
		if (!fresh.job)
			return 0;
		member = bpf_task_storage_get(&strict_members, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	if (!member)
		return -ENOMEM;
	more = writable_pages(mm) - member->fork_pages;
	if (more <= 0)
		return 0;
	if (ask(more, true))
		return -ENOMEM;
	member->fork_pages += more;
	return 0;
}

/* The address space of who runs, where it is to be asked about; else 0. */
static __always_inline __u64 concerned(struct task_struct *task)
{
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);

	return mm && (member_of(task) || space_of(mm)) ? mm : 0;
}

static __always_inline __s64 pages_of(__u64 bytes)
{
	return bytes + (1ull << page_shift) - 1 < bytes ? 0 : (bytes + (1ull << page_shift) - 1) >> page_shift;
}

/* Whether a stack would grow past the limit of one: several of them do, which the kernel holds to it one by one. */
static __always_inline bool is_past_stack(struct task_struct *task, __u64 mm, __s64 pages)
{
	__u64 limit = BPF_CORE_READ(task, signal, rlim[RLIMIT_STACK].rlim_cur) >> page_shift;

	return READ_OF(mm, __u64, stack_vm) + pages > limit;
}

/* Private memory that can be written to. */
static __always_inline int judge_enough(__u64 asked, __s64 pages)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = concerned(task);
	struct space *space;

	/* Of an exec, the address space is not its own yet. */
	if (!mm || mm != asked)
		return 0;
	switch (call_of(task)) {
	case OTHER:
		return 0;
	case FAULT:
		return is_past_stack(task, mm, pages) ? ask(pages, false) : 0;
	case FORK:
		space = space_of(mm);
		if (space)
			space->forks_ns = bpf_ktime_get_ns();
		return space && space->forks > 0 ? ask_for_child() : 0;
	default:
		return ask(pages, false);
	}
}

/*
 * A place is looked for, for a mapping that is made, or moved away from one that stays. Nobody is asked about one that is
 * MAP_NORESERVE or of huge pages. What is put in the place of others is asked about later, for what it is more than they,
 * where it is neither.
 */
static __always_inline int judge_place(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = concerned(task), arguments[4] = {}, flags, type;
	__u32 in_memory[4] = {};

	if (!mm)
		return 0;
	read_arguments(task, arguments);
	switch (call_of(task)) {
	case REMAP:
		/* Nothing tells what grows here: files that are mapped shared do. What is accounted was asked about. */
		return arguments[3] & MREMAP_DONTUNMAP ? ask(pages_of(arguments[2]), false) : 0;
	case MAP_BY_POINTER:
		/* If another thread changes them, the next request sees it. */
		bpf_probe_read_user(in_memory, sizeof(in_memory), (void *)arguments[0]);
		arguments[1] = in_memory[1];
		arguments[2] = in_memory[2];
		arguments[3] = in_memory[3];
		break;
	case MAP:
		break;
	case BRK:
		/* Both ends as the kernel rounds them. */
		return ask(pages_of(arguments[0]) - pages_of(READ_OF(mm, __u64, brk)), false);
	default:
		return 0;
	}
	flags = arguments[3];
	type = flags & MAP_TYPE;
	if (type != MAP_PRIVATE && type != MAP_DROPPABLE)
		return 0;
	if (!(arguments[2] & PROT_WRITE) && !(flags & MAP_GROWSDOWN))
		return 0;
	if (flags & MAP_FIXED && !(flags & (MAP_NORESERVE | MAP_HUGETLB | MAP_GROWSDOWN)))
		return 0;
	return ask(pages_of(arguments[1]), false);
}

/* A mapping that becomes writable, of which nobody is asked where it is MAP_NORESERVE, or was writable before. */
static __always_inline int judge_mprotect(struct vm_area_struct *vma, unsigned long prot)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 arguments[4] = {}, start, end, from, to;

	if (!(prot & PROT_WRITE) || !concerned(task) ||
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
	return ask(pages_of(to - from), false);
}

/* A child that will have what its parent has. */
static __always_inline int judge_child(unsigned long clone_flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 mm = concerned(task);

	if (clone_flags & CLONE_VM || !mm)
		return 0;
	/* Of one that did not come. */
	drop_fork(member_of(task), space_of(mm));
	return ask_for_child();
}

/* With its CPU kept. What another program has refused is refused. */
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

/*
 * Whoever is interrupted in a program blinds the CPU to it, also as it lets go of the CPU again. Programs of the BPF security
 * module may run several times on a CPU (since Linux 6.2, 271de525e1d7): those that end in _again are asked besides, where the
 * kernel interrupts programs and has that module. It is not asked by security_vm_enough_memory_mm(), but where a place is
 * looked for.
 */

SEC("fmod_ret/security_vm_enough_memory_mm")
int BPF_PROG(on_enough, struct mm_struct *asked, long pages, int refused)
{
	return JUDGE(refused, judge_enough((__u64)asked, pages));
}

SEC("fmod_ret/security_file_mprotect")
int BPF_PROG(on_mprotect, struct vm_area_struct *vma, unsigned long asked, unsigned long prot, int refused)
{
	return JUDGE(refused, judge_mprotect(vma, prot));
}

SEC("lsm/file_mprotect")
int BPF_PROG(on_mprotect_again, struct vm_area_struct *vma, unsigned long asked, unsigned long prot, int refused)
{
	return refused ? refused : judge_mprotect(vma, prot) ? -ENOMEM : 0;
}

SEC("fmod_ret/security_mmap_addr")
int BPF_PROG(on_mmap_addr, unsigned long addr, int refused)
{
	return JUDGE(refused, judge_place());
}

SEC("lsm/mmap_addr")
int BPF_PROG(on_mmap_addr_again, unsigned long addr, int refused)
{
	return refused ? refused : judge_place() ? -ENOMEM : 0;
}

SEC("fmod_ret/security_task_alloc")
int BPF_PROG(on_child, struct task_struct *child, unsigned long clone_flags, int refused)
{
	return JUDGE(refused, judge_child(clone_flags));
}

SEC("lsm/task_alloc")
int BPF_PROG(on_child_again, struct task_struct *child, unsigned long clone_flags, int refused)
{
	return refused ? refused : judge_child(clone_flags) ? -ENOMEM : 0;
}

/* A child is in its parent's job, and has what its parent has: that was asked about. */
static __always_inline int follow_fork(struct task_struct *parent, struct task_struct *child)
{
	struct plimsoll_strict_member *member = member_of(parent), copy;
	__u64 own = (__u64)BPF_CORE_READ(parent, mm), mm = (__u64)BPF_CORE_READ(child, mm);
	struct space *space = own ? space_of(own) : 0;
	__u64 now_ns = bpf_ktime_get_ns();
	__s64 now;
	__u32 job;

	if (member) {
		copy = *member;
		copy.fork_pages = 0;
		if (!bpf_task_storage_get(&strict_members, child, &copy, BPF_LOCAL_STORAGE_GET_F_CREATE))
			count(PLIMSOLL_STRICT_LOST);
	}
	if (!mm || mm == own)
		return 0;
	job = job_of(parent, space);
	begin(mm, job);
	if (!job || !space || space->job != job)
		return 0;
	/* What was counted for the child. */
	drop_fork(member, space);
	now = writable_pages(own);
	have_counted(space, now + under_way(space, own, now, now_ns));
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
	struct plimsoll_strict_member *member = member_of(task);
	__u64 mm = (__u64)BPF_CORE_READ(task, mm);
	__u32 job;

	if (!mm)
		return 0;
	if (member && member->next) {
		member->job = member->next;
		member->next = 0;
	}
	job = member ? job_of(task, 0) : 0;
	begin(mm, job);
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
	return JUDGE(0, leave((__u64)mm));
}

SEC("fentry/exit_mmap")
int BPF_PROG(on_strict_exit_again, struct mm_struct *mm)
{
	return JUDGE(0, leave((__u64)mm));
}
