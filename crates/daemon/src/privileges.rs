//! What the daemon may do once it runs: everything it does not need is given up before the first thread starts, for
//! good, and for every child.
//!
//! The `journalctl` that is run where another killer writes to the journal has no more than `CAP_DAC_READ_SEARCH` of it, and
//! neither our priority nor our `oom_score_adj` ([`plimsoll_sys::process::spawn_bound`]).

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Each capability that stays, and why.
pub const KEPT: [(CapabilitySet, &str); 12] = [
    (CapabilitySet::KILL, "signals the processes of every user"),
    (CapabilitySet::SYS_PTRACE, "looks at /proc/PID/exe of every user, to know protected programs"),
    (CapabilitySet::BPF, "reads and writes its maps, calls its programs; the loader loads them"),
    (CapabilitySet::PERFMON, "the loader loads tracing programs"),
    (
        CapabilitySet::SYS_ADMIN,
        "enumerates and pins on kernels where CAP_BPF alone does not, runs the task iterator, and is what systemd asks \
         for before it changes a slice",
    ),
    (
        CapabilitySet::SYS_RESOURCE,
        "lowers its own oom_score_adj, locks map memory; the thread that raises others gives it up",
    ),
    (CapabilitySet::SYS_NICE, "raises the reaper's priority, and frees memory of others (process_mrelease)"),
    (CapabilitySet::IPC_LOCK, "locks its own memory, and that of files in use"),
    (
        CapabilitySet::SYS_CHROOT,
        "looks for files in use that only containers have mounted, in their mount namespaces",
    ),
    (
        CapabilitySet::DAC_OVERRIDE,
        "writes its state folder and socket wherever they were put, and oom_score_adj of every user's processes",
    ),
    (CapabilitySet::DAC_READ_SEARCH, "reads /proc of every user under hidepid; its journalctl, journals"),
    (CapabilitySet::CHOWN, "owns what it makes in folders of other owners"),
];

/// Gives up every other capability, in the bounding set too, and forbids gaining any by exec.
///
/// # Errors
/// What the kernel said; what was given up until then stays given up.
pub(crate) fn drop_others() -> rustix::io::Result<()> {
    set_no_new_privs(true)?;
    let kept = KEPT.iter().fold(CapabilitySet::empty(), |set, (one, _)| set | *one);
    for capability in CapabilitySet::all().iter().filter(|one| !kept.contains(*one)) {
        match remove_capability_from_bounding_set(capability) {
            // This kernel does not know it, or it was never ours to remove.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    let now = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.effective & kept,
            permitted: now.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_listed_once_with_a_reason() {
        let all = KEPT.iter().fold(CapabilitySet::empty(), |set, (one, _)| set | *one);
        assert_eq!(all.iter().count(), KEPT.len());
        assert!(KEPT.iter().all(|(_, reason)| !reason.is_empty()));
        for unwanted in [CapabilitySet::NET_ADMIN, CapabilitySet::SYS_MODULE, CapabilitySet::SETUID] {
            assert!(!all.contains(unwanted));
        }
    }
}
