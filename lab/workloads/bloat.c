/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Grows to a size at a rate, page by page, with any number of threads: must die at its line. Says `ready` before the
 * first page and `full` when the size is reached, which a limited bloat never does.
 */
#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

/* Pages are touched this many bytes at a time between looks at the clock. */
enum {
	STEP_BYTES = 64 * 1024
};

static long mebibytes = 256;
static long rate;
static long threads = 1;
static size_t share_bytes;

static void *grow(void *share)
{
	uint64_t start_ns = workload_clock_ns();
	uint64_t bytes_a_second = (uint64_t)rate * MEBIBYTE / (uint64_t)threads;

	for (size_t done = 0; done < share_bytes; done += STEP_BYTES) {
		size_t step = share_bytes - done < STEP_BYTES ? share_bytes - done : STEP_BYTES;
		if (bytes_a_second > 0)
			workload_sleep_until(start_ns + (uint64_t)done * 1000000000u / bytes_a_second);
		workload_touch((unsigned char *)share + done, step);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "mebibytes", "size to reach, shared among the threads (256)", 1, MEBIBYTES_MAX, &mebibytes },
		{ "rate", "MiB a second; 0 is as fast as it goes (0)", 0, 1000000, &rate },
		{ "threads", "threads that grow at once (1)", 1, THREADS_MAX, &threads },
	};
	pthread_t others[THREADS_MAX];

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	share_bytes = (size_t)mebibytes * MEBIBYTE / (size_t)threads;
	share_bytes -= share_bytes % workload_page_bytes();
	unsigned char *memory = workload_map((size_t)mebibytes * MEBIBYTE);
	workload_stage("ready");
	for (long i = 1; i < threads; i++)
		if ((errno = pthread_create(&others[i], NULL, grow, memory + (size_t)i * share_bytes)) != 0)
			workload_fail("pthread_create");
	grow(memory);
	for (long i = 1; i < threads; i++)
		if ((errno = pthread_join(others[i], NULL)) != 0)
			workload_fail("pthread_join");
	workload_stage("full");
	for (;;)
		pause();
}
