//! `plimsoll import`: the options of another killer as our configuration.

use crate::{
    exit::{Ending, Exit, Failure},
    input, output,
};
use clap::{Args, ValueEnum};
use plimsoll_report::import::{FILE_BYTES_MAX, Peer, import};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

/// Whose options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Killer {
    /// EARLYOOM_ARGS of /etc/default/earlyoom.
    Earlyoom,
    /// /etc/systemd/oomd.conf, or a unit with ManagedOOM settings.
    SystemdOomd,
}

/// Whose options, and where they are.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Whose options.
    #[arg(value_name = "earlyoom|systemd-oomd", hide_possible_values = true)]
    from: Killer,
    /// The file that they are in; '-' is standard input. [default: /etc/default/earlyoom or /etc/systemd/oomd.conf]
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
}

/// Reads, and prints a configuration.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Ending {
    let (peer, place) = match arguments.from {
        Killer::Earlyoom => (Peer::Earlyoom, "/etc/default/earlyoom"),
        Killer::SystemdOomd => (Peer::SystemdOomd, "/etc/systemd/oomd.conf"),
    };
    let path = arguments.file.as_deref().unwrap_or(Path::new(place));
    let (text, named) = input::read(path, FILE_BYTES_MAX, "name the file that the options are in")?;
    let config = import(peer, &text).map_err(|error| Failure::failed(format_args!("{named}: {error}")))?;
    output::lines(out, &config)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
