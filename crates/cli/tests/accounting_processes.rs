//! Usage against the kernel's own exact sums: threads, forks, shared memory, exec and exit of one user's processes.
#![cfg(test)]

mod support;

use std::fs;
use support::{ALICE, Fixture, exact, scripted::Scripted, wait_for};

/// What a fork itself may add: a touched stack page or two on either side.
const FORK_PAGES: u64 = 16;

/// A line so high that nothing is near, and the scripted of one user below it.
fn far_below_a_line(fixture: &Fixture) -> Scripted {
    fixture.limit(ALICE, "512M", &[]);
    fixture.scripted(&[ALICE])
}

#[track_caller]
fn assert_exact(fixture: &Fixture, pids: &[u32]) {
    let counted: u64 = pids.iter().map(|pid| exact::process_pages(*pid).expect("it lives")).sum();
    assert_eq!(fixture.usage_pages(ALICE), counted, "usage and the kernel's sum of {pids:?}");
}

#[test]
fn a_process_is_charged_exactly_what_the_kernel_counts() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut chill = fixture.workload(ALICE, "chill", &["--mebibytes=20"]).ready();
    assert_exact(&fixture, &[chill.pid()]);
    assert!(fixture.usage_pages(ALICE) >= exact::pages_of_kib(20 << 10));
    chill.stop();
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn threads_are_charged_with_their_process_once() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let pid = scripted.make(1, "start 60100");
    for thread in 2..10 {
        scripted.tell(1, &format!("thread {thread}"));
        scripted.tell(thread, "touch 1024");
    }
    assert_exact(&fixture, &[pid]);
    scripted.tell(5, "free");
    scripted.tell(3, "leave");
    assert_exact(&fixture, &[pid]);
    // The leader leaves before its threads: the memory is theirs now.
    scripted.tell(1, "leave");
    scripted.tell(7, "touch 2048");
    wait_for("usage with the leader gone", || fixture.usage_pages(ALICE) >= exact::pages_of_kib(9 << 10));
    let account = fixture.account(ALICE).unwrap();
    assert_eq!(account["processes"], 1, "{account}");
    scripted.tell(7, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn a_fork_adds_nothing_and_what_the_child_takes_itself_is_charged_exactly() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 65536");
    let before = fixture.usage_pages(ALICE);
    let child = scripted.make(1, "fork 2");
    let forked = fixture.usage_pages(ALICE);
    assert!(forked >= before && forked - before <= FORK_PAGES, "{before} pages became {forked} by a fork");

    let inherited = exact::process_pages(child).unwrap();
    scripted.tell(2, "touch 8192");
    let grown = exact::process_pages(child).unwrap() - inherited;
    assert_eq!(fixture.usage_pages(ALICE) - forked, grown);
    scripted.tell(2, "free");
    let shrunk = exact::process_pages(child).unwrap() - inherited;
    assert_eq!(fixture.usage_pages(ALICE) - forked, shrunk);

    scripted.tell(2, "exit");
    scripted.tell(1, "touch 4");
    assert_exact(&fixture, &[parent]);
}

#[test]
fn what_a_parent_leaves_behind_stays_charged_for_its_child() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    scripted.tell(1, "start 60100");
    scripted.tell(1, "touch 16384");
    let child = scripted.make(1, "fork 2");
    scripted.tell(2, "touch 4096");
    scripted.tell(1, "exit");
    assert_exact(&fixture, &[child]);
    scripted.tell(2, "touch 4");
    assert_exact(&fixture, &[child]);
    scripted.tell(2, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn two_children_and_a_grandchild_share_one_charge_until_the_last_of_them_ends() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 32768");
    let before = fixture.usage_pages(ALICE);
    scripted.tell(1, "fork 2");
    scripted.tell(1, "fork 3");
    scripted.tell(3, "fork 4");
    let family = fixture.usage_pages(ALICE);
    assert!(
        family >= before && family - before <= 4 * FORK_PAGES,
        "{before} pages became {family} by three forks"
    );
    for slot in [2, 3, 4] {
        scripted.tell(slot, "touch 1024");
    }
    let own = 3 * exact::pages_of_kib(1024);
    let grown = fixture.usage_pages(ALICE) - family;
    assert!((own..own + 3 * FORK_PAGES).contains(&grown), "{grown} pages for {own}");
    // The middle of the line ends first.
    scripted.tell(3, "exit");
    scripted.tell(2, "exit");
    scripted.tell(4, "exit");
    scripted.tell(1, "touch 4");
    assert_exact(&fixture, &[parent]);
    scripted.tell(1, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn a_parent_that_allocates_forks_and_frees_for_long_is_never_charged_more_than_its_processes_count() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    // One that stays: the family never ends.
    let stays = scripted.make(1, "fork 2");
    for _ in 0..20 {
        scripted.tell(1, "touch 8192");
        scripted.tell(1, "fork 3");
        scripted.tell(3, "exit");
        scripted.tell(1, "free");
    }
    let counted = [parent, stays].map(|pid| exact::process_pages(pid).unwrap()).iter().sum::<u64>();
    let usage = fixture.usage_pages(ALICE);
    assert!(usage <= counted, "{usage} pages charged, all processes together count {counted}");
}

#[test]
fn a_forked_child_that_executes_something_else_leaves_the_parent_its_pages() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 16384");
    let child = scripted.make(1, "fork 2");
    scripted.tell(2, "touch 2048");
    scripted.tell(2, "exec");
    scripted.tell(1, "touch 4");
    assert_exact(&fixture, &[parent, child]);
    scripted.tell(2, "touch 2048");
    assert_exact(&fixture, &[parent, child]);
}

