/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef PLIMSOLL_STRICT_MAPS_H
#define PLIMSOLL_STRICT_MAPS_H

/* Address spaces with an entry: of all, and of one user's at most. Whoever is refused walks them all. */
#define SPACES_MAX 16384
#define SPACES_OF_USER 2048

/* One address space of a strict job. There until it ends. */
struct space {
	__s64 counted; /* of the job's committed_pages */
	/* The last request, made with its lock held: what it had before, asked for, and when. */
	__s64 before;
	__s64 asked;
	__u64 asked_ns;
	/* What is counted for children on their way, and when the last of them was asked for, or went on. */
	__s64 forks;
	__u64 forks_ns;
	__u32 job; /* 0: none, as its user is another by now */
	__u32 uid; /* who has the entry of SPACES_OF_USER */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct plimsoll_strict_line);
} strict_lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct plimsoll_strict_sum);
} strict_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct plimsoll_strict_member);
} strict_members SEC(".maps");

/* By the address of the mm_struct. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SPACES_MAX);
	__type(key, __u64);
	__type(value, struct space);
} strict_spaces SEC(".maps");

/* How many of them each user has, who ever had any. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __s64);
} strict_shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} refusals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_STRICT_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} strict_counts SEC(".maps");

#endif
