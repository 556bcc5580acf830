//! What was granted for a program's own mappings: by the page that each begins with, its length. A table of fixed size without
//! a lock, which a forked child could find shut. A mapping that finds no place counts as held until the process ends.

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
};

/// 512 KiB of address space, of which a page is had for each that is used.
const PLACES: usize = 1 << 16;
/// So many are looked at for one mapping.
const TRIES: usize = 64;
const EMPTY: u64 = 0;
/// Nothing any more; others may lie behind it.
const LEFT: u64 = 1;
/// An entry has the number of the first page above this, and below it the length in pages: 36 bits are all pages of 4 KiB that
/// a process has without asking for more than 47 bits of address space.
const LENGTH_BITS: u32 = 28;

static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static PREPARED: AtomicBool = AtomicBool::new(false);

/// A mapping of `bytes` that were granted begins at `address`. How many bytes of an earlier one there turn out to be gone: it
/// went along with its neighbour, or something was put in its place.
pub(crate) fn remember(address: usize, bytes: usize) -> usize {
    let Some(entry) = entry(address, bytes) else { return 0 };
    let Some(table) = table() else { return 0 };
    let gone = forget_one(address, usize::MAX);
    for place in places(table, address) {
        for free in [EMPTY, LEFT] {
            if place.compare_exchange(free, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return gone;
            }
        }
    }
    gone
}

/// The first `bytes` from `address` on are not to be remembered any more, of as many mappings as follow each other there. How
/// many of them were.
pub(crate) fn forget(address: usize, bytes: usize) -> usize {
    let mut all = 0;
    while all < bytes {
        match forget_one(address + all, bytes - all) {
            0 => break,
            gone => all += gone,
        }
    }
    all
}

fn forget_one(address: usize, bytes: usize) -> usize {
    let page = tmalloc::page_bytes();
    let Some(table) = known() else { return 0 };
    for place in places(table, address) {
        let found = place.load(Ordering::Acquire);
        if found == EMPTY {
            return 0;
        }
        if found >> LENGTH_BITS != first_page(address) || found == LEFT {
            continue;
        }
        if place.compare_exchange(found, LEFT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return 0;
        }
        let length = usize::try_from(found & ((1 << LENGTH_BITS) - 1)).unwrap_or(0) * page;
        let gone = bytes.checked_next_multiple_of(page).unwrap_or(length).min(length);
        if gone < length {
            remember(address + gone, length - gone);
        }
        return gone;
    }
    0
}

fn first_page(address: usize) -> u64 {
    u64::try_from(address / tmalloc::page_bytes()).unwrap_or(u64::MAX)
}

fn entry(address: usize, bytes: usize) -> Option<u64> {
    let (first, length) = (first_page(address), u64::try_from(bytes / tmalloc::page_bytes()).ok()?);
    (first > 0 && first >> (u64::BITS - LENGTH_BITS) == 0 && length > 0 && length >> LENGTH_BITS == 0)
        .then_some(first << LENGTH_BITS | length)
}

/// Where a mapping may be, in order.
fn places(table: &[AtomicU64; PLACES], address: usize) -> impl Iterator<Item = &AtomicU64> {
    // Golden-ratio hashing.
    let hash = first_page(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2());
    let start = usize::try_from(hash).unwrap_or(0);
    table.iter().cycle().skip(start).take(TRIES)
}

/// The table, if something was remembered.
fn known() -> Option<&'static [AtomicU64; PLACES]> {
    // SAFETY: mapped for good, all zeros at first, and only reached as atomics.
    unsafe { TABLE.load(Ordering::Acquire).cast::<[AtomicU64; PLACES]>().as_ref() }
}

/// The table, made where there is none; `None`: there is no address space for it.
fn table() -> Option<&'static [AtomicU64; PLACES]> {
    if !PREPARED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler takes nothing and does no more than a forked child may.
        unsafe { libc::pthread_atfork(None, None, Some(begin_anew)) };
    }
    if known().is_none() {
        let made = tmalloc::map_plain(size_of::<[AtomicU64; PLACES]>())?.as_ptr().cast::<AtomicU64>();
        // Another thread's stays: this one is a few pages of address space that nobody touches.
        TABLE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).ok();
    }
    known()
}

/// A forked child was granted nothing of what it inherited.
unsafe extern "C" fn begin_anew() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
}