#[test]
fn vfork_and_posix_spawn_charge_the_new_program_alone() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 16384");
    let before = exact::process_pages(parent).unwrap();
    let vforked = scripted.make(1, "vfork 2");
    let spawned = scripted.make(1, "spawn 3");
    assert_exact(&fixture, &[parent, vforked, spawned]);
    assert!(fixture.usage_pages(ALICE) < before + exact::pages_of_kib(4096));
    scripted.tell(2, "touch 1024");
    scripted.tell(3, "touch 1024");
    assert_exact(&fixture, &[parent, vforked, spawned]);
    assert_eq!(fixture.account(ALICE).unwrap()["processes"], 3);
}

#[test]
fn processes_that_share_their_memory_are_charged_once_until_the_last_of_them_ends() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 4096");
    let clone = scripted.make(1, "clone 2");
    assert_ne!(parent, clone);
    scripted.tell(2, "touch 8192");
    assert_exact(&fixture, &[clone]);
    assert_eq!(fixture.account(ALICE).unwrap()["processes"], 1);
    scripted.tell(1, "exit");
    assert_exact(&fixture, &[clone]);
    scripted.tell(2, "touch 1024");
    assert_exact(&fixture, &[clone]);
    scripted.tell(2, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn an_exec_ends_the_old_charge_and_begins_the_new_one() {
    let fixture = fixture!();
    let mut scripted = far_below_a_line(&fixture);
    let pid = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 16384");
    scripted.tell(1, "thread 2");
    // A thread executes: the others end, and it takes on the leader's number.
    scripted.tell(2, "touch 1024");
    scripted.tell(1, "exec");
    assert_exact(&fixture, &[pid]);
    assert!(fixture.usage_pages(ALICE) < exact::pages_of_kib(4096));
    scripted.tell(1, "touch 1024");
    assert_exact(&fixture, &[pid]);
    scripted.tell(1, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn what_already_ran_when_the_line_was_drawn_is_charged_in_full() {
    let fixture = fixture!();
    let mut scripted = fixture.scripted(&[ALICE]);
    let first = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 8192");
    scripted.tell(1, "thread 2");
    let second = scripted.make(3, "start 60100");
    scripted.tell(3, "touch 2048");
    let clone = scripted.make(3, "clone 4");
    fixture.limit(ALICE, "512M", &[]);
    assert_exact(&fixture, &[first, second]);
    scripted.tell(2, "touch 1024");
    scripted.tell(4, "touch 1024");
    assert_exact(&fixture, &[first, second]);
    assert_exact(&fixture, &[first, clone]);
    scripted.tell(1, "exit");
    scripted.tell(3, "exit");
    scripted.tell(4, "exit");
    assert_eq!(fixture.usage_pages(ALICE), 0);
}

#[test]
fn nothing_is_attached_before_the_first_line_and_after_the_last() {
    let fixture = fixture!();
    let pinned = || fs::read_dir(fixture.pin().join("links")).map_or(0, Iterator::count);
    assert_eq!(pinned(), 0);
    assert_eq!(fixture.status()["kernel"]["attached"], false);
    fixture.limit(ALICE, "512M", &[]);
    let ids = programs_of(fixture.daemon_pid());
    assert!(pinned() > 0 && !ids.is_empty(), "{ids:?}");
    assert_eq!(fixture.status()["kernel"]["attached"], true);
    fixture.limit(support::BOB, "512M", &[]);
    fixture.ok(&["limit", "clear", "60100"]);
    assert!(pinned() > 0);
    fixture.ok(&["limit", "clear", "60101"]);
    assert_eq!(pinned(), 0);
    wait_for("no program of the daemon's is left in the kernel", || {
        ids.iter().all(|id| !program_exists(*id))
    });
}

/// Numbers of the eBPF programs that a process has open.
fn programs_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    texts
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok())
        .collect()
}

/// Whether the kernel still has an eBPF program.
fn program_exists(id: u32) -> bool {
    let shown = std::process::Command::new("bpftool").args(["prog", "show", "id", &id.to_string()]).output();
    // Without bpftool, the daemon's own closed descriptors and the empty pin folder have to do.
    shown.is_ok_and(|output| output.status.success())
}
