//! The machine guard: asks the largest process to end when available memory and free swap are both low, kills it when
//! they are almost gone, or when the machine does little but wait for memory.
//!
//! The thresholds and the 'percent of what' are earlyoom's (1.8 and later), so that whoever comes from there finds the same
//! behaviour. What is ours: a most for large machines, the margin, the time that a spike may take, the stall, the deadline
//! after SIGTERM, and the rule of one victim at a time.

use share::part;

use crate::{
    reading::{self, Reading},
    reason::Reason,
    selection::{Candidate, Decision, Shortlist, select as select_victims},
    units::{Bytes, Nanos, PageSize, Pages},
    victim::{KILL_DEADLINE, Signal, TERM_GRACE, VictimId},
};
use serde::{Deserialize, Serialize};

mod margin;
mod mild;
mod share;
pub(crate) mod sleep;
mod stall;
mod state;
pub mod trace;
pub use margin::{Margin, Measured};
pub use share::Permille;
pub use sleep::{AT_REST as LOOK_AT_REST, MIN as LOOK_MIN};
pub use stall::{StallConfig, StallReading};
pub use state::{MachineStage, MachineState};

/// At or under both, the machine is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// `MemAvailable` as a part of `MemAvailable + AnonPages`: of what programs can have, without what the kernel and
    /// locked or shared memory hold.
    pub memory: Permille,
    /// `SwapFree` as a part of `SwapTotal`; without swap it is always low.
    pub swap: Permille,
}

/// When the machine guard acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineConfig {
    /// Where SIGTERM is sent.
    pub term: Thresholds,
    /// Where SIGKILL is sent.
    pub kill: Thresholds,
    /// Where it is said that memory runs short, once per shortage, and who would be next; `None`: not said. Where this is under
    /// [`MachineConfig::term`], it is as if it were the same.
    pub notice: Option<Thresholds>,
    /// The most of what programs can have that shares of memory are taken of: a tenth of a large machine is more than anybody
    /// needs to be warned in time.
    pub memory_max: Bytes,
    /// How long memory may be low before anybody is selected, where it is not being used up so fast that it reaches what is
    /// worse within 250 ms: the next threshold, or the margin. 0: at once.
    pub spike: Nanos,
    /// When the machine is taken to be thrashing; `None`: it is not asked.
    pub stall: Option<StallConfig>,
    /// How fast memory can be used up at most, in bytes a second: how soon it is looked again follows from it.
    pub fill_max_per_second: u64,
    /// Whether pages that are not in use are moved to swap while memory is at or under [`MachineConfig::term`] and free swap
    /// above it.
    pub reclaim: bool,
    /// From SIGTERM to SIGKILL, whether or not the shortage goes on: a process told to end either does or is ended.
    pub term_grace: Nanos,
    /// From SIGKILL until another may be selected though the victim is still there.
    pub kill_deadline: Nanos,
    /// Decide and tell, and send nothing.
    pub dry_run: bool,
}

/// 40 GiB, of which 10 % are 4 GiB: at the fastest that earlyoom has seen a machine fill, two thirds of a second.
pub const MEMORY_MAX: Bytes = Bytes(40 << 30);

/// A second: builds and games were killed for less in earlyoom's and systemd-oomd's trackers.
pub const SPIKE: Nanos = Nanos(1_000_000_000);

/// Three seconds.
pub const STALL_WITHIN: Nanos = Nanos(3_000_000_000);

/// How fast memory can be used up at most, in bytes per second: on a machine of so many CPUs, or of a number that is not known.
#[must_use]
pub fn fill_max(cpus: Option<u32>) -> u64 {
    let cpus = cpus.unwrap_or(FILLING_CPUS_MAX).clamp(1, FILLING_CPUS_MAX);
    FILL_MAX_PER_SECOND.saturating_mul(cpus.into())
}

/// So many CPUs that clear pages use the bandwidth of a large machine's memory: 94 GiB/s.
const FILLING_CPUS_MAX: u32 = 16;

/// 6000 MiB/s for a CPU that clears pages: earlyoom's 'seen with stress -m 4 --vm-bytes 4G', 4 KiB in 0.65 us.
const FILL_MAX_PER_SECOND: u64 = 6000 << 20;

