/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes that do as they are told, one step at a time: for accounting that has to be right after each step.
 *
 * Lines on standard input are `SLOT VERB [NUMBER...]`; each is carried out by the process or thread in that slot and
 * answered by `SLOT ok pid=P RESULT` (the new process's number, or the last mapping's address), by `SLOT
 * failed WHAT`, or by `SLOT gone` when it is no more. The slots lie in
 * memory that all share, so whoever was forked, cloned or executed is spoken to in the same way. Says `ready` first.
 *
 *   start UID        a fresh process of this uid in SLOT, by fork, change of uid and exec, as a login makes one
 *   hop UID          the same without exec, so that it may change its user again
 *   touch KIB        maps memory and writes to each page      huge KIB     the same, of huge pages
 *   reserve KIB      maps and touches nothing: its address    write        writes to the last mapping again
 *   drop             gives the last mapping's pages back      free         unmaps the last mapping
 *   lazy             lets the kernel take the last mapping's pages when it wants to
 *   allow            lets it be of huge pages from now on
 *   fork SLOT        vfork SLOT (vfork and exec)              spawn SLOT (posix_spawn)
 *   clone SLOT       another process in the same memory       thread SLOT
 *   exec             the same process with a new image        leave        ends this thread alone
 *   setuid UID       the whole process                        rawuid UID   this thread alone
 *   userns, pidns    unshare                                  poke PID ADDRESS KIB   writes to another's memory
 *   deaf             ignores SIGTERM, its children too
 *   exit             ends the process
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	SLOTS = 64,
	MAPPINGS = 64,
	NUMBERS = 3,
	STACK_BYTES = 256 * 1024,
	BOX_FILE = 9
};

struct slot {
	sem_t command;
	sem_t answer;
	pid_t pid;
	char verb[16];
	long long numbers[NUMBERS];
	char result[64];
	int failed;
};

struct mapping {
	unsigned char *memory;
	size_t bytes;
};

static struct slot *slots;
static long own_slot, scripted_seconds = 120;
static struct mapping mappings[MAPPINGS];
static int mapping_count;

static void serve(long slot);

static void answer(struct slot *self, const char *failed_in, long long result)
{
	self->failed = failed_in != NULL;
	if (failed_in)
		snprintf(self->result, sizeof(self->result), "%s: %s", failed_in, strerror(errno));
	else
		snprintf(self->result, sizeof(self->result), "%lld", result);
	sem_post(&self->answer);
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		continue;
}

/* Waits until a new one has said that it is there, so that nothing of its beginning is left to happen. */
static const char *expect_in(long slot, pid_t pid)
{
	if (pid < 0)
		return "new process";
	slots[slot].pid = pid;
	wait_for(&slots[slot].answer);
	return NULL;
}

static struct mapping *last_mapping(void)
{
	static struct mapping none;
	return mapping_count > 0 ? &mappings[mapping_count - 1] : &none;
}

static const char *map_memory(size_t bytes, int advice, int touched)
{
	/* Aligned, so that huge pages fit. */
	size_t huge_bytes = 2 * MEBIBYTE;
	unsigned char *memory = workload_try_map(bytes + huge_bytes);

	if (!memory || mapping_count == MAPPINGS)
		return "mmap";
	memory += huge_bytes - (uintptr_t)memory % huge_bytes;
	if (madvise(memory, bytes, advice) != 0)
		return "madvise";
	if (touched)
		workload_touch(memory, bytes);
	mappings[mapping_count++] = (struct mapping){ memory, bytes };
	return NULL;
}

static char *const *image_of(long slot)
{
	static char number[32], seconds[32];
	static char name[] = "scripted", *arguments[] = { name, number, seconds, NULL };

	snprintf(number, sizeof(number), "--slot=%ld", slot);
	snprintf(seconds, sizeof(seconds), "--seconds=%ld", scripted_seconds);
	return arguments;
}

static const char *spawn_into(long slot)
{
	extern char **environ;
	pid_t pid;

	errno = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, image_of(slot), environ);
	return errno ? "posix_spawn" : expect_in(slot, pid);
}

static const char *vfork_into(long slot)
{
	char *const *image = image_of(slot);
	pid_t pid = vfork();

	if (pid == 0) {
		execv("/proc/self/exe", image);
		_exit(1);
	}
	return expect_in(slot, pid);
}

static const char *fork_into(long slot)
{
	pid_t pid = fork();

	if (pid == 0) {
		alarm((unsigned int)scripted_seconds);
		sem_post(&slots[slot].answer);
		serve(slot);
	}
	return expect_in(slot, pid);
}

static int cloned(void *slot)
{
	sem_post(&slots[(long)slot].answer);
	serve((long)slot);
	return 0;
}

static void *thread_main(void *slot)
{
	cloned(slot);
	return NULL;
}

