/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which address spaces are tracked, for whom, and what they share since a fork. */
#ifndef PLIMSOLL_LIMITS_TRACK_H
#define PLIMSOLL_LIMITS_TRACK_H

/* Each try that fails is another CPU's change of a charge on its way to another account; the next event tries again. */
#define FOLLOW_TRIES 3

/* plimsoll_mm.pins: how many, in the low half; in the high half a number that the entry before at the same place had not. */
#define PINS_BITS 16
#define PINS_MASK ((1u << PINS_BITS) - 1)

/*
 * Whose account a process is charged to: that of whom it counts for (user.h); in a container of root's nobody's.
 *
 * Global functions are verified once and not on each path that comes to them. What of the kernel they look at they take by its
 * address, and read as any kernel memory; what is the map's by its key, or as a pointer, which they test, where what the loader
 * made room for behind an entry is not needed.
 */
__noinline __u32 user_of_leader(__u64 leader)
{
	struct task_struct *task = (struct task_struct *)leader;

	return roots_container(leader) ? PLIMSOLL_NO_UID : user_of_cred(BPF_CORE_READ(task, real_cred));
}

/*
 * Who owns an address space: the leader of the process that it was made for, or of the one that the kernel chose of those
 * that still use it (mm_update_next_owner). A child of vfork that becomes another user in its parent's memory moves
 * nothing, nor does a thread that changes its own credentials. What somebody acts with (override_creds: a file of an
 * overlay is read with the credentials of who mounted it) is never looked at.
 */
static __always_inline __u64 owner_of(__u64 key, struct task_struct *user)
{
	struct mm_struct *mm = (struct mm_struct *)key;
	__u64 leader = 0;

	if (bpf_core_field_exists(mm->owner))
		leader = (__u64)BPF_CORE_READ(mm, owner, group_leader);
	/* Without CONFIG_MEMCG nobody knows. */
	if (!leader)
		bpf_core_read(&leader, sizeof(leader), &user->group_leader);
	return leader;
}

static __always_inline __u32 uid_of(__u64 leader)
{
	return BPF_CORE_READ((struct task_struct *)leader, real_cred, uid.val);
}

/* All but who uses it. No line meanwhile: nothing about it is near. */
static __always_inline void clear_account(struct plimsoll_account *a)
{
	a->soft_pages = PLIMSOLL_NO_LINE;
	a->hard_pages = PLIMSOLL_NO_LINE;
	a->effective_pages = PLIMSOLL_NO_LINE;
	a->usage_pages = 0;
	a->dying_pages = 0;
	a->processes = 0;
	a->exact = 0;
	a->near = 0;
	/* What is charged late goes to those above as well: `above` stays until it is somebody else's. */
	__builtin_memset((void *)&a->id, 0,
			 offsetof(struct plimsoll_account, in_use) - offsetof(struct plimsoll_account, id));
	a->user = PLIMSOLL_NO_UID;
}

/* It is nobody's; somebody else's once nobody uses it any more. */
static __always_inline void free_account(struct plimsoll_account *a)
{
	__sync_fetch_and_and(&a->in_use, ~PLIMSOLL_ACCOUNT_OWNED);
}

/* Keeps an account from becoming somebody else's. False: it is nobody's by now. */
static __always_inline bool hold_account(struct plimsoll_account *a)
{
	if (__sync_fetch_and_add(&a->in_use, 1) & PLIMSOLL_ACCOUNT_OWNED)
		return true;
	__sync_fetch_and_add(&a->in_use, -1);
	return false;
}

static __always_inline void let_account_go(struct plimsoll_account *a)
{
	/* Cleared meanwhile, and brought near by who did not know. */
	if (!(a->in_use & PLIMSOLL_ACCOUNT_OWNED))
		leave_exact(a);
	__sync_fetch_and_add(&a->in_use, -1);
}

