/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef PLIMSOLL_USER_H
#define PLIMSOLL_USER_H

/* Namespaces nest so deep (create_user_ns). */
#define NAMESPACES_MOST 33

/* A callback, as are others that go up or down a few steps: the verifier walks it once, and a loop round by round. */
static long to_outermost(__u32 step, struct user_namespace **ns)
{
	if (BPF_CORE_READ(*ns, level) <= 1)
		return 1;
	*ns = BPF_CORE_READ(*ns, parent);
	return 0;
}

/*
 * Whom credentials count for: their uid; with a subordinate uid in a user namespace, who made the outermost namespace, unless
 * that is root. Root stays root, wherever it went.
 */
static __always_inline __u32 user_of_cred(const struct cred *cred)
{
	struct user_namespace *ns = BPF_CORE_READ(cred, user_ns);
	__u32 uid = BPF_CORE_READ(cred, uid.val), owner;

	if (!uid || !BPF_CORE_READ(ns, level))
		return uid;
	bpf_loop(NAMESPACES_MOST, to_outermost, &ns, 0);
	owner = BPF_CORE_READ(ns, owner.val);
	return owner ? owner : uid;
}

#endif
