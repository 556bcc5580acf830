/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Holds some memory and sleeps: must survive. Says `ready` once the memory is there. */
#include "workload.h"

#include <unistd.h>

int main(int argc, char **argv)
{
	long mebibytes = 16;
	const struct setting settings[] = {
		{ "mebibytes", "memory to hold (16)", 0, MEBIBYTES_MAX, &mebibytes },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	if (mebibytes > 0)
		workload_touch(workload_map((size_t)mebibytes * MEBIBYTE), (size_t)mebibytes * MEBIBYTE);
	workload_stage("ready");
	for (;;)
		pause();
}
