/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * How much clean file memory there is, at the very moment of reclaim. The kernel's own counts are reached from the memory
 * cgroup of the process in reclaim: their names are in no table that programs may use. A node's counts lag by what CPUs keep
 * to themselves, at most 125 pages each (vm_stat_threshold, mm/vmstat.c); a cgroup's sizes of its lists are exact.
 */
#ifndef PLIMSOLL_WORKINGSET_CLEAN_H
#define PLIMSOLL_WORKINGSET_CLEAN_H

const volatile __u32 nr_nodes = 1; /* set before load */

#define ZONES_MAX 8
#define GENERATIONS_MAX 8
#define CGROUP_DEPTH 32
/* Cgroups below the one that is watched, and steps to and from them. */
#define CGROUP_STEPS (1 << 13)

struct stock {
	__u64 group; /* a mem_cgroup */
	__s64 clean_pages;
	__s64 free_pages;
};

static __always_inline __s64 read_long(__u64 address)
{
	__s64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

/* The memory cgroup of a process, as its cgroup_subsys_state and as itself: 0 where there is none. */
static __always_inline __u64 group_of(struct task_struct *task)
{
	__u64 group = 0;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	bpf_probe_read_kernel(
		&group, sizeof(group),
		&LOOSE(task_struct, task)->cgroups->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)]);
	return group;
}

static __always_inline __u64 inode_of(__u64 group)
{
	struct cgroup *cgroup;

	if (!group)
		return 0;
	cgroup = BPF_CORE_READ((struct cgroup_subsys_state *)group, cgroup);
	return BPF_CORE_READ(cgroup, kn, id);
}

static __always_inline __u64 parent_of(__u64 group)
{
	return read_long(group + bpf_core_field_offset(struct cgroup_subsys_state, parent));
}

/* A way up from a cgroup: to the one of an inode, or to where something is found. */
struct ascent {
	__u64 group; /* 0: there is no more */
	__u64 inode;
	__u64 found;
};

static long find_inode(__u32 level, struct ascent *ascent)
{
	if (ascent->group && inode_of(ascent->group) == ascent->inode)
		ascent->found = ascent->group;
	else if (ascent->group)
		ascent->group = parent_of(ascent->group);
	return ascent->found || !ascent->group;
}

/* The cgroup of this inode, if it is this one or above it. */
__noinline __u64 find_above(__u64 group, __u64 inode)
{
	struct ascent ascent = { .group = group, .inode = inode };

	bpf_loop(CGROUP_DEPTH, find_inode, &ascent, 0);
	return ascent.found;
}

static __always_inline __u64 node_of(__u64 group, __u32 node)
{
	return read_long(group + bpf_core_field_offset(struct mem_cgroup, nodeinfo) + node * sizeof(__u64));
}

static long add_node(__u32 node, struct stock *stock)
{
	const __u64 counts = bpf_core_field_offset(struct pglist_data, vm_stat);
	const __u64 zones = bpf_core_field_offset(struct pglist_data, node_zones);
	__u64 of_group = node_of(stock->group, node), data;
	__u64 zone;

	if (!of_group)
		return 0;
	data = read_long(of_group + bpf_core_field_offset(struct mem_cgroup_per_node, lruvec.pgdat));
	if (!data)
		return 0;
	stock->clean_pages += read_long(data + counts + 8 * bpf_core_enum_value(enum node_stat_item, NR_INACTIVE_FILE));
	stock->clean_pages += read_long(data + counts + 8 * bpf_core_enum_value(enum node_stat_item, NR_ACTIVE_FILE));
	stock->clean_pages -= read_long(data + counts + 8 * bpf_core_enum_value(enum node_stat_item, NR_FILE_DIRTY));
	for (zone = 0; zone < ZONES_MAX && zone < bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES); zone++)
		stock->free_pages += read_long(data + zones + zone * bpf_core_type_size(struct zone) +
					       bpf_core_field_offset(struct zone, vm_stat) +
					       8 * bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES));
	return 0;
}

static __always_inline bool read_machine(struct stock *stock, __u64 group)
{
	stock->group = group;
	bpf_loop(nr_nodes, add_node, stock, 0);
	return stock->clean_pages || stock->free_pages;
}

/*
 * File memory in the generations of the multi-generational LRU, which counts what it has for itself and not in lru_zone_size
 * (lru_gen_update_size(), include/linux/mm_inline.h): a cgroup's page is in one of both.
 */
