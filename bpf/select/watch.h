/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Who has grown past a floor. Attached only while somebody watches: fork and exec need no hooks of their own, a new
 * address space begins with events like any other.
 */
#ifndef PLIMSOLL_SELECT_WATCH_H
#define PLIMSOLL_SELECT_WATCH_H

#define NO_FLOOR 0x7fffffffffffffffLL

__s64 floor_pages = NO_FLOOR;
__u64 grown_lost;

/* By address space, until user space takes it out. A full map is counted: then another sweep is needed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct plimsoll_grown);
} grown SEC(".maps");

/*
 * Whose memory it is: by the kernel's own note (CONFIG_MEMCG), which is right for a vfork child and for what others do to
 * it; else the current process, if it is its own. NULL at the end of an address space, and while one is being made by fork
 * or exec: what is in it then is seen at its next event.
 */
static __always_inline struct task_struct *process_of(struct mm_struct *mm)
{
	struct task_struct *task = bpf_get_current_task_btf(), *owner;

	if (bpf_core_field_exists(mm->owner)) {
		owner = mm->owner;
		if (owner && owner->mm == mm)
			return owner->group_leader;
	}
	return task->mm == mm ? task->group_leader : 0;
}

static __noinline int note_grown(struct mm_struct *mm)
{
	struct plimsoll_grown now = {}, *known;
	struct task_struct *leader;
	__u64 key = (__u64)mm;

	if (!mm)
		return 0;
	leader = process_of(mm);
	if (!leader)
		return 0;
	now.start_ns = leader->start_boottime;
	now.tgid = leader->tgid;
	known = bpf_map_lookup_elem(&grown, &key);
	/* Else it is of the address space that was here before. */
	if (known && known->start_ns == now.start_ns && known->tgid == now.tgid)
		return 0;
	if (bpf_map_update_elem(&grown, &key, &now, BPF_ANY))
		__sync_fetch_and_add(&grown_lost, 1);
	return 0;
}

SEC("tp_btf/rss_stat")
int BPF_PROG(on_growth, struct mm_struct *mm, int member)
{
	__s64 pages;

	/* File pages are no reason to choose anybody. */
	if (member == PLIMSOLL_MEMBER_FILE)
		return 0;
	pages = read_count(counter_at((__u64)mm, PLIMSOLL_MEMBER_ANON)) +
		read_count(counter_at((__u64)mm, PLIMSOLL_MEMBER_SWAP)) +
		read_count(counter_at((__u64)mm, PLIMSOLL_MEMBER_SHMEM));
	return pages < floor_pages ? 0 : note_grown(mm);
}

SEC("syscall")
int watch_set(struct plimsoll_watch *ctx)
{
	if (ctx->floor_pages >= 0)
		floor_pages = ctx->floor_pages;
	ctx->lost = __sync_lock_test_and_set(&grown_lost, 0);
	return 0;
}

#endif
