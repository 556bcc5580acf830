/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Pages that a forked process takes while it gives up as many that it shares: its count stays what it was, and a count that
 * falls does not tell which of its pages went. Those that were its own are freed at once, mostly; those that others have as
 * well are not. So what went stays charged as its own, and is taken for shared, until as many pages are freed. All but a few
 * for each account: a page is freed later where a list of another CPU holds it (the LRU's batches), and for a process that
 * shares nothing any more. Only while what is freed is looked at: see copies.h.
 */
#ifndef PLIMSOLL_LIMITS_EXCHANGE_H
#define PLIMSOLL_LIMITS_EXCHANGE_H

/* Freed pages are taken off the charge so many at a time. */
#define FREED_AT_ONCE 64

/* The last page taken on a CPU that may be a copy: what became of it is looked at when the next is taken, see copies.h. */
struct taken {
	__u64 page; /* 0: none */
	__u64 mm;
	__u64 task;
	__s64 pages;
	/* What mm had then of anonymous memory: the shared count, and what this CPU, or this thread, keeps to itself. */
	__s64 count;
	__s64 kept;
	__u64 elsewhere; /* not 0: since then another's counter rose by what was done here */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct taken);
} last_taken SEC(".maps");

/* Who runs here put a page into another's memory, whose counter rose: that was the page, or one that was taken before. */
static __always_inline void note_elsewhere(void)
{
	struct taken *t;
	__u32 zero = 0;

	t = bpf_map_lookup_elem(&last_taken, &zero);
	if (t)
		t->elsewhere = 1;
}

/* So many more pages of this account need not be freed, of the `most` that are wanted. */
static __always_inline __s64 trust(struct plimsoll_account *a, __s64 most)
{
	__s64 room = PLIMSOLL_STRAYS_MOST - (__s64)a->trusted_pages;

	if (room <= 0)
		return 0;
	if (most > room)
		most = room;
	__sync_fetch_and_add(&a->trusted_pages, most);
	return most;
}

/* They were freed: others may go in their place. Surveyed meanwhile, there are fewer. */
static __always_inline void regain_trust(struct plimsoll_account *a, __s64 pages)
{
	__u32 trusted = a->trusted_pages;

	__sync_val_compare_and_swap(&a->trusted_pages, trusted, pages < trusted ? trusted - pages : 0);
}

/*
 * So many pages of a process went, by its own doing. Returns how many of them are to be taken for shared ones, though it has
 * pages of its own.
 */
__noinline __s64 keep_given(__u64 key, __s64 pages)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a = e ? account_at(word_account(e->word)) : 0;
	__u64 family = e ? e->family : 0;
	__s64 own, trusted, kept, taken;

	if (!a || !family)
		return 0;
	own = word_pages(e->word);
	if (pages > own)
		pages = own;
	if (pages <= 0)
		return 0;
	trusted = trust(a, pages);
	/* No more than may go between two surveys: of what went before, that one found what was not freed. */
	if (trusted && e->trusted_pages < PLIMSOLL_STRAYS_MOST)
		__sync_fetch_and_add(&e->trusted_pages, trusted);
	pages -= trusted;
	if (pages <= 0)
		return 0;
	begin_shift(e);
	kept = take_up_to(&e->shared_pages, pages);
	/* All that it has is its own: what it frees from here on is none of what it gave up before. */
	if (kept < pages)
		e->kept_pages = 0;
	end_shift(e);
	if (!kept)
		return 0;
	/* What its family is charged for no more is off the charge. */
	taken = give_up_shares(family, kept, PLIMSOLL_NOBODY, 0);
	if (kept == pages && kept > taken)
		__sync_fetch_and_add(&e->kept_pages, kept - taken);
	return kept;
}

/* Pages that were taken for shared ones were a member's own: it shares as many again. 0: it has left its family. */
__noinline int share_again(__u64 key, __s64 pages)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__u64 family = e ? e->family : 0;
	struct plimsoll_account *a;
	struct plimsoll_family *f;

	/* As a member more: until it is let go the family does not end, nor has it an only one. */
	f = family ? join_one(family, ONE_MEMBER) : 0;
	if (!f)
		return 0;
	a = account_at(f->account);
	__sync_fetch_and_add(&f->shares, pages);
	if (a)
		family_moved(a, pages, 0);
	__sync_fetch_and_add(&e->shared_pages, pages);
	leave_one(f, family);
	return 1;
}

/* Numbers of munmap, mremap, madvise, brk, mmap and process_madvise for 64 bits. */
static __always_inline bool gives_memory_up(long number, bool x86)
{
	if (number == 440)
		return true;
	if (x86)
		return number == 11 || number == 25 || number == 28 || number == 12 || number == 9;
	return number == 215 || number == 216 || number == 233 || number == 214 || number == 222;
}

/*
 * Whether this thread is in a call that gives memory up. What it frees in another call, in a fault, or in work that it was left
 * with as the call returns (the last end of a file) may be somebody else's, who let go of it before: it came by a pipe or a
 * socket. Until a call returns, its result is -ENOSYS on x86 and its first argument on arm64 (arch/x86/entry/entry_64.S,
 * arch/arm64/kernel/syscall.c, 6.1 to 7.2).
 */
static __always_inline bool is_giving_up(struct task_struct *task)
{
	struct pt_regs *x86 = (struct pt_regs *)bpf_task_pt_regs(task);
	struct pt_regs___arm64 *arm64 = (struct pt_regs___arm64 *)x86;

	if (bpf_core_field_exists(x86->orig_ax))
		return BPF_CORE_READ(x86, ax) == (unsigned long)-ENOSYS &&
		       gives_memory_up(BPF_CORE_READ(x86, orig_ax), true);
	return bpf_core_field_exists(arm64->syscallno) &&
	       BPF_CORE_READ(arm64, regs[0]) == BPF_CORE_READ(arm64, orig_x0) &&
	       gives_memory_up(BPF_CORE_READ(arm64, syscallno), false);
}

/*
 * So many anonymous pages were freed by a process of this address space. Returns how many of them are charged as its own
 * still, and are to be charged no more.
 */
static __always_inline __s64 take_freed(struct plimsoll_mm *e, __s64 pages)
{
	__s64 freed = __sync_fetch_and_add(&e->freed_pages, pages) + pages, kept, trusted;
	struct plimsoll_account *a;

	if (freed < FREED_AT_ONCE && freed < e->kept_pages)
		return 0;
	freed = __sync_lock_test_and_set(&e->freed_pages, 0);
	kept = take_up_to(&e->kept_pages, freed);
	trusted = freed > kept ? take_up_to(&e->trusted_pages, freed - kept) : 0;
	a = trusted ? account_at(word_account(e->word)) : 0;
	if (a)
		regain_trust(a, trusted);
	return kept;
}

#endif
