/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libbpf's header of this name, for programs compiled for this machine: maps are variables, helpers are the functions of
 * ../../fake.c.
 */
#ifndef PLIMSOLL_NATIVE_HELPERS_H
#define PLIMSOLL_NATIVE_HELPERS_H

#define SEC(name)
#define __ksym
#define __weak
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define offsetof(type, member) __builtin_offsetof(type, member)
#define barrier() __asm__ volatile("" ::: "memory")
#define barrier_var(var) __asm__ volatile("" : "+r"(var))

/* Which kernel functions this kernel has: see fake_settings. */
#define bpf_ksym_exists(name) (fake_has_##name)
extern int fake_has_bpf_task_from_pid;
extern int fake_has_bpf_send_signal_task;

void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags);
long bpf_map_delete_elem(void *map, const void *key);
void *bpf_map_lookup_percpu_elem(void *map, const void *key, __u32 cpu);
long fake_for_each_map_elem(void *map, long (*callback)(void *, const void *, void *, void *), void *context);
#define bpf_for_each_map_elem(map, callback, context, flags) \
	fake_for_each_map_elem(map, (long (*)(void *, const void *, void *, void *))(callback), context)
long fake_loop(__u32 times, long (*callback)(__u32, void *), void *context);
#define bpf_loop(times, callback, context, flags) fake_loop(times, (long (*)(__u32, void *))(callback), context)

void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, __u64 flags);
long bpf_task_pt_regs(struct task_struct *task);
void *bpf_ringbuf_reserve(void *ring, __u64 size, __u64 flags);
void bpf_ringbuf_submit(void *record, __u64 flags);
__u64 bpf_ringbuf_query(void *ring, __u64 which);
long bpf_seq_write(struct seq_file *seq, const void *data, __u32 bytes);

struct task_struct *bpf_get_current_task_btf(void);
__u32 bpf_get_smp_processor_id(void);
__u64 bpf_ktime_get_ns(void);
long bpf_send_signal(__u32 signal);
long bpf_probe_read_kernel(void *to, __u32 bytes, const void *from);
long bpf_probe_read_kernel_str(void *to, __u32 bytes, const void *from);
long bpf_probe_read_user(void *to, __u32 bytes, const void *from);

#endif
