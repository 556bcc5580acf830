/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The few kernel types the programs read, hand-kept: only the members used, relocated at load (CO-RE), so neither
 * order nor size matters here. Names and types as in Linux 6.2 to 7.2.
 */
#ifndef PLIMSOLL_KERNEL_H
#define PLIMSOLL_KERNEL_H

#include "wire/types.h"

typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/linux/sched.h */
#define PF_FORKNOEXEC 0x00000040
#define PF_KTHREAD 0x00200000

/* include/uapi/linux/magic.h */
#define FUSE_SUPER_MAGIC 0x65735546

#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define E2BIG 7
#define EAGAIN 11
#define EEXIST 17
#define EINVAL 22
#define ENOSPC 28

#define SIGKILL 9
#define SIGTERM 15

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_F_MMAPABLE = 1024,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct percpu_counter {
	__s64 count;
	__s32 *counters;
};

struct user_namespace {
	int level;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct user_namespace *s_user_ns;
};

typedef struct {
	__u32 val;
} kuid_t;

struct inode {
	kuid_t i_uid;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

typedef struct {
	int counter;
} atomic_t;

/* Cast to it to read one int at any kernel address: a named struct that every kernel's BTF has. */
struct refcount_struct {
	atomic_t refs;
};

struct mm_struct {
	struct percpu_counter rss_stat[4];
	atomic_t mm_users;
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

struct cred {
	kuid_t uid;
};

struct signal_struct {
	int nr_threads;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	__u64 start_boottime;
	const struct cred *cred;
	struct signal_struct *signal;
	struct css_set *cgroups;
	char comm[16];
};

struct bpf_array {
	void *pptrs[1];
};

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
