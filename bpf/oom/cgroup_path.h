/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Where a process runs, by the names of its cgroups: they are gone with the last process of a container. */
#ifndef PLIMSOLL_OOM_CGROUP_PATH_H
#define PLIMSOLL_OOM_CGROUP_PATH_H

/* What is above a node: `parent` until Linux 6.14, `__parent` since. Read-copy-update keeps both. */
static __always_inline __u64 above(__u64 node)
{
	struct kernfs_node___615 *later = (struct kernfs_node___615 *)node;
	struct kernfs_node *earlier = (struct kernfs_node *)node;
	__u64 parent = 0;

	if (bpf_core_field_exists(later->__parent))
		bpf_probe_read_kernel(&parent, sizeof(parent), &later->__parent);
	else
		bpf_probe_read_kernel(&parent, sizeof(parent), &earlier->parent);
	return parent;
}

/* The node of a process's cgroup in the hierarchy of the memory controller (version 1 has one for itself). */
static __always_inline __u64 node_by_memory(struct css_set *set)
{
	__u64 state = 0;
	struct cgroup *cgroup;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	bpf_probe_read_kernel(&state, sizeof(state),
			      &set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)]);
	if (!state)
		return 0;
	cgroup = BPF_CORE_READ((struct cgroup_subsys_state *)state, cgroup);
	return (__u64)BPF_CORE_READ(cgroup, kn);
}

/* Writes the path; whether all of it. */
static __always_inline bool write_cgroup_path(struct plimsoll_marked *out, struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	__u64 node = (__u64)BPF_CORE_READ(set, dfl_cgrp, kn), parent = above(node);
	__u32 length = 0;
	int level;

	if (!parent) {
		node = node_by_memory(set);
		parent = node ? above(node) : 0;
	}
	for (level = 0; level < PLIMSOLL_CGROUP_LEVELS && parent; level++) {
		const char *name = BPF_CORE_READ((struct kernfs_node *)node, name);
		long bytes;

		if (length > PLIMSOLL_CGROUP_PATH_BYTES - PLIMSOLL_CGROUP_NAME_BYTES)
			break;
		bytes = bpf_probe_read_kernel_str(&out->path[length], PLIMSOLL_CGROUP_NAME_BYTES, name);
		if (bytes <= 0)
			break;
		length += bytes;
		node = parent;
		parent = above(node);
	}
	out->path_bytes = length;
	return !parent;
}

#endif