static __always_inline void add_generations(struct stock *stock, __u64 node)
{
	struct mem_cgroup_per_node___flat *flat = 0;
	struct mem_cgroup_per_node *square = 0;
	const __u64 zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	__s64 files[ZONES_MAX] = {};
	__u64 sizes, bytes, generation, zone;

	if (bpf_core_field_exists(square->lruvec.lrugen.nr_pages)) {
		sizes = node + bpf_core_field_offset(struct mem_cgroup_per_node, lruvec.lrugen.nr_pages);
		bytes = bpf_core_field_size(struct mem_cgroup_per_node, lruvec.lrugen.nr_pages);
	} else if (bpf_core_field_exists(flat->lruvec.lrugen.nr_pages)) {
		sizes = node + bpf_core_field_offset(struct mem_cgroup_per_node___flat, lruvec.lrugen.nr_pages);
		bytes = bpf_core_field_size(struct mem_cgroup_per_node___flat, lruvec.lrugen.nr_pages);
	} else {
		return;
	}
	/* Of each generation all zones of anonymous memory, then all of files. */
	for (generation = 0; generation < GENERATIONS_MAX && (generation + 1) * 2 * zones * 8 <= bytes; generation++) {
		bpf_probe_read_kernel(files, sizeof(files), (void *)(sizes + (2 * generation + 1) * zones * 8));
		for (zone = 0; zone < ZONES_MAX && zone < zones; zone++)
			stock->clean_pages += files[zone];
	}
}

/* Its lists of file memory, in all zones of a node; it is told flat by the types of some kernels. */
static long add_lists(__u32 node, struct stock *stock)
{
	const __u64 lists = bpf_core_enum_value(enum lru_list, NR_LRU_LISTS);
	struct mem_cgroup_per_node *square = 0;
	__u64 sizes = node_of(stock->group, node);
	__u64 zone;

	if (!sizes)
		return 0;
	add_generations(stock, sizes);
	if (bpf_core_field_exists(square->lru_zone_size))
		sizes += bpf_core_field_offset(struct mem_cgroup_per_node, lru_zone_size);
	else
		sizes += bpf_core_field_offset(struct mem_cgroup_per_node___flat, lru_zone_size);
	for (zone = 0; zone < ZONES_MAX && zone < bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES); zone++) {
		__u64 row = sizes + zone * lists * 8;

		stock->clean_pages += read_long(row + 8 * bpf_core_enum_value(enum lru_list, LRU_INACTIVE_FILE));
		stock->clean_pages += read_long(row + 8 * bpf_core_enum_value(enum lru_list, LRU_ACTIVE_FILE));
	}
	return 0;
}

/* A walk over a cgroup and all below it: down to the first child, else on to the next sibling, else up. */
struct descent {
	__u64 top;
	__u64 now;
	__u64 climbing;
	struct stock stock;
};

static long descend(__u32 step, struct descent *walk)
{
	const __u64 children = bpf_core_field_offset(struct cgroup_subsys_state, children);
	const __u64 sibling = bpf_core_field_offset(struct cgroup_subsys_state, sibling);
	__u64 next, parent;

	if (!walk->climbing) {
		walk->stock.group = walk->now;
		bpf_loop(nr_nodes, add_lists, &walk->stock, 0);
		next = read_long(walk->now + children);
		if (next && next != walk->now + children) {
			walk->now = next - sibling;
			return 0;
		}
	}
	if (walk->now == walk->top)
		return 1;
	parent = parent_of(walk->now);
	next = read_long(walk->now + sibling);
	walk->climbing = !next || next == parent + children;
	walk->now = walk->climbing ? parent : next - sibling;
	return !walk->now;
}

static __always_inline bool read_cgroup(struct stock *stock, __u64 group, __s64 dirty_pages)
{
	struct descent walk = { .top = group, .now = group };
	__s64 limit = BPF_CORE_READ((struct mem_cgroup *)group, memory.max);

	bpf_loop(CGROUP_STEPS, descend, &walk, 0);
	stock->clean_pages = walk.stock.clean_pages - dirty_pages;
	stock->free_pages = limit - BPF_CORE_READ((struct mem_cgroup *)group, memory.usage.counter);
	return true;
}

#endif
