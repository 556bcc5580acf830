//! A call trace in the kernel, innermost function first: which code asked for memory, and by what way.

/// How many callers of the call site are named.
const CALLERS_MAX: usize = 2;

/// Beginnings of functions that only report, kill or allocate on somebody's behalf.
const ALLOCATORS: &[&str] = &[
    "dump_backtrace",
    "show_stack",
    "unwind_backtrace",
    "dump_stack",
    "__dump_stack",
    "dump_header",
    "oom_kill_process",
    "out_of_memory",
    "__out_of_memory",
    "mem_cgroup_",
    "__mem_cgroup_",
    "try_charge",
    "charge_memcg",
    "obj_cgroup_",
    "__alloc_page",
    "alloc_page",
    "alloc_fresh",
    "__alloc_frozen",
    "alloc_frozen",
    "__alloc_skb_pages",
    "__get_free_page",
    "get_zeroed_page",
    "get_free_pages",
    "__page_frag",
    "page_frag",
    "kmalloc",
    "__kmalloc",
    "___kmalloc",
    "krealloc",
    "__krealloc",
    "kmem_cache_alloc",
    "__kmem_cache_alloc",
    "kmem_getpages",
    "cache_alloc",
    "cache_grow",
    "fallback_alloc",
    "____cache_alloc",
    "__slab_alloc",
    "___slab_alloc",
    "slab_alloc",
    "new_slab",
    "allocate_slab",
    "alloc_slab_page",
    "kvmalloc",
    "kvzalloc",
    "__kvmalloc",
    "__vmalloc",
    "vmalloc",
    "vzalloc",
    "__vzalloc",
    "module_alloc",
    "vma_alloc_folio",
    "folio_alloc",
    "__folio_alloc",
    "folio_prealloc",
    "__page_cache_alloc",
    "__filemap_get_folio",
    "filemap_get_folio",
    "mempool_alloc",
    "alloc_zeroed_user",
    "dma_direct_alloc",
    "__dma_direct_alloc",
    "dma_alloc",
    "__dma_alloc",
    "arm_dma_alloc",
    "memcg_",
    "__memcg_",
    "refill_obj",
    "ret_from",
];

/// What a function of the kernel is for, in plain words; the first frame from the inside that begins so decides.
const PURPOSES: &[(&str, &str)] = &[
    ("copy_process", "to start a process or a thread"),
    ("dup_mm", "to start a process"),
    ("binder_", "for Android's binder"),
    ("filemap_fault", "to read a page of a program or of a mapped file"),
    ("do_swap_page", "to read a page back from swap"),
    ("shmem_", "for a file in tmpfs or for shared memory"),
    ("wp_page_copy", "to copy a page that was written to"),
    ("do_wp_page", "to copy a page that was written to"),
    ("do_cow_page", "to copy a page of a file that was written to"),
    ("do_anonymous_page", "for a page of a process's own memory"),
    ("do_huge_pmd_anonymous", "for a huge page of a process's own memory"),
    ("__pte_alloc", "for a page table"),
    ("__pmd_alloc", "for a page table"),
    ("pte_alloc", "for a page table"),
    ("page_cache_", "to read a file"),
    ("ext4_", "for the ext4 file system"),
    ("xfs_", "for the XFS file system"),
    ("btrfs_", "for the Btrfs file system"),
    ("sock_alloc_send", "to send something through a socket"),
    ("unix_", "to send something through a local socket"),
    ("tcp_", "for a network connection"),
    ("__netdev_alloc", "for a network packet"),
    ("__alloc_skb", "for a network packet"),
    ("pipe_write", "to write into a pipe"),
    ("seq_read", "to show a file of the kernel's"),
    ("do_sys_poll", "to wait for several files"),
    ("core_sys_select", "to wait for several files"),
    ("alloc_fdtable", "for a longer table of open files"),
    ("load_elf", "to start a program"),
    ("sys_mmap", "to map memory (mmap)"),
    ("handle_mm_fault", "for a page of a process's memory"),
    ("handle_pte_fault", "for a page of a process's memory"),
    ("__do_page_fault", "for a page of a process's memory"),
    ("do_user_addr_fault", "for a page of a process's memory"),
    ("moom_callback", "because somebody asked by SysRq"),
];

