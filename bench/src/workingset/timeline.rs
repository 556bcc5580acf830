//! The timed reads over time, before and after: pressure from 0 s on, protection from half a minute on.

use super::segment::Course;
use super::{DEFAULTS, Stage};
use crate::{
    error::BenchError,
    report::{BenchReport, Mark, Trace},
};
use std::time::Duration;

const CASE: &str = "timeline";

/// Runs it, once.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if !stage.options.wants(CASE) {
        return Ok(());
    }
    let (after, lasting) = if stage.options.quick {
        (Duration::from_millis(500), stage.sizes.lasting)
    } else {
        (Duration::from_secs(30), Duration::from_secs(80))
    };
    let file = stage.data.timed.clone();
    let guarded = stage.guard.is_some();
    let course = Course {
        later: guarded.then_some((after, &DEFAULTS)),
        lasting: if guarded { lasting } else { after },
        ..Course::unprotected(stage, &file)
    };
    let segment = stage.run_segment(&course)?;
    let mut marks = vec![Mark { at_s: 0.0, label: "hog and stream begin".to_owned() }];
    if guarded {
        marks.push(Mark { at_s: after.as_secs_f64(), label: "workingset_protection=1".to_owned() });
    }
    report.traces.push(Trace {
        case: CASE.to_owned(),
        variant: format!(
            "timed file of {} MiB, {}",
            stage.sizes.timed_bytes / super::MIB,
            if stage.slow { "disk held to 150 MB/s" } else { "disk as it is" }
        ),
        unit: "s".to_owned(),
        points: segment.reads.iter().map(|read| [read.at, read.seconds]).collect(),
        marks,
    });
    Ok(())
}
