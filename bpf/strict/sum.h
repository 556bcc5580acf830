/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the address spaces of a job may write to, in all: kept with each request, because nothing tells of memory that is given
 * back, and counted anew before anything is refused.
 */
#ifndef PLIMSOLL_STRICT_SUM_H
#define PLIMSOLL_STRICT_SUM_H

/* kernel/locking/rwsem.c */
#define RWSEM_WRITER_LOCKED 1

/* A request that does not show by then has failed; also a child that does not come, unless its parent is being copied. */
#define UNDER_WAY_NS 1000000000ull

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&strict_counts, &which);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

#define READ_OF(mm, type, field)                                                                        \
	({                                                                                              \
		type now = 0;                                                                           \
		bpf_probe_read_kernel(&now, sizeof(now),                                                \
				      (void *)((mm) + bpf_core_field_offset(struct mm_struct, field))); \
		now;                                                                                    \
	})

/* What an address space may write to, and nobody else sees. */
static __always_inline __s64 writable_pages(__u64 mm)
{
	return READ_OF(mm, __u64, data_vm) + READ_OF(mm, __u64, stack_vm);
}

/* One that is not has ended, or is about to. */
static __always_inline bool is_used(__u64 mm)
{
	return READ_OF(mm, __s32, mm_users.counter) > 0;
}

/* Whether somebody changes its mappings. */
static __always_inline bool is_locked(__u64 mm)
{
	if (!bpf_core_field_exists(((struct mm_struct *)0)->mmap_lock.count))
		return true;
	return READ_OF(mm, __u64, mmap_lock.count.counter) & RWSEM_WRITER_LOCKED;
}

static __always_inline struct plimsoll_strict_line *line_of(__u32 job)
{
	return job ? bpf_map_lookup_elem(&strict_lines, &job) : 0;
}

static __always_inline struct space *space_of(__u64 mm)
{
	return bpf_map_lookup_elem(&strict_spaces, &mm);
}

static __always_inline struct plimsoll_strict_sum *sum_of(__u32 job)
{
	return job ? bpf_map_lookup_elem(&strict_sums, &job) : 0;
}

/* The job that an address space counts for, and those that it is in. */
struct chain {
	__u32 jobs[PLIMSOLL_STRICT_DEPTH];
};

/* A change of what is counted of an address space begins: see recount_job(). */
__noinline int begin_change(struct chain *chain, __u32 job)
{
	struct plimsoll_strict_line *line;
	struct plimsoll_strict_sum *sum;
	int i;

	if (!chain)
		return 0;
	for (i = 0; i < PLIMSOLL_STRICT_DEPTH; i++) {
		line = line_of(job);
		sum = line ? sum_of(job) : 0;
		chain->jobs[i] = sum ? job : 0;
		if (sum)
			__sync_fetch_and_add(&sum->begun, 1);
		job = sum ? line->outer : 0;
	}
	return 0;
}

/* So many more or fewer, in all of them. Returns the outermost that has more than its line; 0: none. */
__noinline __u32 end_change(struct chain *chain, __s64 delta)
{
	struct plimsoll_strict_line *line;
	struct plimsoll_strict_sum *sum;
	__u32 over = 0;
	__s64 now;
	int i;

	if (!chain)
		return 0;
	for (i = 0; i < PLIMSOLL_STRICT_DEPTH; i++) {
		sum = sum_of(chain->jobs[i]);
		if (!sum)
			break;
		now = __sync_fetch_and_add(&sum->committed_pages, delta) + delta;
		__sync_fetch_and_add(&sum->done, 1);
		line = line_of(chain->jobs[i]);
		if (line && now > (__s64)line->limit_pages)
			over = chain->jobs[i];
	}
	return over;
}

/* Has so much counted of an address space. Returns as end_change(). */
static __always_inline __u32 have_counted(struct space *space, __s64 pages)
{
	struct chain chain = {};

	begin_change(&chain, space->job);
	return end_change(&chain, pages - __sync_lock_test_and_set(&space->counted, pages));
}

/* A job whose line an address space goes past all by itself; 0: none. */
__noinline __u32 alone_over(__u32 job, __s64 pages)
{
	struct plimsoll_strict_line *line;
	int i;

	for (i = 0; i < PLIMSOLL_STRICT_DEPTH && (line = line_of(job)); i++) {
		if (pages > (__s64)line->limit_pages)
			return job;
		job = line->outer;
	}
	return 0;
}

/* Whether a job is another, or in it. */
static __always_inline bool is_within(__u32 job, __u32 other)
{
	struct plimsoll_strict_line *line;
	int i;

	for (i = 0; i < PLIMSOLL_STRICT_DEPTH && job != other; i++) {
		line = line_of(job);
		if (!line)
			return false;
		job = line->outer;
	}
	return job == other;
}

/* What is counted for children that are not there yet. */
static __always_inline __s64 held_for_children(struct space *space, __u64 mm, __u64 now_ns)
{
	return space->forks > 0 && (now_ns - space->forks_ns < UNDER_WAY_NS || is_locked(mm)) ? space->forks : 0;
}

