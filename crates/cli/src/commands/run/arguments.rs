//! What `plimsoll run` is given.

use crate::exit::{Exit, Failure};
use clap::{Args, builder::PossibleValuesParser};
use plimsoll_policy::account::Action;
use std::{ffi::OsString, path::PathBuf};

/// What is run, and how.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: that of CMD (128 and its number for a signal, as a shell shows it); 125 it was not started, \
                        126 it cannot be executed, 127 it was not found."
)]
pub(crate) struct Arguments {
    /// Draw a line for CMD and all that it starts, together: 512M, 1.5G, 25% (of RAM), or bytes. Without it they are counted
    /// only. Your own line holds for them as well.
    #[arg(long, value_name = "SIZE")]
    pub(super) limit: Option<String>,
    /// Where notice is given: a size, or a percentage of SIZE [default: 90%].
    #[arg(long, value_name = "SIZE|PCT", requires = "limit")]
    pub(super) soft: Option<String>,
    /// What crossing that line does [default: kill].
    #[arg(long, requires = "limit", value_parser = PossibleValuesParser::new(Action::ALL.map(Action::text)))]
    pub(super) action: Option<String>,
    /// Refuse what is past that line when it is asked for, and end nobody: --action deny. What CMD may write to counts, touched
    /// or not; malloc is NULL, mmap, brk and fork fail with ENOMEM.
    #[arg(long, requires = "limit", conflicts_with_all = ["action", "soft", "on_near"])]
    pub(super) strict: bool,
    /// Start CMD only if so much can be promised to it, of your line and of what the machine has free: 512M, 25%, or bytes.
    #[arg(long, value_name = "SIZE")]
    pub(super) reserve: Option<String>,
    /// Where that cannot be promised now, wait, for SECS at most. Who came first has the first turn.
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true, requires = "reserve")]
    #[expect(clippy::option_option, reason = "it may be given without a time")]
    pub(super) wait: Option<Option<u64>>,
    /// Serve make's jobserver: JOBS processes at once [default: as many as there are CPUs], and fewer while what they come
    /// to would not fit under the line. Of those that begin at once some are stopped until there is room.
    #[arg(long, value_name = "JOBS", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    #[expect(clippy::option_option, reason = "it may be given without a number")]
    pub(super) jobserver: Option<Option<u32>>,
    /// What the job is called in lists.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Write a line of JSON to this descriptor for each event: waiting, started, near, killed, refused, crossed, ended.
    #[arg(long, value_name = "N")]
    pub(super) status_fd: Option<u32>,
    /// When usage reaches the job's soft limit, run this command with the event on its standard input; again after 2, 4, 8 and
    /// each 16 s while it stays there. It is ended after 10 s. Give it last: it goes on to the next '--'.
    #[arg(long, value_name = "COMMAND", num_args = 1.., requires = "limit")]
    #[arg(allow_hyphen_values = true, value_terminator = "--")]
    pub(super) on_near: Vec<OsString>,
    /// End what CMD leaves behind when it ends: by SIGTERM, and by SIGKILL after 10 s.
    #[arg(long)]
    pub(super) end_orphans: bool,
    /// Where the job is told to whoever watches over it.
    #[arg(long, hide = true)]
    pub(super) job_fd: Option<u32>,
    /// Give CMD its memory by libtmalloc: at your line, or that of SIZE, it is told that there is none (malloc is NULL, mmap
    /// ENOMEM), and is not killed for asking. Without --limit, --name and --reserve it is no
    /// job.
    #[arg(long)]
    pub(super) tmalloc: bool,
    /// The library that is preloaded; else the one that is installed with plimsoll.
    #[arg(long, env = "PLIMSOLL_TMALLOC_PRELOAD", value_name = "FILE", hide = true)]
    pub(super) library: Option<PathBuf>,
    /// The program, and what it is given.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

impl Arguments {
    /// Whether this process stays beside it.
    pub(super) fn is_watched(&self) -> bool {
        let is_wanted = self.status_fd.is_some() || !self.on_near.is_empty();
        self.job_fd.is_none() && (is_wanted || self.end_orphans || self.jobserver.is_some())
    }

    /// Whether memory past the line is refused.
    pub(super) fn is_strict(&self) -> bool {
        self.strict || self.action.as_deref() == Some(Action::Deny.text())
    }

    /// Refuses what makes no sense together, where the command line's own rules cannot tell.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.is_strict() && !self.on_near.is_empty() {
            return Err(not_started(
                "a strict job is told of nothing before it is refused memory: leave out --on-near",
            ));
        }
        Ok(())
    }

    /// As they were given, for the process that is to take the program's place.
    pub(super) fn for_a_job(&self) -> Vec<OsString> {
        let mut all = Vec::new();
        let named = [
            ("--limit", &self.limit),
            ("--soft", &self.soft),
            ("--action", &self.action),
            ("--name", &self.name),
            ("--reserve", &self.reserve),
        ];
        for (option, value) in named {
            all.extend(value.as_ref().map(|value| OsString::from(format!("{option}={value}"))));
        }
        let wait =
            |seconds: Option<u64>| seconds.map_or("--wait".to_owned(), |seconds| format!("--wait={seconds}"));
        all.extend(self.wait.map(wait).map(OsString::from));
        all.extend(self.strict.then(|| OsString::from("--strict")));
        all.extend(self.tmalloc.then(|| OsString::from("--tmalloc")));
        all.extend(
            self.library.iter().flat_map(|library| ["--library".into(), library.clone().into_os_string()]),
        );
        all
    }
}

/// As `run` fails before anything runs.
pub(super) fn not_started(message: impl ToString) -> Failure {
    Failure::Told { exit: Exit::NotStarted, message: message.to_string() }
}
