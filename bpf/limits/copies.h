/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Copies that forked processes make of the pages they share. They change no counter of the kernel and raise no event of
 * their own, but each takes a page: one that comes to be anonymous memory, and by which whoever took it has no more
 * anonymous pages than before, is a copy. Attached while copies could bring an account near its line.
 */
#ifndef PLIMSOLL_LIMITS_COPIES_H
#define PLIMSOLL_LIMITS_COPIES_H

/*
 * include/linux/gfp_types.h, 6.1 to 7.2: for user space; zeroed, as new anonymous memory is and no copy; may wait for
 * memory, as a copy does and a page that is moved to the node that uses it does not.
 */
#define GFP_HIGHMEM 0x02u
#define GFP_ZERO 0x100u
#define GFP_DIRECT_RECLAIM 0x400u

/* include/linux/page-flags.h: in folio->mapping of anonymous memory, 6.1 to 7.2. */
#define MAPPING_ANON 1
#define MAPPING_FLAGS 3ull

/* What this CPU keeps of an address space's anonymous pages, on Linux 6.1 the thread that runs. The address space is pinned. */
static __always_inline __s64 kept_here(__u64 key)
{
	if (task_caches)
		return CACHE_OF(bpf_get_current_task_btf(), PLIMSOLL_MEMBER_ANON);
	return remainder_on(bpf_get_smp_processor_id(), counter_at(key, PLIMSOLL_MEMBER_ANON));
}

/* Copies that cannot be placed: a survey finds whose they are. */
static __always_inline void note_strays(struct plimsoll_account *a, __u64 mm, __s64 pages)
{
	__u32 before = __sync_fetch_and_add(&a->stray_pages, pages);

	if (before < PLIMSOLL_STRAYS_MOST && before + pages >= PLIMSOLL_STRAYS_MOST)
		tell(a->index, mm, PLIMSOLL_RECORD_COPIES);
}

/*
 * Whether the page is a copy by now; by a counter that rises with all that is no copy. A fold leaves nothing kept, and the
 * count higher. The count alone says nothing: other CPUs fold theirs, up and down. The address space is pinned.
 */
static __always_inline bool became_copy(struct taken *t)
{
	struct folio *folio = (struct folio *)t->page;
	__s64 kept;

	if (!((__u64)BPF_CORE_READ(folio, mapping) & MAPPING_ANON))
		return false;
	/* Another thread of its has a cache of its own there. */
	if (task_caches && t->task != (__u64)bpf_get_current_task_btf())
		return true;
	kept = kept_here(t->mm);
	return kept <= t->kept && (kept || read_count(counter_at(t->mm, PLIMSOLL_MEMBER_ANON)) <= t->count);
}

/*
 * The address space that the page is in, where it is the only one that the page's mapping is of (anon_vma_chain); else one of
 * them, or 0. Whoever writes to another's memory makes the copies in that.
 */
static __always_inline __u64 mapped_in(struct taken *t, bool *only)
{
	struct folio *folio = (struct folio *)t->page;
	struct anon_vma *group = (struct anon_vma *)((__u64)BPF_CORE_READ(folio, mapping) & ~MAPPING_FLAGS);
	struct rb_node *node = BPF_CORE_READ(group, rb_root.rb_root.rb_node);
	struct anon_vma_chain *chain;

	chain = (struct anon_vma_chain *)((__u64)node - bpf_core_field_offset(struct anon_vma_chain, rb));
	*only = node && !BPF_CORE_READ(node, rb_left) && !BPF_CORE_READ(node, rb_right);
	return node ? (__u64)BPF_CORE_READ(chain, vma, vm_mm) : 0;
}

/* They are an address space's own from here on, and judged as any change is. Returns how many of them. */
static __noinline __s64 place_copies(__u64 key, __s64 pages)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__s64 owned = 0;

	if (!e || !pin(e, key))
		return 0;
	a = account_at(word_account(e->word));
	if (a)
		owned = own_copies(key, pages);
	if (a && owned > 0)
		judge_usage(e, a, known_usage(a), owned);
	unpin(e);
	return owned;
}

/* What became of it: a copy is charged. */
static __always_inline void look_at(struct taken *t)
{
	__u64 key = t->mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__s64 pages = t->pages;
	bool copy, only;
	__u64 other;

	if (!e || !pin(e, key))
		return;
	a = account_at(word_account(e->word));
	copy = a && became_copy(t);
	unpin(e);
	if (!copy)
		return;
	other = mapped_in(t, &only);
	if (only) {
		/* In another's memory it is no copy where that one's counter rose. */
		if (t->elsewhere && other != key)
			return;
		pages -= place_copies(other, pages);
	} else if (!t->elsewhere) {
		pages -= place_copies(key, pages);
		if (pages > 0)
			pages -= place_copies(other, pages);
	}
	if (pages > 0)
		note_strays(a, key, pages);
}

SEC("tp_btf/mm_page_free")
int BPF_PROG(on_page_free, struct page *page, unsigned int order)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct folio *folio = (struct folio *)page;
	struct mm_struct *mm = task->mm;
	struct plimsoll_mm *e;
	__s64 freed;
	__u64 key;

	/* What is reclaimed was not given up. */
	if (!page || !mm || task->flags & (PF_KTHREAD | PF_MEMALLOC) || !mm_may_be_tracked(mm))
		return 0;
	key = (__u64)mm;
	e = bpf_map_lookup_elem(&mms, &key);
	if (!e || !(e->kept_pages | e->trusted_pages) || e->flags & PLIMSOLL_MM_GONE ||
	    !((__u64)BPF_CORE_READ(folio, mapping) & MAPPING_ANON) || !is_giving_up(task))
		return 0;
	freed = take_freed(e, 1 << (order & 15));
	if (freed > 0 && share_again(e->mm, freed))
		judge(e, -freed, true);
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_page_alloc, struct page *page, unsigned int order, unsigned int gfp)
{
	struct task_struct *task;
	struct mm_struct *mm;
	struct plimsoll_account *a;
	struct plimsoll_mm *e;
	struct taken *t;
	__u32 zero = 0;
	__u64 key;

	if (!(gfp & GFP_HIGHMEM))
		return 0;
	t = bpf_map_lookup_elem(&last_taken, &zero);
	if (!t)
		return 0;
	if (t->page) {
		look_at(t);
		t->page = 0;
	}
	/* Read again, and not kept on the stack over all that. */
	page = (struct page *)ctx[0];
	order = ctx[1];
	gfp = ctx[2];
	task = bpf_get_current_task_btf();
	mm = task->mm;
	if (gfp & GFP_ZERO || !(gfp & GFP_DIRECT_RECLAIM) || !page || !mm || task->flags & PF_KTHREAD ||
	    !mm_may_be_tracked(mm))
		return 0;
	key = (__u64)mm;
	e = bpf_map_lookup_elem(&mms, &key);
	a = e ? account_at(word_account(e->word)) : 0;
	if (!a || a->copyable_pages <= 0)
		return 0;
	t->mm = key;
	t->task = (__u64)task;
	t->pages = 1 << (order & 15);
	t->count = read_count(counter_at(key, PLIMSOLL_MEMBER_ANON));
	t->kept = kept_here(key);
	t->elsewhere = 0;
	t->page = (__u64)page;
	return 0;
}

#endif
