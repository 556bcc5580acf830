/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reading the kernel's counters and charging accounts. Everything telescopes: each reading is exchanged with the one
 * before it and the difference is charged, so that whoever sees a change first charges it, once.
 */
#ifndef PLIMSOLL_LIMITS_CHARGE_H
#define PLIMSOLL_LIMITS_CHARGE_H

static __always_inline __u32 mm_slot(struct mm_struct *mm)
{
	__u32 low = (__u32)(unsigned long)mm;

#ifdef __bpf__
	/*
	 * The low half of the address as a number: the verifier lets a 32-bit move do that, but not the shift that the
	 * compiler would rather do on the pointer itself ('R6 32-bit pointer arithmetic prohibited').
	 */
	asm("%0 = %1" : "=w"(low) : "w"(low));
#endif
	/* Golden-ratio hashing; objects are at least a cache line apart. */
	return ((low >> 6) * 0x9e3779b1u) >> 18;
}

static __always_inline bool uid_may_be_limited(__u32 uid)
{
	return uid_gate[uid % UID_GATE_SLOTS] ||
	       uid - default_line.uid_min <= default_line.uid_max - default_line.uid_min;
}

/*
 * Whether the event before us folded this CPU's remainder into the shared count: a fold leaves 0 (lib/percpu_counter.c,
 * 6.2 to 7.2). Far from a line only folds matter: what is not folded is bounded by loose_pages_per_mm.
 */
static __always_inline bool folded(__u64 counter)
{
	/* There, the event itself says that a thread's cache was folded. */
	return task_caches || !remainder_on(bpf_get_smp_processor_id(), counter);
}

static __always_inline bool mm_may_be_tracked(struct mm_struct *mm)
{
	return mm_gate[mm_slot(mm) % MM_GATE_SLOTS];
}

static __always_inline volatile __s32 *remainder_at(struct plimsoll_mm *e, __u32 cpu, __u32 slot)
{
	__u32 index = cpu * nr_slots + slot;

	if (index >= nr_cpus * nr_slots)
		return 0;
	/* Keeps the compiler from forming the address before the check: 'R9 unbounded memory access'. */
	barrier_var(index);
	return (volatile __s32 *)(e + 1) + index;
}

/*
 * Settles the shared count of one member. A writer that read the count, was overtaken and stored its old reading
 * would leave the total off for as long as nothing happens, so whoever stored reads again: the last to store has
 * seen the count unchanged after it. Global: it is verified once, and what it returns is one number and not one of each try.
 */
__noinline __s64 settle_count(volatile __s64 *last, __u64 counter)
{
	__s64 now = read_count(counter), delta = 0, again;
	int i;

	if (!last || now == *last)
		return 0;
	for (i = 0; i < SETTLE_TRIES; i++) {
		delta += now - (__s64)__sync_lock_test_and_set(last, now);
		barrier();
		again = read_count(counter);
		if (again == now)
			return delta;
		now = again;
		count_one(&counters.late_writes);
	}
	count_one(&counters.unsettled);
	return delta;
}

/* Settles one CPU's remainder; the caller may run on another CPU, hence the exchange and the second look. */
static __always_inline __s64 settle_remainder(volatile __s32 *local, __u64 base, __u64 offset)
{
	__s64 delta = 0;
	__s32 now;
	int i;

	for (i = 0; i < SETTLE_TRIES; i++) {
		now = read_remainder(base, offset);
		if (now == *local)
			return delta;
		delta += now - (__s32)__sync_lock_test_and_set(local, now);
		barrier();
	}
	count_one(&counters.unsettled);
	return delta;
}

/*
 * A thread's cache is charged fault by fault while its account is exact. When it is folded into the shared count, as
 * this event says, the count brings the same pages: those charged before go.
 */
static __always_inline __s64 take_cached(__u32 member)
{
	struct plimsoll_cached *c = bpf_task_storage_get(&cached, bpf_get_current_task_btf(), 0, 0);

	return c ? __sync_lock_test_and_set(&c->pages[member & (PLIMSOLL_MEMBERS - 1)], 0) : 0;
}

static __always_inline __s64 settle_cache(struct plimsoll_cached *c, __u32 member, int now)
{
	if (!(charged_members & 1u << member))
		return 0;
	/* No event says that it was folded: what is in there is not charged. */
	if (look_due_ns)
		now = 0;
	return now - (__s64)__sync_lock_test_and_set(&c->pages[member], now);
}

/* What a thread keeps to itself and was not charged yet. */
static __always_inline __s64 settle_caches(struct task_struct *task)
{
	struct plimsoll_cached *c = bpf_task_storage_get(&cached, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!c)
		return 0;
	return settle_cache(c, 0, CACHE_OF(task, 0)) + settle_cache(c, 1, CACHE_OF(task, 1)) +
	       settle_cache(c, 2, CACHE_OF(task, 2)) + settle_cache(c, 3, CACHE_OF(task, 3));
}

static __always_inline volatile __s64 *last_of(struct plimsoll_mm *e, __u32 member)
{
	return &e->last[member & (PLIMSOLL_MEMBERS - 1)];
}

/*
 * What an event on this CPU changed in one member. No second look at the remainder: only this CPU moves it. Where one is left,
 * this event moved no shared count: what moved that is settled by the event of who did.
 *
 * Of the address space that the entry names, once: a line that goes may delete the entry of who runs, which is another's then,
 * or nobody's yet. Its end is told by an event that comes before it is freed, and marks the entry: what is read past that is no
 * fault, and goes to an account that nobody has any more.
 */
