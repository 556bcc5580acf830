/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the limits programs and the daemon say to each other: map values, ring-buffer records and the arguments of
 * the syscall programs. This header is the contract; Rust gets it through bindgen and writes no second definition.
 * Any change to a layout or a meaning raises PLIMSOLL_SCHEMA, so that a daemon never adopts maps it would misread.
 *
 * Amounts are pages of the machine's own size, times are nanoseconds of CLOCK_MONOTONIC unless a name says otherwise.
 */
#ifndef PLIMSOLL_WIRE_LIMITS_H
#define PLIMSOLL_WIRE_LIMITS_H

#include "counters.h"
#include "types.h"

#define PLIMSOLL_SCHEMA 19

/* A line that is not drawn. */
#define PLIMSOLL_NO_LINE 0x7fffffffffffffffLL

/* No person's, so the default line is never for them: systemd's for services, nobody (65534), -1 in 16 bits. */
#define PLIMSOLL_SERVICES_UID_MIN 61184u
#define PLIMSOLL_SERVICES_UID_MAX 65535u

/* Account 0 is nobody's: an address space whose user lost its line stays tracked there, uncharged. */
#define PLIMSOLL_NOBODY 0

/*
 * Whose an account is: in the low half of its key a number, in the high half what that is of. A user's account is what its
 * processes are charged to, but for those in a job: these are charged to the job's, and the user's is above it. A group's is
 * above those of its members, and has no process of its own.
 */
#define PLIMSOLL_OF_USER 0u
#define PLIMSOLL_OF_GROUP 1u
#define PLIMSOLL_OF_JOB 2u

/* So many others may be charged for what one account is: those above it. */
#define PLIMSOLL_ABOVE_MOST 4
/* In plimsoll_account.above, so many bits each. */
#define PLIMSOLL_ABOVE_BITS 16
/* In the word of an entry that has ended: no account has this number, so that nobody is charged for what comes late. */
#define PLIMSOLL_ENDED 0xffffULL

/*
 * plimsoll_mm.word holds the account and what is charged to it in one atomic: account in the top 16 bits, charged
 * pages plus a bias in the low 48. One fetch-and-add charges and tells to whom; one compare-and-swap moves both. The
 * bias keeps the low part positive while one CPU's release is seen before another CPU's charge, so that no borrow
 * reaches the account. 2^46 pages are 256 PiB of 4 KiB pages.
 */
#define PLIMSOLL_WORD_SHIFT 48
#define PLIMSOLL_WORD_BIAS (1ULL << 46)
#define PLIMSOLL_WORD_MASK ((1ULL << PLIMSOLL_WORD_SHIFT) - 1)

/* plimsoll_mm.flags: bits, and in the top 16 what each page counts when the largest is looked for; 0: as neutral */
#define PLIMSOLL_MM_PROTECTED 1u /* never a victim: its executable is on the protected list */
#define PLIMSOLL_MM_DYING 2u     /* a signal that ends it was sent */
#define PLIMSOLL_MM_CONDEMNED \
	4u /* SIGKILL was sent to it, or is about to be: whoever runs in it is sent it too; never chosen again */
#define PLIMSOLL_MM_GONE 8u       /* settled; only its deletion is outstanding */
#define PLIMSOLL_MM_LEFT 32u      /* no process runs in it any more, so its pages are on their way: counted as dying */
#define PLIMSOLL_MM_NEVER 64u     /* never a victim: user space says so */
#define PLIMSOLL_MM_JUDGED 128u   /* user space weighed it, or was told that it is among the largest */
#define PLIMSOLL_MM_RESERVED 256u /* `reserved` may hold pages: an event looks there only then */
#define PLIMSOLL_MM_GRANTED 512u  /* it was granted pages once: an event looks there only then */
#define PLIMSOLL_MM_DELETED 1024u /* somebody is deleting it */
#define PLIMSOLL_MM_SESSION 2048u /* its user's session ends with it, user space says: the last to go, see rank.h */
#define PLIMSOLL_MM_FOLDED 4096u  /* it was signalled, and only counted: see is_told() */
#define PLIMSOLL_MM_WEIGHT_SHIFT 16
/* Who holds more than this part of its account's line, 1/4, is like anybody else, session or not. */
#define PLIMSOLL_SESSION_SHIFT 2