/* Holds an account while it is what this user's processes are charged to that are in this job; 0: in none. */
static __always_inline bool hold_account_for(struct plimsoll_account *a, __u32 job, __u32 user)
{
	if (!hold_account(a))
		return false;
	if (a->user == user && (a->of == PLIMSOLL_OF_USER || (a->of == PLIMSOLL_OF_JOB && a->id == job)))
		return true;
	let_account_go(a);
	return false;
}

/* Holds an account while it is theirs. */
static __always_inline bool hold_account_of(struct plimsoll_account *a, __u32 of, __u32 id)
{
	if (!hold_account(a))
		return false;
	if (a->of == of && a->id == id)
		return true;
	let_account_go(a);
	return false;
}

/*
 * An account that nobody owns and only the caller holds becomes the caller's to give to somebody. Nobody's until the very end:
 * who found it as another's holds it no more. A grant that was under way when it was cleared left something, perhaps.
 */
static __always_inline void own_account(struct plimsoll_account *a, __u32 index)
{
	clear_account(a);
	a->above = 0;
	a->id = PLIMSOLL_NO_UID;
	a->index = index;
	__sync_fetch_and_add(&a->in_use, PLIMSOLL_ACCOUNT_OWNED - 1);
}

static long claim_if_free(__u32 before, __u32 *claimed)
{
	__u32 index = before + 1; /* account 0 is nobody's */
	struct plimsoll_account *a = account_at(index);

	if (a && (a->in_use || __sync_val_compare_and_swap(&a->in_use, 0, 1)))
		return 0;
	if (a) {
		own_account(a, index);
		*claimed = index;
	}
	return 1;
}

/* Drawn by the default line for somebody who runs nothing, and nothing is charged to it. */
static __always_inline bool is_idle(struct plimsoll_account *a)
{
	return a->from_default && !a->processes && !a->usage_pages && !a->copyable_pages && !a->folded;
}

static long claim_if_idle(__u32 before, __u32 *claimed)
{
	__u32 index = before + 1;
	struct plimsoll_account *a = account_at(index);

	/* Nobody's from here on: nobody who finds it holds it. Who came to have a process in it before that keeps it. */
	if (a && (!is_idle(a) ||
		  __sync_val_compare_and_swap(&a->in_use, PLIMSOLL_ACCOUNT_OWNED, 1) != PLIMSOLL_ACCOUNT_OWNED))
		return 0;
	if (a && !is_idle(a)) {
		__sync_fetch_and_add(&a->in_use, PLIMSOLL_ACCOUNT_OWNED - 1);
		return 0;
	}
	if (a)
		*claimed = index;
	return 1;
}

static long orphan_one(struct bpf_map *map, __u64 *key, struct plimsoll_family *f, __u32 *account)
{
	if (f->account == *account)
		orphan(f, *account);
	return 0;
}

/* An account that the default line drew for who runs nothing now, taken: they get one again when they run something. */
__noinline __u32 claim_idle_account(void)
{
	__u32 claimed = PLIMSOLL_NOBODY;
	struct plimsoll_account *a;
	__u64 key;

	bpf_loop(PLIMSOLL_ENDED - 1, claim_if_idle, &claimed, 0);
	a = account_at(claimed);
	if (!a || claimed == PLIMSOLL_NOBODY)
		return PLIMSOLL_NOBODY;
	key = key_of(a->of, a->id);
	bpf_map_delete_elem(&account_numbers, &key);
	/* A member that changed its user since keeps its family: it must not charge who gets this account. */
	bpf_for_each_map_elem(&families, orphan_one, &claimed, 0);
	leave_exact(a);
	own_account(a, claimed);
	return claimed;
}

/* The first account that is nobody's or idle, taken; PLIMSOLL_NOBODY: all are in use. Its number fits the word. */
static __noinline __u32 claim_account(void)
{
	__u32 claimed = PLIMSOLL_NOBODY;

	bpf_loop(PLIMSOLL_ENDED - 1, claim_if_free, &claimed, 0);
	return claimed == PLIMSOLL_NOBODY ? claim_idle_account() : claimed;
}

