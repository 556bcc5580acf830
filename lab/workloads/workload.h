/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the workloads share: named settings with bounds, an owner, a watchdog, memory that is really touched.
 *
 * Every workload dies with its parent (the kernel means the very thread that started it), ends by itself when its
 * watchdog's time is over, and takes no more memory than it was told. It tells its stages on standard output, one line
 * each, so that a test can wait for them.
 *
 * They are C, and not the workloads of bench/src/workload: they fork among threads, share memory by clone(2), change the
 * user of one thread and run in images whose every page is known, and all of that is unsafe in Rust, whose unsafe code is
 * elsewhere. What `plimsoll bench` and `plimsoll demo` start has to be in that program, which a C program is not.
 */
#ifndef PLIMSOLL_WORKLOAD_H
#define PLIMSOLL_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum {
	/* Most memory one workload may be told to take, in MiB. */
	MEBIBYTES_MAX = 4096,
	THREADS_MAX = 64,
	/* Exit status of a workload whose watchdog ended it. */
	STATUS_WATCHDOG = 75,
};

#define MEBIBYTE ((size_t)1 << 20)

/* One setting, given as `--name=value`, or `--name` for 1. */
struct setting {
	const char *name;
	const char *help;
	long minimum;
	long maximum;
	long *value;
};

/*
 * Reads the settings, the common ones among them (--uid, --seconds, --no-thp, --wait); takes on the owner; arms the
 * watchdog. Ends the program with status 2 and one line when a setting is wrong.
 */
void workload_start(int argc, char **argv, const struct setting *settings, size_t count);

/* Ends the program with status 1, `what` and the text of errno. */
_Noreturn void workload_fail(const char *what);

/* Sets real, effective and saved uid and gid, and drops all other groups. Ends the program when it cannot. */
void workload_become(long uid);

/* For a child right after fork, and after a change of uid, which clears it: die with the parent. */
void workload_die_with_parent(void);

/* Prints a line at once, and with --wait goes on only when a line comes in on standard input, or its end. */
__attribute__((format(printf, 1, 2))) void workload_stage(const char *format, ...);

/* Anonymous memory, not yet touched. Ends the program where the kernel refuses; `workload_try_map` gives NULL. */
unsigned char *workload_map(size_t bytes);
unsigned char *workload_try_map(size_t bytes);

/* Writes one byte in every page of the range. */
void workload_touch(unsigned char *memory, size_t bytes);

size_t workload_page_bytes(void);
uint64_t workload_clock_ns(void);
void workload_sleep_until(uint64_t clock_ns);

/* A number from 0 to bound - 1; `state` is the seed and must be kept between calls. */
uint64_t workload_random(uint64_t *state, uint64_t bound);

#endif
