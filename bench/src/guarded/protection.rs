//! The working-set protection of a private daemon, whose 'machine' is the bench's own memory cgroup.

use super::{PrivateDaemon, VictimReading};
use crate::{error::BenchError, scope};
use serde::Deserialize;
use std::time::Duration;

/// What the benches read of an incident of it.
#[derive(Debug, Deserialize)]
struct FloorReading {
    guard: String,
    action: String,
    victims: Vec<VictimReading>,
}

/// Off, and bound to that cgroup; the machine guard is off.
pub(super) fn configuration() -> String {
    format!(
        "[machine]\nenabled = false\n[workingset]\nworkingset_protection = 0\ncgroup = \"{}\"\n",
        scope::path()
    )
}

/// `K=V` for each.
pub(super) fn words(settings: &[(&str, u64)]) -> Vec<String> {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

pub(super) fn set(daemon: &PrivateDaemon, settings: &[(&str, u64)]) -> Result<(), BenchError> {
    let words = words(settings);
    let mut arguments = vec!["protect", "set"];
    arguments.extend(words.iter().map(String::as_str));
    daemon.command(&arguments).map(drop)
}

pub(super) fn victims(daemon: &PrivateDaemon, within: Duration) -> Result<Vec<u32>, BenchError> {
    // Whole seconds, and one for the begun one.
    let since = format!("{}s", within.as_secs() + 1);
    let incidents: Vec<FloorReading> = daemon.read(&["history", "--since", &since])?;
    let of_the_floor = incidents.into_iter().filter(|incident| {
        incident.guard == "workingset" && matches!(incident.action.as_str(), "kill" | "term")
    });
    Ok(of_the_floor.flat_map(|incident| incident.victims).map(|victim| victim.pid).collect())
}
