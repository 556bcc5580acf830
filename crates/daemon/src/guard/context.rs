//! What both guards work with: one kernel, its victims, the ledger, the journal, and their workers.

use super::{
    kernel::Kernel,
    kill::{ledger::Ledger, pending::PendingKills},
    last_defence::LastDefence,
    selection::{eligibility::Eligibility, judge::JudgeRequest},
    workers::Workers,
};
use crate::{journal::Notices, pressure_socket::Teller, tmalloc::Link};
use plimsoll_policy::{
    limits::LimitConfig,
    units::{Nanos, Uid},
};

/// What a guard works with besides its own state.
#[derive(Debug)]
pub(crate) struct Context<K: Kernel> {
    pub(crate) kernel: K,
    pub(crate) pending: PendingKills<K>,
    pub(crate) ledger: Ledger,
    pub(crate) notices: Notices,
    /// Who may be selected.
    pub(crate) eligibility: Eligibility,
    pub(crate) workers: Workers,
    pub(crate) last_defence: LastDefence,
    pub(crate) tmalloc: Link,
    /// Programs that are told who is near.
    pub(crate) listeners: Teller,
    pub(crate) config: LimitConfig,
}

impl<K: Kernel> Context<K> {
    /// With nobody who works for it elsewhere.
    #[cfg(test)]
    pub(super) fn mute(kernel: K, reaper: K::Reaper, ledger: Ledger, notices: Notices) -> Self {
        Self {
            kernel,
            pending: PendingKills::new(reaper),
            ledger,
            notices,
            eligibility: Eligibility::default(),
            workers: Workers::mute(),
            last_defence: LastDefence::absent(),
            tmalloc: Link::mute(),
            listeners: Teller::mute(),
            config: LimitConfig::default(),
        }
    }

    /// Has it found out whether what is protected was replaced, with nobody to judge.
    pub(super) fn renew_shield(&self) {
        let eligibility = self.eligibility.clone();
        // Where it is busy, whoever it is busy with is judged by what is there now, which is told as well.
        self.workers.judge.ask(JudgeRequest { whose: Uid::ROOT.into(), unjudged: Vec::new(), eligibility });
    }

    /// The guard's clock, which is the kernel records'.
    pub(super) fn now(&self) -> Nanos {
        self.kernel.now()
    }
}
