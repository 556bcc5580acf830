/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Children that write to all that they inherited, at once. Says `ready` when they are there, and
 * `over peak_kib=N left_kib=N dead=N` when each has written or is dead: the most memory that they held at once, those that
 * were ending among them, and what they hold then. Of what they inherited each page counts once, while somebody shares it.
 */
#include "workload.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHILDREN_MAX = 8192
};

/* How a child writes to a page. */
enum {
	BY_ITSELF,
	BY_KERNEL,
	BY_POPULATING,
	BY_SIBLING,
	/* Each copy among pages of its own that come and go. */
	AMONG_OTHERS,
	/* While another thread has pages come and go. */
	BESIDE_A_THREAD,
	/* No copy, but a new page for one that it shares and gives up: as many as before. */
	BY_EXCHANGE,
	/* As many at once, and a thread of their own gives them up. */
	BY_EXCHANGE_OF_MANY,
	/* And for each that it gives up it frees one of another program's, which comes by a pipe. */
	BY_EXCHANGE_AND_READING,
	/* Likewise many, which come by a socket whose last user is a mapping: they go as munmap(2) returns. */
	BY_EXCHANGE_AND_CLOSING,
	/* By another program. */
	BY_OUTSIDER
};

/* How many BY_EXCHANGE_OF_MANY gives up at once. */
#define MANY_BYTES ((size_t)4 * MEBIBYTE)

/* Of the programs that feed BY_EXCHANGE_AND_READING and BY_EXCHANGE_AND_CLOSING, and of BY_OUTSIDER. */
#define FEED "--feed"
#define SEND "--send"
#define WRITE "--write"

/* What comes by one socket. */
#define SENT_BYTES ((size_t)1 * MEBIBYTE)

/* Shared with who watches, from here on: */
struct shared {
	atomic_int forked;
	pid_t pids[CHILDREN_MAX];
	atomic_ulong pages[CHILDREN_MAX];
};

static long children = 4, mebibytes = 200, user = 60100, by = BY_ITSELF, still = 500;
static struct shared *shared;
static unsigned char *memory, *taken;
static int gate[2];

static void *give_up_many(void *pages)
{
	if (madvise(pages, MANY_BYTES, MADV_DONTNEED) != 0)
		workload_fail("madvise(MADV_DONTNEED)");
	return NULL;
}

/* The other program: pages that are nobody's by the time that they are read. */
static _Noreturn void feed(void)
{
	struct iovec page = { NULL, workload_page_bytes() };

	alarm(120);
	for (;;) {
		page.iov_base = workload_map(page.iov_len);
		workload_touch(page.iov_base, page.iov_len);
		if (vmsplice(STDOUT_FILENO, &page, 1, 0) != (ssize_t)page.iov_len)
			_exit(0);
		munmap(page.iov_base, page.iov_len);
	}
}

/* Another program: leaves pages in a socket that are nobody's by the time that they are freed. */
static _Noreturn void send_all(void)
{
	struct iovec pages = { workload_map(SENT_BYTES), SENT_BYTES };
	size_t left = SENT_BYTES;
	int ends[2];

	alarm(10);
	workload_touch(pages.iov_base, pages.iov_len);
	if (pipe(ends) != 0 || fcntl(ends[1], F_SETPIPE_SZ, (int)SENT_BYTES) < 0)
		workload_fail("pipe");
	while (left) {
		ssize_t moved = vmsplice(ends[1], &pages, 1, SPLICE_F_NONBLOCK);

		pages.iov_base = (char *)pages.iov_base + (moved > 0 ? moved : 0);
		pages.iov_len -= (size_t)(moved > 0 ? moved : 0);
		/* What the receiver has no room for is not sent. */
		moved = splice(ends[0], NULL, STDOUT_FILENO, NULL, SENT_BYTES, SPLICE_F_NONBLOCK);
		if (moved <= 0)
			break;
		left -= (size_t)moved;
	}
	_exit(0);
}

