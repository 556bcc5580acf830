/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Shared memory, each file of it once: whose it is, how much, and who has it mapped or open. All of it lies in tmpfs: what is
 * in a mount is, and so are memfd, shared anonymous memory and System V segments. Each file system keeps a list of its files,
 * and their type keeps one of the file systems, whoever mounted them where: so none is missed, mapped, open, or neither.
 *
 * The lists are read without their locks, as an RCU reader does. A file that is freed meanwhile stays readable until the
 * program ends, and points to itself. Whoever frees files all the time makes the walk tell of some twice, by the same number.
 */
#ifndef PLIMSOLL_SELECT_SHARED_H
#define PLIMSOLL_SELECT_SHARED_H

#include "../limits/container.h"

/* What a reader is given at once is 32 KiB: 8 pages of 4 KiB (kernel/bpf/bpf_iter.c). */
#define RECORDS_MAX 370
/* Of one file: with more it is told that there are. */
#define MAPPERS_MAX 192
/* Of one process; what it has open beyond is as if it had not. */
#define OPEN_FILES_MAX 32768
/*
 * From one node of a tree of mappings to another, for one file; and no more than it has pages, so that nobody makes a walk long
 * with little memory.
 */
#define STEPS_MAX 4096
/* Files of fewer pages are told of by their sum. */
#define SMALL_PAGES 16
/* How often a list is begun anew because the file where the walk stood was freed. */
#define LOST_MAX 8
/* In one part of a walk, so that others run in between. */
#define FILES_AT_ONCE 2048
#define STEPS_AT_ONCE 16384

/* Where a walk of the files stands, and what it is to begin with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_shared_walk);
} shared_walk SEC(".maps");

/* A member at an address. The address first: what it is taken from is no structure of the kernel's. */
#define READ(from, type, member)                      \
	({                                            \
		__u64 _from = (__u64)(from);          \
		BPF_CORE_READ((type *)_from, member); \
	})

static __always_inline __s64 shared_pages_of(__u64 inode)
{
	__u64 info = inode - bpf_core_field_offset(struct shmem_inode_info, vfs_inode), mapping = 0;

	mapping = (__u64)READ(inode, struct inode, i_mapping);
	return READ(mapping, struct address_space, nrpages) + READ(info, struct shmem_inode_info, swapped);
}

/* Global, so that the verifier walks it once. */
__noinline int is_contained(__u64 leader)
{
	return in_roots_container(leader);
}

/* A process that has a file mapped or open, by its leader. */
static __always_inline void write_holder(struct seq_file *seq, __u64 inode, __u64 mm, __u64 leader)
{
	struct plimsoll_shared record = { .inode = inode, .mm = mm };
	__u64 cred = (__u64)READ(leader, struct task_struct, real_cred);

	record.uid = READ(cred, struct cred, uid.val);
	if (is_contained(leader))
		record.flags = PLIMSOLL_SHARED_CONTAINED;
	bpf_seq_write(seq, &record, sizeof(record));
}

/* The walk of all files of all file systems of this type. Counts are in the map: the verifier would follow them. */
struct files {
	struct seq_file *seq;
	struct plimsoll_shared_walk *at;
};

/* A walk of the tree of a file's mappings, in their order. Where it goes next from a node: */
#define TO_LEFT 0  /* down, if there is something */
#define TO_RIGHT 1 /* to its mapping, and down on the other side */
#define UP 2

struct mappings {
	struct files *files;
	__u64 inode;
	__u64 node; /* 0: it is over */
	__u64 mm;   /* of the mapping before */
	__u64 next;
};

static __always_inline void write_mapper(struct mappings *walk)
{
	__u64 vma = walk->node - bpf_core_field_offset(struct vm_area_struct, shared.rb), leader;
	__u64 mm = (__u64)READ(vma, struct vm_area_struct, vm_mm);

	if (!mm || mm == walk->mm)
		return;
	walk->mm = mm;
	leader = (__u64)READ(mm, struct mm_struct, owner);
	/* Else it is being torn down. */
	if (leader && walk->files->at->mappers++ < MAPPERS_MAX) {
		walk->files->at->records++;
		write_holder(walk->files->seq, walk->inode, mm, leader);
	}
}

