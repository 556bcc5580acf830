//! The words for the floor of clean file memory.

use super::{Reader, moment::moment};
use plimsoll_policy::{
    human::bytes,
    incident::{Guard, Incident},
    units::Bytes,
};

/// How much was left of how much, and how many per cent of it that is: `200.0 MiB of 230.4 MiB (86 %)`.
fn left(incident: &Incident) -> String {
    let usage = bytes(Bytes(incident.usage_bytes));
    let Some(floor) = incident.hard_bytes else { return usage };
    let per_cent = u128::from(incident.usage_bytes).saturating_mul(100).checked_div(u128::from(floor));
    let per_cent = per_cent.map_or_else(String::new, |per_cent| format!(" ({per_cent} %)"));
    format!("{usage} of {}{per_cent}", bytes(Bytes(floor)))
}

/// How far clean file memory had fallen.
pub(super) fn opening(incident: &Incident) -> Option<String> {
    (incident.guard == Guard::Workingset).then(|| {
        let time = moment(incident);
        if incident.hard_bytes.is_some_and(|floor| incident.usage_bytes >= floor) {
            return format!(
                "{time}: nothing more could be taken back, with clean file memory at {}.",
                left(incident)
            );
        }
        format!("{time}: clean file memory fell to {}, less than is kept.", left(incident))
    })
}

/// The same for the journal.
pub(super) fn measure(incident: &Incident) -> Option<String> {
    (incident.guard == Guard::Workingset).then(|| format!("clean file memory {}", left(incident)))
}

/// What to do.
pub(super) fn advice(lighter: String, reader: Reader) -> Vec<String> {
    Vec::from([
        lighter,
        match reader {
            Reader::User => String::from(
                "ask the administrator for swap or zram, or for a lower floor; 'plimsoll protect show' shows the \
                 present one.",
            ),
            Reader::Administrator => String::from(
                "add swap or zram, so that memory that nobody uses can go there first, or keep a lower floor: plimsoll \
                 protect set clean_min_ratio=10.",
            ),
        },
    ])
}
