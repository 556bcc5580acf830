/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the working-set programs tell user space, and what they are told: use of the page cache by file and chunk, the files
 * that running processes execute, and the floor below which clean file memory does not fall. This header is the contract;
 * Rust gets it through bindgen. The pins are named after a hash of the programs, so no version number is needed.
 *
 * Amounts are pages of the machine's own size; times are CLOCK_MONOTONIC, start times of processes CLOCK_BOOTTIME.
 */
#ifndef PLIMSOLL_WIRE_WORKINGSET_H
#define PLIMSOLL_WIRE_WORKINGSET_H

#include "types.h"

/* A chunk is 512 pages: 2 MiB of pages of 4 KiB. */
#define PLIMSOLL_CHUNK_SHIFT 9

/* And 32 blocks. */
#define PLIMSOLL_BLOCK_SHIFT 4

#define PLIMSOLL_USES_MIN 8192
#define PLIMSOLL_USES_MAX 65536
#define PLIMSOLL_EXECUTABLES_MAX 8192
#define PLIMSOLL_FLOOR_VICTIMS 16

/* A file, as its superblock and its inode tell it: neither is what stat() says of it on btrfs. */
struct plimsoll_file {
	__u64 inode;
	__u32 device; /* in the kernel's encoding: major << 20 | minor */
	__u32 generation;
};

/* Key of `uses`. */
struct plimsoll_chunk {
	struct plimsoll_file file;
	__u32 chunk; /* the place in the file, in chunks */
	__u32 pad;
};

/* plimsoll_use.flags, as they were when the entry was made or a page last came in */
#define PLIMSOLL_USE_WRITERS 1u  /* open for writing */
#define PLIMSOLL_USE_SWAPFILE 2u /* the kernel swaps to it */
#define PLIMSOLL_USE_UNLINKED 4u /* it has no name any more */
#define PLIMSOLL_USE_FLAGS 7u

/*
 * Value of `uses`: pages, counted on from the last drain. Counted without locked instructions: where two CPUs use one
 * chunk at the same time, one count may be lost.
 */
struct plimsoll_use {
	__u64 accessed; /* read, or mapped by a fault: what was there and what had to be fetched */
	__u64 added;
	__u64 evicted;    /* by reclaim; not truncated, unlinked or dropped on request */
	__u64 file_bytes; /* at the time of the flags */
	__u32 flags;
	__u32 magic;  /* of its file system */
	__u32 blocks; /* where what was accessed is: a bit for each block */
	__u32 mapped; /* 1: some of it was mapped, not read */
};

/* The value of `recents`: what was read last on a CPU, and how often anything was read or mapped there. */
struct plimsoll_recent {
	__u64 mapping;
	__u64 first;
	__u64 last;
	__u64 counted; /* pages before it are counted */
	__u64 events;
};

struct plimsoll_floor_victim {
	__u64 start_ns;
	__u32 tgid; /* 0: none */
	__u32 pad;
};

/* The value of `floor_line`: user space writes it whole, the programs read it. */
struct plimsoll_floor {
	__s64 line_pages;     /* of clean file memory; 0: there is no floor */
	__s64 locked_pages;   /* what is locked counts as clean file memory */
	__s64 dirty_pages;    /* of the cgroup: for the machine the programs read them themselves */
	__s64 free_max_pages; /* with more than this free memory is not short, and nobody is taken */
	__s64 reserve_pages;  /* with less clean memory that is not locked the soft tier goes; 0: it holds nothing */
	__u64 valid_until_ns; /* the table of victims is good until then: the daemon lives */
	__u64 hold_until_ns;  /* user space has somebody dying, or other reasons: nobody is taken before */
	__u64 hold_ns;        /* how long one victim is waited for; ten times as long while it is exiting */
	__u64 cgroup;         /* inode of the memory cgroup whose limit is physical memory; 0: the machine */
	__u32 own_tgid;       /* whose faults are not counted: the daemon's, which populates what it locks */
	__u32 pad;
	struct plimsoll_floor_victim victims[PLIMSOLL_FLOOR_VICTIMS]; /* the first of these that lives is taken */
};

/* The value of `floor_state`: the programs write it, user space reads it. */
struct plimsoll_floor_state {
	__u64 claimed_until_ns; /* somebody was taken, or is being: nobody else before */
	__u64 victim_claim;     /* the claim that `victim` belongs to */
	struct plimsoll_floor_victim victim;
	__u64 asked_ns; /* the daemon was asked to take `victim`; 0: the programs took it */
	__u64 soft_ns;  /* when the last word was given to let go of the soft tier */
	__u64 near_ns;  /* the same, that the line is near and the table is out of date */
	/* How often the line was looked at; clean memory below it, or nothing to take; nobody taken for want of a table. */
	__u64 checks;
	__u64 below;
	__u64 stale;
	__u64 blind; /* how often clean memory could not be read */
	__u64 taken;
	__u64 lost; /* records that found no room */
};

/* plimsoll_workingset_record.kind */
#define PLIMSOLL_WORKINGSET_SOFT 1u /* reclaim made no progress, or soon makes none: let go of the soft tier */
/* Below the line, or near it with nothing that reclaim can take: */
#define PLIMSOLL_WORKINGSET_ASK 2u    /* take `victim`, for the programs cannot */
#define PLIMSOLL_WORKINGSET_TAKEN 3u  /* `victim` was sent SIGKILL */
#define PLIMSOLL_WORKINGSET_NOBODY 4u /* nobody of the table lives */
#define PLIMSOLL_WORKINGSET_NEAR 5u   /* the line is near: a table is wanted */

struct plimsoll_workingset_record {
	__u64 time_ns;
	__u64 cgroup;      /* inode of the memory cgroup that the process in reclaim is in; 0: not known */
	__s64 clean_pages; /* locked ones among them; 0 in SOFT, as all that follows */
	__s64 line_pages;
	__s64 locked_pages;
	__s64 free_pages;
	struct plimsoll_floor_victim victim;
	__u32 kind;
	__u32 reclaimer; /* tgid of the process in reclaim */
	__u32 limited;   /* SOFT: a cgroup's limit was reclaimed for, not the machine */
	__u32 reclaimed; /* SOFT: pages */
};

_Static_assert(sizeof(struct plimsoll_chunk) == 24, "plimsoll_chunk");
_Static_assert(sizeof(struct plimsoll_use) == 48, "plimsoll_use");
_Static_assert(sizeof(struct plimsoll_floor) == 336, "plimsoll_floor");
_Static_assert(sizeof(struct plimsoll_floor_state) == 104, "plimsoll_floor_state");
_Static_assert(sizeof(struct plimsoll_workingset_record) == 80, "plimsoll_workingset_record");

#endif
