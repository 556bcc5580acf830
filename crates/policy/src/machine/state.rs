//! What the machine guard remembers between two decisions.

use super::{
    MachineConfig, MachineFault,
    margin::{Fill, Margin, Reaction},
    sleep,
    stall::{Stall, StallReading},
};
use crate::{
    units::{Bytes, Nanos},
    victim::{Signal, SignalOutcome, VictimId},
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// After a decision that sent nothing (nobody to kill, dry run), the same one is made again after 10 s.
const HOLD: Nanos = Nanos(10_000_000_000);

/// How long what a victim gave back may wait in the lists of single CPUs: the kernel empties them after some seconds
/// without use (`vmstat_update`, every second, mm/vmstat.c), or when others ask for memory.
const WAITING: Nanos = Nanos(5_000_000_000);

/// Memory that reaches what is worse within so long is not waited for: 250 ms is ten times what a kill takes.
const SOON: Nanos = Nanos(250_000_000);

/// It is looked so often until memory would be gone at the present rate.
const LOOKS_LEFT: u64 = 32;

/// How many processes that must not be selected are remembered; the oldest gives way. Allocated once.
const SKIPS_MAX: usize = 64;

/// Where the guard stands with its one victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Skip {
    victim: VictimId,
    until: Option<Nanos>,
}

/// The guard's memory. Starts idle; allocates when it is made and never again.
///
/// A trace begins with it as it serialises; [`MachineState::sound`] is for what comes from one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineState {
    stage: MachineStage,
    skips: Vec<Skip>,
    hold: Option<(Signal, Nanos)>,
    #[serde(skip)]
    fault: Option<MachineFault>,
    /// This shortage has been told.
    pub(super) noticed: bool,
    /// When a victim's memory came back last.
    freed: Option<Nanos>,
    /// When room was made last.
    pub(super) reclaimed: Option<Nanos>,
    /// Since when memory and swap are at or under the thresholds of SIGTERM.
    term_since: Option<Nanos>,
    /// Of SIGKILL, or under the margin.
    kill_since: Option<Nanos>,
    /// When it is worth a look though no CPU does anything.
    pub(super) look_again: Option<Nanos>,
    pub(super) watches_stall: bool,
    /// When a victim was killed or gone last: what was read of stalls before is of another machine.
    settled: Nanos,
    pub(super) fill: Fill,
    pub(super) stall: Stall,
    /// As last worked out.
    pub(super) margin: Margin,
    pub(super) reaction: Reaction,
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
            term_since: None,
            kill_since: None,
            look_again: None,
            watches_stall: false,
            settled: Nanos(0),
            fill: Fill::default(),
            stall: Stall::default(),
            margin: Margin::default(),
            reaction: Reaction::default(),
        }
    }
}

impl MachineState {
    /// Where the guard stands with its one victim.
    #[must_use]
    pub const fn stage(&self) -> MachineStage {
        self.stage
    }

    /// What was read from elsewhere, with no more in it than is kept.
    #[must_use]
    pub fn sound(mut self) -> Self {
        self.skips.truncate(SKIPS_MAX);
        self
    }

    /// With what was told last of missing readings: no trace has that.
    pub(super) const fn told_like(mut self, other: &Self) -> Self {
        self.fault = other.fault;
        self
    }