static __always_inline __u32 new_default_account(__u32 uid)
{
	__u64 now = bpf_ktime_get_ns(), then = no_account_ns;
	/* Not a matter of each event: it goes through all of them. */
	__u32 index = now - then < search_again_ns ? PLIMSOLL_NOBODY : claim_account();
	__u64 key = key_of(PLIMSOLL_OF_USER, uid);
	volatile __u32 *winner;
	struct plimsoll_account *a = account_at(index);

	if (index == PLIMSOLL_NOBODY || !a) {
		if (now - then >= search_again_ns)
			no_account_ns = now;
		count_one(&counters.accounts_full);
		return PLIMSOLL_NOBODY;
	}
	a->id = uid;
	a->user = uid;
	a->hard_pages = default_line.hard_pages;
	a->effective_pages = default_line.hard_pages;
	a->dying_most = dying_most(default_line.hard_pages);
	a->soft_pages = default_line.soft_pages;
	a->signal = default_line.signal;
	a->from_default = 1;
	if (!bpf_map_update_elem(&account_numbers, &key, &index, BPF_NOEXIST)) {
		need_exact(a);
		return index;
	}
	/* Another CPU was first, or the map is full: the number goes back unused. */
	free_account(a);
	winner = bpf_map_lookup_elem(&account_numbers, &key);
	if (!winner)
		count_one(&counters.accounts_full);
	return winner ? *winner : PLIMSOLL_NOBODY;
}

/* The account of a user, made where the default line is for him; PLIMSOLL_NOBODY: none. */
__noinline __u32 account_of(__u32 uid)
{
	__u64 key = key_of(PLIMSOLL_OF_USER, uid);
	volatile __u32 *index = bpf_map_lookup_elem(&account_numbers, &key);

	if (index)
		return *index;
	if (default_line.hard_pages == PLIMSOLL_NO_LINE ||
	    uid - PLIMSOLL_SERVICES_UID_MIN <= PLIMSOLL_SERVICES_UID_MAX - PLIMSOLL_SERVICES_UID_MIN ||
	    uid - default_line.uid_min > default_line.uid_max - default_line.uid_min)
		return PLIMSOLL_NOBODY;
	return new_default_account(uid);
}

/*
 * What a user's process in a job is charged to; 0: in none. Who becomes another user in it is that user's, as the job's owner
 * may not signal them.
 */
__noinline __u32 account_in(__u32 job, __u32 user)
{
	__u64 key = key_of(PLIMSOLL_OF_JOB, job);
	volatile __u32 *index = job ? bpf_map_lookup_elem(&account_numbers, &key) : 0;
	struct plimsoll_account *a = index ? account_at(*index) : 0;

	return a && a->user == user ? *index : account_of(user);
}

/* The job that a task is in; 0: in none. Where there are no jobs nobody is asked. */
static __always_inline __u32 job_of(struct task_struct *task)
{
	__u32 *job = jobs_there ? bpf_task_storage_get(&jobs, task, 0, 0) : 0;

	return job ? *job : 0;
}

/* Whether this file is protected while this user runs it. Global, so that the verifier walks it once. */
__noinline int is_protected(__u64 executable, __u32 uid)
{
	struct file *file = (struct file *)executable;
	struct plimsoll_exe exe = {};
	struct super_block *sb;
	struct inode *inode;
	volatile __u32 *whose;

	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	sb = BPF_CORE_READ(inode, i_sb);
	/* Only root's, and only where root said so: a user can mount FUSE, or anything in a namespace of its own. */
	if (BPF_CORE_READ(inode, i_uid.val) || BPF_CORE_READ(sb, s_magic) == FUSE_SUPER_MAGIC ||
	    BPF_CORE_READ(sb, s_user_ns, level))
		return 0;
	exe.inode = BPF_CORE_READ(inode, i_ino);
	exe.device = BPF_CORE_READ(sb, s_dev);
	whose = bpf_map_lookup_elem(&protected_exes, &exe);
	if (!whose) {
		exe.device = 0;
		whose = bpf_map_lookup_elem(&protected_exes, &exe);
	}
	if (!whose || (*whose & PLIMSOLL_EXE_FORMER && BPF_CORE_READ(inode, i_nlink)))
		return 0;
	return *whose & PLIMSOLL_EXE_OF_ANYBODY || uid < first_user_uid;
}

