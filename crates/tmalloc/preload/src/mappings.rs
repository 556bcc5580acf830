//! mmap(2), munmap(2) and mremap(2): memory that a program maps for itself, as interpreters and compilers do, is granted like
//! a block.

use crate::{
    blocks,
    inside::Inside,
    refused,
    table::{forget, remember},
};
use std::{
    ffi::{c_int, c_void},
    ptr,
};
use tmalloc::{errno, set_errno};

/// What is granted: memory of the process's own that it may write at once. Who says NORESERVE maps more than it means to use,
/// stacks grow as they are used, and where a place is demanded something may lie there.
fn is_memory(length: usize, protection: c_int, flags: c_int) -> bool {
    const KIND: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    /// What changes nothing about it.
    const HARMLESS: c_int = libc::MAP_POPULATE | libc::MAP_NONBLOCK;
    const WRITABLE: c_int = libc::PROT_READ | libc::PROT_WRITE;
    length > 0 && flags & !HARMLESS == KIND && protection & WRITABLE == WRITABLE
}

/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    if is_memory(length, protection, flags)
        && let Some(_inside) = Inside::enter()
    {
        blocks::get_ready();
        let before = errno();
        if refused::lately(length) {
            set_errno(libc::ENOMEM);
            return libc::MAP_FAILED;
        }
        let Some((mapped, granted)) = tmalloc::map(at.cast(), length, protection) else {
            refused::note(length);
            set_errno(libc::ENOMEM);
            return libc::MAP_FAILED;
        };
        if granted > 0 {
            give_back(remember(mapped.as_ptr().addr(), granted));
        }
        set_errno(before);
        return mapped.as_ptr().cast();
    }
    // SAFETY: the caller's to promise.
    let result = unsafe { libc::syscall(libc::SYS_mmap, at, length, protection, flags, file, offset) };
    place(result)
}

/// What a call answers that gives an address: MAP_FAILED is -1.
fn place(result: libc::c_long) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(result.cast_unsigned()).unwrap_or(usize::MAX))
}

/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's to promise.
    unsafe { mmap(at, length, protection, flags, file, offset) }
}

/// # Safety
/// As munmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, length: usize) -> c_int {
    // Before: the next one to map this place must not find it.
    let granted = forget(at.addr(), length);
    // SAFETY: the caller's to promise.
    let result = unsafe { libc::syscall(libc::SYS_munmap, at, length) };
    if result != 0 {
        if granted > 0 {
            remember(at.addr(), granted);
        }
        return -1;
    }
    give_back(granted);
    0
}

/// What is moved or made longer is held as before; what is added was not granted.
///
/// # Safety
/// As mremap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    at: *mut c_void,
    length: usize,
    wanted: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let granted = forget(at.addr(), length);
    // SAFETY: the caller's to promise.
    let result = unsafe { libc::syscall(libc::SYS_mremap, at, length, wanted, flags, to) };
    let moved = place(result);
    if granted > 0 && moved == libc::MAP_FAILED {
        remember(at.addr(), granted);
    } else if granted > 0 {
        let kept = granted.min(wanted.next_multiple_of(tmalloc::page_bytes()));
        give_back(granted - kept + remember(moved.addr(), kept));
    }
    moved
}

fn give_back(bytes: usize) {
    if bytes > 0 {
        let before = errno();
        tmalloc::unmapped(bytes);
        refused::forget();
        set_errno(before);
    }
}
