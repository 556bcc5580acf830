//! `plimsoll history`: what was killed or refused.

use crate::{
    exit::{Ending, Exit, Failure},
    names::Names,
    output, since,
};
use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use plimsoll_api::{client::Client, message::HistoryCall};
use plimsoll_policy::{account::Account, human, incident::Incident, reason::Reason, units::Bytes};
use plimsoll_report::table::Table;
use std::{
    io::{self, Write},
    path::Path,
};

/// Which incidents, and how to print them.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only those since T: 2026-11-21T08:00:00Z, 2026-11-21, or how long ago: 30m, 2h, 7d.
    #[arg(long, value_name = "T")]
    since: Option<String>,
    /// Only the newest N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Asks and prints, oldest first.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let zone = TimeZone::system();
    let since = arguments.since.as_deref().map(|text| since::parse(text, Timestamp::now(), &zone));
    let since = since.transpose().map_err(Failure::usage)?;
    let query = HistoryCall { since, before_id: None, limit: arguments.limit };
    let incidents = Client::connect(socket)?.history(query)?;
    if arguments.json {
        output::json(out, &incidents)?;
    } else if incidents.is_empty() {
        writeln!(out, "{}", if since.is_some() { "No incidents since then." } else { "No incidents." })?;
    } else {
        list(out, &incidents, &zone, &mut Names::default())?;
    }
    Ok(Exit::Done)
}

/// A table of incidents, times in `zone`.
fn list(out: &mut dyn Write, incidents: &[Incident], zone: &TimeZone, names: &mut Names) -> io::Result<()> {
    let mut table = Table::new(
        ["ID", "TIME", "WHOSE LINE", "DONE", "PROCESS", "USAGE", "LINE", "REASON"],
        &["ID", "USAGE", "LINE"],
    );
    for incident in incidents {
        let line = incident.hard_bytes.map_or_else(|| "-".to_owned(), |bytes| human::bytes(Bytes(bytes)));
        table.row([
            incident.id.to_string(),
            incident.time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            whose(incident.account.as_ref(), names),
            incident.action.text().to_owned(),
            victims(incident),
            incident.usage().map_or_else(|| "-".to_owned(), human::bytes),
            line,
            human::escaped(&incident.reason),
        ]);
    }
    write!(out, "{table}")
}

pub(super) fn whose(account: Option<&Account>, names: &mut Names) -> String {
    match account {
        None => "the machine".to_owned(),
        Some(account) => names
            .of(account)
            .map_or_else(|| human::escaped(&account.to_string()), |name| human::escaped(&name)),
    }
}

/// The last name of the cgroup that was taken, where nobody in it is known.
fn cgroup(incident: &Incident) -> Option<String> {
    let path = incident.origin.as_ref()?.cgroup.as_ref()?;
    path.rsplit('/').find(|name| !name.is_empty()).map(human::escaped)
}

/// The first victim, and how many more there are.
pub(super) fn victims(incident: &Incident) -> String {
    if let Some(count) = incident.unrecorded {
        let folded = incident.reason == Reason::IncidentsFolded.text();
        return if folded { format!("{count} incidents, folded") } else { format!("{count} not recorded") };
    }
    match incident.victims.as_slice() {
        [] => cgroup(incident).unwrap_or_else(|| "-".to_owned()),
        [only] => format!("{} {}", only.pid, human::quoted(&only.comm)),
        [first, rest @ ..] => format!("{} {} and {} more", first.pid, human::quoted(&first.comm), rest.len()),
    }
}

#[cfg(test)]
mod tests;
