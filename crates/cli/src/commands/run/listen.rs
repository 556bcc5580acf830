//! What happens to a job: the pressure socket wakes this when there is something to tell, and the daemon is asked only then.

use super::{
    events::concerns,
    watch::{Watched, enter},
};
use crate::commands::jobs::{processes, view_of};
use plimsoll_api::{
    PRESSURE_SOCKET_NAME,
    accounts::{AccountView, ProcessView},
    client::{CallError, Client},
    message::AwaitIncident,
};
use plimsoll_policy::{account::Account, incident::Incident, lines::Target, units::JobId};
use std::{
    cell::Cell,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// How long an incident that was told of may take to be in the history.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// The same of one that was told of to nobody, while there was no daemon.
const WRITTEN_BEFORE: Duration = Duration::from_millis(200);
/// How long the daemon is tried, and may take over an answer.
const TRIED_FOR: Duration = Duration::from_secs(10);
/// From one try to reach the pressure socket to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// So many processes are named when a line is near.
const LARGEST: u64 = 5;
/// The word from which on others are of the job.
pub(super) const LISTENING: &str = "listening\n";
/// Processes that end with the program need this long.
const LEAVING: Duration = Duration::from_millis(50);

/// Waits for words of the pressure socket, for as long as the job is watched.
pub(super) fn listen(watched: &Mutex<Watched>) {
    let (socket, id) = {
        let watched = enter(watched);
        (watched.socket.clone(), watched.id)
    };
    let mut is_first = true;
    while !enter(watched).over {
        // A daemon that is started again is found again.
        if let Ok(words) = words_of(&socket, id) {
            hear(words, watched, is_first);
            is_first = false;
        }
        thread::sleep(AGAIN);
    }
}

/// What is told of a job, after a word that says from when on.
pub(super) fn words_of(socket: &Path, id: JobId) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(socket.with_file_name(PRESSURE_SOCKET_NAME))?;
    // In one piece: the first words are heard.
    stream.write_all(format!("job:{id}\n").as_bytes())?;
    Ok(BufReader::new(stream))
}

/// Until the connection ends.
fn hear(mut words: BufReader<UnixStream>, watched: &Mutex<Watched>, is_first: bool) {
    let (mut word, mut listens) = (String::new(), false);
    // Another look, and whether it is for a line that is near.
    let mut owed: Option<bool> = None;
    while !enter(watched).over {
        words.get_ref().set_read_timeout(owed.map(|_| WRITTEN_BEFORE)).ok();
        let is_word = match words.read_line(&mut word) {
            Ok(0) => return,
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(_) => return,
        };
        // Until it is listened for this job, words are of the user's line.
        listens |= word == LISTENING;
        // The job may have begun before: it is looked at, and once more for what was not written by then.
        let is_begin = is_first && word == LISTENING;
        let (is_near, within) = match word.as_str() {
            "near\n" => (true, Duration::ZERO),
            "incident\n" => (false, WRITTEN_WITHIN),
            _ if is_word && !is_begin => (false, WRITTEN_BEFORE),
            _ => (false, Duration::ZERO),
        };
        if is_word {
            word.clear();
        }
        if listens {
            let is_near = is_near || owed == Some(true);
            // A daemon that is late is asked again.
            owed = match look(watched, within, is_near) {
                true => is_begin.then_some(false),
                false => Some(is_near),
            };
        }
    }
}

/// Whether the daemon has answered.
fn look(watched: &Mutex<Watched>, within: Duration, is_near: bool) -> bool {
    let question = Question { within, is_near, ..enter(watched).question() };
    // Nobody who waits for the program's end waits for this.
    let news = question.ask(Instant::now() + TRIED_FOR);
    let has_answered = news.is_some();
    news.into_iter().for_each(|news| enter(watched).take(news));
    has_answered
}

/// What the daemon is asked, over one connection.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) socket: PathBuf,
    pub(super) id: JobId,
    /// For incidents of the job after this one; where there is none, for one that comes within so long.
    pub(super) last: u64,
    pub(super) within: Duration,
    /// And for the largest processes.
    pub(super) is_near: bool,
}

/// What it answers.
#[derive(Debug)]
pub(super) struct News {
    /// Up to where it looked.
    pub(super) last: u64,
    pub(super) incidents: Vec<Incident>,
    pub(super) view: Option<AccountView>,
    /// Seconds until the line, and the largest processes.
    pub(super) near: Option<(Option<u64>, Vec<ProcessView>)>,
}

impl Question {
    /// `None`: it does not answer.
    pub(super) fn ask(&self, until: Instant) -> Option<News> {
        let answer = until.saturating_duration_since(Instant::now());
        Client::ask(&self.socket, answer, until, |daemon| self.ask_over(daemon)).ok()
    }

    fn ask_over(&self, daemon: &mut Client) -> Result<News, CallError> {
        let (last, incidents) = self.incidents(daemon)?;
        let near = if self.is_near { Some(self.outlook(daemon)?) } else { None };
        // Nothing is told of it otherwise.
        let view = if self.is_near || !incidents.is_empty() { view_of(daemon, self.id)? } else { None };
        Ok(News { last, incidents, view, near })
    }

    /// Those of others do not end the wait.
    fn incidents(&self, daemon: &mut Client) -> Result<(u64, Vec<Incident>), CallError> {
        let (job, until, last) = (Account::Job(self.id), Instant::now() + self.within, Cell::new(self.last));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let within_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let awaited = AwaitIncident { after_id: last.get(), within_ms, near: None };
            let newest = daemon.await_incident(&awaited)?.newest_id;
            let mut found = Vec::new();
            if newest > last.get() {
                let (after, seen) = (last.get(), &last);
                found = daemon.history_after(after, u64::MAX, |incident| {
                    seen.set(seen.get().max(incident.id));
                    concerns(&job, incident)
                })?;
            }
            last.set(last.get().max(newest));
            if !found.is_empty() || left.is_zero() {
                return Ok((last.get(), found));
            }
        }
    }

    fn outlook(&self, daemon: &mut Client) -> Result<(Option<u64>, Vec<ProcessView>), CallError> {
        let job = Account::Job(self.id);
        let now = AwaitIncident { after_id: u64::MAX, within_ms: 0, near: None };
        let near = daemon.await_incident(&now)?.near;
        let largest = daemon.show_processes(Some(Target::Job(self.id)), Some(LARGEST))?;
        let left = near.iter().find(|one| one.account == job).and_then(|one| one.seconds_left);
        Ok((left, largest.into_iter().flat_map(|account| account.processes).collect()))
    }
}

/// How a job stands whose program has ended, and who is there. All tasks are looked at for that: only where somebody is.
pub(super) fn left_behind(
    daemon: &mut Client,
    id: JobId,
) -> Result<(Option<AccountView>, Vec<ProcessView>), CallError> {
    let is_empty = |view: &Option<AccountView>| view.as_ref().is_none_or(|view| view.processes == 0);
    let mut view = view_of(daemon, id)?;
    if !is_empty(&view) {
        thread::sleep(LEAVING);
        view = view_of(daemon, id)?;
    }
    let orphans = if is_empty(&view) { Vec::new() } else { processes(daemon, id)? };
    Ok((view, orphans))
}