static __always_inline bool exe_is_protected(struct mm_struct *mm, __u32 uid)
{
	return is_protected((__u64)BPF_CORE_READ(mm, exe_file), uid);
}

static __always_inline volatile __u32 *gate_of(struct mm_struct *mm)
{
	return &mm_gate[mm_slot(mm) % MM_GATE_SLOTS];
}

/*
 * A deleted entry's memory is another entry's at once, so whoever uses an entry must know that it stays. A process
 * knows of its own: its address space does not end while it runs in it. All others (reclaim, scans, the last user at
 * its end, the daemon's calls) pin it; the end of an address space leaves a pinned entry to whoever unpins it last.
 * An entry that is still being made has no key yet, and cannot be pinned.
 */
static __always_inline bool has_pins(__u32 pins)
{
	return pins & PINS_MASK;
}

/*
 * Deletes what is settled and unpinned. Only one CPU may: a deletion goes by key, and a second one would take what was
 * entered there since. Global, so that the verifier walks it once.
 */
__noinline int delete_settled(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__u32 flags;
	bool gone;

	if (!e || has_pins(e->pins))
		return 0;
	flags = __sync_fetch_and_or(&e->flags, PLIMSOLL_MM_DELETED);
	if (flags & PLIMSOLL_MM_DELETED)
		return 0;
	/* Again, because who is found there may have been entered, pinned and settled since. */
	gone = flags & PLIMSOLL_MM_GONE && !has_pins(e->pins);
	if (gone && !bpf_map_delete_elem(&mms, &key)) {
		__sync_fetch_and_add(&counters.entries, -1);
		__sync_fetch_and_add(gate_of((struct mm_struct *)key), -1);
		return 0;
	}
	if (gone)
		count_one(&counters.deletes_failed);
	/* Another's by now, or left to the next sweep. */
	__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_DELETED);
	return 0;
}

static __always_inline void forget_gone(struct plimsoll_mm *e)
{
	if (e->flags & PLIMSOLL_MM_GONE && !has_pins(e->pins))
		delete_settled(e->mm);
}

static __always_inline void unpin(struct plimsoll_mm *e)
{
	if (!has_pins(__sync_fetch_and_add(&e->pins, -1) - 1))
		forget_gone(e);
}

/*
 * Takes back a pin that came too late. If it is another entry by now, the pin went with the one before; one that is being made
 * has no number. Returns whether nobody else pins it. Global: see settle_count().
 */
__noinline int take_back_pin(volatile __u32 *at, __u32 before)
{
	__u32 pins;
	int i;

	for (i = 0; at && i < SWAP_TRIES; i++) {
		pins = *at;
		if (before & ~PINS_MASK && (before ^ pins) & ~PINS_MASK)
			return false;
		if (__sync_val_compare_and_swap(at, pins, pins - 1) == pins)
			return !has_pins(pins - 1);
	}
	return false;
}

static __always_inline bool pin(struct plimsoll_mm *e, __u64 key)
{
	__u32 before = __sync_fetch_and_add(&e->pins, 1);

	if (e->mm == key && !(e->flags & PLIMSOLL_MM_GONE))
		return true;
	if (take_back_pin(&e->pins, before))
		forget_gone(e);
	return false;
}

struct most {
	__s64 processes;
	__u32 account;
};

