//! The daemon as the control API sees it. Runs on the API's threads: what waits (disk, loader) waits here, and the
//! guard thread is asked only for what is quick.

use crate::{
    api::{
        control::{Control, HistoryQuery, Pick, Refusal, SetLimit, Standing},
        peer::Peer,
        plimsoll::not_found,
    },
    config::Places,
    guard::{Caller, Change, Request},
    history::{HistoryError, Query, Reader},
    loader::Loader,
    settings::Settings,
    state::LimitsFile,
};
use plimsoll_policy::{
    account::AccountView,
    incident::Incident,
    lines::{Cleared, Line, LineBook, Place, Target, validate},
    status::Status,
    units::{Bytes, PageSize, Uid},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The lines and where they are kept. Whoever changes them holds the lock until all of it has happened.
#[derive(Debug)]
struct Kept {
    book: Arc<LineBook>,
    file: LimitsFile,
    loader: Loader,
    closed: bool,
}

/// What the desk is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) caller: Caller,
    pub(crate) book: Arc<LineBook>,
    pub(crate) file: LimitsFile,
    pub(crate) loader: Loader,
    pub(crate) reader: Reader,
    pub(crate) places: Places,
    pub(crate) mem_total: Bytes,
    pub(crate) page_size: PageSize,
    pub(crate) dry_run: bool,
}

/// Answers the API, and reloads the configuration.
#[derive(Debug)]
pub(crate) struct Desk {
    caller: Caller,
    kept: Mutex<Kept>,
    reader: Reader,
    places: Places,
    mem_total: Bytes,
    page_size: PageSize,
    dry_run: bool,
    started: Instant,
}

impl Desk {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { caller, book, file, loader, reader, places, mem_total, page_size, dry_run } = parts;
        Self {
            caller,
            kept: Mutex::new(Kept { book, file, loader, closed: false }),
            reader,
            places,
            mem_total,
            page_size,
            dry_run,
            started: Instant::now(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the change that is being made, and lets no other begin.
    pub(crate) fn close(&self) {
        self.kept().closed = true;
    }

    /// Loads what is needed, saves, draws; on a failure everything is as before.
    fn commit(&self, kept: &mut Kept, book: LineBook, change: Change) -> Result<(), Refusal> {
        if kept.closed {
            return Err(Refusal::Unavailable("the daemon is stopping".to_owned()));
        }
        let book = Arc::new(book);
        if !book.is_empty() {
            kept.loader.ensure().map_err(Refusal::Unavailable)?;
        }
        let saved = |error: crate::state::StateError| Refusal::Internal(error.to_string());
        kept.file.save(&book.to_stored()).map_err(saved)?;
        let drawn = self.caller.ask(|reply| Request::Lines { book: Arc::clone(&book), change, reply });
        if let Err(refusal) = drawn {
            kept.file.save(&kept.book.to_stored()).map_err(saved)?;
            return Err(refusal);
        }
        kept.book = book;
        Ok(())
    }

    fn place(peer: Peer, target: Target) -> Result<Place, Refusal> {
        Place::of(peer.uid, target)
            .ok_or_else(|| Refusal::NotPermitted(format!("only root may change the line of {target}")))
    }

    /// Reads the configuration again; a bad one changes nothing. What was said of it, for the journal.
    pub(crate) fn reload(&self) -> Result<&'static str, String> {
        let config = crate::config::load(&self.places).map_err(|error| error.to_string())?;
        let settings = Settings::of(&config, self.dry_run, self.mem_total)?;
        let mut kept = self.kept();
        let mut book = (*kept.book).clone();
        book.replace_config(config.limits.uids, settings.lines.clone());
        self.caller
            .ask(|reply| Request::Configure { limits: settings.limits, machine: settings.machine, reply })
            .map_err(|refusal| refusal.to_string())?;
        // The loader stays: sizes, charge and protection are the loaded programs', which hold the counts.
        self.commit(&mut kept, book, Change::All).map_err(|refusal| refusal.to_string())?;
        Ok(
            "configuration reloaded; [protect], [history], [maps] and limits.charge take effect at the next start",
        )
    }
}

fn unread(error: &HistoryError) -> Refusal {
    match error {
        HistoryError::Building => Refusal::Unavailable(error.to_string()),
        HistoryError::State(_)
        | HistoryError::Io { .. }
        | HistoryError::InUse { .. }
        | HistoryError::Future { .. }
        | HistoryError::Unusable { .. }
        | HistoryError::Query(_)
        | HistoryError::TooSlow(_)
        | HistoryError::Closed => Refusal::Internal(error.to_string()),
    }
}

impl Control for Desk {
    fn standing(&self) -> Result<Standing, Refusal> {
        Ok(Standing {
            book: Arc::clone(&self.kept().book),
            mem_total: self.mem_total,
            page_size: self.page_size,
        })
    }

    fn status(&self, peer: Peer) -> Result<Status, Refusal> {
        let mut status = self.caller.ask(|reply| Request::Status { asker: peer.uid, reply })?;
        status.guards.own.resident_bytes = resident_bytes();
        status.guards.own.uptime_seconds = Some(self.started.elapsed().as_secs());
        Ok(status)
    }

    fn limits(&self, peer: Peer, user: Option<Uid>) -> Result<Vec<AccountView>, Refusal> {
        self.caller.ask(|reply| Request::Accounts { user, asker: peer.uid, reply })
    }

    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        let SetLimit { target, line, now } = limit;
        let line: Line = line;
        validate(&line, self.mem_total).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let place = Self::place(peer, target)?;
        let mut kept = self.kept();
        let mut book = (*kept.book).clone();
        book.set(place, line);
        self.commit(&mut kept, book, Change::One { target, now })
    }

    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        let place = Self::place(peer, target)?;
        let mut kept = self.kept();
        let mut book = (*kept.book).clone();
        let cleared = book.clear(place);
        if book != *kept.book {
            self.commit(&mut kept, book, Change::One { target, now: false })?;
        }
        Ok(cleared)
    }

    fn history(&self, _peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        let HistoryQuery { since, before_id, limit } = query;
        let found = self.reader.query(&Query { since, before_id, limit });
        // An idle daemon keeps no cache.
        self.reader.close();
        found.map_err(|error| unread(&error))
    }

    fn incident(&self, _peer: Peer, pick: Pick) -> Result<Incident, Refusal> {
        let found = match pick {
            Pick::Id(id) => self.reader.by_id(id),
            Pick::Last => self.reader.last(),
            Pick::Pid(pid) => self.reader.by_pid(pid),
        };
        self.reader.close();
        found.map_err(|error| unread(&error))?.ok_or_else(|| not_found(pick))
    }
}

/// The daemon's own resident memory.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    Some(kibibytes.saturating_mul(1024))
}
