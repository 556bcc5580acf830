//! `oom_score_adj` as what it is: a preference of whoever started a process, seldom about this process.

use super::permille;
use crate::{selection::Weight, units::Uid};

/// The value with which the kernel's own OOM killer never takes a process (`OOM_SCORE_ADJ_MIN`, include/uapi/linux/oom.h).
pub const ADJ_NEVER: i16 = -1000;

/// The most that [`adj_weight`] gives.
pub const ADJ_HEAVIEST: Weight = permille(2000);

/// What a process of this `oom_score_adj` counts: 1000 permille at 0, 2000 at 1000, 250 at -1000.
///
/// The kernel adds it as permille of all memory; with 300 a browser's tab of 80 MiB then goes before a hog of 3 GiB
/// (earlyoom issue 344), and a container's 1000 before everything (issue 230). As a factor it decides between processes of
/// the same order of size, and nothing more.
///
/// -1000 of a user's process counts as 0: only root can set it, nobody sets it for users, and shells inherit it from a
/// server that did not give it up, after which nothing that is started from them can be selected.
#[must_use]
pub fn adj_weight(oom_score_adj: i16, uid: Uid) -> Weight {
    let adj = if oom_score_adj <= ADJ_NEVER && uid != Uid(0) { 0 } else { oom_score_adj.clamp(-1000, 1000) };
    let up = u16::try_from(adj).unwrap_or(0);
    let down = u16::try_from(adj.saturating_neg()).unwrap_or(0);
    let lost = down.saturating_mul(3).checked_div(4).unwrap_or(0);
    permille(1000_u16.saturating_add(up).saturating_sub(lost))
}
