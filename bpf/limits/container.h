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

/* An id of 64 digits is followed by `.scope`: no service, which may be called docker-registry.service. */
static __always_inline bool is_scope(const char *name, __u32 prefix)
{
	__u64 end = 0;

	bpf_probe_read_kernel(&end, 6, name + prefix + 64);
	return BEGINS(end, ".scope", 6);
}

/* Docker, podman, Kubernetes (all of its pods), containerd, CRI-O, LXC and systemd-machined, with systemd and without. */
static __always_inline bool is_containers_name(__u64 begin, const char *name)
{
	if (BEGINS(begin, "docker-", 7) || BEGINS(begin, "libpod-", 7))
		return is_scope(name, 7);
	if (BEGINS(begin, "crio-", 5))
		return is_scope(name, 5);
	return BEGINS(begin, "docker", 7) || BEGINS(begin, "libpod_p", 8) || BEGINS(begin, "kubepods", 8) ||
	       BEGINS(begin, "cri-cont", 8) || BEGINS(begin, "nerdctl-", 8) || BEGINS(begin, "lxc.payl", 8) ||
	       BEGINS(begin, "machine.", 8);
}

/* The cgroup around one that is so many levels below the root. Read as any kernel memory: see user_of_leader(). */
static __always_inline struct cgroup *cgroup_at(struct cgroup *cgroup, int level)
{
	struct cgroup *ancestor = 0;

	bpf_probe_read_kernel(
		&ancestor, sizeof(ancestor),
		(void *)((__u64)cgroup + bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(ancestor)));
	return ancestor;
}

struct container_search {
	struct cgroup *from;
	__u64 id;
};

static long is_container_at(__u32 step, struct container_search *search)
{
	struct cgroup *from = search->from;
	int level = step + 1; /* below the root */
	struct kernfs_node *node;
	struct kernfs_iattrs *owner;
	const char *text;
	__u64 name[2] = {}; /* eight bytes and an end */

	node = BPF_CORE_READ(cgroup_at(from, level), kn);
	text = BPF_CORE_READ(node, name);
	bpf_probe_read_kernel_str(name, sizeof(name), text);
	if (!is_containers_name(name[0], text))
		return 0;
	owner = BPF_CORE_READ(node, iattr);
	if (owner && BPF_CORE_READ(owner, ia_uid.val))
		return 0;
	search->id = BPF_CORE_READ(node, id);
	return 1;
}

/*
 * By the name of a cgroup (v2) around it that root owns: users name those that they own as they like, and can neither make
 * one that is root's nor enter one. From the root on, so that no depth below hides it. The cgroup's id; 0: in none.
 */
static __always_inline __u64 roots_container(__u64 leader)
{
	struct cgroup *from = BPF_CORE_READ((struct task_struct *)leader, cgroups, dfl_cgrp);
	struct container_search search = { .from = from };
	__u32 levels = BPF_CORE_READ(from, level);

	bpf_loop(levels < CONTAINER_LEVELS ? levels : CONTAINER_LEVELS - 1, is_container_at, &search, 0);
	return search.id;
}

#endif
