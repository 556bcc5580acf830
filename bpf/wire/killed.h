/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What user space is told when anybody sends SIGKILL to a large process (tracepoint signal/signal_generate), and what the
 * program goes by. This header is the contract; Rust gets it through bindgen. The pins are named after a hash of the programs,
 * so no version number is needed.
 */
#ifndef PLIMSOLL_WIRE_KILLED_H
#define PLIMSOLL_WIRE_KILLED_H

#include "select.h"
#include "types.h"

/* One process, told once: SIGKILL has reached it. */
struct plimsoll_killed {
	struct plimsoll_task victim; /* since Linux 6.2 with exact counts */
	__u32 user;                  /* whom it counts for: the owner of a subordinate uid */
	__u32 pad;
};

/* Whom to tell of. */
struct plimsoll_killed_settings {
	__u64 from_pages; /* anonymous and swapped */
	__u32 daemon;     /* what this process kills it knows of */
	__u32 pad;
};

/* killed_counts */
#define PLIMSOLL_KILLED_OVER_SHARE 0 /* not told: their user's share was used up */
#define PLIMSOLL_KILLED_NO_ROOM 1    /* not told: the ring was full */
#define PLIMSOLL_KILLED_COUNTS 2

_Static_assert(sizeof(struct plimsoll_killed) == 128, "plimsoll_killed");

#endif
