//! A pinned `SEC("syscall")` program, called with a C structure that it reads and fills.

#![expect(unsafe_code, reason = "libbpf's test-run call takes raw pointers")]

use super::{error::BpfError, site::Call};
use libbpf_rs::{Program, libbpf_sys};
use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
};

/// A program that is called.
#[derive(Debug)]
pub struct SyscallProgram {
    fd: OwnedFd,
    name: &'static str,
}

impl SyscallProgram {
    pub(super) fn open(path: &Path, name: &'static str) -> Result<Self, BpfError> {
        Program::fd_from_pinned_path(path).map(|fd| Self { fd, name }).map_err(|error| BpfError::Pin {
            path: path.to_path_buf(),
            operation: "open program",
            cause: error.to_string(),
        })
    }

    fn run_raw(&self, context: *mut u8, bytes: u32) -> Result<u32, BpfError> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: context.cast_const().cast(),
            ctx_size_in: bytes,
            ..Default::default()
        };
        // SAFETY: `context` is null with 0 bytes or a live structure of `bytes` bytes (`run`). A syscall program's
        // context is copied in and, by the kernel, back to `ctx_in` (kernel/bpf/syscall.c, 6.1 to 7.2).
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.fd.as_raw_fd(), &raw mut options) };
        if result < 0 { Err(self.error(result)) } else { Ok(options.retval) }
    }
}

impl Call for SyscallProgram {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run<T: Copy>(&self, context: &mut T) -> Result<u32, BpfError> {
        self.run_raw((&raw mut *context).cast(), u32::try_from(size_of::<T>()).unwrap_or(u32::MAX))
    }

    fn run_bare(&self) -> Result<u32, BpfError> {
        self.run_raw(std::ptr::null_mut(), 0)
    }
}
