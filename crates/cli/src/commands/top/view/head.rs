//! The first lines: how the daemon stands, the machine's memory, the guards.

use super::{Ink, State, bar, size};
use crate::{
    commands::status::{self, known},
    output,
};
use jiff::{Timestamp, tz::TimeZone};
use plimsoll_api::status::{FragmentationView, Guards, OwnView, Pressure, Status};
use ratatui::text::Line;

/// Memory that lasts no longer is coloured.
const SOON_NS: u64 = 60_000_000_000;

/// From one line, before there was an answer, to nine; why there is no answer is wrapped, the others are cut.
pub(super) fn lines(state: &State, ink: Ink, width: u16) -> Vec<Line<'static>> {
    let clock = |time: Timestamp| clock(time, &state.zone);
    let mut lines = Vec::new();
    match (&state.trouble, &state.status) {
        (Some((trouble, last)), _) => {
            let shown =
                last.map_or_else(String::new, |last| format!(" What is shown is of {}.", clock(last)));
            lines.push(Line::styled(
                format!("{}  NO ANSWER, trying again.{shown}", clock(state.now)),
                ink.alarm(),
            ));
            let trouble = output::wrapped(&output::printable(trouble), usize::from(width));
            lines.extend(trouble.into_iter().map(|line| Line::styled(line, ink.alarm())));
        }
        (None, Some(status)) => {
            let text = format!("{}  Plimsoll{}", clock(state.now), footing(&status.guards.own));
            lines.push(Line::styled(text, ink.heading()));
        }
        (None, None) => lines.push(Line::raw(format!("{}  Asking the daemon ...", clock(state.now)))),
    }
    if let Some(status) = &state.status {
        lines.extend(memory(&status.pressure, ink));
        lines.extend(margin(&status.pressure, ink));
        lines.extend(guards(status, state));
    }
    lines
}

fn clock(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

fn footing(own: &OwnView) -> String {
    let uptime = own.uptime_seconds.map(|seconds| format!(" guards for {}", status::duration(seconds)));
    let resident = own.resident_bytes.map(|bytes| format!(", {} resident", size(bytes)));
    [uptime, resident].into_iter().flatten().collect()
}

/// Used against all, with a sign where SIGTERM is sent.
fn memory(pressure: &Pressure, ink: Ink) -> Vec<Line<'static>> {
    let (total, available) = (pressure.mem_total_bytes, pressure.mem_available_bytes);
    let mut text = "Memory ".to_owned();
    if let (Some(total), Some(available)) = (total, available) {
        let from = pressure.term_at_mem_bytes.map(|at| total.saturating_sub(at));
        text.push_str(&format!("{} ", bar(total.saturating_sub(available), from, total)));
    }
    text.push_str(&format!("{} available of {}", known(available), known(total)));
    let is_low = available.is_some() && available <= pressure.term_at_mem_bytes;
    let mut lines = vec![if is_low { Line::styled(text, ink.warning()) } else { Line::raw(text) }];
    if pressure.swap_total_bytes != Some(0) {
        let (total, free) = (pressure.swap_total_bytes, pressure.swap_free_bytes);
        let mut text = "Swap   ".to_owned();
        if let (Some(total), Some(free)) = (total, free) {
            let from = pressure.term_at_swap_bytes.map(|at| total.saturating_sub(at));
            text.push_str(&format!("{} ", bar(total.saturating_sub(free), from, total)));
        }
        lines.push(Line::raw(format!("{text}{} free of {}", known(free), known(total))));
    }
    lines
}

/// What the machine guard keeps, and how long memory lasts.
fn margin(pressure: &Pressure, ink: Ink) -> Option<Line<'static>> {
    let margin = pressure.margin.as_ref()?;
    let mut text = match margin.fill_bytes_per_second {
        0 => "Margin none: memory is not being used up".to_owned(),
        fill => format!("Margin {}, filling at {}/s", size(margin.bytes), size(fill)),
    };
    let Some(left) = pressure.exhausted_in_ns else { return Some(Line::raw(text)) };
    text.push_str(&format!("; used up in {}", status::left(left)));
    Some(if left < SOON_NS { Line::styled(text, ink.warning()) } else { Line::raw(text) })
}

/// The guards, what is held of the working set, large blocks.
fn guards(status: &Status, state: &State) -> Vec<Line<'static>> {
    let Guards { limits, pressure, workingset, fragmentation, .. } = &status.guards;
    let dying = limits.dying.saturating_add(pressure.dying);
    let told = |name: &str, state: &str, dry: bool| {
        format!("{name} {}{}", output::printable(state), if dry { " (dry run)" } else { "" })
    };
    let mut lines = format!(
        "Guards {dying} dying; {}; {}",
        told("limits", &limits.state, limits.dry_run),
        told("pressure", &pressure.state, pressure.dry_run)
    );
    for (name, at) in
        [("TERM", status.pressure.term_at_mem_bytes), ("KILL", status.pressure.kill_at_mem_bytes)]
    {
        lines.push_str(&at.map_or_else(String::new, |at| format!(", {name} at {}", size(at))));
    }
    let mut files =
        workingset.as_ref().map_or_else(|| "not known".to_owned(), |guard| output::printable(&guard.state));
    if let Some(held) = &state.held {
        let locked = held.hard.locked_bytes.saturating_add(held.soft.locked_bytes);
        let count = held.hard.files.saturating_add(held.soft.files);
        files.push_str(&format!(", {} held of {}", size(locked), output::counted(count, "file", "files")));
        if let Some(floor) = &held.floor {
            files.push_str(&format!(
                "; clean {}, floor {}",
                known(floor.clean_bytes),
                size(floor.line_bytes)
            ));
        }
    }
    let blocks = fragmentation.as_ref().map_or_else(|| "not known".to_owned(), blocks);
    vec![
        Line::raw(lines),
        Line::raw(format!("Working set {files}")),
        Line::raw(format!("Large blocks {blocks}")),
    ]
}

fn blocks(fragmentation: &FragmentationView) -> String {
    let mut text = output::printable(&fragmentation.state);
    for order in &fragmentation.orders {
        text.push_str(&format!("; order {}: {} of {} kept", order.order, order.blocks, order.kept));
        if let Some(left) = order.gone_in_ns {
            text.push_str(&format!(", gone in {}", status::left(left)));
        }
    }
    if fragmentation.compacting {
        text.push_str("; compacting");
    }
    text
}
