//! Mappings that a program makes for itself, granted as large blocks are: for the library that is preloaded.

use crate::{
    arena,
    client::{self, Patience, Refusal},
    daemonless, fork,
    large::{HUGE_PAGE_BYTES, conclude},
    pages,
};
use std::ptr::NonNull;

const KIND: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// See [`crate::map`].
pub(crate) fn map(at: *mut u8, length: usize, protection: libc::c_int) -> Option<(NonNull<u8>, usize)> {
    let length = pages::round_up(length)?;
    fork::prepare();
    let _growing = arena::growing(Patience::None);
    match client::reserve(length, Patience::None) {
        Ok(grant) => {
            let mapped = populated(at, length, protection);
            conclude(&grant, mapped.err());
            mapped.ok().map(|mapped| (mapped, length))
        }
        Err(Refusal::NoDaemon) if daemonless::pass() => {
            plain(at, length, protection).map(|mapped| (mapped, 0))
        }
        Err(_) => None,
    }
}

fn plain(at: *mut u8, length: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
    NonNull::new(pages::map(at, length, protection, KIND))
}

/// `Err`: the kernel has no more; bytes that were populated in vain, and are unmapped again.
fn populated(at: *mut u8, length: usize, protection: libc::c_int) -> Result<NonNull<u8>, usize> {
    let mapped = plain(at, length, protection).ok_or(0_usize)?;
    if length < HUGE_PAGE_BYTES {
        pages::small_pages_only(mapped.as_ptr(), length);
    }
    if pages::populate(mapped.as_ptr(), length) {
        return Ok(mapped);
    }
    let bytes = pages::populated_bytes(mapped.as_ptr(), length);
    pages::give_space(mapped.as_ptr(), length);
    Err(bytes)
}

/// See [`crate::map_plain`].
pub(crate) fn map_plain(length: usize) -> Option<NonNull<u8>> {
    plain(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE)
}

/// See [`crate::unmapped`].
pub(crate) fn unmapped(bytes: usize) {
    arena::hold_less(bytes);
    client::give_back(bytes);
}
