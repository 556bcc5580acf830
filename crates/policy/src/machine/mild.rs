//! The steps before anybody is asked to end: to say so, and to make room where there is swap.

use super::{Facts, MachineAction, MachineConfig, MachineState, Thresholds, low, part};
use crate::units::{Bytes, Nanos};

/// As much at a time, so that the machine is not kept busy with it: 256 MiB.
const RECLAIM_MAX: Bytes = Bytes(256 << 20);

/// The next time after 2 s, when it is known what the last time did.
const RECLAIM_EVERY: Nanos = Nanos(2_000_000_000);

/// What to do when nobody has to end.
pub(super) fn step(
    facts: &Facts,
    config: &MachineConfig,
    state: &mut MachineState,
    now: Nanos,
) -> MachineAction {
    if let Some(told) = notice(facts, config, state) {
        return told;
    }
    // Not before: the kernel makes room by itself, and what is pushed out too early comes back from the disk.
    let short = config.memory_line(&config.term, facts.total());
    let has_room = facts.swap_free > part(facts.swap_total, config.term.swap);
    let due = state.reclaimed.is_none_or(|last| now >= last.saturating_add(RECLAIM_EVERY));
    if config.reclaim && has_room && due && facts.mem_available <= short {
        state.reclaimed = Some(now);
        let missing = Bytes(short.saturating_sub(facts.mem_available).0.max(1));
        return MachineAction::Reclaim { bytes: missing.min(RECLAIM_MAX) };
    }
    MachineAction::Rest
}

fn notice(facts: &Facts, config: &MachineConfig, state: &mut MachineState) -> Option<MachineAction> {
    let asked = config.notice?;
    let notice =
        Thresholds { memory: asked.memory.max(config.term.memory), swap: asked.swap.max(config.term.swap) };
    if !low(facts, &notice, config) {
        state.noticed = false;
        return None;
    }
    let line = facts.total().saturating_sub(config.memory_line(&notice, facts.total()));
    let told = core::mem::replace(&mut state.noticed, true);
    (!told).then_some(MachineAction::Notice { in_use: facts.anon, line })
}
