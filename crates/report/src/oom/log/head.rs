//! The head of a report: who asked, for what, on which kernel, and through which functions.

use super::{
    draft::{Draft, name, printable},
    scan::{
        after, before, contains, find, find_last, first_word, leading_signed, nodes, number_u32_after,
        signed_after, words,
    },
};
use crate::oom::Gfp;
use plimsoll_policy::units::{Pid, Uid};
use plimsoll_wire::text::hexadecimal;

/// How long names of functions and of flags may be.
const NAME_BYTES_MAX: usize = 128;
const FLAGS_BYTES_MAX: usize = 512;
const RELEASE_BYTES_MAX: usize = 96;
/// The kernel shows 16 frames on some machines and all on others; what matters is near the allocation.
const FRAMES_MAX: usize = 64;
/// `TASK_COMM_LEN` without its end; workers of the kernel are shown with up to 64.
const COMM_BYTES_MAX: usize = 15;

/// `dumpsys invoked oom-killer: gfp_mask=0x40dc0(GFP_KERNEL|__GFP_ZERO), nodemask=(null), order=3, oom_score_adj=-950`
pub(super) fn invoked(draft: &mut Draft, text: &[u8]) {
    let comm = before(text, b" invoked oom-killer");
    let rest = after(text, b" invoked oom-killer").unwrap_or_default();
    draft.report.invoker.comm = name(who_of(comm));
    draft.report.invoker.oom_score_adj = signed_after(rest, b"oom_score_adj=");
    draft.report.order = signed_after(rest, b"order=");
    if let Some(mask) = after(rest, b"gfp_mask=") {
        let digits = mask.strip_prefix(b"0x").unwrap_or(mask);
        let length = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let bits = digits.get(..length.min(16)).and_then(hexadecimal);
        let names =
            digits.get(length..).and_then(|rest| rest.strip_prefix(b"(")).map(|rest| before(rest, b")"));
        // Where mail broke the line inside the flags, a blank got in.
        let names = names.map(|names| printable(names, FLAGS_BYTES_MAX).replace(' ', ""));
        draft.report.gfp = bits.map(|bits| Gfp { bits, names });
    }
    if let Some(mask) = after(rest, b"nodemask=") {
        draft.report.nodes_of_policy = nodes(before(before(mask, b", order"), b",  order"));
    }
}

/// The name in front of ` invoked`. An unknown prefix may still be there: a name has 15 bytes at most, so of more the
/// last word is taken.
fn who_of(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    if text.len() <= COMM_BYTES_MAX {
        return text;
    }
    let tail = find_last(text, b": ")
        .or_else(|| find_last(text, b"] "))
        .and_then(|at| text.get(at.checked_add(2)?..));
    let tail = tail.unwrap_or(text);
    if tail.len() <= 64 { tail } else { tail.rsplit(u8::is_ascii_whitespace).next().unwrap_or(tail) }
}

/// `CPU: 6 UID: 0 PID: 31329 Comm: dumpsys Tainted: G WC O 5.10.168 #1`, or `Pid: 1, comm: init Not tainted 3.2.0 #1`
pub(super) fn who(draft: &mut Draft, text: &[u8]) {
    if draft.has_who {
        return;
    }
    let pid = number_u32_after(text, b"PID: ").or_else(|| number_u32_after(text, b"Pid: "));
    let Some(pid) = pid else { return };
    draft.has_who = true;
    draft.report.invoker.pid = Some(Pid(pid));
    draft.report.invoker.uid = number_u32_after(text, b" UID: ").map(Uid);
    let comm = after(text, b"Comm: ").or_else(|| after(text, b"comm: "));
    if let Some(comm) = comm {
        let end = [b" Not tainted".as_slice(), b" Tainted:", b" Kdump:"]
            .into_iter()
            .filter_map(|mark| find(comm, mark))
            .min();
        if let Some(comm) = end.and_then(|end| comm.get(..end)) {
            // It names the same task as the line before it, without any prefix.
            draft.report.invoker.comm = name(comm.trim_ascii());
        }
        let tail = end.and_then(|end| comm.get(end..)).unwrap_or_default();
        draft.report.kernel = release(tail).map(|release| printable(release, RELEASE_BYTES_MAX));
    }
}

/// The release: the first word that begins with a digit and has a dot. Letters for taints come before it.
fn release(text: &[u8]) -> Option<&[u8]> {
    words(text).find(|word| word.first().is_some_and(u8::is_ascii_digit) && word.contains(&b'.'))
}

/// `dumpsys cpuset=/ mems_allowed=0`
pub(super) fn cpuset(draft: &mut Draft, text: &[u8]) {
    let Some(cpuset) = after(text, b" cpuset=") else { return };
    draft.report.cpuset.get_or_insert_with(|| printable(before(cpuset, b" mems_allowed="), 256));
    if draft.report.mems_allowed.is_none() {
        draft.report.mems_allowed = after(text, b"mems_allowed=").and_then(|list| nodes(first_word(list).0));
    }
}

/// One frame of the call trace; arm's name the caller and the called.
pub(super) fn frame(draft: &mut Draft, text: &[u8]) {
    if draft.has_memory || draft.report.stack.len() >= FRAMES_MAX {
        return;
    }
    if let Some(caller) = after(text, b" from ") {
        if draft.report.stack.is_empty() {
            push(draft, before(text, b" from "));
        }
        push(draft, caller);
    } else {
        push(draft, text);
    }
}

/// `[<c034a094>] (oom_kill_process+0x1/0x2)`, `? name+0x1/0x2`, `name.isra.7+0x1/0x2 [module]`, `name`
fn push(draft: &mut Draft, text: &[u8]) {
    let mut text = text.trim_ascii();
    while let Some(rest) = text.strip_prefix(b"[") {
        let Some(rest) = after(rest, b"]") else { return };
        text = rest.trim_ascii_start();
    }
    let text = text.strip_prefix(b"(").unwrap_or(text);
    // `? `: an address that happened to be on the stack, perhaps.
    let certain = text.strip_prefix(b"?");
    let text = certain.map_or(text, <[u8]>::trim_ascii_start);
    let end = text
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')))
        .unwrap_or(text.len());
    let symbol = text.get(..end).unwrap_or_default();
    if symbol.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_') {
        let frames = if certain.is_none() { &mut draft.report.stack } else { &mut draft.uncertain };
        if frames.len() < FRAMES_MAX {
            frames.push(printable(symbol, NAME_BYTES_MAX));
        }
    }
}

/// Whether a call trace names what only cgroups' limits go through.
pub(super) fn is_memcgs(function: &str) -> bool {
    ["mem_cgroup_out_of_memory", "mem_cgroup_oom"].iter().any(|start| function.starts_with(start))
}

/// An order that no allocation has: SysRq's.
pub(super) fn is_sysrqs(draft: &Draft) -> bool {
    draft.is_sysrq
        || draft.report.order == Some(-1)
        || draft.report.stack.iter().any(|function| {
            function.starts_with("moom_callback") || function.starts_with("sysrq_handle_moom")
        })
}

/// `oom_score_adj` at the end of an older head, which is before the flags in 4.6 to 4.8: found by its key wherever it is.
pub(super) fn adj_of(text: &[u8]) -> Option<i32> {
    after(text, b"oom_score_adj:").and_then(|rest| leading_signed(rest.trim_ascii_start()))
}

/// Whether this is the dump of an allocation that failed, and kills nobody.
pub(super) fn is_of_a_failure(function: &str) -> bool {
    contains(function.as_bytes(), b"warn_alloc")
}
