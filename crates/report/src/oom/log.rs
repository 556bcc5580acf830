//! Reports of the kernel's OOM killer, found in any log and read into [`crate::oom::Report`].
//!
//! The log is hostile text of any length: names of processes and cgroups are other people's choice, lines are cut, wrapped,
//! quoted, escaped and mixed with others. Nothing here fails: what cannot be understood is `None`, what is no part of
//! a report is passed over. Time is linear in the input, memory bounded: by [`LINE_BYTES_MAX`], [`REPORTS_MAX`] and the
//! limits beside each list. Names leave as [`plimsoll_wire::text::Printable`] text.

mod cgroup;
mod draft;
mod escapes;
mod head;
mod kill;
mod memory;
mod prefix;
mod reading;
mod scan;
mod start;
mod tasks;

use crate::oom::{Report, diagnose};
use draft::Draft;
use plimsoll_wire::text::{FuzzTarget, is_safe_to_show};
use prefix::Line;
use start::{Start, start};
use std::{borrow::Cow, collections::VecDeque};

/// Of a longer line only the beginning is looked at.
pub const LINE_BYTES_MAX: usize = 16 << 10;
/// How many reports are kept: the last ones.
pub const REPORTS_MAX: usize = 4096;
/// How long a line may become when what was wrapped is put together again.
const WHOLE_BYTES_MAX: usize = 8 << 10;
/// Machines whose reports may come mixed in one log.
const STREAMS_MAX: usize = 8;

/// All reports of a log, oldest first; the last [`REPORTS_MAX`] of more.
#[must_use]
pub fn parse(log: &[u8]) -> Vec<Report> {
    let mut parser = Parser::default();
    for line in log.split(|byte| *byte == b'\n') {
        parser.line(line);
    }
    parser.finish().reports
}

/// What a log held.
#[derive(Debug, Default)]
pub struct Log {
    /// The reports, in the order in which they began.
    pub reports: Vec<Report>,
    /// How many more there were before these.
    pub left_out: u64,
}

/// Reads a log line by line.
#[derive(Debug, Default)]
pub struct Parser {
    /// A line that others may go on.
    pending: Option<Pending>,
    /// Reports not yet over, by the machine that wrote them.
    streams: Vec<Stream>,
    /// The stream that lines without a machine's name belong to.
    latest: usize,
    done: VecDeque<(u64, Report)>,
    begun: u64,
    left_out: u64,
    /// The first part of a line that quoted-printable mail broke.
    carried: Vec<u8>,
}

#[derive(Debug, Default)]
struct Stream {
    host: Option<Vec<u8>>,
    number: u64,
    draft: Draft,
}

/// A line, kept until it is known whether the next one goes on it.
#[derive(Debug)]
struct Pending {
    start: Start,
    text: Vec<u8>,
    clock: Option<Vec<u8>>,
    since_boot_ns: Option<u64>,
    host: Option<Vec<u8>>,
    caller: Option<Vec<u8>>,
}

impl Parser {
    /// Takes the next line, with or without its end.
    pub fn line(&mut self, raw: &[u8]) {
        let raw = raw.get(..LINE_BYTES_MAX).unwrap_or(raw);
        let raw = raw.trim_ascii_end();
        if let Some(part) = escapes::soft_break(raw) {
            if self.carried.len() < LINE_BYTES_MAX {
                self.carried.extend_from_slice(part);
            }
            return;
        }
        if self.carried.is_empty() {
            self.whole(raw);
        } else {
            let mut whole = core::mem::take(&mut self.carried);
            whole.extend_from_slice(raw);
            self.whole(&whole);
        }
    }

    /// No more lines come.
    #[must_use]
    pub fn finish(mut self) -> Log {
        if !self.carried.is_empty() {
            let whole = core::mem::take(&mut self.carried);
            self.whole(&whole);
        }
        self.flush();
        for stream in core::mem::take(&mut self.streams) {
            self.close(stream);
        }
        let mut reports: Vec<(u64, Report)> = self.done.into();
        reports.sort_by_key(|(number, _)| *number);
        Log { reports: reports.into_iter().map(|(_, report)| report).collect(), left_out: self.left_out }
    }