    /// Takes in what became of a signal, or of the victim. `now` is when that was known. Where several that share an
    /// address space were signalled, report one of them: the one whose end is watched.
    pub(super) fn outcome(
        &mut self,
        victim: VictimId,
        outcome: SignalOutcome,
        config: &MachineConfig,
        now: Nanos,
    ) {
        match outcome {
            SignalOutcome::Sent(Signal::Term) => self.stage = MachineStage::Termed { victim, since: now },
            SignalOutcome::Sent(Signal::Kill) => {
                self.settled = now;
                self.stage = MachineStage::Killed { victim, since: now };
            }
            SignalOutcome::Failed(_) => {
                self.forget(victim);
                self.skip(Skip { victim, until: Some(now.saturating_add(config.kill_deadline)) });
            }
            SignalOutcome::Vanished => self.forget(victim),
            SignalOutcome::Freed => {
                self.freed = Some(now);
                self.settled = now;
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

    /// Whether [`super::MachineReading::stall`] is worth the reading: memory is about to be low, whatever there is of swap.
    #[must_use]
    pub const fn watches_stall(&self) -> bool {
        self.watches_stall
    }

    /// A decision was told and nothing sent: do not ask for the same again for 10 s, unless the shortage ends first or
    /// gets worse.
    pub(super) const fn hold(&mut self, signal: Signal, now: Nanos) {
        self.hold = Some((signal, now.saturating_add(HOLD)));
    }

    /// The memory that was to be left at the last decision, and why.
    #[must_use]
    pub const fn margin(&self) -> &Margin {
        &self.margin
    }

    /// When to decide again at the latest, even if no CPU does anything until then.
    #[must_use]
    pub fn next_deadline(&self, config: &MachineConfig) -> Option<Nanos> {
        let of_victim = match self.stage {
            MachineStage::Idle => None,
            MachineStage::Termed { since, .. } => Some(since.saturating_add(config.term_grace)),
            MachineStage::Killed { since, .. } => Some(since.saturating_add(config.kill_deadline)),
        };
        [of_victim, self.look_again].into_iter().flatten().min()
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

    /// Whether memory has been this low for long enough to act, or is about to be worse. `left`: what is left until it is;
    /// `None`: memory is not this low.
    pub(super) fn lasts(
        &mut self,
        calls_for: Signal,
        left: Option<Bytes>,
        config: &MachineConfig,
        now: Nanos,
    ) -> bool {
        let since = match calls_for {
            Signal::Term => &mut self.term_since,
            Signal::Kill => &mut self.kill_since,
        };
        let Some(left) = left else {
            *since = None;
            return false;
        };
        // Somebody was asked already.
        let spike = if matches!(self.stage, MachineStage::Termed { .. }) { Nanos(0) } else { config.spike };
        let ends = since.get_or_insert(now).saturating_add(spike);
        let time = match calls_for {
            Signal::Term => self.fill.time_for(left),
            // What may turn out to be a rate leaves no time for a second reading.
            Signal::Kill => self.fill.time_at_worst(left).or((left == Bytes(0)).then_some(Nanos(0))),
        };
        if now >= ends || time.is_some_and(|time| time <= SOON.min(spike)) {
            return true;
        }
        self.look_again = Some(self.look_again.map_or(ends, |other| other.min(ends)));
        false
    }

    /// Whether the machine does little but wait for memory, while memory is low.
    pub(super) fn thrashes(
        &mut self,
        facts: Option<(StallReading, Bytes)>,
        config: &MachineConfig,
        now: Nanos,
    ) -> bool {
        let (Some((reading, file)), Some(stall)) = (facts, &config.stall) else {
            return false;
        };
        if matches!(self.stage, MachineStage::Killed { .. }) || reading.at <= self.settled {
            // What a victim gives back is not known yet.
            self.stall.clear();
            return false;
        }
        let thrashes = self.stall.take(&reading, file, stall);
        if self.stall.is_stalled() {
            // All may wait for a disk, and no CPU do anything.
            self.look_again = Some(now.saturating_add(Nanos(stall.within.0 / 6)));
        }
        thrashes
    }

    /// How far apart looks are at least: the faster memory would be gone at the present rate the nearer, unless there is no
    /// more to do than to wait for a victim's end, or until somebody can be one.
    pub(super) fn pace(&self, available: Bytes) -> Nanos {
        let waits = matches!(self.stage, MachineStage::Killed { .. }) || self.hold.is_some();
        let time = self.fill.time_at_worst(available).filter(|_| !waits);
        time.map_or(sleep::AT_REST, |time| Nanos(time.0 / LOOKS_LEFT).clamp(sleep::MIN, sleep::AT_REST))
    }

    /// Whether others may run beside what is done about it: memory would not be gone before at the present rate.
    #[must_use]
    pub fn leaves_time(&self, available: Bytes) -> bool {
        self.fill.time_at_worst(available).is_none_or(|time| time > SOON)
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
