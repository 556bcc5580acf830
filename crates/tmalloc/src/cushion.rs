//! What a program takes without asking while it starts: its data, that of its libraries, its stack. In a program that was not
//! written for this library the first grant is larger by so much, and stays open for some seconds: such pages are charged to
//! what is left of it, and nobody else is granted them meanwhile.

use crate::{pages, watch};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// For how long it is there.
const OPEN_MS: u64 = 3000;
/// Under a line of less than so many cushions it is a part of the line.
const SHARE: u64 = 64;

/// What is wanted beside the first grant, in bytes; 0: nothing, or it was had.
static WANTED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Milliseconds of the monotonic clock when it was had; 0: there is none.
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

/// The first grant is to have one.
pub(crate) fn want(bytes: usize) {
    WANTED_BYTES.store(bytes, Ordering::Relaxed);
}

/// What to ask for beside a grant; [`keep`] or [`want`] must follow where it is more than 0.
pub(crate) fn take_wanted() -> usize {
    match WANTED_BYTES.load(Ordering::Relaxed) {
        0 => 0,
        _ => WANTED_BYTES.swap(0, Ordering::Relaxed),
    }
}

/// A smaller one, where there is no room for `bytes` under a line of `line_bytes`; `None`: it would be no smaller.
pub(crate) fn smaller(bytes: usize, line_bytes: u64) -> Option<usize> {
    let share = usize::try_from(line_bytes / SHARE).unwrap_or(usize::MAX) / pages::size() * pages::size();
    (share < bytes).then_some(share)
}

/// It is there.
pub(crate) fn keep() {
    SINCE_MS.store(watch::now_ms().max(1), Ordering::Relaxed);
}

/// Whether it has been there for long enough; once.
pub(crate) fn is_over() -> bool {
    let since = SINCE_MS.load(Ordering::Relaxed);
    since > 0
        && watch::now_ms().saturating_sub(since) >= OPEN_MS
        && SINCE_MS.compare_exchange(since, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// There is none any more: its connection is gone, or this is a forked child, of whose pages none was granted.
pub(crate) fn forget() {
    SINCE_MS.store(0, Ordering::Relaxed);
}
