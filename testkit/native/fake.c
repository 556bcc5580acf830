/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* See fake.h. */
#include "native.h"
#include "kernel.h"
#include "wire/limits.h"
#include <bpf/bpf_helpers.h>
#include "fake.h"
#include "map.h"

/* What is the kernel's own is no access of a program's. */
#pragma clang attribute push(__attribute__((no_sanitize("thread"))), apply_to = function)

#define ENOMEM 12
#define EFAULT 14
#define RING_HEADER_BYTES 8
#define RING_BUSY (1u << 31)
/* What the programs hash of an address, and more than all address spaces take. */
#define ADDRESSES (1ULL << 32)
#define PROT_NONE 0
#define PROT_READ_WRITE 3
#define MAP_PRIVATE_ANONYMOUS_NORESERVE 0x4022

void *calloc(unsigned long count, unsigned long bytes);
void free(void *memory);
void *mmap(void *at, unsigned long bytes, int protection, int flags, int fd, long offset);
int mprotect(void *at, unsigned long bytes, int protection);
void abort(void);
int dprintf(int fd, const char *format, ...);

void fake_check(bool holds, const char *otherwise)
{
	if (holds)
		return;
	dprintf(2, "fake kernel: %s\n", otherwise);
	abort();
}

/* ---- who runs where ---- */

struct task_place {
	struct task_struct task;
	struct signal_struct signal;
	struct cred cred, acting;
	__u32 cached[4];
	/* Not found by its number any more: it was waited for. */
	__u32 unhashed;
};

struct mm_place {
	struct mm_struct mm;
	struct file exe;
	__u64 serial;
} __attribute__((aligned(1024)));

static struct fake_settings settings;
static struct fake_hooks hooks;
static struct mm_place *places;
static struct task_place tasks[FAKE_TASKS];
static __s32 remainders[FAKE_CPUS_MAX][FAKE_ADDRESS_SPACES][4];
static struct inode exe_inodes[2];
static struct super_block exe_disk;
static struct user_namespace first_namespace;
static struct kernfs_node root_node = { .id = 1 };
static struct cgroup root_cgroup = { .kn = &root_node };
static struct css_set root_set = { .dfl_cgrp = &root_cgroup };
static __thread struct task_place *current_task;
static __thread __u32 current_cpu;
static __thread __u32 yield_after;

int fake_has_bpf_task_from_pid;
int fake_has_bpf_send_signal_task;

void fake_yield(void)
{
	if (yield_after && !--yield_after && hooks.yield)
		hooks.yield();
}

/* The next `after` reads and writes of what is shared go by before hooks.yield is called; 0: it is not. */
void fake_yield_after(__u32 after)
{
	yield_after = after;
}

void fake_enter(__u32 cpu, __u64 task)
{
	current_cpu = cpu;
	current_task = (struct task_place *)task;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return &current_task->task;
}

__u32 bpf_get_smp_processor_id(void)
{
	return current_cpu;
}

__u64 bpf_ktime_get_ns(void)
{
	return hooks.now ? hooks.now() : 0;
}

void fake_load(const struct fake_settings *wanted, const struct fake_hooks *asked)
{
	struct plimsoll_exe protected = { .inode = 2 };
	__u32 whose = PLIMSOLL_EXE_OF_ANYBODY, i;

	settings = *wanted;
	hooks = *asked;
	fake_has_bpf_task_from_pid = settings.has_task_from_pid;
	fake_has_bpf_send_signal_task = settings.has_send_signal_task;
	fake_check(settings.cpus && settings.cpus <= FAKE_CPUS_MAX, "more CPUs than it has places for");
	for (i = 0; i < 2; i++) {
		exe_inodes[i].i_ino = i + 1;
		exe_inodes[i].i_sb = &exe_disk;
	}
	fake_reset_programs(&settings);
	/* See fake_mm_new(). */
	bpf_map_update_elem(fake_maps[FAKE_PROTECTED_EXES].variable, &protected, &whose, BPF_ANY);
}

/* ---- address spaces and tasks ---- */

static struct mm_place *mm_place(__u64 mm)
{
	return (struct mm_place *)mm;
}

