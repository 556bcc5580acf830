//! The smallest programs that need one feature each, given to the kernel's verifier.

#![expect(unsafe_code, reason = "libbpf's load and attach calls take raw pointers")]

use libbpf_rs::libbpf_sys;
use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// Opcodes (include/uapi/linux/bpf.h): 64-bit move of a constant and of a register, 64-bit load, jump if equal to a
/// constant, call, exit.
const MOVE: u8 = 0xb7;
const COPY: u8 = 0xbf;
const JUMP_EQUAL: u8 = 0x15;
const LOAD: u8 = 0x79;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `BPF_PSEUDO_KFUNC_CALL`, in a call's source register: the number is a kernel function's type, not a helper's.
const KFUNC: u8 = 2;

/// How a program is to be hung up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hook {
    /// A raw tracepoint that is named at attaching: needs no type information.
    Raw,
    /// The tracepoint whose `btf_trace_` typedef has this number.
    Tracepoint(u32),
    /// The kernel function with this number: needs the kernel's trampolines.
    Function(u32),
    /// The iterator whose `bpf_iter_` function has this number.
    Iterator(u32),
}

fn instruction(code: u8, registers: (u8, u8), constant: u32) -> libbpf_sys::bpf_insn {
    let mut instruction =
        libbpf_sys::bpf_insn { code, imm: constant.cast_signed(), ..libbpf_sys::bpf_insn::default() };
    let (target, source) = registers;
    instruction.set_dst_reg(target);
    instruction.set_src_reg(source);
    instruction
}

fn ending() -> [libbpf_sys::bpf_insn; 2] {
    [instruction(MOVE, (0, 0), 0), instruction(EXIT, (0, 0), 0)]
}

/// Returns 0 and does nothing.
pub(super) fn empty() -> Vec<libbpf_sys::bpf_insn> {
    ending().to_vec()
}

/// Calls `bpf_rdonly_cast(0, type)`.
pub(super) fn casts(kfunc: u32, to_type: u32) -> Vec<libbpf_sys::bpf_insn> {
    let call = [
        instruction(MOVE, (1, 0), 0),
        instruction(MOVE, (2, 0), to_type),
        instruction(CALL, (0, KFUNC), kfunc),
    ];
    call.into_iter().chain(ending()).collect()
}

/// Calls `bpf_send_signal_task(task, 0, PIDTYPE_TGID, 0)` with the task that is the hook's first argument. Only ever
/// verified, never run.
pub(super) fn signals_task(kfunc: u32) -> Vec<libbpf_sys::bpf_insn> {
    let call = [
        instruction(LOAD, (1, 1), 0),
        instruction(MOVE, (2, 0), 0),
        instruction(MOVE, (3, 0), 1),
        instruction(MOVE, (4, 0), 0),
        instruction(CALL, (0, KFUNC), kfunc),
    ];
    call.into_iter().chain(ending()).collect()
}

/// Calls `bpf_task_from_pid(1)`, and gives back what it found. Only ever verified, never run.
pub(super) fn finds_task(from_pid: u32, release: u32) -> Vec<libbpf_sys::bpf_insn> {
    let mut past_the_release = instruction(JUMP_EQUAL, (0, 0), 0);
    past_the_release.off = 2;
    let call = [
        instruction(MOVE, (1, 0), 1),
        instruction(CALL, (0, KFUNC), from_pid),
        past_the_release,
        instruction(COPY, (1, 0), 0),
        instruction(CALL, (0, KFUNC), release),
    ];
    call.into_iter().chain(ending()).collect()
}

/// Has the kernel verify and load a program.
pub(super) fn load(hook: Hook, instructions: &[libbpf_sys::bpf_insn]) -> io::Result<OwnedFd> {
    let (kind, attach, target) = match hook {
        Hook::Raw => (libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0),
        Hook::Tracepoint(target) => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_RAW_TP, target),
        Hook::Function(target) => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_FENTRY, target),
        Hook::Iterator(target) => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_ITER, target),
    };
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach,
        attach_btf_id: target,
        ..Default::default()
    };
    // SAFETY: both names are NUL-terminated, the instructions as many as said, and the options of the size they give;
    // all outlive the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"probe".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    owned(result)
}

/// Attaches a program made for a tracepoint; it is detached when what comes back is dropped.
pub(super) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open; without a name the program's own tracepoint is meant.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}

/// Whether tracing programs may call a helper. True too where the kernel refuses every program: ask [`load`] first.
pub(super) fn has_helper(helper: libbpf_sys::bpf_func_id) -> io::Result<bool> {
    // SAFETY: takes no pointer that is not null. Raw tracepoints have all helpers of `tp_btf` programs that are asked for.
    let result = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            helper,
            std::ptr::null(),
        )
    };
    truth(result)
}

/// Whether maps of a type can be made.
pub(super) fn has_map(kind: libbpf_sys::bpf_map_type) -> io::Result<bool> {
    // SAFETY: takes no pointer that is not null.
    truth(unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, std::ptr::null()) })
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(result.saturating_neg()));
    }
    // SAFETY: a descriptor that the call before made for us, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

fn truth(result: i32) -> io::Result<bool> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.saturating_neg())) } else { Ok(result > 0) }
}
