//! The library as a Rust program's global allocator: everything the program does, threads and their ends included.
#![cfg(test)]
#![expect(unsafe_code, reason = "an allocator is what is tested")]

mod fake;

use fake::{Coordinator, scenario as named};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    sync::atomic::{AtomicU8, Ordering},
    thread,
};
use tmalloc::Tmalloc;

/// The library in scenarios, which are told of their coordinator by the environment; the system's allocator in the runner.
struct ByRole;

#[global_allocator]
static MEMORY: ByRole = ByRole;

const UNKNOWN: u8 = 0;
const SCENARIO: u8 = 1;
const RUNNER: u8 = 2;

fn is_scenario() -> bool {
    static ROLE: AtomicU8 = AtomicU8::new(UNKNOWN);
    if ROLE.load(Ordering::Relaxed) == UNKNOWN {
        // SAFETY: looks a name up, and allocates nothing.
        let found = unsafe { libc::getenv(c"PLIMSOLL_TMALLOC_SOCKET".as_ptr()) };
        ROLE.store(if found.is_null() { RUNNER } else { SCENARIO }, Ordering::Relaxed);
    }
    ROLE.load(Ordering::Relaxed) == SCENARIO
}

// SAFETY: every block goes back to the allocator it came from: a process's role does not change.
unsafe impl GlobalAlloc for ByRole {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_scenario() {
            // SAFETY: the caller's to promise.
            unsafe { Tmalloc.alloc(layout) }
        } else {
            // SAFETY: as above.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_scenario() {
            // SAFETY: the caller's to promise.
            unsafe { Tmalloc.dealloc(block, layout) };
        } else {
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_scenario() {
            // SAFETY: the caller's to promise.
            unsafe { Tmalloc.realloc(block, layout, size) }
        } else {
            // SAFETY: as above.
            unsafe { System.realloc(block, layout, size) }
        }
    }
}

#[test]
fn a_program_lives_by_it_and_is_told_no_where_it_can_be() {
    let coordinator = Coordinator::start(32 << 20);
    coordinator.run("live");
    let books = coordinator.books();
    assert!(books.grants > 20 && books.refusals > 0, "{books:?}");
    assert!(books.all_settled(), "{books:?}");
}

/// One scenario, in a process of its own.
#[test]
fn scenario() {
    if named().as_deref() == Some("live") {
        live();
    }
}

fn live() {
    let workers: Vec<_> = (0..20)
        .map(|number: u32| {
            thread::spawn(move || {
                let words: BTreeMap<String, Vec<u32>> =
                    (0..500).map(|at| (format!("{at} of {number}"), vec![at; 50])).collect();
                words.values().map(|list| list.iter().sum::<u32>()).sum::<u32>()
            })
        })
        .collect();
    let sums: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert_eq!(sums, vec![50 * 499 * 500 / 2; 20]);
    let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(10_000);
    loop {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(11 << 12).is_err() {
            break;
        }
        piece.resize(11 << 12, 7);
        pieces.push(piece);
    }
    assert!(pieces.len() > 100 && pieces.iter().flatten().all(|byte| *byte == 7));
}
