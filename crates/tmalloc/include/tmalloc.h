/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef TMALLOC_H
#define TMALLOC_H

/*
 * Memory that is granted or refused, never taken back by a kill: see tmalloc(3).
 *
 * Link with -ltmalloc (pkg-config tmalloc). Every function may be called from any thread, none from a signal handler.
 * Sizes are bytes. What one process frees in one thread may have been allocated in another.
 */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TMALLOC_CHECKED __attribute__((__warn_unused_result__))
#else
#define TMALLOC_CHECKED
#endif

/*
 * Frees a block; NULL is none. errno stays. A block that was freed before, or that is not of this library, ends the program
 * where it is noticed.
 */
void tfree(void *p);

/* A block of size bytes, aligned to 16. NULL with errno ENOMEM when it is refused. A size of 0 is a block too. */
void *tmalloc(size_t size) TMALLOC_CHECKED;

/* A block of n * size bytes, all zeros. NULL with ENOMEM when it is refused or the product is no size. */
void *tcalloc(size_t n, size_t size) TMALLOC_CHECKED;

/*
 * Makes p a block of size bytes, which may move; contents stay as far as they fit. NULL with ENOMEM when it is refused: p is as
 * it was then. Of NULL it makes a new block. A size of 0 is a block too: p is not freed.
 */
void *trealloc(void *p, size_t size) TMALLOC_CHECKED;

/*
 * A block aligned to any power of two. NULL with ENOMEM when it is refused, with EINVAL when alignment is no power of
 * two. tfree() takes it; trealloc() keeps its contents but not its alignment.
 */
void *taligned_alloc(size_t alignment, size_t size) TMALLOC_CHECKED;

/* What p holds: at least what was asked for, all of it to be used. 0 for NULL. */
size_t tmalloc_usable_size(const void *p);

/*
 * A block of size bytes as soon as it is granted. Those who wait are served in the order they came. NULL with ENOMEM after
 * timeout_ms, or when nobody answers by then; -1 waits for ever, 0 not at all.
 */
void *tmalloc_wait(size_t size, int timeout_ms) TMALLOC_CHECKED;

/*
 * Bytes that would be granted now, by the coordinator. SIZE_MAX where the user has no line, 0 when nobody answers (SIZE_MAX
 * with TMALLOC_PASS). Somebody else may be quicker.
 */
size_t tmalloc_headroom(void);

/*
 * A descriptor for poll(2): readable once the soft limit was reached, until eight bytes are read from it or usage has
 * fallen again. It belongs to the library: do not close it. -1 with errno when there is none. A forked child asks for
 * one of its own.
 */
int tmalloc_soft_fd(void);

/*
 * Has callback called with 1 when the soft limit is reached and with 0 when usage has fallen below it again, from a thread
 * of the library with every signal blocked. One callback at a time: the last one given; NULL for none. It may allocate and
 * free. A call that has begun may go on after another callback, or none, was given: arg has to outlive it. 0, or -1 with
 * ENOTCONN when nobody answers now: it is called all the same once somebody does.
 */
int tmalloc_on_soft(void (*callback)(int reached, void *arg), void *arg);

/* What happens while no coordinator answers. */
enum {
	/* No memory: ENOMEM. The default. */
	TMALLOC_FAIL = 0,
	/* Memory that nobody was asked for, as from malloc(). */
	TMALLOC_PASS = 1,
};

/* Chooses, before TMALLOC_WITHOUT_DAEMON=pass|fail of the environment. 0, or -1 with EINVAL. */
int tmalloc_without_daemon(int what);

/* Several blocks, all of which are granted or none. Belongs to one thread at a time. */
typedef struct tmalloc_transaction tmalloc_transaction;

/* Begins one. NULL with ENOMEM. */
tmalloc_transaction *tmalloc_begin(void) TMALLOC_CHECKED;

/* Adds a block of size bytes. Nothing is asked for yet. The index of the block, or -1 with ENOMEM. */
int tmalloc_reserve(tmalloc_transaction *t, size_t size);

/*
 * Takes all blocks, into blocks[0] and on, by index: 0. Or none, each blocks[] NULL: -1 with ENOMEM. Ends t either way.
 */
int tmalloc_commit(tmalloc_transaction *t, void **blocks) TMALLOC_CHECKED;

/* Ends t without a block. NULL is none. */
void tmalloc_abort(tmalloc_transaction *t);

#undef TMALLOC_CHECKED

#ifdef __cplusplus
}
#endif

#endif