impl Default for MachineConfig {
    /// earlyoom's 10 % / 10 % and 5 % / 5 %, said at 15 %, of 40 GiB at most; a second for a spike; 40 % of 3 s; 6000 MiB/s;
    /// 10 s of grace, as long as earlyoom waits for an exit; 5 s to die.
    fn default() -> Self {
        let both = |permille| Thresholds { memory: Permille(permille), swap: Permille(permille) };
        Self {
            term: both(100),
            kill: both(50),
            notice: Some(both(150)),
            memory_max: MEMORY_MAX,
            spike: SPIKE,
            stall: Some(StallConfig { full: Permille(400), within: STALL_WITHIN }),
            fill_max_per_second: FILL_MAX_PER_SECOND,
            reclaim: true,
            term_grace: TERM_GRACE,
            kill_deadline: KILL_DEADLINE,
            dry_run: false,
        }
    }
}

/// Why a machine configuration is refused. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineConfigError {
    /// A threshold of 0 or of 1000 and more.
    #[error("machine threshold {0} permille: give 1 to 999")]
    OutOfRange(u16),
    /// SIGKILL before SIGTERM.
    #[error(
        "machine kill threshold {kill} permille is above the term threshold {term} permille; give at most that"
    )]
    KillAboveTerm {
        /// Where SIGKILL is sent.
        kill: u16,
        /// Where SIGTERM is sent.
        term: u16,
    },
}

impl MachineConfig {
    /// Whether the thresholds make sense together. A swap threshold of 1000 is allowed: swap is then not asked about.
    ///
    /// # Errors
    /// [`MachineConfigError`] for thresholds out of range or in the wrong order.
    pub fn validate(&self) -> Result<(), MachineConfigError> {
        for thresholds in [self.term, self.kill].into_iter().chain(self.notice) {
            let Permille(memory) = thresholds.memory;
            if !(1..=999).contains(&memory) {
                return Err(MachineConfigError::OutOfRange(memory));
            }
            let Permille(swap) = thresholds.swap;
            if !(1..=1000).contains(&swap) {
                return Err(MachineConfigError::OutOfRange(swap));
            }
        }
        for (Permille(kill), Permille(term)) in
            [(self.kill.memory, self.term.memory), (self.kill.swap, self.term.swap)]
        {
            if kill > term {
                return Err(MachineConfigError::KillAboveTerm { kill, term });
            }
        }
        Ok(())
    }

    /// A threshold in bytes of `MemAvailable`, where programs can have so much.
    #[must_use]
    pub fn memory_line(&self, thresholds: &Thresholds, total: Bytes) -> Bytes {
        part(total.min(self.memory_max), thresholds.memory)
    }
}

/// The lines of `/proc/meminfo` that the guard goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineReading {
    /// `MemAvailable`.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub mem_available: Reading<Bytes>,
    /// `AnonPages`.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub anon: Reading<Bytes>,
    /// `SwapTotal`.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub swap_total: Reading<Bytes>,
    /// `SwapFree`.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub swap_free: Reading<Bytes>,
    /// `Shmem`. Only selection asks for it, and does without.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub shared: Reading<Bytes>,
    /// Freed memory that waits in the lists of single CPUs (`/proc/zoneinfo`), in neither of the others. It counts as
    /// available where it is known: to be read while [`MachineState::counts_waiting`].
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub waiting: Reading<Bytes>,
    /// What a cache outside of the kernel's own (ZFS) gives up when asked. It counts as available where it is known.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub arc: Reading<Bytes>,
    /// `Active(file)` and `Inactive(file)`.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub file: Reading<Bytes>,
    /// What the kernel counts of waiting for memory, and when that was read: to be read while
    /// [`MachineState::watches_stall`].
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub stall: Reading<StallReading>,
    /// What those hold who were sent SIGKILL by the guard and have not given it back; not known: enough.
    #[serde(with = "reading::plain", skip_serializing_if = "Reading::is_absent")]
    pub ending: Reading<Bytes>,
}

