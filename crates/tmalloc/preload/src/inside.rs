//! Keeps the library's own needs apart: what the C library allocates for it (a thread's table, a key's second level) must
//! not come from the library, which is in the middle of something then.

use std::ptr;

unsafe extern "C" {
    fn tmalloc_preload_enter() -> libc::c_int;
    fn tmalloc_preload_leave();
    static environ: *const *const libc::c_char;
}

/// While it lives this thread is in the library.
#[derive(Debug)]
#[must_use]
pub(crate) struct Inside(());

impl Inside {
    /// `None`: it is already, or the program has no environment yet, which says where the daemon is. The dynamic linker
    /// allocates before the C library has one.
    pub(crate) fn enter() -> Option<Self> {
        // SAFETY: the C library's variable, read once; the call takes nothing.
        let entered = unsafe { !ptr::addr_of!(environ).read().is_null() && tmalloc_preload_enter() != 0 };
        entered.then_some(Self(()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: takes nothing.
        unsafe { tmalloc_preload_leave() };
    }
}