/* Another program: writes to all that its parent inherited, and tells of each page. */
static _Noreturn void write_for(const char *address, const char *pages)
{
	struct iovec here = { "x", 1 }, there = { (void *)strtoul(address, NULL, 16), 1 };
	unsigned long left = strtoul(pages, NULL, 10);
	pid_t parent = getppid();

	alarm(120);
	for (; left; left--) {
		if (process_vm_writev(parent, &here, 1, &there, 1, 0) != 1 || write(STDOUT_FILENO, "x", 1) != 1)
			_exit(1);
		there.iov_base = (char *)there.iov_base + workload_page_bytes();
	}
	_exit(0);
}

/* Starts this program as another, whose output goes to `to`. */
static pid_t other_program(int to, char *const *arguments)
{
	pid_t pid = fork();

	if (pid < 0)
		workload_fail("fork");
	if (pid == 0) {
		dup2(to, STDOUT_FILENO);
		execv("/proc/self/exe", arguments);
		_exit(127);
	}
	return pid;
}

/* Returns a listening socket of this host's, and its address. */
static int listener(struct sockaddr_in *at)
{
	socklen_t length = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)at, length) != 0 || listen(fd, 8) != 0 ||
	    getsockname(fd, (struct sockaddr *)at, &length) != 0)
		workload_fail("socket");
	return fd;
}

