// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Who is killed by anybody: kill(2), pidfd_send_signal(2), cgroup.kill, the OOM killer, another program of ours. All of them
 * come to __send_signal_locked(), which passes signal/signal_generate once for each process that the signal is delivered to.
 * Nobody passes there whom another signal ended, nor the threads that exec, exit or a core dump end. A second SIGKILL is
 * ignored there, as SIGNAL_GROUP_EXIT is set by then.
 *
 * It runs at each signal, for one comparison, with the victim's siglock held. It is attached only while whoever is killed by
 * others is to be freed from outside.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "known.h"
#include "wire/killed.h"
#include "kill.h"
#include "user.h"
#include "counters.h"
#include "select/describe.h"
#include "select/exact.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* include/trace/events/signal.h */
#define TRACE_SIGNAL_DELIVERED 0

/*
 * So many of one user's are told at once, and then one after the other: whoever kills their own in a storm takes no room of
 * others.
 */
#define AT_ONCE 64
#define APART_NS 10000000ull

/* What 25 users have at once. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} kills SEC(".maps");

/* When all that was told of a user's will have been made good by waiting. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plimsoll_killed_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLIMSOLL_KILLED_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} killed_counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&killed_counts, &which);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

/* Takes one of a user's share. Two CPUs at once may take one for both. */
static __always_inline bool take_share(__u32 user)
{
	__u64 now = bpf_ktime_get_ns(), next = now + APART_NS;
	__u64 *until = bpf_map_lookup_elem(&shares, &user);

	if (!until) {
		bpf_map_update_elem(&shares, &user, &next, BPF_ANY);
		return true;
	}
	if (*until > now)
		next = *until + APART_NS;
	if (next - now > AT_ONCE * APART_NS)
		return false;
	*until = next;
	return true;
}

static __always_inline void tell(const struct plimsoll_task *victim, __u32 user)
{
	struct plimsoll_killed *out = bpf_ringbuf_reserve(&kills, sizeof(*out), 0);

	if (!out) {
		count(PLIMSOLL_KILLED_NO_ROOM);
		return;
	}
	out->victim = *victim;
	out->user = user;
	out->pad = 0;
	bpf_ringbuf_submit(out, 0);
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int sig, void *info, struct task_struct *task, int group, int result)
{
	struct plimsoll_killed_settings *wanted;
	struct plimsoll_task victim = {};
	struct task_struct *leader;
	struct sum sum = { .out = &victim };
	struct walk walk = {};
	struct mm_struct *mm;
	__u32 zero = 0, user;

	if (sig != SIGKILL || result != TRACE_SIGNAL_DELIVERED)
		return 0;
	wanted = bpf_map_lookup_elem(&settings, &zero);
	if (!wanted || (__u32)bpf_get_current_task_btf()->tgid == wanted->daemon)
		return 0;
	leader = task->group_leader;
	walk_threads(&walk, leader);
	mm = (struct mm_struct *)walk.mm;
	/* What it has touched is no more than what it has mapped. */
	if (!mm || READ_MM(mm, total_vm) < wanted->from_pages)
		return 0;
	describe(&victim, leader, (struct task_struct *)walk.thread, mm);
	if (task_caches) {
		/* What its threads keep to themselves is little, and they may be thousands. */
		read_counts(victim.pages, mm);
	} else {
		sum.leader = leader;
		sum.mm = walk.mm;
		bpf_loop(SUM_TRIES, sum_once, &sum, 0);
	}
	if (victim.pages[PLIMSOLL_MEMBER_ANON] + victim.pages[PLIMSOLL_MEMBER_SWAP] < (__s64)wanted->from_pages)
		return 0;
	user = user_of_cred(BPF_CORE_READ(leader, real_cred));
	if (take_share(user))
		tell(&victim, user);
	else
		count(PLIMSOLL_KILLED_OVER_SHARE);
	return 0;
}