/* What was let pass and does not show yet, in an address space that has so much. */
static __always_inline __s64 under_way(struct space *space, __u64 mm, __s64 now, __u64 now_ns)
{
	__s64 forks = held_for_children(space, mm, now_ns);

	return now == space->before && now_ns - space->asked_ns < UNDER_WAY_NS && is_locked(mm) ? forks + space->asked
												: forks;
}

static __always_inline void give_share_back(__u32 uid)
{
	__s64 *share = bpf_map_lookup_elem(&strict_shares, &uid);

	if (share)
		__sync_fetch_and_add(share, -1);
}

static __always_inline bool take_share(__u32 uid)
{
	__s64 none = 0, *share = bpf_map_lookup_elem(&strict_shares, &uid);

	if (!share) {
		bpf_map_update_elem(&strict_shares, &uid, &none, BPF_NOEXIST);
		share = bpf_map_lookup_elem(&strict_shares, &uid);
	}
	if (!share)
		return false;
	if (__sync_fetch_and_add(share, 1) < SPACES_OF_USER)
		return true;
	__sync_fetch_and_add(share, -1);
	return false;
}

static __always_inline void add_space(__u32 job, __s64 more)
{
	struct plimsoll_strict_sum *sum = sum_of(job);

	if (sum)
		__sync_fetch_and_add(&sum->spaces, more);
}

/* Only of one that nobody runs in: whoever does may hold its entry. */
static __always_inline int leave(__u64 mm)
{
	struct space *space = space_of(mm);
	__u32 uid, job;

	if (!space)
		return 0;
	uid = space->uid;
	job = space->job;
	have_counted(space, 0);
	if (bpf_map_delete_elem(&strict_spaces, &mm))
		return 0;
	add_space(job, -1);
	give_share_back(uid);
	return 0;
}

/* An address space counts for a job from here on, with all it has. */
static __always_inline struct space *enter(__u64 mm, __u32 job)
{
	struct plimsoll_strict_line *line = line_of(job);
	struct space fresh = { .job = job }, *space;

	if (!line)
		return 0;
	fresh.uid = line->uid;
	if (!take_share(fresh.uid)) {
		count(PLIMSOLL_STRICT_NO_ROOM);
		return 0;
	}
	if (bpf_map_update_elem(&strict_spaces, &mm, &fresh, BPF_NOEXIST))
		give_share_back(fresh.uid);
	else
		add_space(job, 1);
	/* Another thread of it may have entered it. */
	space = space_of(mm);
	if (space)
		have_counted(space, writable_pages(mm));
	else
		count(PLIMSOLL_STRICT_NO_ROOM);
	return space;
}

/* A new one, of which an entry may be left whose end was missed. */
static __always_inline void begin(__u64 mm, __u32 job)
{
	struct plimsoll_strict_line *line = line_of(job);
	struct space *space = space_of(mm);

	if (space && line && space->job == job && space->uid == line->uid) {
		space->forks = 0;
		space->asked = 0;
		have_counted(space, writable_pages(mm));
		return;
	}
	leave(mm);
	if (line)
		enter(mm, job);
}

struct recount {
	__u64 own; /* who asks: what is counted of it is right */
	__u64 now_ns;
	__s64 sum;
	__s64 spaces;  /* of this very job */
	__u64 changes; /* that this made itself */
	__u32 job;
	__u32 uid;
};

static long recount_one(void *map, __u64 *key, struct space *space, struct recount *recount)
{
	__s64 counted = space->counted, now;
	struct chain chain = {};
	__u64 mm = *key;
	__u32 job = space->job;

	/* All that is in a job is of one user. */
	if (space->uid != recount->uid || !is_within(job, recount->job))
		return 0;
	if (job == recount->job)
		recount->spaces++;
	if (mm == recount->own) {
		recount->sum += counted;
		return 0;
	}
	now = is_used(mm) ? writable_pages(mm) : 0;
	now += under_way(space, mm, now, recount->now_ns);
	recount->sum += now;
	if (now == counted)
		return 0;
	begin_change(&chain, job);
	/* Whoever asks meanwhile knows better. */
	if (__sync_val_compare_and_swap(&space->counted, counted, now) != counted)
		now = counted;
	end_change(&chain, now - counted);
	recount->changes++;
	return 0;
}

/*
 * Counts a job anew, by all its address spaces. What they differ by is made good in the jobs around it as well. Where nobody
 * else changed anything meanwhile, and none was passed over, their sum is the job's, whatever went wrong before.
 */
__noinline int recount_job(__u32 job, __u64 own)
{
	struct plimsoll_strict_line *line = line_of(job);
	volatile struct plimsoll_strict_sum *sum = sum_of(job);
	struct recount recount = { .own = own, .job = job, .now_ns = bpf_ktime_get_ns() };
	__u64 begun;
	__s64 kept;

	if (!line || !sum)
		return 0;
	recount.uid = line->uid;
	begun = sum->begun;
	if (begun != sum->done)
		begun = -1ull >> 1;
	bpf_for_each_map_elem(&strict_spaces, recount_one, &recount, 0);
	kept = sum->committed_pages;
	if (begun + recount.changes == sum->begun && sum->begun == sum->done && recount.spaces == sum->spaces &&
	    kept != recount.sum)
		__sync_val_compare_and_swap((__s64 *)&sum->committed_pages, kept, recount.sum);
	return 0;
}

#endif
