//! What loggers, collectors and mail put in front of a kernel's line, taken off again.
//!
//! Layers are taken off one by one, in whatever order they come: quoting (`> `), priorities (`<4>`), dates, host and
//! tag of syslog and the journal, the kernel's stamp, `printk`'s caller, `/dev/kmsg` and logcat heads.

use super::scan::{contains, decimal, find, first_word, leading_number};

/// How many layers a line may have: a quoted, collected, dated, tagged, stamped line has ten.
const LAYERS_MAX: usize = 24;
/// How long something in brackets may be to be a stamp.
const BRACKET_BYTES_MAX: usize = 48;
/// Tags under which loggers write the kernel's messages.
const KERNEL_TAGS: [&[u8]; 6] = [b"kernel", b"Kernel", b"klogd", b"vmunix", b"unknown", b"kmsg"];

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];

/// A line and what stood in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Line<'a> {
    /// The kernel's own words.
    pub(super) text: &'a [u8],
    /// Date and time.
    pub(super) clock: Option<&'a [u8]>,
    /// The kernel's stamp, in nanoseconds since boot.
    pub(super) since_boot_ns: Option<u64>,
    /// The machine.
    pub(super) host: Option<&'a [u8]>,
    /// Who printed it (`CONFIG_PRINTK_CALLER`): `T14021`, `C3`.
    pub(super) caller: Option<&'a [u8]>,
    /// It has a stamp or a date of its own, so that it goes on nothing before it.
    pub(super) is_stamped: bool,
    /// Another program's line.
    pub(super) is_foreign: bool,
}

/// Takes `raw` apart.
pub(super) fn strip(raw: &[u8]) -> Line<'_> {
    let mut line = Line { text: raw.trim_ascii(), ..Line::default() };
    for _ in 0..LAYERS_MAX {
        let Some(rest) = layer(&mut line) else { break };
        line.text = rest.trim_ascii_start();
    }
    line
}

/// Takes one layer off; `None` when what is left is the kernel's.
fn layer<'a>(line: &mut Line<'a>) -> Option<&'a [u8]> {
    let text = line.text;
    let (first, rest) = text.split_first()?;
    match first {
        b'>' | b'|' | b'`' => Some(rest),
        b'<' => priority(rest),
        b'[' => bracket(line, rest),
        0x1b => colour(rest),
        b'0'..=b'9' => kmsg(line, text).or_else(|| dated(line, text)).or_else(|| numbered(text)),
        b'A'..=b'Z' | b'a'..=b'z' | b'/' | b'.' => {
            dated(line, text).or_else(|| logcat(text)).or_else(|| tagged(line, text))
        }
        _ => None,
    }
}

/// `<4>`, as in `dmesg --raw` and in syslog packets.
fn priority(text: &[u8]) -> Option<&[u8]> {
    let (number, rest) = leading_number(text)?;
    if number < 1024 { rest.strip_prefix(b">") } else { None }
}

/// `ESC [ ... m`
fn colour(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"[")?;
    let end = text.iter().take(16).position(|byte| *byte == b'm')?;
    text.get(end.checked_add(1)?..)
}

/// The kernel's stamp, its caller, or a date in brackets. Not a row of the table of processes, nor an address.
fn bracket<'a>(line: &mut Line<'a>, text: &'a [u8]) -> Option<&'a [u8]> {
    let end = text.iter().take(BRACKET_BYTES_MAX).position(|byte| *byte == b']')?;
    let (inside, rest) = text.split_at_checked(end)?;
    let rest = rest.get(1..)?;
    let inside = inside.trim_ascii();
    if let Some(ns) = boot_stamp(inside) {
        line.is_stamped = true;
        line.since_boot_ns = line.since_boot_ns.or(ns);
        return Some(rest);
    }
    if let Some((b'T' | b'C', digits)) = inside.split_first()
        && decimal(digits).is_some()
    {
        line.caller = Some(inside);
        return Some(rest);
    }
    let is_time = inside.contains(&b':') && inside.iter().any(u8::is_ascii_digit) && !inside.contains(&b'<');
    let is_date = is_time
        && (contains(inside, b"20")
            || DAYS.iter().any(|day| inside.starts_with(day))
            || time_of_day(inside).is_some());
    if is_date {
        line.clock = line.clock.or(Some(inside));
        line.is_stamped = true;
        return Some(rest);
    }
    // Samsung's kernels put CPU, name and number of who printed in brackets after the stamp. Without one it is a name:
    // `runc:[2:INIT]`.
    (is_time && line.is_stamped).then_some(rest)
}