/* Weights are in thousandths, 1 to 65535: 2^44 pages, more than any machine has, stay below 2^60 when they are weighed. */
#define PLIMSOLL_WEIGHT_NEUTRAL 1000
#define PLIMSOLL_WEIGHT_MAX 65535u

/*
 * One address space of a limited user. What every event touches comes first, within a cache line. Followed by
 * nr_cpus * nr_slots remainders (__s32).
 */
struct plimsoll_mm {
	volatile __u64 word;
	volatile __u64 family;                 /* 0: none */
	volatile __s64 last[PLIMSOLL_MEMBERS]; /* the shared count of each member, as seen last */
	volatile __u32 uid;                    /* of its thread-group leader */
	volatile __u32 flags;
	volatile __u32 pins;         /* who uses it besides the process itself, and a number of its own: see track.h */
	volatile __u32 epoch;        /* of its account's exact tier, when it was settled on all CPUs */
	volatile __u64 mm;           /* its key: tells this use of the memory from the next */
	volatile __s64 shared_pages; /* had from fork and not its own: in its family's shares */
	volatile __s64 copied_pages; /* at most so many of the family's copied_pages are its */
	volatile __u64
		dying; /* what it adds to an account's dying_pages, and to whose: in one word, as `word` has them */
	volatile __u64 start_ns; /* of its thread-group leader, CLOCK_BOOTTIME */
	volatile __u64 tracked_ns;
	volatile __u32 tgid;
	volatile __u32 scan; /* the last scan that saw a living task of it */
	volatile __u32
		user; /* whose account is charged: uid, or the owner of the user namespace that uid is subordinate in */
	volatile __u32 walk;      /* the last walk that saw who runs in it */
	volatile __u64 living_in; /* the family that counts it among its living; 0: none */
	volatile __u32
		sent; /* the process in it that the programs sent SIGKILL, which may be on its way still; 0: none */
	volatile __u32 shifts; /* of pages between its own and inherited ones: see account.h */
	/*
	 * Granted and not touched yet, and the account whose usage that is part of: in one word, as `word` has them. A charge
	 * takes from here first, so that a page moves from reserved to used and usage stays what it was.
	 */
	volatile __u64 reserved;
	volatile __s64 granted_pages; /* what it holds by grants, touched or not: see rank.h */
	volatile __s64 open_pages;    /* granted since nothing was reserved: `reserved` may become so much again */
	volatile __s64
		untouched_pages;     /* of those, what it has not touched, plain pages counted too; less than 0: none */
	volatile __s64 untold_pages; /* of granted ones, what it freed and has not said so */
	volatile __s64 inherited_pages; /* had from a fork by somebody who was not charged for it: charged to nobody */
	/* What it gave up of its pages while it shares some, and was not seen freed: see exchange.h. */
	volatile __s64 kept_pages;    /* taken for shared ones: as many are charged as its own still */
	volatile __s64 trusted_pages; /* taken for its own */
	volatile __s64 freed_pages;   /* freed, and not taken off these yet */
	volatile __u32 claimed;       /* while it is dying: for which account's line it was taken */
	volatile __u32 job;           /* that its process is in; 0: none */
};

