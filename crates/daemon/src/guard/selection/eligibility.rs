//! Whether a process may be selected, and what it counts: by what is protected, by the rules, and by `oom_score_adj`.

use super::shield::Shield;
use crate::guard::last_defence::Originals;
use plimsoll_policy::{
    preference::{Exe, Facts, Judgement, Mark, Rules},
    selection::{Protection, Standing},
    units::{Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{Portrait, Process};
use plimsoll_wire::text::Comm;
use std::sync::Arc;

/// What processes are judged by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Eligibility {
    pub(crate) shield: Arc<Shield>,
    pub(crate) rules: Arc<Rules>,
    /// What `oom_score_adj` is without what we made of it.
    pub(crate) originals: Originals,
}

/// What judging needs of a process besides its portrait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) id: VictimId,
    pub(crate) uid: Uid,
    pub(crate) comm: &'a Comm,
    pub(crate) parent: Pid,
    /// `None`: as the portrait has it.
    pub(crate) oom_score_adj: Option<i16>,
    pub(crate) cmdline: Option<&'a str>,
    pub(crate) mark: Option<Mark>,
}

impl<'a> Subject<'a> {
    /// Of a process that is not in any list.
    pub(crate) const fn of(process: &'a Process, mark: Option<Mark>, cmdline: Option<&'a str>) -> Self {
        Self {
            id: VictimId { pid: process.pid, start_ns: process.start_ns },
            uid: process.uid,
            comm: &process.comm,
            parent: process.parent,
            oom_score_adj: None,
            cmdline,
            mark,
        }
    }
}

impl Eligibility {
    pub(crate) fn judge(&self, subject: &Subject<'_>, portrait: &Portrait) -> Judgement {
        let exe = portrait.exe().map(|path| Exe {
            path,
            // Asked only where it decides: a path can lead into a file system that does not answer.
            only_root_writes: self.rules.trust(path) && portrait.exe_is_what_it_says(),
        });
        let adj = subject.oom_score_adj.or(portrait.oom_score_adj());
        let judgement = self.rules.judge(&Facts {
            uid: subject.uid,
            comm: subject.comm.as_bytes(),
            exe,
            cgroup: portrait.cgroup(),
            cmdline: subject.cmdline.map(str::as_bytes),
            oom_score_adj: adj.map_or(0, |adj| self.originals.of(subject.id, subject.uid, adj)),
            child_of_init: subject.parent == Pid(1),
            mark: subject.mark,
            leads_terminal: portrait.leads_terminal(),
        });
        let shielded = self.shield.protection(subject.uid, portrait.exe_identity(), portrait.cgroup());
        Judgement { protection: shielded.or(judgement.protection), ..judgement }
    }

    /// The standing of a process that is not in any list.
    pub(crate) fn standing(&self, process: &Process, portrait: &Portrait, mark: Option<Mark>) -> Standing {
        if process.pid.0 <= 1 {
            return Standing::Protected(Protection::Init);
        }
        self.judge(&Subject::of(process, mark, None), portrait).standing()
    }
}
