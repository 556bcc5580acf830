//! A lock that a forked child can open by force, which `std`'s cannot be.
//!
//! Nothing allocates here. A thread that forks holds none of these locks, but another thread may: its locks are shut for
//! ever in the child, where that thread does not exist. [`crate::fork`] opens them, and drops what they guard.

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const OPEN: u32 = 0;
const HELD: u32 = 1;
const HELD_AND_WANTED: u32 = 2;
/// What lists take is over before a sleep would have begun.
const SPINS: u32 = 60;

/// Sleeps while `word` holds `expected`, at most `limit` long. May wake for nothing.
pub(crate) fn sleep_while(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let time = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
    });
    let until = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word and the time, which both outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, until) };
}

/// Wakes up to `count` of those who sleep on `word`.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is only an address to the kernel.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count) };
}

/// A value that one thread at a time reaches.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value; statics of this crate hold raw pointers that only the holder follows.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(OPEN), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        if self.state.compare_exchange(OPEN, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Held { lock: self }
    }

    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let taken = self.state.compare_exchange(OPEN, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`: what is made before it is known to be ours opens another's lock when it is dropped.
        taken.then(|| Held { lock: self })
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == OPEN
                && self.state.compare_exchange(OPEN, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(HELD_AND_WANTED, Ordering::Acquire) != OPEN {
            sleep_while(&self.state, HELD_AND_WANTED, None);
        }
    }

    /// The value, whoever holds the lock.
    ///
    /// # Safety
    /// No other thread may exist, and the calling one must not hold it.
    pub(crate) unsafe fn peek(&self) -> &T {
        // SAFETY: the caller is the only thread.
        unsafe { &*self.value.get() }
    }

    /// Opens it, whoever holds it, and puts another value in its place. The old one is forgotten.
    ///
    /// # Safety
    /// No other thread may exist, and the calling one must not hold it.
    pub(crate) unsafe fn start_over(&self, value: T) {
        self.state.store(OPEN, Ordering::Relaxed);
        // SAFETY: the caller is the only thread.
        unsafe { self.value.get().write(value) };
    }
}

/// The right to the value, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(OPEN, Ordering::Release) == HELD_AND_WANTED {
            wake(&self.lock.state, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn who_tries_in_vain_leaves_the_lock_to_its_holder() {
        let lock = Lock::new(());
        let held = lock.lock();
        for _ in 0..3 {
            assert!(lock.try_lock().is_none());
        }
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