/// `12345.678901`, or `+0.002367` (which tells no time): the outer `None` where it is neither.
fn boot_stamp(inside: &[u8]) -> Option<Option<u64>> {
    let relative = inside.first() == Some(&b'+');
    let inside = inside.strip_prefix(b"+").unwrap_or(inside);
    let (seconds, rest) = leading_number(inside)?;
    let fraction = rest.strip_prefix(b".")?;
    let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, rest) = fraction.split_at_checked(digits)?;
    // `[    5.123456,0]` is how some vendors' kernels add the CPU.
    if digits == 0 || digits > 9 || !(rest.is_empty() || rest.starts_with(b",")) {
        return None;
    }
    if relative {
        return Some(None);
    }
    let scale = 10_u64.checked_pow(u32::try_from(9_usize.checked_sub(digits)?).ok()?)?;
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(decimal(fraction)?.checked_mul(scale)?);
    Some(ns)
}

/// Whether the line begins as a record of `/dev/kmsg` does.
pub(super) fn is_kmsg(raw: &[u8]) -> bool {
    kmsg(&mut Line::default(), raw.trim_ascii_start()).is_some()
}

/// `6,1234,5678901,-;`: priority, sequence number, microseconds (`Documentation/ABI/testing/dev-kmsg`).
fn kmsg<'a>(line: &mut Line<'a>, text: &'a [u8]) -> Option<&'a [u8]> {
    let (_, rest) = leading_number(text)?;
    let (_, rest) = leading_number(rest.strip_prefix(b",")?)?;
    let (us, rest) = leading_number(rest.strip_prefix(b",")?)?;
    let head = rest.strip_prefix(b",")?;
    let end = head.iter().take(128).position(|byte| *byte == b';')?;
    if let Some(caller) = head.get(..end).and_then(|head| super::scan::after(head, b"caller=")) {
        line.caller = Some(super::scan::before(caller, b","));
    }
    line.since_boot_ns = us.checked_mul(1000);
    line.is_stamped = true;
    head.get(end.checked_add(1)?..)
}

/// `hh:mm:ss` with whatever follows it up to a blank.
fn time_of_day(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = first_word(text);
    let mut parts = word.split(|byte| *byte == b':');
    let hour = decimal(parts.next()?)?;
    let minute = parts.next()?;
    let second = parts.next()?;
    let fits = hour < 24 && minute.len() == 2 && second.len() >= 2;
    (fits && decimal(minute).is_some() && leading_number(second).is_some()).then_some((word, rest))
}

/// A date and a time, and then perhaps a host and a tag.
fn dated<'a>(line: &mut Line<'a>, text: &'a [u8]) -> Option<&'a [u8]> {
    let rest = month_date(text).or_else(|| iso_date(text)).or_else(|| short_date(text))?;
    let length = text.len().checked_sub(rest.len())?;
    let clock = text.get(..length)?.trim_ascii_end();
    line.is_stamped = true;
    line.clock = line.clock.or(Some(clock));
    Some(logcat_columns(rest).unwrap_or_else(|| host_and_tag(line, rest)))
}

/// `[Mon ]Jun 14 04:09:56 [2024]`
fn month_date(text: &[u8]) -> Option<&[u8]> {
    let (word, rest) = first_word(text);
    let text = if DAYS.contains(&word) { rest } else { text };
    let (month, rest) = first_word(text);
    let (day, rest) = first_word(rest);
    if !MONTHS.contains(&month) || !(1..=31).contains(&decimal(day)?) {
        return None;
    }
    let (_, rest) = time_of_day(rest)?;
    let (year, after) = first_word(rest);
    Some(if year.len() == 4 && decimal(year).is_some() { after } else { rest })
}

/// `2024-06-14T04:09:56.123+00:00` or with a blank between.
fn iso_date(text: &[u8]) -> Option<&[u8]> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = date.split(|byte| *byte == b'-');
    let year = parts.next().filter(|year| year.len() == 4)?;
    decimal(year)?;
    decimal(parts.next()?)?;
    decimal(parts.next()?)?;
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    time_of_day(rest).map(|(_, rest)| rest)
}

