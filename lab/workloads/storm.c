/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A storm of address-space changes on all CPUs: threads map, touch, move, shrink, drop and unmap memory at random from
 * a seed, hop from CPU to CPU, and fork children that write to what they inherited. For accounting that has to be exact
 * when everything stands still.
 *
 * The events are parted by stops. At a stop all threads and children stand still, and for each process a line
 *     stop N pid=P anonymous_kib=A swap_kib=S
 * is printed from its smaps_rollup, then `stopped N events=E`; with --wait it stays so until a line comes in. At the
 * end: `done events=E forks=F`.
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	SLOTS = 64,
	CHILDREN_MAX = 16,
	CHILD_PAGES_MAX = 64,
	STOPS_MAX = 1000,
	ROLLUP_BYTES = 4096
};

struct mapping {
	unsigned char *memory;
	size_t pages;
};

struct storm_thread {
	pthread_t thread;
	long number;
	uint64_t random;
	size_t pages;
	struct mapping slots[SLOTS];
};

/* A child that waits for the end of its stop: it lives until `release` is closed. */
struct storm_child {
	pid_t pid;
	int release;
};

static long events_max = 100000, threads_max = 4, children_max = 4, stops = 1, seed = 1, mebibytes = 64;
static size_t thread_pages_max;
static cpu_set_t allowed;
static pthread_barrier_t barrier;
static pthread_mutex_t children_lock = PTHREAD_MUTEX_INITIALIZER;
static struct storm_child children[CHILDREN_MAX];
static long children_alive;
static atomic_llong forks;
static struct storm_thread storm_threads[THREADS_MAX];
/* Touched before the storm: its own page must not appear between a reading and what is read. */
static char rollup[ROLLUP_BYTES];

static void hop(struct storm_thread *self)
{
	uint64_t wanted = workload_random(&self->random, (uint64_t)CPU_COUNT(&allowed));
	cpu_set_t one;

	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) != 0)
			workload_fail("sched_setaffinity");
		return;
	}
}

static void drop_mapping(struct storm_thread *self, struct mapping *slot)
{
	if (!slot->memory)
		return;
	if (munmap(slot->memory, slot->pages * workload_page_bytes()) != 0)
		workload_fail("munmap");
	self->pages -= slot->pages;
	*slot = (struct mapping){ 0 };
}

static void make_mapping(struct storm_thread *self, struct mapping *slot)
{
	/* Now and then large enough for a huge page. */
	uint64_t bound = workload_random(&self->random, 16) == 0 ? 1024 : 48;
	size_t pages = 1 + (size_t)workload_random(&self->random, bound);

	drop_mapping(self, slot);
	if (self->pages + pages > thread_pages_max)
		return;
	slot->memory = workload_map(pages * workload_page_bytes());
	slot->pages = pages;
	self->pages += pages;
}

static void touch_part(struct storm_thread *self, const struct mapping *slot)
{
	size_t page_bytes = workload_page_bytes();

	if (!slot->memory)
		return;
	size_t first = (size_t)workload_random(&self->random, slot->pages);
	size_t count = 1 + (size_t)workload_random(&self->random, slot->pages - first);
	workload_touch(slot->memory + first * page_bytes, count * page_bytes);
}

static void resize(struct storm_thread *self, struct mapping *slot)
{
	size_t page_bytes = workload_page_bytes();

	if (!slot->memory)
		return;
	size_t pages = 1 + (size_t)workload_random(&self->random, slot->pages * 2);
	if (self->pages - slot->pages + pages > thread_pages_max)
		return;
	void *moved = mremap(slot->memory, slot->pages * page_bytes, pages * page_bytes, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		workload_fail("mremap");
	self->pages = self->pages - slot->pages + pages;
	slot->memory = moved;
	slot->pages = pages;
}

static void forget_part(struct storm_thread *self, const struct mapping *slot)
{
	if (!slot->memory)
		return;
	size_t count = 1 + (size_t)workload_random(&self->random, slot->pages);
	if (madvise(slot->memory, count * workload_page_bytes(), MADV_DONTNEED) != 0)
		workload_fail("madvise");
}

/* Only calls that are safe after a fork in a program with threads, and only this thread's own mappings. */
static _Noreturn void child_main(struct storm_thread *parent, int ready, int release)
{
	size_t page_bytes = workload_page_bytes();
	char byte = 0;

	workload_die_with_parent();
	for (size_t i = 0; i < CHILD_PAGES_MAX; i++) {
		const struct mapping *slot = &parent->slots[workload_random(&parent->random, SLOTS)];
		if (slot->memory)
			workload_touch(slot->memory + workload_random(&parent->random, slot->pages) * page_bytes, 1);
	}
	unsigned char *own = workload_try_map(CHILD_PAGES_MAX * page_bytes);
	if (own)
		workload_touch(own, CHILD_PAGES_MAX * page_bytes);
	if (write(ready, "r", 1) != 1)
		_exit(1);
	while (read(release, &byte, 1) < 0 && errno == EINTR)
		continue;
	_exit(0);
}

static void have_child(struct storm_thread *self)
{
	int ready[2], release[2];
	char byte;

	pthread_mutex_lock(&children_lock);
	if (children_alive >= children_max) {
		/* The oldest goes while the storm blows, so that exits are among the events. */
		close(children[0].release);
		if (waitpid(children[0].pid, NULL, 0) < 0)
			workload_fail("waitpid");
		children_alive--;
		memmove(&children[0], &children[1], (size_t)children_alive * sizeof(children[0]));
	}
	if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(release, O_CLOEXEC) != 0)
		workload_fail("pipe");
	pid_t pid = fork();
	if (pid < 0)
		workload_fail("fork");
	if (pid == 0) {
		close(release[1]);
		for (long i = 0; i < children_alive; i++)
			close(children[i].release);
		child_main(self, ready[1], release[0]);
	}
	close(ready[1]);
	close(release[0]);
	/* A child that was killed says nothing and is waited for like the others. */
	while (read(ready[0], &byte, 1) < 0 && errno == EINTR)
		continue;
	close(ready[0]);
	children[children_alive++] = (struct storm_child){ .pid = pid, .release = release[1] };
	atomic_fetch_add(&forks, 1);
	pthread_mutex_unlock(&children_lock);
}

