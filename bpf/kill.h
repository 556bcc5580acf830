/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What each kill is made of, whatever it is for: who a process is, whether it is dying, a signal to it, and how often the
 * daemon is asked for what cannot be done from here.
 */
#ifndef PLIMSOLL_KILL_H
#define PLIMSOLL_KILL_H

/* Linux 6.2 */
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;
/* Linux 6.13 */
extern int bpf_send_signal_task(struct task_struct *task, int sig, enum pid_type type, __u64 value) __ksym __weak;

/* Whether a process can be found by its number. */
static __always_inline bool finds_others(void)
{
	return bpf_ksym_exists(bpf_task_from_pid);
}

/* Whether another process than the one whose event this is can be sent a signal. */
static __always_inline bool signals_others(void)
{
	return finds_others() && bpf_ksym_exists(bpf_send_signal_task);
}

/* To be given back by bpf_task_release(). None where nobody has this number, and where it cannot be found by it. */
static __always_inline struct task_struct *find_task(__u32 pid)
{
	return finds_others() ? bpf_task_from_pid(pid) : 0;
}

/*
 * When a process began, from any of its threads. By a helper, as all that is read across several pointers off the fast path: of
 * each pointer that is loaded from a task the verifier asks four times whether it may be trusted, and each time it goes through
 * all types of the kernel (btf_nested_type_is_trusted, Linux 6.3 to 6.18). That took a fifth of the time that loading takes.
 */
static __always_inline __u64 start_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, group_leader, start_boottime);
}

/* Whether SIGKILL is pending for the whole process, or has reached it. */
static __always_inline bool is_dying(struct signal_struct *signal)
{
	return signal->flags & SIGNAL_GROUP_EXIT || signal->shared_pending.signal.sig[0] & 1ul << (SIGKILL - 1);
}

/* To the whole process. 0, or an error: -EINVAL where only the process whose event this is can be sent one. */
static __always_inline long send_signal(struct task_struct *task, int signal)
{
	if (task->tgid == bpf_get_current_task_btf()->tgid)
		return bpf_send_signal(signal);
	return bpf_ksym_exists(bpf_send_signal_task) ? bpf_send_signal_task(task, signal, PIDTYPE_TGID, 0) : -EINVAL;
}

/* One CPU at a time, no sooner than so long after the last. Signed: another CPU's clock may be ahead. */
static __always_inline bool comes_due(volatile __u64 *last, __u64 now, __u64 apart)
{
	__u64 since = *last;

	return (__s64)(now - since) >= (__s64)apart && __sync_val_compare_and_swap(last, since, now) == since;
}

#endif