static const char *clone_into(long slot)
{
	unsigned char *stack = workload_map(STACK_BYTES);

	return expect_in(slot, clone(cloned, stack + STACK_BYTES, CLONE_VM | SIGCHLD, (void *)slot));
}

static const char *thread_into(long slot)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, thread_main, (void *)slot);
	return errno ? "pthread_create" : expect_in(slot, getpid());
}

/* Keeps root in the saved uid, so that it can change again. */
static const char *set_uid(long long uid)
{
	if (setresuid((uid_t)-1, 0, (uid_t)-1) != 0 || setresuid((uid_t)uid, (uid_t)uid, 0) != 0)
		return "setresuid";
	return NULL;
}

static const char *set_uid_of_thread(long long uid)
{
	if (syscall(SYS_setresuid, -1, 0, -1) != 0 || syscall(SYS_setresuid, uid, uid, 0) != 0)
		return "setresuid";
	return NULL;
}

static const char *poke(const long long *numbers)
{
	size_t bytes = (size_t)numbers[2] * 1024, done = 0;
	static char letter[4096];

	memset(letter, 'p', sizeof(letter));
	while (done < bytes) {
		struct iovec from = { letter, sizeof(letter) };
		struct iovec to = { (void *)((uintptr_t)numbers[1] + done), sizeof(letter) };
		ssize_t got = process_vm_writev((pid_t)numbers[0], &from, 1, &to, 1, 0);
		if (got <= 0)
			return "process_vm_writev";
		done += (size_t)got;
	}
	return NULL;
}

static const char *change_memory(const char *verb, size_t bytes)
{
	struct mapping *last = last_mapping();

	if (strcmp(verb, "touch") == 0)
		return map_memory(bytes, MADV_NOHUGEPAGE, 1);
	if (strcmp(verb, "huge") == 0)
		return map_memory(bytes, MADV_HUGEPAGE, 1);
	if (strcmp(verb, "reserve") == 0)
		return map_memory(bytes, MADV_NOHUGEPAGE, 0);
	if (strcmp(verb, "write") == 0)
		workload_touch(last->memory, last->bytes);
	else if (strcmp(verb, "drop") == 0)
		return madvise(last->memory, last->bytes, MADV_DONTNEED) ? "madvise" : NULL;
	else if (strcmp(verb, "lazy") == 0)
		return madvise(last->memory, last->bytes, MADV_FREE) ? "madvise" : NULL;
	else if (strcmp(verb, "allow") == 0)
		return madvise(last->memory, last->bytes, MADV_HUGEPAGE) ? "madvise" : NULL;
	else if (strcmp(verb, "free") == 0 && mapping_count > 0 && munmap(last->memory, last->bytes) == 0)
		mapping_count--;
	else
		return "verb";
	return NULL;
}

/* Whether the verb makes somebody; then it has been done. */
static int multiply(const char *verb, long slot, const char **failed_in)
{
	if (slot < 1 || slot >= SLOTS)
		return 0;
	if (strcmp(verb, "fork") == 0)
		*failed_in = fork_into(slot);
	else if (strcmp(verb, "vfork") == 0)
		*failed_in = vfork_into(slot);
	else if (strcmp(verb, "spawn") == 0)
		*failed_in = spawn_into(slot);
	else if (strcmp(verb, "clone") == 0)
		*failed_in = clone_into(slot);
	else if (strcmp(verb, "thread") == 0)
		*failed_in = thread_into(slot);
	else
		return 0;
	return 1;
}

static const char *carry_out(const char *verb, const long long *numbers)
{
	if (strcmp(verb, "setuid") == 0)
		return set_uid(numbers[0]);
	if (strcmp(verb, "rawuid") == 0)
		return set_uid_of_thread(numbers[0]);
	if (strcmp(verb, "userns") == 0)
		return unshare(CLONE_NEWUSER) ? "unshare" : NULL;
	if (strcmp(verb, "pidns") == 0)
		return unshare(CLONE_NEWPID) ? "unshare" : NULL;
	if (strcmp(verb, "poke") == 0)
		return poke(numbers);
	if (strcmp(verb, "deaf") == 0)
		return signal(SIGTERM, SIG_IGN) == SIG_ERR ? "signal" : NULL;
	return change_memory(verb, (size_t)numbers[0] * 1024);
}

/* What the slot is told, until it ends. Never returns: who serves has no other work. */
static void serve(long slot)
{
	struct slot *self = &slots[slot];

	for (;;) {
		wait_for(&self->command);
		if (strcmp(self->verb, "exit") == 0) {
			sem_post(&self->answer);
			_exit(0);
		}
		if (strcmp(self->verb, "leave") == 0) {
			sem_post(&self->answer);
			/* Not pthread_exit, which would unwind and free: only this thread, and at once. */
			syscall(SYS_exit, 0);
		}
		if (strcmp(self->verb, "exec") == 0) {
			execv("/proc/self/exe", image_of(slot));
			answer(self, "execv", 0);
			continue;
		}
		const char *failed_in = NULL;
		errno = 0;
		if (multiply(self->verb, (long)self->numbers[0], &failed_in)) {
			answer(self, failed_in, slots[self->numbers[0]].pid);
			continue;
		}
		failed_in = carry_out(self->verb, self->numbers);
		answer(self, failed_in, (long long)(uintptr_t)last_mapping()->memory);
	}
}

