/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the selection programs tell user space: one record for each process that has memory. This header is the contract;
 * Rust gets it through bindgen. The pins are named after a hash of the programs, so no version number is needed here.
 *
 * Amounts are pages of the machine's own size unless a name says otherwise; start times are CLOCK_BOOTTIME.
 */
#ifndef PLIMSOLL_WIRE_SELECT_H
#define PLIMSOLL_WIRE_SELECT_H

#include "counters.h"
#include "types.h"

/* plimsoll_task.flags */
#define PLIMSOLL_TASK_DYING 1u           /* SIGKILL is pending, or the whole process is exiting */
#define PLIMSOLL_TASK_DUMPING 2u         /* it is writing a core dump: dying, but slowly */
#define PLIMSOLL_TASK_LEADER_EXITED 4u   /* its leading thread has exited: the memory is that of the others */
#define PLIMSOLL_TASK_UNINTERRUPTIBLE 8u /* its thread sleeps in a way that no signal ends, SIGKILL neither */
#define PLIMSOLL_TASK_STOPPED 16u        /* its thread is stopped, by a signal or a tracer */
#define PLIMSOLL_TASK_OOM_VICTIM 32u     /* the kernel's OOM killer has chosen it */
#define PLIMSOLL_TASK_VFORK_CHILD 64u    /* it runs in its parent's memory, until it calls exec or exits */
#define PLIMSOLL_TASK_EXACT 128u         /* the counts are exact; else they are the shared counts alone */
#define PLIMSOLL_TASK_FLAGS 255u

#define PLIMSOLL_TASK_COMM_BYTES 16

/* One process. */
struct plimsoll_task {
	__u64 start_ns;                /* of its leader */
	__u64 mm;                      /* opaque; the same for all processes that use the same memory */
	__u64 cgroup_id;               /* in the cgroup v2 hierarchy */
	__s64 pages[PLIMSOLL_MEMBERS]; /* one CPU's release may be seen before another's charge: below 0 */
	__u64 mapped_pages;            /* total_vm: at least what it can have touched */
	__u64 table_bytes;             /* its page tables */
	__u32 tgid;
	__u32 parent;
	__u32 uid; /* real, in the initial user namespace */
	__s32 oom_score_adj;
	__u32 threads;
	__u32 mm_users; /* tasks that use the memory, threads among them; now and then a reader more */
	__u32 flags;
	__u32 execs; /* its calls of exec, counted on from its parent's, modulo 2^32: another number is another program */
	__u8 comm[PLIMSOLL_TASK_COMM_BYTES]; /* of its leader */
};

/*
 * Argument of measure, and what measure_task writes; result: 0, -ESRCH (no such process, or no memory), -EAGAIN (it was
 * changing its memory).
 */
struct plimsoll_measure {
	struct plimsoll_task task; /* out */
	__u32 tgid;
	__s32 result;
};

/* Argument of watch_set. */
struct plimsoll_watch {
	__s64 floor_pages; /* from here on a process is noted; below 0: as it is */
	__u64 lost;        /* out: notes that found no room since the last call */
};

/* The value of `grown`, by its memory's key. */
struct plimsoll_grown {
	__u64 start_ns;
	__u32 tgid;
	__u32 pad;
};

/* plimsoll_shared.flags: what a file is */
#define PLIMSOLL_SHARED_FILE 1u      /* of a mounted tmpfs */
#define PLIMSOLL_SHARED_MEMFD 2u     /* memfd_create */
#define PLIMSOLL_SHARED_ANONYMOUS 4u /* mmap, shared and of no file */
#define PLIMSOLL_SHARED_SEGMENT 8u   /* System V */
#define PLIMSOLL_SHARED_KINDS 15u
#define PLIMSOLL_SHARED_ACL 16u      /* it has an access control list, or nobody knows */
#define PLIMSOLL_SHARED_UNLINKED 32u /* no directory has it */
#define PLIMSOLL_SHARED_CROWDED 64u  /* not all who have it mapped were told of */
#define PLIMSOLL_SHARED_SMALL 256u   /* a sum of small ones of one user */
#define PLIMSOLL_SHARED_HANDED 512u  /* somebody else than its owner was handed it */
/* Its pages lie in a pipe: told only with `mm` */
#define PLIMSOLL_SHARED_PIPE 4096u
/* Nothing but: `owner` has more than is looked at; with PLIMSOLL_SHARED_FILE, more files. */
#define PLIMSOLL_SHARED_PARTLY 1024u
/* Nothing but: the process of this `number` has more open than fits; it is to be walked by itself. */
#define PLIMSOLL_SHARED_CUT 2048u
/* ... and of who holds it */
#define PLIMSOLL_SHARED_CONTAINED 128u /* it is in a container of root's */

