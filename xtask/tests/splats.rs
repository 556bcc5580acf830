//! By which lines of a kernel's log a run fails.
#![cfg(test)]

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// Whether this line is one of them.
fn complains(line: &str, arguments: &[&str]) -> bool {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/splats.sh");
    let mut splats =
        Command::new(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let log =
        format!("[    1.000000] Run /init as init process\n{line}\n[    2.000000] random: crng init done\n");
    splats.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = splats.wait_with_output().unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.success(), !found.is_empty());
    assert!(found.is_empty() || found == format!("{line}\n"), "{found}");
    !found.is_empty()
}

#[test]
fn what_is_wrong_in_a_kernel_is_a_complaint() {
    for line in [
        "[   12.345678] ------------[ cut here ]------------",
        "[   12.345678] WARNING: CPU: 1 PID: 77 at mm/page_counter.c:58 page_counter_cancel+0x34/0x40",
        "[   12.345678] WARNING: possible circular locking dependency detected",
        "[   12.345678] WARNING: suspicious RCU usage",
        "[   12.345678] BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "[   12.345678] BUG: Bad page state in process hog  pfn:12345",
        "[   12.345678] BUG: sleeping function called from invalid context at mm/rmap.c:1",
        "[   12.345678] Oops: int3: 0000 [#1] PREEMPT SMP",
        "[   12.345678] general protection fault, probably for non-canonical address",
        "[   12.345678] BUG: KASAN: slab-use-after-free in bpf_map_lookup_elem+0x1/0x2",
        "[   12.345678] UBSAN: array-index-out-of-bounds in kernel/bpf/core.c:1",
        "[   12.345678] Kernel panic - not syncing: Fatal exception",
    ] {
        assert!(complains(line, &[]), "{line}");
        assert!(complains(line, &["--emulated"]), "{line}");
    }
}

#[test]
fn a_stall_is_a_complaint_of_a_real_machine_only() {
    for line in [
        "[   62.345678] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "[   62.345678] rcu: INFO: rcu_preempt self-detected stall on CPU",
        "[   62.345678] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [hog:77]",
        "[  242.345678] INFO: task hog:77 blocked for more than 120 seconds.",
    ] {
        assert!(complains(line, &[]), "{line}");
        assert!(!complains(line, &["--emulated"]), "{line}");
    }
}

#[test]
fn what_a_healthy_kernel_says_is_none() {
    for line in [
        "[    0.250153] Speculative Return Stack Overflow: WARNING: See https://kernel.org/doc/ for mitigation options.",
        "[    9.000000] Memory cgroup out of memory: Killed process 77 (hog) total-vm:1kB, anon-rss:1kB",
        "[    9.000000] hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "[    9.000000] EXT4-fs (loop0): mounted filesystem",
    ] {
        assert!(!complains(line, &[]), "{line}");
    }
}
