// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What a program may expect of malloc(3) and mmap(2), one after the other. Prints 'well', or what was not so.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(is)                                                        \
	do {                                                            \
		if (!(is)) {                                            \
			printf("line %d: not so: %s\n", __LINE__, #is); \
			exit(1);                                        \
		}                                                       \
	} while (0)

static const size_t PIECE = 1 << 20;

static int holds(const unsigned char *at, int byte, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != byte)
			return 0;
	return 1;
}

static void blocks(void)
{
	void *aligned = NULL;
	unsigned char *p, *q;

	for (size_t size = 0; size < 300000; size = size * 3 / 2 + 1) {
		errno = 5;
		p = malloc(size);
		MUST(p && errno == 5 && (uintptr_t)p % 16 == 0 && malloc_usable_size(p) >= size);
		memset(p, 7, size);
		q = calloc(size + 1, 3);
		MUST(q && holds(q, 0, (size + 1) * 3));
		p = realloc(p, size * 2 + 1);
		MUST(p && holds(p, 7, size));
		free(q);
		free(p);
	}
	MUST(malloc_usable_size(NULL) == 0);
	free(NULL);
	errno = 0;
	MUST(!calloc(SIZE_MAX / 2, 3) && errno == ENOMEM);
	MUST(!reallocarray(NULL, SIZE_MAX / 2, 3) && errno == ENOMEM);
	MUST(!malloc(SIZE_MAX - 4096) && errno == ENOMEM);
	MUST(realloc(malloc(10), 0) == NULL);
	for (size_t alignment = sizeof(void *); alignment <= PIECE; alignment *= 2) {
		errno = 5;
		MUST(!posix_memalign(&aligned, alignment, 100) && errno == 5);
		MUST((uintptr_t)aligned % alignment == 0);
		memset(aligned, 1, 100);
		aligned = realloc(aligned, 5000);
		MUST(aligned && holds(aligned, 1, 100));
		free(aligned);
		aligned = aligned_alloc(alignment, alignment);
		MUST(aligned && (uintptr_t)aligned % alignment == 0);
		free(aligned);
	}
	MUST(posix_memalign(&aligned, 24, 100) == EINVAL && posix_memalign(&aligned, 1, 100) == EINVAL);
	p = memalign(48, 100);
	MUST(p && (uintptr_t)p % 64 == 0);
	free(p);
	p = pvalloc(1);
	MUST(p && (uintptr_t)p % (size_t)getpagesize() == 0 && malloc_usable_size(p) >= (size_t)getpagesize());
	free(p);
}

static void mappings(void)
{
	const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned char *p = mmap(NULL, 2 * PIECE, PROT_READ | PROT_WRITE, kind, -1, 0), *q;

	MUST(p != MAP_FAILED && holds(p, 0, 2 * PIECE));
	memset(p, 3, 2 * PIECE);
	/* The first half, then a part in the middle, then the rest. */
	MUST(!munmap(p, PIECE));
	MUST(!munmap(p + PIECE + PIECE / 2, PIECE / 4));
	MUST(holds(p + PIECE, 3, PIECE / 2));
	MUST(!munmap(p + PIECE, PIECE));
	/* Two that follow each other, in one go; errno is left alone. */
	p = mmap(NULL, 2 * PIECE, PROT_NONE, kind, -1, 0);
	MUST(p != MAP_FAILED && !munmap(p, 2 * PIECE));
	errno = 5;
	MUST(mmap(p, PIECE, PROT_READ | PROT_WRITE, kind, -1, 0) == p);
	MUST(mmap(p + PIECE, PIECE, PROT_READ | PROT_WRITE, kind, -1, 0) == p + PIECE && errno == 5);
	MUST(!munmap(p, 2 * PIECE));
	p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, kind, -1, 0);
	MUST(p != MAP_FAILED);
	memset(p, 4, PIECE);
	q = mremap(p, PIECE, 3 * PIECE, MREMAP_MAYMOVE);
	MUST(q != MAP_FAILED && holds(q, 4, PIECE) && holds(q + PIECE, 0, 2 * PIECE));
	MUST(!munmap(q, 3 * PIECE));
	MUST(munmap((void *)1, PIECE) == -1 && errno == EINVAL);
	/* What is not memory of its own is as ever. */
	p = mmap(NULL, PIECE, PROT_NONE, kind | MAP_NORESERVE, -1, 0);
	MUST(p != MAP_FAILED);
	q = mmap(p, 4096, PROT_READ | PROT_WRITE, kind | MAP_FIXED, -1, 0);
	MUST(q == p);
	*q = 1;
	MUST(!munmap(p, PIECE));
}

