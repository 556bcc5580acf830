//! The decisions of a trace, made once more: by the same functions as on the machine where it was recorded, with the same
//! configuration or another.
//!
//! As long as it comes to what was done there, what became of it there is what becomes of it here. From the first decision on
//! that is another, the trace is of a machine where that was not done: a process that is sent SIGKILL here is then taken to
//! have given its memory back at once, and one that is sent SIGTERM to go on as it did there.

use super::{Begin, Decided, Line, Name, VERSION};
use crate::{
    machine::{
        MachineAction, MachineConfig, MachineConfigError, MachineReading, MachineStage, MachineState, Margin,
        decide, fill_max, notice, select,
    },
    reason::Reason,
    selection::{Candidate, DECISIVE_MAX, Decision},
    units::{Bytes, Nanos, PageSize, Pages},
    victim::{Signal, SignalOutcome, VictimId},
};
use alloc::{borrow::Cow, vec::Vec};
use jiff::Timestamp;

/// How many of the decisions are told, the first ones; how many were made is counted.
const TOLD_MAX: usize = 4096;

/// How many names are remembered: those of the victims and peers of a few incidents.
const NAMES_MAX: usize = 256;

/// Why a trace cannot be replayed. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceFault {
    /// No [`Line::Begin`] before anything else.
    #[error("a trace begins with a line \"begin\"")]
    NoBeginning,
    /// Of another form.
    #[error("it is of version {0} of the form, and this reads version {VERSION}")]
    Version(u32),
    /// A look before the one before.
    #[error("time runs backwards: give one trace at a time")]
    Backwards,
    /// No size of pages that Linux has.
    #[error("pages of {0} bytes: 4096 to 65536 are possible, in powers of two")]
    PageSize(u64),
    /// Thresholds that make no sense.
    #[error(transparent)]
    Config(#[from] MachineConfigError),
    /// More than [`DECISIVE_MAX`] in a list.
    #[error("a list of {0} processes: {DECISIVE_MAX} at most")]
    List(usize),
}

/// Whether the trace has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It has.
    Same,
    /// Here it was this that was decided there.
    Other(Decided),
    /// Nothing was decided there.
    Nothing,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Nanos,
    /// What it was decided from: where memory was given back that was not there, with that.
    pub reading: MachineReading,
    /// The margin that was to be left then.
    pub margin: Margin,
    /// What was decided; `None`: nothing, while there ([`Recorded::Other`]) something was.
    pub decided: Option<Decided>,
    /// Whom it is about: the one to be signalled; of a notice, who would be first.
    pub first: Option<Candidate>,
    /// What the trace has.
    pub recorded: Recorded,
    /// It is of a machine where something else had been done before.
    pub supposed: bool,
}

/// A decision that the next line may say the machine's own of.
#[derive(Debug, Clone, Copy)]
struct Open {
    at: Nanos,
    reading: MachineReading,
    action: MachineAction,
}

/// The replay of one trace.
#[derive(Debug, Clone)]
pub struct Replay {
    /// In the place of the trace's own.
    asked: Option<MachineConfig>,
    config: MachineConfig,
    state: MachineState,
    about: Option<Begin<'static>>,
    page_size: Option<PageSize>,
    list: Vec<Candidate>,
    open: Option<Open>,
    /// Who was signalled last.
    signalled: Option<Candidate>,
    /// The last look.
    last: Option<(Nanos, MachineReading)>,
    first_look: Option<Nanos>,
    looks: u64,
    /// What victims gave back that were not killed there.
    given_back: Vec<(VictimId, Bytes)>,
    /// It has come to something else than was done there.
    parted: bool,
    has_record: bool,
    inexact: bool,
    told: Vec<Told>,
    decisions: u64,
    names: Vec<Name>,
}

impl Replay {
    /// With another configuration than the trace's own, or with that. With another, how fast memory can fill goes by the
    /// trace's CPUs.
    #[must_use]
    pub fn new(asked: Option<MachineConfig>) -> Self {
        Self {
            asked,
            config: MachineConfig::default(),
            state: MachineState::default(),
            about: None,
            page_size: None,
            list: Vec::new(),
            open: None,
            signalled: None,
            last: None,
            first_look: None,
            looks: 0,
            given_back: Vec::new(),
            parted: false,
            has_record: false,
            inexact: false,
            told: Vec::new(),
            decisions: 0,
            names: Vec::new(),
        }
    }

