/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Pages that are read or mapped, whether they were in the page cache or not: from tracepoints ("filemap: add trace events for
 * get_pages, map_pages, and fault", Linux 6.12), before that from the functions they are in (6.1).
 */
#ifndef PLIMSOLL_WORKINGSET_ACCESSES_H
#define PLIMSOLL_WORKINGSET_ACCESSES_H

#define CHUNK_PAGES (1ull << PLIMSOLL_CHUNK_SHIFT)

/* A read is told in pieces of at most so many chunks; a longer one counts for its first. */
#define CHUNKS_MAX 16

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_recent);
} recents SEC(".maps");

/* The blocks of pages from `first` to `last` of one chunk. */
static __always_inline __u32 blocks_of(__u64 first, __u64 last)
{
	__u32 from = (first & (CHUNK_PAGES - 1)) >> PLIMSOLL_BLOCK_SHIFT;
	__u32 to = (last & (CHUNK_PAGES - 1)) >> PLIMSOLL_BLOCK_SHIFT;

	return (~0u << from) & (~0u >> (31 - to));
}

/* All pages from `first` to `last`, both included, as far as the file has them: a read may ask for more. */
static __always_inline void count_accessed(struct inode *inode, __u64 first, __u64 last, bool mapped)
{
	struct plimsoll_use *use;
	__s64 bytes;
	int chunk;

	if (!inode || !is_in_scope(bpf_get_current_task_btf()))
		return;
	bytes = inode->i_size;
	if (bytes <= 0)
		return;
	if (last > (__u64)(bytes - 1) >> page_shift)
		last = (__u64)(bytes - 1) >> page_shift;
	for (chunk = 0; chunk < CHUNKS_MAX && first <= last; chunk++) {
		__u64 end = first | (CHUNK_PAGES - 1);
		__u32 blocks;

		if (end > last)
			end = last;
		use = use_of(inode, first);
		if (!use)
			return;
		use->accessed += end - first + 1;
		if (mapped)
			use->mapped = 1;
		blocks = blocks_of(first, end);
		/* What is missing here would not be held. */
		if (blocks & ~use->blocks)
			__sync_fetch_and_or(&use->blocks, blocks);
		first = end + 1;
	}
}

static __always_inline struct plimsoll_recent *begin_event(void)
{
	__u32 zero = 0;
	struct plimsoll_recent *recent = bpf_map_lookup_elem(&recents, &zero);

	if (recent)
		recent->events++;
	return recent;
}

/* Faults of the daemon itself are how it locks what others use. */
static __always_inline void count_mapped(struct inode *inode, __u64 first, __u64 last)
{
	struct plimsoll_floor *told;
	__u32 zero = 0;

	told = bpf_map_lookup_elem(&floor_line, &zero);
	if (!told || told->own_tgid != (__u32)bpf_get_current_task_btf()->tgid)
		count_accessed(inode, first, last, true);
}

/*
 * A call of read(2) comes here once for each batch of up to 31 folios, with what is left of it: `last` stays, `first` moves
 * on. Pages ahead are counted up to a chunk, so that what a batch holds is, and once. Reads of one page after the other counts
 * once, as for the kernel's own idea of what is used (filemap_read(): pos_same_folio): a file may be read line by line.
 */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(on_read, struct address_space *mapping, unsigned long index, unsigned long last_index)
{
	__u64 first = index, last = last_index, end;
	struct plimsoll_recent *recent = begin_event();

	if (!recent)
		return 0;
	end = first + CHUNK_PAGES - 1;
	if (end > last)
		end = last;
	if (recent->mapping == (__u64)mapping && recent->last == last) {
		if (recent->first < first) {
			if (recent->counted > end)
				return 0;
			first = recent->counted;
		} else if (first == last) {
			return 0;
		}
	}
	recent->mapping = (__u64)mapping;
	recent->first = index;
	recent->last = last;
	recent->counted = end + 1;
	count_accessed(mapping->host, first, end, false);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(on_map, struct address_space *mapping, unsigned long first, unsigned long last)
{
	count_mapped(mapping->host, first, last);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(on_fault, struct address_space *mapping, unsigned long index)
{
	count_mapped(mapping->host, index, index);
	return 0;
}

/* Once for a whole read; one page read again and again counts once, as above. */
SEC("fentry/filemap_read")
int BPF_PROG(on_read_call, struct kiocb *call, struct iov_iter *into)
{
	__u64 first = call->ki_pos >> page_shift, last = call->ki_pos + into->count;
	struct address_space *mapping = call->ki_filp->f_mapping;
	struct plimsoll_recent *recent = begin_event();

	if (!recent || !into->count)
		return 0;
	last = (last - 1) >> page_shift;
	if (first == last && recent->mapping == (__u64)mapping && recent->first == first && recent->last == last)
		return 0;
	recent->mapping = (__u64)mapping;
	recent->first = first;
	recent->last = last;
	count_accessed(mapping->host, first, last, false);
	return 0;
}

SEC("fentry/filemap_map_pages")
int BPF_PROG(on_map_call, struct vm_fault *fault, unsigned long first, unsigned long last)
{
	count_mapped(fault->vma->vm_file->f_mapping->host, first, last);
	return 0;
}

SEC("fentry/filemap_fault")
int BPF_PROG(on_fault_call, struct vm_fault *fault)
{
	count_mapped(fault->vma->vm_file->f_mapping->host, fault->pgoff, fault->pgoff);
	return 0;
}

#endif
