//! `plimsoll daemon`: the guard itself.

use crate::{
    exit::{Ending, Exit, Failure},
    output,
};
use clap::Args;
use plimsoll_daemon::{
    RunError,
    options::{CONFIG_FILE, DaemonOptions, PIN_FOLDER, STATE_FOLDER},
};
use std::{io::Write, path::PathBuf};

/// What the daemon is started with.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub(crate) struct Arguments {
    /// The configuration file. With the default the files of /etc/plimsoll/conf.d are read as well; any other file is read
    /// alone.
    #[arg(long, value_name = "FILE", default_value = CONFIG_FILE)]
    config: PathBuf,
    /// The folder of lines that were set, and of incidents.
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER)]
    state: PathBuf,
    /// The socket that programs ask for memory on [default: tmalloc.sock beside the control socket]
    #[arg(long, value_name = "SOCKET")]
    tmalloc_socket: Option<PathBuf>,
    /// The socket on which programs are told that memory is short [default: pressure.sock beside the control socket]
    #[arg(long, value_name = "SOCKET")]
    pressure_socket: Option<PathBuf>,
    /// The folder on a bpffs in which programs and maps stay when the daemon crashes.
    #[arg(long, value_name = "DIR", default_value = PIN_FOLDER)]
    pin: PathBuf,
    /// Decide and record, but send no signal.
    #[arg(long)]
    dry_run: bool,
    /// Say what is wrong with the configuration, and do nothing else.
    #[arg(long, conflicts_with_all = ["stop_guarding", "keep"])]
    check: bool,
    /// Remove every pinned program and undo every setting that a daemon made, then end.
    #[arg(long, conflicts_with_all = ["dry_run", "keep"])]
    stop_guarding: bool,
    /// Leave the pinned programs at work when the daemon is stopped: for upgrades.
    #[arg(long, hide = true)]
    keep: bool,
}

impl Arguments {
    /// The same as the daemon takes it.
    pub(crate) fn options(self, socket: PathBuf) -> DaemonOptions {
        let Self {
            config,
            state,
            tmalloc_socket,
            pressure_socket,
            pin,
            dry_run,
            keep,
            check: _,
            stop_guarding: _,
        } = self;
        DaemonOptions { config, state, socket, tmalloc_socket, pressure_socket, pin, dry_run, keep }
    }
}

/// Guards until told to stop, looks at the configuration, or ends what an earlier daemon left behind.
pub(crate) fn run(arguments: Arguments, socket: PathBuf, out: &mut dyn Write) -> Ending {
    let Arguments { check, stop_guarding, .. } = arguments;
    let options = arguments.options(socket);
    if check {
        let mut lines = plimsoll_daemon::check(&options)?;
        lines.push("The configuration is good.".to_owned());
        output::lines(out, &lines.join("\n"))?;
    } else if stop_guarding {
        plimsoll_daemon::stop_guarding(&options.pin, &options.state)?;
    } else {
        plimsoll_daemon::run(&options)?;
    }
    Ok(Exit::Done)
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::NotPermitted => Self::not_permitted(error),
            RunError::Failed(message) => Self::failed(message),
        }
    }
}
