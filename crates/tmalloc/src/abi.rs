//! The C interface, include/tmalloc.h. Nothing else leaves the shared library.

use crate::{
    client::{self, Patience},
    daemonless, heap, pages,
    transaction::Transaction,
    watch,
};
use std::{
    alloc::Layout,
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
};

/// The block, or null with `ENOMEM`.
#[inline(always)]
fn answer(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => refuse(),
    }
}

#[cold]
fn refuse() -> *mut c_void {
    pages::set_errno(libc::ENOMEM);
    ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc(size: usize) -> *mut c_void {
    answer(heap::allocate(size))
}

#[unsafe(no_mangle)]
extern "C" fn tcalloc(n: usize, size: usize) -> *mut c_void {
    answer(n.checked_mul(size).and_then(heap::allocate_zeroed))
}

/// # Safety
/// `p` is null, or came from here and was not given back.
#[unsafe(no_mangle)]
unsafe extern "C" fn trealloc(p: *mut c_void, size: usize) -> *mut c_void {
    match NonNull::new(p.cast::<u8>()) {
        None => tmalloc(size),
        // SAFETY: the caller's to promise.
        Some(block) => answer(unsafe { heap::resize(block, size, heap::ALIGNMENT_MIN) }),
    }
}

#[unsafe(no_mangle)]
extern "C" fn taligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(size, alignment) else {
        let code = if alignment.is_power_of_two() { libc::ENOMEM } else { libc::EINVAL };
        pages::set_errno(code);
        return ptr::null_mut();
    };
    answer(heap::allocate_aligned(layout))
}

/// # Safety
/// `p` is null, or came from here and is used no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn tfree(p: *mut c_void) {
    if let Some(block) = NonNull::new(p.cast::<u8>()) {
        // SAFETY: the caller's to promise.
        unsafe { heap::free(block) };
    }
}

/// # Safety
/// `p` is null, or came from here and was not given back.
#[unsafe(no_mangle)]
unsafe extern "C" fn tmalloc_usable_size(p: *const c_void) -> usize {
    // SAFETY: the caller's to promise.
    NonNull::new(p.cast_mut().cast::<u8>()).map_or(0, |block| unsafe { heap::usable_bytes(block) })
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc_wait(size: usize, timeout_ms: c_int) -> *mut c_void {
    answer(heap::allocate_patiently(size, Patience::of(timeout_ms)))
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc_headroom() -> usize {
    crate::headroom()
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc_soft_fd() -> c_int {
    let descriptor = watch::soft_fd();
    // The watcher starts with a connection.
    let _asked = client::headroom();
    descriptor
}

/// # Safety
/// `callback` may be called with `arg` from another thread until it is replaced.
#[unsafe(no_mangle)]
unsafe extern "C" fn tmalloc_on_soft(callback: Option<watch::Callback>, arg: *mut c_void) -> c_int {
    watch::listen(callback, arg);
    match client::headroom() {
        Ok(_) => 0,
        Err(_) => {
            pages::set_errno(libc::ENOTCONN);
            -1
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc_without_daemon(what: c_int) -> c_int {
    if daemonless::choose(what) {
        return 0;
    }
    pages::set_errno(libc::EINVAL);
    -1
}

#[unsafe(no_mangle)]
extern "C" fn tmalloc_begin() -> *mut Transaction {
    let Some(block) = heap::allocate(size_of::<Transaction>()) else { return refuse().cast() };
    let transaction = block.as_ptr().cast::<Transaction>();
    // SAFETY: the block is large enough, aligned to 16, and ours.
    unsafe { transaction.write(Transaction::begin()) };
    transaction
}

/// # Safety
/// `t` came from [`tmalloc_begin`] and has not ended.
#[unsafe(no_mangle)]
unsafe extern "C" fn tmalloc_reserve(t: *mut Transaction, size: usize) -> c_int {
    // SAFETY: the caller's to promise.
    let index = unsafe { t.as_mut() }.and_then(|transaction| transaction.reserve(size));
    match index.and_then(|index| c_int::try_from(index).ok()) {
        Some(index) => index,
        None => {
            refuse();
            -1
        }
    }
}

/// # Safety
/// `t` came from [`tmalloc_begin`] and has not ended; `blocks` has room for all its blocks.
#[unsafe(no_mangle)]
unsafe extern "C" fn tmalloc_commit(t: *mut Transaction, blocks: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's to promise.
    let Some(transaction) = (unsafe { end(t) }) else { return -1 };
    if transaction.is_empty() {
        return 0;
    }
    // SAFETY: as above.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks.cast::<*mut u8>(), transaction.len()) };
    if transaction.commit(blocks) {
        return 0;
    }
    refuse();
    -1
}

/// # Safety
/// `t` is null, or came from [`tmalloc_begin`] and has not ended.
#[unsafe(no_mangle)]
unsafe extern "C" fn tmalloc_abort(t: *mut Transaction) {
    // SAFETY: the caller's to promise.
    drop(unsafe { end(t) });
}

/// The transaction, out of its block, which is given back.
///
/// # Safety
/// `t` is null, or came from [`tmalloc_begin`] and has not ended.
unsafe fn end(t: *mut Transaction) -> Option<Transaction> {
    let block = NonNull::new(t)?;
    // SAFETY: the caller's to promise; it is read once.
    let transaction = unsafe { block.read() };
    // SAFETY: the block holds nothing any more.
    unsafe { heap::free(block.cast()) };
    Some(transaction)
}
