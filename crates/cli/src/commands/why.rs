//! `plimsoll why`: one incident in words.

use crate::{
    exit::{Ending, Exit, Failure},
    names::Names,
    output,
};
use clap::Args;
use plimsoll_api::{client::Client, message::GetIncident};
use plimsoll_policy::{
    human,
    incident::{Incident, Victim},
    machine::trace::{Line, Name},
    victim::VictimId,
};
use plimsoll_report::story::{Reader, Telling, story, tell};
use serde::Serialize;
use std::{io::Write, path::Path};

/// The incident, and its story by its parts.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    incident: &'a Incident,
    story: &'a Telling,
}

/// Which incident, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// An incident's number, 'last', or 'pid:' and the number of a process that was a victim.
    #[arg(value_name = "ID|last|pid:N", default_value = "last")]
    which: String,
    /// With all the numbers behind it.
    #[arg(long, short)]
    verbose: bool,
    /// Print the incident as JSON: all that is known of it, the minutes before included, and the story.
    #[arg(long)]
    json: bool,
    /// Print what the machine guard saw before it decided, for 'plimsoll simulate'. For root.
    #[arg(long, conflicts_with_all = ["verbose", "json"])]
    trace: bool,
}

/// Asks and tells.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let which = which(&arguments.which)?;
    let incident = Client::connect(socket)?.incident(which)?;
    if arguments.trace {
        return trace(incident, out);
    }
    let name = incident.account.as_ref().and_then(|account| Names::default().of(account));
    let reader = if arguments.verbose { Reader::Administrator } else { Reader::User };
    if arguments.json {
        let story = tell(&incident, name.as_deref(), reader);
        output::json(out, &Told { incident: &incident, story: &story })?;
        return Ok(Exit::Done);
    }
    output::lines(out, &story(&incident, name.as_deref(), reader))?;
    Ok(Exit::Done)
}

/// The trace, and what its processes are called.
fn trace(incident: Incident, out: &mut dyn Write) -> Ending {
    let Incident { id, course, victims, peers, .. } = incident;
    let Some(trace) = course.and_then(|course| course.trace) else {
        return Err(Failure::failed(format_args!(
            "incident {id} has no trace for you: only decisions of the machine guard have one, and only root may read it"
        )));
    };
    let name = |Victim { pid, start_ns, comm, .. }| Name { id: VictimId { pid, start_ns }, comm };
    let names = Line::Names(victims.into_iter().chain(peers).map(name).collect());
    out.write_all(trace.as_bytes())?;
    serde_json::to_writer(&mut *out, &names)?;
    writeln!(out)?;
    Ok(Exit::Done)
}

/// The incident that a command line names.
pub(super) fn which(text: &str) -> Result<GetIncident, Failure> {
    let wrong = || {
        Failure::usage(format_args!(
            "incident '{}' is not understood; give a number from 'plimsoll history', 'last' or pid:N",
            human::escaped(text)
        ))
    };
    // `parse` alone would take '+7'.
    let digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix("pid:") {
        Some(pid) if digits(pid) => {
            Ok(GetIncident { id: None, pid: Some(pid.parse().ok().ok_or_else(wrong)?) })
        }
        None if text == "last" => Ok(GetIncident { id: None, pid: None }),
        None if digits(text) => Ok(GetIncident { id: Some(text.parse().ok().ok_or_else(wrong)?), pid: None }),
        Some(_) | None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
