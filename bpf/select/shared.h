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
#include "../user.h"

/* What a reader is given at once is 32 KiB: 8 pages of 4 KiB (kernel/bpf/bpf_iter.c). One is for what was left out. */
#define RECORDS_MAX 340
/* Of one file: with more it is told that there are. */
#define MAPPERS_MAX 192
/*
 * Of one table of descriptors, and of all of one user: open ones, and words of the bitmap that tells which are. Of a user with
 * more it is told that not all was looked at. A table is gone through at once, with nobody let run in between.
 */
#define TABLE_STEPS_MAX 65536
#define USER_STEPS_MAX (1 << 18)
/* Likewise of the mappings of one user, each of them some three steps. Of files beyond only the first are gone through. */
#define USER_MAPPINGS_MAX (1 << 18)
/* Users, and containers of root's, whose steps are counted. */
#define USERS_MAX 1024
/*
 * From one node of a tree of mappings to another, for one file: as many as it has pages, within these bounds. Of three steps
 * one is a mapping, which takes 200 bytes of the kernel's.
 */
#define STEPS_LEAST 1024
#define STEPS_BEYOND 64
#define STEPS_MAX 4096
/* Files of fewer pages are told of by their sum. */
#define SMALL_PAGES 16
/* How often a list is begun anew because the file where the walk stood was freed. */
#define LOST_MAX 8
/* In one part of a walk, so that others run in between. */
#define FILES_AT_ONCE 2048
#define STEPS_AT_ONCE 16384

#include "handed.h"
#include "pipe.h"

/* Where a walk of the files stands, and what it is to begin with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_shared_walk);
} shared_walk SEC(".maps");

/* Where a walk of what processes have open stands. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_open_walk);
} open_walk SEC(".maps");

/* What a user has cost of a walk: of the files, or of what processes have open. */
struct open_share {
	__u64 walk;
	__u64 steps;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, USERS_MAX);
	__type(key, __u64);
	__type(value, struct open_share);
} open_shares SEC(".maps");

static __always_inline __s64 resident_pages_of(__u64 inode)
{
	__u64 mapping = (__u64)READ(inode, struct inode, i_mapping);

	return READ(mapping, struct address_space, nrpages);
}

static __always_inline __s64 swapped_pages_of(__u64 inode)
{
	__u64 info = inode - bpf_core_field_offset(struct shmem_inode_info, vfs_inode);

	return READ(info, struct shmem_inode_info, swapped);
}

/* Global, so that the verifier walks it once. The user whom a process counts for; in a container of root's nobody. */
__noinline __u32 user_of_holder(__u64 leader)
{
	if (roots_container(leader))
		return PLIMSOLL_NO_UID;
	return user_of_cred(BPF_CORE_READ((struct task_struct *)leader, real_cred));
}

/* Global as well. Whose share of a walk a process's cost is: its user's, or its container's. */
__noinline __u64 share_of_holder(__u64 leader)
{
	__u64 container = roots_container(leader);

	/* No uid is so high. */
	return container ? container | 1ULL << 63
			 : user_of_cred(BPF_CORE_READ((struct task_struct *)leader, real_cred));
}

/* What a record tells of who holds a file: a process, by its leader. */
static __always_inline void describe_holder(struct plimsoll_shared *record, __u64 mm, __u64 leader)
{
	__u64 cred = (__u64)READ(leader, struct task_struct, real_cred);

	record->mm = mm;
	record->telling = READ(leader, struct task_struct, tgid);
	record->uid = READ(cred, struct cred, uid.val);
	record->owner = user_of_holder(leader);
	if (record->owner == PLIMSOLL_NO_UID)
		record->flags = PLIMSOLL_SHARED_CONTAINED;
}

