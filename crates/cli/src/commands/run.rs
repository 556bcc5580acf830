//! `plimsoll run`: starts a program as a job, with a line of its own for all that it starts; or with its memory granted or
//! refused, though it was not written for libtmalloc.
//!
//! The program takes this process's place: its exit status, signals and terminal are its own. Where whoever starts it wants to
//! hear of the job, this process stays beside it ([`watch`]), and one like it takes the program's place.

mod arguments;
mod child;
mod events;
mod jobserver;
mod listen;
mod program;
mod turn;
mod watch;

pub(crate) use arguments::Arguments;
use arguments::not_started;
pub(crate) use child::{LET_THROUGH, let_signals_through};
pub(crate) use jobserver::{HAVE_GO_ON, have_go_on};

use super::limit::soft_size;
use crate::exit::{Ending, Exit, Failure};
use plimsoll_api::{
    CONTROL_SOCKET, TMALLOC_SOCKET_NAME,
    client::Client,
    message::{StartJobCall, StartJobReply},
};
use plimsoll_policy::{
    account::{Action, Counted},
    size::Size,
};
use rustix::net::{SocketAddrUnix, SocketFlags, SocketType};
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// As cargo calls the library, and as it is installed.
const BUILT: &str = "libtmalloc_preload.so";
const INSTALLED: &str = "libtmalloc-preload.so";
/// How long a start may take: many at once take turns.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// What the dynamic linker and the library look at.
const PRELOAD: &str = "LD_PRELOAD";
const SOCKET: &str = "PLIMSOLL_TMALLOC_SOCKET";
const WITHOUT_DAEMON: &str = "TMALLOC_WITHOUT_DAEMON";

/// Comes back only where CMD could not be started.
pub(crate) fn run(arguments: &Arguments, socket: &Path) -> Ending {
    let Some((name, rest)) = arguments.command.split_first() else {
        return Err(not_started("no program is named: plimsoll run --limit 2G -- CMD"));
    };
    let found = program::find(name).ok_or_else(|| Failure::Told {
        exit: Exit::NoSuchProgram,
        message: format!("'{}' is not found; is it installed, and in PATH?", name.display()),
    })?;
    arguments.check()?;
    if arguments.is_watched() {
        return watch::run(arguments, socket);
    }
    let mut command = Command::new(name);
    command.args(rest);
    if arguments.tmalloc {
        program::check(&found).map_err(|why| not_started(format_args!("'{}' {why}", found.display())))?;
        give_memory(&mut command, arguments, socket)?;
    }
    if !arguments.tmalloc
        || arguments.limit.is_some()
        || arguments.name.is_some()
        || arguments.reserve.is_some()
        || arguments.job_fd.is_some()
    {
        let mut report = arguments.job_fd.map(child::JobReport::of).transpose()?;
        start_job(arguments, socket, |job| report.as_mut().map_or(Ok(()), |report| report.tell(job)))?;
    }
    let error = command.exec();
    Err(Failure::Told {
        exit: if error.kind() == io::ErrorKind::NotFound { Exit::NoSuchProgram } else { Exit::NotExecutable },
        message: format!("'{}' cannot be executed: {error}", found.display()),
    })
}

/// Puts this process into a job, with what is run in its place. Told is that it waits for its turn, and that it begins.
fn start_job(
    arguments: &Arguments,
    socket: &Path,
    mut tell: impl FnMut(&StartJobReply) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let start = wanted_job(arguments).map_err(|failure| match failure {
        Failure::Told { message, .. } => not_started(message),
        Failure::ReaderGone => failure,
    })?;
    let until = Instant::now() + STARTED_WITHIN;
    let started = Client::ask(socket, STARTED_WITHIN, until, |daemon| {
        let job = daemon.start_job(&start)?;
        let id = match job.account.counted() {
            Some(Counted::Job(id)) if job.waits => Some(id),
            Some(_) | None => None,
        };
        Ok((id.map(|id| (id, turn::Look::over(daemon, socket, id))), job))
    });
    let (waits, job) = started.map_err(not_started)?;
    if let Some((id, look)) = waits {
        tell(&job)?;
        let wait = match arguments.wait {
            None => turn::Wait::AtOnce,
            Some(Some(seconds)) => turn::Wait::Within(Duration::from_secs(seconds)),
            Some(None) => turn::Wait::Forever,
        };
        turn::wait(socket, id, look, wait)?;
    }
    tell(&StartJobReply { waits: false, ..job })
}

