//! A trace of the machine guard: read, however spoilt, and what comes of it in words.

use plimsoll_policy::{
    human::{bytes, is_hazardous, shown, span},
    machine::{
        MachineConfig, MachineReading,
        trace::{Begin, Decided, Line, Recorded, Replay, Told, TraceFault},
    },
    reading::Reading,
    reason::Reason,
    selection::Candidate,
    units::{Bytes, Nanos},
    victim::VictimId,
};
use plimsoll_wire::text::FuzzTarget;
use serde::Serialize;
use std::fmt;

/// The longest trace that is read: some hundred times what the guard remembers.
pub const TRACE_BYTES_MAX: usize = 8 << 20;

/// The longest line: a beginning with all that a guard can remember takes a quarter.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A line that is none of a trace's. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// Counted from 1.
    line: usize,
    what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TraceError {}

/// Reads a trace and makes its decisions once more, with another configuration where one is `asked` for.
///
/// # Errors
/// [`TraceError`]: the first line that cannot be one.
pub fn replay(text: &[u8], asked: Option<MachineConfig>) -> Result<Replay, TraceError> {
    let mut replay = Replay::new(asked);
    let mut last = 0;
    for (line, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        last = line;
        let wrong = |what: String| TraceError { line, what };
        if bytes.len() > LINE_BYTES_MAX {
            return Err(wrong(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        let read: Line<'_> = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        replay.take(read).map_err(|fault| wrong(fault.to_string()))?;
    }
    replay.finish();
    if replay.about().is_none() {
        return Err(TraceError { line: last.max(1), what: TraceFault::NoBeginning.to_string() });
    }
    Ok(replay)
}

/// What a trace came to, for scripts.
#[derive(Debug, Serialize)]
pub struct Simulated<'a> {
    /// Of the machine that it was recorded on.
    mem_total_bytes: Option<u64>,
    page_size_bytes: u64,
    cpus: u32,
    looks: u64,
    span_ns: u64,
    /// Whether all was decided as on the machine; `None`: the trace does not say what was.
    exact: Option<bool>,
    decisions: Vec<Simulation<'a>>,
    /// More than are listed.
    decisions_left_out: u64,
}

/// One decision.
#[derive(Debug, Serialize)]
pub struct Simulation<'a> {
    /// From the first look.
    after_ns: u64,
    time: Option<String>,
    /// `None`: nothing was to be sent.
    signal: Option<&'static str>,
    victim: Option<Process<'a>>,
    /// `None`: nothing was decided.
    reason: Option<Reason>,
    mem_available_bytes: Option<u64>,
    anon_bytes: Option<u64>,
    swap_total_bytes: Option<u64>,
    swap_free_bytes: Option<u64>,
    margin_bytes: u64,
    /// Whether the trace has the same; `None`: it does not say.
    as_recorded: Option<bool>,
    /// What it has, where that is another.
    recorded: Option<Decided>,
    /// Something else was decided than on the machine before: the trace is of one where that was not done.
    supposed: bool,
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    #[serde(flatten)]
    id: VictimId,
    uid: Option<u32>,
    comm: Option<&'a str>,
    usage_bytes: Option<u64>,
}

/// What a replay came to, for scripts.
#[must_use]
pub fn simulated(replay: &Replay) -> Simulated<'_> {
    let (told, decisions) = replay.told();
    let (looks, times) = replay.looks();
    let about = replay.about();
    let (first, last) = times.unwrap_or_default();
    Simulated {
        mem_total_bytes: about.and_then(|about| about.mem_total).map(|bytes| bytes.0),
        page_size_bytes: about.map_or(0, |about| about.page_size),
        cpus: about.map_or(0, |about| about.cpus),
        looks,
        span_ns: last.saturating_sub(first).0,
        exact: replay.has_record().then(|| replay.is_exact()),
        decisions: told.iter().map(|told| simulation(replay, told, first)).collect(),
        decisions_left_out: decisions.saturating_sub(u64::try_from(told.len()).unwrap_or(u64::MAX)),
    }
}

fn simulation<'a>(replay: &'a Replay, told: &Told, first: Nanos) -> Simulation<'a> {
    let number = |reading: Reading<Bytes>| reading.known().map(|bytes| bytes.0);
    let MachineReading { mem_available, anon, swap_total, swap_free, .. } = told.reading;
    let id = told.decided.and_then(|decided| decided.victim);
    Simulation {
        after_ns: told.at.saturating_sub(first).0,
        time: replay.time(told.at).map(|time| format!("{time:.3}")),
        signal: told.decided.and_then(|decided| decided.signal).map(|signal| signal.name()),
        victim: id.or_else(|| told.first.map(|first| first.id())).map(|id| process(replay, id, told.first)),
        reason: told.decided.map(|decided| decided.reason),
        mem_available_bytes: number(mem_available),
        anon_bytes: number(anon),
        swap_total_bytes: number(swap_total),
        swap_free_bytes: number(swap_free),
        margin_bytes: told.margin.bytes.0,
        as_recorded: replay.has_record().then_some(told.recorded == Recorded::Same),
        recorded: match told.recorded {
            Recorded::Other(there) => Some(there),
            Recorded::Same | Recorded::Nothing => None,
        },
        supposed: told.supposed && replay.has_record(),
    }
}