/// logcat's `06-14 04:09:56.123`, or a time alone.
fn short_date(text: &[u8]) -> Option<&[u8]> {
    let (word, rest) = first_word(text);
    let is_date = word.len() == 5 && word.get(2) == Some(&b'-') && leading_number(word).is_some();
    let text = if is_date { rest } else { text };
    time_of_day(text).map(|(_, rest)| rest)
}

/// What follows a date in `logcat -v threadtime`: process, thread, level, tag.
fn logcat_columns(text: &[u8]) -> Option<&[u8]> {
    let (process, rest) = first_word(text);
    let (thread, rest) = first_word(rest);
    decimal(process)?;
    decimal(thread)?;
    let (level, rest) = first_word(rest);
    if level.len() != 1 || !level.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    let end = find(rest, b": ").filter(|end| *end < BRACKET_BYTES_MAX)?;
    rest.get(end.checked_add(2)?..)
}

/// `W/kernel  (    0): `
fn logcat(text: &[u8]) -> Option<&[u8]> {
    let (level, rest) = text.split_first()?;
    let rest = rest.strip_prefix(b"/")?;
    let end = find(rest, b"): ").filter(|end| *end < BRACKET_BYTES_MAX)?;
    level.is_ascii_uppercase().then(|| rest.get(end.checked_add(3)?..))?
}

/// `host kernel:`, `kernel:`, `kern.warn kernel:` after a date; another program's tag makes the line foreign.
fn host_and_tag<'a>(line: &mut Line<'a>, text: &'a [u8]) -> &'a [u8] {
    let (first, rest) = first_word(text);
    if let Some(tag) = first.strip_suffix(b":") {
        line.is_foreign |= !is_kernels(tag);
        return if line.is_foreign { text } else { rest };
    }
    let (second, after) = first_word(rest);
    if let Some(tag) = second.strip_suffix(b":") {
        // A kernel's own line right after the host: `name invoked oom-killer:` has no colon in its second word.
        line.is_foreign |= !is_kernels(tag);
        line.host = if contains(first, b"kern.") { None } else { Some(first) };
        return if line.is_foreign { text } else { after };
    }
    if second.starts_with(b"[") || second.starts_with(b"kern") {
        line.host = Some(first);
        return rest;
    }
    text
}

/// Whether a tag, with or without a number in brackets, is the kernel's.
fn is_kernels(tag: &[u8]) -> bool {
    KERNEL_TAGS.contains(&super::scan::before(tag, b"["))
}

/// Tags without a date: `kernel: `, `host kernel: ` (after the journal's stamp), `kern  :warn  : ` of `dmesg -x`, and
/// `c0 1234 ` of some phones.
fn tagged<'a>(line: &mut Line<'a>, text: &'a [u8]) -> Option<&'a [u8]> {
    let (first, rest) = first_word(text);
    if first.strip_suffix(b":").is_some_and(is_kernels) {
        return Some(rest);
    }
    if first.starts_with(b"kern.") {
        return Some(rest);
    }
    // `messages:Jun 14 04:09:56 ...`, as grep shows several files.
    if let Some(named) = find(first, b":").and_then(|at| text.get(at.checked_add(1)?..))
        && (is_stamped(named) || month_date(named).is_some() || iso_date(named).is_some())
    {
        return Some(named);
    }
    let (second, after) = first_word(rest);
    if second.strip_suffix(b":").is_some_and(|tag| tag == b"kernel") {
        line.host = line.host.or(Some(first));
        return Some(after);
    }
    if first == b"kern"
        && let Some(level) = rest.strip_prefix(b":")
    {
        let end = find(level, b":").filter(|end| *end < 12)?;
        return level.get(end.checked_add(1)?..);
    }
    let is_phone = line.is_stamped
        && first.first() == Some(&b'c')
        && decimal(first.get(1..)?).is_some_and(|cpu| cpu < 64);
    (is_phone && decimal(second).is_some()).then_some(after)
}

/// Whether a kernel's stamp is next.
fn is_stamped(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"[").and_then(|text| text.split(|byte| *byte == b']').next());
    inside.is_some_and(|inside| inside.len() < BRACKET_BYTES_MAX && boot_stamp(inside.trim_ascii()).is_some())
}

/// `123:` of `grep -n`.
fn numbered(text: &[u8]) -> Option<&[u8]> {
    let (_, rest) = leading_number(text)?;
    let rest = rest.strip_prefix(b":")?;
    (!rest.first()?.is_ascii_digit()).then_some(rest)
}

#[cfg(test)]
mod tests;
