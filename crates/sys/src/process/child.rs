//! A program started by us that must not outlive us, nor have what we have.

#![expect(unsafe_code, reason = "what runs between fork and exec is for the caller to keep harmless")]

use rustix::{
    fs::{Mode, OFlags, open},
    io::write,
    process::{Signal, getpid, getppid, set_parent_process_death_signal, setpriority_process},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs},
};
use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command},
};

/// Starts a program that the kernel ends (SIGKILL) when the thread that calls this ends, however that comes about. It is an
/// ordinary program: nice 0 and `oom_score_adj` 0, whatever ours are, and of our capabilities it has none but `kept`, nor
/// can it gain one: what runs as root gains at exec only what is permitted before, under `no_new_privs`
/// (`cap_bprm_creds_from_file`, security/commoncap.c). The bounding set stays: taking from it needs `CAP_SETPCAP`.
///
/// # Errors
/// What the kernel said.
pub fn spawn_bound(command: &mut Command, kept: CapabilitySet) -> io::Result<Child> {
    let us = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have died before that: then nobody would be told.
        if getppid() != Some(us) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        setpriority_process(None, 0)?;
        let score = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        write(&score, b"0")?;
        set_no_new_privs(true)?;
        let now = capabilities(None)?;
        let (effective, permitted) = (now.effective & kept, now.permitted & kept);
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
        Ok(())
    };
    // SAFETY: system calls only, which allocate nothing and take no lock, between fork and exec.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

#[cfg(test)]
mod tests;