    /// Takes the next line in.
    ///
    /// # Errors
    /// [`TraceFault`]: the line is not of such a trace.
    pub fn take(&mut self, line: Line<'_>) -> Result<(), TraceFault> {
        match line {
            // The recording may begin anew between a look and what came of it.
            Line::Begin(_) | Line::Decided(_) | Line::List(_) | Line::Names(_) => {}
            // Here as there, as far as it has come to the same.
            Line::Waited if !self.parted => self.open = None,
            Line::Look { .. } | Line::Waited => self.settle(None),
            Line::Outcome { .. } | Line::Hold { .. } | Line::Measured(_) => self.settle(None),
        }
        match line {
            Line::Begin(begin) => return self.begin(begin),
            _ if self.about.is_none() => return Err(TraceFault::NoBeginning),
            Line::Look { at, reading } => return self.look(at, reading),
            Line::List(list) if list.len() > DECISIVE_MAX => return Err(TraceFault::List(list.len())),
            Line::List(list) => {
                self.list = list.into_owned();
                self.list.retain(|one| !self.given_back.iter().any(|(gone, _)| *gone == one.id()));
            }
            // It came of a look before the trace begins.
            Line::Decided(_) if self.looks == 0 => {}
            Line::Decided(decided) => {
                self.has_record = true;
                self.settle(Some(decided));
            }
            Line::Names(names) => {
                let room = NAMES_MAX.saturating_sub(self.names.len());
                self.names.extend(names.into_iter().take(room));
            }
            line @ Line::Measured(_) => self.state.learn(&line, &self.config),
            line if !self.parted => self.state.learn(&line, &self.config),
            line @ Line::Outcome {
                victim, outcome: SignalOutcome::Freed | SignalOutcome::Vanished, ..
            } => {
                self.given_back.retain(|(gone, _)| *gone != victim);
                if self.follows(victim) {
                    self.state.learn(&line, &self.config);
                }
            }
            Line::Outcome { .. } | Line::Hold { .. } | Line::Waited => {}
        }
        Ok(())
    }

    /// All lines were taken.
    pub fn finish(&mut self) {
        self.settle(None);
    }

    /// What was decided, in order, and how many decisions there were: more, where that is too many to be told.
    #[must_use]
    pub fn told(&self) -> (&[Told], u64) {
        (&self.told, self.decisions)
    }

    /// How often the machine was looked at, and from when to when.
    #[must_use]
    pub fn looks(&self) -> (u64, Option<(Nanos, Nanos)>) {
        (self.looks, self.first_look.zip(self.last.map(|(at, _)| at)))
    }

