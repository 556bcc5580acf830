/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What lies in a pipe and nowhere else. A buffer of a pipe holds a reference to a page. Where that is one of a large
 * folio, all of the folio stays for it. Pages that somebody has mapped count as theirs, and those of the page cache as
 * a file's, so neither counts here. Of what several buffers hold (tee, one page after the other of one folio) each has
 * its part, so that in all pipes together it counts once.
 */
#ifndef PLIMSOLL_SELECT_PIPE_H
#define PLIMSOLL_SELECT_PIPE_H

/* Parts of a page that are counted. */
#define PAGE_SHARES (1 << 20)

/* What a buffer costs of a walk, in steps from one descriptor to the next. */
#define BUFFER_STEPS 2

/* A member at an address. The address first: what it is taken from is no structure of the kernel's. */
#define READ(from, type, member)                      \
	({                                            \
		__u64 _from = (__u64)(from);          \
		BPF_CORE_READ((type *)_from, member); \
	})

/* The folio of a page: itself, or what it is a tail of. Since Linux 7.1 that may be told by a mask: ones and then noughts. */
static __always_inline __u64 folio_of(__u64 page)
{
	__u64 told, bytes;

	if (bpf_core_field_exists(((struct page___told *)0)->compound_info))
		told = READ(page, struct page___told, compound_info);
	else
		told = READ(page, struct page, compound_head);
	if (!(told & 1))
		return page;
	bytes = -(told & ~1ULL);
	return bytes <= 1u << 30 && !(bytes & (bytes - 1)) ? page & told : told & ~1ULL;
}

/* Of a large folio, whether as a whole or in part. Before 6.3 only the whole is told of. */
static __always_inline __s64 mapped_pages_of(__u64 folio, __s64 pages)
{
	__s64 mapped = 0;

	if (bpf_core_field_exists(((struct folio *)0)->_total_mapcount))
		return READ(folio, struct folio, _total_mapcount.counter) < 0 ? 0 : pages;
	if (bpf_core_field_exists(((struct folio *)0)->_entire_mapcount) &&
	    READ(folio, struct folio, _entire_mapcount.counter) >= 0)
		return pages;
	if (bpf_core_field_exists(((struct folio *)0)->_large_mapcount))
		mapped = READ(folio, struct folio, _large_mapcount.counter) + 1;
	else if (bpf_core_field_exists(((struct folio *)0)->_nr_pages_mapped))
		mapped = READ(folio, struct folio, _nr_pages_mapped.counter) & 0x7fffff;
	return mapped < pages ? mapped : pages;
}

static __always_inline __s64 pages_of_large(__u64 folio)
{
	if (bpf_core_field_exists(((struct folio___618 *)0)->_nr_pages))
		return READ(folio, struct folio___618, _nr_pages);
	return READ(folio, struct folio, _folio_nr_pages);
}

static __always_inline __u64 flags_of_folio(__u64 folio)
{
	if (bpf_core_field_exists(((struct folio___618 *)0)->flags.f))
		return READ(folio, struct folio___618, flags.f);
	return READ(folio, struct folio, flags);
}

/* The part of one who holds a page, in all that nobody has mapped of its folio. */
__noinline __u64 part_of_folio(__u64 page)
{
	const __u64 head = 1ull << bpf_core_enum_value(enum pageflags, PG_head);
	const __u64 swapcache = 1ull << bpf_core_enum_value(enum pageflags, PG_swapcache);
	__u64 folio = folio_of(page), flags = flags_of_folio(folio);
	__u64 mapping = (__u64)READ(folio, struct folio, mapping);
	__s64 holders = READ(folio, struct folio, _refcount.counter), pages = 1, mapped;

	/* Of anonymous memory it is odd, and none where nobody had it mapped, or a file was cut. */
	if (mapping && !(mapping & 1))
		return 0;
	if (flags & head) {
		pages = pages_of_large(folio);
		mapped = mapped_pages_of(folio, pages);
	} else {
		mapped = READ(folio, struct folio, _mapcount.counter) >= 0;
	}
	if (mapping && flags & swapcache)
		holders -= pages;
	holders -= mapped;
	pages -= mapped;
	if (pages <= 0 || holders <= 0)
		return 0;
	return (__u64)pages * PAGE_SHARES / (__u64)holders;
}

static __always_inline bool is_pipe(__u64 inode)
{
	return (READ(inode, struct inode, i_mode) & S_IFMT) == S_IFIFO;
}

/* Whom the kernel counts a pipe for: who made it. */
static __always_inline __u32 user_of_pipe(__u64 pipe)
{
	__u64 user = (__u64)READ(pipe, struct pipe_inode_info, user);

	return READ(user, struct user_struct, uid.val);
}

struct buffers {
	struct plimsoll_open_walk *at;
	__u64 first; /* the kernel's array of them */
	__u64 mask;  /* a ring: so many, less one */
	__u64 end;
};

static long next_buffer(__u32 index, struct buffers *walk)
{
	struct plimsoll_open_walk *at = walk->at;
	__u64 place = walk->first + (at->buffer & walk->mask) * bpf_core_type_size(struct pipe_buffer);

	if (at->buffer == walk->end || at->steps >= TABLE_STEPS_MAX)
		return 1;
	at->shares += part_of_folio((__u64)READ(place, struct pipe_buffer, page));
	at->buffer++;
	at->steps += BUFFER_STEPS;
	return 0;
}

/* The pages of a pipe, into at->shares; false: not all were looked at. Somebody may read and write it meanwhile. */
__noinline int add_buffers(struct plimsoll_open_walk *at, __u64 pipe)
{
	struct buffers walk = { .at = at, .first = (__u64)READ(pipe, struct pipe_inode_info, bufs) };
	__u32 tail = READ(pipe, struct pipe_inode_info, tail), head = READ(pipe, struct pipe_inode_info, head);
	__u32 size = READ(pipe, struct pipe_inode_info, ring_size);

	if (!at)
		return false;
	at->shares = 0;
	at->buffer = tail;
	walk.mask = size - 1;
	/* Both are counted on without end, in 32 bits. */
	walk.end = at->buffer + (head - tail <= size ? head - tail : 0);
	if (walk.end != at->buffer)
		bpf_loop(TABLE_STEPS_MAX / BUFFER_STEPS + 1, next_buffer, &walk, 0);
	return at->buffer == walk.end;
}

#endif
