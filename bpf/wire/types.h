/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Fixed-width names for the headers shared with Rust, spelt as the kernel's uapi spells them. A header of
 * <linux/types.h> included beside this one repeats the same types, which C allows.
 */
#ifndef PLIMSOLL_WIRE_TYPES_H
#define PLIMSOLL_WIRE_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;

/* The uid that no process has, (uid_t)-1. */
#define PLIMSOLL_NO_UID 0xffffffffu

#endif