static void *churn(void *seed)
{
	void *kept[64] = { 0 };
	unsigned state = (unsigned)(uintptr_t)seed;

	for (int i = 0; i < 20000; i++) {
		unsigned slot = rand_r(&state) % 64;
		size_t size = rand_r(&state) % 3000;

		free(kept[slot]);
		kept[slot] = malloc(size);
		MUST(kept[slot]);
		memset(kept[slot], (int)slot, size);
	}
	for (int i = 0; i < 64; i++)
		free(kept[i]);
	return NULL;
}

static void threads(void)
{
	pthread_t all[8];

	for (uintptr_t i = 0; i < 8; i++)
		MUST(!pthread_create(&all[i], NULL, churn, (void *)(i + 1)));
	for (int i = 0; i < 8; i++)
		MUST(!pthread_join(all[i], NULL));
}

/* A child uses and gives back what it inherited, and has memory of its own; so has its child. */
static void forks(int depth)
{
	unsigned char *before = malloc(50000);
	unsigned char *mapped = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t child;

	MUST(before && mapped != MAP_FAILED);
	memset(before, 9, 50000);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		MUST(holds(before, 9, 50000));
		before = realloc(before, 90000);
		MUST(before && holds(before, 9, 50000));
		free(before);
		MUST(!munmap(mapped, PIECE));
		blocks();
		threads();
		if (depth > 0)
			forks(depth - 1);
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
	free(before);
	MUST(!munmap(mapped, PIECE));
}

/* What the library opens takes no number that a program would have. */
static void descriptors(void)
{
	int lowest = dup(1);

	MUST(lowest >= 0 && !close(lowest) && !close(0));
	free(malloc(40 * PIECE));
	MUST(dup(1) == 0 && dup(1) == lowest);
}

static void *allocate_twice(void *unused)
{
	for (int i = 0; i < 200; i++)
		free(malloc(400));
	return unused;
}

static long resident_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");

	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (status)
		fclose(status);
	return kib;
}

/* The C library allocates for each thread's values of the 33rd key and those that follow. */
static void keys(void)
{
	pthread_t thread;
	long before;

	for (int i = 0; i < 1000; i++) {
		if (i == 200)
			before = resident_kib();
		MUST(!pthread_create(&thread, NULL, allocate_twice, NULL) && !pthread_join(thread, NULL));
	}
	MUST(before > 0 && resident_kib() < before + 4096);
}

static void *end_after_the_first(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	free(malloc(100000));
	puts("well");
	return NULL;
}

/* Of a program that ends its first thread: the process ends with its last one. */
static void first_thread_ends(void)
{
	static pthread_t first;
	pthread_t thread;

	first = pthread_self();
	free(malloc(100));
	MUST(!pthread_create(&thread, NULL, end_after_the_first, &first) && !pthread_detach(thread));
	pthread_exit(NULL);
}

int main(int argc, char **argv)
{
	pthread_key_t key;

	if (argc > 1 && !strcmp(argv[1], "no environment")) {
		clearenv();
		argc = 1;
	}
	for (int i = 0; i < 40; i++)
		MUST(!pthread_key_create(&key, NULL));
	if (argc > 1)
		first_thread_ends();
	descriptors();
	blocks();
	mappings();
	threads();
	keys();
	forks(2);
	clearenv();
	blocks();
	for (int i = 0; i < 5000; i++)
		MUST(malloc(1000));
	puts("well");
	return 0;
}