/* Whether nobody answers any more: ended, waited for or not. */
static int is_gone(pid_t pid)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 1;
	ssize_t got = read(file, text, sizeof(text) - 1);
	close(file);
	if (got <= 0)
		return 1;
	text[got] = '\0';
	/* The state comes next, and 17 fields on how many threads it has: a leader may go before the others. */
	const char *field = strrchr(text, ')');
	int dead = field && (field[2] == 'Z' || field[2] == 'X');
	for (int i = 0; field && i < 18; i++)
		field = strchr(field + 1, ' ');
	return dead && (!field || strtol(field, NULL, 10) <= 1);
}

static int is_answered(struct slot *slot)
{
	for (;;) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 20 * 1000 * 1000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (sem_timedwait(&slot->answer, &until) == 0)
			return 1;
		if (is_gone(slot->pid))
			return 0;
	}
}

static void start_into(long slot, long long uid)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(0, NULL) != 0 || setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) != 0 ||
		    setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) != 0)
			_exit(1);
		execv("/proc/self/exe", image_of(slot));
		_exit(1);
	}
	slots[slot].pid = pid;
}

/* As `start`, but root stays in the saved uid: for those that change their user again. No exec, which would lose it. */
static void hop_into(long slot, long long uid)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setresuid((uid_t)uid, (uid_t)uid, 0) != 0)
			_exit(1);
		alarm((unsigned int)scripted_seconds);
		sem_post(&slots[slot].answer);
		serve(slot);
	}
	slots[slot].pid = pid;
}

static void obey(const char *line)
{
	long number = 0;
	char verb[sizeof(slots->verb)] = "";
	long long numbers[NUMBERS] = { 0 };

	if (sscanf(line, "%ld %15s %lld %lld %lld", &number, verb, &numbers[0], &numbers[1], &numbers[2]) < 2 ||
	    number < 1 || number >= SLOTS) {
		printf("%ld failed line\n", number);
		return;
	}
	struct slot *slot = &slots[number];
	int hops = strcmp(verb, "hop") == 0, starts = hops || strcmp(verb, "start") == 0;
	int ends = strcmp(verb, "exit") == 0;

	snprintf(slot->result, sizeof(slot->result), "0");
	slot->failed = 0;
	memcpy(slot->verb, verb, sizeof(verb));
	memcpy(slot->numbers, numbers, sizeof(numbers));
	if (hops)
		hop_into(number, numbers[0]);
	else if (starts)
		start_into(number, numbers[0]);
	else
		sem_post(&slot->command);
	if (!is_answered(slot)) {
		printf("%ld gone\n", number);
		return;
	}
	while (ends && !is_gone(slot->pid))
		sched_yield();
	if (starts)
		snprintf(slot->result, sizeof(slot->result), "%d", (int)slot->pid);
	printf("%ld %s pid=%d %s\n", number, slot->failed ? "failed" : "ok", (int)slot->pid, slot->result);
}

static void make_box(void)
{
	int box = memfd_create("scripted", 0);

	if (box < 0 || ftruncate(box, (off_t)(SLOTS * sizeof(struct slot))) != 0 || dup2(box, BOX_FILE) < 0)
		workload_fail("memfd_create");
	if (box != BOX_FILE)
		close(box);
}

static void open_box(void)
{
	slots = mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, BOX_FILE, 0);
	if (slots == MAP_FAILED)
		workload_fail("mmap");
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "slot", "this is the process of a slot, started by another (0)", 0, SLOTS - 1, &own_slot },
	};
	char line[256];

	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	/* Children are not waited for. */
	if (signal(SIGCHLD, SIG_IGN) == SIG_ERR)
		workload_fail("signal");
	if (own_slot > 0) {
		/* It outlives the one that started it. */
		if (prctl(PR_SET_PDEATHSIG, 0) != 0)
			workload_fail("prctl");
		open_box();
		sem_post(&slots[own_slot].answer);
		serve(own_slot);
	}
	make_box();
	open_box();
	for (int i = 0; i < SLOTS; i++)
		if (sem_init(&slots[i].command, 1, 0) != 0 || sem_init(&slots[i].answer, 1, 0) != 0)
			workload_fail("sem_init");
	workload_stage("ready");
	while (fgets(line, sizeof(line), stdin)) {
		obey(line);
		if (fflush(stdout) != 0)
			break;
	}
	for (int i = 1; i < SLOTS; i++)
		if (slots[i].pid > 0 && !is_gone(slots[i].pid))
			kill(slots[i].pid, SIGKILL);
	return 0;
}