/* Pages that several address spaces share since a fork, charged once. */
struct plimsoll_family {
	volatile __s64 pages;        /* charged: never more than `shares` */
	volatile __s64 shares;       /* the sum of its members' shared_pages */
	volatile __s64 copied_pages; /* charged besides: copies that were not counted, and user space found */
	volatile __s64
		dying_pages; /* what it adds to its account's dying_pages: `pages`, while none of its members lives */
	volatile __u64 id;   /* its key: tells this use of the memory from the next */
	volatile __u64 members; /* how many, in the low half; the high half changes with each fork */
	volatile __u64 founder; /* the address space that the first of them is a fork of */
	volatile __u32 living;  /* members that are not dying */
	volatile __u32 account;
};

/* plimsoll_account.in_use: it is somebody's. Below it are those who use it and need it to stay what it is. */
#define PLIMSOLL_ACCOUNT_OWNED (1u << 31)

/* While more than this part of the line is dying, a power of two, who allocates goes before the largest. */
#define PLIMSOLL_DYING_SHIFT 3
/* So much of its line an account that asks its victims to end leaves alone beyond it: a quarter. */
#define PLIMSOLL_GRACE_SHIFT 2

/* So many of an account's largest processes are known while it is near. */
#define PLIMSOLL_LARGEST 4

/*
 * So many pages of an account may go uncharged between two surveys: copied where nobody sees whose they are, of which user
 * space is told then, and as many that were given up as its own and not freed.
 */
#define PLIMSOLL_STRAYS_MOST 1024

/* One account. The first 64 bytes, a cache line, are what an event far from the line touches; and `batch` and `direct`. */
#define PLIMSOLL_TOLD_NOTIFIED 1 /* that the line was crossed, whose action is to notify */
#define PLIMSOLL_TOLD_COPIES 2   /* that copies could bring it near; until they are measured */

struct plimsoll_account {
	volatile __s64 usage_pages;     /* but what lies in its tree: see tree.h */
	volatile __s64 effective_pages; /* the line in force, >= hard_pages while usage falls to a lowered line */
	volatile __s64 hard_pages;
	volatile __s64 soft_pages;
	volatile __s64 dying_pages;
	volatile __s64 processes;
	volatile __u32
		exact; /* not 0: every event is settled, since this epoch; else only those that folded a remainder */
	volatile __u32 near;  /* since when, in 2^20 ns of CLOCK_MONOTONIC; 0: it is far */
	volatile __u64 above; /* the accounts that are charged besides, PLIMSOLL_ABOVE_BITS each; 0: none */

	volatile __u32 id;         /* whose it is: a user's number, or a group's, or a job's */
	volatile __u32 of;         /* PLIMSOLL_OF_* */
	volatile __s64 floor_rank; /* no process but those in `largest` weighs more than this: pages times weight */
	volatile __u64 largest[PLIMSOLL_LARGEST]; /* address spaces, in no order; 0: none */
	volatile __u32 batch;                     /* of usage_pages, so much may lie in each leaf of its tree: tree.h */
	volatile __u32 direct;                    /* not 0: nothing may */
	volatile __u64 unanswered_ns;             /* since when it owes an answer; 0: it owes none */
	volatile __u64 hold_until_ns;             /* until then nothing is asked: nothing killable was left */
	volatile __u64
		nobody_until_ns; /* its largest are not searched for before: nobody's end was enough; 0: any time */

	volatile __s64
		copyable_pages; /* what copy-on-write could still add: shares of families beyond their charge and copies */
	volatile __u16 signal; /* what crossing sends: 9, 15, or 0 for nothing but a record */
	volatile __u8 from_default;
	volatile __u8 must_search;  /* not 0: somebody may weigh more than floor_rank and not be in `largest` */
	volatile __u32 stray_pages; /* copies that are nowhere to be charged, since a survey found all of them */
	volatile __u32 told;        /* to user space: PLIMSOLL_TOLD_* */
	volatile __u32 kills;
	volatile __u32 taking; /* a CPU is taking a victim */
	volatile __u32
		dying_most; /* pages: of what is dying, so much is left out at most: the line, or the usage it was drawn at */
	volatile __u32 index;   /* its own number */
	volatile __u32 settled; /* the epoch of `exact` in which every address space was settled for a grant */