static void close_socket(void)
{
	static struct sockaddr_in at;
	static int listening = -1;
	char *send[] = { "copies", SEND, NULL };
	int to = socket(AF_INET, SOCK_STREAM, 0), from;
	void *kept;

	if (listening < 0)
		listening = listener(&at);
	if (to < 0 || connect(to, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    (from = accept(listening, NULL, NULL)) < 0)
		workload_fail("connect");
	waitpid(other_program(to, send), NULL, 0);
	kept = mmap(NULL, workload_page_bytes(), PROT_READ, MAP_SHARED, from, 0);
	if (kept == MAP_FAILED)
		workload_fail("mmap of a socket");
	close(to);
	close(from);
	munmap(kept, workload_page_bytes());
}

static void read_page(void)
{
	static unsigned char page[1 << 16];
	static int fed[2] = { -1, -1 };
	char *feed_it[] = { "copies", FEED, NULL };

	if (fed[0] < 0) {
		if (pipe2(fed, O_CLOEXEC) != 0)
			workload_fail("pipe");
		other_program(fed[1], feed_it);
		close(fed[1]);
	}
	if (read(fed[0], page, workload_page_bytes()) != (ssize_t)workload_page_bytes())
		workload_fail("read");
}

/* A page of its own in the place of one that it shares. */
static void exchange(unsigned char *page)
{
	size_t at = (size_t)(page - memory);
	pthread_t thread;

	if (!taken)
		taken = workload_map((size_t)mebibytes * MEBIBYTE);
	workload_touch(taken + at, workload_page_bytes());
	at += workload_page_bytes();
	if (by != BY_EXCHANGE_OF_MANY)
		madvise(page, workload_page_bytes(), MADV_DONTNEED);
	else if (at % MANY_BYTES == 0 && (pthread_create(&thread, NULL, give_up_many, memory + at - MANY_BYTES) != 0 ||
					  pthread_join(thread, NULL) != 0))
		workload_fail("pthread_create");
}

/* Whose copy it is. */
static int write_to(unsigned char *page, int number)
{
	static int zero[2] = { -1, -1 };
	static unsigned char *other;
	struct iovec here = { "x", 1 }, there = { page, 1 };
	int sibling = (int)((number + 1) % children);

	switch (by) {
	case BY_KERNEL:
		if (zero[0] < 0 && pipe(zero) != 0)
			workload_fail("pipe");
		if (write(zero[1], "x", 1) != 1 || read(zero[0], page, 1) != 1)
			workload_fail("read");
		break;
	case BY_POPULATING:
		if (madvise(page, workload_page_bytes(), MADV_POPULATE_WRITE) != 0)
			workload_fail("madvise(MADV_POPULATE_WRITE)");
		break;
	case BY_SIBLING:
		/* Dead by now, perhaps. */
		return process_vm_writev(shared->pids[sibling], &here, 1, &there, 1, 0) == 1 ? sibling : -1;
	case AMONG_OTHERS:
		if (!other)
			other = workload_map(2 * workload_page_bytes());
		workload_touch(other, workload_page_bytes());
		*(volatile unsigned char *)page = 2;
		madvise(other, workload_page_bytes(), MADV_DONTNEED);
		workload_touch(other + workload_page_bytes(), workload_page_bytes());
		madvise(other + workload_page_bytes(), workload_page_bytes(), MADV_DONTNEED);
		break;
	case BY_EXCHANGE:
	case BY_EXCHANGE_OF_MANY:
		exchange(page);
		break;
	case BY_EXCHANGE_AND_READING:
		exchange(page);
		read_page();
		break;
	case BY_EXCHANGE_AND_CLOSING:
		exchange(page);
		if ((uintptr_t)page % SENT_BYTES == 0)
			close_socket();
		break;
	default:
		*(volatile unsigned char *)page = 2;
	}
	return number;
}

static void *come_and_go(void *pages)
{
	size_t bytes = 256 * workload_page_bytes();

	while (madvise(pages, bytes, MADV_DONTNEED) == 0)
		workload_touch(pages, bytes);
	return NULL;
}

/* Whatever another program writes. */
static _Noreturn void be_written_to(int number)
{
	char address[32], pages[32], told[4096];
	char *write_it[] = { "copies", WRITE, address, pages, NULL };
	int ends[2];
	ssize_t count;

	snprintf(address, sizeof(address), "%lx", (unsigned long)memory);
	snprintf(pages, sizeof(pages), "%lu", (unsigned long)mebibytes * MEBIBYTE / workload_page_bytes());
	if (pipe2(ends, O_CLOEXEC) != 0)
		workload_fail("pipe");
	other_program(ends[1], write_it);
	close(ends[1]);
	while ((count = read(ends[0], told, sizeof(told))) > 0)
		atomic_fetch_add_explicit(&shared->pages[number], (unsigned long)count, memory_order_relaxed);
	for (;;)
		pause();
}

static _Noreturn void write_all(int number)
{
	size_t bytes = (size_t)mebibytes * MEBIBYTE, at;
	pthread_t thread;
	char end;
	int whose;

	if (read(gate[0], &end, 1) != 0)
		_exit(1);
	if (by == BESIDE_A_THREAD &&
	    pthread_create(&thread, NULL, come_and_go, workload_map(256 * workload_page_bytes())) != 0)
		workload_fail("pthread_create");
	if (by == BY_OUTSIDER)
		be_written_to(number);
	for (at = 0; at < bytes; at += workload_page_bytes()) {
		whose = write_to(memory + at, number);
		if (whose >= 0)
			atomic_fetch_add_explicit(&shared->pages[whose], 1, memory_order_relaxed);
	}
	for (;;)
		pause();
}

static _Noreturn void fork_all(void)
{
	int number;

	close(gate[1]);
	workload_become(user);
	memory = workload_map((size_t)mebibytes * MEBIBYTE);
	workload_touch(memory, (size_t)mebibytes * MEBIBYTE);
	for (number = 0; number < children; number++) {
		pid_t pid = fork();

		/* Whoever is left over: nobody waits for these. */
		alarm(120);
		if (pid == 0)
			write_all(number);
		shared->pids[number] = pid;
		atomic_fetch_add(&shared->forked, 1);
	}
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const struct setting settings[] = {
		{ "children", "how many (4)", 1, CHILDREN_MAX, &children },
		{ "mebibytes", "what they inherit (200)", 1, 1024, &mebibytes },
		{ "user", "whose they are (60100)", 60000, 60999, &user },
		{ "by",
		  "by themselves, by read(2), by MADV_POPULATE_WRITE, to a sibling, among other pages, beside a thread "
		  "that has some come and go, by taking others and giving these up, the same with many at once, "
		  "beside pages that come by a pipe or a socket, or by another program (0 to 10)",
		  0, BY_OUTSIDER, &by },
		{ "still", "it is over when so long, in ms, nobody writes or ends (500)", 100, 60000, &still },
	};
	static struct pollfd watched[CHILDREN_MAX + 1];
	const struct rlimit files = { CHILDREN_MAX + 64, CHILDREN_MAX + 64 };
	unsigned long held = 0, peak = 0, all, last = 0, least;
	uint64_t moved_ns;
	int number, dead = 0, last_dead = 0;
	pid_t parent;
	int parent_fd;

	if (argc == 2 && strcmp(argv[1], FEED) == 0)
		feed();
	if (argc == 2 && strcmp(argv[1], SEND) == 0)
		send_all();
	if (argc == 4 && strcmp(argv[1], WRITE) == 0)
		write_for(argv[2], argv[3]);
	workload_start(argc, argv, settings, sizeof(settings) / sizeof(settings[0]));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || pipe(gate) != 0 || setrlimit(RLIMIT_NOFILE, &files) != 0 ||
	    setpriority(PRIO_PROCESS, 0, -20) != 0)
		workload_fail("setting up");
	parent = fork();
	if (parent < 0)
		workload_fail("fork");
	if (parent == 0) {
		setpriority(PRIO_PROCESS, 0, 0);
		fork_all();
	}
	moved_ns = workload_clock_ns();
	while (atomic_load(&shared->forked) < children && workload_clock_ns() - moved_ns < 60000000000u)
		usleep(1000);
	for (number = 0; number < children; number++) {
		watched[number].fd = (int)syscall(SYS_pidfd_open, shared->pids[number], 0);
		watched[number].events = POLLIN;
	}
	parent_fd = (int)syscall(SYS_pidfd_open, parent, 0);
	watched[children] = (struct pollfd){ parent_fd, POLLIN, 0 };
	workload_stage("ready");
	close(gate[1]);
	moved_ns = workload_clock_ns();
	/* Until nobody writes or ends any more; many have to wait for a CPU. */
	while (workload_clock_ns() - moved_ns < ((uint64_t)still * 1000 + (uint64_t)children * 500) * 1000) {
		if (poll(watched, (nfds_t)children + 1, 0) < 0)
			workload_fail("poll");
		held = all = 0;
		dead = 0;
		/* Pages that everybody has copied are shared no more: all copy in one order. */
		least = watched[children].revents ? (unsigned long)mebibytes * MEBIBYTE / workload_page_bytes() : 0;
		for (number = 0; number < children; number++) {
			unsigned long wrote = atomic_load_explicit(&shared->pages[number], memory_order_relaxed);

			all += wrote;
			if (watched[number].fd < 0 || watched[number].revents) {
				dead++;
				continue;
			}
			held += wrote;
			if (wrote < least)
				least = wrote;
		}
		held += (unsigned long)mebibytes * MEBIBYTE / workload_page_bytes() - least;
		if (all != last || dead != last_dead)
			moved_ns = workload_clock_ns();
		last = all;
		last_dead = dead;
		if (held > peak)
			peak = held;
		usleep(500);
	}
	workload_stage("over peak_kib=%lu left_kib=%lu dead=%d", peak * (workload_page_bytes() / 1024),
		       held * (workload_page_bytes() / 1024), dead);
	for (number = 0; number < children; number++)
		if (watched[number].fd >= 0)
			syscall(SYS_pidfd_send_signal, watched[number].fd, 9, NULL, 0);
	syscall(SYS_pidfd_send_signal, parent_fd, 9, NULL, 0);
	return 0;
}