#define PLIMSOLL_SHARED_NAME_BYTES 32

/*
 * A file of shared memory; with `mm`, a process that has it mapped or open: told of once or more often. A pipe is both in one,
 * what is said of the file and of the process.
 */
struct plimsoll_shared {
	__u64 inode;   /* opaque: tells one from another */
	__u64 mm;      /* opaque, as in plimsoll_task */
	__s64 pages;   /* in memory and swapped out */
	__u64 number;  /* stat's st_ino */
	__u64 born_ns; /* of CLOCK_REALTIME, not later than the file was made; 0: unknown */
	__u32 device;  /* kernel encoding: major << 20 | minor; of a pipe: the uid that it counts for */
	__u32 uid;     /* whose the file is; real, of whoever holds it */
	__u32 owner; /* of the user namespace that its file system was mounted in, else as uid; whom a holder counts for */
	__u32 mode;
	__u32 flags;
	__u32 telling; /* higher where all of the file system is told anew; of a process: its number */
	__u8 name[PLIMSOLL_SHARED_NAME_BYTES]; /* of its directory entry, with an end */
};

/* Where a walk of all files stands: what is written before and read after each part of it. */
struct plimsoll_shared_walk {
	__u64 walk;  /* its number: another than the one before had */
	__u64 super; /* 0: it begins, at the file system of `descriptor` of the reader */
	__u64 inode;
	__u64 number;
	__s64 small_pages;      /* of small files, not told yet */
	__s64 explained_pages;  /* in memory, of all files but drivers' */
	__s64 explained_before; /* of the file systems before this one */
	__u32 small_uid;
	__u32 listed; /* it goes through the list of file systems */
	__u32 lost;   /* how often a list was begun anew */
	__u32 descriptor;
	__u32 records; /* of this part, as the next two: the programs count */
	__u32 mappers;
	__u32 turn; /* of a walk of mappings: where it goes next */
	__u32 pad;
	__u64 mm; /* of the mapping before */
	__u32 steps;
	__s32 result; /* 0: it is over; -EAGAIN: it goes on; -ESRCH: the file system where it stood is gone */
};

/* Where a walk of what processes have open stands. */
struct plimsoll_open_walk {
	__u64 walk; /* its number: another than the one before had */
	/* Of the last that was told of; 0 where it begins. */
	__u64 files;
	__u64 mm;
	__u64 task;
	/* Of the table that is gone through. */
	__u64 word;  /* of its bitmap, what is left of the one before `next` */
	__u64 inode; /* the last that was told of */
	__u64 other; /* a file system that is no tmpfs: most files are of few */
	/* Of the pipe that is gone through. */
	__u64 shares; /* of pages, until now */
	__u64 buffer; /* which is next */
	__u32 next;
	__u32 records; /* of this part */
	__u32 steps;   /* likewise */
	__u32 single;  /* it is of the one task that is walked by itself, in parts */
	__u32 done;    /* its table is */
	__u32 first;   /* pipes that are there may have been handed before */
};

/* A file that somebody else than its owner was handed. */
struct plimsoll_handed {
	__u64 number; /* of the inode, tells it from the next at its address */
	__u64 seen;   /* the last walk that came by it */
	/* Of the user namespace that its file system was mounted in; 0: the machine's; PLIMSOLL_NO_UID: it is a pipe. */
	__u32 owner;
	__u32 pad;
};

_Static_assert(sizeof(struct plimsoll_shared) == 96, "plimsoll_shared");
_Static_assert(sizeof(struct plimsoll_shared_walk) == 104, "plimsoll_shared_walk");
_Static_assert(sizeof(struct plimsoll_open_walk) == 96, "plimsoll_open_walk");
_Static_assert(sizeof(struct plimsoll_task) == 120, "plimsoll_task");
_Static_assert(sizeof(struct plimsoll_measure) == 128, "plimsoll_measure");
_Static_assert(sizeof(struct plimsoll_grown) == 16, "plimsoll_grown");

#endif
