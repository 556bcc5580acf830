/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The files that running processes have mapped to execute: programs and their libraries. */
#ifndef PLIMSOLL_WORKINGSET_EXECUTABLES_H
#define PLIMSOLL_WORKINGSET_EXECUTABLES_H

/* Filled by a walk, emptied by whoever asked for it. A full one says so by its size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PLIMSOLL_EXECUTABLES_MAX);
	__type(key, struct plimsoll_file);
	__type(value, __u32);
} executables SEC(".maps");

struct bpf_iter_task_vma {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_task_vma_new(struct bpf_iter_task_vma *it, struct task_struct *task, __u64 address) __ksym __weak;
extern struct vm_area_struct *bpf_iter_task_vma_next(struct bpf_iter_task_vma *it) __ksym __weak;
extern void bpf_iter_task_vma_destroy(struct bpf_iter_task_vma *it) __ksym __weak;

static __always_inline void note_executable(struct vm_area_struct *vma)
{
	struct plimsoll_file key = {};
	struct inode *inode;
	struct file *file;
	__u32 seen = 1;

	if (!(vma->vm_flags & VM_EXEC))
		return;
	file = vma->vm_file;
	if (!file)
		return;
	inode = LOOSE(inode, file->f_inode);
	if (!inode || !is_file(inode))
		return;
	identify(&key, inode);
	if (!bpf_map_lookup_elem(&executables, &key))
		bpf_map_update_elem(&executables, &key, &seen, BPF_ANY);
}

/* Each process once, at its leader (the walk over areas: Linux 6.7). */
SEC("iter/task")
int walk_executables(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma;

	if (!task || task->pid != task->tgid || task->flags & PF_KTHREAD || !is_in_scope(task))
		return 0;
	bpf_for_each (task_vma, vma, task, 0)
		note_executable(vma);
	return 0;
}

/* Before that, by an iterator that goes through the areas of each thread. */
SEC("iter/task_vma")
int walk_areas(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;

	if (task && vma && task->pid == task->tgid && is_in_scope(task))
		note_executable(vma);
	return 0;
}

#endif
