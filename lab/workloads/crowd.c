/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Very many small processes that sleep. Says `ready` before the first and `full children=N` when all have their memory,
 * then sleeps with them. A child that was killed is not waited for.
 */
#include "workload.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static long children = 1000, kibibytes = 16;

static _Noreturn void child_main(atomic_long *here)
{
	workload_die_with_parent();
	unsigned char *memory = kibibytes > 0 ? workload_try_map((size_t)kibibytes * 1024) : NULL;
	if (memory)
		workload_touch(memory, (size_t)kibibytes * 1024);
	atomic_fetch_add(here, 1);
	for (;;)
		pause();
}

/* Ended ones are waited for, so that a crowd which is being killed does not wait for them to arrive. */
static long collect(void)
{
	long ended = 0;

	while (waitpid(-1, NULL, WNOHANG) > 0)
		ended++;
	return ended;
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "children", "how many (1000)", 1, 20000, &children },
		{ "kibibytes", "memory of each (16)", 0, 1024, &kibibytes },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	atomic_long *here =
		mmap(NULL, workload_page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (here == MAP_FAILED)
		workload_fail("mmap");
	workload_stage("ready");
	long started = 0, ended = 0;
	for (; started < children; started++) {
		pid_t pid = fork();
		if (pid == 0)
			child_main(here);
		/* One that is refused has ended: before Linux 6.13 a guard may do that. */
		if (pid < 0 && errno != EAGAIN)
			workload_fail("fork");
		ended += pid < 0;
		ended += collect();
	}
	while (atomic_load(here) + ended < started) {
		workload_sleep_until(workload_clock_ns() + 1000000);
		ended += collect();
	}
	workload_stage("full children=%ld", started - ended);
	for (;;)
		pause();
}
