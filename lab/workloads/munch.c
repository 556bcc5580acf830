/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes to all of its memory over and over, so that none can stay in swap. Says `ready` after the first round. */
#include "workload.h"

int main(int argc, char **argv)
{
	long mebibytes = 64;
	const struct setting settings[] = {
		{ "mebibytes", "memory to keep in use (64)", 1, MEBIBYTES_MAX, &mebibytes },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	size_t bytes = (size_t)mebibytes * MEBIBYTE;
	unsigned char *memory = workload_map(bytes);
	workload_touch(memory, bytes);
	workload_stage("ready");
	for (;;)
		workload_touch(memory, bytes);
}
