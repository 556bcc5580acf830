/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Who was handed a file of shared memory, or a pipe: whoever is not its owner may make it grow, and may have let go of it
 * before any walk comes.
 */
#ifndef PLIMSOLL_SELECT_HANDED_H
#define PLIMSOLL_SELECT_HANDED_H

#include "pipe.h"

/* What a process has open as it becomes another user: as many as a process may have at most (fs.nr_open), as it comes. */
#define OPEN_MAX (1 << 20)

/* Files that somebody else than their owner was handed (SCM_RIGHTS), by inode. User space takes those out that are gone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct plimsoll_handed);
} handed SEC(".maps");

/* Whose found no room there, by the files' uid. More than one user has subordinate uids: 65,536 (useradd). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} handed_more SEC(".maps");

/* So many found no room there either. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} handed_lost SEC(".maps");

/* Whose a file system is that was mounted in a user namespace; else root. */
static __always_inline __u32 owner_of_super(__u64 super)
{
	__u64 user_ns = (__u64)READ(super, struct super_block, s_user_ns);

	return READ(user_ns, struct user_namespace, level) ? READ(user_ns, struct user_namespace, owner.val) : 0;
}

/* Somebody else than its owner was handed it. */
static __always_inline bool was_handed(__u64 inode, __u64 number, __u64 walk)
{
	struct plimsoll_handed *known = bpf_map_lookup_elem(&handed, &inode);

	if (!known || known->number != number)
		return false;
	known->seen = walk;
	return true;
}

/* Notes that another user than a file's has it from now on, and may make it grow, or had it before; false: there is no room. */
static __always_inline bool note_inode(__u64 inode, __u32 uid, __u32 owner)
{
	struct plimsoll_handed note = { .number = READ(inode, struct inode, i_ino), .owner = owner }, *known;
	__u32 first = 0;
	__u64 *lost;

	known = bpf_map_lookup_elem(&handed, &inode);
	/* What a walk has noted of it stays. */
	if ((known && known->number == note.number) || !bpf_map_update_elem(&handed, &inode, &note, BPF_ANY) ||
	    !bpf_map_update_elem(&handed_more, &uid, &first, BPF_ANY))
		return true;
	lost = bpf_map_lookup_elem(&handed_lost, &first);
	if (lost)
		__sync_fetch_and_add(lost, 1);
	return false;
}

/* A file that may count is another user's from now on; false: as above. */
static __always_inline bool note_handed(__u64 inode, __u32 to)
{
	__u64 super = (__u64)READ(inode, struct inode, i_sb);
	__u32 uid = READ(inode, struct inode, i_uid.val), owner = PLIMSOLL_NO_UID;

	if (is_pipe(inode))
		uid = user_of_pipe((__u64)READ(inode, struct inode, i_pipe));
	else if (READ(super, struct super_block, s_magic) == TMPFS_MAGIC)
		owner = owner_of_super(super);
	else
		return true;
	return !uid || uid == to || note_inode(inode, uid, owner);
}

/*
 * A process was handed a file by another. Whoever is not its owner may write into it from now on, and may have done so and let
 * go of it before any walk comes. Told by a function, since there is no tracepoint.
 */
SEC("fentry/security_file_receive")
int BPF_PROG(on_receive, struct file *file)
{
	note_handed((__u64)READ(file, struct file, f_inode), bpf_get_current_uid_gid());
	return 0;
}

/* Somebody who becomes another user, and the kernel's array of what they have open. */
struct becoming {
	__u64 files;
	__u32 count;
	__u32 user;
};

static long note_open(__u32 index, struct becoming *it)
{
	__u64 file = 0;

	if (index >= it->count)
		return 1;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)(it->files + index * sizeof(file)));
	return file && !note_handed((__u64)READ(file, struct file, f_inode), it->user);
}

/* Likewise whoever becomes another user, with what was open before (su, a service). */
SEC("fentry/commit_creds")
int BPF_PROG(on_become, struct cred *new)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct becoming it = { .user = user_of_cred(new) };
	__u64 table;

	if (it.user == user_of_cred(task->real_cred))
		return 0;
	table = (__u64)BPF_CORE_READ(task, files, fdt);
	it.files = (__u64)READ(table, struct fdtable, fd);
	it.count = READ(table, struct fdtable, max_fds);
	bpf_loop(OPEN_MAX, note_open, &it, 0);
	return 0;
}

#endif
