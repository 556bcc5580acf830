//! One guard that has the selection programs, one that has not, the comparators, and a victim.

use crate::{
    child::{Workload, look_until, wait_for},
    comparator::{
        earlyoom::{self, Earlyoom},
        nohang::Nohang,
    },
    error::BenchError,
    guarded::{Guarded, Listing, Memory, Starter, Triggers},
    options::Options,
    proc,
    report::BenchReport,
};
use plimsoll_api::status::SelectionEffort;
use plimsoll_policy::incident::Incident;
use std::{path::PathBuf, thread, time::Duration};

/// The largest process of the machine, or so it is meant to be.
const VICTIM_UID: u32 = 60_022;
const VICTIM_BYTES: u64 = 256 << 20;

/// Between two looks at what a guard says.
const POLL: Duration = Duration::from_millis(10);

/// The daemon makes its list anew after so long.
const REFRESH_MS: u64 = 1_000;

/// How a victim is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Memory was plenty until now: nothing is known.
    Cold,
    /// Memory was about to run short: there is a list, and who grows is noted.
    Warm,
    /// As `Cold`, without the selection programs.
    Proc,
    /// earlyoom's dry run.
    Earlyoom,
    /// nohang.
    Nohang,
}

impl Way {
    /// As the report names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Proc => "cold, listed from /proc",
            Self::Earlyoom => "earlyoom, 'low memory' to 'sending'",
            Self::Nohang => "nohang, 'requires corrective actions' to 'Sending'",
        }
    }
}

/// Who was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The bench's victim.
    Victim,
    /// A process of the machine that is larger.
    Larger,
    /// Anybody else.
    Wrong,
}

/// How the guard made a choice.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) named: Named,
    pub(super) effort: SelectionEffort,
    /// From a list that was ready, or not, and from programs, or not, as the way says.
    pub(super) as_meant: bool,
}

/// One choice.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) ns: u64,
    /// `None`: a comparator's.
    pub(super) made: Option<Made>,
}

/// What all cases use.
#[derive(Debug)]
pub(super) struct Arena<'a> {
    options: &'a Options,
    programs: Option<Box<dyn Guarded>>,
    proc: Box<dyn Guarded>,
    earlyoom: Option<PathBuf>,
    nohang: Option<Nohang>,
    choices: u64,
}

impl<'a> Arena<'a> {
    /// Starts both guards.
    pub(super) fn open(
        options: &'a Options,
        start: Starter<'_>,
        report: &mut BenchReport,
    ) -> Result<Self, BenchError> {
        let mut programs = start(Triggers::MachineDryRun(Listing::Programs))?;
        let equipped = wait_until_equipped(programs.as_mut())?;
        if !equipped {
            report.note("the selection programs were not loaded: there is neither a cold nor a warm row");
        }
        let earlyoom = earlyoom::find();
        if earlyoom.is_none() {
            report.note("earlyoom is not installed (apt install earlyoom): its rows are missing");
        }
        let nohang = Nohang::find()?;
        if nohang.is_none() {
            report.note("nohang is not installed (apt install nohang): its rows are missing");
        }
        let proc = start(Triggers::MachineDryRun(Listing::Proc))?;
        Ok(Self { options, programs: equipped.then_some(programs), proc, earlyoom, nohang, choices: 0 })
    }

    /// A new victim.
    pub(super) fn start_victim(&self) -> Result<Workload, BenchError> {
        Workload::start(&self.options.workload, &[&"hold", &VICTIM_UID, &VICTIM_BYTES])
    }

    /// Has a victim chosen so often; nothing where this machine does not have what the way needs.
    pub(super) fn choose(
        &mut self,
        way: Way,
        count: usize,
        victim: &Workload,
    ) -> Result<Vec<Choice>, BenchError> {
        match way {
            Way::Cold | Way::Warm | Way::Proc => {
                (0..count).filter_map(|_| self.decide(way, victim.pid()).transpose()).collect()
            }
            Way::Earlyoom => {
                self.earlyoom.as_ref().map_or(Ok(Vec::new()), |binary| earlyoom_chooses(binary, count))
            }
            Way::Nohang => {
                let nohang = self.nohang.iter().cycle().take(if self.nohang.is_some() { count } else { 0 });
                nohang.map(|nohang| Ok(Choice { ns: nohang.choice_ns()?, made: None })).collect()
            }
        }
    }

    fn decide(&mut self, way: Way, victim: u32) -> Result<Option<Choice>, BenchError> {
        self.choices += 1;
        let phase_ms = self.choices * 379 % REFRESH_MS;
        let guard = match (way, self.programs.as_deref_mut()) {
            (Way::Proc, _) => self.proc.as_mut(),
            (_, Some(programs)) => programs,
            (_, None) => return Ok(None),
        };
        let before = guard.incidents()?.len();
        if way == Way::Warm {
            guard.make_memory(Memory::Near)?;
            wait_for("list that is ready", POLL, || Ok(guard.selection()?.ready_ns))?;
            if !self.options.quick {
                // The daemon's list is of any age when memory runs short.
                thread::sleep(Duration::from_millis(phase_ms));
            }
        }
        guard.make_memory(Memory::Short)?;
        // It is written by a thread of its own.
        let fresh = || Ok(guard.incidents()?.into_iter().nth(before));
        let incident = wait_for("choice of a victim", POLL, fresh)?;
        let selection = guard.selection()?;
        guard.make_memory(Memory::Plenty)?;
        let named = named(&incident, victim)?;
        let (Some(ns), Some(effort)) = (incident.cross_to_signal_ns, selection.last) else {
            return Err(BenchError::malformed(
                "what a decision took",
                &format!("{incident:?} {selection:?}"),
            ));
        };
        let listed_before = effort.age_ns > ns;
        let from = if way == Way::Proc { "proc" } else { "programs" };
        let as_meant = selection.from.as_deref() == Some(from) && listed_before == (way == Way::Warm);
        Ok(Some(Choice { ns, made: Some(Made { named, effort, as_meant }) }))
    }
}

/// It lists from `/proc` until its programs are loaded; whether they were within 20 s.
fn wait_until_equipped(guard: &mut dyn Guarded) -> Result<bool, BenchError> {
    guard.make_memory(Memory::Near)?;
    let equipped = look_until(Duration::from_secs(20), Duration::from_millis(50), || {
        Ok((guard.selection()?.from.as_deref() == Some("programs")).then_some(()))
    })?;
    guard.make_memory(Memory::Plenty)?;
    Ok(equipped.is_some())
}

fn named(incident: &Incident, victim: u32) -> Result<Named, BenchError> {
    let Some(first) = incident.victims.first() else { return Ok(Named::Wrong) };
    if first.pid.0 == victim {
        return Ok(Named::Victim);
    }
    let larger = proc::charged_bytes_if_alive(first.pid.0)?.is_some_and(|bytes| bytes > VICTIM_BYTES);
    Ok(if larger { Named::Larger } else { Named::Wrong })
}

/// With thresholds that are always met it chooses once a cycle.
fn earlyoom_chooses(binary: &std::path::Path, count: usize) -> Result<Vec<Choice>, BenchError> {
    let mut earlyoom = Earlyoom::start_always(binary)?;
    (0..count).map(|_| Ok(Choice { ns: earlyoom.choice_ns()?, made: None })).collect()
}
