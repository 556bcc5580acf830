/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "workload.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* The uids kept for tests: nothing of a real user's is touched by mistake. */
enum {
	UID_FIRST = 60000,
	UID_LAST = 60999,
	SECONDS_MAX = 3600
};

static long own_uid = -1;
static long watchdog_seconds = 60;
static long no_thp;
static long wait_at_stages;
static long outlives_parent;

static const struct setting common_settings[] = {
	{ "uid", "take on this uid and gid first (60000 to 60999)", UID_FIRST, UID_LAST, &own_uid },
	{ "seconds", "end by itself after this time (60)", 1, SECONDS_MAX, &watchdog_seconds },
	{ "no-thp", "take no transparent huge pages", 0, 1, &no_thp },
	{ "outlive", "go on when the process that started it has ended", 0, 1, &outlives_parent },
	{ "wait", "at each stage wait for a line on standard input", 0, 1, &wait_at_stages },
};

static const size_t common_count = sizeof(common_settings) / sizeof(common_settings[0]);

_Noreturn void workload_fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static void print_settings(const struct setting *settings, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, "  --%s=%ld..%ld  %s\n", settings[i].name, settings[i].minimum, settings[i].maximum,
			settings[i].help);
}

static const struct setting *find_setting(const struct setting *settings, size_t count, const char *name, size_t length)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(settings[i].name) == length && memcmp(settings[i].name, name, length) == 0)
			return &settings[i];
	return NULL;
}

/* Whether `argument` is a setting of the list with a value in its bounds; takes it if so. */
static int take_setting(const struct setting *settings, size_t count, const char *argument)
{
	if (strncmp(argument, "--", 2) != 0)
		return 0;
	const char *name = argument + 2;
	const char *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);
	const struct setting *setting = find_setting(settings, count, name, length);
	if (!setting)
		return 0;
	char *end = NULL;
	errno = 0;
	long value = equals ? strtol(equals + 1, &end, 10) : 1;
	if (equals && (errno != 0 || end == equals + 1 || *end != '\0'))
		return 0;
	if (value < setting->minimum || value > setting->maximum)
		return 0;
	*setting->value = value;
	return 1;
}

static void end_by_watchdog(int signal_number)
{
	(void)signal_number;
	static const char text[] = "watchdog: the time is over\n";
	ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
	/* Nobody may be listening any more; the end is what counts. */
	(void)written;
	_exit(STATUS_WATCHDOG);
}

void workload_die_with_parent(void)
{
	if (outlives_parent)
		return;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		workload_fail("prctl(PR_SET_PDEATHSIG)");
}

void workload_become(long uid)
{
	gid_t gid = (gid_t)uid;
	if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0)
		workload_fail("setresgid");
	if (setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) != 0)
		workload_fail("setresuid");
	/* A change of uid makes a process undumpable and clears its death signal; a program of that user is neither. */
	if (prctl(PR_SET_DUMPABLE, 1) != 0)
		workload_fail("prctl(PR_SET_DUMPABLE)");
	workload_die_with_parent();
}

void workload_start(int argc, char **argv, const struct setting *settings, size_t count)
{
	pid_t parent = getppid();

	for (int i = 1; i < argc; i++) {
		if (take_setting(settings, count, argv[i]) || take_setting(common_settings, common_count, argv[i]))
			continue;
		fprintf(stderr, "%s: '%s' is no setting, or out of its bounds; there are:\n", argv[0], argv[i]);
		print_settings(settings, count);
		print_settings(common_settings, common_count);
		exit(2);
	}
	struct sigaction action = { .sa_handler = end_by_watchdog };
	if (sigaction(SIGALRM, &action, NULL) != 0)
		workload_fail("sigaction");
	alarm((unsigned int)watchdog_seconds);
	if (no_thp && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
		workload_fail("prctl(PR_SET_THP_DISABLE)");
	if (own_uid >= 0)
		workload_become(own_uid);
	else
		workload_die_with_parent();
	/* The parent may have gone before its death could be heard of. */
	if (getppid() != parent && !outlives_parent)
		_exit(1);
}

void workload_stage(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	if (fflush(stdout) != 0)
		workload_fail("standard output");
	if (!wait_at_stages)
		return;
	char byte = 0;
	while (byte != '\n') {
		ssize_t got = read(STDIN_FILENO, &byte, 1);
		if (got == 0)
			return;
		if (got < 0 && errno != EINTR)
			workload_fail("standard input");
	}
}

unsigned char *workload_try_map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

unsigned char *workload_map(size_t bytes)
{
	unsigned char *memory = workload_try_map(bytes);
	if (!memory)
		workload_fail("mmap");
	return memory;
}

void workload_touch(unsigned char *memory, size_t bytes)
{
	size_t page_bytes = workload_page_bytes();

	for (size_t offset = 0; offset < bytes; offset += page_bytes)
		*(volatile unsigned char *)(memory + offset) = 1;
}

size_t workload_page_bytes(void)
{
	static size_t page_bytes;

	if (page_bytes == 0)
		page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	return page_bytes;
}

uint64_t workload_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void workload_sleep_until(uint64_t clock_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(clock_ns / 1000000000u),
		.tv_nsec = (long)(clock_ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		continue;
}

uint64_t workload_random(uint64_t *state, uint64_t bound)
{
	/* splitmix64. */
	uint64_t mixed = *state += 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
	return (mixed ^ (mixed >> 31)) % bound;
}