	volatile __s64 reserved_pages; /* of usage_pages, what was granted and is not touched yet */
	volatile __s64
		peak_pages; /* the largest usage seen since the line was drawn: near it, and where no event judges it */
	volatile __u64 paced_ns;      /* when all that was told of its kills will have been made good: see is_told() */
	volatile __u64 introduced_ns; /* likewise of PLIMSOLL_RECORD_JUDGE */
	volatile __u32 folded; /* kills that were counted and not told of, since user space wrote their number down */
	volatile __u32 trusted_pages; /* given up and taken for freed, and not seen freed, since a survey */
	volatile __s64 ending_pages;  /* of usage_pages: shared memory of its user, which ends with its processes */
	volatile __s64 lasting_pages; /* besides: shared memory of its user that no end of theirs gives back for sure */
	volatile __s64
		there_pages; /* so much shared memory that was there when the line was drawn raises it as it is charged */
	volatile __u64 shared_hold_until_ns; /* as hold_until_ns, while it is past the line with shared memory only */
	volatile __u64 asked_ns;             /* when the daemon was asked last */
	volatile __u64 drawn_ns; /* when the line was drawn; 0: what was there then has been looked for since */
	volatile __u32 user;     /* whose processes are charged to it: of a group nobody's */
	__u32 pad[8];            /* to whole cache lines */
	volatile __u32 walked;   /* the epoch of `exact` in which the walk under way began, where a walk settles */
	/* PLIMSOLL_ACCOUNT_OWNED and how many grants of it are under way; 0: free. Not cleared, nor is what follows it. */
	volatile __u32 in_use;
	volatile __u32 named; /* how many words of entries and families name it, whosever it was when they came to */
};

/* plimsoll_record.kind */
#define PLIMSOLL_RECORD_NEAR 1    /* usage rose above the soft limit */
#define PLIMSOLL_RECORD_FAR 2     /* usage fell below it again */
#define PLIMSOLL_RECORD_CROSSED 3 /* the line was crossed and the kernel side took nobody: select and act */
#define PLIMSOLL_RECORD_ACTED 4   /* the kernel side sent the signal, or tried to: see signal_error */
#define PLIMSOLL_RECORD_FREED 5   /* a dying address space was torn down */
#define PLIMSOLL_RECORD_NOTIFY 6  /* the line was crossed and its action is notify */
#define PLIMSOLL_RECORD_EXACT 7   /* usage may be near the soft limit: scan, so that it is known exactly */
#define PLIMSOLL_RECORD_COPIES 8  /* copy-on-write may bring it near, which no event tells: measure */
#define PLIMSOLL_RECORD_JUDGE 9 /* a process that nobody has weighed came to be among the largest of one that is near */

/* plimsoll_record.flags */
#define PLIMSOLL_RECORD_LARGEST 1u      /* the process taken was the account's largest */
#define PLIMSOLL_RECORD_UNANSWERED 2u   /* it was taken because nobody answered */
#define PLIMSOLL_RECORD_MM_SHARED 4u    /* other processes use the same address space */
#define PLIMSOLL_RECORD_REMOTE 8u       /* the charge came from outside the process: comm and args are not known */
#define PLIMSOLL_RECORD_OTHER 16u       /* the process taken is not the one that allocated: args are not known */
#define PLIMSOLL_RECORD_TURNED_AWAY 32u /* entries run out, and its account has most: one tells of all within 0.1 s */
#define PLIMSOLL_RECORD_NO_GRACE 64u    /* no more of its account is asked to end and left alone */

#define PLIMSOLL_COMM_BYTES 16
#define PLIMSOLL_ARGS_BYTES 128

