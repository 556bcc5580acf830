//! `/dev/kmsg`: the kernel's log, record by record, and in it the lines of the report that belongs to one kill, which
//! [`crate::oom::parse`] understands.
//!
//! Anybody with the right to write to `/dev/kmsg`, root that is, can forge lines; a process's name and a cgroup's are
//! foreign text in every genuine one. What is not plain ASCII in a record, and every backslash, the kernel writes as `\xNN`
//! (`msg_add_ext_text`, kernel/printk/printk.c, 3.5 and later): `app-a\x2db.scope` is `app-a\x5cx2db.scope` there.

use super::{
    WireError,
    field::{decimal, decimal_u32, split_once},
};
use plimsoll_policy::units::{Bytes, Pid, Uid};
use std::borrow::Cow;

const FILE: &str = "/dev/kmsg";

/// One record. What continues it on further lines (a dictionary of `KEY=value`) is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRecord<'a> {
    /// Written by the kernel itself: facility 0.
    pub by_kernel: bool,
    /// Counts up by 1 with each record.
    pub sequence: u64,
    /// Microseconds on the scheduler's clock, which starts with the machine and drifts against all others.
    pub time_us: u64,
    /// The text as it was printed, but for line ends and tabs in it, which stay `\x0a` and `\x09`: a record is one line, and
    /// the reader of OOM reports makes several of it. What was printed as these four characters keeps its `\x5c`, so that
    /// nobody's name ends a line.
    pub text: Cow<'a, [u8]>,
}

/// Reads one record: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];TEXT` (Documentation/ABI/testing/dev-kmsg).
///
/// # Errors
/// [`WireError::Malformed`]
pub fn parse_kernel_record(record: &[u8]) -> Result<KernelRecord<'_>, WireError> {
    let wrong = || WireError::malformed(FILE, "record", "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT", record);
    let (header, rest) = split_once(record, b';').ok_or_else(wrong)?;
    let mut fields = header.split(|byte| *byte == b',').map(|field| decimal(field).ok_or_else(wrong));
    let mut next = || fields.next().ok_or_else(wrong)?;
    let (priority, sequence, time_us) = (next()?, next()?, next()?);
    let text = split_once(rest, b'\n').map_or(rest, |(text, _dictionary)| text);
    Ok(KernelRecord { by_kernel: priority < 8, sequence, time_us, text: unescaped(text) })
}

/// The text of a record without the kernel's escapes, those of line ends and tabs left.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let stays = |byte, rest: &[u8]| match byte {
        b'\n' | b'\t' => true,
        b'\\' => [b"x0a", b"x0A", b"x09"].into_iter().any(|kept| rest.starts_with(kept)),
        _ => false,
    };
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let (byte, next) =
            escaped_byte(rest).filter(|(byte, next)| !stays(*byte, next)).unwrap_or((*first, after));
        out.push(byte);
        rest = next;
    }
    Cow::Owned(out)
}

/// The byte that `\xNN` at the beginning of `text` stands for, and what follows it.
#[must_use]
pub fn escaped_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.strip_prefix(b"\\x")?.split_at_checked(2)?;
    let value =
        digits.iter().try_fold(0_u32, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))?;
    Some((u8::try_from(value).ok()?, rest))
}

/// The last line of a report: who was killed. Linux 3.x to 7.x.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KilledLine<'a> {
    /// The thread that was marked.
    pub thread: Pid,
    /// Its name.
    pub comm: &'a [u8],
    /// Of a memory cgroup.
    pub in_cgroup: bool,
    /// Resident anonymous memory.
    pub anon: Option<Bytes>,
    /// Resident shared memory (Linux 4.5).
    pub shmem: Option<Bytes>,
    /// Its real uid (Linux 4.19).
    pub uid: Option<Uid>,
}

/// What stands before it (`oom_kill_process`'s message, 3.x to 7.x).
const MESSAGES: [&[u8]; 4] = [
    b"",
    b"Out of memory: ",
    b"Out of memory (oom_kill_allocating_task): ",
    b"Memory cgroup out of memory: ",
];

/// Where the name of who asked ends at the latest: 15 bytes, each of which may be shown as four.
const COMM_SHOWN_MAX: usize = 60;

