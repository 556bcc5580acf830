//! Draws figures over time: time to the right, the figure upwards, each decade as high as the next. Pure.

use crate::report::Trace;
use plimsoll_report::plot::{Plot, Row, Style, Unit};
use std::time::Duration;

/// The trace as a picture of its own, in SVG.
#[must_use]
pub fn svg(trace: &Trace) -> String {
    let points = trace.points.iter().map(|[at_s, figure_s]| {
        (milliseconds(*at_s), u64::try_from(duration(*figure_s).as_micros()).unwrap_or(u64::MAX))
    });
    let points: Vec<_> = points.collect();
    let marks: Vec<_> =
        trace.marks.iter().map(|mark| (milliseconds(mark.at_s), mark.label.as_str())).collect();
    let times = || points.iter().map(|(at_ms, _)| *at_ms).chain(marks.iter().map(|(at_ms, _)| *at_ms));
    let window = (times().min().unwrap_or(0), times().max().unwrap_or(0).max(1000));
    let rows = [Row { name: trace.variant.clone(), style: Style::Dots, points }];
    let title = &trace.variant;
    let description = "How long each took, over time.";
    Plot { id: "trace", title, description, unit: Unit::Micros, window, marks: &marks, rows: &rows }.picture()
}

/// Nothing where it is no time at all.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn milliseconds(at_s: f64) -> i64 {
    let size = i64::try_from(duration(at_s.abs()).as_millis()).unwrap_or(i64::MAX);
    if at_s < 0.0 { -size } else { size }
}

#[cfg(test)]
mod tests;