static void one_event(struct storm_thread *self)
{
	struct mapping *slot = &self->slots[workload_random(&self->random, SLOTS)];
	uint64_t kind = workload_random(&self->random, 1000);

	if (kind < 300)
		make_mapping(self, slot);
	else if (kind < 650)
		touch_part(self, slot);
	else if (kind < 750)
		resize(self, slot);
	else if (kind < 850)
		drop_mapping(self, slot);
	else if (kind < 950)
		forget_part(self, slot);
	else if (kind < 998 || children_max == 0)
		hop(self);
	else
		have_child(self);
}

static long long share_of(long number, long stop)
{
	long long parts = (long long)threads_max * stops;
	long long part = (long long)stop * threads_max + number;
	return events_max * (part + 1) / parts - events_max * part / parts;
}

static void meet(void)
{
	int result = pthread_barrier_wait(&barrier);

	if (result != 0 && result != PTHREAD_BARRIER_SERIAL_THREAD) {
		errno = result;
		workload_fail("pthread_barrier_wait");
	}
}

static void *blow(void *argument)
{
	struct storm_thread *self = argument;

	for (long stop = 0; stop < stops; stop++) {
		for (long long left = share_of(self->number, stop); left > 0; left--)
			one_event(self);
		/* Still from here on: the main thread tells, then lets all go on together. */
		meet();
		meet();
	}
	return NULL;
}

static long kibibytes(const char *name)
{
	const char *line = strstr(rollup, name);
	return line ? strtol(line + strlen(name), NULL, 10) : -1;
}

static void tell(long stop, pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		workload_fail(path);
	ssize_t got = read(file, rollup, sizeof(rollup) - 1);
	close(file);
	if (got < 0)
		workload_fail(path);
	rollup[got] = '\0';
	printf("stop %ld pid=%d anonymous_kib=%ld swap_kib=%ld\n", stop, (int)pid, kibibytes("\nAnonymous:"),
	       kibibytes("\nSwap:"));
}

static void stand_still(long stop)
{
	tell(stop, getpid());
	for (long i = 0; i < children_alive; i++)
		tell(stop, children[i].pid);
	workload_stage("stopped %ld events=%lld", stop, (long long)events_max * (stop + 1) / stops);
	for (; children_alive > 0; children_alive--) {
		close(children[children_alive - 1].release);
		if (waitpid(children[children_alive - 1].pid, NULL, 0) < 0)
			workload_fail("waitpid");
	}
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "events", "changes in all, by all threads (100000)", 1, 100000000, &events_max },
		{ "threads", "threads (4)", 1, THREADS_MAX, &threads_max },
		{ "children", "most children at once; 0 is no forks (4)", 0, CHILDREN_MAX, &children_max },
		{ "stops", "how often everything stands still (1)", 1, STOPS_MAX, &stops },
		{ "seed", "which events (1)", 0, 1L << 30, &seed },
		{ "mebibytes", "most memory of all threads (64)", 1, MEBIBYTES_MAX / 4, &mebibytes },
	};

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		workload_fail("sched_getaffinity");
	thread_pages_max = (size_t)mebibytes * MEBIBYTE / workload_page_bytes() / (size_t)threads_max;
	if ((errno = pthread_barrier_init(&barrier, NULL, (unsigned int)threads_max + 1)) != 0)
		workload_fail("pthread_barrier_init");
	memset(rollup, 1, sizeof(rollup));
	workload_stage("ready");
	for (long i = 0; i < threads_max; i++) {
		storm_threads[i].number = i;
		storm_threads[i].random = (uint64_t)seed * 1000003u + (uint64_t)i;
		if ((errno = pthread_create(&storm_threads[i].thread, NULL, blow, &storm_threads[i])) != 0)
			workload_fail("pthread_create");
	}
	for (long stop = 0; stop < stops; stop++) {
		meet();
		stand_still(stop);
		meet();
	}
	for (long i = 0; i < threads_max; i++)
		if ((errno = pthread_join(storm_threads[i].thread, NULL)) != 0)
			workload_fail("pthread_join");
	workload_stage("done events=%ld forks=%lld", events_max, (long long)atomic_load(&forks));
	return 0;
}