/* What the user of a process has cost of this walk until now; none: of root, whom nobody makes cost more. */
static __always_inline struct open_share *share_of(__u64 leader, __u64 walk)
{
	struct open_share blank = { .walk = walk }, *share;
	__u64 whose = share_of_holder(leader);

	if (!whose)
		return 0;
	share = bpf_map_lookup_elem(&open_shares, &whose);
	if (share && share->walk == walk)
		return share;
	bpf_map_update_elem(&open_shares, &whose, &blank, BPF_ANY);
	return bpf_map_lookup_elem(&open_shares, &whose);
}

/* Not all that a user has was looked at; `number`: or not yet, of this process. */
static __noinline void write_partly(struct seq_file *seq, __u32 user, __u32 flags, __u32 number)
{
	struct plimsoll_shared record = { .owner = user, .flags = flags, .number = number };

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
};

static __always_inline void write_mapper(struct mappings *walk)
{
	__u64 vma = walk->node - bpf_core_field_offset(struct vm_area_struct, shared.rb), leader;
	__u64 mm = (__u64)READ(vma, struct vm_area_struct, vm_mm);

	if (!mm || mm == walk->files->at->mm)
		return;
	walk->files->at->mm = mm;
	leader = (__u64)READ(mm, struct mm_struct, owner);
	/* Else it is being torn down. */
	if (leader && walk->files->at->mappers++ < MAPPERS_MAX) {
		struct plimsoll_shared record = { .inode = walk->inode };

		walk->files->at->records++;
		describe_holder(&record, mm, leader);
		bpf_seq_write(walk->files->seq, &record, sizeof(record));
	}
}

static long next_mapping(__u32 index, struct mappings *walk)
{
	struct plimsoll_shared_walk *at = walk->files->at;
	__u64 node = walk->node, other = 0;

	at->steps++;
	if (at->turn == TO_LEFT)
		other = (__u64)READ(node, struct rb_node, rb_left);
	if (at->turn == TO_RIGHT || (at->turn == TO_LEFT && !other)) {
		write_mapper(walk);
		other = (__u64)READ(node, struct rb_node, rb_right);
		at->turn = other ? TO_LEFT : UP;
	}
	if (at->turn == UP) {
		other = READ(node, struct rb_node, __rb_parent_color) & ~3ULL;
		at->turn = (__u64)READ(other, struct rb_node, rb_right) == node ? UP : TO_RIGHT;
	}
	walk->node = other;
	return !other;
}

/* Who has a file mapped; false: more than are told of, or the tree changed so that it was not gone through. */
static __always_inline bool write_mappers(struct files *files, __u64 inode, __s64 steps)
{
	__u64 mapping = (__u64)READ(inode, struct inode, i_mapping);
	struct mappings walk = { .files = files, .inode = inode };

	if (!bpf_core_field_exists(((struct mm_struct *)0)->owner))
		return false;
	files->at->mappers = 0;
	files->at->turn = TO_LEFT;
	files->at->mm = 0;
	walk.node = (__u64)READ(mapping, struct address_space, i_mmap.rb_root.rb_node);
	if (walk.node)
		bpf_loop(steps, next_mapping, &walk, 0);
	return !walk.node && files->at->mappers <= MAPPERS_MAX;
}

/* Who has the mapping at the top of the tree: of those that cost the walk most, most likely. */
static __always_inline __u64 mapper_at_top(__u64 inode)
{
	__u64 mapping = (__u64)READ(inode, struct inode, i_mapping);
	__u64 node = (__u64)READ(mapping, struct address_space, i_mmap.rb_root.rb_node);
	__u64 mm = (__u64)READ(node - bpf_core_field_offset(struct vm_area_struct, shared.rb), struct vm_area_struct,
			       vm_mm);

	return node ? (__u64)READ(mm, struct mm_struct, owner) : 0;
}

