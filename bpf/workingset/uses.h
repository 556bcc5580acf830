/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Use of the page cache by file and chunk. Entries are made as they are needed; the one used least lately goes. */
#ifndef PLIMSOLL_WORKINGSET_USES_H
#define PLIMSOLL_WORKINGSET_USES_H

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PLIMSOLL_USES_MIN); /* more on many CPUs: user space says so as it loads it */
	__type(key, struct plimsoll_chunk);
	__type(value, struct plimsoll_use);
} uses SEC(".maps");

static __always_inline void identify(struct plimsoll_file *file, struct inode *inode)
{
	file->inode = inode->i_ino;
	file->device = inode->i_sb->s_dev;
	file->generation = inode->i_generation;
}

/* Where one cgroup stands for the machine, what is used outside of it is nothing to it. */
static __always_inline bool is_in_scope(struct task_struct *task)
{
	struct plimsoll_floor *told;
	__u32 zero = 0;

	told = bpf_map_lookup_elem(&floor_line, &zero);
	return told && (!told->cgroup || find_above(group_of(task), told->cgroup));
}

/* A file on a disk, or at least on something: not what is memory itself, and nothing of the kernel's own. */
static __always_inline bool is_file(struct inode *inode)
{
	__u64 magic = inode->i_sb->s_magic;

	if ((inode->i_mode & S_IFMT) != S_IFREG || inode->i_sb->s_flags & SB_KERNMOUNT)
		return false;
	return magic != TMPFS_MAGIC && magic != RAMFS_MAGIC && magic != HUGETLBFS_MAGIC;
}

/* What the file is like now. Looked at when an entry is made, and when a page comes in: a file that grows does so then. */
static __always_inline void describe_use(struct plimsoll_use *use, struct inode *inode)
{
	__u32 flags = 0;

	if (inode->i_writecount.counter > 0)
		flags |= PLIMSOLL_USE_WRITERS;
	if (inode->i_flags & S_SWAPFILE)
		flags |= PLIMSOLL_USE_SWAPFILE;
	if (!inode->i_nlink)
		flags |= PLIMSOLL_USE_UNLINKED;
	use->flags = flags;
	use->file_bytes = inode->i_size;
}

static __noinline struct plimsoll_use *begin_use(struct plimsoll_chunk *key, struct inode *inode)
{
	struct plimsoll_use use = {};

	if (!is_file(inode))
		return 0;
	use.magic = inode->i_sb->s_magic;
	describe_use(&use, inode);
	bpf_map_update_elem(&uses, key, &use, BPF_NOEXIST);
	return bpf_map_lookup_elem(&uses, key);
}

/* The entry of a page; NULL where files like this are not counted. */
static __always_inline struct plimsoll_use *use_of(struct inode *inode, __u64 page)
{
	struct plimsoll_chunk key = {};
	struct plimsoll_use *use;

	inode = LOOSE(inode, inode);
	identify(&key.file, inode);
	key.chunk = page >> PLIMSOLL_CHUNK_SHIFT;
	use = bpf_map_lookup_elem(&uses, &key);
	return use ? use : begin_use(&key, inode);
}

static __always_inline __u64 pages_of(struct folio *folio)
{
	struct folio___618 *later = (struct folio___618 *)folio;
	const unsigned long head = 1ul << bpf_core_enum_value(enum pageflags, PG_head);

	if (bpf_core_field_exists(later->flags.f))
		return later->flags.f & head ? later->_nr_pages : 1;
	return folio->flags & head ? folio->_folio_nr_pages : 1;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(on_add, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	struct plimsoll_use *use;
	struct inode *inode;

	if (!mapping || !is_in_scope(bpf_get_current_task_btf()))
		return 0;
	inode = mapping->host;
	if (!inode)
		return 0;
	use = use_of(inode, folio->index);
	if (!use)
		return 0;
	use->added += pages_of(folio);
	describe_use(use, inode);
	return 0;
}

/* Only what reclaim takes was taken against the will of who uses it. DAMON and MADV_PAGEOUT look like reclaim here. */
SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(on_delete, struct folio *folio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct address_space *mapping;
	struct plimsoll_use *use;
	struct inode *inode;

	if (!(task->flags & (PF_MEMALLOC | PF_KSWAPD)) || !is_in_scope(task))
		return 0;
	mapping = folio->mapping;
	if (!mapping)
		return 0;
	inode = mapping->host;
	if (!inode)
		return 0;
	use = use_of(inode, folio->index);
	if (use)
		use->evicted += pages_of(folio);
	return 0;
}

#endif
