/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The limits programs, compiled for this machine. Their variables are in sections of their own, so that they can be put
 * back to what they were when they were loaded, and none is constant: what a loader sets is set by fake_load().
 */
#include "native.h"
#pragma clang section bss = "programs_bss" data = "programs_data"
#define const
#include "limits.bpf.c"
#undef const
#pragma clang section bss = "" data = ""
#include "fake.h"
#include "map.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
/* Sizes as libbpf's macros say them, in the types of the map's members. */
#define MAP(map) .variable = &(map), .type = LENGTH(*(map).type), .entries = LENGTH(*(map).max_entries)
#define TYPED(map) .key_bytes = sizeof(*(map).key), .value_bytes = sizeof(*(map).value)
#define SIZED(map) .key_bytes = LENGTH(*(map).key_size), .value_bytes = LENGTH(*(map).value_size)

/* The map that a loader makes of the programs' variables: here they are variables. */
void *bss;

struct fake_map fake_maps[] = {
	[FAKE_BSS] = { .variable = &bss, .type = BPF_MAP_TYPE_ARRAY, .entries = 1, .key_bytes = 4, .value_bytes = 8 },
	[FAKE_MMS] = { MAP(mms), SIZED(mms) },
	[FAKE_FAMILIES] = { MAP(families), TYPED(families) },
	[FAKE_ACCOUNTS] = { MAP(accounts), TYPED(accounts) },
	[FAKE_TREE] = { MAP(tree), TYPED(tree) },
	[FAKE_ACCOUNT_NUMBERS] = { MAP(account_numbers), TYPED(account_numbers) },
	/* By the task's address: here that is a hash map as others are. */
	[FAKE_JOBS] = { .variable = &jobs,
			.type = BPF_MAP_TYPE_HASH,
			.entries = FAKE_TASKS,
			.key_bytes = sizeof(__u64),
			.value_bytes = sizeof(*jobs.value) },
	[FAKE_PROTECTED_EXES] = { MAP(protected_exes), TYPED(protected_exes) },
	[FAKE_PROTECTED_CGROUPS] = { MAP(protected_cgroups), TYPED(protected_cgroups) },
	[FAKE_BLANK] = { MAP(blank), SIZED(blank) },
	[FAKE_CPU_OFFSETS] = { MAP(cpu_offsets), TYPED(cpu_offsets) },
	[FAKE_ANCHOR] = { MAP(anchor), TYPED(anchor) },
	[FAKE_TAKEN] = { MAP(last_taken), TYPED(last_taken) },
	[FAKE_TICKED] = { MAP(last_tick), TYPED(last_tick) },
	[FAKE_RECORDS] = { .variable = &records,
			   .type = BPF_MAP_TYPE_RINGBUF,
			   .entries = LENGTH(*records.max_entries) },
};

extern char __start_programs_bss[], __stop_programs_bss[], __start_programs_data[], __stop_programs_data[];

bool fake_is_variable(const void *place)
{
	__u64 at = (__u64)place, bss = (__u64)__start_programs_bss, data = (__u64)__start_programs_data;

	return at - bss < (__u64)__stop_programs_bss - bss || at - data < (__u64)__stop_programs_data - data;
}

/* As it was when it was linked; kept from the first time on. */
static char programs_linked[4096];

void fake_reset_programs(const struct fake_settings *settings)
{
	static bool kept;
	__u32 bytes = __stop_programs_data - __start_programs_data, i;
	struct plimsoll_account *nobody;
	struct plimsoll_mm *blank_mm;
	__u32 pinned = BLANK_PINNED;

	fake_check(bytes <= sizeof(programs_linked), "programs_linked is too small");
	if (!kept)
		__builtin_memcpy(programs_linked, __start_programs_data, bytes);
	kept = true;
	__builtin_memcpy(__start_programs_data, programs_linked, bytes);
	__builtin_memset(__start_programs_bss, 0, __stop_programs_bss - __start_programs_bss);

	charged_members = settings->charged_members;
	nr_slots = __builtin_popcount(charged_members);
	nr_cpus = settings->cpus;
	nr_accounts = settings->accounts;
	loose_pages_per_mm = settings->loose_pages_per_mm;
	allowance_pages = settings->allowance_pages;
	entries_for_most = settings->mms - settings->mms / 8;
	fake_maps[FAKE_MMS].value_bytes = sizeof(struct plimsoll_mm) + (nr_cpus * nr_slots * sizeof(__s32) + 7) / 8 * 8;
	fake_maps[FAKE_BLANK].value_bytes = fake_maps[FAKE_MMS].value_bytes;
	fake_maps[FAKE_MMS].entries = settings->mms;
	fake_maps[FAKE_FAMILIES].entries = settings->families;
	fake_maps[FAKE_ACCOUNTS].entries = settings->accounts;
	fake_maps[FAKE_TREE].entries = settings->accounts * (nr_cpus + tree_branches());
	fake_maps[FAKE_ACCOUNT_NUMBERS].entries = settings->accounts;
	fake_maps[FAKE_CPU_OFFSETS].entries = nr_cpus;
	fake_maps[FAKE_TAKEN].entries = nr_cpus;
	fake_maps[FAKE_TICKED].entries = nr_cpus;
	fake_maps[FAKE_RECORDS].entries = settings->ring_bytes;
	for (i = 0; i < FAKE_MAPS; i++)
		fake_reset_map(&fake_maps[i]);

	/* As the loader does (crates/sys/src/bpf/load.rs). */
	blank_mm = bpf_map_lookup_elem(&blank, &pinned);
	blank_mm->pins = 1;
	nobody = account_at(PLIMSOLL_NOBODY);
	nobody->hard_pages = nobody->soft_pages = nobody->effective_pages = PLIMSOLL_NO_LINE;
	fake_check(!find_cpu_offsets(0), "find_cpu_offsets failed");
}
