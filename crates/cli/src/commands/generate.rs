//! What packages ship beside the binary, generated from the command line itself: completions and manual pages.

use crate::{
    arguments::{CommandLine, EXIT_STATUS},
    exit::{Ending, Exit, Failure},
};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::{io::Write, path::PathBuf};

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Where to.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// An existing folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completions.
pub(crate) fn completions(arguments: &CompletionsArguments, out: &mut dyn Write) -> Ending {
    // Into memory first: the generator panics on an output that fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "plimsoll", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Done)
}

/// Writes one page for `plimsoll` and one for each of its commands.
pub(crate) fn man(arguments: &ManArguments) -> Ending {
    clap_mangen::generate_to(CommandLine::command().after_help(EXIT_STATUS), &arguments.folder).map_err(
        |error| {
            let folder = arguments.folder.display();
            Failure::failed(format_args!(
                "cannot write manual pages into '{folder}': {error}; give an existing folder"
            ))
        },
    )?;
    Ok(Exit::Done)
}