struct plimsoll_record {
	__u32 kind;
	__u32 flags;
	__u64 time_ns;   /* the event */
	__u64 signal_ns; /* when the signal had been sent; 0: none was */
	__s64 usage_pages;
	__s64 hard_pages;
	__s64 effective_pages;
	__s64 dying_pages;
	__s64 delta_pages; /* what this event charged */
	__s64 mm_pages;    /* of this address space, its inherited pages among them */
	__u64 mm;
	__u64 start_ns;
	__u64 cgroup_id; /* in the cgroup v2 hierarchy; 0: not known */
	__u32 id;        /* whose account it is, and of which kind */
	__u32 of;
	__u32 account; /* its number */
	__u32 tgid;
	__u32 signal;
	__s32 signal_error; /* 0, or a negative errno */
	__u32 args_bytes;   /* how much of args is filled */
	__u32 weight;       /* of this address space */
	__u32 uid;          /* real, of its process; where there is none, as id */
	__u32 job;          /* that its process is in; 0: none */
	__u8 comm[PLIMSOLL_COMM_BYTES];
	__u8 args[PLIMSOLL_ARGS_BYTES];
};

/* Counted by the programs, shown by status: nothing is dropped in silence. */
struct plimsoll_counters {
	volatile __u64 tracked;         /* address spaces entered */
	volatile __u64 mms_full;        /* not entered, or ended for another: the map is full or busy; see room.h */
	volatile __u64 accounts_full;   /* a default line found no free account */
	volatile __u64 families_full;   /* a fork found no free family: the child is charged in full */
	volatile __u64 records_dropped; /* ring buffer full */
	volatile __u64 deletes_failed;
	volatile __u64 late_writes; /* a shared count moved while it was being settled: settled again */
	volatile __u64 unsettled;   /* ... and still moved after the last try; the next event or scan settles it */
	volatile __u64 moves;       /* charges moved to another account: setuid */
	volatile __u64 phantoms;    /* address spaces whose exit event was lost */
	volatile __u64 signals_failed;
	volatile __u64 kills;           /* signals that the programs sent, each told of or not */
	volatile __u64 actions_dropped; /* of records_dropped, those of actions that nobody was told of yet */
	volatile __u64 entries;         /* address spaces that are entered now */
	volatile __u64 jobs_lost;       /* children of processes in a job that are in none: no memory for it */
};

/* An executable that is never a victim. device 0 matches any: where stat(2) tells another number than the kernel. */
struct plimsoll_exe {
	__u64 inode;
	__u32 device; /* kernel encoding: major << 20 | minor */
	__u32 pad;
};

/* The value of protected_exes. */
#define PLIMSOLL_EXE_OF_ANYBODY 1 /* whoever runs it */
#define PLIMSOLL_EXE_OF_SYSTEM 2  /* only when a system user runs it: anybody can run these, with anything in them */
#define PLIMSOLL_EXE_FORMER 4u    /* besides: replaced, and runs still. Linked anywhere, its number is another file's */

/* Entries of protected_exes, and of protected_cgroups. */
#define PLIMSOLL_PROTECTED_MAX 1024

/* The line for users without one of their own. */
struct plimsoll_default {
	volatile __s64 hard_pages; /* PLIMSOLL_NO_LINE: none; then uid_min = uid_max = PLIMSOLL_NO_UID */
	volatile __s64 soft_pages;
	volatile __u32 uid_min;
	volatile __u32 uid_max;
	volatile __u32 signal;
	volatile __u32 pad;
};

/* Arguments of the syscall programs; result: 0 or a negative errno. */
#define PLIMSOLL_LINE_RATCHET 0 /* effective = max(hard, usage): lowering a line kills nothing */
#define PLIMSOLL_LINE_OPEN 1    /* effective = no line: while a scan enters what already runs */
#define PLIMSOLL_LINE_NOW 2     /* effective = hard */
#define PLIMSOLL_LINE_WITHIN 3  /* as RATCHET, but not above what was in force: nobody raises their own */

