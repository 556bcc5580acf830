//! What a line of a report begins, told by its beginning. Lines that begin nothing go on the one before them: mail wraps
//! lines at 72 columns, and the kernel prints some blocks in one message.

use super::scan::{contains, decimal, find, first_word, leading_number, words};
use crate::oom::ZoneKind;

/// The beginnings that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// `dumpsys invoked oom-killer: gfp_mask=...`
    Invoked,
    /// `CPU: 6 PID: 31329 Comm: dumpsys Tainted: ...`, `Pid: 23105, comm: apt-check ...`
    Who,
    /// `dumpsys cpuset=/ mems_allowed=0`
    Cpuset,
    /// A function of the call trace.
    Frame,
    /// `Task in /a killed as a result of limit of /b`
    MemcgTask,
    /// `memory: usage ...`, `swap: usage ...`, `kmem: usage ...`
    MemcgUse,
    /// `Memory cgroup stats for /a: ...`
    MemcgStats,
    /// `anon 1062739968`, after that.
    MemcgStat,
    /// `Mem-Info:`
    MemInfo,
    /// `active_anon:47096 ...`: page counters
    Counters,
    /// `Node 0 active_anon:188384kB ...`
    Node,
    /// `Node 0 Normal free:15088kB ...`
    Zone,
    /// `lowmem_reserve[]: 0 0 3188 3188`
    Reserve,
    /// `Node 0 Normal: 3313*4kB (UMEH) ...`
    Blocks,
    /// `Node 0 hugepages_total=0 ...`
    HugePages,
    /// `Free swap  = 0kB`, `2096998 pages RAM` and their like.
    Totals,
    /// `Unreclaimable slab info:`
    SlabHead,
    /// `kmalloc-2048   123KB   456KB`
    SlabRow,
    /// `[  pid  ]   uid  tgid ...`
    TableHead,
    /// `[   2092]     0  2092 ...`
    TableRow,
    /// `oom-kill:constraint=...`
    OomKill,
    /// `Out of memory: Killed process ...`, `Killed process ...`
    Kill,
    /// `Tasks in /a are going to be killed due to memory.oom.group set`
    Group,
    /// `oom_reaper: reaped process ...`
    Reaped,
    /// `sysrq: Manual OOM execution`
    Sysrq,
    /// Nobody may be killed, or the kernel panics.
    Nobody,
    /// Another dump begins: a failed allocation, which shows memory, too.
    Elsewhere,
    /// A line that is known and tells nothing here.
    Known,
}

/// Page counters that begin a line of the block under `Mem-Info:`.
const COUNTERS: [&[u8]; 15] = [
    b"active_anon:",
    b"inactive_anon:",
    b"active_file:",
    b"inactive_file:",
    b"unevictable:",
    b"slab_reclaimable:",
    b"slab_unreclaimable:",
    b"mapped:",
    b"shmem:",
    b"pagetables:",
    b"sec_pagetables:",
    b"kernel_misc_reclaimable:",
    b"free:",
    b"free_cma:",
    b"bounce:",
];

const KNOWN: [&[u8]; 16] = [
    b"Hardware name:",
    b"Call Trace",
    b"Call trace",
    b"Backtrace",
    b"Workqueue:",
    b"<TASK>",
    b"</TASK>",
    b"RIP:",
    b"Code:",
    b"RSP:",
    b"RAX:",
    b"Tasks state",
    b"Swap cache stats",
    b"Name  ",
    b"Exception stack",
    b"Stack:",
];

const TOTALS: [&[u8]; 9] = [
    b"total pagecache pages",
    b"pages in swap cache",
    b"pages RAM",
    b"pages HighMem",
    b"pages reserved",
    b"pages cma",
    b"pages hwpoisoned",
    b"pages shared",
    b"pages non-shared",
];

/// What `text`, without its prefix, begins.
pub(super) fn start(text: &[u8]) -> Option<Start> {
    by_beginning(text).or_else(|| by_shape(text)).or_else(|| by_content(text))
}

