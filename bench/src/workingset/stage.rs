//! What the cases share: sizes, the guard, the files, the cgroup.

use super::data::Data;
use crate::{
    comparator::find_program,
    error::BenchError,
    guarded::{Guarded, Starter, Triggers, is_our_kill},
    options::Options,
    proc::{self, ProcessorMeter},
    report::BenchReport,
    scope::Scope,
};
use plimsoll_policy::incident::Guard;
use std::{path::PathBuf, sync::Arc, time::Duration};

pub(super) const MIB: u64 = 1 << 20;

/// An ordinary disk.
pub(super) const SLOW_BYTES_A_SECOND: u64 = 150_000_000;

/// Protection with these ratios.
pub(super) const fn tunables(anon: u64, clean_min: u64, clean_low: u64) -> [(&'static str, u64); 4] {
    [
        ("workingset_protection", 1),
        ("anon_min_ratio", anon),
        ("clean_min_ratio", clean_min),
        ("clean_low_ratio", clean_low),
    ]
}

/// The tunables of le9uo, as they are by default.
pub(crate) const DEFAULTS: [(&str, u64); 4] = tunables(15, 15, 0);

pub(super) const OFF: [(&str, u64); 1] = [("workingset_protection", 0)];

/// How much, how long, how often.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) memory_bytes: u64,
    pub(super) timed_bytes: u64,
    pub(super) large_bytes: u64,
    pub(super) stream_bytes: u64,
    pub(super) program_bytes_max: u64,
    /// Between two reads of the timed file.
    pub(super) pause: Duration,
    /// Without pressure, before each stretch.
    pub(super) warming: Duration,
    /// Under pressure, and longer where the hogs are slow.
    pub(super) lasting: Duration,
    /// Under pressure, so many hogs are to die before a stretch ends.
    pub(super) hogs: usize,
    pub(super) rounds: usize,
}

impl Sizes {
    pub(super) fn of(options: &Options) -> Self {
        let memory_bytes = if options.quick { 192 * MIB } else { 1536 * MIB };
        let milliseconds = |full, quick| Duration::from_millis(if options.quick { quick } else { full });
        Self {
            memory_bytes,
            timed_bytes: memory_bytes / 10,
            large_bytes: memory_bytes * 3 / 10,
            stream_bytes: memory_bytes * 4 / 3,
            program_bytes_max: if options.quick { 64 * MIB } else { 512 * MIB },
            pause: milliseconds(2_000, 200),
            warming: milliseconds(5_000, 700),
            lasting: milliseconds(16_000, 1_500),
            hogs: options.sized(6, 2),
            rounds: options.sized(6, 1),
        }
    }

    /// What the files take.
    pub(super) const fn disk_bytes(&self) -> u64 {
        self.timed_bytes + self.large_bytes + self.stream_bytes + self.program_bytes_max
    }
}

/// What the cases share. Its parts go in this order: the daemon lets go of what it holds before the cgroup is removed.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) options: &'a Options,
    pub(super) sizes: Sizes,
    pub(super) guard: Option<Box<dyn Guarded>>,
    pub(super) vmtouch: Option<PathBuf>,
    pub(super) data: Data,
    pub(super) scope: Arc<Scope>,
    /// The disk can be held to [`SLOW_BYTES_A_SECOND`].
    pub(super) slow: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn open(
        options: &'a Options,
        start: Starter<'_>,
        report: &mut BenchReport,
    ) -> Result<Self, BenchError> {
        let sizes = Sizes::of(options);
        let available_bytes = proc::available_bytes()?;
        if available_bytes < sizes.memory_bytes * 3 / 2 {
            let problem = format!(
                "{} MiB of memory are available, {} are needed: end other programs, then try again",
                available_bytes / MIB,
                sizes.memory_bytes * 3 / 2 / MIB
            );
            return Err(BenchError::Unfit { problem });
        }
        let scope = Arc::new(Scope::make(sizes.memory_bytes)?);
        let data = Data::make(&options.workload, options.data.as_deref(), &sizes)?;
        let slow = scope.hold_reading(&data.timed, Some(SLOW_BYTES_A_SECOND));
        scope.hold_reading(&data.timed, None);
        let vmtouch = find_program("vmtouch");
        let mut stage = Self { options, sizes, guard: None, vmtouch, data, scope, slow };
        stage.start_guard(start, report);
        stage.describe(report);
        Ok(stage)
    }

    /// Without one the rest is measured all the same.
    pub(super) fn start_guard(&mut self, start: Starter<'_>, report: &mut BenchReport) {
        let started = start(Triggers::WorkingSet).and_then(|mut guard| {
            guard.protect(&DEFAULTS)?;
            guard.protect(&OFF)?;
            Ok(guard)
        });
        match started {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => report.note(format!("all that is protected is left out: {error}")),
        }
    }

    pub(super) fn describe(&self, report: &mut BenchReport) {
        report.note(format!(
            "{} MiB of memory in a cgroup; timed file {} MiB, stream {} MiB",
            self.sizes.memory_bytes / MIB,
            self.sizes.timed_bytes / MIB,
            self.sizes.stream_bytes / MIB
        ));
        match &self.data.program {
            Some(program) => report.note(format!(
                "the program is {} --version, a copy with its libraries: {} MiB",
                program.name,
                program.bytes / MIB
            )),
            None => report.note("no program with libraries was found: 'start' is left out"),
        }
        if !self.slow {
            report.note(
                "the disk cannot be held to 150 MB/s here (no blkio or io controller for it): left out",
            );
        }
        if self.vmtouch.is_none() {
            report.note("vmtouch is not installed: it is left out");
        }
        report.note(
            "earlyoom and MGLRU's min_ttl_ms watch the machine's memory, not a cgroup's: they are for the lab",
        );
    }

    /// Sets the protection; off where empty. Nothing where there is no guard.
    pub(super) fn protect(&mut self, settings: &[(&str, u64)]) -> Result<(), BenchError> {
        let settings = if settings.is_empty() { &OFF } else { settings };
        self.guard.as_mut().map_or(Ok(()), |guard| guard.protect(settings))
    }

    /// The daemon's use of the processors from now on.
    pub(super) fn daemon_meter(&self) -> ProcessorMeter {
        ProcessorMeter::start(self.guard.as_ref().and_then(|guard| guard.pid()))
    }

    /// Whom the working-set protection killed so far: process numbers.
    pub(super) fn floor_victims(&mut self) -> Result<Vec<u32>, BenchError> {
        let mut incidents = self.guard.as_mut().map_or(Ok(Vec::new()), |guard| guard.incidents())?;
        incidents.retain(|incident| incident.guard == Guard::Workingset && is_our_kill(incident));
        Ok(incidents.iter().flat_map(|incident| &incident.victims).map(|victim| victim.pid.0).collect())
    }
}
