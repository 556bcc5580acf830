/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A kernel made of memory: what the programs ask of the real one (helpers, maps, tasks and their address spaces), so that
 * their C runs on this machine, on as many CPUs as wanted, and whatever wanted goes wrong.
 *
 * As in the kernel: memory of tasks and address spaces is never unmapped, and is another's soon after it was freed; the
 * elements of a hash map are allocated beforehand, and one that is deleted is the next one entered. What it does not show:
 * what the verifier takes, where a real kernel's types have their members, in which order a real kernel's events come, and
 * a value that another CPU has copied in part.
 */
#ifndef PLIMSOLL_FAKE_H
#define PLIMSOLL_FAKE_H

#define FAKE_CPUS_MAX 256
#define FAKE_ADDRESS_SPACES 512
#define FAKE_TASKS 256

/* Of one kernel, from its loading on. */
struct fake_settings {
	__u32 cpus;
	/* What a CPU keeps to itself of a counter before it is folded into the shared count (percpu_counter_batch). */
	__u32 batch;
	__u32 charged_members;
	__u32 loose_pages_per_mm;
	__u32 has_task_from_pid;
	__u32 has_send_signal_task;
	__u32 mms;
	__u32 families;
	__u32 accounts;
	__u32 ring_bytes;
	__s64 allowance_pages;
};

/* What is asked of whoever drives it. Any may be NULL. */
struct fake_hooks {
	/* Another CPU may run here: once `fake_yield_after` reads and writes have gone by. */
	void (*yield)(void);
	/* A signal from a program to the process of a task; 0, or a negative errno. */
	int (*signal)(__u64 task, __u32 signal);
	__u64 (*now)(void);
};

/* What is told of a task when it is made, or changes. */
struct fake_task {
	__u64 mm; /* 0: it has none (any more) */
	__u64 start_ns;
	__u32 pid;
	__u32 uid;
	__u32 flags;  /* PF_* */
	__u32 leader; /* the number of its leader's place */
	__u32 threads;
	__u32 signal_flags;
	__u32 unhashed; /* it was waited for: not found by its number any more */
};

#endif
