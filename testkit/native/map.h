/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Maps of the fake kernel. */
#ifndef PLIMSOLL_FAKE_MAP_H
#define PLIMSOLL_FAKE_MAP_H

enum {
	FAKE_MMS,
	FAKE_FAMILIES,
	FAKE_ACCOUNTS,
	FAKE_TREE,
	FAKE_ACCOUNT_NUMBERS,
	FAKE_JOBS,
	FAKE_PROTECTED_EXES,
	FAKE_PROTECTED_CGROUPS,
	FAKE_BLANK,
	FAKE_CPU_OFFSETS,
	FAKE_ANCHOR,
	FAKE_TAKEN,
	FAKE_TICKED,
	FAKE_RECORDS,
	FAKE_BSS,
	FAKE_MAPS,
};

#define FAKE_BUCKETS 64
#define FAKE_NONE 0xffffffffu

/* An element of a hash map, before its key and its value. */
struct fake_element {
	__u32 next; /* by number, in its bucket or among the free ones */
	__u32 bucket;
	__u64 serial; /* of the address space at the address that is its key: see fake_mm_new() */
};

struct fake_map {
	void *variable; /* the programs' name for it */
	__u32 type;
	__u32 entries;
	__u32 key_bytes;
	__u32 value_bytes;
	__u32 element_bytes;
	__u32 count;
	__u32 free;
	__u32 lock;
	__u32 fail_updates; /* so many more updates find no memory: -ENOMEM */
	__u32 buckets[FAKE_BUCKETS];
	char *memory;
	__u64 memory_bytes;
	/* A ring's: bytes written and given back; and of the reader. */
	__u64 produced;
	__u64 consumed;
};

extern struct fake_map fake_maps[];

void fake_check(_Bool holds, const char *otherwise);
/* Whether a variable of the programs lies there. */
_Bool fake_is_variable(const void *place);
void fake_reset_map(struct fake_map *map);
void fake_reset_programs(const struct fake_settings *settings);

#endif