fn process(replay: &Replay, id: VictimId, known: Option<Candidate>) -> Process<'_> {
    let known = known.filter(|known| known.id() == id);
    Process {
        id,
        uid: known.map(|known| known.uid.0),
        comm: replay.name(id),
        usage_bytes: known.and_then(|known| replay.bytes(&known)).map(|bytes| bytes.0),
    }
}

/// What a replay came to in words, a decision a line.
#[must_use]
pub fn words(replay: &Replay) -> String {
    let mut lines = Vec::from([opening(replay)]);
    let (told, decisions) = replay.told();
    let (_, times) = replay.looks();
    let (first, _) = times.unwrap_or_default();
    let mut supposes = false;
    for one in told {
        if one.supposed && replay.has_record() && !supposes {
            supposes = true;
            lines.push("The rest is supposed: the trace is of a machine where that was not done.".to_owned());
        }
        lines.push(sentence(replay, one, first));
    }
    let left_out = decisions.saturating_sub(u64::try_from(told.len()).unwrap_or(u64::MAX));
    if left_out > 0 {
        lines.push(format!("{left_out} more decisions are left out."));
    }
    lines.extend(ending(replay, decisions).map(str::to_owned));
    lines.join("\n")
}

fn opening(replay: &Replay) -> String {
    let (looks, times) = replay.looks();
    let (first, last) = times.unwrap_or_default();
    let Some(Begin { mem_total, cpus, .. }) = replay.about() else { return String::new() };
    let memory = mem_total.map_or_else(String::new, |total| format!(" with {}", bytes(total)));
    let cpus = if *cpus == 1 { String::from("1 CPU") } else { format!("{cpus} CPUs") };
    let since = replay.time(first).map_or_else(String::new, |time| format!(", from {time:.0}"));
    format!(
        "A machine{memory} and {cpus}, looked at {looks} times in {}{since}.",
        span(last.saturating_sub(first))
    )
}

fn sentence(replay: &Replay, told: &Told, first: Nanos) -> String {
    let after = span(told.at.saturating_sub(first));
    let here =
        told.decided.map_or_else(|| String::from("nothing"), |decided| deed(replay, &decided, told.first));
    let there = match told.recorded {
        _ if !replay.has_record() => String::new(),
        Recorded::Same => String::from(" As on the machine."),
        Recorded::Nothing => String::from(" Not so on the machine."),
        Recorded::Other(there) => format!(" On the machine: {}.", deed(replay, &there, None)),
    };
    format!("After {after}, with {}: {here}.{there}", memory(&told.reading))
}

fn memory(reading: &MachineReading) -> String {
    let MachineReading { mem_available, anon, swap_total, swap_free, .. } = *reading;
    let (Some(available), Some(anon)) = (mem_available.known(), anon.known()) else {
        return String::from("memory not known");
    };
    let of = available.saturating_add(anon);
    let swap = match (swap_total.known(), swap_free.known()) {
        (Some(total), Some(free)) if total > Bytes(0) => {
            format!("{} of {} swap free", bytes(free), bytes(total))
        }
        _ => String::from("no swap"),
    };
    format!("{} of {} available and {swap}", bytes(available), bytes(of))
}

/// What was decided, about whom; `first`: as far as it is known.
fn deed(replay: &Replay, decided: &Decided, first: Option<Candidate>) -> String {
    let size = first.and_then(|first| replay.bytes(&first));
    let size = size.map_or_else(String::new, |size| format!(", with {}", bytes(size)));
    let first = first.map(|first| first.id());
    let deed = match (decided.signal, decided.victim, first) {
        (Some(signal), Some(victim), _) => {
            format!("{} to {}{size}", signal.name(), named(replay, victim))
        }
        (_, _, Some(first)) => format!("no signal; {}{size}, would be first", named(replay, first)),
        _ => String::from("no signal"),
    };
    format!("{deed} ({})", decided.reason)
}

fn named(replay: &Replay, id: VictimId) -> String {
    let name = replay.name(id).map_or_else(String::new, |comm| format!(" ({})", shown(comm)));
    format!("process {}{name}", id.pid)
}

const fn ending(replay: &Replay, decisions: u64) -> Option<&'static str> {
    match (decisions, replay.has_record(), replay.is_exact()) {
        (0, ..) => Some("Nothing would have been done."),
        (_, true, true) => Some("All of it was decided as on the machine."),
        (_, true, false) => Some("Not all of it was decided as on the machine."),
        (_, false, _) => None,
    }
}

/// This reader, for the fuzzers.
pub const FUZZ_TARGET: FuzzTarget = FuzzTarget { name: "trace", check };

/// What must hold of any trace: it is told on lines that are safe to show, nobody is selected who is protected, and what was
/// read is bounded.
fn check(text: &[u8]) -> Result<(), &'static str> {
    for asked in [None, Some(MachineConfig::default())] {
        let Ok(replay) = replay(text, asked) else { continue };
        if words(&replay).lines().any(|line| line.contains(is_hazardous)) {
            return Err("a name is shown raw");
        }
        if serde_json::to_string(&simulated(&replay)).is_err() {
            return Err("it cannot be written as JSON");
        }
        let (told, _) = replay.told();
        if told.iter().any(|told| told.decided.is_some_and(|one| one.victim.is_some_and(|id| id.pid.0 <= 1)))
        {
            return Err("process 1 was selected");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