    /// What the trace is of.
    #[must_use]
    pub const fn about(&self) -> Option<&Begin<'static>> {
        self.about.as_ref()
    }

    /// In force at the end.
    #[must_use]
    pub const fn config(&self) -> &MachineConfig {
        &self.config
    }

    /// Whether the trace says what was decided on the machine.
    #[must_use]
    pub const fn has_record(&self) -> bool {
        self.has_record
    }

    /// Whether what the guard is said to have remembered is what follows from the lines before; where it is not, or something
    /// else was decided than there, a trace of its own configuration is not replayed as it was.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        !self.inexact && !self.parted
    }

    /// What a process is called.
    #[must_use]
    pub fn name(&self, id: VictimId) -> Option<&str> {
        self.names.iter().find(|name| name.id == id).map(|name| name.comm.as_str())
    }

    /// The clock of the wall at a moment of the trace.
    #[must_use]
    pub fn time(&self, at: Nanos) -> Option<Timestamp> {
        let about = self.about.as_ref()?;
        let later = core::time::Duration::from_nanos(at.saturating_sub(about.at).0);
        let sooner = core::time::Duration::from_nanos(about.at.saturating_sub(at).0);
        about.time?.checked_add(later).ok()?.checked_sub(sooner).ok()
    }

    /// What a process was charged.
    #[must_use]
    pub fn bytes(&self, candidate: &Candidate) -> Option<Bytes> {
        let page_size = self.page_size?;
        candidate.usage.latest().map(|pages| page_size.to_bytes(pages))
    }

    fn begin(&mut self, begin: Begin<'_>) -> Result<(), TraceFault> {
        let Begin { version, at, time, mem_total, page_size, cpus, config, state } = begin;
        if version != VERSION {
            return Err(TraceFault::Version(version));
        }
        self.page_size = Some(PageSize::from_bytes(page_size).ok_or(TraceFault::PageSize(page_size))?);
        if self.last.is_some_and(|(last, _)| at < last) {
            return Err(TraceFault::Backwards);
        }
        let fill = fill_max(Some(cpus));
        let own = config.map_or_else(
            || MachineConfig { fill_max_per_second: fill, ..MachineConfig::default() },
            Cow::into_owned,
        );
        self.config = self.asked.map_or(own, |asked| MachineConfig { fill_max_per_second: fill, ..asked });
        self.config.validate()?;
        if let Some(remembered) = state.map(|state| state.into_owned().sound())
            && (self.about.is_none() || self.asked.is_none() && !self.parted)
        {
            let remembered = remembered.told_like(&self.state);
            self.inexact |= self.about.is_some() && self.state != remembered;
            self.state = remembered;
        }
        let about = Begin { version, at, time, mem_total, page_size, cpus, config: None, state: None };
        self.about.get_or_insert(about);
        Ok(())
    }

    fn look(&mut self, at: Nanos, mut reading: MachineReading) -> Result<(), TraceFault> {
        if self.last.is_some_and(|(last, _)| at < last) {
            return Err(TraceFault::Backwards);
        }
        let back = self.given_back.iter().map(|(_, bytes)| *bytes).sum();
        reading.mem_available = reading.mem_available.map(|bytes| bytes.saturating_add(back));
        reading.anon = reading.anon.map(|bytes| bytes.saturating_sub(back));
        let (state, action, _) = decide(&reading, &self.config, core::mem::take(&mut self.state), at);
        self.state = state;
        self.looks = self.looks.saturating_add(1);
        self.first_look.get_or_insert(at);
        self.last = Some((at, reading));
        self.open = match action {
            MachineAction::Rest | MachineAction::Reclaim { .. } | MachineAction::Report(_) => None,
            MachineAction::Select(_) | MachineAction::Notice { .. } | MachineAction::Escalate { .. } => {
                Some(Open { at, reading, action })
            }
        };
        Ok(())
    }

    /// Comes to a decision where there is one to make, and compares it with the machine's own.
    fn settle(&mut self, there: Option<Decided>) {
        let open = self.open.take();
        let found = open.and_then(|open| self.resolve(&open));
        let recorded = match (found.as_ref().map(|(decided, _)| decided), there) {
            (None, None) => return,
            (Some(here), Some(there)) if *here == there => Recorded::Same,
            (_, Some(there)) => Recorded::Other(there),
            (Some(_), None) => Recorded::Nothing,
        };
        let supposed = self.parted;
        self.parted |= recorded != Recorded::Same;
        let (at, reading) = open
            .map(|open| (open.at, open.reading))
            .or(self.last)
            .unwrap_or((Nanos(0), MachineReading::default()));
        let decided = found.map(|(decided, _)| decided);
        let first = found.and_then(|(_, first)| first);
        if let Some(decided) = decided.filter(|_| self.parted) {
            self.suppose(&decided, first, at);
        }
        if decided.is_some_and(|decided| decided.signal.is_some()) {
            self.signalled = first;
        }
        self.decisions = self.decisions.saturating_add(1);
        if self.told.len() < TOLD_MAX {
            let margin = *self.state.margin();
            self.told.push(Told { at, reading, margin, decided, first, recorded, supposed });
        }
    }

    /// Who is selected, or whoever it is about.
    fn resolve(&self, open: &Open) -> Option<(Decided, Option<Candidate>)> {
        let page_size = self.page_size?;
        let decided = |signal, decision: &Decision, first: Option<&Candidate>| {
            let victim = decision.victims.first().map(Candidate::id);
            let decided = Decided { signal, victim, reason: decision.reason };
            Some((decided, first.copied()))
        };
        match open.action {
            MachineAction::Select(shortage) => {
                let decision = select(&self.list, &shortage, &self.state, &self.config, page_size);
                let first = decision.victims.first();
                decided(first.map(|_| shortage.signal), &decision, first)
            }
            MachineAction::Notice { in_use, line } => {
                let decision = notice(&self.list, (in_use, line), &self.state, page_size);
                decided(None, &decision, decision.peers.first())
            }
            MachineAction::Escalate { victim, reason } => {
                let known = self.list.iter().chain(&self.signalled).find(|one| one.id() == victim).copied();
                let decided = Decided { signal: Some(Signal::Kill), victim: Some(victim), reason };
                Some((decided, known))
            }
            MachineAction::Rest | MachineAction::Reclaim { .. } | MachineAction::Report(_) => None,
        }
    }

    /// What comes of a decision that was not made there.
    fn suppose(&mut self, decided: &Decided, first: Option<Candidate>, at: Nanos) {
        match (decided.victim, decided.signal) {
            (Some(_), Some(signal)) if self.config.dry_run => self.state.hold(signal, at),
            (Some(victim), Some(signal)) => {
                self.state.outcome(victim, SignalOutcome::Sent(signal), &self.config, at);
                if signal == Signal::Kill {
                    self.state.outcome(victim, SignalOutcome::Freed, &self.config, at);
                    let pages =
                        first.and_then(|one| one.usage.latest().map(|usage| usage.min(one.gives_back)));
                    let bytes = self.page_size.map(|size| size.to_bytes(pages.unwrap_or(Pages(0))));
                    self.given_back.push((victim, bytes.unwrap_or_default()));
                    self.list.retain(|one| first.is_none_or(|first| !one.shares_memory_with(&first)));
                    self.list.retain(|one| one.id() != victim);
                }
            }
            // As where nobody is left. A notice is not held.
            (None, None) if decided.reason != Reason::MachineLowMemoryNotice => {
                self.state.hold(Signal::Kill, at);
            }
            _ => {}
        }
    }

    /// Whether the guard waits for this one's end.
    fn follows(&self, victim: VictimId) -> bool {
        match self.state.stage() {
            MachineStage::Termed { victim: followed, .. } | MachineStage::Killed { victim: followed, .. } => {
                followed == victim
            }
            MachineStage::Idle => false,
        }
    }
}
