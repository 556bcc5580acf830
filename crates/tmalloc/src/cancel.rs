//! Keeps pthread_cancel(3) out of a talk with the coordinator.
//!
//! A thread that ended at one of its system calls would leave a lock shut, a slot taken or a grant unsettled.

use std::ffi::c_int;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives the calling thread is not cancelled; a request to do so waits.
#[derive(Debug)]
#[must_use]
pub(crate) struct Uncancelled {
    before: c_int,
}

pub(crate) fn hold_off() -> Uncancelled {
    let mut before = 0;
    // SAFETY: there is room for a state.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    Uncancelled { before }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut held_off = 0;
        // SAFETY: the state is what the thread had, and there is room for the present one.
        unsafe { pthread_setcancelstate(self.before, &raw mut held_off) };
    }
}