static long next_mapping(__u32 index, struct mappings *walk)
{
	__u64 node = walk->node, other = 0;

	walk->files->at->steps++;
	if (walk->next == TO_LEFT)
		other = (__u64)READ(node, struct rb_node, rb_left);
	if (walk->next == TO_RIGHT || (walk->next == TO_LEFT && !other)) {
		write_mapper(walk);
		other = (__u64)READ(node, struct rb_node, rb_right);
		walk->next = other ? TO_LEFT : UP;
	}
	if (walk->next == UP) {
		other = READ(node, struct rb_node, __rb_parent_color) & ~3ULL;
		walk->next = (__u64)READ(other, struct rb_node, rb_right) == node ? UP : TO_RIGHT;
	}
	walk->node = other;
	return !other;
}

/* Who has a file mapped; false: more than are told of, or the tree changed so that it was not gone through. */
static __always_inline bool write_mappers(struct files *files, __u64 inode, __s64 pages)
{
	__u64 mapping = (__u64)READ(inode, struct inode, i_mapping);
	struct mappings walk = { .files = files, .inode = inode };

	if (!bpf_core_field_exists(((struct mm_struct *)0)->owner))
		return false;
	files->at->mappers = 0;
	walk.node = (__u64)READ(mapping, struct address_space, i_mmap.rb_root.rb_node);
	if (walk.node)
		bpf_loop(pages < STEPS_MAX ? pages : STEPS_MAX, next_mapping, &walk, 0);
	return !walk.node && files->at->mappers <= MAPPERS_MAX;
}

/* The name of the first directory entry; memfd, shared anonymous memory and System V segments have one too. */
static __always_inline void read_name(struct plimsoll_shared *record, __u64 inode)
{
	__u64 alias = (__u64)READ(inode, struct inode, i_dentry.first), dentry;

	if (!alias)
		return;
	dentry = alias - (bpf_core_field_exists(((struct dentry *)0)->d_alias)
				  ? bpf_core_field_offset(struct dentry, d_alias)
				  : bpf_core_field_offset(struct dentry___named, d_u.d_alias));
	bpf_probe_read_kernel_str(record->name, sizeof(record->name), READ(dentry, struct dentry, d_name.name));
}

/* In the file system that nobody mounted: what of it is shared memory that a process asked for. The rest is of drivers. */
static __always_inline __u32 kind_of(struct plimsoll_shared *record)
{
	__u64 name = *(__u64 *)record->name;

	if (BEGINS(name, "memfd:", 6))
		return PLIMSOLL_SHARED_MEMFD;
	if (BEGINS(name, "dev/zero", 8))
		return PLIMSOLL_SHARED_ANONYMOUS;
	return BEGINS(name, "SYSV", 4) ? PLIMSOLL_SHARED_SEGMENT : 0;
}

/* Small files of one user that lie beside each other in the list, as one. Its record takes no room of next_file()'s stack. */
static __noinline void write_small(struct files *files)
{
	struct plimsoll_shared_walk *at = files->at;
	struct plimsoll_shared record = { .flags = PLIMSOLL_SHARED_SMALL };
	__u64 super = at->super;

	if (!at->small_pages)
		return;
	record.inode = super;
	record.pages = at->small_pages;
	record.uid = at->small_uid;
	record.owner = at->small_uid;
	record.number = at->lost;
	record.device = READ(super, struct super_block, s_dev);
	at->small_pages = 0;
	at->records++;
	bpf_seq_write(files->seq, &record, sizeof(record));
}

static __always_inline void add_small(struct files *files, struct plimsoll_shared *record)
{
	struct plimsoll_shared_walk *at = files->at;

	if (at->small_uid != record->owner)
		write_small(files);
	at->small_uid = record->owner;
	at->small_pages += record->pages;
}