/// Reads `[Memory cgroup out|Out] of memory[ ...]: Kill[ed] process 7 (name) total-vm:..., anon-rss:...`; `None` for any
/// other line. The name is the process's own: what follows is searched from its end.
#[must_use]
pub fn parse_killed_line(text: &[u8]) -> Option<KilledLine<'_>> {
    let at = find(text, b"Killed process ")?;
    // From the beginning of the line: a cgroup in other lines may be called like one.
    let before = text.get(..at).filter(|before| MESSAGES.contains(before))?;
    let (number, rest) = split_once(text.get(at.checked_add(15)?..)?, b' ')?;
    // Some kernels write a comma after the number.
    let thread = decimal_u32(number.strip_suffix(b",").unwrap_or(number))?;
    let named = rest.strip_prefix(b"(")?;
    let end = find_last(named, b") total-vm:").or_else(|| find_last(named, b")"))?;
    let figures = named.get(end..)?;
    let kib = |name: &[u8]| {
        let digits = after(figures, name)?;
        decimal(split_once(digits, b'k')?.0)?.checked_mul(1024).map(Bytes)
    };
    Some(KilledLine {
        thread: Pid(thread),
        comm: named.get(..end)?,
        in_cgroup: find(before, b"emory cgroup").is_some(),
        anon: kib(b"anon-rss:"),
        shmem: kib(b"shmem-rss:"),
        uid: after(figures, b"UID:")
            .map(|rest| split_once(rest, b' ').map_or(rest, |(uid, _)| uid))
            .and_then(decimal_u32)
            .map(Uid),
    })
}

/// In the first line of a report.
const INVOKED: &[u8] = b" invoked oom-killer: ";

/// Follows the line of the first victim; those of the others come after it (`oom_kill_process`, mm/oom_kill.c).
const GROUP: &[u8] = b" are going to be killed due to memory.oom.group set";

/// The lines of a log that tell of one kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportSpan {
    /// Index of the first line; `None` where the kernel wrote none for this kill: it limits itself to 10 reports in 5 s
    /// (`oom_rs`, mm/oom_kill.c).
    pub first: Option<usize>,
    /// Index of the line that names the victim.
    pub killed: usize,
}

/// What a line is to [`find_report`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportPart {
    /// The first of a report.
    Begins,
    /// The cgroup of the victim goes as a whole.
    Group,
    /// Somebody was killed: the thread.
    Killed(Pid),
    /// Anything else.
    Other,
}

impl ReportPart {
    /// Of a line.
    #[must_use]
    pub fn of(line: impl AsRef<[u8]>) -> Self {
        let line = line.as_ref();
        if let Some(killed) = parse_killed_line(line) {
            Self::Killed(killed.thread)
        } else if find(line, INVOKED).is_some_and(|at| at <= COMM_SHOWN_MAX) {
            Self::Begins
        } else if line.starts_with(b"Tasks in ") && line.ends_with(GROUP) {
            Self::Group
        } else {
            Self::Other
        }
    }
}

/// Finds the report of the kill of `thread` in the lines of a log, the last one: from who asked to who was killed. Reports of
/// two kills never mix (`oom_lock`, mm/oom_kill.c), but other lines may stand between theirs; and one report has several
/// victims where a cgroup had to go as a whole.
#[must_use]
pub fn find_report(lines: impl Iterator<Item = ReportPart>, thread: Pid) -> Option<ReportSpan> {
    let mut found = None;
    // The report that was begun last, whether it has named a victim, and whether a cgroup goes whole with that one.
    let (mut begun, mut named, mut group) = (None, false, false);
    // The report of the victim that was named last.
    let mut current = None;
    for (index, part) in lines.enumerate() {
        match part {
            ReportPart::Begins => (begun, named, group) = (Some(index), false, false),
            ReportPart::Group => group = true,
            ReportPart::Killed(killed) => {
                if !named {
                    current = begun;
                } else if !group {
                    current = None;
                }
                named = true;
                if killed == thread {
                    found = Some(ReportSpan { first: current, killed: index });
                }
            }
            ReportPart::Other => {}
        }
    }
    found
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn find_last(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).rposition(|window| window == what)
}

fn after<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    text.get(find(text, what)?.checked_add(what.len())?..)
}

#[cfg(test)]
mod tests;
