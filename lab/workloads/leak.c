/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Loses small pieces of its heap, slowly, as a faulty program does. Says `ready` at its start and `full refused=N` at
 * its cap, and then only sleeps. A piece that is refused is no reason to stop: it says `refused` the first time, and
 * goes on.
 */
#include "workload.h"

#include <stdlib.h>
#include <unistd.h>

enum {
	PIECE_BYTES_MIN = 512,
	PIECE_BYTES_MAX = 32 * 1024
};

int main(int argc, char **argv)
{
	long mebibytes = 64, rate = 4, seed = 1;
	const struct setting settings[] = {
		{ "mebibytes", "cap (64)", 1, MEBIBYTES_MAX, &mebibytes },
		{ "rate", "MiB a second (4)", 1, 10000, &rate },
		{ "seed", "which sizes the pieces have (1)", 0, 1L << 30, &seed },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	uint64_t cap_bytes = (uint64_t)mebibytes * MEBIBYTE;
	uint64_t lost_bytes = 0, refused = 0, random = (uint64_t)seed;
	uint64_t start_ns = workload_clock_ns();
	workload_stage("ready");
	while (lost_bytes < cap_bytes) {
		size_t piece_bytes =
			PIECE_BYTES_MIN + (size_t)workload_random(&random, PIECE_BYTES_MAX - PIECE_BYTES_MIN);
		unsigned char *piece = malloc(piece_bytes);
		if (piece)
			workload_touch(piece, piece_bytes);
		else if (refused++ == 0)
			workload_stage("refused");
		lost_bytes += piece_bytes;
		workload_sleep_until(start_ns + lost_bytes * 1000000000u / ((uint64_t)rate * MEBIBYTE));
	}
	workload_stage("full refused=%llu", (unsigned long long)refused);
	for (;;)
		pause();
}
