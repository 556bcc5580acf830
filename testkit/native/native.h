/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Included before anything else of bpf/ when it is compiled for this machine: atomic operations are places where another CPU
 * may come in between. So are all reads and writes of what is shared, which the compiler tells of: see access() in fake.c.
 */
#ifndef PLIMSOLL_NATIVE_H
#define PLIMSOLL_NATIVE_H

/* Another CPU may run here: fake_hooks.yield. */
void fake_yield(void);

#define NATIVE_ATOMIC(operation) \
	({                       \
		fake_yield();    \
		operation;       \
	})
#define __sync_fetch_and_add(place, value) NATIVE_ATOMIC(__sync_fetch_and_add(place, value))
#define __sync_fetch_and_and(place, value) NATIVE_ATOMIC(__sync_fetch_and_and(place, value))
#define __sync_fetch_and_or(place, value) NATIVE_ATOMIC(__sync_fetch_and_or(place, value))
#define __sync_lock_test_and_set(place, value) NATIVE_ATOMIC(__atomic_exchange_n(place, value, __ATOMIC_SEQ_CST))
#define __sync_val_compare_and_swap(place, old, new) NATIVE_ATOMIC(__sync_val_compare_and_swap(place, old, new))

#endif
