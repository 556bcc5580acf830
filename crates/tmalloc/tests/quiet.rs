//! Nothing inside of the library calls malloc: this program's own malloc counts.
#![cfg(test)]
#![expect(unsafe_code, reason = "puts itself in malloc's place")]

mod fake;

use fake::{Coordinator, scenario as named};
use std::{
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering},
};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(p: *mut c_void, size: usize) -> *mut c_void;
}

/// Calls while somebody counted, of this thread and of others.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// The main thread is the test runner's, which allocates while it waits.
fn count() {
    // SAFETY: asks for a number.
    if unsafe { libc::gettid() }.cast_unsigned() != std::process::id() {
        CALLS.fetch_add(COUNTING.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the C library's own.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the C library's own.
    unsafe { __libc_calloc(n, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the C library's own.
    unsafe { __libc_realloc(p, size) }
}

#[test]
fn a_program_can_allocate_for_long_without_one_call_of_malloc() {
    let coordinator = Coordinator::start(64 << 20);
    coordinator.run("quiet");
    assert!(coordinator.books().grants > 5);
    assert!(coordinator.books().refusals > 0);
}

/// One scenario, in a process of its own.
#[test]
fn scenario() {
    if named().as_deref() == Some("quiet") {
        quiet();
    }
}

fn quiet() {
    COUNTING.store(1, Ordering::SeqCst);
    let first = tmalloc::allocate(100).unwrap();
    // The watcher starts with the first mebibyte.
    let much = tmalloc::allocate(2 << 20).unwrap();
    // SAFETY: used no more.
    unsafe { tmalloc::free(much.as_ptr()) };
    // The C library's pthread_create() takes the new thread's table of thread-locals from calloc, once, for the watcher.
    let starting = CALLS.swap(0, Ordering::SeqCst);
    for round in 0..50_usize {
        let mut blocks = [first; 400];
        for (at, block) in blocks.iter_mut().enumerate() {
            *block = tmalloc::allocate(at * (round * 7 % 300)).unwrap();
        }
        for block in blocks {
            // SAFETY: used no more.
            unsafe { tmalloc::free(block.as_ptr()) };
        }
        let large = tmalloc::allocate(1 << 20).unwrap();
        // SAFETY: used no more.
        unsafe { tmalloc::free(large.as_ptr()) };
        assert!(tmalloc::allocate(100 << 20).is_none());
    }
    let calls = CALLS.swap(0, Ordering::SeqCst);
    COUNTING.store(0, Ordering::SeqCst);
    assert!(starting <= 1, "{starting} calls while it started");
    assert_eq!(calls, 0);
}
