/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* When the machine guard is to look at memory. */
#ifndef PLIMSOLL_WIRE_PRESSURE_H
#define PLIMSOLL_WIRE_PRESSURE_H

#include "types.h"

/* On the clock of bpf_ktime_get_ns. 0: nobody waits for it, or it was told. */
struct plimsoll_looks {
	/* As soon as a CPU works after this. */
	__u64 due_ns;
	/* As soon as pages are taken back after this. */
	__u64 pressed_ns;
};

#endif
