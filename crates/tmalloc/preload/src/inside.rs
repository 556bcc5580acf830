//! Keeps the library's own needs apart: what the C library allocates for it (a thread's table, a key's second level) must
//! not come from the library, which is in the middle of something then.

use std::{
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

unsafe extern "C" {
    fn tmalloc_preload_enter() -> libc::c_int;
    fn tmalloc_preload_leave();
    static environ: *const *const libc::c_char;
}

/// The program has had an environment: it may do without one later.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Looked at once before the program runs, and at each slow call until then.
pub(crate) fn has_started() -> bool {
    if STARTED.load(Ordering::Relaxed) {
        return true;
    }
    // SAFETY: the C library's variable, read once.
    let started = unsafe { !ptr::addr_of!(environ).read().is_null() };
    STARTED.store(started, Ordering::Relaxed);
    started
}

/// While it lives this thread is in the library.
#[derive(Debug)]
#[must_use]
pub(crate) struct Inside(());

impl Inside {
    /// `None`: it is already, or the program has no environment yet, which says where the daemon is. The dynamic linker
    /// allocates before the C library has one.
    pub(crate) fn enter() -> Option<Self> {
        // SAFETY: takes nothing.
        let entered = has_started() && unsafe { tmalloc_preload_enter() != 0 };
        // Not `then_some`: what is made in vain ends what another call of this thread's began when it is dropped.
        entered.then(|| Self(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: takes nothing.
        unsafe { tmalloc_preload_leave() };
    }
}
