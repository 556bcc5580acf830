//! Usage against the kernel's own exact sums: huge pages, and pages that somebody else takes or gives.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use support::{ALICE, Fixture, exact, scripted::Scripted};

/// Calls that Python 3.11 has no name for, by their numbers, which are the same on all architectures since 5.1; of advice
/// from include/uapi/asm-generic/mman-common.h.
const CALLS: &str = "libc = ctypes.CDLL(None, use_errno=True)\n\
    MADV_PAGEOUT, MADV_COLLAPSE = 21, 25\n\
    class Span(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n\
    def advise(pid, address, length, advice):\n\
    \x20   span = Span(address, length)\n\
    \x20   done = libc.syscall(440, os.pidfd_open(pid), ctypes.byref(span), 1, advice, 0)\n\
    \x20   say('done' if done == length else os.strerror(ctypes.get_errno()) if done < 0 else f'only {done}')\n\
    def release(pid):\n\
    \x20   victim = os.pidfd_open(pid)\n\
    \x20   signal.pidfd_send_signal(victim, signal.SIGKILL)\n\
    \x20   say(libc.syscall(448, victim, 0))\n";

/// Alice's process, in exact accounting from its first page: what is charged then is charged by the events alone.
fn exact_from_the_start(fixture: &Fixture) -> Scripted {
    fixture.limit(ALICE, "512M", &["--soft", "64K"]);
    fixture.scripted(&[ALICE])
}

/// Compares what the events charged, with the daemon standing still so that no scan can have helped.
#[track_caller]
fn assert_exact_without_a_scan(fixture: &Fixture, pids: &[u32]) {
    let counted: u64 = pids.iter().map(|pid| exact::process_pages(*pid).expect("it lives")).sum();
    assert_eq!(fixture.facts(ALICE).usage.0, counted, "charged, and the kernel's sum of {pids:?}");
}

fn huge_pages_of(pid: u32) -> u64 {
    exact::pages_of_kib(exact::number(format!("/proc/{pid}/smaps_rollup"), "AnonHugePages"))
}

#[test]
fn huge_pages_are_charged_as_many_pages_as_they_have() {
    let fixture = fixture!();
    let mut scripted = exact_from_the_start(&fixture);
    let pid = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 64");
    fixture.signal(Signal::STOP);
    scripted.tell(1, "huge 32768");
    if huge_pages_of(pid) == 0 {
        return support::skip("the kernel gives no huge pages here");
    }
    assert_exact_without_a_scan(&fixture, &[pid]);
    // The child writes to inherited huge pages, which are split for it.
    let child = scripted.make(1, "fork 2");
    scripted.tell(2, "write");
    scripted.tell(2, "free");
    scripted.tell(2, "huge 4096");
    scripted.tell(2, "exec");
    scripted.tell(1, "touch 4");
    assert_exact_without_a_scan(&fixture, &[pid, child]);
    scripted.tell(1, "free");
    scripted.tell(1, "drop");
    assert_exact_without_a_scan(&fixture, &[pid, child]);
    scripted.tell(1, "exit");
    scripted.tell(2, "exit");
    assert_eq!(fixture.facts(ALICE).usage.0, 0);
}

#[test]
fn pages_that_reclaim_takes_from_outside_are_no_longer_charged() {
    let fixture = fixture!();
    let mut scripted = exact_from_the_start(&fixture);
    let pid = scripted.make(1, "start 60100");
    let address = scripted.tell(1, "touch 16384");
    scripted.tell(1, "lazy");
    let before = exact::process_pages(pid).unwrap();
    fixture.signal(Signal::STOP);
    let mut root =
        fixture.root_python(&format!("{CALLS}advise({pid}, {address}, 16384 << 10, MADV_PAGEOUT)\nhear()\n"));
    assert_eq!(root.line(), "done");
    let after = exact::process_pages(pid).unwrap();
    assert!(after < before - exact::pages_of_kib(8192), "reclaim took {before} - {after} pages");
    assert_exact_without_a_scan(&fixture, &[pid]);
}

#[test]
fn pages_that_are_collapsed_from_outside_are_charged_to_their_process() {
    let fixture = fixture!();
    let mut scripted = exact_from_the_start(&fixture);
    let pid = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 64");
    let address = scripted.tell(1, "reserve 8192");
    // One page of each huge one: the rest comes with the collapse.
    let mut root = fixture.root_python(&format!(
        "{CALLS}memory = open('/proc/{pid}/mem', 'r+b', 0)\n\
         for offset in range(0, 8192 << 10, 2 << 20):\n\
         \x20   memory.seek({address} + offset)\n\
         \x20   memory.write(b'x')\n\
         say('written')\n\
         hear()\n\
         advise({pid}, {address}, 8192 << 10, MADV_COLLAPSE)\n\
         hear()\n"
    ));
    assert_eq!(root.line(), "written");
    scripted.tell(1, "allow");
    fixture.signal(Signal::STOP);
    assert_exact_without_a_scan(&fixture, &[pid]);
    let before = exact::process_pages(pid).unwrap();
    root.tell("");
    let said = root.line();
    let gained = exact::process_pages(pid).unwrap() - before;
    if gained == 0 {
        return support::skip(format_args!("nothing was collapsed: {said}"));
    }
    assert_exact_without_a_scan(&fixture, &[pid]);
}

#[test]
fn memory_that_is_released_for_a_killed_process_is_no_longer_charged() {
    let fixture = fixture!();
    let mut scripted = exact_from_the_start(&fixture);
    for size_kib in [4, 4096, 65536, 131072] {
        let pid = scripted.make(1, "start 60100");
        scripted.tell(1, &format!("touch {size_kib}"));
        fixture.signal(Signal::STOP);
        let mut root = fixture.root_python(&format!("{CALLS}release({pid})\n"));
        root.line();
        support::wait_for("its memory is back", || {
            let facts = fixture.facts(ALICE);
            facts.usage.0 == 0 && facts.processes == 0
        });
        fixture.signal(Signal::CONT);
    }
    assert!(fixture.history().is_empty());
}

#[test]
fn what_one_process_writes_into_another_s_memory_is_charged_to_the_other() {
    let fixture = fixture!();
    let mut scripted = exact_from_the_start(&fixture);
    let writer = scripted.make(1, "start 60100");
    let owner = scripted.make(1, "spawn 2");
    scripted.tell(2, "touch 64");
    let address = scripted.tell(2, "reserve 4096");
    fixture.signal(Signal::STOP);
    if let Err(refused) = scripted.attempt(1, &format!("poke {owner} {address} 4096")) {
        return support::skip(refused);
    }
    assert!(exact::process_pages(owner).unwrap() >= exact::pages_of_kib(4096));
    assert_exact_without_a_scan(&fixture, &[writer, owner]);
    scripted.tell(2, "exit");
    assert_exact_without_a_scan(&fixture, &[writer]);
}
