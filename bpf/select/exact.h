/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Exact counts of one process: what every CPU, or before Linux 6.2 every thread, keeps to itself is added. */
#ifndef PLIMSOLL_SELECT_EXACT_H
#define PLIMSOLL_SELECT_EXACT_H

/* A fold moves a remainder into the shared count while we add: then the sum is taken again, so often. */
#define SUM_TRIES 4

struct sums {
	__u64 bases[PLIMSOLL_MEMBERS];
	__s64 pages[PLIMSOLL_MEMBERS];
};

static long add_cpu(__u32 cpu, struct sums *sums)
{
	__u64 *offset = bpf_map_lookup_elem(&cpu_offsets, &cpu);

	if (!offset)
		return 1;
	sums->pages[0] += read_remainder(sums->bases[0], *offset);
	sums->pages[1] += read_remainder(sums->bases[1], *offset);
	sums->pages[2] += read_remainder(sums->bases[2], *offset);
	sums->pages[3] += read_remainder(sums->bases[3], *offset);
	return 0;
}

static __always_inline void add_remainders(__s64 *pages, struct mm_struct *mm)
{
	struct sums sums = {};

	bpf_probe_read_kernel(&sums.bases[0], sizeof(__u64), &mm->rss_stat[0].counters);
	bpf_probe_read_kernel(&sums.bases[1], sizeof(__u64), &mm->rss_stat[1].counters);
	bpf_probe_read_kernel(&sums.bases[2], sizeof(__u64), &mm->rss_stat[2].counters);
	bpf_probe_read_kernel(&sums.bases[3], sizeof(__u64), &mm->rss_stat[3].counters);
	bpf_loop(nr_cpus, add_cpu, &sums, 0);
	pages[0] += sums.pages[0];
	pages[1] += sums.pages[1];
	pages[2] += sums.pages[2];
	pages[3] += sums.pages[3];
}

static __always_inline void add_cached(__s64 *pages, struct task_struct *leader)
{
	struct walk walk = { .to_end = true };

	walk_threads(&walk, leader);
	pages[0] += walk.cached[0];
	pages[1] += walk.cached[1];
	pages[2] += walk.cached[2];
	pages[3] += walk.cached[3];
}

struct sum {
	struct plimsoll_task *out;
	struct task_struct *leader;
	__u64 mm;
};

/*
 * One attempt after the other, until no shared count moved meanwhile. A callback, because the verifier would walk a loop of
 * our own round by round: 141,000 instructions on 6.1.
 */
static long sum_once(__u32 attempt, struct sum *sum)
{
	struct mm_struct *mm = (struct mm_struct *)sum->mm;
	__s64 before[PLIMSOLL_MEMBERS] = {}, after[PLIMSOLL_MEMBERS] = {};
	struct plimsoll_task *out = sum->out;

	read_counts(before, mm);
	out->pages[0] = before[0];
	out->pages[1] = before[1];
	out->pages[2] = before[2];
	out->pages[3] = before[3];
	if (task_caches)
		add_cached(out->pages, sum->leader);
	else
		add_remainders(out->pages, mm);
	barrier();
	read_counts(after, mm);
	if ((before[0] ^ after[0]) | (before[1] ^ after[1]) | (before[2] ^ after[2]) | (before[3] ^ after[3]))
		return 0;
	out->flags |= PLIMSOLL_TASK_EXACT;
	return 1;
}

/* The record of a process with exact counts: 0, -ESRCH or -EAGAIN. */
static __always_inline int measure_leader(struct plimsoll_task *out, struct task_struct *leader)
{
	struct sum sum = { .out = out, .leader = leader };
	struct walk walk = {};
	struct task_struct *thread;
	__u64 again = 0;

	walk_threads(&walk, leader);
	if (!walk.mm)
		return -ESRCH;
	sum.mm = walk.mm;
	thread = (struct task_struct *)walk.thread;
	describe(out, leader, thread, (struct mm_struct *)walk.mm);
	bpf_loop(SUM_TRIES, sum_once, &sum, 0);
	/* Nothing holds the memory meanwhile: what was read is this process's if it still has the same. */
	bpf_probe_read_kernel(&again, sizeof(again), &thread->mm);
	return again == walk.mm ? 0 : -EAGAIN;
}

#endif
