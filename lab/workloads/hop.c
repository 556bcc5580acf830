/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Chains of short processes in one address space: each takes a little memory, starts the next one by clone(CLONE_VM) and
 * ends. Every other chain starts the next one first, so that it never takes memory before it has a successor. Says `ready`
 * first, and `over hops=N` when nobody is left. With --forks each of a chain is a fork, with an address space of its own.
 */
#include "workload.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHAINS_MAX = 64,
	/* A process has ended long before its stack is another's. */
	STACKS = 64,
	STACK_BYTES = 8192
};

static long chains = 8, mebibytes = 256, pages = 1, forks;
static uint64_t end_ns;
static unsigned char *memory, *stacks;
static atomic_size_t taken;
/* Shared with the process that waits. */
static atomic_ulong *hops;

static int hop(void *at);

static void start_next(size_t chain)
{
	unsigned long number = atomic_fetch_add(hops, 1);
	unsigned char *stack = stacks + (chain * STACKS + number % STACKS) * STACK_BYTES;

	if (forks) {
		if (fork() == 0)
			hop((void *)chain);
		return;
	}
	/* Neither handlers nor files are shared, as little of a thread as there can be. */
	clone(hop, stack + STACK_BYTES, CLONE_VM | SIGCHLD, (void *)chain);
}

static void take(void)
{
	size_t bytes = (size_t)pages * workload_page_bytes(), from = atomic_fetch_add(&taken, bytes);

	if (from + bytes <= (size_t)mebibytes * MEBIBYTE)
		workload_touch(memory + from, bytes);
}

static int hop(void *at)
{
	size_t chain = (size_t)at;

	if (workload_clock_ns() < end_ns) {
		if (chain % 2 == 0)
			take();
		start_next(chain);
		if (chain % 2 == 1)
			take();
	}
	/* Not by exit(), which belongs to all who share the memory. */
	syscall(SYS_exit, 0);
	__builtin_unreachable();
}

int main(int argc, char **argv)
{
	long hop_seconds = 10;
	const struct setting settings[] = {
		{ "chains", "how many at once (8)", 1, CHAINS_MAX, &chains },
		{ "mebibytes", "most memory that they take together, or each with --forks (256)", 1, 1024, &mebibytes },
		{ "pages", "what each process takes (1)", 0, 512, &pages },
		{ "hop-seconds", "how long they go on (10)", 1, 60, &hop_seconds },
		{ "forks", "each has an address space of its own (0)", 0, 1, &forks },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	hops = mmap(NULL, workload_page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hops == MAP_FAILED)
		workload_fail("mmap");
	memory = workload_map((size_t)mebibytes * MEBIBYTE);
	stacks = workload_map((size_t)chains * STACKS * STACK_BYTES);
	/* Whoever starts the next one and ends leaves it to this process. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		workload_fail("prctl(PR_SET_CHILD_SUBREAPER)");
	workload_stage("ready");
	end_ns = workload_clock_ns() + (uint64_t)hop_seconds * 1000000000u;
	pid_t first = fork();
	if (first < 0)
		workload_fail("fork");
	if (first == 0) {
		for (size_t chain = 0; chain < (size_t)chains; chain++)
			start_next(chain);
		_exit(0);
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	workload_stage("over hops=%lu", atomic_load(hops));
	return 0;
}
