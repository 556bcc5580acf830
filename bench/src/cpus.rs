//! Which processors this thread may use.

use crate::error::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Those that it may.
pub(crate) fn allowed() -> Result<Vec<usize>, BenchError> {
    let allowed = sched_getaffinity(None).map_err(BenchError::io("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Has it use these alone; refused where there is none of them.
pub(crate) fn use_only(cpus: &[usize]) -> Result<(), BenchError> {
    let mut chosen = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| chosen.set(*cpu));
    sched_setaffinity(None, &chosen).map_err(BenchError::io(format!("sched_setaffinity {cpus:?}")))
}
