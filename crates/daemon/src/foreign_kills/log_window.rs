//! The end of the kernel's log, as far as it was written since the last kill: read when somebody was killed, and not before.

use plimsoll_policy::units::Pid;
use plimsoll_report::oom::{Report, diagnose, log};
use plimsoll_sys::kernel_log::KernelLog;
use plimsoll_wire::text::{KilledLine, ReportPart, ReportSpan, find_report, parse_killed_line};
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

/// A report is some 20 KiB long, on a machine with thousands of processes some hundred. The oldest lines give way.
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// The log and what was read of it.
#[derive(Debug)]
pub(super) struct LogWindow {
    log: KernelLog,
    lines: Lines,
}

/// Lines of the kernel, oldest first.
#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
}

#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Looked at once: every victim of a batch is searched for.
    part: ReportPart,
}

/// What the log says of one kill.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The report; `None` where the kernel wrote none for this one, or it is lost.
    pub(super) report: Option<Report>,
    /// The line that names the victim.
    pub(super) killed: Option<Killed>,
}

/// That line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) comm: String,
    pub(super) uid: Option<plimsoll_policy::units::Uid>,
    pub(super) bytes: Option<u64>,
    pub(super) in_cgroup: bool,
}

impl From<KilledLine<'_>> for Killed {
    fn from(line: KilledLine<'_>) -> Self {
        let shared = line.shmem.unwrap_or_default();
        Self {
            comm: plimsoll_wire::text::Printable(line.comm).to_string(),
            uid: line.uid,
            bytes: line.anon.map(|anon| anon.0.saturating_add(shared.0)),
            in_cgroup: line.in_cgroup,
        }
    }
}

impl LogWindow {
    /// A log that stands at its end.
    pub(super) fn new(log: KernelLog) -> Self {
        Self { log, lines: Lines::default() }
    }

    /// Readable when there is more.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.log.as_fd()
    }

    /// Goes back to the oldest line that the kernel still has.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.lines = Lines::default();
        self.log.rewind()
    }

    /// Reads what was written since.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let Self { log, lines } = self;
        log.read(|record| {
            // What a program writes to the log is not the kernel's word.
            if record.by_kernel {
                lines.push(&record.text);
            }
        })?;
        Ok(())
    }

    /// Whether the kernel has named this one as killed.
    pub(super) fn names(&self, thread: Pid) -> bool {
        self.lines.find(thread).is_some()
    }

    /// All that it says of one.
    pub(super) fn tell(&self, thread: Pid) -> Told {
        self.lines.tell(thread)
    }

    /// These have been told; see [`Lines::told`].
    pub(super) fn told(&mut self, threads: &[Pid]) {
        self.lines.told(threads);
    }
}

/// In the place of a thread that was told of: no thread has this number.
const NOBODY: Pid = Pid(0);

impl Lines {
    fn push(&mut self, text: &[u8]) {
        self.bytes = self.bytes.saturating_add(text.len());
        self.lines.push_back(Line { text: text.to_vec(), part: ReportPart::of(text) });
        while self.bytes > WINDOW_BYTES_MAX && self.drop_oldest() {}
    }

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.lines.pop_front();
        self.bytes = self.bytes.saturating_sub(oldest.as_ref().map_or(0, |line| line.text.len()));
        oldest.is_some()
    }

    fn find(&self, thread: Pid) -> Option<ReportSpan> {
        find_report(self.lines.iter().map(|line| line.part), thread)
    }

    fn tell(&self, thread: Pid) -> Told {
        let Some(span) = self.find(thread) else {
            return Told::default();
        };
        let killed =
            self.lines.get(span.killed).and_then(|line| parse_killed_line(&line.text)).map(Killed::from);
        let report = span.first.and_then(|first| {
            let lines = self.lines.iter().take(span.killed.saturating_add(1)).skip(first);
            let text: Vec<u8> = lines.flat_map(|line| line.text.iter().copied().chain([b'\n'])).collect();
            log::parse(&text).pop()
        });
        Told { report, killed }
    }

    /// Forgets what was said up to the last of these, who are named no more. What comes after it stays: the next victim may
    /// have been named already. So does the report of that last one, for the others of a cgroup that goes as a whole, who
    /// are named after it.
    fn told(&mut self, threads: &[Pid]) {
        // The report begun last, and the one that the last of them is in.
        let (mut begun, mut kept) = (None, None);
        for (index, line) in self.lines.iter_mut().enumerate() {
            match line.part {
                ReportPart::Begins => begun = Some(index),
                ReportPart::Killed(thread) if threads.contains(&thread) => {
                    line.part = ReportPart::Killed(NOBODY);
                    kept = Some(begun.unwrap_or(index));
                }
                ReportPart::Killed(_) | ReportPart::Group | ReportPart::Other => {}
            }
        }
        if let Some(kept) = kept {
            for _ in 0..kept {
                self.drop_oldest();
            }
            self.lines.shrink_to_fit();
        }
    }
}

/// What a report comes to: cause, in words, what to do.
pub(super) fn judged(report: &Report) -> (String, String, Vec<String>) {
    let diagnosis = diagnose(report);
    (diagnosis.cause.name().to_owned(), diagnosis.summary, diagnosis.advice)
}

#[cfg(test)]
mod tests;