impl Default for MachineReading {
    /// There is nothing to read.
    fn default() -> Self {
        Self {
            mem_available: Reading::Absent,
            anon: Reading::Absent,
            swap_total: Reading::Absent,
            swap_free: Reading::Absent,
            shared: Reading::Absent,
            waiting: Reading::Absent,
            arc: Reading::Absent,
            file: Reading::Absent,
            stall: Reading::Absent,
            ending: Reading::Absent,
        }
    }
}

impl MachineReading {
    /// Nothing could be read.
    pub const UNREADABLE: Self = Self {
        mem_available: Reading::Unreadable,
        anon: Reading::Unreadable,
        swap_total: Reading::Unreadable,
        swap_free: Reading::Unreadable,
        shared: Reading::Unreadable,
        waiting: Reading::Unreadable,
        arc: Reading::Unreadable,
        file: Reading::Unreadable,
        stall: Reading::Unreadable,
        ending: Reading::Unreadable,
    };
}

/// Why nothing could be decided from a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MachineFault {
    /// This line of `/proc/meminfo` is missing, unreadable or stale.
    Missing(&'static str),
    /// Memory available and anonymous memory are both 0, which no running machine has.
    Implausible,
}

/// Why somebody has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Memory and swap are at or under a threshold, or under the margin.
    Low,
    /// The machine does little but wait for memory.
    Stall,
}

/// How short the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Why.
    pub cause: Cause,
    /// What it calls for.
    pub signal: Signal,
    /// Anonymous memory in use.
    pub in_use: Bytes,
    /// How much of it is the most before the guard acts: what programs can have, less the threshold.
    pub line: Bytes,
}

/// The one thing to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineAction {
    /// Nothing.
    Rest,
    /// List the processes, [`select`], signal, and report the outcome, or that nothing was sent
    /// ([`trace::Line::Hold`]).
    Select(Shortage),
    /// Say that memory runs short. Given once per shortage, and not in one that somebody is already selected for.
    Notice {
        /// Anonymous memory in use.
        in_use: Bytes,
        /// How much of it is the most before it is said.
        line: Bytes,
    },
    /// Move pages that are not in use to swap, on a thread that may wait.
    Reclaim {
        /// How much: at least 1.
        bytes: Bytes,
    },
    /// SIGKILL this one.
    Escalate {
        /// Who.
        victim: VictimId,
        /// [`Reason::MachineTermDeadlinePassed`], or [`Reason::MachineLowMemoryKill`] where memory fell further.
        reason: Reason,
    },
    /// A reading is missing: nothing is decided. Given once, until readings are back or another is missing.
    Report(MachineFault),
}

/// All four numbers, known, and what there is to know of a stall.
#[derive(Debug, Clone, Copy)]
struct Facts {
    mem_available: Bytes,
    anon: Bytes,
    swap_total: Bytes,
    swap_free: Bytes,
    /// With the pages of files that could be evicted now.
    stall: Option<(StallReading, Bytes)>,
    ending: Option<Bytes>,
}

