/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Takes memory as one user and becomes another: the charge has to move. Must be started as root; --from is the uid it
 * takes its memory as first (0: as root). With --threads, others keep touching fresh memory during the change.
 * Says `before uid=U`, then `after uid=U`, then `grown uid=U` when it has taken as much again; sleeps.
 */
#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static long mebibytes = 16;
static atomic_int hop_done;

/* Touches a MiB and gives it back, so that the size stays bounded however long the change takes. */
static void *keep_faulting(void *unused)
{
	(void)unused;
	unsigned char *memory = workload_map(MEBIBYTE);
	while (!atomic_load(&hop_done)) {
		workload_touch(memory, MEBIBYTE);
		if (madvise(memory, MEBIBYTE, MADV_DONTNEED) != 0)
			workload_fail("madvise");
	}
	if (munmap(memory, MEBIBYTE) != 0)
		workload_fail("munmap");
	return NULL;
}

/* As `workload_become`, but root stays in the saved uid, so that it can change again. */
static void become_for_now(long uid)
{
	if (uid == 0)
		return;
	if (setresuid((uid_t)uid, (uid_t)uid, 0) != 0)
		workload_fail("setresuid");
	workload_die_with_parent();
}

int main(int argc, char **argv)
{
	long from = 0, to = 60001, threads = 0;
	const struct setting settings[] = {
		{ "mebibytes", "memory to take before, and again after (16)", 1, MEBIBYTES_MAX / 2, &mebibytes },
		{ "from", "uid before; 0 is root (0)", 0, 60999, &from },
		{ "to", "uid after (60001)", 60000, 60999, &to },
		{ "threads", "threads that fault during the change (0)", 0, THREADS_MAX, &threads },
	};
	pthread_t others[THREADS_MAX];

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	if (from != 0 && from < 60000) {
		fprintf(stderr, "%s: --from is 0 or one of 60000 to 60999, not %ld\n", argv[0], from);
		return 2;
	}
	size_t bytes = (size_t)mebibytes * MEBIBYTE;
	become_for_now(from);
	workload_touch(workload_map(bytes), bytes);
	workload_stage("before uid=%u", getuid());
	for (long i = 0; i < threads; i++)
		if ((errno = pthread_create(&others[i], NULL, keep_faulting, NULL)) != 0)
			workload_fail("pthread_create");
	if (from != 0 && setresuid((uid_t)-1, 0, (uid_t)-1) != 0)
		workload_fail("setresuid");
	workload_become(to);
	workload_stage("after uid=%u", getuid());
	atomic_store(&hop_done, 1);
	for (long i = 0; i < threads; i++)
		if ((errno = pthread_join(others[i], NULL)) != 0)
			workload_fail("pthread_join");
	workload_touch(workload_map(bytes), bytes);
	workload_stage("grown uid=%u", getuid());
	for (;;)
		pause();
}
