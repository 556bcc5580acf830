// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Takes memory in pieces until it is told no, touches all it gets, and ends well.
//
//   cc pieces.c $(pkg-config --cflags --libs tmalloc) -o pieces && ./pieces 1000000000 45056

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tmalloc.h>

/* The pieces, each with a pointer to the one before. */
struct piece {
	struct piece *before;
	char rest[];
};

static void shed(int reached, void *arg)
{
	(void)arg;
	if (reached)
		fprintf(stderr, "near the line: time to drop caches\n");
}

int main(int argc, char **argv)
{
	size_t wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000000;
	size_t size = argc > 2 ? strtoull(argv[2], NULL, 10) : 11 * 4096;
	struct piece *last = NULL;
	size_t pieces = 0;

	if (size < sizeof(*last)) {
		fprintf(stderr, "pieces: a piece has %zu bytes at least\n", sizeof(*last));
		return 2;
	}
	if (tmalloc_on_soft(shed, NULL) != 0)
		perror("tmalloc_on_soft");
	while (pieces * size < wanted) {
		struct piece *piece = tmalloc(size);

		if (!piece) {
			printf("tmalloc: %s after %zu pieces of %zu bytes\n", strerror(errno), pieces, size);
			break;
		}
		memset(piece, 1, size);
		piece->before = last;
		last = piece;
		pieces++;
	}
	while (last) {
		struct piece *before = last->before;

		tfree(last);
		last = before;
	}

	/*
	 * Both or none: no other program ends up with the one while it waits for the other. Each step may be told no, the first
	 * too: others have what there is, which is no reason to fail.
	 */
	tmalloc_transaction *both = tmalloc_begin();
	void *blocks[2];

	if (!both || tmalloc_reserve(both, 100000) < 0 || tmalloc_reserve(both, 300000) < 0) {
		printf("tmalloc_reserve: %s\n", strerror(errno));
		tmalloc_abort(both);
		return 0;
	}
	if (tmalloc_commit(both, blocks) != 0) {
		printf("tmalloc_commit: %s\n", strerror(errno));
		return 0;
	}
	tfree(blocks[0]);
	tfree(blocks[1]);
	return 0;
}
