//! Whom the kernel's own OOM killer takes: `oom_score_adj` of the largest process of an account that is near its line.
//!
//! The kernel scores a process by its pages and adds `oom_score_adj` thousandths of all that may be used (RAM and swap, or
//! `memory.max` and swap). Programs choose their own adjustment, so within an account the largest is not always the one
//! taken; and between accounts, a process of a user at the line is worth no more than one of a user without. So the
//! account's largest is put above all others of the account, by the account's line as a share of all memory: it is
//! weighed as if it held the whole account. A larger share would have a user with a small line pay for a large program of
//! somebody else.
//!
//! Only raised, never lowered: raising needs no right beyond the one to write, and putting back needs none either as
//! long as the writer has no `CAP_SYS_RESOURCE` (the kernel then leaves `oom_score_adj_min` alone).

use crate::{
    units::{Bytes, Pages},
    victim::VictimId,
};
use serde::{Deserialize, Serialize};

/// The kernel's `OOM_SCORE_ADJ_MAX`: always taken first.
pub const ADJUSTMENT_MAX: i16 = 1000;

/// Processes of one account that are compared: the largest.
pub const COMPARED_MAX: usize = 8;

/// Processes raised at the same time: one for each account that is near. More accounts than that go without.
pub const RAISED_MAX: usize = 64;

/// Another process must be larger than the raised one by one part in so many of its own usage to take its place: two of
/// about the same size would change places at each look.
const SWITCH_PARTS: u64 = 8;

/// A process of an account that is near, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// Which.
    pub id: VictimId,
    /// What it is charged.
    pub usage: Pages,
    /// Its own `oom_score_adj`: what it was before we raised it, where we did.
    pub own: i16,
    /// It is never to be taken: by executable, by cgroup.
    pub protected: bool,
}

/// A process whose `oom_score_adj` we raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// Which.
    pub id: VictimId,
    /// What it was before.
    pub before: i16,
    /// What we set.
    pub set: i16,
}

/// The line as a share of RAM and swap, in thousandths, rounded up: 1 to 1000.
#[must_use]
pub fn share(line: Bytes, ram_and_swap: Bytes) -> i16 {
    let product = u128::from(line.0).saturating_mul(1000);
    let parts = match u128::from(ram_and_swap.0) {
        0 => 1000,
        total => product.div_ceil(total),
    };
    i16::try_from(parts.clamp(1, 1000)).unwrap_or(ADJUSTMENT_MAX)
}

/// Who is to be above the others, and by how much; `None`: nobody. `holder` is who is raised now.
///
/// Protected processes and those with a negative adjustment (somebody who may wants them kept) are never raised and
/// compared with nobody.
#[must_use]
pub fn choose(compared: &[Compared], holder: Option<VictimId>, share: i16) -> Option<Raised> {
    let eligible = || compared.iter().filter(|one| !one.protected && one.own >= 0);
    // Of several of the same size the first in order of number, so that the choice is the same at each look.
    let largest = eligible().max_by_key(|one| (one.usage, core::cmp::Reverse(one.id.pid)))?;
    let held = holder.and_then(|holder| eligible().find(|one| one.id == holder));
    let chosen = match held {
        Some(held) if !is_clearly_larger(largest.usage, held.usage) => held,
        Some(_) | None => largest,
    };
    let others = eligible().filter(|one| one.id != chosen.id).map(|one| one.own).max().unwrap_or(0);
    let set = others.max(chosen.own).saturating_add(share.max(1)).min(ADJUSTMENT_MAX);
    (set > chosen.own).then_some(Raised { id: chosen.id, before: chosen.own, set })
}

fn is_clearly_larger(one: Pages, than: Pages) -> bool {
    let margin = than.0.checked_div(SWITCH_PARTS).unwrap_or(0);
    one.0 > than.0.saturating_add(margin)
}

/// What to write to put a process back; `None`: somebody changed it since, and it stays as it is.
#[must_use]
pub fn put_back(now: i16, before: i16, set: i16) -> Option<i16> {
    (now == set && before != set).then_some(before)
}
