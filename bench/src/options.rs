//! How a bench is run.

use std::{path::PathBuf, time::Duration};

/// How long `workingset` builds without pressure, unless told otherwise.
pub const QUIET: Duration = Duration::from_secs(120);

/// How often `suite` and `frag` run each case, unless told otherwise.
pub const ROUNDS: usize = 5;

/// How to run a bench.
#[derive(Debug, Clone)]
pub struct Options {
    /// Few rounds and small sizes: shows that everything works, measures nothing well.
    pub quick: bool,
    /// The `plimsoll` binary that is measured.
    pub plimsoll: PathBuf,
    /// The binary that carries the workloads (`BINARY bench-workload ...` reaches [`crate::workload_main`]).
    pub workload: PathBuf,
    /// A folder whose allocators are taken before those of the machine.
    pub libraries: Option<PathBuf>,
    /// Run only cases whose name begins with this; all where `None`.
    pub only: Option<String>,
    /// Where `workingset` makes its files, in the temporary folder where `None`; and `suite` and `frag`, which have none then.
    pub data: Option<PathBuf>,
    /// How often `suite`, and `frag` in a guest, run each case under each guard.
    pub rounds: usize,
    /// Under which guards `suite` runs them, by name; all where this is empty.
    pub guards: Vec<String>,
    /// How long `workingset` builds without pressure.
    pub quiet: Duration,
    /// What it builds then, as a shell takes it; files of its own where `None`.
    pub build: Option<String>,
}

impl Default for Options {
    /// The full bench; the running binary is both the guard and the workload.
    fn default() -> Self {
        let own = PathBuf::from("/proc/self/exe");
        Self {
            quick: false,
            plimsoll: own.clone(),
            workload: own,
            libraries: None,
            only: None,
            data: None,
            rounds: ROUNDS,
            guards: Vec::new(),
            quiet: QUIET,
            build: None,
        }
    }
}

impl Options {
    /// `full`, or `quick` under [`Options::quick`].
    pub(crate) fn sized(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Whether cases may be asked for whose names begin with that.
    pub(crate) fn may_want(&self, cases: &str) -> bool {
        self.only.as_deref().is_none_or(|only| cases.starts_with(only) || only.starts_with(cases))
    }

    /// Whether the case is asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.only.as_deref().is_none_or(|prefix| case.starts_with(prefix))
    }
}
