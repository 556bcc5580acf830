/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A bounded fork storm: never more than so many children at once, each of which touches a little memory and exits
 * within milliseconds. Says `ready` first and `done children=N killed=N` at its end.
 */
#include "workload.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child lives for less than this. */
enum {
	LIFE_NS_MAX = 20 * 1000 * 1000
};

static long children_max = 32;
static long mebibytes = 1;

static _Noreturn void live_and_exit(uint64_t random)
{
	workload_die_with_parent();
	if (mebibytes > 0) {
		unsigned char *memory = workload_try_map((size_t)mebibytes * MEBIBYTE);
		if (!memory)
			_exit(0);
		workload_touch(memory, (size_t)mebibytes * MEBIBYTE);
	}
	workload_sleep_until(workload_clock_ns() + workload_random(&random, LIFE_NS_MAX));
	_exit(0);
}

int main(int argc, char **argv)
{
	long storm_seconds = 5, seed = 1;
	const struct setting settings[] = {
		{ "children", "most at once (32)", 1, 512, &children_max },
		{ "mebibytes", "memory of each child (1)", 0, 64, &mebibytes },
		{ "storm-seconds", "how long it lasts (5)", 1, 600, &storm_seconds },
		{ "seed", "how long the children live (1)", 0, 1L << 30, &seed },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	uint64_t random = (uint64_t)seed;
	uint64_t end_ns = workload_clock_ns() + (uint64_t)storm_seconds * 1000000000u;
	long alive = 0;
	unsigned long long started = 0, killed = 0;
	workload_stage("ready");
	for (;;) {
		int over = workload_clock_ns() >= end_ns;
		while (!over && alive < children_max) {
			pid_t child = fork();
			if (child == 0)
				live_and_exit(random + started);
			/* A full process table is what a fork storm is about: wait for one to end. */
			if (child < 0)
				break;
			started++;
			alive++;
		}
		if (alive == 0 && over)
			break;
		int status;
		pid_t ended = wait(&status);
		if (ended < 0 && errno == ECHILD) {
			workload_sleep_until(workload_clock_ns() + 1000000u);
			continue;
		}
		if (ended < 0)
			workload_fail("wait");
		alive--;
		if (WIFSIGNALED(status))
			killed++;
	}
	workload_stage("done children=%llu killed=%llu", started, killed);
	return 0;
}
