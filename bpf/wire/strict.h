/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Strict jobs: what user space tells the programs that refuse memory past a job's line, and what they answer. This header is
 * the contract; Rust gets it through bindgen. The pins are named after a hash of it and of the maps, so no version number is
 * needed.
 */
#ifndef PLIMSOLL_WIRE_STRICT_H
#define PLIMSOLL_WIRE_STRICT_H

#include "select.h"
#include "types.h"

/* So many lines hold for a strict job at most: its own, and those of the jobs around it (PLIMSOLL_ABOVE_MOST). */
#define PLIMSOLL_STRICT_DEPTH 5

/* Written by user space alone. */
struct plimsoll_strict_line {
	__u64 limit_pages;
	__u32 uid;   /* whose: processes in it that became another user's are in none */
	__u32 outer; /* the strict job that it is in; 0: none */
};

/* Made by user space, and written by the programs from then on. */
struct plimsoll_strict_sum {
	__s64 committed_pages; /* what its address spaces may write to, stacks included, and nobody else sees */
	__s64 spaces;          /* address spaces in this very job */
	__u64 begun;           /* changes of committed_pages, and how many of them are done */
	__u64 done;
	__s64 peak_pages;
	__u64 refused; /* requests */
	__u64 told;    /* of these, in records */
	__u64 told_ns; /* the last record, CLOCK_MONOTONIC */
};

/* Which job a thread is in; 0: none. User space writes it for who starts a job. */
struct plimsoll_strict_member {
	__u32 job;
	__u32 next;       /* from its next exec on: what it took before that was not for this one. 0: the same */
	__s64 fork_pages; /* counted for a child that is on its way */
};

/* plimsoll_refusal.call */
#define PLIMSOLL_REFUSED_FORK 1u /* else more memory for itself */

/* One request that was refused: the first of a job, and then one a second at most. */
struct plimsoll_refusal {
	__u64 time_ns;         /* CLOCK_MONOTONIC */
	__u64 start_ns;        /* of the process, since boot */
	__u64 asked_pages;     /* by this request */
	__u64 committed_pages; /* without it, of the job whose line it does not fit below */
	__u64 limit_pages;
	__u64 untold; /* of that job, refused since the record before */
	__u32 job;
	__u32 tgid;
	__u32 uid;
	__u32 call;
	__u8 comm[PLIMSOLL_TASK_COMM_BYTES]; /* of the thread that asked */
};

/* strict_counts */
#define PLIMSOLL_STRICT_NO_ROOM 0 /* address spaces without an entry: they get no more memory */
#define PLIMSOLL_STRICT_LOST 1    /* processes that are in no job for want of memory */
#define PLIMSOLL_STRICT_UNTOLD 2  /* refusals that found the ring full */
#define PLIMSOLL_STRICT_COUNTS 3

_Static_assert(sizeof(struct plimsoll_strict_line) == 16, "plimsoll_strict_line");
_Static_assert(sizeof(struct plimsoll_strict_sum) == 64, "plimsoll_strict_sum");
_Static_assert(sizeof(struct plimsoll_refusal) == 80, "plimsoll_refusal");

#endif
