//! A memory cgroup at its limit: whose, and what it held.

use super::{
    draft::{Draft, printable},
    kill::PATH_BYTES_MAX,
    scan::{after, before, contains, decimal, find, first_word, kilobytes_after, number_after, words},
};
use crate::oom::Memcg;
use plimsoll_policy::units::Bytes;

/// Limits from here on are none: `PAGE_COUNTER_MAX` and its neighbours, in bytes.
const NO_LIMIT: u64 = 1 << 60;

/// `Task in /a/b killed as a result of limit of /a`
pub(super) fn task(draft: &mut Draft, text: &[u8]) {
    let Some(rest) = after(text, b"Task in ") else { return };
    if !contains(rest, b" killed as a result of limit of ") {
        return;
    }
    draft.is_memcg = true;
    draft.has_memcg_task = true;
    draft.report.task_memcg = Some(printable(before(rest, b" killed as a result"), PATH_BYTES_MAX));
    let limited = after(rest, b" limit of ").map(|path| printable(first_word(path).0, PATH_BYTES_MAX));
    draft.report.memcg.get_or_insert_with(Memcg::default).path = limited;
}

/// `memory: usage 512000kB, limit 512000kB, failcnt 127`, and the same of swap and kernel memory.
pub(super) fn used(draft: &mut Draft, text: &[u8]) {
    draft.is_memcg = true;
    let usage = kilobytes_after(text, b"usage ");
    let limit = kilobytes_after(text, b"limit ").filter(|limit| limit.0 < NO_LIMIT);
    let memcg = draft.report.memcg.get_or_insert_with(Memcg::default);
    if text.starts_with(b"memory: ") && memcg.usage.is_none() {
        memcg.usage = usage;
        memcg.limit = limit;
        memcg.failures = number_after(text, b"failcnt ");
    } else if text.starts_with(b"kmem: ") {
        memcg.kernel = memcg.kernel.or(usage);
    } else if text.starts_with(b"swap: ") || text.starts_with(b"memory+swap: ") {
        memcg.swap_with_memory = text.starts_with(b"memory+swap: ");
        memcg.swap_usage = usage;
        memcg.swap_limit = limit;
    }
}

/// `Memory cgroup stats for /a: cache:507172KB rss:448KB ...` before 5.3; later the numbers follow line by line. Cgroups
/// below the limit's are listed, too, each with its own.
pub(super) fn stats(draft: &mut Draft, text: &[u8]) {
    draft.is_memcg = true;
    draft.stats_begun = draft.stats_begun.saturating_add(1);
    let Some(rest) = after(text, b" for ") else { return };
    // In the inline form the path ends before `: cache:`.
    let path = find(rest, b": cache").and_then(|end| rest.get(..end)).unwrap_or_else(|| first_word(rest).0);
    let path = path.strip_suffix(b":").unwrap_or(path);
    let numbers = rest.get(path.len()..).unwrap_or_default();
    let first = draft.stats_begun == 1;
    let memcg = draft.report.memcg.get_or_insert_with(Memcg::default);
    if first && memcg.path.is_none() && !path.is_empty() {
        memcg.path = Some(printable(path, PATH_BYTES_MAX));
    }
    for word in words(numbers) {
        let Some((key, value)) = find(word, b":").and_then(|at| word.split_at_checked(at)) else { continue };
        let kilobytes = value.get(1..).and_then(|value| decimal(value.strip_suffix(b"KB")?));
        if let Some(bytes) = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024)) {
            sum_up(memcg, key, bytes, false);
        }
    }
    // Unwrapped from one message: `anon 123 file 456`.
    let mut rest = numbers.strip_prefix(b":").unwrap_or(numbers).trim_ascii();
    while !rest.is_empty() {
        let (key, after) = first_word(rest);
        let (value, after) = first_word(after);
        if let Some(bytes) = decimal(value).filter(|_| first) {
            sum_up(memcg, key, bytes, true);
        }
        rest = after;
    }
}

/// `anon 1062739968`, in bytes.
pub(super) fn stat(draft: &mut Draft, text: &[u8]) {
    let (key, value) = first_word(text);
    if let (Some(bytes), 1, Some(memcg)) = (decimal(value), draft.stats_begun, draft.report.memcg.as_mut()) {
        sum_up(memcg, key, bytes, true);
    }
}

/// Puts one number where it belongs. v1's inline form lists each cgroup of the tree with its own numbers, which add up; a
/// block of lines is the whole tree's.
fn sum_up(memcg: &mut Memcg, key: &[u8], bytes: u64, whole: bool) {
    let slot = match key {
        b"anon" | b"rss" => &mut memcg.anon,
        b"file" | b"cache" => &mut memcg.file,
        b"shmem" => &mut memcg.shmem,
        b"unevictable" => &mut memcg.unevictable,
        b"slab" => &mut memcg.slab,
        b"kernel" => &mut memcg.kernel,
        _ => return,
    };
    *slot = Some(match *slot {
        Some(before) if whole => before,
        Some(before) => Bytes(before.0.saturating_add(bytes)),
        None => Bytes(bytes),
    });
}
