//! Waits until a job has its turn: the pressure socket tells, and the daemon is asked where that may not have been heard.

use super::{
    arguments::not_started,
    listen::{LISTENING, words_of},
    watch::ANSWER,
};
use crate::{commands::jobs::view_of, exit::Failure, output};
use plimsoll_api::{
    accounts::AccountView,
    client::{CallError, Client},
};
use plimsoll_policy::units::JobId;
use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, IsTerminal as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// From one try to be told to the next: at first, and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(16);
/// The daemon is asked this often though nothing was heard.
const ASKED_EVERY: Duration = Duration::from_secs(30);

/// So long one is in the queue that is not to wait: by then it has its turn where what ended before it left room.
const AT_ONCE: Duration = Duration::from_millis(500);

/// How long a job may wait for its turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// Not at all.
    AtOnce,
    Within(Duration),
    Forever,
}

impl Wait {
    const fn time(self) -> Option<Duration> {
        match self {
            Self::AtOnce => Some(AT_ONCE),
            Self::Within(time) => Some(time),
            Self::Forever => None,
        }
    }

    fn is_over(self, id: JobId) -> Failure {
        match self {
            Self::Within(time) => {
                not_started(format_args!("job {id} had no turn within {} s", time.as_secs()))
            }
            Self::AtOnce | Self::Forever => {
                not_started("so much cannot be promised now: wait for it (--wait), or ask for less")
            }
        }
    }
}

/// What is known of a job's turn.
pub(super) struct Look {
    /// What is told from here on is heard.
    words: io::Result<Words>,
    /// `None`: nobody answered; a daemon that is gone, or late, may come again.
    waits: Result<Option<bool>, Failure>,
}

impl Look {
    /// Over the connection that it was started by.
    pub(super) fn over(daemon: &mut Client, socket: &Path, id: JobId) -> Self {
        Self { words: Words::of(socket, id), waits: waits(view_of(daemon, id), id) }
    }

    fn again(socket: &Path, id: JobId) -> Self {
        let words = Words::of(socket, id);
        let view = Client::ask(socket, ANSWER, Instant::now() + ANSWER, |daemon| view_of(daemon, id));
        Self { words, waits: waits(view, id) }
    }
}

/// Comes back when the job's program may begin. Where its turn does not come within that time, it is a failure.
pub(super) fn wait(socket: &Path, id: JobId, mut look: Look, wait: Wait) -> Result<(), Failure> {
    let until = wait.time().and_then(|time| Instant::now().checked_add(time));
    let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    if !matches!(wait, Wait::AtOnce) && io::stderr().is_terminal() {
        output::complain(format_args!("job {id} waits for its turn; 'plimsoll jobs' shows what runs"));
    }
    let mut pause = AGAIN;
    loop {
        match look.waits? {
            Some(false) => return Ok(()),
            Some(true) if left().is_zero() => return Err(wait.is_over(id)),
            None if left().is_zero() => {
                return Err(not_started(format_args!(
                    "the daemon does not tell whether job {id} has its turn"
                )));
            }
            Some(true) | None => {}
        }
        match look.words.and_then(|words| words.hear_turn(left().min(ASKED_EVERY))) {
            Ok(true) => return Ok(()),
            Ok(false) => pause = AGAIN,
            Err(error) => {
                thread::sleep(left().min(pause));
                // Where there is a daemon, all places are taken, and it is not to be asked all the time.
                let is_there = !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
                pause = if is_there { (pause * 2).min(AGAIN_MAX) } else { AGAIN };
            }
        }
        look = Look::again(socket, id);
    }
}

/// Whether it is to wait on.
fn waits(view: Result<Option<AccountView>, CallError>, id: JobId) -> Result<Option<bool>, Failure> {
    match view {
        Ok(view) => match view.and_then(|view| view.job) {
            Some(job) => Ok(Some(job.waits)),
            None => Err(not_started(format_args!("job {id} is not there any more"))),
        },
        Err(
            CallError::NotRunning { .. }
            | CallError::Busy(_)
            | CallError::Refused(_)
            | CallError::NoAnswer { .. },
        ) => Ok(None),
        Err(error) => Err(not_started(error)),
    }
}

/// What is told of one job.
struct Words(BufReader<UnixStream>);

impl Words {
    /// From when on it is told.
    fn of(socket: &Path, id: JobId) -> io::Result<Self> {
        let mut words = Self(words_of(socket, id)?);
        match words.hear(LISTENING, ANSWER)? {
            true => Ok(words),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }

    /// Whether it has its turn within that time.
    fn hear_turn(mut self, within: Duration) -> io::Result<bool> {
        self.hear("turn\n", within)
    }

    fn hear(&mut self, wanted: &str, within: Duration) -> io::Result<bool> {
        let (until, mut word) = (Instant::now() + within, String::new());
        while word != wanted {
            word.clear();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.0.get_ref().set_read_timeout(Some(left))?;
            match self.0.read_line(&mut word) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