    /// A line as it was written: escapes that stand for line ends make several of it.
    fn whole(&mut self, raw: &[u8]) {
        let plain = escapes::plain(raw);
        let text: &[u8] = match &plain {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => text,
        };
        for (index, part) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = prefix::strip(part);
            self.piece(&line, index > 0);
        }
    }

    fn piece(&mut self, line: &Line<'_>, is_inside: bool) {
        if line.is_foreign {
            return;
        }
        if line.text.is_empty() {
            if !line.is_stamped && !is_inside {
                self.flush();
            }
            return;
        }
        if self.goes_on(line) {
            if let Some(pending) = &mut self.pending
                && pending.text.len().saturating_add(line.text.len()) < WHOLE_BYTES_MAX
            {
                pending.text.push(b' ');
                pending.text.extend_from_slice(line.text);
            }
            return;
        }
        let start = self.start_of(line);
        self.flush();
        if let Some(start) = start {
            self.pending = Some(Pending {
                start,
                text: line.text.to_vec(),
                clock: line.clock.map(<[u8]>::to_vec),
                since_boot_ns: line.since_boot_ns,
                host: line.host.map(<[u8]>::to_vec),
                caller: line.caller.map(<[u8]>::to_vec),
            });
        }
    }

    fn start_of(&self, line: &Line<'_>) -> Option<Start> {
        let in_stats = self.streams.get(self.latest).is_some_and(|stream| stream.draft.stats_begun > 0)
            || self.pending.as_ref().is_some_and(|pending| pending.start == Start::MemcgStats);
        start(line.text).or_else(|| (in_stats && start::is_memcg_stat(line.text)).then_some(Start::MemcgStat))
    }

    /// Whether the line is the rest of the pending one.
    fn goes_on(&self, line: &Line<'_>) -> bool {
        let Some(pending) = &self.pending else { return false };
        if line.is_stamped {
            return false;
        }
        // `Node 0 Normal` alone was cut before its numbers, whatever those look like.
        let is_cut = matches!(pending.start, Start::Node | Start::Zone) && !pending.text.contains(&b':');
        if is_cut {
            return true;
        }
        let is_closed =
            matches!(pending.start, Start::Frame | Start::SlabHead | Start::Known | Start::Elsewhere);
        !is_closed && self.start_of(line).is_none()
    }

    /// Takes the pending line in.
    fn flush(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let line = Line {
            text: &pending.text,
            clock: pending.clock.as_deref(),
            since_boot_ns: pending.since_boot_ns,
            host: pending.host.as_deref(),
            caller: pending.caller.as_deref(),
            ..Line::default()
        };
        let at = self.stream_of(line.host);
        let is_over =
            self.streams.get(at).is_some_and(|stream| stream.draft.is_over_at(pending.start, line.text));
        if is_over {
            self.begun = self.begun.saturating_add(1);
            let number = self.begun;
            if let Some(stream) = self.streams.get_mut(at) {
                let host = stream.host.clone();
                let over = core::mem::replace(stream, Stream { host, number, draft: Draft::default() });
                self.close(over);
            }
        }
        let Some(stream) = self.streams.get_mut(at) else { return };
        // Another task's line in between. Only the reaper speaks of the same kill from another one.
        let is_others = match (&stream.draft.caller, line.caller) {
            (Some(own), Some(caller)) => own.as_slice() != caller,
            _ => false,
        };
        let may_be_others =
            matches!(pending.start, Start::Reaped | Start::Invoked | Start::Kill | Start::OomKill);
        if !is_others || may_be_others {
            stream.draft.take(pending.start, &line);
        }
    }

    /// The stream of a machine; without a name, the one that spoke last.
    fn stream_of(&mut self, host: Option<&[u8]>) -> usize {
        let found = match host {
            Some(_) => self.streams.iter().position(|stream| stream.host.as_deref() == host),
            None => Some(self.latest).filter(|at| *at < self.streams.len()),
        };
        // A report that began without a machine's name got one: some lines lost their prefix.
        let nameless = || {
            Some(self.latest).filter(|at| self.streams.get(*at).is_some_and(|stream| stream.host.is_none()))
        };
        if let Some(at) = found.or_else(nameless) {
            self.latest = at;
            if let (Some(stream), Some(host)) = (self.streams.get_mut(at), host) {
                stream.host = Some(host.to_vec());
            }
            return at;
        }
        if self.streams.len() >= STREAMS_MAX {
            let oldest = self
                .streams
                .iter()
                .enumerate()
                .min_by_key(|(_, stream)| stream.number)
                .map_or(0, |(at, _)| at);
            let over = self.streams.swap_remove(oldest);
            self.close(over);
        }
        self.begun = self.begun.saturating_add(1);
        self.streams.push(Stream {
            host: host.map(<[u8]>::to_vec),
            number: self.begun,
            draft: Draft::default(),
        });
        self.latest = self.streams.len().saturating_sub(1);
        self.latest
    }

    fn close(&mut self, stream: Stream) {
        if let Some(report) = stream.draft.finish() {
            if self.done.len() >= REPORTS_MAX {
                self.done.pop_front();
                self.left_out = self.left_out.saturating_add(1);
            }
            self.done.push_back((stream.number, report));
        }
    }
}

/// This reader, for the fuzzers.
pub const FUZZ_TARGET: FuzzTarget = FuzzTarget { name: "oom", check };

/// What must hold of any log: names and words are safe to show, advice is short, a list is in its bounds.
fn check(log: &[u8]) -> Result<(), &'static str> {
    for report in parse(log) {
        let diagnosis = diagnose(&report);
        let victims =
            report.victim.iter().chain(&report.killed_with_it).filter_map(|victim| victim.comm.as_deref());
        let tasks = report.tasks.iter().map(|task| task.comm.as_str());
        let stamps =
            [&report.when.clock, &report.when.host, &report.kernel, &report.invoker.comm, &report.task_memcg];
        let shown = stamps.into_iter().flatten().map(String::as_str).chain(victims).chain(tasks);
        if !shown.chain([diagnosis.summary.as_str()]).all(is_safe_to_show) {
            return Err("a name or a sentence is shown raw");
        }
        if diagnosis.advice.is_empty() || diagnosis.advice.len() > 3 {
            return Err("no advice, or too much");
        }
        if report.zones.iter().any(|zone| zone.blocks.len() > 32) || report.stack.len() > 64 {
            return Err("a list is longer than promised");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
