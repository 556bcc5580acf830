//! What the machine guard remembers between two decisions.

use super::{MachineConfig, MachineFault};
use crate::{
    units::Nanos,
    victim::{Signal, SignalOutcome, VictimId},
};
use alloc::vec::Vec;

/// After a decision that sent nothing (nobody to kill, dry run), the same one is made again after 10 s.
const HOLD: Nanos = Nanos(10_000_000_000);

/// How long what a victim gave back may wait in the lists of single CPUs: the kernel empties them after some seconds
/// without use (`vmstat_update`, every second, mm/vmstat.c), or when others ask for memory.
const WAITING: Nanos = Nanos(5_000_000_000);

/// How many processes that must not be selected are remembered; the oldest gives way. Allocated once.
const SKIPS_MAX: usize = 64;

/// Where the guard stands with its one victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MachineStage {
    /// Nobody is being killed.
    #[default]
    Idle,
    /// SIGTERM was sent.
    Termed {
        /// Who.
        victim: VictimId,
        /// When.
        since: Nanos,
    },
    /// SIGKILL was sent.
    Killed {
        /// Who.
        victim: VictimId,
        /// When.
        since: Nanos,
    },
}

/// A process not to select: until then because a signal to it failed, or without end because SIGKILL did not end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Skip {
    victim: VictimId,
    until: Option<Nanos>,
}

/// The guard's memory. Starts idle; allocates when it is made and never again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineState {
    stage: MachineStage,
    skips: Vec<Skip>,
    hold: Option<(Signal, Nanos)>,
    fault: Option<MachineFault>,
    /// This shortage has been told.
    pub(super) noticed: bool,
    /// When a victim's memory came back last.
    freed: Option<Nanos>,
    /// When room was made last.
    pub(super) reclaimed: Option<Nanos>,
}

impl Default for MachineState {
    fn default() -> Self {
        Self {
            stage: MachineStage::Idle,
            skips: Vec::with_capacity(SKIPS_MAX),
            hold: None,
            fault: None,
            noticed: false,
            freed: None,
            reclaimed: None,
        }
    }
}

impl MachineState {
    /// Where the guard stands with its one victim.
    #[must_use]
    pub const fn stage(&self) -> MachineStage {
        self.stage
    }

    /// Takes in what became of a signal, or of the victim. `now` is when that was known. Where several that share an
    /// address space were signalled, report one of them: the one whose end is watched.
    pub fn outcome(&mut self, victim: VictimId, outcome: SignalOutcome, config: &MachineConfig, now: Nanos) {
        match outcome {
            SignalOutcome::Sent(Signal::Term) => self.stage = MachineStage::Termed { victim, since: now },
            SignalOutcome::Sent(Signal::Kill) => self.stage = MachineStage::Killed { victim, since: now },
            SignalOutcome::Failed(_) => {
                self.forget(victim);
                self.skip(Skip { victim, until: Some(now.saturating_add(config.kill_deadline)) });
            }
            SignalOutcome::Vanished => self.forget(victim),
            SignalOutcome::Freed => {
                self.freed = Some(now);
                self.forget(victim);
            }
        }
    }

    /// Whether freed memory may still wait in lists that no figure of the machine's shows: for 5 s after a victim's end. Not
    /// counted, a second victim would die for what the first one gave back (Linux 6.7 and later keep hundreds of MiB so).
    #[must_use]
    pub fn counts_waiting(&self, now: Nanos) -> bool {
        self.freed.is_some_and(|freed| now < freed.saturating_add(WAITING))
    }

    /// A decision was told and nothing sent: do not ask for the same again for 10 s, unless the shortage ends first or
    /// gets worse.
    pub const fn hold(&mut self, signal: Signal, now: Nanos) {
        self.hold = Some((signal, now.saturating_add(HOLD)));
    }

    /// When to decide again at the latest.
    #[must_use]
    pub const fn next_deadline(&self, config: &MachineConfig) -> Option<Nanos> {
        match self.stage {
            MachineStage::Idle => None,
            MachineStage::Termed { since, .. } => Some(since.saturating_add(config.term_grace)),
            MachineStage::Killed { since, .. } => Some(since.saturating_add(config.kill_deadline)),
        }
    }

    /// Brings the memory up to the present.
    pub(super) fn observe(&mut self, config: &MachineConfig, now: Nanos) {
        self.skips.retain(|skip| skip.until.is_none_or(|until| now < until));
        if self.hold.is_some_and(|(_, until)| now >= until) {
            self.hold = None;
        }
        if let MachineStage::Killed { victim, since } = self.stage
            && now >= since.saturating_add(config.kill_deadline)
        {
            self.stage = MachineStage::Idle;
            self.skip(Skip { victim, until: None });
        }
    }

    pub(super) fn held(&self, signal: Signal) -> bool {
        // `Signal` is ordered from mild to strict: a hold on SIGKILL holds SIGTERM too, not the other way round.
        self.hold.is_some_and(|(held, _)| held >= signal)
    }

    pub(super) const fn release(&mut self) {
        self.hold = None;
    }

    /// Remembers a fault; whether the same one had been told before.
    pub(super) fn note_fault(&mut self, fault: Option<MachineFault>) -> bool {
        core::mem::replace(&mut self.fault, fault) == fault
    }

    /// Whether a process is not to be selected now: a signal to it failed a moment ago, or did not end it.
    #[must_use]
    pub fn skipped(&self, victim: VictimId) -> bool {
        self.skips.iter().any(|skip| skip.victim == victim)
    }

    pub(super) fn failed(&self, victim: VictimId) -> bool {
        self.skips.iter().any(|skip| skip.victim == victim && skip.until.is_some())
    }

    fn skip(&mut self, skip: Skip) {
        if self.skips.len() >= SKIPS_MAX {
            self.skips.remove(0);
        }
        self.skips.push(skip);
    }

    fn forget(&mut self, victim: VictimId) {
        self.skips.retain(|skip| skip.victim != victim);
        match self.stage {
            MachineStage::Termed { victim: current, .. } | MachineStage::Killed { victim: current, .. }
                if current == victim =>
            {
                self.stage = MachineStage::Idle;
            }
            MachineStage::Idle | MachineStage::Termed { .. } | MachineStage::Killed { .. } => {}
        }
    }
}