struct plimsoll_line_set {
	__s64 hard_pages;
	__s64 soft_pages;
	__u64 above; /* as in plimsoll_account: accounts in use */
	__u32 id;
	__u32 of;
	__u32 signal;
	__u32 enforce; /* PLIMSOLL_LINE_* */
	__u32 from_default;
	__u32 account; /* out */
	__s32 result;
	__u32 user; /* as in plimsoll_account */
};

struct plimsoll_line_clear {
	__u32 id;
	__u32 of;
	__s32 result;
};

#define PLIMSOLL_VICTIM_DYING 0   /* user space is about to send it a signal that ends it: -EAGAIN if none is needed */
#define PLIMSOLL_VICTIM_EXPIRED 1 /* it did not end before its deadline */
#define PLIMSOLL_VICTIM_SPARED 2  /* the signal could not be sent */
#define PLIMSOLL_VICTIM_CONDEMNED 3 /* user space sent it SIGKILL, after SIGTERM */

struct plimsoll_victim {
	__u64 mm;
	__u32 tgid;
	__u32 mark; /* PLIMSOLL_VICTIM_* */
	__s32 result;
	__u32 account; /* of which it is to be the victim: PLIMSOLL_VICTIM_DYING */
};

/* What a process counts from here on. -ESRCH: it runs something else, or is another user's, by now. */
struct plimsoll_weight {
	__u64 mm;
	__u64 start_ns;
	__u64 tracked_ns; /* tells it from what this process ran before at the same address */
	__u32 tgid;
	__u32 uid;    /* of whom that was found out: rules go by users */
	__u32 weight; /* 1 to PLIMSOLL_WEIGHT_MAX */
	__u32 never;  /* not 0: it is no victim, whatever it weighs */
	__s32 result;
	__u32 session; /* not 0: PLIMSOLL_MM_SESSION */
};

/* The daemon's answer to PLIMSOLL_RECORD_CROSSED: it has acted, or there was nothing to do. */
struct plimsoll_answer {
	__u64 hold_until_ns; /* nothing is asked before; 0: as usual */
	__u32 account;
	__u32 shared; /* only where shared memory alone takes the account past its line */
	__s32 result;
	__u32 pad;
};

struct plimsoll_told {
	__u64 count;
	__u32 account; /* whose `folded` these were; 0: of `actions_dropped` */
	__u32 pad;
};

/* What copy-on-write was found to have added: a member's part (mm), then the family's whole (mm: 0). */
struct plimsoll_copies {
	__u64 family;
	__u64 mm;
	__s64 pages;
	__u32 tgid;
	__s32 result;
};

/*
 * The shared memory that an account's user owns, as user space found it; of a group, that all its members' was charged.
 * -ESRCH: the account is another's by now.
 */
struct plimsoll_shared_set {
	__s64 ending_pages;
	__s64 lasting_pages;
	__u64 begun_ns; /* when it began to be looked for; 0: it is not charged any more */
	__u32 account;
	__u32 id; /* whose it was */
	__u32 of;
	__s32 result;
};

/* What a group's counts are to be more by, as user space found them beside its members'. -ESRCH: as above. */
struct plimsoll_correction {
	__s64 usage_pages;
	__s64 dying_pages;
	__s64 processes;
	__s64 copyable_pages;
	__s64 reserved_pages;
	__s64 ending_pages;
	__s64 lasting_pages;
	__u32 account;
	__u32 id;
	__s32 result;
	__u32 pad;
};

/* What is asked of one account: verify, collect. */
struct plimsoll_of_account {
	__u32 account;
	__s32 result;
};

/* plimsoll_measured.unread: some process was not read since strays were told of; some lets nobody read it. */
#define PLIMSOLL_UNREAD_YET 1
#define PLIMSOLL_UNREADABLE 2