/// Decides what to do for the machine, and how long to sleep before looking again.
#[must_use]
pub fn decide(
    reading: &MachineReading,
    config: &MachineConfig,
    mut state: MachineState,
    now: Nanos,
) -> (MachineState, MachineAction, Nanos) {
    let facts = facts(reading);
    state.look_again = None;
    state.observe(config, now);
    let shortage = facts.as_ref().ok().and_then(|facts| shortage(facts, config, &mut state, now));
    let action = match state.stage() {
        MachineStage::Termed { victim, since } => {
            if now >= since.saturating_add(config.term_grace) {
                MachineAction::Escalate { victim, reason: Reason::MachineTermDeadlinePassed }
            } else if let Some(shortage) = shortage.filter(|shortage| shortage.signal == Signal::Kill) {
                MachineAction::Escalate { victim, reason: shortage.reason() }
            } else {
                MachineAction::Rest
            }
        }
        // Where those who end give too little back the next need not wait for them.
        MachineStage::Killed { .. }
            if !facts.as_ref().is_ok_and(|facts| facts.falls_short(config, &state)) =>
        {
            MachineAction::Rest
        }
        MachineStage::Killed { .. } | MachineStage::Idle => match shortage {
            Some(shortage) if !state.held(shortage.signal) => MachineAction::Select(shortage),
            Some(_) | None => MachineAction::Rest,
        },
    };
    if facts.is_ok() && shortage.is_none() {
        state.release();
    }
    let action = match (action, &facts) {
        (MachineAction::Rest, Ok(facts)) if shortage.is_none() => mild::step(facts, config, &mut state, now),
        (action, _) => {
            // More than a notice is made of it.
            state.noticed |= shortage.is_some();
            action
        }
    };
    let fault = facts.as_ref().err().copied();
    let reported = state.note_fault(fault);
    let action = match (action, fault) {
        (MachineAction::Rest, Some(fault)) if !reported => MachineAction::Report(fault),
        (action, _) => action,
    };
    let adaptive = facts.map_or(sleep::MAX, |facts| {
        let memory = facts.mem_available.saturating_sub(config.memory_line(&config.term, facts.total()));
        let swap = facts.swap_free.saturating_sub(part(facts.swap_total, config.term.swap));
        sleep::adaptive((memory, config.fill_max_per_second), swap).max(state.pace(facts.mem_available))
    });
    let sleep = sleep::until(adaptive, state.next_deadline(config), now);
    (state, action, sleep)
}

/// The decision for a shortage: the largest process by anonymous memory and swap ([`Candidate::usage`] must hold that).
/// Empty victims mean that nobody can be killed, and the reason says why.
#[must_use]
pub fn select(
    candidates: &[Candidate],
    shortage: &Shortage,
    state: &MachineState,
    config: &MachineConfig,
    page_size: PageSize,
) -> Decision {
    let selection = select_victims(candidates, |victim| state.skipped(victim));
    let reason = match (selection.victims.is_empty(), shortage.signal) {
        (false, _) => shortage.reason(),
        (true, _) if candidates.iter().any(|one| state.failed(one.id())) => Reason::SignalFailed,
        (true, _) => Reason::MachineOnlyProtectedLeft,
    };
    Decision {
        reason,
        victims: selection.victims,
        peers: selection.peers,
        usage: page_size.to_pages(shortage.in_use),
        hard: page_size.to_pages(shortage.line),
        dying: Pages(0),
        asked_at: None,
        dry_run: config.dry_run,
    }
}

/// Whether memory and swap are both down to one and a half of what SIGTERM is sent at: then it is worth the work to know
/// beforehand who would be selected.
#[must_use]
pub fn is_near(reading: &MachineReading, config: &MachineConfig) -> bool {
    let wider = |Permille(permille): Permille| Permille(permille.saturating_add(permille >> 1).min(1000));
    let near = Thresholds { memory: wider(config.term.memory), swap: wider(config.term.swap) };
    facts(reading).is_ok_and(|facts| low(&facts, &near, config))
}

/// What is told of a shortage that comes: those who would be selected if it went on, first come first, as the peers.
#[must_use]
pub fn notice(
    candidates: &[Candidate],
    (in_use, line): (Bytes, Bytes),
    state: &MachineState,
    page_size: PageSize,
) -> Decision {
    let next = select_victims(candidates, |victim| state.skipped(victim));
    let mut peers = Shortlist::EMPTY;
    next.victims.iter().for_each(|one| peers.offer(*one));
    Decision {
        reason: Reason::MachineLowMemoryNotice,
        victims: Shortlist::EMPTY,
        peers,
        usage: page_size.to_pages(in_use),
        hard: page_size.to_pages(line),
        dying: Pages(0),
        asked_at: None,
        dry_run: false,
    }
}

