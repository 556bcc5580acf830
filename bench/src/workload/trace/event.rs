//! One line of the trace pipe for `kmem:rss_stat`. Pure.

/// A change of a counter, as the trace pipe tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RssStat {
    /// The thread that caused it.
    pub(super) tid: u32,
    /// The kernel's hash of the address space.
    pub(super) mm: u64,
    /// Whether the address space is that thread's own.
    pub(super) current: bool,
    /// Anonymous pages or swap entries: what usage is made of.
    pub(super) charged: bool,
    /// Whether it is the anonymous counter.
    pub(super) anonymous: bool,
    /// The counter after the change, in bytes.
    pub(super) size_bytes: u64,
}

/// What a line of the trace pipe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// An event.
    Event(RssStat),
    /// So many events were overwritten before they were read.
    Lost(u64),
    /// Anything else, also damaged lines.
    Other,
}

/// Understands one line. A process may put anything into its name, also what looks like an event: the parts are
/// looked for from the end.
pub(super) fn decode(line: &str) -> Line {
    if let Some(event) = decode_event(line) {
        return Line::Event(event);
    }
    line.split_once("[LOST ")
        .filter(|(head, _)| head.starts_with("CPU:"))
        .and_then(|(_, rest)| rest.split_once(" EVENTS]")?.0.parse().ok())
        .map_or(Line::Other, Line::Lost)
}

fn decode_event(line: &str) -> Option<RssStat> {
    let (head, fields) = line.rsplit_once(": rss_stat: mm_id=")?;
    let task = head.rsplit_once(" [")?.0;
    let tid = task.rsplit_once('-')?.1.trim_end().parse().ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let mm = fields.next()?.parse().ok()?;
    let current = match fields.next()? {
        "curr=1" => true,
        "curr=0" => false,
        _ => return None,
    };
    let member = fields.next()?.strip_prefix("type=")?;
    // The sum over all processors may be negative for a moment; a counter below 0 is an empty one.
    let size: i64 = fields.next()?.strip_prefix("size=")?.strip_suffix('B')?.parse().ok()?;
    let anonymous = member == "MM_ANONPAGES";
    let size_bytes = u64::try_from(size.max(0)).ok()?;
    Some(RssStat { tid, mm, current, charged: anonymous || member == "MM_SWAPENTS", anonymous, size_bytes })
}

#[cfg(test)]
mod tests;