/* Where what the programs make of an address is the same in each run. */
static void place_address_spaces(void)
{
	__u64 bytes = FAKE_ADDRESS_SPACES * sizeof(struct mm_place);
	__u64 from = (__u64)mmap(0, 2 * ADDRESSES, PROT_NONE, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0);

	fake_check(from != -1ULL, "no addresses for address spaces");
	places = (struct mm_place *)((from + ADDRESSES - 1) & ~(ADDRESSES - 1));
	fake_check(!mprotect(places, bytes, PROT_READ_WRITE), "no memory for address spaces");
}

__u64 fake_mm(__u32 place)
{
	fake_check(place < FAKE_ADDRESS_SPACES, "no such address space");
	if (!places)
		place_address_spaces();
	return (__u64)&places[place];
}

/* A new address space at a place that nobody has: with no pages, used by nobody. */
void fake_mm_new(__u64 mm, __u64 serial, __u32 is_protected)
{
	struct mm_place *place = mm_place(mm);
	__u32 member, cpu, at = place - places;

	__atomic_store_n(&place->mm.start_stack, 0, __ATOMIC_RELAXED);
	for (member = 0; member < 4; member++) {
		__atomic_store_n(&place->mm.rss_stat[member].count, 0, __ATOMIC_RELAXED);
		place->mm.rss_stat[member].counters = &remainders[0][at][member];
		for (cpu = 0; cpu < settings.cpus; cpu++)
			__atomic_store_n(&remainders[cpu][at][member], 0, __ATOMIC_RELAXED);
	}
	place->exe.f_inode = &exe_inodes[!!is_protected];
	__atomic_store_n(&place->mm.exe_file, &place->exe, __ATOMIC_RELAXED);
	__atomic_store_n(&place->serial, serial, __ATOMIC_RELAXED);
}

/* A program was loaded into it: at the end of exec, and at fork. */
void fake_mm_executed(__u64 mm)
{
	__atomic_store_n(&mm_place(mm)->mm.start_stack, 1, __ATOMIC_RELAXED);
}

void fake_mm_used_by(__u64 mm, __u32 users, __u64 owner)
{
	struct mm_place *place = mm_place(mm);
	struct task_struct *task = owner ? &((struct task_place *)owner)->task : 0;

	__atomic_store_n(&place->mm.mm_users.counter, users, __ATOMIC_RELAXED);
	__atomic_store_n(&place->mm.owner, task, __ATOMIC_RELAXED);
}

/* percpu_counter_add_batch(): what a CPU keeps to itself is folded when there is enough of it, the shared count first. */
void fake_count(__u64 mm, __u32 cpu, __u32 member, __s64 delta)
{
	struct mm_place *place = mm_place(mm);
	struct percpu_counter *counter = &place->mm.rss_stat[member];
	__s32 *own = &remainders[cpu][place - places][member];
	__s64 now = __atomic_load_n(own, __ATOMIC_RELAXED) + delta;

	if (now < (__s64)settings.batch && now > -(__s64)settings.batch) {
		__atomic_store_n(own, (__s32)now, __ATOMIC_RELAXED);
		return;
	}
	__atomic_fetch_add(&counter->count, now, __ATOMIC_RELAXED);
	fake_yield();
	__atomic_store_n(own, 0, __ATOMIC_RELAXED);
}

__u64 fake_task(__u32 place)
{
	fake_check(place < FAKE_TASKS, "no such task");
	return (__u64)&tasks[place];
}

void fake_task_set(__u64 task, const struct fake_task *is)
{
	struct task_place *place = (struct task_place *)task, *leader = &tasks[is->leader];

	place->unhashed = is->unhashed;
	place->cred.user_ns = &first_namespace;
	__atomic_store_n(&place->cred.uid.val, is->uid, __ATOMIC_RELAXED);
	place->task.real_cred = &place->cred;
	/* As if each read a file of an overlay that another user mounted: nobody's account follows from that. */
	place->acting.user_ns = &first_namespace;
	__atomic_store_n(&place->acting.uid.val, is->uid + 1, __ATOMIC_RELAXED);
	place->task.cred = &place->acting;
	place->task.pid = is->pid;
	place->task.tgid = leader->task.pid;
	if (place == leader)
		place->task.tgid = is->pid;
	place->task.group_leader = &leader->task;
	place->task.start_boottime = is->start_ns;
	place->task.signal = &leader->signal;
	place->task.cgroups = &root_set;
	__atomic_store_n(&place->task.flags, is->flags, __ATOMIC_RELAXED);
	__atomic_store_n(&place->task.mm, (struct mm_struct *)is->mm, __ATOMIC_RELAXED);
	leader->signal.nr_threads = is->threads;
	__atomic_store_n(&leader->signal.live.counter, is->threads, __ATOMIC_RELAXED);
	__atomic_store_n(&leader->signal.flags, is->signal_flags, __ATOMIC_RELAXED);
}