fn facts(reading: &MachineReading) -> Result<Facts, MachineFault> {
    let known = |name, value: Reading<Bytes>| value.known().ok_or(MachineFault::Missing(name));
    let given_up = [reading.waiting, reading.arc].into_iter().filter_map(Reading::known).sum();
    let mem_available = known("MemAvailable", reading.mem_available)?.saturating_add(given_up);
    let anon = known("AnonPages", reading.anon)?;
    let swap_total = known("SwapTotal", reading.swap_total)?;
    // Without swap there is nothing free of it, and nothing to ask.
    let swap_free = if swap_total == Bytes(0) { swap_total } else { known("SwapFree", reading.swap_free)? };
    if mem_available == Bytes(0) && anon == Bytes(0) {
        return Err(MachineFault::Implausible);
    }
    Ok(Facts {
        mem_available,
        anon,
        swap_total,
        swap_free,
        stall: reading.stall.known().zip(reading.file.known()),
        ending: reading.ending.known(),
    })
}

/// Whether somebody has to go now, and how.
fn shortage(facts: &Facts, config: &MachineConfig, state: &mut MachineState, now: Nanos) -> Option<Shortage> {
    let total = facts.total();
    let held = facts.anon.saturating_add(facts.swap_total.saturating_sub(facts.swap_free));
    state.fill.take(facts.mem_available.saturating_add(facts.swap_free), held, now);
    state.margin = Margin::of(state.fill, &state.reaction, sleep::MIN);
    let term_line = config.memory_line(&config.term, total);
    // Before that there is room for asking.
    let kill_least = config.memory_line(&config.kill, total);
    let kill_line = facts.kill_line(config, state);
    state.watches_stall = facts.mem_available <= Bytes(term_line.0.saturating_add(term_line.0 >> 1));
    let shortage = |cause, signal, line| Shortage {
        cause,
        signal,
        in_use: facts.anon,
        line: total.saturating_sub(line),
    };
    if facts.mem_available <= term_line && state.thrashes(facts.stall, config, now) {
        return Some(shortage(Cause::Stall, Signal::Kill, term_line));
    }
    // Whoever lets go of some of it for a moment does not hide the stalls before.
    if !state.watches_stall {
        state.stall.clear();
    }
    let has_swap = |Thresholds { swap, .. }: Thresholds| facts.swap_free > part(facts.swap_total, swap);
    let kill = facts.mem_available <= kill_line && !has_swap(config.kill);
    // Where a quarter is left of what is almost gone, nobody waits to see how fast the rest goes.
    let left = facts.mem_available.saturating_sub(state.margin.bytes.max(Bytes(kill_least.0 >> 2)));
    if state.lasts(Signal::Kill, kill.then_some(left), config, now) {
        return Some(shortage(Cause::Low, Signal::Kill, kill_line));
    }
    let term = facts.mem_available <= term_line && !has_swap(config.term);
    let left = facts.mem_available.saturating_sub(kill_line);
    state
        .lasts(Signal::Term, term.then_some(left), config, now)
        .then(|| shortage(Cause::Low, Signal::Term, term_line))
}

fn low(facts: &Facts, thresholds: &Thresholds, config: &MachineConfig) -> bool {
    facts.mem_available <= config.memory_line(thresholds, facts.total())
        && facts.swap_free <= part(facts.swap_total, thresholds.swap)
}

impl Shortage {
    const fn reason(&self) -> Reason {
        match (self.cause, self.signal) {
            (Cause::Stall, _) => Reason::MachineThrashing,
            (Cause::Low, Signal::Term) => Reason::MachineLowMemoryTerm,
            (Cause::Low, Signal::Kill) => Reason::MachineLowMemoryKill,
        }
    }
}

impl Facts {
    /// earlyoom's 'user memory': what programs have and could have.
    fn total(&self) -> Bytes {
        self.mem_available.saturating_add(self.anon)
    }

    /// What SIGKILL is sent at: the threshold, or what goes meanwhile where that is more.
    fn kill_line(&self, config: &MachineConfig, state: &MachineState) -> Bytes {
        let line = |thresholds| config.memory_line(thresholds, self.total());
        line(&config.kill).max(state.margin.bytes.min(line(&config.term)))
    }

    /// Whether memory stays at what SIGKILL is sent at even when all have ended who were sent it.
    fn falls_short(&self, config: &MachineConfig, state: &MachineState) -> bool {
        let line = self.kill_line(config, state);
        self.ending.is_some_and(|ending| self.mem_available.saturating_add(ending) <= line)
    }
}

#[cfg(test)]
mod tests;