fn by_beginning(text: &[u8]) -> Option<Start> {
    Some(match text.first()? {
        b'o' if text.starts_with(b"oom-kill:") => Start::OomKill,
        b'o' if text.starts_with(b"oom_reaper: reaped process") => Start::Reaped,
        b'O' if contains(text, b"no killable processes") => Start::Nobody,
        b'O' if text.starts_with(b"Out of memory") => Start::Kill,
        b'M' if text.starts_with(b"Memory cgroup out of memory") => Start::Kill,
        b'M' if text.starts_with(b"Memory cgroup stats") => Start::MemcgStats,
        b'M' if text.starts_with(b"Mem-Info:") || text.starts_with(b"Mem-info:") => Start::MemInfo,
        b'K' if text.starts_with(b"Kernel panic") && contains(text, b"emory") => Start::Nobody,
        b'K' if text.starts_with(b"Killed process ") || text.starts_with(b"Kill process ") => Start::Kill,
        b'T' if text.starts_with(b"Tasks in ") => Start::Group,
        b'T' if text.starts_with(b"Task in ") => Start::MemcgTask,
        b's' | b'S' if is_sysrq(text) => Start::Sysrq,
        b'm' if text.starts_with(b"memory: usage") || text.starts_with(b"memory+swap: usage") => {
            Start::MemcgUse
        }
        b's' if text.starts_with(b"swap: usage") => Start::MemcgUse,
        b'k' if text.starts_with(b"kmem: usage") => Start::MemcgUse,
        b'U' if text.starts_with(b"Unreclaimable slab info") => Start::SlabHead,
        b'l' if text.starts_with(b"lowmem_reserve[]") => Start::Reserve,
        b'F' if text.starts_with(b"Free swap") => Start::Totals,
        b'T' if text.starts_with(b"Total swap") => Start::Totals,
        b'C' if text.starts_with(b"CPU: ") => Start::Who,
        b'P' if text.starts_with(b"Pid: ") => Start::Who,
        b'C' if text.starts_with(b"CPU ") => Start::Known,
        _ if KNOWN.iter().any(|known| text.starts_with(known)) => Start::Known,
        _ if COUNTERS.iter().any(|counter| text.starts_with(counter)) => {
            // With a unit it is the rest of a zone's or a node's line.
            let (word, _) = first_word(text);
            if word.last().is_some_and(u8::is_ascii_digit) { Start::Counters } else { return None }
        }
        _ => return None,
    })
}

/// `sysrq: Manual OOM execution`, `SysRq : Manual OOM execution`
fn is_sysrq(text: &[u8]) -> bool {
    text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case(b"sysrq")) && contains(text, b"OOM")
}

fn by_shape(text: &[u8]) -> Option<Start> {
    match text.first()? {
        b'[' => {
            let inside = text.get(1..)?.trim_ascii_start();
            if inside.starts_with(b"pid") {
                return Some(Start::TableHead);
            }
            let (_, rest) = leading_number(inside)?;
            let rest = rest.trim_ascii_start().strip_prefix(b"]")?;
            rest.trim_ascii_start().first().is_some_and(u8::is_ascii_digit).then_some(Start::TableRow)
        }
        b'0'..=b'9' => {
            let (_, rest) = leading_number(text)?;
            let rest = rest.trim_ascii_start();
            TOTALS.iter().any(|total| rest.starts_with(total)).then_some(Start::Totals)
        }
        b'N' | b'D' | b'H' | b'M' => zone(text),
        _ => None,
    }
}

/// Lines of nodes and zones, with or without `Node N` in front.
fn zone(text: &[u8]) -> Option<Start> {
    let (_, rest) = split_node(text).unwrap_or((0, text));
    let is_node = rest.len() < text.len();
    if is_node && rest.is_empty() {
        return Some(Start::Node);
    }
    let (name, after) = first_word(rest);
    let name = core::str::from_utf8(name).ok()?;
    if let Some(name) = name.strip_suffix(':')
        && ZoneKind::named(name).is_some()
    {
        return Some(Start::Blocks);
    }
    if ZoneKind::named(name).is_some() {
        if after.starts_with(b"free:") || is_node && after.is_empty() {
            return Some(Start::Zone);
        }
        return after.starts_with(b"per-cpu").then_some(Start::Known);
    }
    if is_node && rest.starts_with(b"hugepages_total=") {
        return Some(Start::HugePages);
    }
    (is_node && name.contains(':')).then_some(Start::Node)
}

/// `Node 3 ` and what follows.
pub(super) fn split_node(text: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = leading_number(text.strip_prefix(b"Node ")?.trim_ascii_start())?;
    Some((u32::try_from(number).ok()?, rest.trim_ascii_start()))
}

fn by_content(text: &[u8]) -> Option<Start> {
    if text.ends_with(b" invoked") || contains(text, b" invoked oom-killer") {
        return Some(Start::Invoked);
    }
    if is_frame(text) {
        return Some(Start::Frame);
    }
    if contains(text, b" mems_allowed=") && contains(text, b" cpuset=") {
        return Some(Start::Cpuset);
    }
    if contains(text, b"page allocation failure") || contains(text, b"page allocation stalls") {
        return Some(Start::Elsewhere);
    }
    let mut words = words(text);
    if let (Some(_), Some(used), Some(total), None) = (words.next(), words.next(), words.next(), words.next())
        && is_kilobytes(used)
        && is_kilobytes(total)
    {
        return Some(Start::SlabRow);
    }
    None
}

fn is_kilobytes(word: &[u8]) -> bool {
    word.strip_suffix(b"KB").is_some_and(|digits| decimal(digits).is_some())
}

/// `name+0x12/0x34`
fn is_frame(text: &[u8]) -> bool {
    let Some(at) = find(text, b"+0x") else { return false };
    text.get(at..).is_some_and(|offset| contains(offset.get(..40).unwrap_or(offset), b"/0x"))
}

/// `anon 1062739968`: a row of a cgroup's statistics. Other lines look so, too: only looked for where such rows are.
pub(super) fn is_memcg_stat(text: &[u8]) -> bool {
    let (name, rest) = first_word(text);
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'(' | b')' | b'0'..=b'9'))
        && decimal(rest).is_some()
}