/// Functions at which the way in is told well enough.
const BORDERS: &[&str] = &[
    "do_syscall",
    "entry_SYSCALL",
    "system_call",
    "el0_",
    "el1_",
    "invoke_syscall",
    "__arm64_sys",
    "__x64_sys",
    "ret_fast",
    "asm_exc",
    "exc_page_fault",
    "page_fault",
    "do_page_fault",
    "do_DataAbort",
    "do_mem_abort",
    "kthread",
    "worker_thread",
    "mmap_region",
    "do_mmap",
    "vm_mmap",
    "SyS_",
    "sys_",
    "secondary_startup",
    "x86_64_start",
    "start_kernel",
    "ret_from",
];

/// A function's name without what compilers and tracing add (`.isra.0`, `.cfi_jt`, `_noprof`).
fn bare(name: &str) -> &str {
    let name = name.split('.').next().unwrap_or(name);
    name.strip_suffix("_noprof").unwrap_or(name)
}

fn begins(name: &str, table: &[&str]) -> bool {
    table.iter().any(|start| name.starts_with(start))
}

/// Where memory was asked for: the innermost function outside the allocators, who called it, and through which allocator;
/// `zeroed`: whether it was to be all zeros. `None` without a call trace, or for one that ends before it.
pub(crate) fn call_site(stack: &[String], zeroed: bool) -> Option<String> {
    let names: Vec<&str> = stack.iter().map(|name| bare(name)).collect();
    let at = names.iter().position(|name| !begins(name, ALLOCATORS))?;
    let (inside, outside) = names.split_at_checked(at)?;
    let (first, callers) = outside.split_first()?;
    if begins(first, &["entry_SYSCALL", "secondary_startup"]) {
        return None;
    }
    let mut text = String::from(*first);
    for caller in callers.iter().take_while(|name| !begins(name, BORDERS)).take(CALLERS_MAX) {
        text = format!("{text}, called by {caller}");
    }
    Some(match through(inside, zeroed) {
        Some(through) => format!("{text}, through {through}"),
        None => text,
    })
}

/// The allocator between the caller and the page allocator. Macros such as `kcalloc` leave no frame; that the memory was to be
/// zeroed tells them from `kmalloc`.
fn through(inside: &[&str], zeroed: bool) -> Option<&'static str> {
    let any = |starts: &[&str]| inside.iter().any(|name| begins(name, starts));
    if any(&["kvmalloc", "kvzalloc", "__kvmalloc"]) {
        Some(if zeroed { "kvcalloc or kvzalloc" } else { "kvmalloc" })
    } else if any(&["vmalloc", "__vmalloc", "vzalloc", "__vzalloc"]) {
        Some("vmalloc")
    } else if any(&["krealloc", "__krealloc"]) {
        Some("krealloc")
    } else if any(&["kmalloc", "__kmalloc", "___kmalloc"]) {
        Some(if zeroed { "kcalloc or kzalloc" } else { "kmalloc" })
    } else if any(&["kmem_cache_alloc", "__kmem_cache_alloc"]) {
        Some("a slab cache")
    } else if any(&["dma_", "__dma_", "arm_dma"]) {
        Some("the DMA allocator")
    } else {
        None
    }
}

/// Functions of the kernel's that lie between the page allocator and a program at its tracepoint.
const TRACERS: &[&str] = &["bpf_trace_run", "__bpf_trace_", "__traceiter_"];

/// How deep they are looked for. The innermost may be nameless, or have somebody else's name once the program is gone.
const TRACERS_DEPTH: usize = 6;

/// A call trace that a program at the page allocator's tracepoint took, without the program's own part.
pub(crate) fn without_tracer(stack: &[String]) -> &[String] {
    let last = stack.iter().take(TRACERS_DEPTH).rposition(|name| begins(name, TRACERS));
    last.and_then(|at| stack.get(at.saturating_add(1)..)).unwrap_or(stack)
}

/// Whether an interrupt came in between: whoever ran has nothing to do with it.
pub(crate) fn is_of_interrupt(stack: &[String]) -> bool {
    passes(
        stack,
        &[
            "handle_softirqs",
            "__do_softirq",
            "do_softirq_own_stack",
            "__irq_exit_rcu",
            "common_interrupt",
            "__common_interrupt",
            "handle_irq",
        ],
    )
}

/// What it was for, in plain words; `None` where the call trace tells nothing that is known here.
pub(crate) fn purpose(stack: &[String]) -> Option<&'static str> {
    stack.iter().map(|name| bare(name)).find_map(|name| {
        PURPOSES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, purpose)| *purpose)
    })
}

/// Whether the call trace holds a function that begins with one of `starts`.
pub(crate) fn passes(stack: &[String], starts: &[&str]) -> bool {
    stack.iter().any(|name| begins(bare(name), starts))
}
