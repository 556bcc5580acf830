//! Where a kill came from that was not ours: who killed, at which limit, and what its own log says of it.

use super::Victim;
use crate::{
    container::Container,
    units::{Pid, Uid},
};
use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};

texts! {
    /// Who ended the process.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Killer {
        /// The kernel's own OOM killer.
        #[default]
        Kernel = "the kernel's OOM killer",
        /// systemd-oomd, which takes whole cgroups.
        SystemdOomd = "systemd-oomd",
        /// earlyoom.
        Earlyoom = "earlyoom",
    }
    /// As in the journal.
    fn name
}

/// What had no memory left: the constraint that the kernel names (`enum oom_constraint`, include/linux/oom.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The whole machine, or what was asked for could not be had in one piece.
    Machine,
    /// A memory cgroup at its limit.
    Cgroup,
    /// The memory nodes of a cpuset.
    Cpuset,
    /// The memory nodes of a NUMA policy.
    Mempolicy,
}

/// The process that needed memory when there was none: not the victim, unless it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoker {
    /// Its number.
    pub pid: Pid,
    /// Its real uid; `None` where it is not told.
    pub uid: Option<Uid>,
    /// The name of its thread, made printable.
    pub comm: String,
}

/// What is known of a kill that was not ours. `None` is 'not known'.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Who killed.
    pub killer: Killer,
    /// What had no memory left.
    pub scope: Option<Scope>,
    /// The cgroup whose limit was reached, or that was ended as a whole.
    pub cgroup: Option<String>,
    /// The container that the victim ran in.
    pub container: Option<Container>,
    /// Who asked the kernel for memory.
    pub invoker: Option<Invoker>,
    /// It asked for 2^order pages in a row; -1 where somebody asked for the kill itself (SysRq).
    pub order: Option<i32>,
    /// How it asked, as the kernel writes it.
    pub gfp: Option<String>,
    /// Why that could not be served, in a word that never changes its meaning.
    pub cause: Option<String>,
    /// The same in a sentence, or what the killer said itself.
    pub summary: Option<String>,
    /// What the kernel's report suggests to do, the likeliest first.
    #[serde(default)]
    pub advice: Vec<String>,
}

impl Origin {
    /// Nothing is known but who killed.
    #[must_use]
    pub fn of(killer: Killer) -> Self {
        Self { killer, ..Self::default() }
    }

    /// Takes out what is only for the victims' owners: `peer` is not root.
    pub(crate) fn conceal(&mut self, victims: &[Victim], peer: Uid) {
        if !victims.iter().any(|victim| victim.uid == peer) {
            self.cgroup = None;
            self.container = None;
            self.summary = None;
            self.advice.clear();
        }
    }
}
