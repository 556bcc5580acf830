/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The few kernel types the programs read, hand-kept: only the members used, relocated at load (CO-RE), so neither
 * order nor size matters here. Names and types as in Linux 6.2 to 7.2; a name that ends in ___61 is Linux 6.1's.
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
#define PF_EXITING 0x00000004
#define PF_FORKNOEXEC 0x00000040
#define PF_MEMALLOC 0x00000800 /* reclaims memory, its own or others': memalloc_noreclaim_save() */
#define PF_KSWAPD 0x00020000
#define PF_KTHREAD 0x00200000

/* include/uapi/linux/sched.h */
#define CLONE_VM 0x00000100
#define CLONE_THREAD 0x00010000

/* include/linux/sched/signal.h: set when a fatal signal is sent, before anybody has seen it. */
#define SIGNAL_GROUP_EXIT 0x00000004

/* include/linux/sched.h, task->__state. */
#define TASK_UNINTERRUPTIBLE 0x00000002
#define TASK_STOPPED_OR_TRACED 0x0000000c
#define TASK_WAKEKILL 0x00000100
#define TASK_NOLOAD 0x00000400

/* include/uapi/linux/magic.h */
#define FUSE_SUPER_MAGIC 0x65735546
#define HUGETLBFS_MAGIC 0x958458f6
#define RAMFS_MAGIC 0x858458f6
#define TMPFS_MAGIC 0x01021994

/* include/uapi/linux/stat.h, include/linux/fs.h: mode of an inode, its flags, flags of a superblock. */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFIFO 0010000
#define S_SWAPFILE (1 << 8)
#define SB_KERNMOUNT (1 << 22)

/* include/linux/mm.h */
#define VM_WRITE 0x00000002
#define VM_EXEC 0x00000004
#define VM_SHARED 0x00000008
#define VM_GROWSDOWN 0x00000100

/* include/uapi/asm-generic/mman-common.h */
#define PROT_WRITE 0x2
#define MAP_TYPE 0x0f
#define MAP_PRIVATE 0x02
#define MAP_DROPPABLE 0x08 /* Linux 6.11 */
#define MAP_FIXED 0x10
#define MAP_GROWSDOWN 0x0100
#define MAP_NORESERVE 0x4000
#define MAP_HUGETLB 0x40000

/* include/uapi/linux/mman.h */
#define MREMAP_DONTUNMAP 4

/* include/uapi/asm-generic/resource.h */
#define RLIMIT_STACK 3

#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define E2BIG 7
#define EAGAIN 11
#define ENOMEM 12
#define EEXIST 17
#define EINVAL 22
#define ENOSPC 28
#define ENOSYS 38

#define SIGKILL 9
#define SIGTERM 15

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

enum {
	BPF_RB_FORCE_WAKEUP = 2,
};

enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

/* include/linux/pid_types.h */
enum pid_type {
	PIDTYPE_PID,
	PIDTYPE_TGID,
	PIDTYPE_PGID,
	PIDTYPE_SID,
	PIDTYPE_MAX,
};

/* include/linux/mmzone.h, include/linux/page-flags.h: their values differ by version and configuration. */
enum node_stat_item {
	NR_INACTIVE_FILE = 2,
	NR_ACTIVE_FILE = 3,
	NR_FILE_DIRTY = 20,
};

enum zone_stat_item {
	NR_FREE_PAGES = 0,
};

enum lru_list {
	LRU_INACTIVE_FILE = 2,
	LRU_ACTIVE_FILE = 3,
	NR_LRU_LISTS = 5,
};

enum zone_type {
	__MAX_NR_ZONES = 5,
};

enum pageflags {
	PG_head = 6,
	PG_swapcache = 10,
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

typedef struct {
	__u32 val;
} kuid_t;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
};

struct list_head {
	struct list_head *next;
	struct list_head *prev;
};

struct hlist_node {
	struct hlist_node *next;
	struct hlist_node **pprev; /* NULL: in no list any more */
};