static __always_inline __s64 settle_here(struct plimsoll_mm *e, __u32 member, bool own)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 mm = e->mm, counter;
	volatile __s32 *local;
	__s64 delta;
	__s32 now;

	if (!mm)
		return 0;
	counter = counter_at(mm, member);
	if (task_caches) {
		delta = settle_count(last_of(e, member), counter);
		return own ? delta - take_cached(member) : delta;
	}
	local = remainder_at(e, cpu, slot_of_member[member & (PLIMSOLL_MEMBERS - 1)]);
	if (!local)
		return settle_count(last_of(e, member), counter);
	now = remainder_on(cpu, counter);
	delta = now ? 0 : settle_count(last_of(e, member), counter);
	return delta + now - (__s32)__sync_lock_test_and_set(local, now);
}

struct settle_all {
	struct plimsoll_mm *e;
	__u64 base;
	__s64 delta;
	__u32 slot;
};

static long settle_cpu(__u32 cpu, struct settle_all *all)
{
	__u64 *offset = bpf_map_lookup_elem(&cpu_offsets, &cpu);
	volatile __s32 *local = remainder_at(all->e, cpu, all->slot);

	if (!offset || !local)
		return 1;
	all->delta += settle_remainder(local, all->base, *offset);
	return 0;
}

static __always_inline __s64 settle_member(struct plimsoll_mm *e, __u64 mm, __u32 member)
{
	struct settle_all all = { .e = e, .slot = slot_of_member[member] };
	__u64 counter;

	if (!(charged_members & 1u << member))
		return 0;
	counter = counter_at(mm, member);
	all.base = remainders_of(counter);
	if (!task_caches)
		bpf_loop(nr_cpus, settle_cpu, &all, 0);
	return all.delta + settle_count(last_of(e, member), counter);
}

/*
 * The whole of an address space on all CPUs: O(CPUs), for its first sight and for scans. Returns the change. The entry is
 * pinned, or the process's own. Global, so that the verifier walks it once: it is as long as all else of an event.
 */
__noinline __s64 settle_all_cpus(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e)
		return 0;
	return settle_member(e, key, 0) + settle_member(e, key, 1) + settle_member(e, key, 2) +
	       settle_member(e, key, 3);
}

/*
 * What a dying process takes is dying before it is charged, and what it frees is charged no more before it is dying no more: in
 * between another victim would be taken. Returns usage after.
 */
__noinline __s64 charge_dying(__u64 key, __u32 account, __s64 delta)
{
	struct plimsoll_account *a = account_at(account);

	if (!a)
		return 0;
	if (delta > 0)
		settle_dying_space(key);
	account_add(a, delta);
	if (delta <= 0)
		settle_dying_space(key);
	return known_usage(a);
}

/*
 * Charges `delta` pages to the account that the entry names at this instant, and tells its usage after. NULL: that
 * account is gone. An entry with inherited pages may fall below what is its own; then inherited ones went, and are no
 * longer inherited. `granted`: pages that the process has just come to have, or to have no more, so that they may be such
 * as were granted to it. `event`: it judges them, so that they may lie in the account's tree.
 */
static __always_inline struct plimsoll_account *charge_as(struct plimsoll_mm *e, __s64 delta, __s64 *usage,
							  bool granted, bool event)
{
	__u64 old = __sync_fetch_and_add(&e->word, delta);
	__s64 own = word_pages(old) + delta, taken = 0;
	struct plimsoll_account *a;

	if (own < 0)
		delta += take_inherited(e->mm, -own, word_account(old));
	a = account_at(word_account(old));
	if (!a)
		return 0;
	if (granted && e->flags & PLIMSOLL_MM_GRANTED)
		taken = move_granted(e->mm, a->index, delta);
	if (e->flags & PLIMSOLL_MM_DYING)
		*usage = charge_dying(e->mm, a->index, delta - taken);
	else
		*usage = event ? spread_to_all(a, delta - taken) : account_add(a, delta - taken);
	return a;
}

/* As charge_as(), of a sum over what may have been granted. */
static __always_inline struct plimsoll_account *charge(struct plimsoll_mm *e, __s64 delta, __s64 *usage)
{
	return charge_as(e, delta, usage, true, false);
}

int note_largest(__u32 account, __u64 mm);

/* What an address space is charged changed without an event that judges it: in this account, and in those above. */
static __always_inline void note_in_one(struct plimsoll_account *a, __u64 key)
{
	note_peak(a, a->usage_pages);
	if (a->near)
		note_largest(a->index, key);
}

__noinline int note_above(__u64 above, __u64 key)
{
	struct plimsoll_account *a;
	int i;

	for_each_above (a, above, i)
		note_in_one(a, key);
	return 0;
}

static __always_inline void note_in_all(struct plimsoll_account *a, __u64 key)
{
	__u64 above = a->above;

	note_in_one(a, key);
	if (above)
		note_above(above, key);
}

/*
 * Everything that the kernel counts of it is charged, and it is compared with the account's largest. Before Linux 6.2 all but
 * what its threads keep to themselves: up to 64 pages each, and while its account is exact what they kept since their last
 * fault, which is nothing.
 */
static __noinline int settle_space(struct plimsoll_mm *e)
{
	struct plimsoll_account *a;
	__s64 pages, usage;

	if (!e)
		return 0;
	pages = settle_all_cpus(e->mm);
	if (!pages)
		return 0;
	a = charge(e, pages, &usage);
	if (!a)
		return 0;
	note_in_all(a, e->mm);
	return 0;
}

#endif