static __always_inline void write_file(struct files *files, __u64 inode, __u64 super)
{
	__u64 user_ns = (__u64)READ(super, struct super_block, s_user_ns);
	struct plimsoll_shared record = { .inode = inode };

	record.uid = READ(inode, struct inode, i_uid.val);
	record.mode = READ(inode, struct inode, i_mode);
	record.pages = shared_pages_of(inode);
	if (!record.uid || (record.mode & S_IFMT) != S_IFREG || record.pages <= 0)
		return;
	/* Of a file system that was mounted in a user namespace: its owner's. */
	record.owner = READ(user_ns, struct user_namespace, level) ? READ(user_ns, struct user_namespace, owner.val)
								   : record.uid;
	read_name(&record, inode);
	record.flags = PLIMSOLL_SHARED_FILE;
	if (READ(super, struct super_block, s_flags) & SB_KERNMOUNT)
		record.flags = kind_of(&record);
	if (!record.flags)
		return;
	if (record.pages < SMALL_PAGES) {
		add_small(files, &record);
		return;
	}
	record.device = READ(super, struct super_block, s_dev);
	record.number = READ(inode, struct inode, i_ino);
	if (bpf_core_field_exists(((struct inode *)0)->i_acl) && READ(inode, struct inode, i_acl))
		record.flags |= PLIMSOLL_SHARED_ACL;
	if (!READ(inode, struct inode, i_nlink))
		record.flags |= PLIMSOLL_SHARED_UNLINKED;
	if (!write_mappers(files, inode, record.pages))
		record.flags |= PLIMSOLL_SHARED_CROWDED;
	files->at->records++;
	bpf_seq_write(files->seq, &record, sizeof(record));
}

/* To the next file system of the list; that of the sample was the first of all, whose place in it is not known. */
static __always_inline void next_super(struct plimsoll_shared_walk *at, struct files *walk)
{
	__u64 super = at->super, type = (__u64)READ(super, struct super_block, s_type), next;

	write_small(walk);
	next = (__u64)READ(super, struct super_block, s_instances.next);
	if (!at->listed)
		next = (__u64)READ(type, struct file_system_type, fs_supers.first);
	else if (!READ(super, struct super_block, s_instances.pprev))
		/* It was unmounted meanwhile. */
		at->result = -ESRCH;
	at->listed = 1;
	at->inode = 0;
	at->super = next ? next - bpf_core_field_offset(struct super_block, s_instances) : 0;
	if (!next && at->result == -EAGAIN)
		at->result = 0;
}

/* Where it stood is in the list no more: from the beginning again, which is the oldest and will be there still. */
static __always_inline void lose(struct plimsoll_shared_walk *at, struct files *walk)
{
	at->small_pages = 0;
	at->inode = 0;
	if (++at->lost % LOST_MAX == 0)
		next_super(at, walk);
}

/* From the oldest on: others are freed while the walk is elsewhere. */
static long next_file(__u32 index, struct files *walk)
{
	struct plimsoll_shared_walk *at = walk->at;
	__u64 super = at->super, before = at->inode, next, after, inode;
	__u64 head = super + bpf_core_field_offset(struct super_block, s_inodes);
	__u64 from = before ? before + bpf_core_field_offset(struct inode, i_sb_list) : head;
	bool mounted = !(READ(super, struct super_block, s_flags) & SB_KERNMOUNT);

	if (at->records + MAPPERS_MAX + 3 >= RECORDS_MAX || at->steps >= STEPS_AT_ONCE)
		return 1;
	next = (__u64)READ(from, struct list_head, prev);
	/* Nobody's but drivers' are in others that are mounted nowhere. */
	if (next == head || (at->listed && !mounted)) {
		next_super(at, walk);
		return at->result != -EAGAIN;
	}
	inode = next - bpf_core_field_offset(struct inode, i_sb_list);
	if (!next || next == from || (__u64)READ(inode, struct inode, i_sb) != super) {
		lose(at, walk);
		return at->result != -EAGAIN;
	}
	/* Taken out of it just now: to be read again. */
	after = (__u64)READ(next, struct list_head, prev);
	if (after == next)
		return 0;
	at->inode = inode;
	write_file(walk, inode, super);
	return 0;
}

