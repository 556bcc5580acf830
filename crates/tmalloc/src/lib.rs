//! Memory that is granted or refused, never taken back by a kill.
//!
//! A program that allocates here asks Plimsoll's coordinator first and is told no, instead of being killed later. A grant is
//! given when using all of it takes nobody over a line, and is populated before it is handed out: touching it later costs
//! nothing and fails never. How that works, what it covers and what not: docs/tmalloc.md; what is said on the socket:
//! docs/tmalloc-protocol.md.
//!
//! ```no_run
//! use tmalloc::Transaction;
//!
//! let mut both = Transaction::begin();
//! both.reserve(4 << 20);
//! both.reserve(100);
//! let mut blocks = [std::ptr::null_mut(); 2];
//! if both.commit(&mut blocks) {
//!     // Both blocks are there, or none is.
//!     for block in blocks {
//!         // SAFETY: the blocks came from the commit and are used no more.
//!         unsafe { tmalloc::free(block) };
//!     }
//! }
//! ```
//!
//! Nothing here allocates by another allocator, so [`Tmalloc`] can be a program's global one. The modules, from the
//! outside in: `abi` is C's view, `heap` finds blocks, `cache` is a thread's, `arena` and `region` are behind it,
//! `large` beside it; `client` asks, `watch` listens.
#![expect(unsafe_code, reason = "an allocator hands out memory that Rust knows nothing of")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "steps that hold for one reason stand together")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "64-bit machines only, and numbers known when this is built"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("regions are 32 MiB of address space each: only 64-bit machines have it to spare");

mod abi;
mod arena;
mod cache;
mod cancel;
mod class;
mod client;
mod cushion;
mod daemonless;
mod fork;
mod heap;
mod large;
mod lock;
mod mapping;
pub mod message;
mod pages;
mod process;
mod region;
mod socket;
mod transaction;
mod watch;

pub use transaction::Transaction;

use client::{Patience, Refusal};
use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::{c_int, c_void},
    ptr::NonNull,
    time::Duration,
};

/// The allocator, for `#[global_allocator]` or to be called.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tmalloc;

// SAFETY: blocks are aligned and large enough, belong to nobody else until they are given back, and no call unwinds.
unsafe impl GlobalAlloc for Tmalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        heap::or_null(heap::allocate_aligned(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= heap::ALIGNMENT_MIN {
            return heap::or_null(heap::allocate_zeroed(layout.size()));
        }
        let block = heap::allocate_aligned(layout);
        if let Some(block) = block {
            // SAFETY: the block has room for that much, and is ours.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        heap::or_null(block)
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller's to promise.
        unsafe { free(block) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(block) = NonNull::new(block) else { return std::ptr::null_mut() };
        // SAFETY: the caller's to promise.
        heap::or_null(unsafe { heap::resize(block, new_size, layout.align()) })
    }
}

/// What happens while no coordinator answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutDaemon {
    /// No memory.
    Fail,
    /// Memory that nobody was asked for.
    Pass,
}

/// A block of `size` bytes, aligned to 16; `None` when it is refused.
#[must_use]
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    heap::allocate(size)
}

/// A block of `size` bytes that is free in the thread's own cache, for which nobody has to be asked.
#[inline]
#[must_use]
pub fn cached(size: usize) -> Option<NonNull<u8>> {
    heap::cached(size)
}

/// As [`allocate`], all zeros.
#[must_use]
pub fn allocate_zeroed(size: usize) -> Option<NonNull<u8>> {
    heap::allocate_zeroed(size)
}

/// As [`allocate`], aligned to any power of two.
#[must_use]
pub fn allocate_aligned(layout: Layout) -> Option<NonNull<u8>> {
    heap::allocate_aligned(layout)
}

/// Makes a block hold `size` bytes, moving it where it must. `None`: it is as it was.
///
/// # Safety
/// It came from this library, was not given back, and nobody else uses it.
#[must_use]
pub unsafe fn resize(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller's to promise.
    unsafe { heap::resize(block, size, heap::ALIGNMENT_MIN) }
}

