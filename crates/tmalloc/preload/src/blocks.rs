//! malloc(3) and its family, by libtmalloc.

use crate::{early, inside::Inside};
use std::{
    alloc::Layout,
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};
use tmalloc::{errno, set_errno};

/// What every block is aligned to.
const ALIGNMENT: usize = 16;

/// What a program takes while it starts and does not ask for. After its first question: 1 MiB in python3, most of it data.
const CUSHION_BYTES: usize = 1 << 20;

static READY: AtomicBool = AtomicBool::new(false);

/// A program that knows nothing of the daemon runs without one, unless its environment says otherwise.
pub(crate) fn get_ready() {
    if READY.load(Ordering::Acquire) {
        return;
    }
    if !tmalloc::is_chosen_by_environment() {
        tmalloc::without_daemon(tmalloc::WithoutDaemon::Pass);
    }
    tmalloc::want_cushion(CUSHION_BYTES);
    READY.store(true, Ordering::Release);
}

/// One of the first blocks, or what `ask` gives in the library; else a block of the early ones. Both of these are all zeros.
fn take(layout: Layout, ask: impl FnOnce() -> Option<NonNull<u8>>) -> *mut c_void {
    match early::allocate_first(layout) {
        Some(block) => block.as_ptr().cast(),
        None => ask_for(layout, ask),
    }
}

/// The same without the first blocks.
fn ask_for(layout: Layout, ask: impl FnOnce() -> Option<NonNull<u8>>) -> *mut c_void {
    let before = errno();
    let block = match Inside::enter() {
        Some(_inside) => {
            get_ready();
            ask()
        }
        None => early::allocate(layout),
    };
    let Some(block) = block else { return refuse() };
    // Programs format an error's text with memory that they allocate before they look at it.
    set_errno(before);
    block.as_ptr().cast()
}

#[cold]
fn refuse() -> *mut c_void {
    set_errno(libc::ENOMEM);
    ptr::null_mut()
}

fn plain(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    if let Some(block) = tmalloc::cached(size) {
        return block.as_ptr().cast();
    }
    let Some(layout) = plain(size) else { return refuse() };
    take(layout, || tmalloc::allocate(size))
}

#[unsafe(no_mangle)]
extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    let layout = n.checked_mul(size).and_then(plain);
    let Some(layout) = layout else { return refuse() };
    take(layout, || tmalloc::allocate_zeroed(layout.size()))
}

/// # Safety
/// `p` is null, or came from here and is used no more.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(p: *mut c_void) {
    if early::bytes_of(p.cast()).is_none() {
        // SAFETY: the caller's to promise.
        unsafe { tmalloc::free(p.cast()) };
    }
}

/// # Safety
/// `p` is null, or came from here and was not given back.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    let Some(block) = NonNull::new(p.cast::<u8>()) else { return malloc(size) };
    if size == 0 {
        // As the GNU C library does.
        // SAFETY: the caller's to promise.
        unsafe { free(p) };
        return ptr::null_mut();
    }
    if let Some(bytes) = early::bytes_of(block.as_ptr()) {
        let other = malloc(size).cast::<u8>();
        if !other.is_null() {
            // SAFETY: both hold that much, and they are two.
            unsafe { other.copy_from_nonoverlapping(block.as_ptr(), bytes.min(size)) };
        }
        return other.cast();
    }
    let Some(layout) = plain(size) else { return refuse() };
    // SAFETY: the caller's to promise.
    let moved = ask_for(layout, || unsafe { tmalloc::resize(block, size) });
    if early::bytes_of(moved.cast()).is_some() {
        // The library was busy with something: nothing was moved.
        // SAFETY: both hold that much, they are two, and the caller uses the old one no more.
        unsafe {
            moved
                .cast::<u8>()
                .copy_from_nonoverlapping(block.as_ptr(), tmalloc::usable_bytes(block).min(size));
            free(p);
        }
    }
    moved
}

/// # Safety
/// As [`realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(p: *mut c_void, n: usize, size: usize) -> *mut c_void {
    match n.checked_mul(size) {
        // SAFETY: the caller's to promise.
        Some(bytes) => unsafe { realloc(p, bytes) },
        None => refuse(),
    }
}

fn aligned(alignment: usize, size: usize) -> *mut c_void {
    match Layout::from_size_align(size, alignment.max(ALIGNMENT)) {
        Ok(layout) => take(layout, || tmalloc::allocate_aligned(layout)),
        Err(_too_long) => refuse(),
    }
}

/// # Safety
/// There is room for a pointer at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    let before = errno();
    let block = aligned(alignment, size);
    set_errno(before);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's to promise.
    unsafe { to.write(block) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    aligned(alignment, size)
}

/// Takes the next power of two, as the GNU C library does.
#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    match alignment.checked_next_power_of_two() {
        Some(alignment) => aligned(alignment, size),
        None => {
            set_errno(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned(tmalloc::page_bytes(), size)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = tmalloc::page_bytes();
    size.max(1).checked_next_multiple_of(page).map_or_else(refuse, |size| aligned(page, size))
}

/// # Safety
/// `p` is null, or came from here and was not given back.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(p: *mut c_void) -> usize {
    let Some(block) = NonNull::new(p.cast::<u8>()) else { return 0 };
    // SAFETY: the caller's to promise.
    early::bytes_of(block.as_ptr()).unwrap_or_else(|| unsafe { tmalloc::usable_bytes(block) })
}
