/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A process's page counters, as the kernel numbers them. */
#ifndef PLIMSOLL_WIRE_COUNTERS_H
#define PLIMSOLL_WIRE_COUNTERS_H

/* The kernel's rss_stat members (include/linux/mm_types_task.h; numbers unchanged since 4.5). */
#define PLIMSOLL_MEMBER_FILE 0
#define PLIMSOLL_MEMBER_ANON 1
#define PLIMSOLL_MEMBER_SWAP 2
#define PLIMSOLL_MEMBER_SHMEM 3
#define PLIMSOLL_MEMBERS 4

#endif
