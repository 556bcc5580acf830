// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Processes of one program that fill a line by tmalloc: once all are there, with what they malloc, each takes pieces until
// it is told no, and goes on asking for a while, in which it writes to what it inherited, a page at a time. Says how many
// were killed, and how many failed.
//
//   crowd HOW PROCESSES PIECE SECONDS INHERITED PLAIN
//
// HOW: fork, threads (each process has four, which take the pieces), exec (vfork, then this program once more), prefork
// (what is inherited is granted, not plain). Bytes: PIECE, INHERITED (by each child), PLAIN (by malloc, in each child).

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <tmalloc.h>
#include <unistd.h>

enum {
	THREADS = 4,
	PROCESSES_MAX = 256
};

static size_t piece, inherited, plain;
static double seconds;
static char *pages;

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void *take(void *unused)
{
	double end = 0;
	size_t written = 0;

	(void)unused;
	while (!end || now() < end) {
		char *got = tmalloc(piece);

		if (got) {
			memset(got, 1, piece);
			continue;
		}
		if (!end)
			end = now() + seconds;
		if (written < inherited) {
			pages[written] = 2;
			written += 4096;
		}
		usleep(10000);
	}
	return NULL;
}

/* One process of the crowd. It says when it is there, and begins when the other end of `gate` is closed. */
static void be_one(const char *how, int gate)
{
	pthread_t others[THREADS];
	char *own = plain ? malloc(plain) : NULL, none;
	int i, count = strcmp(how, "threads") ? 0 : THREADS - 1;

	alarm(100);
	if (own)
		memset(own, 1, plain);
	if (write(gate, "", 1) != 1 || read(gate, &none, 1))
		_exit(2);
	for (i = 0; i < count; i++)
		if (pthread_create(&others[i], NULL, take, NULL))
			_exit(2);
	take(NULL);
	for (i = 0; i < count; i++)
		pthread_join(others[i], NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	int processes, killed = 0, failed = 0, status, i, ends[2];
	char none;

	if (argc < 7)
		return 2;
	processes = atoi(argv[2]);
	piece = strtoul(argv[3], NULL, 10);
	seconds = atof(argv[4]);
	inherited = strtoul(argv[5], NULL, 10);
	plain = strtoul(argv[6], NULL, 10);
	if (argc > 7) {
		inherited = 0;
		be_one(how, atoi(argv[7]));
	}
	alarm(100);
	/* No program that is started here holds the gate open. */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || fcntl(ends[1], F_SETFD, FD_CLOEXEC) ||
	    processes > PROCESSES_MAX)
		return 2;
	if (!strcmp(how, "prefork"))
		pages = tmalloc(inherited);
	else if (inherited)
		pages = mmap(NULL, inherited, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (inherited) {
		if (!pages || pages == MAP_FAILED)
			return 3;
		madvise(pages, inherited, MADV_NOHUGEPAGE);
		memset(pages, 1, inherited);
	}
	for (i = 0; i < processes; i++) {
		pid_t pid;
		char number[16];

		if (!strcmp(how, "exec")) {
			snprintf(number, sizeof(number), "%d", ends[0]);
			pid = vfork();
			if (!pid) {
				execl(argv[0], argv[0], how, argv[2], argv[3], argv[4], argv[5], argv[6], number, NULL);
				_exit(2);
			}
		} else {
			pid = fork();
			if (!pid) {
				close(ends[1]);
				be_one(how, ends[0]);
			}
		}
		if (pid < 0)
			return 4;
	}
	for (i = 0; i < processes; i++)
		if (read(ends[1], &none, 1) != 1)
			return 6;
	close(ends[1]);
	for (i = 0; i < processes; i++) {
		if (wait(&status) < 0)
			return 5;
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		failed += WIFEXITED(status) && WEXITSTATUS(status);
	}
	printf("%d killed, %d failed\n", killed, failed);
	return 0;
}
