//! What the daemon needs of the kernel besides BPF, and what the machine has.

use super::Answer;
use crate::{
    cgroup::CgroupMount,
    kernel_log::{KMSG_PATH, KernelLog},
    process::{BPFFS_PATH, PidFd, ProcRoot, Reap, is_bpffs, signal_nothing},
};
use plimsoll_policy::units::{Bytes, Pid};
use rustix::{process::geteuid, thread::CapabilitySet};
use std::{
    fs, io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::Path,
};

/// The inode of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// This is the initial pid namespace, whose process numbers BPF programs tell.
    pub initial_pid_namespace: Answer,
    /// A BPF filesystem is mounted where every distribution has it.
    pub bpffs: Answer,
    /// `pidfd_open(2)` and `pidfd_send_signal(2)`, which a filter can forbid.
    pub pidfd: Answer,
    /// `process_mrelease(2)`, likewise.
    pub process_mrelease: Answer,
    /// Pressure stall information of memory.
    pub pressure: Answer,
    /// The kernel's log can be read.
    pub kernel_log: Answer,
    /// The memory controller of cgroup v2.
    pub memory_controller: Answer,
    /// systemd is the init.
    pub systemd: Answer,
    /// The multi-generational LRU, and it is on.
    pub multi_gen_lru: Answer,
    /// There is swap space.
    pub swap: Answer,
    /// Capabilities that a process started by root from here can have; `None` where they cannot be read.
    pub capabilities: Option<CapabilitySet>,
}

/// Tries everything; changes nothing.
#[must_use]
pub fn probe_machine() -> MachineFacts {
    MachineFacts {
        initial_pid_namespace: initial_pid_namespace(),
        bpffs: bpffs(),
        pidfd: pidfd(),
        process_mrelease: process_mrelease(),
        pressure: pressure(Path::new("/proc/pressure/memory")),
        kernel_log: match KernelLog::open() {
            Ok(_log) => Answer::Present,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && !geteuid().is_root() => {
                Answer::Unknown(format!("{KMSG_PATH}: it needs root (CAP_SYSLOG)"))
            }
            Err(error) => Answer::Absent(format!("{KMSG_PATH}: {error}")),
        },
        memory_controller: memory_controller(),
        systemd: systemd(Path::new("/run/systemd/system")),
        multi_gen_lru: multi_gen_lru(Path::new("/sys/kernel/mm/lru_gen/enabled")),
        swap: swap(),
        capabilities: capabilities(),
    }
}

/// Whether this process is in the initial pid namespace. Everywhere else the process numbers in the kernel's records
/// are not the ones that this process could signal.
///
/// # Errors
/// `/proc` does not tell.
pub fn in_initial_pid_namespace() -> io::Result<bool> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino() == INITIAL_PID_NAMESPACE)
}

fn initial_pid_namespace() -> Answer {
    match in_initial_pid_namespace() {
        Ok(initial) => Answer::of(initial, "this is a pid namespace of its own, as in a container"),
        Err(error) => Answer::Unknown(format!("/proc/self/ns/pid: {error}")),
    }
}

fn bpffs() -> Answer {
    match is_bpffs(Path::new(BPFFS_PATH)) {
        Ok(mounted) => Answer::of(mounted, "nothing of that kind is mounted on /sys/fs/bpf"),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

fn own_pidfd() -> Result<PidFd, crate::process::ProcessError> {
    PidFd::open(Pid(std::process::id()))
}

fn pidfd() -> Answer {
    let pidfd = match own_pidfd() {
        Ok(pidfd) => pidfd,
        Err(error) => return Answer::Absent(error.to_string()),
    };
    match signal_nothing(pidfd.as_fd()) {
        Ok(()) => Answer::Present,
        Err(error) => Answer::Absent(format!("pidfd_send_signal: {error}")),
    }
}

/// Asked for this very process, which is not dying: the kernel refuses after it has looked at that.
fn process_mrelease() -> Answer {
    match own_pidfd().map(|pidfd| pidfd.reap()) {
        Ok(Reap::NotDying) => Answer::Present,
        Ok(Reap::Unsupported) => Answer::Absent("a filter forbids the call".to_owned()),
        Ok(other) => Answer::Unknown(format!("the kernel answers with {other:?}")),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

fn pressure(file: &Path) -> Answer {
    match fs::read(file) {
        Ok(_) => Answer::Present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Answer::Absent("the kernel is built without it".to_owned())
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Answer::Absent("it is switched off: add psi=1 to the kernel's command line".to_owned())
        }
        Err(error) => Answer::Unknown(format!("{}: {error}", file.display())),
    }
}

fn memory_controller() -> Answer {
    let mounts = match CgroupMount::all() {
        Ok(mounts) => mounts,
        Err(error) => return Answer::Unknown(format!("/proc/self/mountinfo: {error}")),
    };
    if !mounts.iter().any(|mount| mount.unified) {
        return Answer::Absent("cgroup v2 is not mounted".to_owned());
    }
    let has = mounts.iter().any(CgroupMount::has_memory);
    Answer::of(has, "cgroup v2 is mounted without it: version 1 has it, or it is switched off")
}

/// As `sd_booted(3)` tells it.
fn systemd(folder: &Path) -> Answer {
    Answer::of(folder.is_dir(), "another init runs here, or none")
}

fn multi_gen_lru(file: &Path) -> Answer {
    match fs::read_to_string(file) {
        // Bit 0 is the main switch (Documentation/admin-guide/mm/multigen_lru.rst).
        Ok(text) => match u32::from_str_radix(text.trim().trim_start_matches("0x"), 16) {
            Ok(mask) => Answer::of(mask & 1 == 1, "the kernel has it, switched off"),
            Err(error) => Answer::Unknown(format!("{}: {error}", file.display())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Answer::Absent("the kernel is built without it".to_owned())
        }
        Err(error) => Answer::Unknown(format!("{}: {error}", file.display())),
    }
}

fn swap() -> Answer {
    match ProcRoot::open(Path::new("/proc")).and_then(|mut proc| proc.read_meminfo()) {
        Ok(info) => match info.swap_total {
            Some(total) => Answer::of(total > Bytes(0), "no swap space is in use"),
            None => Answer::Unknown("/proc/meminfo does not tell".to_owned()),
        },
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

/// Root's own where this is root, else what root could have: nobody gets what is not in the bounding set.
fn capabilities() -> Option<CapabilitySet> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let name = if rustix::process::geteuid().is_root() { "CapEff:" } else { "CapBnd:" };
    let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(CapabilitySet::from_bits_retain)
}

/// The name of one capability, as in `capabilities(7)`.
#[must_use]
pub fn capability_name(capability: CapabilitySet) -> String {
    let names: Vec<&str> = capability.iter_names().map(|(name, _)| name).collect();
    format!("CAP_{}", names.join("|"))
}

#[cfg(test)]
mod tests;