/// What a block holds, in bytes.
///
/// # Safety
/// It came from this library and was not given back.
#[must_use]
pub unsafe fn usable_bytes(block: NonNull<u8>) -> usize {
    // SAFETY: the caller's to promise.
    unsafe { heap::usable_bytes(block) }
}

/// A private mapping of memory of the caller's own, at `at` if there is room, and how many bytes of it were granted: its
/// length in whole pages, or 0 where nobody answers and that is to be passed over. `None`: it is refused. What of it is
/// unmapped is told by [`unmapped`].
#[must_use]
pub fn map(at: *mut u8, length: usize, protection: c_int) -> Option<(NonNull<u8>, usize)> {
    mapping::map(at, length, protection)
}

/// A mapping for which nobody is asked, never taken back.
#[must_use]
pub fn map_plain(length: usize) -> Option<NonNull<u8>> {
    mapping::map_plain(length)
}

/// So many bytes that [`map`] was granted are unmapped by now.
pub fn unmapped(bytes: usize) {
    mapping::unmapped(bytes);
}

/// Takes the keys by which the ends of threads are seen, for the program's first thread. Else its first allocation does.
pub fn prepare() {
    cache::prepare();
}

/// Has the first grant be larger by so many bytes (whole pages), for what the program takes without asking while it starts.
pub fn want_cushion(bytes: usize) {
    cushion::want(bytes);
}

/// The calling thread's errno.
#[must_use]
pub fn errno() -> c_int {
    pages::errno()
}

/// Sets the calling thread's errno.
pub fn set_errno(code: c_int) {
    pages::set_errno(code);
}

/// Milliseconds of the monotonic clock.
#[must_use]
pub fn monotonic_ms() -> u64 {
    watch::now_ms()
}

/// A page of this machine, in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    pages::size()
}

/// Whether the environment says what happens while no coordinator answers.
#[must_use]
pub fn is_chosen_by_environment() -> bool {
    daemonless::is_chosen_by_environment()
}

/// Gives a block back; null is none.
///
/// # Safety
/// It came from this library, was not given back, and is used no more.
pub unsafe fn free(block: *mut u8) {
    if let Some(block) = NonNull::new(block) {
        // SAFETY: the caller's to promise.
        unsafe { heap::free(block) };
    }
}

/// A block of `size` bytes as soon as there is one, first come first served. `None`: `timeout` (for ever, without one) is
/// over, or nobody answers.
#[must_use]
pub fn wait(size: usize, timeout: Option<Duration>) -> Option<NonNull<u8>> {
    let patience = match timeout {
        None => Patience::Endless,
        Some(timeout) => Patience::of(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)),
    };
    heap::allocate_patiently(size, patience)
}

/// What would be granted now, in bytes; `usize::MAX` where the user has no line, or nobody answers and that is to be passed
/// over.
#[must_use]
pub fn headroom() -> usize {
    match client::headroom() {
        Ok(bytes) => bytes,
        Err(Refusal::NoDaemon) if daemonless::pass() => usize::MAX,
        Err(_) => 0,
    }
}

/// Has `listener` called whenever the soft limit is reached (`true`) or left, from a thread of this library. `false`:
/// nobody answers now; it will be called all the same once somebody does.
pub fn on_soft(listener: fn(bool)) -> bool {
    watch::listen(Some(call_listener), listener as *mut c_void);
    client::headroom().is_ok()
}

/// Chooses what happens while no coordinator answers; [`WithoutDaemon::Fail`] unless chosen.
pub fn without_daemon(choice: WithoutDaemon) {
    daemonless::choose(match choice {
        WithoutDaemon::Fail => daemonless::FAIL,
        WithoutDaemon::Pass => daemonless::PASS,
    });
}

unsafe extern "C" fn call_listener(reached: c_int, listener: *mut c_void) {
    // SAFETY: `on_soft` gave a function of this type for it.
    let listener: fn(bool) = unsafe { std::mem::transmute(listener) };
    listener(reached != 0);
}
