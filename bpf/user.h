/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#ifndef PLIMSOLL_USER_H
#define PLIMSOLL_USER_H

/*
 * Whom credentials count for: their uid; with a subordinate uid in a user namespace, who made the outermost namespace, unless
 * that is root. Root stays root, wherever it went. Namespaces nest 32 deep (create_user_ns).
 */
static __always_inline __u32 user_of_cred(const struct cred *cred)
{
	struct user_namespace *ns = BPF_CORE_READ(cred, user_ns);
	__u32 uid = BPF_CORE_READ(cred, uid.val), owner;
	int i;

	if (!uid || !BPF_CORE_READ(ns, level))
		return uid;
	for (i = 0; i < 33 && BPF_CORE_READ(ns, level) > 1; i++)
		ns = BPF_CORE_READ(ns, parent);
	owner = BPF_CORE_READ(ns, owner.val);
	return owner ? owner : uid;
}

#endif
