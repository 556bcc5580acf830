/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libbpf's header of this name, for programs compiled for this machine: types are as bpf/kernel.h has them. */
#ifndef PLIMSOLL_NATIVE_CORE_READ_H
#define PLIMSOLL_NATIVE_CORE_READ_H

#define bpf_core_field_exists(field) (1)
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)
#define bpf_core_type_id_kernel(type) (0)
#define bpf_core_type_size(type) sizeof(type)
#define bpf_core_read(to, bytes, from) bpf_probe_read_kernel(to, bytes, from)

/* A null pointer on the way yields 0, as the kernel's own does; whoever ends meanwhile is read as it was left. */
#define NATIVE_READ(pointer, member)                                                        \
	({                                                                                  \
		typeof((pointer)) native_from = (pointer);                                  \
		native_from ? *(volatile typeof(native_from->member) *)&native_from->member \
			    : (typeof(native_from->member))0;                               \
	})
#define NATIVE_READ_1(a, b) NATIVE_READ(a, b)
#define NATIVE_READ_2(a, b, c) NATIVE_READ(NATIVE_READ(a, b), c)
#define NATIVE_READ_3(a, b, c, d) NATIVE_READ(NATIVE_READ_2(a, b, c), d)
#define NATIVE_READ_4(a, b, c, d, e) NATIVE_READ(NATIVE_READ_3(a, b, c, d), e)
#define NATIVE_READ_PICK(_1, _2, _3, _4, name, ...) name
#define BPF_CORE_READ(from, members...) \
	NATIVE_READ_PICK(members, NATIVE_READ_4, NATIVE_READ_3, NATIVE_READ_2, NATIVE_READ_1)(from, members)

#endif
