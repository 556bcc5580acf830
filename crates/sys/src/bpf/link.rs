//! Links: a pinned iterator opened without its path, one made for a single task, a program hung on its tracepoint.

#![expect(unsafe_code, reason = "libbpf's link calls take raw pointers")]

use libbpf_rs::libbpf_sys;
use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

/// The descriptor that a call of libbpf made, or what went wrong.
pub(crate) fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(result.saturating_neg()));
    }
    // SAFETY: a descriptor that the kernel has just made for us, and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Opens what is pinned, a link or a program.
pub(super) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Pins a link where there is nothing yet.
pub(super) fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

/// Begins one walk of an iterator: to be read to its end.
pub(super) fn begin_walk(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })
}

/// An iterator over the one task of this number, in the pid namespace of who asks (Linux 6.1).
pub(super) fn iterate_task(program: BorrowedFd<'_>, number: u32) -> io::Result<OwnedFd> {
    let mut which = libbpf_sys::bpf_iter_link_info::default();
    which.task.tid = number;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        iter_info: &raw mut which,
        iter_info_len: u32::try_from(size_of::<libbpf_sys::bpf_iter_link_info>()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: the options are of the size they give, and they and what they point to outlive the call.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, libbpf_sys::BPF_TRACE_ITER, &raw const options)
    })
}

/// Attaches a program made for one tracepoint; it is detached when what comes back is dropped, at the latest at our end.
pub(super) fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: without a name the program's own tracepoint is meant; takes no other pointer.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}