/* The file system of a descriptor of the process. */
static __always_inline int begin_files(struct plimsoll_shared_walk *at, struct task_struct *task)
{
	__u64 table = (__u64)BPF_CORE_READ(task, files, fdt), file = 0, inode, super;

	bpf_probe_read_kernel(&file, sizeof(file), READ(table, struct fdtable, fd) + at->descriptor);
	inode = (__u64)READ(file, struct file, f_inode);
	super = (__u64)READ(inode, struct inode, i_sb);
	at->super = super;
	return READ(super, struct super_block, s_magic) == TMPFS_MAGIC ? -EAGAIN : -EINVAL;
}

/* Where the walk was left: in between it may have been freed. */
static __always_inline int go_on(struct plimsoll_shared_walk *at)
{
	__u64 super = at->super, inode = at->inode;

	if (READ(super, struct super_block, s_magic) != TMPFS_MAGIC)
		return -ESRCH;
	if (inode &&
	    ((__u64)READ(inode, struct inode, i_sb) != super || READ(inode, struct inode, i_ino) != at->number)) {
		at->inode = 0;
		at->lost++;
	}
	return -EAGAIN;
}

/* One part of the walk: by an iterator over the one task that reads it. */
SEC("iter/task")
int walk_shared(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct files walk = { .seq = ctx->meta->seq };
	struct plimsoll_shared_walk *at;
	__u32 first = 0;
	__u64 inode;

	at = bpf_map_lookup_elem(&shared_walk, &first);
	if (!task || !at)
		return 0;
	walk.at = at;
	at->records = 0;
	at->steps = 0;
	at->result = at->super ? go_on(at) : begin_files(at, task);
	if (at->result == -EAGAIN)
		bpf_loop(FILES_AT_ONCE, next_file, &walk, 0);
	inode = at->inode;
	at->number = inode ? READ(inode, struct inode, i_ino) : 0;
	if (at->result == -EAGAIN)
		write_small(&walk);
	return 0;
}

/* The open files of a process. */
struct descriptors {
	struct seq_file *seq;
	__u64 table;
	__u64 leader;
	__u64 mm;
	__u32 count;
	__u32 records;
};

static long next_descriptor(__u32 index, struct descriptors *walk)
{
	__u64 file = 0, inode, super;

	if (index >= walk->count || walk->records >= RECORDS_MAX)
		return 1;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)(walk->table + index * sizeof(file)));
	if (!file)
		return 0;
	inode = (__u64)READ(file, struct file, f_inode);
	super = (__u64)READ(inode, struct inode, i_sb);
	if (READ(super, struct super_block, s_magic) != TMPFS_MAGIC || !READ(inode, struct inode, i_uid.val) ||
	    shared_pages_of(inode) <= 0)
		return 0;
	walk->records++;
	write_holder(walk->seq, inode, walk->mm, walk->leader);
	return 0;
}

/* Who has shared memory open: each process, and each thread that has other files open than its process's first. */
SEC("iter/task")
int walk_open(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct descriptors walk = {};
	struct fdtable *table;

	if (!task || task->flags & PF_KTHREAD)
		return 0;
	if (task != task->group_leader && (__u64)task->files == (__u64)task->group_leader->files)
		return 0;
	table = BPF_CORE_READ(task, files, fdt);
	walk.table = (__u64)READ(table, struct fdtable, fd);
	walk.count = READ(table, struct fdtable, max_fds);
	walk.seq = ctx->meta->seq;
	walk.mm = (__u64)task->mm;
	/* As a number: see user_of_leader(). */
	bpf_core_read(&walk.leader, sizeof(walk.leader), &task->group_leader);
	if (table && walk.mm)
		bpf_loop(OPEN_FILES_MAX, next_descriptor, &walk, 0);
	return 0;
}

#endif