struct hlist_head {
	struct hlist_node *first;
};

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct file_system_type {
	struct hlist_head fs_supers;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
	struct file_system_type *s_type;
	struct user_namespace *s_user_ns;
	struct hlist_node s_instances;
	struct list_head s_inodes;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic_long_t;

struct posix_acl;

struct page {
	unsigned long compound_head;
};

/* Since Linux 7.1. */
struct page___told {
	unsigned long compound_info;
};

struct pipe_buffer {
	struct page *page;
};

struct user_struct {
	kuid_t uid;
};

struct pipe_inode_info {
	unsigned int head;
	unsigned int tail;
	unsigned int ring_size;
	struct pipe_buffer *bufs;
	struct user_struct *user;
};

struct inode {
	unsigned short i_mode;
	kuid_t i_uid;
	unsigned int i_flags;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned int i_nlink;
	long long i_size;
	__u32 i_generation;
	atomic_t i_writecount; /* below 0: somebody runs it */
	struct list_head i_sb_list;
	struct hlist_head i_dentry;
	struct pipe_inode_info *i_pipe;
	struct posix_acl *i_acl; /* CONFIG_FS_POSIX_ACL */
};

/* Of tmpfs, and of all shared memory. */
struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct shmem_inode_info {
	unsigned long swapped;
	struct timespec64 i_crtime;
	struct inode vfs_inode;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
	struct hlist_node d_alias;
};

/* Up to 6.18. */
struct dentry___named {
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct address_space {
	struct inode *host;
	struct rb_root_cached i_mmap;
	unsigned long nrpages;
};

struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
};

struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	atomic_t _mapcount; /* one less, as those below */
	atomic_t _refcount;
	/* Of a large one. */
	unsigned int _folio_nr_pages;
	atomic_t _large_mapcount;  /* Linux 6.10: of all its pages, and as a whole */
	atomic_t _entire_mapcount; /* Linux 6.3: as a whole */
	atomic_t _nr_pages_mapped; /* Linux 6.3 */
	atomic_t _total_mapcount;  /* before: as a whole */
};

/* Linux 6.18 */
struct folio___618 {
	struct {
		unsigned long f;
	} flags;
	unsigned int _nr_pages;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	struct file *vm_file;
	struct {
		struct rb_node rb;
	} shared;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *open_fds;
};

struct files_struct {
	struct fdtable *fdt;
};

/* Which mappings a page of anonymous memory may be in: a tree of struct anon_vma_chain. */
struct anon_vma {
	struct rb_root_cached rb_root;
};

struct anon_vma_chain {
	struct vm_area_struct *vma;
	struct rb_node rb;
};

/* What the programs at functions read, where there is no tracepoint (Linux 6.1). */
struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};

