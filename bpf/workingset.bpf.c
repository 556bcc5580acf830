// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The working set: which files are used, by chunk, which are executed, and when clean file memory falls below its floor.
 * Mechanism only: what is worth protecting, how much of it and whom to end for it user space decides and tells.
 *
 * Nothing here is attached but while the daemon protects; the links are its own and end with it.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "known.h"
#include "wire/workingset.h"
#include "kill.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u32 page_shift = 12; /* set before load */

struct barren {
	__u64 time_ns; /* of the last time */
	__u64 claim;   /* the last one then: since somebody was taken, it is another matter */
	__u32 times;   /* in a row */
	__u32 ends;    /* whether the reclaim under way may end with the OOM killer */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_floor);
} floor_line SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_floor_state);
} floor_state SEC(".maps");

/* Of processes whose reclaim ended with nothing, by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct barren);
} barren_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

#include "workingset/clean.h"
#include "workingset/uses.h"
#include "workingset/accesses.h"
#include "workingset/executables.h"
#include "workingset/floor.h"
