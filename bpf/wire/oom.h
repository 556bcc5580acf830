/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What user space is told when the kernel's OOM killer marks a victim (tracepoint oom/mark_victim). This header is the
 * contract; Rust gets it through bindgen. The pins are named after a hash of the programs, so no version number is needed.
 *
 * Whom it marks it has killed, or has found on its way out already: this record does not tell which.
 */
#ifndef PLIMSOLL_WIRE_OOM_H
#define PLIMSOLL_WIRE_OOM_H

#include "select.h"
#include "types.h"

/* plimsoll_marked.flags */
#define PLIMSOLL_MARKED_KNOWN 1u    /* victim is filled; else there is but its number (Linux without 72ba14deb40a) */
#define PLIMSOLL_MARKED_EXITING 2u  /* it was exiting before it was marked: nobody killed it for that */
#define PLIMSOLL_MARKED_PATH_CUT 4u /* the path lacks its beginning, or the end of a long name in it */
#define PLIMSOLL_MARKED_FLAGS 7u

/* NAME_MAX with its NUL, and as many names as are walked: containers within containers within a session have ten. */
#define PLIMSOLL_CGROUP_NAME_BYTES 256
#define PLIMSOLL_CGROUP_PATH_BYTES 1024
#define PLIMSOLL_CGROUP_LEVELS 24

struct plimsoll_marked {
	struct plimsoll_task victim; /* the whole process */
	__u64 time_ns;               /* CLOCK_MONOTONIC */
	__u64 number;                /* counts up from 1 while the programs stay pinned */
	__u32 thread;                /* the one that was marked, whose number the kernel log has */
	__u32 flags;
	__u32 invoker; /* who needed memory when there was none: the process, its thread and real uid */
	__u32 invoker_thread;
	__u32 invoker_uid;
	__u32 path_bytes;                            /* the last NUL included */
	__u8 invoker_comm[PLIMSOLL_TASK_COMM_BYTES]; /* of that thread */
	/*
	 * The victim's cgroup, its own name first and then that of each above it, each ended by a NUL: in the v2
	 * hierarchy, or in the memory controller's of v1 where it is at the root of the former. The root has no name.
	 */
	__u8 path[PLIMSOLL_CGROUP_PATH_BYTES];
};

_Static_assert(sizeof(struct plimsoll_marked) == 1200, "plimsoll_marked");

#endif
