/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whether a process is in a container that root's engine made: its uids are the container's, not this machine's. */
#ifndef PLIMSOLL_LIMITS_CONTAINER_H
#define PLIMSOLL_LIMITS_CONTAINER_H

/* How deep below the root a container's cgroup is looked for. Engines put them two to five deep. */
#define CONTAINER_LEVELS 8

/* Whether the first eight bytes of a name begin so; with its end, whether it is the name. */
#define BEGINS(name, with, bytes)                        \
	({                                               \
		__u64 _wanted = 0, _mask = 0;            \
		__builtin_memcpy(&_wanted, with, bytes); \
		__builtin_memset(&_mask, 0xff, bytes);   \
		((name)&_mask) == _wanted;               \
	})

/* Docker, podman, Kubernetes (all of its pods), containerd, CRI-O, LXC and systemd-machined, with systemd and without. */
static __always_inline bool is_containers_name(__u64 name)
{
	return BEGINS(name, "docker-", 7) || BEGINS(name, "docker", 7) || BEGINS(name, "libpod-", 7) ||
	       BEGINS(name, "libpod_p", 8) || BEGINS(name, "kubepods", 8) || BEGINS(name, "cri-cont", 8) ||
	       BEGINS(name, "nerdctl-", 8) || BEGINS(name, "crio-", 5) || BEGINS(name, "lxc.payl", 8) ||
	       BEGINS(name, "machine-", 8);
}

/*
 * By the name of a cgroup (v2) around it that root owns: users name those that they own as they like, and can neither make
 * one that is root's nor enter one. From the root on, so that no depth below hides it.
 */
static __always_inline bool in_roots_container(__u64 leader)
{
	struct cgroup *cgroup = BPF_CORE_READ((struct task_struct *)leader, cgroups, dfl_cgrp);
	__u64 ancestors = (__u64)cgroup + bpf_core_field_offset(struct cgroup, ancestors);
	int deepest = BPF_CORE_READ(cgroup, level), level;

	for (level = 1; level < CONTAINER_LEVELS && level <= deepest; level++) {
		struct kernfs_iattrs *owner;
		struct cgroup *ancestor = 0;
		struct kernfs_node *node;
		__u64 name[2] = {}; /* eight bytes and an end */

		bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)(ancestors + level * sizeof(ancestor)));
		node = BPF_CORE_READ(ancestor, kn);
		bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(node, name));
		if (!is_containers_name(name[0]))
			continue;
		owner = BPF_CORE_READ(node, iattr);
		if (!owner || !BPF_CORE_READ(owner, ia_uid.val))
			return true;
	}
	return false;
}

#endif
