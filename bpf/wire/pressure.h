/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* When memory is to be looked at. */
#ifndef PLIMSOLL_WIRE_PRESSURE_H
#define PLIMSOLL_WIRE_PRESSURE_H

#include "types.h"

/* Who waits for a moment, on the clock of bpf_ktime_get_ns. 0: nobody, or it was told. */
#define PLIMSOLL_LOOK_MEMORY 0  /* the machine guard: a CPU works */
#define PLIMSOLL_LOOK_USAGE 1   /* the guard of cgroups' and the system's lines: a CPU works */
#define PLIMSOLL_LOOK_RECLAIM 2 /* the machine guard: pages are taken back */
#define PLIMSOLL_LOOK_SHARED 3  /* whoever charges shared memory: a CPU works */
#define PLIMSOLL_LOOK_BLOCKS 4  /* the guard of large blocks: a CPU works */
#define PLIMSOLL_LOOK_MISSED 5  /* the same: somebody found none at once */
#define PLIMSOLL_LOOK_LINES 6   /* the guard of users' lines, far from all of them: a CPU works */
#define PLIMSOLL_LOOKS 7

/* Orders of blocks that are told apart. */
#define PLIMSOLL_ORDERS 16

/* How often somebody found no block of each order at once, who has no other way. */
struct plimsoll_missed {
	__u64 by_order[PLIMSOLL_ORDERS];
};

struct plimsoll_look {
	__u64 at_ns;
	__u32 look;
	__u32 reserved;
};

#endif
