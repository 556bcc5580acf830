/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which call a thread is in, and what it was given. security_vm_enough_memory_mm() says only how many pages are asked for: a
 * stack that grows and an exec are told from a request by the saved registers.
 */
#ifndef PLIMSOLL_STRICT_CALL_H
#define PLIMSOLL_STRICT_CALL_H

/* arch/x86/include/asm/thread_info.h: the call is one for 32 bits. arch/arm64: the program is. */
#define TS_COMPAT 0x0002
#define TIF_32BIT 22

enum call {
	OTHER, /* also exec */
	FAULT, /* none: a stack grows. Also as a signal is delivered */
	MAP,
	MAP_BY_POINTER, /* the old mmap of i386, whose arguments are in memory, four bytes each */
	PROTECT,
	REMAP,
	BRK,
	GROW, /* remap_file_pages, map_shadow_stack */
	FORK,
};

static __always_inline enum call call_of_x86(long number, bool compat)
{
	if (compat) {
		switch (number) {
		case 192: /* mmap2 */
			return MAP;
		case 90:
			return MAP_BY_POINTER;
		case 125:
		case 380: /* pkey_mprotect */
			return PROTECT;
		case 163:
			return REMAP;
		case 45:
			return BRK;
		case 257:
		case 453:
			return GROW;
		case 2:
		case 120:
		case 435: /* clone3 */
			return FORK;
		}
		return OTHER;
	}
	switch (number & ~0x40000000l) { /* __X32_SYSCALL_BIT */
	case 9:
		return MAP;
	case 10:
	case 329:
		return PROTECT;
	case 25:
		return REMAP;
	case 12:
		return BRK;
	case 216:
	case 453:
		return GROW;
	case 56:
	case 57:
	case 435:
		return FORK;
	}
	return OTHER;
}

static __always_inline enum call call_of_arm64(long number, bool compat)
{
	if (compat) {
		switch (number) {
		case 192:
			return MAP;
		case 125:
		case 394:
			return PROTECT;
		case 163:
			return REMAP;
		case 45:
			return BRK;
		case 253:
			return GROW;
		case 2:
		case 120:
		case 435:
			return FORK;
		}
		return OTHER;
	}
	switch (number) {
	case 222:
		return MAP;
	case 226:
	case 288:
		return PROTECT;
	case 216:
		return REMAP;
	case 214:
		return BRK;
	case 234:
	case 453:
		return GROW;
	case 220:
	case 435:
		return FORK;
	}
	return OTHER;
}

static __always_inline bool is_x86(void)
{
	return bpf_core_field_exists(((struct pt_regs *)0)->orig_ax);
}

static __always_inline bool is_compat(struct task_struct *task)
{
	if (is_x86())
		return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT;
	return BPF_CORE_READ(task, thread_info.flags) & 1ul << TIF_32BIT;
}

/*
 * No call has the number -1, which the entry code writes in a page fault (arch/x86/entry/entry_64.S, entry_fred.c;
 * arch/arm64/kernel/entry-common.c, 6.1 to 7.2). On x86 the upper half of the register is whatever the program left there, and
 * the number stays while a signal's frame is made as the call returns, which may grow the stack. Until then the result is
 * -ENOSYS there, unless a tracer changed it.
 */
static __always_inline enum call call_of(struct task_struct *task)
{
	struct pt_regs *x86 = (struct pt_regs *)bpf_task_pt_regs(task);
	struct pt_regs___arm64 *arm64 = (struct pt_regs___arm64 *)x86;

	long number = -1;

	if (is_x86()) {
		if (BPF_CORE_READ(x86, ax) == (unsigned long)-ENOSYS || BPF_CORE_READ(task, ptrace))
			number = (__s32)BPF_CORE_READ(x86, orig_ax);
		return number == -1 ? FAULT : call_of_x86(number, is_compat(task));
	}
	if (bpf_core_field_exists(arm64->syscallno))
		number = BPF_CORE_READ(arm64, syscallno);
	return number == -1 ? FAULT : call_of_arm64(number, is_compat(task));
}

/* The first four arguments of the call. */
static __always_inline void read_arguments(struct task_struct *task, __u64 arguments[4])
{
	struct pt_regs *x86 = (struct pt_regs *)bpf_task_pt_regs(task);
	struct pt_regs___arm64 *arm64 = (struct pt_regs___arm64 *)x86;

	if (!is_x86()) {
		arguments[0] = BPF_CORE_READ(arm64, regs[0]);
		arguments[1] = BPF_CORE_READ(arm64, regs[1]);
		arguments[2] = BPF_CORE_READ(arm64, regs[2]);
		arguments[3] = BPF_CORE_READ(arm64, regs[3]);
	} else if (is_compat(task)) {
		arguments[0] = (__u32)BPF_CORE_READ(x86, bx);
		arguments[1] = (__u32)BPF_CORE_READ(x86, cx);
		arguments[2] = (__u32)BPF_CORE_READ(x86, dx);
		arguments[3] = (__u32)BPF_CORE_READ(x86, si);
	} else {
		arguments[0] = BPF_CORE_READ(x86, di);
		arguments[1] = BPF_CORE_READ(x86, si);
		arguments[2] = BPF_CORE_READ(x86, dx);
		arguments[3] = BPF_CORE_READ(x86, r10);
	}
}

#endif
