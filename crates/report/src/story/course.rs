//! How it came to an incident, and what came after it, in words: from what was recorded, and nothing else.

use super::Reader;
use plimsoll_policy::{
    human::bytes,
    incident::{Course, Guard, Incident, MachineSample},
    units::Bytes,
};

/// How far back programs' waiting is told of.
const STALLS_MS: i64 = 30_000;

/// Waiting that is worth a sentence for everyone: a twentieth of the time.
const STALL_PERMILLE: u16 = 50;

/// Under this a course is too short to say that something was steady.
const STEADY_MS: i64 = 3_000;

/// What usage did before the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trend {
    /// It rose to what it was then.
    Grew {
        /// From when on, in milliseconds before the decision; positive.
        since_ms: u64,
        /// From what.
        from_bytes: u64,
        /// To what.
        to_bytes: u64,
    },
    /// It was about the same.
    Steady {
        /// For how long, in milliseconds.
        for_ms: u64,
        /// About what.
        bytes: u64,
    },
}

/// Something over time, oldest first: milliseconds from the decision, and how much.
pub type Points = Vec<(i64, u64)>;

/// Usage over time, oldest first: the account's, or of all programs where it was the machine's; up to the decision, and
/// after it. Times are in milliseconds from the decision.
///
/// The decision itself is the last point before, where it was the guard's. A kill that was not ours tells what its victim
/// held, which is no point of this: there the last sample ends what was before.
#[must_use]
pub fn usage(incident: &Incident) -> (Points, Points) {
    let all: Points = match (&incident.course, &incident.account) {
        (Some(course), Some(_)) => {
            course.account.iter().map(|sample| (sample.at_ms, sample.usage_bytes)).collect()
        }
        (Some(course), None) => course
            .machine
            .iter()
            .filter_map(|sample| sample.anon_bytes.map(|bytes| (sample.at_ms, bytes)))
            .collect(),
        (None, _) => Vec::new(),
    };
    let (mut before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at_ms, _)| *at_ms <= 0);
    if incident.guard == Guard::Kernel {
        return (before, after);
    }
    // A sample of the very millisecond may be of before the crossing or of after it: the decision says what it was.
    before.retain(|(at_ms, _)| *at_ms < 0);
    before.push((0, incident.usage_bytes));
    (before, after)
}

/// What usage did, by its points up to the decision; `None` where there is nothing to go by.
#[must_use]
pub fn trend(points: &[(i64, u64)]) -> Option<Trend> {
    let ((first_ms, _), (_, peak)) = (points.first()?, *points.last()?);
    let base = points.iter().map(|(_, usage)| *usage).min()?;
    let rise = peak.saturating_sub(base);
    if rise > peak >> 3 {
        // The last time that it was down there, or hardly above.
        let foot = base.saturating_add(rise >> 4);
        let (at_ms, from) = points.iter().rev().find(|(_, usage)| *usage <= foot)?;
        return Some(Trend::Grew { since_ms: at_ms.unsigned_abs(), from_bytes: *from, to_bytes: peak });
    }
    let for_ms = first_ms.saturating_neg();
    (for_ms >= STEADY_MS).then_some(Trend::Steady { for_ms: for_ms.unsigned_abs(), bytes: peak })
}

/// What came before.
pub(super) fn before(incident: &Incident, reader: Reader) -> Vec<String> {
    let Some(course) = &incident.course else { return Vec::new() };
    let mut sentences = Vec::new();
    sentences.extend(trend(&usage(incident).0).map(|trend| in_words(incident, trend, reader)));
    sentences.extend(available_then(incident, course));
    sentences.extend(stalls(course, reader));
    sentences
}

fn in_words(incident: &Incident, trend: Trend, reader: Reader) -> String {
    let what = if incident.account.is_some() { "Usage" } else { "The memory of programs" };
    match trend {
        Trend::Grew { since_ms, from_bytes, to_bytes } => {
            let (from, to) = (bytes(Bytes(from_bytes)), bytes(Bytes(to_bytes)));
            let rise = to_bytes.saturating_sub(from_bytes).saturating_mul(1000);
            let rate = rise.checked_div(since_ms).filter(|_| reader == Reader::Administrator);
            let rate = rate.map_or_else(String::new, |rate| format!(", {} a second", bytes(Bytes(rate))));
            format!("{what} grew from {from} to {to} in the last {}{rate}.", seconds(since_ms))
        }
        Trend::Steady { for_ms, bytes: about } => {
            format!("{what} had been about {} for {}.", bytes(Bytes(about)), seconds(for_ms))
        }
    }
}