struct task_struct *bpf_task_from_pid(__s32 pid)
{
	__u32 i;

	for (i = 0; i < FAKE_TASKS; i++)
		if (tasks[i].task.pid == pid && pid && !tasks[i].unhashed)
			return &tasks[i].task;
	return 0;
}

void bpf_task_release(struct task_struct *task)
{
}

long bpf_send_signal(__u32 signal)
{
	fake_yield();
	return hooks.signal ? hooks.signal((__u64)current_task, signal) : 0;
}

int bpf_send_signal_task(struct task_struct *task, int signal, enum pid_type type, __u64 value)
{
	fake_yield();
	return hooks.signal ? hooks.signal((__u64)task, signal) : 0;
}

/* ---- memory ---- */

static void copy(void *to, const void *from, __u64 bytes)
{
	__u64 *target = to;
	const __u64 *source = from;

	for (; bytes >= 8; bytes -= 8)
		__atomic_store_n(target++, __atomic_load_n(source++, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	for (; bytes; bytes--, target = (void *)((char *)target + 1), source = (void *)((char *)source + 1))
		__atomic_store_n((char *)target, __atomic_load_n((char *)source, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

long bpf_probe_read_kernel(void *to, __u32 bytes, const void *from)
{
	fake_yield();
	/* What lies in the first page is no memory. */
	if ((__u64)from < 4096) {
		__builtin_memset(to, 0, bytes);
		return -EFAULT;
	}
	copy(to, from, bytes);
	return 0;
}

long bpf_probe_read_kernel_str(void *to, __u32 bytes, const void *from)
{
	char *target = to;
	const char *source = from;
	__u32 i;

	for (i = 0; i < bytes; i++) {
		target[i] = source[i];
		if (!source[i])
			return i + 1;
	}
	target[bytes - 1] = 0;
	return bytes;
}

/* Nobody has arguments here: as when their page is swapped out. */
long bpf_probe_read_user(void *to, __u32 bytes, const void *from)
{
	return -EFAULT;
}

void *bpf_rdonly_cast(const void *object, __u32 type)
{
	return (void *)object;
}

/* ---- maps ---- */

static struct fake_map *map_of(void *variable)
{
	return *(struct fake_map **)variable;
}

static bool is_array(const struct fake_map *map)
{
	return map->type == BPF_MAP_TYPE_ARRAY || map->type == BPF_MAP_TYPE_PERCPU_ARRAY;
}

static void lock(struct fake_map *map)
{
	while (__atomic_exchange_n(&map->lock, 1, __ATOMIC_ACQUIRE))
		;
}

static void unlock(struct fake_map *map)
{
	__atomic_store_n(&map->lock, 0, __ATOMIC_RELEASE);
}

static struct fake_element *element_at(struct fake_map *map, __u32 number)
{
	return (struct fake_element *)(map->memory + (__u64)number * map->element_bytes);
}

static char *key_of(struct fake_element *element)
{
	return (char *)(element + 1);
}

static char *value_of(struct fake_map *map, struct fake_element *element)
{
	return key_of(element) + (map->key_bytes + 7) / 8 * 8;
}

void fake_reset_map(struct fake_map *map)
{
	__u64 bytes;
	__u32 i;

	map->element_bytes = map->value_bytes;
	if (!is_array(map))
		map->element_bytes += sizeof(struct fake_element) + (map->key_bytes + 7) / 8 * 8;
	bytes = map->type == BPF_MAP_TYPE_RINGBUF ? map->entries : (__u64)map->entries * map->element_bytes;
	if (bytes != map->memory_bytes) {
		free(map->memory);
		map->memory = calloc(1, bytes);
		map->memory_bytes = bytes;
	} else {
		__builtin_memset(map->memory, 0, bytes);
	}
	map->count = map->lock = map->fail_updates = 0;
	map->produced = map->consumed = 0;
	map->free = FAKE_NONE;
	for (i = 0; i < FAKE_BUCKETS; i++)
		map->buckets[i] = FAKE_NONE;
	for (i = map->entries; map->type == BPF_MAP_TYPE_HASH && i--;) {
		element_at(map, i)->next = map->free;
		map->free = i;
	}
	*(struct fake_map **)map->variable = map;
}

/* By the first word of a key: where an address begins differs from run to run. */
static __u32 bucket_of(const void *key)
{
	__u32 hash = *(const __u32 *)key * 0x9e3779b1u;

	return (hash ^ hash >> 16) % FAKE_BUCKETS;
}

/* With the lock held. */
static __u32 *find(struct fake_map *map, const void *key)
{
	__u32 *link = &map->buckets[bucket_of(key)];

	while (*link != FAKE_NONE && __builtin_memcmp(key_of(element_at(map, *link)), key, map->key_bytes))
		link = &element_at(map, *link)->next;
	return link;
}

static void *lookup(struct fake_map *map, const void *key)
{
	void *value = 0;
	__u32 *link;

	/* One value for each CPU. */
	if (map->type == BPF_MAP_TYPE_PERCPU_ARRAY)
		return map->memory + (__u64)current_cpu * map->value_bytes;
	if (is_array(map))
		return *(__u32 *)key < map->entries ? map->memory + (__u64) * (__u32 *)key * map->value_bytes : 0;
	lock(map);
	link = find(map, key);
	if (*link != FAKE_NONE)
		value = value_of(map, element_at(map, *link));
	unlock(map);
	return value;
}

void *bpf_map_lookup_elem(void *variable, const void *key)
{
	fake_yield();
	return lookup(map_of(variable), key);
}

void *bpf_map_lookup_percpu_elem(void *variable, const void *key, __u32 cpu)
{
	return cpu < settings.cpus ? (char *)map_of(variable) + cpu * sizeof(remainders[0]) : 0;
}

static __u32 take_free(struct fake_map *map)
{
	__u32 number;

	lock(map);
	number = map->free;
	if (number != FAKE_NONE) {
		map->free = element_at(map, number)->next;
		map->count++;
	}
	unlock(map);
	return number;
}

/* With the lock held. */
static void give_free(struct fake_map *map, __u32 number)
{
	element_at(map, number)->next = map->free;
	map->free = number;
	map->count--;
}

static long update(struct fake_map *map, const void *key, const void *value, __u64 flags)
{
	struct fake_element *element;
	__u32 number, old, *link;
	bool known;

	if (is_array(map)) {
		copy(map->memory + (__u64) * (__u32 *)key * map->value_bytes, value, map->value_bytes);
		return 0;
	}
	lock(map);
	known = *find(map, key) != FAKE_NONE;
	unlock(map);
	if (known && flags == BPF_NOEXIST)
		return -EEXIST;
	if (map->fail_updates) {
		map->fail_updates--;
		return -ENOMEM;
	}
	number = take_free(map);
	if (number == FAKE_NONE)
		return -E2BIG;
	element = element_at(map, number);
	__builtin_memcpy(key_of(element), key, map->key_bytes);
	if (map == &fake_maps[FAKE_MMS])
		element->serial = mm_place(*(__u64 *)key)->serial;
	copy(value_of(map, element), value, map->value_bytes);
	lock(map);
	link = find(map, key);
	old = *link;
	if (old != FAKE_NONE && flags == BPF_NOEXIST) {
		give_free(map, number);
		unlock(map);
		return -EEXIST;
	}
	element->next = old == FAKE_NONE ? FAKE_NONE : element_at(map, old)->next;
	*link = number;
	if (old != FAKE_NONE)
		give_free(map, old);
	unlock(map);
	return 0;
}

long bpf_map_update_elem(void *variable, const void *key, const void *value, __u64 flags)
{
	fake_yield();
	return update(map_of(variable), key, value, flags);
}

long bpf_map_delete_elem(void *variable, const void *key)
{
	struct fake_map *map = map_of(variable);
	__u32 number, *link;

	fake_yield();
	lock(map);
	link = find(map, key);
	number = *link;
	if (number != FAKE_NONE) {
		*link = element_at(map, number)->next;
		give_free(map, number);
	}
	unlock(map);
	return number == FAKE_NONE ? -ENOENT : 0;
}

/* As the kernel: an element that is deleted meanwhile may be shown, or the rest of its bucket passed over. */
long fake_for_each_map_elem(void *variable, long (*callback)(void *, const void *, void *, void *), void *context)
{
	struct fake_map *map = map_of(variable);
	struct fake_element *element;
	__u32 bucket, number, shown = 0;

	for (number = 0; is_array(map) && number < map->entries; number++) {
		shown++;
		if (callback(variable, &number, map->memory + (__u64)number * map->value_bytes, context))
			return shown;
	}
	for (bucket = 0; !is_array(map) && bucket < FAKE_BUCKETS; bucket++) {
		number = __atomic_load_n(&map->buckets[bucket], __ATOMIC_RELAXED);
		while (number != FAKE_NONE) {
			element = element_at(map, number);
			number = element->next;
			shown++;
			if (callback(variable, key_of(element), value_of(map, element), context))
				return shown;
		}
	}
	return shown;
}

long fake_loop(__u32 times, long (*callback)(__u32, void *), void *context)
{
	__u32 i;

	for (i = 0; i < times; i++)
		if (callback(i, context))
			return i + 1;
	return times;
}

/* Of a thread's job; and where threads keep counts to themselves (Linux 6.1) what is charged of them. */
void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, __u64 flags)
{
	__u64 key = (__u64)task;

	if (map != fake_maps[FAKE_JOBS].variable)
		return ((struct task_place *)task)->cached;
	if (flags & BPF_LOCAL_STORAGE_GET_F_CREATE && bpf_map_update_elem(map, &key, value, BPF_ANY))
		return 0;
	return bpf_map_lookup_elem(map, &key);
}

/* Whoever frees something is in munmap. */
long bpf_task_pt_regs(struct task_struct *task)
{
	static struct pt_regs regs = { .orig_ax = 11, .ax = -ENOSYS };

	return (long)&regs;
}

/* ---- the ring ---- */

__u64 bpf_ringbuf_query(void *variable, __u64 which)
{
	struct fake_map *ring = map_of(variable);

	fake_yield();
	return which == BPF_RB_RING_SIZE ? ring->entries : ring->produced - ring->consumed;
}

static __u32 *header_at(struct fake_map *ring, __u64 position, __u32 bytes)
{
	/* Records are of one size, so that a ring of whole records never splits one. */
	return (__u32 *)(ring->memory + position % (ring->entries / bytes * bytes));
}

void *bpf_ringbuf_reserve(void *variable, __u64 size, __u64 flags)
{
	struct fake_map *ring = map_of(variable);
	__u32 bytes = (size + 7) / 8 * 8 + RING_HEADER_BYTES, *header = 0;

	fake_yield();
	lock(ring);
	if (ring->produced - ring->consumed + bytes <= ring->entries / bytes * bytes) {
		header = header_at(ring, ring->produced, bytes);
		__atomic_store_n(header, RING_BUSY | (__u32)size, __ATOMIC_RELAXED);
		ring->produced += bytes;
	}
	unlock(ring);
	return header ? (char *)header + RING_HEADER_BYTES : 0;
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	__u32 *header = (__u32 *)((char *)record - RING_HEADER_BYTES);

	fake_yield();
	__atomic_store_n(header, *header & ~RING_BUSY, __ATOMIC_RELEASE);
}

/* The record at a reader's place, which moves on to the next one; 0: none is there, or it is still being written. */
__u32 fake_next_record(__u64 *at, void *into, __u32 room)
{
	struct fake_map *ring = &fake_maps[FAKE_RECORDS];
	__u32 bytes = (room + 7) / 8 * 8 + RING_HEADER_BYTES, size, *header;

	if (*at == __atomic_load_n(&ring->produced, __ATOMIC_ACQUIRE))
		return 0;
	header = header_at(ring, *at, bytes);
	size = __atomic_load_n(header, __ATOMIC_ACQUIRE);
	if (size & RING_BUSY || size > room)
		return 0;
	if (into)
		__builtin_memcpy(into, (char *)header + RING_HEADER_BYTES, size);
	*at += bytes;
	return size;
}

/* All before a reader's place are given back. */
void fake_give_back(__u64 at)
{
	__atomic_store_n(&fake_maps[FAKE_RECORDS].consumed, at, __ATOMIC_RELEASE);
}

/* Where whoever reads next begins. */
__u64 fake_given_back(void)
{
	return fake_maps[FAKE_RECORDS].consumed;
}

/* ---- what a walk of all tasks writes, and user space reads ---- */

struct seq_file {
	char *into;
	__u32 room;
	__u32 used;
};

long bpf_seq_write(struct seq_file *seq, const void *data, __u32 bytes)
{
	if (seq->used + bytes > seq->room)
		return -E2BIG;
	__builtin_memcpy(seq->into + seq->used, data, bytes);
	seq->used += bytes;
	return 0;
}

int scan(struct bpf_iter__task *context);

/* Shows one task to the walk; returns how much was written. */
__u32 fake_walk_one(__u64 task, void *into, __u32 room)
{
	struct seq_file seq = { .into = into, .room = room };
	struct bpf_iter_meta meta = { .seq = &seq };
	struct bpf_iter__task context = { .meta = &meta, .task = &((struct task_place *)task)->task };

	scan(&context);
	return seq.used;
}

/* ---- maps as user space reads them; each is the programs' variable of its name ---- */

__u32 fake_map_value_bytes(void *variable)
{
	return map_of(variable)->value_bytes;
}

__u32 fake_map_entries(void *variable)
{
	return map_of(variable)->entries;
}

/* One entry: 0, or -ENOENT. */
int fake_map_read(void *variable, const void *key, void *value)
{
	char *found = lookup(map_of(variable), key);

	if (!found)
		return -ENOENT;
	copy(value, found, map_of(variable)->value_bytes);
	return 0;
}

int fake_map_write(void *variable, const void *key, const void *value)
{
	return update(map_of(variable), key, value, BPF_ANY);
}

int fake_map_delete(void *variable, const void *key)
{
	return bpf_map_delete_elem(variable, key);
}

/* All entries of a hash map, `room` at most; which address spaces they were made for, where asked. Returns how many. */
__u32 fake_map_list(void *variable, void *keys, void *values, __u64 *serials, __u32 room)
{
	struct fake_map *map = map_of(variable);
	struct fake_element *element;
	__u32 bucket, number, count = 0;

	lock(map);
	for (bucket = 0; bucket < FAKE_BUCKETS; bucket++) {
		for (number = map->buckets[bucket]; number != FAKE_NONE && count < room; number = element->next) {
			element = element_at(map, number);
			__builtin_memcpy((char *)keys + (__u64)count * map->key_bytes, key_of(element), map->key_bytes);
			__builtin_memcpy((char *)values + (__u64)count * map->value_bytes, value_of(map, element),
					 map->value_bytes);
			if (serials)
				serials[count] = element->serial;
			count++;
		}
	}
	unlock(map);
	return count;
}

/* So many updates of a map, from now on, find no memory. */
void fake_map_fail_updates(void *variable, __u32 times)
{
	map_of(variable)->fail_updates = times;
}

/* ---- what the compiler makes of each read and write in the programs: see compile.rs ---- */

static bool lies_in(const void *at, const void *memory, __u64 bytes)
{
	return (__u64)at - (__u64)memory < bytes;
}

/* Whether other CPUs' programs may write there. */
static bool is_shared(const void *at)
{
	static const __u32 maps[] = { FAKE_MMS, FAKE_FAMILIES, FAKE_ACCOUNTS, FAKE_ACCOUNT_NUMBERS,
				      FAKE_PROTECTED_EXES };
	struct fake_map *map;
	__u32 i;

	for (i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		map = &fake_maps[maps[i]];
		if (lies_in(at, map->memory, map->memory_bytes))
			return true;
	}
	return fake_is_variable(at);
}

static bool is_in_kernel(const void *at)
{
	return lies_in(at, places, FAKE_ADDRESS_SPACES * sizeof(*places)) || lies_in(at, tasks, sizeof(tasks)) ||
	       lies_in(at, remainders, sizeof(remainders));
}

/* Another CPU may come in between wherever a program touches what it shares; the compiler must leave these as they are. */
static void access(const void *at, bool is_volatile)
{
	bool shared = is_shared(at);

	fake_check(is_volatile || !shared, "a program reads or writes what others write, and it is not volatile");
	if (shared || is_in_kernel(at))
		fake_yield();
}

#define ACCESS(what, size, is_volatile)    \
	void __tsan_##what##size(void *at) \
	{                                  \
		access(at, is_volatile);   \
	}
#define ACCESSES(size)                    \
	ACCESS(read, size, false)         \
	ACCESS(write, size, false)        \
	ACCESS(volatile_read, size, true) \
	ACCESS(volatile_write, size, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_init(void)
{
}

#pragma clang attribute pop