static long compare_one(struct bpf_map *map, __u32 *index, struct plimsoll_account *a, struct most *most)
{
	__s64 processes = a->processes;
	__u32 i = *index;

	/* Of a group's, the member that has most. */
	if (i != PLIMSOLL_NOBODY && a->of == PLIMSOLL_OF_USER && processes > most->processes) {
		most->account = i;
		most->processes = processes;
	}
	return 0;
}

/* The account of the user whose processes are charged to an account: of a job, above it. */
__noinline __u32 user_above(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	__u64 above = a && a->of == PLIMSOLL_OF_JOB ? a->above : 0;
	int i;

	for_each_above (a, above, i)
		if (a->of == PLIMSOLL_OF_USER)
			account = a->index;
	return account;
}

/* The user's account that has most entries; this one, where none has more. */
__noinline __u32 who_has_most(__u32 account)
{
	struct plimsoll_account *a = account_at(account);
	struct most most = { .account = account, .processes = a ? a->processes : 0 };

	bpf_for_each_map_elem(&accounts, compare_one, &most, 0);
	return most.account;
}

/* Whether few entries are left, and it has the most of them: then it gets no more. */
static __always_inline bool has_its_share(__u32 account)
{
	if (counters.entries < entries_for_most)
		return false;
	account = user_above(account);
	return who_has_most(account) == account;
}

/* A blank entry for an address space of an account. NULL: none is left for it, the map is busy, or another CPU was first. */
static __always_inline struct plimsoll_mm *new_entry(__u32 account, struct mm_struct *mm, void *blank_mm)
{
	__u64 key = (__u64)mm;
	long err;

	if (has_its_share(account)) {
		count_one(&counters.mms_full);
		return 0;
	}
	__sync_fetch_and_add(gate_of(mm), 1);
	err = bpf_map_update_elem(&mms, &key, blank_mm, BPF_NOEXIST);
	if (err) {
		__sync_fetch_and_add(gate_of(mm), -1);
		if (err != -EEXIST)
			count_one(&counters.mms_full);
		return 0;
	}
	__sync_fetch_and_add(&counters.entries, 1);
	return bpf_map_lookup_elem(&mms, &key);
}

/*
 * Enters an address space, uncharged; from `BLANK_PINNED` it is pinned from its birth. NULL: no line is drawn for its user, or
 * there is no entry to be had. Nobody else can pin it, nor charges it, before it is published.
 */
static __always_inline struct plimsoll_mm *enter(struct task_struct *task, struct mm_struct *mm, __u32 from)
{
	/* The uid first: who becomes another user's meanwhile is followed by his next event. */
	__u64 owner = owner_of((__u64)mm, task);
	__u32 uid = uid_of(owner), user = user_of_leader(owner), job = job_of(task), account = account_in(job, user);
	struct plimsoll_account *a = account_at(account);
	void *blank_mm = bpf_map_lookup_elem(&blank, &from);
	struct plimsoll_mm *e;

	if (!blank_mm || !a || !hold_account_for(a, job, user))
		return 0;
	e = new_entry(account, mm, blank_mm);
	if (e) {
		e->tgid = task->tgid;
		e->start_ns = start_of(task);
		e->uid = uid;
		e->user = user;
		e->job = job;
		e->scan = scan_id;
		e->walk = walk_id;
		e->tracked_ns = bpf_ktime_get_ns();
		e->reserved = PLIMSOLL_WORD_BIAS;
		e->dying = PLIMSOLL_WORD_BIAS;
		__sync_fetch_and_add(&e->pins, (__sync_fetch_and_add(&next_entry, 1) | 1) << PINS_BITS);
		e->flags = task->tgid == 1 || exe_is_protected(mm, e->uid) ? PLIMSOLL_MM_PROTECTED : 0;
		add_to_all(a, PROCESSES, 1);
		count_name(account, 1);
		count_one(&counters.tracked);
		/* From here on it can be charged by its own events: an atomic, so that it comes last. */
		__sync_lock_test_and_set(&e->word, (__u64)account << PLIMSOLL_WORD_SHIFT | PLIMSOLL_WORD_BIAS);
	}
	let_account_go(a);
	return e;
}