struct iov_iter {
	unsigned long count;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

/* Cast to it to read one int at any kernel address: a named struct that every kernel's BTF has. */
struct refcount_struct {
	atomic_t refs;
};

/* With PREEMPT_RT it has no count. */
struct rw_semaphore {
	atomic_long_t count;
};

struct mm_struct {
	struct percpu_counter rss_stat[4];
	atomic_t mm_users;
	unsigned long brk;
	unsigned long start_stack;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long total_vm;
	unsigned long data_vm;  /* private and writable, stacks aside */
	unsigned long stack_vm; /* what grows by itself */
	struct rw_semaphore mmap_lock;
	atomic_long_t pgtables_bytes;
	struct file *exe_file;
	struct task_struct *owner; /* with CONFIG_MEMCG */
};

/* Before 6.2: a shared count, and what each thread keeps to itself for up to 64 faults (SPLIT_RSS_COUNTING). */
struct mm_rss_stat___61 {
	atomic_long_t count[4];
};

struct mm_struct___61 {
	struct mm_rss_stat___61 rss_stat;
};

struct task_rss_stat___61 {
	int events;
	int count[4];
};

struct task_struct___61 {
	struct task_rss_stat___61 rss_stat;
};

struct cred {
	kuid_t uid;
	struct user_namespace *user_ns;
};

typedef struct {
	unsigned long sig[1];
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct core_state;

struct rlimit {
	unsigned long rlim_cur;
	unsigned long rlim_max;
};

struct signal_struct {
	atomic_t live;
	int nr_threads;
	unsigned int flags;
	struct list_head thread_head;
	struct sigpending shared_pending;
	struct core_state *core_state;
	short oom_score_adj;
	struct mm_struct *oom_mm;
	struct rlimit rlim[16];
};

struct kernfs_iattrs {
	kuid_t ia_uid;
};

struct kernfs_node {
	__u64 id;
	struct kernfs_node *parent; /* until Linux 6.14 */
	const char *name;
	struct kernfs_iattrs *iattr; /* none, as long as it is root's and nobody changed its attributes */
};

struct kernfs_node___615 {
	struct kernfs_node *__parent;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct list_head sibling;
	struct list_head children;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	int level;
	struct cgroup *ancestors[1]; /* from the root on, itself last (since Linux 6.1) */
};

struct page_counter {
	atomic_long_t usage;
	unsigned long max;
	unsigned long high;
};

struct zone {
	atomic_long_t vm_stat[1];
};

struct pglist_data {
	struct zone node_zones[1];
	atomic_long_t vm_stat[1];
};

/* `lru_gen_struct` in 6.1, `lru_gen_folio` since 6.2; by generation, anonymous and file, zone. */
struct lru_gen_folio {
	long nr_pages[4][2][5];
};

struct lruvec {
	struct lru_gen_folio lrugen; /* CONFIG_LRU_GEN */
	struct pglist_data *pgdat;
};

struct mem_cgroup_per_node {
	struct lruvec lruvec;
	unsigned long lru_zone_size[5][5];
};

/* The same as pahole before 1.26 or so tells it. */
struct lru_gen_folio___flat {
	long nr_pages[40];
};

struct lruvec___flat {
	struct lru_gen_folio___flat lrugen;
};

struct mem_cgroup_per_node___flat {
	struct lruvec___flat lruvec;
	unsigned long lru_zone_size[25];
};

/* Its first member is its cgroup_subsys_state. */
struct mem_cgroup {
	struct page_counter memory;
	struct mem_cgroup_per_node *nodeinfo[1];
};

enum cgroup_subsys_id {
	memory_cgrp_id = 0, /* its place differs by configuration */
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct completion;

/* arch/x86/include/asm/ptrace.h: the number of the call that a thread is in; -1: none. */
struct pt_regs {
	unsigned long orig_ax;
	unsigned long ax;
	unsigned long bx;
	unsigned long cx;
	unsigned long dx;
	unsigned long di;
	unsigned long si;
	unsigned long r10;
};

/* arch/arm64/include/asm/ptrace.h: the same. */
struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
};

/* CONFIG_THREAD_INFO_IN_TASK: x86, arm64 */
struct thread_info {
	unsigned long flags;
	__u32 status; /* x86 */
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	unsigned int ptrace;
	int pid;
	int tgid;
	int exit_state;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	__u64 start_boottime;
	unsigned int __state;
	struct task_struct *real_parent;
	struct completion *vfork_done;
	const struct cred *real_cred; /* its own; `cred` is what it acts with */
	const struct cred *cred;
	struct signal_struct *signal;
	struct sigpending pending;
	struct list_head thread_node;
	struct css_set *cgroups;
	struct files_struct *files;
	__u64 self_exec_id; /* counts calls of exec, from what the parent had (64 bits since 5.7) */
	char comm[16];
};

struct bpf_array {
	void *pptrs[1];
};

struct bpf_raw_tracepoint_args {
	__u64 args[0];
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

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

#pragma clang attribute pop

#endif
