/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Kernel structures, as far as kernel.h has them, read where they are. */
#ifndef PLIMSOLL_KNOWN_H
#define PLIMSOLL_KNOWN_H

/* Linux 6.2 */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/*
 * Kernel memory that is only known by its address, as what it is: read by plain loads, which yield 0 where there is none, and
 * not by a call of a helper for each.
 */
#define KNOWN(type, address) ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

/*
 * The same of what the verifier knows and trusts, so that it does so no more: at each load of a pointer from there it goes
 * through the names of all of the kernel's types, half a millisecond (btf_nested_type_is_trusted, 6.4 to 6.18).
 */
#define LOOSE(type, pointer) (bpf_ksym_exists(bpf_rdonly_cast) ? KNOWN(type, pointer) : (pointer))

#endif
