//! `plimsoll report`: one incident as a page of HTML that needs nothing else, made by the one who asks.

use super::why::which;
use crate::{
    exit::{Ending, Exit, Failure},
    names::Names,
};
use clap::Args;
use plimsoll_api::client::Client;
use plimsoll_policy::human;
use plimsoll_report::story::Reader;
use std::{
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

mod page;

/// Which incident, and where to.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// An incident's number, 'last', or 'pid:' and the number of a process that was a victim.
    #[arg(value_name = "ID|last|pid:N", default_value = "last")]
    which: String,
    /// The file to write, readable for you alone; '-' is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
    /// With advice for an administrator.
    #[arg(long, short)]
    verbose: bool,
}

/// Asks, and writes the page.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let which = which(&arguments.which)?;
    // Before the question: who has made a slip hears of it at once.
    let to = Destination::of(arguments)?;
    let incident = Client::connect(socket)?.incident(which)?;
    let name = incident.account.as_ref().and_then(|account| Names::default().of(account));
    let reader = if arguments.verbose { Reader::Administrator } else { Reader::User };
    let page = page::page(&incident, name.as_deref(), reader);
    match to {
        Destination::Standard => out.write_all(page.as_bytes())?,
        Destination::File(path) => write(path, arguments.force, &page)?,
    }
    Ok(Exit::Done)
}

/// Where the page goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination<'a> {
    Standard,
    File(&'a Path),
}

impl<'a> Destination<'a> {
    fn of(arguments: &'a Arguments) -> Result<Self, Failure> {
        let path = arguments.output.as_path();
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        match path.symlink_metadata() {
            Ok(found) if !found.is_file() => Err(Failure::usage(format_args!(
                "'{}' is no plain file; give another name, or '-' for standard output",
                shown(path)
            ))),
            Ok(_) if !arguments.force => Err(exists(path)),
            Ok(_) | Err(_) => Ok(Self::File(path)),
        }
    }
}

/// Whole or not at all: a page that could not be written to its end leaves what was there. The file is nobody else's to
/// read, because it may hold command lines that only root may see; and no link that somebody has laid is followed.
fn write(path: &Path, force: bool, page: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format_args!("cannot write '{}': {error}; give another name", shown(path)))
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(page.as_bytes()).map_err(failed)?;
    let kept = if force { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map(drop).map_err(|error| {
        if error.error.kind() == ErrorKind::AlreadyExists { exists(path) } else { failed(error.error) }
    })
}

fn exists(path: &Path) -> Failure {
    Failure::failed(format_args!(
        "'{}' is there already; give another name, or --force to replace it",
        shown(path)
    ))
}

fn shown(path: &Path) -> String {
    human::escaped(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
