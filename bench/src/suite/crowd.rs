//! Those that a scenario brings.

use super::stage::{Frozen, Group};
use crate::{child::Workload, error::BenchError};
use std::time::Duration;

/// All of them. What holds them goes first.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pub(super) frozen: Option<Frozen>,
    pub(super) groups: Vec<Group>,
    /// They may end.
    pub(super) hogs: Vec<Hog>,
    /// They cannot end, whoever kills them.
    pub(super) stuck: Vec<Workload>,
    /// They are to live.
    pub(super) others: Vec<Workload>,
}

/// One that takes memory.
#[derive(Debug)]
pub(super) struct Hog {
    process: Workload,
    /// Nothing where it has it.
    wants_bytes: Option<u64>,
}

impl Hog {
    /// One that is content with so much.
    pub(super) const fn that_wants(process: Workload, bytes: u64) -> Self {
        Self { process, wants_bytes: Some(bytes) }
    }

    /// It has ended, or has what it wants.
    fn is_done(&mut self) -> Result<bool, BenchError> {
        let Some(wants_bytes) = self.wants_bytes else { return Ok(true) };
        let heard = self.process.expect_within(Duration::from_millis(1), "holds");
        if heard.is_ok_and(|heard| heard.first().is_some_and(|bytes| *bytes >= wants_bytes)) {
            self.wants_bytes = None;
            return Ok(true);
        }
        has_ended(&self.process)
    }
}

impl Crowd {
    /// One hog, which is never content.
    pub(super) fn of(hog: Workload) -> Self {
        Self { hogs: vec![Hog::that_wants(hog, u64::MAX)], ..Self::default() }
    }

    /// Tells each hog; one that was ended takes no word any more.
    pub(super) fn tell(&mut self, line: &str) {
        self.hogs.iter_mut().for_each(|hog| drop(hog.process.tell(line)));
    }

    /// No hog takes any more.
    pub(super) fn is_done(&mut self) -> Result<bool, BenchError> {
        for hog in &mut self.hogs {
            if !hog.is_done()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many hogs have ended.
    pub(super) fn dead(&self) -> Result<usize, BenchError> {
        dead(self.hogs.iter().map(|hog| &hog.process))
    }
}

/// How many of these have ended.
pub(super) fn dead<'a>(workloads: impl IntoIterator<Item = &'a Workload>) -> Result<usize, BenchError> {
    workloads.into_iter().try_fold(0, |count, one| Ok(count + usize::from(has_ended(one)?)))
}

fn has_ended(workload: &Workload) -> Result<bool, BenchError> {
    Ok(workload.wait_dead_ns(Duration::ZERO)?.is_some())
}
