//! What other killers write to the journal: one line for each kill. Names and command lines in it are foreign text, and the
//! line comes from whoever the journal says that it does: the caller checks that.

use super::field::{decimal, decimal_u32, split_once};
use plimsoll_policy::{
    units::{Bytes, Pid, Uid},
    victim::Signal,
};

/// A cgroup that systemd-oomd ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomdLine<'a> {
    /// Its path.
    pub cgroup: &'a [u8],
}

/// Reads `Killed CGROUP due to ...` (systemd 248 and later) or `Marked CGROUP for killing due to ...` (later versions, which
/// ask hooks first); `None` for any other line. A cgroup whose name holds the same words is cut there.
#[must_use]
pub fn parse_oomd_line(text: &[u8]) -> Option<OomdLine<'_>> {
    let forms: [(&[u8], &[u8]); 2] =
        [(b"Killed ", b" due to memory "), (b"Marked ", b" for killing due to memory ")];
    for (begin, end) in forms {
        if let Some(rest) = text.strip_prefix(begin) {
            let at = rest.windows(end.len()).position(|window| window == end)?;
            let cgroup = rest.get(..at).filter(|path| path.starts_with(b"/"))?;
            return Some(OomdLine { cgroup });
        }
    }
    None
}

/// A process that earlyoom signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyoomLine<'a> {
    /// What was sent.
    pub signal: Signal,
    /// To which process.
    pub pid: Pid,
    /// Its uid (since 1.4).
    pub uid: Option<Uid>,
    /// Its name.
    pub comm: &'a [u8],
    /// Its resident memory.
    pub resident: Option<Bytes>,
}

/// A name has 15 bytes at most (`TASK_COMM_LEN`).
const COMM_BYTES: usize = 15;

/// Reads `sending SIGTERM to process 7 uid 1000 "name": oom_score 9, oom_score_adj 0, VmRSS 4962 MiB, cmdline "..."` as
/// earlyoom 1.3 to 1.9 write it, some with `badness` and without what follows the size; `None` for any other line.
#[must_use]
pub fn parse_earlyoom_line(text: &[u8]) -> Option<EarlyoomLine<'_>> {
    let rest = text.strip_prefix(b"sending ")?;
    let (signal, rest) = split_once(rest, b' ')?;
    let signal = match signal {
        b"SIGTERM" => Signal::Term,
        b"SIGKILL" => Signal::Kill,
        _ => return None,
    };
    let (pid, rest) = split_once(rest.strip_prefix(b"to process ")?, b' ')?;
    let pid = decimal_u32(pid).filter(|pid| *pid > 0)?;
    let (uid, rest) = match rest.strip_prefix(b"uid ") {
        Some(rest) => {
            let (uid, rest) = split_once(rest, b' ')?;
            (Some(Uid(decimal_u32(uid)?)), rest)
        }
        None => (None, rest),
    };
    let named = rest.strip_prefix(b"\"")?;
    // The last end that a name can have: one that holds such an end itself is no longer for that.
    let end = named.get(..named.len().min(COMM_BYTES.saturating_add(3)))?;
    let end = end.windows(3).rposition(|window| window == b"\": ")?;
    let resident = named.get(end..).and_then(resident);
    Some(EarlyoomLine { signal, pid: Pid(pid), uid, comm: named.get(..end)?, resident })
}

/// The first size: what comes after it is the command line.
fn resident(figures: &[u8]) -> Option<Bytes> {
    const NAME: &[u8] = b" VmRSS ";
    let at = figures.windows(NAME.len()).position(|window| window == NAME)?;
    let (mebibytes, rest) = split_once(figures.get(at.checked_add(NAME.len())?..)?, b' ')?;
    if !rest.starts_with(b"MiB") {
        return None;
    }
    decimal(mebibytes)?.checked_mul(1 << 20).map(Bytes)
}

#[cfg(test)]
mod tests;
