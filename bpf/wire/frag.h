/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Who asks for blocks of several pages: what the programs of frag.bpf.c count. This header is the contract; Rust gets it
 * through bindgen. Nothing is pinned, so no version number is needed.
 */
#ifndef PLIMSOLL_WIRE_FRAG_H
#define PLIMSOLL_WIRE_FRAG_H

#include "types.h"

/* Frames of one stack, innermost first; 0 ends it earlier. */
#define PLIMSOLL_FRAG_FRAMES 48

/* Requests that are counted together. */
struct plimsoll_frag_site {
	__s32 stack; /* in the map of stacks; below 0: it could not be kept */
	__u32 order;
	__u32 gfp;
	__u32 user;    /* whom it counts for: the owner of a subordinate uid */
	__u8 comm[16]; /* empty: of one user's with too many sites */
};

struct plimsoll_frag_counts {
	__u64 requests;
	__u64 failures;   /* of them, that were given nothing */
	__u64 stalls;     /* that reclaimed or compacted memory themselves */
	__u64 stalled_ns; /* for so long, all together */
	__u64 longest_ns; /* and the longest */
};

/* frag_totals, by CPU */
#define PLIMSOLL_FRAG_REQUESTS 0  /* from the smallest order on, kept or not */
#define PLIMSOLL_FRAG_UNKEPT 1    /* in no site: there was no room */
#define PLIMSOLL_FRAG_STOLEN 2    /* taken from blocks of pages of another kind */
#define PLIMSOLL_FRAG_POLLUTING 3 /* of them, pages that cannot be moved, among those that can */
#define PLIMSOLL_FRAG_TOTALS 4

_Static_assert(sizeof(struct plimsoll_frag_site) == 32, "plimsoll_frag_site");

#endif