/* An account was surveyed. */
struct plimsoll_measured {
	__u32 account;
	__u32 unread; /* whose uncharged pages are not found: PLIMSOLL_UNREAD*; 0: all are */
	__s32 result; /* 1: measure again, 0: enough */
};

/* Whether what is taken and freed is looked at from here on, until the caller ends. */
struct plimsoll_watch_copies {
	__u32 watched;
};

/* By when user space looks, while no event is looked at: an even number. 0: each is looked at. */
struct plimsoll_set_look {
	__u64 due_ns;
};

/*
 * So many pages for a process, taken in one step from what is left below hard_pages - headroom_pages and is not kept for
 * copies. -ENOSPC: they do not fit. -EAGAIN: usage is not known well enough to tell; once all tasks were walked it is.
 * -ENOENT: no line is drawn for it. -ESRCH: it is not tracked, is dying, or runs something else by now.
 */
struct plimsoll_reserve {
	__u64 mm;
	__u64 start_ns;
	__s64 pages;
	__s64 headroom_pages;
	__s64 usage_pages; /* out: the account's, with what was granted; -ENOSPC: and with what is kept for copies */
	__s64 hard_pages;  /* out */
	__u32 of, id;      /* out: whose line that is */
	__u32 tgid;
	__s32 result;
};

/* What is asked of one process's grants: settle, give_up. -ESRCH: it is not tracked, or runs something else by now. */
struct plimsoll_grant {
	__u64 mm;
	__u64 start_ns;
	__s64 pages; /* give_up: so many are not held by a grant any more; settle: out, what went back */
	__u32 tgid;
	__s32 result;
};

/* The address space that a process runs in. -ESRCH: it is not tracked. */
struct plimsoll_space {
	__u64 mm;       /* out */
	__u64 start_ns; /* out */
	__u32 tgid;
	__u32 uid;  /* out */
	__u32 user; /* out */
	__s32 result;
};

/* What the daemon tells about itself and wants: run by it, once it answers. */
struct plimsoll_attend {
	__u32 kernel_trigger; /* 0: the programs take nobody, they only ask */
	__s32 result;
};

/* What the loader made the maps for: read by a daemon before it adopts them. */
struct plimsoll_meta {
	__u32 schema;
	__u32 nr_cpus;
	__u32 nr_slots;
	__u32 charged_members;
	__u32 max_processes;
	__u32 max_accounts;
	__u32 features; /* PLIMSOLL_FEATURE_* */
	__u32 pad;
	__u64 build;  /* of the programs: other programs can go on with the maps */
	__u64 layout; /* of the maps: programs of another one cannot */
};

/* plimsoll_meta.features: what this kernel lets the programs do. */
#define PLIMSOLL_FEATURE_SIGNAL_OTHERS 1u /* take a process other than the event's (bpf_send_signal_task, 6.13) */
#define PLIMSOLL_FEATURE_TASK_CACHES 2u   /* threads keep page counts to themselves; read after each fault (6.1) */
#define PLIMSOLL_FEATURE_REFUSE_FORKS 4u  /* nobody is born in a condemned address space (before 6.13) */

/* What a scan writes to its reader: a living process that uses a dying address space. */
struct plimsoll_holder {
	__u64 mm;
	__u64 tracked_ns; /* tells it from another at the same address */
	__u64 start_ns;
	__u32 tgid;
	__u32 uid;
};

struct plimsoll_sweep {
	__u32 scan; /* remove what neither this scan nor the one before saw alive */
	__u32 removed;
};

_Static_assert(sizeof(struct plimsoll_mm) == 224, "plimsoll_mm");
_Static_assert(sizeof(struct plimsoll_account) == 320, "plimsoll_account");
_Static_assert(sizeof(struct plimsoll_record) == 280, "plimsoll_record");
_Static_assert(sizeof(struct plimsoll_family) == 64, "plimsoll_family");
_Static_assert(sizeof(struct plimsoll_exe) == 16, "plimsoll_exe");

#endif