/// For a line: whether the machine was short as well.
fn available_then(incident: &Incident, course: &Course) -> Option<String> {
    incident.account.as_ref()?;
    let last = course.machine.iter().rfind(|sample| sample.at_ms <= 0)?;
    let (available, total) = (last.mem_available_bytes?, course.mem_total_bytes?);
    Some(format!("The machine had {} of its {} available.", bytes(Bytes(available)), bytes(Bytes(total))))
}

fn stalls(course: &Course, reader: Reader) -> Option<String> {
    let recent =
        || course.machine.iter().filter(|one| one.at_ms <= 0 && one.at_ms >= STALLS_MS.saturating_neg());
    let most = |pick: fn(&MachineSample) -> Option<u16>| recent().filter_map(pick).max();
    let some = most(|sample| sample.some_permille)?;
    if reader == Reader::User && some < STALL_PERMILLE {
        return None;
    }
    let full = most(|sample| sample.full_permille);
    let full = full.map_or_else(String::new, |full| format!(", all of them at once {}", percent(full)));
    Some(format!("Programs waited for memory for up to {} of the time{full}.", percent(some)))
}

/// What is read sooner is not told: less than this is '0.0 s'.
const AFTER_MS: u64 = 100;

/// What came after.
pub(super) fn after(incident: &Incident) -> Option<String> {
    let course = incident.course.as_ref()?;
    // What was read before memory was back says nothing of what came after.
    let back_ms = incident.signal_to_freed_ns.unwrap_or_default().checked_div(1_000_000).unwrap_or_default();
    let is_after = |at_ms: i64| u64::try_from(at_ms).is_ok_and(|at_ms| at_ms >= AFTER_MS && at_ms > back_ms);
    let machine = course.machine.iter().rfind(|sample| is_after(sample.at_ms));
    let available =
        machine.and_then(|sample| Some((sample.at_ms, bytes(Bytes(sample.mem_available_bytes?)))));
    let usage = course.account.iter().rfind(|sample| is_after(sample.at_ms));
    let usage = usage.filter(|_| incident.account.is_some());
    match (usage, available) {
        (Some(usage), available) => {
            let machine = available.map_or_else(String::new, |(_, available)| {
                format!("; the machine had {available} available")
            });
            let (later, usage) = (seconds(usage.at_ms.unsigned_abs()), bytes(Bytes(usage.usage_bytes)));
            Some(format!("After {later} usage was {usage}{machine}."))
        }
        (None, Some((at_ms, available))) => {
            let before = course.machine.iter().rfind(|sample| sample.at_ms <= 0);
            let before = before
                .and_then(|sample| sample.mem_available_bytes)
                .map_or_else(String::new, |before| format!(", after {} just before", bytes(Bytes(before))));
            let later = seconds(at_ms.unsigned_abs());
            Some(format!("After {later} the machine had {available} available{before}."))
        }
        (None, None) => None,
    }
}

/// A part in a thousand as people say it: `34 %`, `0.4 %`.
#[must_use]
pub fn percent(permille: u16) -> String {
    let (whole, tenth) = (permille.checked_div(10).unwrap_or(0), permille.checked_rem(10).unwrap_or(0));
    if permille >= 100 || tenth == 0 { format!("{whole} %") } else { format!("{whole}.{tenth} %") }
}

/// A span to the second, from milliseconds: `0.4 s`, `14 s`, `4 min 40 s`.
#[must_use]
pub fn seconds(ms: u64) -> String {
    if ms < 1000 {
        return format!("0.{} s", ms.checked_div(100).unwrap_or(0));
    }
    let all = ms.saturating_add(500).checked_div(1000).unwrap_or(0);
    let (minutes, rest) = (all.checked_div(60).unwrap_or(0), all.checked_rem(60).unwrap_or(0));
    match (minutes, rest) {
        (0 | 1, _) => format!("{all} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, rest) => format!("{minutes} min {rest} s"),
    }
}

#[cfg(test)]
mod tests;
