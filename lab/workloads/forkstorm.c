/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bounded fork storm: each thread has never more than so many children at once, each of which touches a little memory,
 * writes to what it inherited and exits within milliseconds. Says `ready` first and `done children=N killed=N` at its end.
 * With --executes each child is a program of its own, which says nothing.
 */
#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static long children_max = 32, mebibytes = 1, inherited_mebibytes, storm_seconds = 5, seed = 1, executes;
/* A child lives for less than this. */
static long life_milliseconds_max = 20;
static pid_t parent;
static unsigned char *inherited;
static atomic_ullong started, killed;

static _Noreturn void live_and_exit(uint64_t random)
{
	if (mebibytes > 0) {
		unsigned char *memory = workload_try_map((size_t)mebibytes * MEBIBYTE);
		if (!memory)
			_exit(0);
		workload_touch(memory, (size_t)mebibytes * MEBIBYTE);
	}
	if (inherited)
		workload_touch(inherited, workload_random(&random, (size_t)inherited_mebibytes * MEBIBYTE));
	workload_sleep_until(workload_clock_ns() +
			     workload_random(&random, (uint64_t)life_milliseconds_max * 1000000u));
	_exit(0);
}

/* This program once more, as one child: `--executes=2`. */
static _Noreturn void execute(uint64_t random)
{
	char life[64], held[64], number[64];

	snprintf(life, sizeof(life), "--life-milliseconds=%ld", life_milliseconds_max);
	snprintf(held, sizeof(held), "--mebibytes=%ld", mebibytes);
	snprintf(number, sizeof(number), "--seed=%ld", (long)(random & 0xffff));
	execl("/proc/self/exe", "forkstorm", "--executes=2", life, held, number, (char *)NULL);
	_exit(1);
}

static _Noreturn void be_child(uint64_t random)
{
	workload_die_with_parent();
	/* It may have been killed before its death could be heard of. */
	if (getppid() != parent)
		_exit(0);
	if (executes)
		execute(random);
	live_and_exit(random);
}

static void *storm(void *argument)
{
	uint64_t random = (uint64_t)seed + (uintptr_t)argument;
	uint64_t end_ns = workload_clock_ns() + (uint64_t)storm_seconds * 1000000000u;
	long alive = 0;

	for (;;) {
		int over = workload_clock_ns() >= end_ns;
		while (!over && alive < children_max) {
			pid_t child = fork();
			if (child == 0)
				be_child(random + started);
			/* A full process table is what a fork storm is about: wait for one to end. */
			if (child < 0)
				break;
			started++;
			alive++;
		}
		if (alive == 0 && over)
			return NULL;
		int status;
		/* Each thread's own children: they die with the thread that forked them. */
		pid_t ended = waitpid(-1, &status, __WNOTHREAD);
		if (ended < 0 && errno == ECHILD) {
			workload_sleep_until(workload_clock_ns() + 1000000u);
			continue;
		}
		if (ended < 0)
			workload_fail("waitpid");
		alive--;
		if (WIFSIGNALED(status))
			killed++;
	}
}

int main(int argc, char **argv)
{
	long threads_max = 1;
	pthread_t threads[THREADS_MAX];
	const struct setting settings[] = {
		{ "children", "most at once, of each thread (32)", 1, 512, &children_max },
		{ "mebibytes", "memory of each child (1)", 0, 64, &mebibytes },
		{ "inherited-mebibytes", "memory that each child inherits and writes to (0)", 0, 64,
		  &inherited_mebibytes },
		{ "threads", "threads that fork (1)", 1, THREADS_MAX, &threads_max },
		{ "storm-seconds", "how long it lasts (5)", 1, 600, &storm_seconds },
		{ "seed", "how long the children live (1)", 0, 1L << 30, &seed },
		{ "life-milliseconds", "a child lives for less than this (20)", 1, 100000, &life_milliseconds_max },
		{ "executes", "each child executes; 2: is one that has (0)", 0, 2, &executes },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	parent = getpid();
	if (executes == 2)
		live_and_exit((uint64_t)seed);
	if (inherited_mebibytes > 0) {
		inherited = workload_map((size_t)inherited_mebibytes * MEBIBYTE);
		workload_touch(inherited, (size_t)inherited_mebibytes * MEBIBYTE);
	}
	workload_stage("ready");
	for (long i = 1; i < threads_max; i++)
		if ((errno = pthread_create(&threads[i], NULL, storm, (void *)(uintptr_t)i)) != 0)
			workload_fail("pthread_create");
	storm(NULL);
	for (long i = 1; i < threads_max; i++)
		if ((errno = pthread_join(threads[i], NULL)) != 0)
			workload_fail("pthread_join");
	workload_stage("done children=%llu killed=%llu", started, killed);
	return 0;
}
