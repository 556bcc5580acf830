//! The words for blocks of several pages that ran out.

use super::moment::moment;
use plimsoll_policy::{
    frag::compaction::Ended,
    human::{bytes, span},
    incident::{Compacted, Incident},
    reason::Reason,
    units::{Bytes, Nanos},
};

/// So many blocks, as memory.
fn memory(compacted: &Compacted, blocks: u64) -> String {
    bytes(Bytes(blocks.saturating_mul(compacted.block_bytes)))
}

/// How few there were.
pub(super) fn opening(incident: &Incident) -> Option<String> {
    let compacted = incident.compaction.as_ref()?;
    let time = moment(incident);
    Some(format!(
        "{time}: blocks of {} ran out. {} of free memory lay in such blocks and larger ones; {} are kept.",
        bytes(Bytes(compacted.block_bytes)),
        memory(compacted, compacted.before),
        memory(compacted, compacted.kept),
    ))
}

/// How many there are now, and what that took.
pub(super) fn outcome(incident: &Incident) -> Option<String> {
    let compacted = incident.compaction.as_ref()?;
    let why = match compacted.ended {
        Ended::Enough => "then there were enough",
        Ended::NothingLeft => "then it made no more",
        Ended::Cost => "then it had cost what it may",
        Ended::Short => "then memory got short",
    };
    Some(format!(
        "kcompactd worked for {} within {}; {why}. {} of {} that are free lie in such blocks now.",
        span(Nanos(compacted.cost_ns)),
        span(Nanos(compacted.took_ns)),
        memory(compacted, compacted.after),
        bytes(Bytes(compacted.free_bytes)),
    ))
}

/// The same for the journal.
pub(super) fn measure(incident: &Incident) -> Option<String> {
    let compacted = incident.compaction.as_ref()?;
    Some(format!(
        "blocks of {}: {} before, {} after, {} kept, kcompactd {}",
        bytes(Bytes(compacted.block_bytes)),
        compacted.before,
        compacted.after,
        compacted.kept,
        span(Nanos(compacted.cost_ns)),
    ))
}

/// What to do.
pub(super) fn advice(reason: Reason) -> Vec<String> {
    let ask = String::from("see who asks for such blocks: plimsoll frag --record 10m.");
    if reason == Reason::CompactionInVain {
        let more = "keep more memory free, so that blocks are left whole: raise vm.min_free_kbytes.";
        return Vec::from([ask, String::from(more)]);
    }
    Vec::from([ask])
}
