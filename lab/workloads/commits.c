/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Asks for memory in one of the ways there are until it is refused, or has asked often enough, and writes to all that it was
 * given. Says `ready`, then `granted KIBIBYTES ERRNO` (0: nothing was refused), then `touched`, and goes on with `done`.
 */
#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	BLOCKS_MAX = 65536,
	SMALL_BYTES = 1000
};

static long count = 3, kibibytes = 1024, by_malloc, by_calloc, by_mmap, by_brk, without_reserve, by_mprotect, by_mremap,
	    small, shared, huge, grows_down, threads, forks, again, holds, moved_away, stacks, gated;

struct block {
	unsigned char *start;
	size_t bytes;
};

static struct block blocks[BLOCKS_MAX];
static long taken;
static atomic_size_t granted;
static atomic_int refused;

static unsigned char *map(size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Reserved first, and made writable then. */
static unsigned char *map_and_protect(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_NONE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0)
		return memory;
	int why = errno;
	munmap(memory, bytes);
	errno = why;
	return NULL;
}

/* One mapping that grows, each time to the next size. */
static unsigned char *grow(size_t bytes)
{
	if (taken == 0)
		return map(bytes, MAP_PRIVATE | (without_reserve ? MAP_NORESERVE : 0));
	struct block *first = &blocks[0];
	size_t all = first->bytes + bytes;
	void *moved = mremap(first->start, first->bytes, all, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		return NULL;
	*first = (struct block){ moved, all };
	return first->start;
}

/* A mapping is moved, and its place stays mapped: it can be written to in both. */
static unsigned char *move_away(size_t bytes)
{
	if (taken == 0)
		return map(bytes, MAP_PRIVATE | MAP_NORESERVE);
	void *moved = mremap(blocks[0].start, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	return moved == MAP_FAILED ? NULL : moved;
}

/* What grows down by itself, made writable later. */
static unsigned char *map_stack(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_NONE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE | MAP_GROWSDOWN, -1, 0);
	if (memory == MAP_FAILED || mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0)
		return NULL;
	return memory;
}

static unsigned char *take(size_t bytes)
{
	if (moved_away)
		return move_away(bytes);
	if (stacks)
		return map_stack(bytes);
	if (by_malloc)
		return malloc(bytes);
	if (by_calloc)
		return calloc(bytes, 1);
	if (by_brk) {
		void *old = sbrk((intptr_t)bytes);
		return old == (void *)-1 ? NULL : old;
	}
	if (by_mprotect)
		return map_and_protect(bytes);
	if (by_mremap)
		return grow(bytes);
	if (shared)
		return map(bytes, MAP_SHARED);
	return map(bytes, MAP_PRIVATE | (without_reserve ? MAP_NORESERVE : 0) | (huge ? MAP_HUGETLB : 0) |
				  (grows_down ? MAP_GROWSDOWN : 0));
}

/* Small ones are written to at once: their list would be as long as they are. */
static void *take_small(void *unused)
{
	(void)unused;
	for (size_t all = 0; all < (size_t)(count * kibibytes) * 1024 && !refused; all += SMALL_BYTES) {
		unsigned char *one = malloc(SMALL_BYTES);
		if (!one) {
			refused = errno;
			break;
		}
		memset(one, 1, SMALL_BYTES);
		granted += SMALL_BYTES;
	}
	return NULL;
}

static void take_small_by_threads(void)
{
	pthread_t all[THREADS_MAX];
	long begun = 0;

	for (; begun < threads; begun++) {
		int error = pthread_create(&all[begun], NULL, take_small, NULL);
		if (error == 0)
			continue;
		refused = error;
		break;
	}
	for (long i = 0; i < begun; i++)
		pthread_join(all[i], NULL);
}

static void take_blocks(void)
{
	size_t bytes = (size_t)kibibytes * 1024;

	for (long i = 0; i < count; i++) {
		unsigned char *one = take(bytes);
		if (!one) {
			refused = errno;
			break;
		}
		granted += bytes;
		if (by_mremap && taken > 0)
			continue;
		blocks[taken++] = (struct block){ one, bytes };
	}
}

static void touch_all(void)
{
	for (long i = 0; i < taken; i++)
		workload_touch(blocks[i].start, blocks[i].bytes);
}

/* A child that writes to all that it inherited. */
static void fork_one(void)
{
	pid_t child = fork();

	if (child == 0) {
		workload_die_with_parent();
		touch_all();
		_exit(0);
	}
	if (child < 0) {
		workload_stage("forked %d", errno);
		return;
	}
	int status = 0;
	if (waitpid(child, &status, 0) != child)
		workload_fail("waitpid");
	workload_stage(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "forked 0" : "forked and lost");
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "count", "how often it asks (3)", 1, BLOCKS_MAX, &count },
		{ "kibibytes", "for how much (1024)", 1, (long)MEBIBYTES_MAX * 1024, &kibibytes },
		{ "malloc", "by malloc", 0, 1, &by_malloc },
		{ "calloc", "by calloc", 0, 1, &by_calloc },
		{ "mmap", "by mmap, which is what it does by itself", 0, 1, &by_mmap },
		{ "brk", "by brk", 0, 1, &by_brk },
		{ "noreserve", "by mmap with MAP_NORESERVE", 0, 1, &without_reserve },
		{ "mprotect", "by what was mapped unusable, made writable", 0, 1, &by_mprotect },
		{ "mremap", "by one mapping that grows", 0, 1, &by_mremap },
		{ "huge", "by mmap with MAP_HUGETLB", 0, 1, &huge },
		{ "grows-down", "by mmap with MAP_GROWSDOWN", 0, 1, &grows_down },
		{ "shared", "by shared mappings", 0, 1, &shared },
		{ "moved-away", "by moves that leave the old place mapped", 0, 1, &moved_away },
		{ "stacks", "by what grows down, made writable", 0, 1, &stacks },
		{ "small", "by many small mallocs, count x kibibytes in all", 0, 1, &small },
		{ "threads", "as --small, in so many threads", 0, THREADS_MAX, &threads },
		{ "forks", "has so many children, one after the other, that write to all", 0, 1000, &forks },
		{ "gated", "begins when there is a byte on standard input, which it takes", 0, 1, &gated },
		{ "holds", "keeps it all, and does not write to it", 0, 1, &holds },
		{ "again", "gives all back and asks once more, so often", 0, 1000, &again },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	workload_stage("ready");
	char byte;
	if (gated && read(STDIN_FILENO, &byte, 1) != 1)
		workload_fail("standard input");
	for (; again >= 0; again--) {
		if (threads > 0)
			take_small_by_threads();
		else if (small)
			take_small(NULL);
		else
			take_blocks();
		workload_stage("granted %zu %d", (size_t)granted / 1024, (int)refused);
		while (holds)
			pause();
		touch_all();
		workload_stage("touched");
		for (; forks > 0; forks--)
			fork_one();
		if (again > 0) {
			for (long i = 0; i < taken; i++)
				munmap(blocks[i].start, blocks[i].bytes);
			taken = 0;
			granted = 0;
			refused = 0;
		}
	}
	workload_stage("done");
	return 0;
}