fn wanted_job(arguments: &Arguments) -> Result<StartJobCall, Failure> {
    let Arguments { limit, soft, action, strict, name, reserve, .. } = arguments;
    let hard: Option<Size> = limit.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    let soft = hard.zip(soft.as_deref()).map(|(hard, soft)| soft_size(soft, hard)).transpose()?;
    let action: Option<Action> = action.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    let action = if *strict { Some(Action::Deny) } else { action };
    let reserve: Option<Size> = reserve.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    Ok(StartJobCall { name: name.clone(), hard, soft, action, reserve })
}

/// Has what is run ask for its memory.
fn give_memory(command: &mut Command, arguments: &Arguments, socket: &Path) -> Result<(), Failure> {
    let library = preload(arguments.library.as_deref()).map_err(not_started)?;
    // The program may change its folder.
    let socket = tmalloc_socket(socket);
    let socket = std::path::absolute(&socket).unwrap_or(socket);
    if env::var_os(WITHOUT_DAEMON).is_none() {
        reach(&socket).map_err(|error| {
            not_started(format_args!(
                "no daemon grants memory at '{}' ({error}); start it with 'systemctl start plimsoll', or set \
                 {WITHOUT_DAEMON}=pass to run '{}' without",
                socket.display(),
                command.get_program().display()
            ))
        })?;
    }
    command.env(PRELOAD, library).env(SOCKET, socket);
    Ok(())
}

/// What LD_PRELOAD has to be: the library, before what is preloaded already.
fn preload(wanted: Option<&Path>) -> Result<OsString, String> {
    let library = match wanted {
        Some(wanted) => wanted.to_owned(),
        None => installed()?,
    };
    let library = library
        .canonicalize()
        .map_err(|error| format!("'{}' cannot be preloaded: {error}", library.display()))?;
    // The dynamic linker takes both for the end of a name.
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(format!(
            "'{}' cannot be preloaded: there is a space or a colon in its path",
            library.display()
        ));
    }
    let mut all = library.into_os_string();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

fn installed() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| format!("where plimsoll is cannot be told: {error}"))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    places(folder).into_iter().find(|place| place.is_file()).ok_or_else(|| {
        format!(
            "{INSTALLED} is neither beside '{}' nor in {}; install the package libtmalloc0, or run 'make install'",
            own.display(),
            folders().join(" or ")
        )
    })
}

/// Where it is installed, seen from the program's folder. Debian has a folder for each architecture, and in it others for what
/// no program is linked with.
fn folders() -> [String; 3] {
    ["../lib".to_owned(), "../lib64".to_owned(), format!("../lib/{}-linux-gnu/libtmalloc", env::consts::ARCH)]
}

fn places(folder: &Path) -> Vec<PathBuf> {
    let installed = folders().map(|lib| folder.join(lib).join(INSTALLED));
    [folder.join(BUILT), folder.join(INSTALLED)].into_iter().chain(installed).collect()
}

/// Where the daemon that is meant grants memory: the environment's word, or beside its control socket.
fn tmalloc_socket(control: &Path) -> PathBuf {
    match env::var_os(SOCKET) {
        Some(socket) if control == OsStr::new(CONTROL_SOCKET) => PathBuf::from(socket),
        Some(_) | None => control.with_file_name(TMALLOC_SOCKET_NAME),
    }
}

/// Whether somebody takes connections there.
fn reach(socket: &Path) -> rustix::io::Result<()> {
    let family = rustix::net::AddressFamily::UNIX;
    let end = rustix::net::socket_with(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)
}
