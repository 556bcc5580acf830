//! When it was, as a story begins.

use plimsoll_policy::incident::Incident;

/// `2026-11-28 03:06:02 UTC`.
pub(super) fn moment(incident: &Incident) -> String {
    incident.time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}
