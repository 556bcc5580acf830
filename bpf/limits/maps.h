/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Maps and loader-set constants of the limits programs. Every map has a stated maximum; sizes that depend on the
 * machine (CPUs, processes, accounts) are set by the loader before load. What a full map costs is counted in
 * `counters`.
 */
#ifndef PLIMSOLL_LIMITS_MAPS_H
#define PLIMSOLL_LIMITS_MAPS_H

/* Set before load, constants to the verifier. */
const volatile __u32 nr_accounts = 1024;
const volatile __u32 nr_slots = 2; /* charged members: anon, swap (+ file, shmem) */
const volatile __u32 charged_members = 1u << PLIMSOLL_MEMBER_ANON | 1u << PLIMSOLL_MEMBER_SWAP;
const volatile __u32 slot_of_member[PLIMSOLL_MEMBERS] = { 2, 0, 1, 3 };
/* How far one address space may be from its charge while its account is not exact: remainders on all CPUs. */
const volatile __u32 loose_pages_per_mm = 128;
/* Below it users are the system's: the login path protects theirs, not whatever somebody runs of it. */
const volatile __u32 first_user_uid = 1000;
/* What a process may have beyond its grants (stacks, libc) and still count as one that asked: 4 MiB, see rank.h. */
const volatile __s64 allowance_pages = 1024;
/* From so many entries on, the account that has most of them gets no more: the rest is for all others. */
const volatile __u32 entries_for_most = 14336;
const volatile __u64 unanswered_ns = 100000000; /* then the allocating process is taken */
const volatile __u64 ask_again_ns = 2000000;
const volatile __u64 search_again_ns = 1000000;
/* Scans within this time count as one: between being seen by nobody twice, an exit or an exec has had time to end. */
const volatile __u64 scan_apart_ns = 500000000;
/* While user space is late with its look: from one settling of all address spaces to the next. See tick.h. */
const volatile __u64 settle_apart_ns = 20000000;

/* Of one account's kills so many are told of at once, and then one in so long; the others are counted. */
const volatile __u32 told_at_once = 100;
const volatile __u64 told_apart_ns = 200000000;

#define UID_GATE_SLOTS 4096
#define MM_GATE_SLOTS 16384

/*
 * The gates let an event leave after a load and a comparison: how many lines and tracked address spaces hash to a
 * slot. A collision costs a map look-up, never a wrong charge.
 */
volatile __u32 uid_gate[UID_GATE_SLOTS];
volatile __u32 exact_gate[UID_GATE_SLOTS]; /* accounts that need every event */
volatile __u32 mm_gate[MM_GATE_SLOTS];
/* No line: a range of the one uid that nobody has, so that the gate needs one comparison. */
struct plimsoll_default default_line = {
	.hard_pages = PLIMSOLL_NO_LINE,
	.uid_min = PLIMSOLL_NO_UID,
	.uid_max = PLIMSOLL_NO_UID,
};
struct plimsoll_counters counters;
volatile __u64 daemon_mm; /* the daemon's own address space; 0: no daemon lives */
volatile __u32 kernel_trigger = 1;
volatile __u32 jobs_there;     /* accounts of jobs */
volatile __u32 copies_watched; /* what is taken and freed is looked at: see copies.h */
volatile __u64 look_due_ns; /* no event is looked at, and user space walks all tasks by then: see tick.h; 0: each is */
volatile __u64 next_family;
volatile __u32 next_entry;
volatile __u64 no_account_ns;  /* when all accounts were last found in use */
volatile __u64 turned_away_ns; /* when it was told last that somebody was */
volatile __u64 crowded_ns;     /* when it was told last that entries run out */
volatile __u32 next_epoch;
volatile __u32 scan_id;
volatile __u64 scan_ns; /* when it changed */
volatile __u32 walk_id; /* of every walk of all tasks */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u64)); /* the mm's address */
	__uint(value_size, sizeof(struct plimsoll_mm) + 8);
} mms SEC(".maps");

/* Nobody reads it. By it the object's types have the whole of one, which a global function that takes one needs. */
struct plimsoll_mm whole_mm_type;

/* What a new entry is copied from, as large as the loader made the value: zeroes. BLANK_PINNED has one pin. */
#define BLANK 0
#define BLANK_PINNED 1
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct plimsoll_mm) + 8);
} blank SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct plimsoll_family);
} families SEC(".maps");

/* What is charged of each thread's own cache; only where there are such caches. */
struct plimsoll_cached {
	volatile __s32 pages[PLIMSOLL_MEMBERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plimsoll_cached);
} cached SEC(".maps");

/* The job that a thread is in. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_MMAPABLE); /* for its alignment: values start at a cache line */
	__type(key, __u32);
	__type(value, struct plimsoll_account);
} accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* key_of() */
	__type(value, __u32);
} account_numbers SEC(".maps");

/* What of accounts' usage lies in leaves and branches: see tree.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __s64);
} tree SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLIMSOLL_PROTECTED_MAX);
	__type(key, struct plimsoll_exe);
	__type(value, __u32);
} protected_exes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLIMSOLL_PROTECTED_MAX);
	__type(key, __u64); /* cgroup v2 id */
	__type(value, __u32);
} protected_cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_meta);
} meta SEC(".maps");

#endif