static __always_inline void publish(struct plimsoll_mm *e, struct mm_struct *mm)
{
	__sync_lock_test_and_set(&e->mm, (__u64)mm);
}

static __always_inline struct plimsoll_mm *track(struct task_struct *task, struct mm_struct *mm, __u32 from)
{
	struct plimsoll_mm *e = enter(task, mm, from);

	if (e)
		publish(e, mm);
	return e;
}

/* All of flags that user space said of the program that runs in it. */
#define PLIMSOLL_MM_JUDGEMENT \
	(PLIMSOLL_MM_NEVER | PLIMSOLL_MM_JUDGED | PLIMSOLL_MM_SESSION | PLIMSOLL_WEIGHT_MAX << PLIMSOLL_MM_WEIGHT_SHIFT)

/* Nothing is said any more: it is another's by now, or another process runs in it. */
static __always_inline void forget_judgement(struct plimsoll_mm *e)
{
	if (e->flags & PLIMSOLL_MM_JUDGEMENT)
		__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_JUDGEMENT);
}

/*
 * A forked child of the same user counts what its parent does: until its exec it is the same program in the same place,
 * and a storm of them would else be neutral. It is judged for itself when it comes to be among the largest. No session stands
 * on a copy.
 */
static __always_inline void inherit_weight(struct plimsoll_mm *e, struct plimsoll_mm *parent)
{
	__u32 said = parent->flags & PLIMSOLL_MM_JUDGEMENT & ~(PLIMSOLL_MM_JUDGED | PLIMSOLL_MM_SESSION);

	if (said && e->uid == parent->uid)
		__sync_fetch_and_or(&e->flags, said);
}

/*
 * Ends the tracking of an address space, which is pinned: its charge, its reservation, what is dying of it, its share of a
 * family go. Returns the account that was charged; PLIMSOLL_NOBODY: none was. Global: it is long, and needs much of the stack.
 */
__noinline __u32 settle_gone(__u64 key)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *a;
	__u64 word;

	if (!e || __sync_fetch_and_or(&e->flags, PLIMSOLL_MM_GONE) & PLIMSOLL_MM_GONE)
		return PLIMSOLL_NOBODY;
	word = __sync_lock_test_and_set(&e->word, PLIMSOLL_ENDED << PLIMSOLL_WORD_SHIFT | PLIMSOLL_WORD_BIAS);
	a = account_at(word_account(word));
	release_reserved(e->mm);
	leave_family(e);
	if (!a)
		return PLIMSOLL_NOBODY;
	account_add(a, -word_pages(word));
	settle_dying_space(e->mm);
	add_to_all(a, PROCESSES, -1);
	count_name(word_account(word), -1);
	return a->index;
}

/* Claimed as a victim that SIGKILL ends, for what it runs now. */
static __always_inline bool is_claimed(struct plimsoll_mm *e, struct task_struct *task)
{
	struct plimsoll_account *a = account_at(e->claimed);

	/* A line that asks sends SIGKILL as well, where it leaves no more of its processes alone. */
	return a && (a->signal == SIGKILL || e->flags & PLIMSOLL_MM_CONDEMNED) &&
	       (e->flags & (PLIMSOLL_MM_DYING | PLIMSOLL_MM_LEFT)) == PLIMSOLL_MM_DYING &&
	       e->tgid == (__u32)task->tgid && e->start_ns == start_of(task);
}

/*
 * An address that was another address space's whose exit was lost: nothing of it may pass to the new one. At exec it
 * may also be the new one itself, seen by the faults of its own loading: claimed in one of them, it is dying still.
 */
static __always_inline void drop_stale(struct mm_struct *mm, struct task_struct *task)
{
	__u64 key = (__u64)mm;
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);

	if (!e)
		return;
	if (!pin(e, key)) {
		forget_gone(e);
		return;
	}
	if (e->tgid != (__u32)task->tgid)
		count_one(&counters.phantoms);
	if (!is_claimed(e, task))
		settle_gone(e->mm);
	unpin(e);
}