/* The same, within what a user may cost of a walk. */
static __always_inline bool write_mappers_within(struct files *files, __u64 inode, __s64 pages)
{
	__u64 before = files->at->steps, mapper = mapper_at_top(inode);
	struct open_share *share = mapper ? share_of(mapper, files->at->walk) : 0;
	__s64 steps = pages < STEPS_LEAST ? STEPS_LEAST : pages;
	bool all;

	if (steps > STEPS_MAX)
		steps = STEPS_MAX;
	if (share && share->steps >= USER_MAPPINGS_MAX) {
		steps = STEPS_BEYOND;
		write_partly(files->seq, user_of_holder(mapper), PLIMSOLL_SHARED_PARTLY, 0);
		files->at->records++;
	}
	all = write_mappers(files, inode, steps);
	if (share)
		share->steps += files->at->steps - before;
	return all;
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
	record.telling = at->lost;
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

/* By a clock of 1 to 10 ms, which is behind. */
static __always_inline __u64 born_ns_of(__u64 inode)
{
	__u64 info = inode - bpf_core_field_offset(struct shmem_inode_info, vfs_inode);

	if (!bpf_core_field_exists(((struct shmem_inode_info *)0)->i_crtime))
		return 0;
	return READ(info, struct shmem_inode_info, i_crtime.tv_sec) * 1000000000ULL +
	       READ(info, struct shmem_inode_info, i_crtime.tv_nsec);
}

/* Of files as they are read: what a file has in memory explains as much of the machine's count. False: nobody's, or none. */
static __always_inline bool read_file(struct files *files, struct plimsoll_shared *record, __u64 super)
{
	__u64 inode = record->inode;
	__s64 resident = resident_pages_of(inode);

	record->mode = READ(inode, struct inode, i_mode);
	record->pages = resident + swapped_pages_of(inode);
	record->number = READ(inode, struct inode, i_ino);
	if ((record->mode & S_IFMT) != S_IFREG)
		return false;
	if (was_handed(inode, record->number, files->at->walk))
		record->flags = PLIMSOLL_SHARED_HANDED;
	if (record->pages <= 0)
		return false;
	read_name(record, inode);
	record->flags |=
		READ(super, struct super_block, s_flags) & SB_KERNMOUNT ? kind_of(record) : PLIMSOLL_SHARED_FILE;
	if (!(record->flags & PLIMSOLL_SHARED_KINDS))
		return false;
	files->at->explained_pages += resident;
	record->uid = READ(inode, struct inode, i_uid.val);
	return record->uid;
}

static __always_inline void write_file(struct files *files, __u64 inode, __u64 super)
{
	struct plimsoll_shared record = { .inode = inode };

	if (!read_file(files, &record, super))
		return;
	record.owner = owner_of_super(super);
	if (!record.owner)
		record.owner = record.uid;
	if (record.pages < SMALL_PAGES) {
		add_small(files, &record);
		return;
	}
	record.device = READ(super, struct super_block, s_dev);
	record.telling = files->at->lost;
	record.born_ns = born_ns_of(inode);
	if (bpf_core_field_exists(((struct inode *)0)->i_acl) && READ(inode, struct inode, i_acl))
		record.flags |= PLIMSOLL_SHARED_ACL;
	if (!READ(inode, struct inode, i_nlink))
		record.flags |= PLIMSOLL_SHARED_UNLINKED;
	if (!write_mappers_within(files, inode, record.pages))
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
	at->explained_before = at->explained_pages;
	at->inode = 0;
	at->super = next ? next - bpf_core_field_offset(struct super_block, s_instances) : 0;
	if (!next && at->result == -EAGAIN)
		at->result = 0;
}

/* The list is read from the beginning again, which is the oldest and will be there still. */
static __always_inline void begin_list(struct plimsoll_shared_walk *at)
{
	at->small_pages = 0;
	at->explained_pages = at->explained_before;
	at->inode = 0;
	at->lost++;
}

/* Where it stood is in the list no more. Whoever does that in a file system of their own is not known; else nobody is. */
static __always_inline void lose(struct plimsoll_shared_walk *at, struct files *walk)
{
	__u64 super = at->super;
	__u32 owner = owner_of_super(super);

	begin_list(at);
	if (at->lost % LOST_MAX)
		return;
	if (!owner) {
		at->result = -ESRCH;
		return;
	}
	at->records++;
	write_partly(walk->seq, owner, PLIMSOLL_SHARED_PARTLY | PLIMSOLL_SHARED_FILE, 0);
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

	if (at->records + MAPPERS_MAX + 4 >= RECORDS_MAX || at->steps >= STEPS_AT_ONCE)
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
	    ((__u64)READ(inode, struct inode, i_sb) != super || READ(inode, struct inode, i_ino) != at->number))
		begin_list(at);
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

/* The number of the one bit that is set. Global: the verifier goes each of the ways to it once, and on from it once. */
__noinline __u32 bit_of(__u64 bit)
{
	return (bit & 0xaaaaaaaaaaaaaaaaULL ? 1 : 0) | (bit & 0xccccccccccccccccULL ? 2 : 0) |
	       (bit & 0xf0f0f0f0f0f0f0f0ULL ? 4 : 0) | (bit & 0xff00ff00ff00ff00ULL ? 8 : 0) |
	       (bit & 0xffff0000ffff0000ULL ? 16 : 0) | (bit & 0xffffffff00000000ULL ? 32 : 0);
}

/*
 * A table of descriptors, as it is gone through, in parts where it is walked by itself. What changes from one to the next is in
 * the map: before 6.8 the verifier follows the first turn of a loop only, and takes what it knows of that for so in all.
 */
struct descriptors {
	struct seq_file *seq;
	struct plimsoll_open_walk *at;
	__u64 files; /* the kernel's array of them */
	__u64 open;  /* its bitmap of those that are open */
	struct plimsoll_shared record;
	__u32 count;
};

/* The same of a pipe. What is little may be there unlooked at: it is not told. */
static __noinline bool write_pipe(struct descriptors *walk, __u64 inode)
{
	__u64 pipe = (__u64)READ(inode, struct inode, i_pipe), number = READ(inode, struct inode, i_ino);
	__u32 flags = walk->record.flags, user = user_of_pipe(pipe);
	struct plimsoll_open_walk *at = walk->at;
	bool handed_on;

	at->inode = inode;
	if (!pipe || !user)
		return false;
	if (at->records + 2 > RECORDS_MAX)
		return true;
	if (at->first)
		note_inode(inode, user, PLIMSOLL_NO_UID);
	handed_on = was_handed(inode, number, at->walk);
	walk->record.flags |= PLIMSOLL_SHARED_PIPE;
	if (!add_buffers(at, pipe))
		walk->record.flags |= PLIMSOLL_SHARED_CROWDED;
	/* A FIFO of one whom another opened first, too. */
	if (handed_on || READ(inode, struct inode, i_uid.val) != user)
		walk->record.flags |= PLIMSOLL_SHARED_HANDED;
	walk->record.inode = inode;
	walk->record.pages = at->shares / PAGE_SHARES;
	walk->record.number = number;
	walk->record.device = user;
	walk->record.mode = READ(inode, struct inode, i_mode);
	if (walk->record.pages >= SMALL_PAGES) {
		at->records++;
		bpf_seq_write(walk->seq, &walk->record, sizeof(walk->record));
	}
	walk->record.flags = flags;
	return false;
}

/* True: there is no room for more. */
static __always_inline bool write_open(struct descriptors *walk, __u32 number)
{
	struct plimsoll_open_walk *at = walk->at;
	__u64 file = 0, inode, super;

	bpf_probe_read_kernel(&file, sizeof(file), (void *)(walk->files + number * sizeof(file)));
	if (!file)
		return false;
	inode = (__u64)READ(file, struct file, f_inode);
	/* The same again: a copy, or the other end. */
	if (inode == at->inode)
		return false;
	if (is_pipe(inode))
		return write_pipe(walk, inode);
	super = (__u64)READ(inode, struct inode, i_sb);
	if (super == at->other)
		return false;
	if (READ(super, struct super_block, s_magic) != TMPFS_MAGIC) {
		at->other = super;
		return false;
	}
	/* Who holds small files is of no use: they are told of by their sum. */
	if (!READ(inode, struct inode, i_uid.val) || resident_pages_of(inode) + swapped_pages_of(inode) < SMALL_PAGES)
		return false;
	if (at->records + 2 > RECORDS_MAX)
		return true;
	at->records++;
	at->inode = inode;
	walk->record.inode = inode;
	bpf_seq_write(walk->seq, &walk->record, sizeof(walk->record));
	return false;
}

/* To the next one that is open, or to the next word of the bitmap. */
static long next_descriptor(__u32 index, struct descriptors *walk)
{
	struct plimsoll_open_walk *at = walk->at;
	__u64 word = at->word, lowest;

	if (at->steps >= TABLE_STEPS_MAX)
		return 1;
	if (!word) {
		if (at->next >= walk->count)
			return 1;
		at->steps++;
		bpf_probe_read_kernel(&at->word, sizeof(at->word), (void *)(walk->open + at->next / 8));
		at->next += 64;
		return 0;
	}
	lowest = word & -word;
	at->steps++;
	if (write_open(walk, at->next - 64 + bit_of(lowest)))
		return 1;
	at->word = word & ~lowest;
	return 0;
}

/* Goes through a table. Whether to its end. */
static __always_inline bool walk_table(struct descriptors *walk, __u64 table)
{
	struct plimsoll_open_walk *at = walk->at;

	walk->files = (__u64)READ(table, struct fdtable, fd);
	walk->open = (__u64)READ(table, struct fdtable, open_fds);
	walk->count = READ(table, struct fdtable, max_fds);
	if (!at->single) {
		at->word = 0;
		at->next = 0;
	}
	at->inode = 0;
	at->records = 0;
	at->steps = 0;
	bpf_loop(TABLE_STEPS_MAX, next_descriptor, walk, 0);
	at->done = !at->word && at->next >= walk->count;
	return at->done;
}

/* Those who share table and memory, one after the other, are one. Who did not fit into what was read is told of again. */
static __always_inline bool is_told(struct plimsoll_open_walk *at, struct task_struct *task)
{
	bool told = at->files == (__u64)task->files && at->mm == (__u64)task->mm && at->task != (__u64)task;

	at->files = (__u64)task->files;
	at->mm = (__u64)task->mm;
	if (!told)
		at->task = (__u64)task;
	return told;
}

/* Who has shared memory open: each process, and each thread that has other files open than its process's first. */
SEC("iter/task")
int walk_open(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct plimsoll_open_walk *at;
	struct descriptors walk = {};
	struct open_share *share;
	struct fdtable *table;
	__u64 leader = 0;
	__u32 first = 0;

	at = bpf_map_lookup_elem(&open_walk, &first);
	if (!task || !at)
		return 0;
	task = LOOSE(task_struct, task);
	if (task->flags & PF_KTHREAD || !task->files || !task->mm)
		return 0;
	if (!at->single) {
		if (task != task->group_leader && (__u64)task->files == (__u64)task->group_leader->files)
			return 0;
		if (is_told(at, task))
			return 0;
	}
	/* As a number: see user_of_leader(). */
	bpf_core_read(&leader, sizeof(leader), &task->group_leader);
	walk.seq = ctx->meta->seq;
	walk.at = at;
	describe_holder(&walk.record, (__u64)task->mm, leader);
	share = share_of(leader, at->walk);
	table = BPF_CORE_READ(task, files, fdt);
	if (share && share->steps >= USER_STEPS_MAX) {
		at->done = 1;
		write_partly(walk.seq, walk.record.owner, PLIMSOLL_SHARED_PARTLY, 0);
		return 0;
	}
	if (!walk_table(&walk, (__u64)table) && !at->single)
		write_partly(walk.seq, walk.record.owner, PLIMSOLL_SHARED_CUT, task->pid);
	if (share)
		share->steps += at->steps;
	return 0;
}

#endif
