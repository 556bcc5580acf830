/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where the kernel keeps a process's page counters, read without its help. Since Linux 6.2 a counter is a percpu_counter:
 * a shared count, and a remainder on each CPU; 6.1 has a shared count, and each thread keeps to itself what its last 64
 * faults added.
 */
#ifndef PLIMSOLL_COUNTERS_H
#define PLIMSOLL_COUNTERS_H

/* Set before load, constants to the verifier. */
const volatile __u32 nr_cpus = 1;        /* possible CPUs */
const volatile bool task_caches = false; /* Linux 6.1 */

/* Where each CPU's copy of per-CPU data lies, as an offset from the first: filled by find_cpu_offsets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cpu_offsets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} anchor SEC(".maps");

#define CACHE_OF(task, member) (((struct task_struct___61 *)(task))->rss_stat.count[member])

/*
 * Where the counter of a member is, which may be known only as it runs: as a number. A place that this kernel does not have
 * must not be asked for, which the compiler would do for both at once, or ahead of a loop: so each is kept in its branch, and
 * who calls this does so before a loop.
 */
static __always_inline __u64 counter_at(__u64 mm, __u32 member)
{
	__u64 first;

	if (task_caches) {
		first = bpf_core_field_offset(struct mm_struct___61, rss_stat.count);
		barrier_var(first);
		return mm + first + member * sizeof(__s64);
	}
	first = bpf_core_field_offset(struct mm_struct, rss_stat);
	barrier_var(first);
	return mm + first + member * bpf_core_type_size(struct percpu_counter);
}

/* Its shared count. 6.1's verifier knows no array of atomic_long_t: read as any kernel memory. */
static __always_inline __s64 read_count(__u64 counter)
{
	__s64 now = 0;

	if (!task_caches)
		return *(volatile __s64 *)&KNOWN(percpu_counter, counter)->count;
	bpf_probe_read_kernel(&now, sizeof(now), (void *)counter);
	return now;
}

/* Where its per-CPU remainders are. */
static __always_inline __u64 remainders_of(__u64 counter)
{
	return task_caches ? 0 : (__u64)KNOWN(percpu_counter, counter)->counters;
}

/* A per-CPU remainder of a percpu_counter, from the counter's base and the CPU's offset. */
static __always_inline __s32 read_remainder(__u64 counters_base, __u64 offset)
{
	return *(volatile int *)&KNOWN(refcount_struct, counters_base + offset)->refs.counter;
}

/* What a CPU keeps of a counter; 0 as well where nobody found out where it does. */
static __always_inline __s32 remainder_on(__u32 cpu, __u64 counter)
{
	__u64 *offset = bpf_map_lookup_elem(&cpu_offsets, &cpu);

	return offset ? read_remainder(remainders_of(counter), *offset) : 0;
}

/*
 * CONFIG_KALLSYMS_ALL is not everywhere, so __per_cpu_offset cannot be had by name. The copies of a per-CPU array's
 * value lie at the array's own per-CPU pointer plus that offset; their difference is it. Pointers become numbers by
 * a store to the map and a load from it.
 */
struct find_offsets {
	__u64 base;
	__s32 result;
};

/* A callback, because 6.12's verifier walks a loop of our own round by round and gives up. */
static long find_offset(__u32 cpu, struct find_offsets *find)
{
	__u32 zero = 0;
	void *copy = bpf_map_lookup_percpu_elem(&anchor, &zero, cpu);
	volatile __u64 *cell = bpf_map_lookup_elem(&cpu_offsets, &cpu);

	if (!copy || !cell) {
		find->result = -ENOENT;
		return 1;
	}
	*(void *volatile *)cell = copy;
	*cell -= find->base;
	return 0;
}

SEC("syscall")
int find_cpu_offsets(void *ctx)
{
	struct find_offsets find = {};
	volatile __u64 *cell;
	__u32 zero = 0;
	__u64 map;

	cell = bpf_map_lookup_elem(&cpu_offsets, &zero);
	if (!cell)
		return -ENOENT;
	*(void *volatile *)cell = &anchor;
	map = *cell;
	bpf_probe_read_kernel(&find.base, sizeof(find.base),
			      (void *)(map + bpf_core_field_offset(struct bpf_array, pptrs)));
	bpf_loop(nr_cpus, find_offset, &find, 0);
	return find.result;
}

#endif
