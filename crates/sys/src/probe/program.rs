//! The smallest program, given to the kernel to see whether it takes any.

#![expect(unsafe_code, reason = "libbpf's load call takes raw pointers")]

use super::Answer;
use crate::bpf::{
    owned,
    types::{find, kernel_types},
};
use libbpf_rs::{
    btf::{Btf, BtfKind},
    libbpf_sys,
};
use std::{io, os::fd::OwnedFd};

/// Opcodes (include/uapi/linux/bpf.h): 64-bit move of a constant, exit.
const MOVE: u8 = 0xb7;
const EXIT: u8 = 0x95;

const NEEDS_ROOT: &str = "loading a program needs root (CAP_BPF and CAP_PERFMON)";

/// Whether the kernel takes any program of this process.
pub(super) fn may_load() -> Answer {
    answer(load(None))
}

/// Whether programs can be loaded for a kernel function of this name: a kernel may have been built without trampolines, or
/// refuse them.
#[must_use]
pub fn function_hooks(function: &str) -> Answer {
    match kernel_types() {
        Ok(types) => function_hooks_of(&types, function),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

/// The same, where the kernel's types have been read.
pub(crate) fn function_hooks_of(types: &Btf<'static>, function: &str) -> Answer {
    match (may_load(), find(types, BtfKind::Func, function)) {
        (_, None) => Answer::Absent(format!("the kernel has no '{function}'")),
        (Answer::Present, Some(target)) => answer(load(Some(target.into()))),
        (cannot, Some(_)) => cannot,
    }
}

/// Missing rights say nothing about the kernel, unless root itself lacks them: then something forbids BPF here.
fn answer(loaded: io::Result<OwnedFd>) -> Answer {
    let Err(error) = loaded else { return Answer::Present };
    let permission = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    match (permission, rustix::process::geteuid().is_root()) {
        (true, false) => Answer::Unknown(NEEDS_ROOT.to_owned()),
        (true, true) => Answer::Absent(format!(
            "the kernel refuses it to root ({error}): a container, a security module or kernel lockdown forbids it"
        )),
        (false, _) => Answer::Absent(format!("the kernel refuses it: {error}")),
    }
}

/// Has the kernel load a program that returns 0, for the function with this type or else for a raw tracepoint.
fn load(function: Option<u32>) -> io::Result<OwnedFd> {
    let instructions = [MOVE, EXIT].map(|code| libbpf_sys::bpf_insn { code, ..Default::default() });
    let kind = match function {
        Some(_) => libbpf_sys::BPF_PROG_TYPE_TRACING,
        None => libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
    };
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: if function.is_some() { libbpf_sys::BPF_TRACE_FENTRY } else { 0 },
        attach_btf_id: function.unwrap_or_default(),
        ..Default::default()
    };
    // SAFETY: both names are NUL-terminated, the instructions as many as said, and the options of the size they give;
    // all outlive the call.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"probe".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    })
}