int came_to(__u32 account, __u64 mm);
int leave_line(__u64 key);

/* Usage of an account and of those above it rose without an event that judges it: by a grant, a fork, an exec, another user. */
static __always_inline void come_to(struct plimsoll_account *a, __u64 mm)
{
	__u64 above = a->above;
	int i;

	came_to(a->index, mm);
	for_each_above (a, above, i)
		came_to(a->index, mm);
}

/* Moves a charge to another account, unless another CPU changed it meanwhile. */
static __always_inline bool move_charge(struct plimsoll_mm *e, __u64 word, __u32 index)
{
	__u64 moved = (word & PLIMSOLL_WORD_MASK) | (__u64)index << PLIMSOLL_WORD_SHIFT;
	__u32 from = word_account(word);
	__s64 own = word_pages(word);

	count_name(index, 1);
	if (__sync_val_compare_and_swap(&e->word, word, moved) != word) {
		count_name(index, -1);
		return false;
	}
	if (!account_at(from))
		return true;
	/* From here on it is dying there, if it is, and for whom it was taken nothing is gained by its end. */
	if (!is_charged(index, e->claimed))
		e->claimed = index;
	add_beside(from, index, USAGE, -own);
	/* Dying there before it is charged there: in between another victim would be taken. */
	settle_dying_space(e->mm);
	add_beside(index, from, USAGE, own);
	move_reserved(e->mm, index);
	add_beside(index, from, PROCESSES, 1);
	add_beside(from, index, PROCESSES, -1);
	count_name(from, -1);
	count_one(&counters.moves);
	/* Not all of its events were looked at in the other one. */
	e->epoch = 0;
	return true;
}

/*
 * Moves the whole charge when the process has become another user's: one winner per move. The entry is the process's
 * own, or pinned.
 */
__noinline __u32 follow_leader(__u64 key, __u64 leader)
{
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	struct plimsoll_account *to;
	__u32 uid, user, index, followed = PLIMSOLL_NOBODY;
	__u64 word;
	bool moved;
	int i;

	if (!e)
		return followed;
	for (i = 0; i < FOLLOW_TRIES; i++) {
		uid = uid_of(leader);
		if (uid == e->uid)
			return followed;
		user = user_of_leader(leader);
		index = account_in(e->job, user);
		word = e->word;
		if (!word || word_account(word) == PLIMSOLL_ENDED)
			return followed;
		if (word_account(word) != index) {
			to = account_at(index);
			/* Nobody's always is. */
			if (!to || (index != PLIMSOLL_NOBODY && !hold_account_for(to, e->job, user)))
				continue;
			moved = move_charge(e, word, index);
			if (index != PLIMSOLL_NOBODY)
				let_account_go(to);
			if (!moved)
				continue;
		}
		/* A login that becomes a user's is a user's. */
		if (e->flags & PLIMSOLL_MM_PROTECTED && e->tgid != 1 && !exe_is_protected((struct mm_struct *)key, uid))
			__sync_fetch_and_and(&e->flags, ~PLIMSOLL_MM_PROTECTED);
		followed = index;
		e->user = user;
		e->uid = uid;
		forget_judgement(e);
	}
	return followed;
}

static __always_inline void follow_user(struct plimsoll_mm *e, struct task_struct *task)
{
	__u32 before = word_account(e->word), account = follow_leader(e->mm, owner_of(e->mm, task));
	struct plimsoll_account *a = account_at(account);

	if (e->flags & PLIMSOLL_MM_CONDEMNED && word_account(e->word) != before)
		leave_line(e->mm);
	/* Not in there, because Linux 6.1 adds up the stacks of all who are in a call. */
	if (a && account != PLIMSOLL_NOBODY)
		come_to(a, e->mm);
}

#endif
