//! The daemon as the control API sees it. Runs on the API's threads: what waits (disk, loader) waits here, and the
//! guard thread is asked only for what is quick.

mod jobs;

use crate::{
    api::{
        control::{Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob},
        peer::Peer,
        plimsoll::not_found,
    },
    config::Places,
    directory::{Directory, Wanted},
    expedite::Expedite,
    facts::meter::Gauge,
    guard::{Caller, Change, Request},
    history::{HistoryError, Query, Reader},
    inspection::Inspection,
    journal::Journal,
    loader::Loader,
    owners::Owners,
    sampler::SharedRecorder,
    settings,
    settings::Settings,
    state::{STATE_MAX_BYTES, StateError, StateFile},
    undo::BootFile,
    workingset::{SavedTunables as Tunables, WorkingSet},
};
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, NearView},
    message::StartJobReply,
    protect::ProtectView,
    status::Status,
};
use plimsoll_policy::{
    account::Account,
    incident::Incident,
    lines::{
        Cleared, Job, Jobs, Line, LineBook, MEASURED_LINES_MAX, OWN_LINES_MAX, Place, Target, validate,
        validate_for_job,
    },
    reading::Reading,
    recorder::Outlook,
    units::{Bytes, Gid, PageSize, Pid, Uid},
    workingset::TunableChange,
};
use plimsoll_sys::process::ProcRoot;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// From one change that a user makes to the next; root's are not held up. Each is a file written and, in the guard's
/// thread, all tasks walked twice: nobody's business to have done thousands of times a second.
const CHANGE_EVERY: Duration = Duration::from_millis(100);

/// The lines and where they are kept. Whoever changes them holds the lock until all of it has happened.
const STRICT_TRIED_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct SavedLines {
    book: Arc<LineBook>,
    file: StateFile,
    job_file: BootFile,
    loader: Loader,
    closed: bool,
    /// When it was last tried to have strict jobs, in vain, and why.
    not_strict: Option<(Instant, String)>,
}

impl SavedLines {
    fn save(&mut self, book: &LineBook, of_jobs: bool) -> Result<(), Refusal> {
        let saved = match of_jobs {
            true => self.job_file.write_json(Some(book.jobs())),
            false => self.file.save(&book.to_stored()),
        };
        saved.map_err(|error| Refusal::Internal(error.to_string()))
    }

    /// Has the programs there that refuse memory to strict jobs. Where they cannot be, it is not tried again for a while:
    /// trying takes a CPU, and anybody may ask.
    fn ensure_strict(&mut self) -> Result<(), Refusal> {
        let refused = |why: &str| Refusal::Unavailable(format!("no job can be strict here: {why}"));
        if let Some((tried, why)) = &self.not_strict
            && tried.elapsed() < STRICT_TRIED_EVERY
        {
            return Err(refused(why));
        }
        let others = self.book.jobs().strict().next().is_some();
        self.not_strict = self.loader.ensure_strict(others).err().map(|why| (Instant::now(), why));
        self.not_strict.as_ref().map_or(Ok(()), |(_, why)| Err(refused(why)))
    }
}

/// What was configured, and set at run time, as it was read at the start.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) places: Places,
    pub(crate) book: Arc<LineBook>,
    pub(crate) file: StateFile,
    pub(crate) job_file: BootFile,
    pub(crate) tunables: Tunables,
    pub(crate) directory: Directory,
}

/// Where jobs are kept, and those that an earlier daemon of this boot left.
pub(crate) fn job_file(state: &Path) -> (BootFile, Result<Jobs, StateError>) {
    let file = BootFile::new(state.to_owned(), "jobs.json", STATE_MAX_BYTES);
    let jobs = file.read_json().map(Option::unwrap_or_default);
    (file, jobs)
}

/// What it starts with.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) saved: Saved,
    pub(crate) caller: Caller,
    pub(crate) working_set: WorkingSet,
    pub(crate) expedite: Expedite,
    pub(crate) loader: Loader,
    pub(crate) journal: Journal,
    pub(crate) reader: Reader,
    pub(crate) recorder: SharedRecorder,
    pub(crate) mem_total: Bytes,
    pub(crate) page_size: PageSize,
    pub(crate) dry_run: bool,
    pub(crate) inspection: Inspection,
}

/// Answers the API, and reloads the configuration.
#[derive(Debug)]
pub(crate) struct ControlService {
    caller: Caller,
    /// Locked before `kept`, from a question about groups until its answer is drawn.
    directory: Mutex<Directory>,
    kept: Mutex<SavedLines>,
    /// Held until a change is in force.
    tunables: Mutex<Tunables>,
    working_set: WorkingSet,
    expedite: Expedite,
    journal: Journal,
    /// When a user who changed a line may change one again, whichever of their uids they come with.
    paces: Mutex<BTreeMap<Uid, Instant>>,
    reader: Reader,
    recorder: SharedRecorder,
    places: Places,
    mem_total: Bytes,
    page_size: PageSize,
    dry_run: bool,
    inspection: Inspection,
    started: Instant,
}

impl ControlService {
    pub(crate) fn new(setup: Setup) -> Self {
        let Saved { places, book, file, job_file, tunables, directory } = setup.saved;
        Self {
            caller: setup.caller,
            directory: Mutex::new(directory),
            kept: Mutex::new(SavedLines {
                book,
                file,
                job_file,
                loader: setup.loader,
                closed: false,
                not_strict: None,
            }),
            tunables: Mutex::new(tunables),
            working_set: setup.working_set,
            expedite: setup.expedite,
            journal: setup.journal,
            paces: Mutex::default(),
            reader: setup.reader,
            recorder: setup.recorder,
            places,
            mem_total: setup.mem_total,
            page_size: setup.page_size,
            dry_run: setup.dry_run,
            inspection: setup.inspection,
            started: Instant::now(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, SavedLines> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the change that is being made, and lets no other begin.
    pub(crate) fn close(&self) {
        self.kept().closed = true;
        self.working_set.close();
        self.expedite.close();
    }

    fn tunables(&self) -> MutexGuard<'_, Tunables> {
        self.tunables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to protect the working set, if it is to be.
    ///
    /// # Errors
    /// Any [`Refusal`]; it is not protected then.
    pub(crate) fn begin_protection(&self) -> Result<(), Refusal> {
        let tunables = self.tunables();
        self.working_set.set(&tunables.terms())
    }

    /// Begins to free everybody's victims, if that is to be.
    pub(crate) fn begin_expediting(&self) {
        self.expedite.begin();
    }

    /// Loads what is needed, saves, draws; on a failure everything is as before.
    fn commit(&self, kept: &mut SavedLines, book: LineBook, change: Change) -> Result<(), Refusal> {
        let book = Arc::new(book);
        let is_strict = change.job().and_then(|id| book.jobs().get(id)).is_some_and(Job::is_strict);
        if !is_strict {
            return self.try_commit(kept, book, change);
        }
        kept.ensure_strict()?;
        match self.try_commit(kept, Arc::clone(&book), change.clone()) {
            // The guard had the programs removed just then: there had been no strict job for a minute.
            Err(_) if !kept.loader.has_strict() => {
                kept.ensure_strict()?;
                self.try_commit(kept, book, change)
            }
            done => done,
        }
    }

    fn try_commit(&self, kept: &mut SavedLines, book: Arc<LineBook>, change: Change) -> Result<(), Refusal> {
        if kept.closed {
            return Err(Refusal::Unavailable("the daemon is stopping".to_owned()));
        }
        if !book.is_empty() && !change.is_measured() {
            kept.loader.ensure().map_err(Refusal::Unavailable)?;
        }
        let of_jobs = change.is_of_jobs();
        kept.save(&book, of_jobs)?;
        let drawn = self.caller.ask(|reply| Request::Lines { book: Arc::clone(&book), change, reply });
        if let Err(refusal) = drawn {
            kept.save(&Arc::clone(&kept.book), of_jobs)?;
            return Err(refusal);
        }
        kept.book = book;
        Ok(())
    }

    /// Waits for a user's turn to change a line: on the user's own connection, which holds up nobody else. How many can
    /// wait is bounded by the connections that one user may have.
    fn pace(&self, peer: Peer) {
        if peer.is_root() {
            return;
        }
        let now = Instant::now();
        let turn = {
            let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
            paces.retain(|_, next| *next > now);
            let turn = paces.get(&peer.owner).copied().unwrap_or(now);
            paces.insert(peer.owner, turn + CHANGE_EVERY);
            turn
        };
        thread::sleep(turn.saturating_duration_since(now));
    }

    /// Looked for once it is their turn: a job may have ended until then.
    fn place(book: &LineBook, peer: Peer, target: &Target) -> Result<Place, Refusal> {
        if let Target::Job(id) = target {
            let job = book.jobs().get(*id).map(|job| Place::Job(*id, job.user));
            return job.ok_or_else(|| Refusal::NotFound(format!("there is no job {id}")));
        }
        let refused = || Refusal::NotPermitted(format!("only root may change the line of {target}"));
        Place::of(peer.uid, target.clone()).ok_or_else(refused)
    }

    /// What cgroups hold now, and the machine; the guard's own look may be a second old.
    fn measure(&self, views: &mut [AccountView]) {
        let mut gauge = None;
        for view in views.iter_mut().filter(|view| view.account.counted().is_none()) {
            if gauge.is_none() {
                gauge = ProcRoot::open(Path::new("/proc"))
                    .ok()
                    .map(|proc| Gauge::new(proc, self.inspection.mapped));
            }
            let Some(gauge) = &mut gauge else { return };
            match gauge.usage(&view.account) {
                Reading::Known(programs) | Reading::Stale { value: programs, .. } => {
                    view.usage_bytes = programs.usage.0;
                }
                Reading::Absent => {
                    view.usage_bytes = 0;
                    view.note = Some("there is no such memory cgroup now".to_owned());
                }
                Reading::Unreadable => view.note = Some("what it uses cannot be read".to_owned()),
            }
            view.processes = match &view.account {
                Account::System => gauge.count_all(),
                Account::Cgroup(_) | Account::User(_) | Account::Group(_) | Account::Job(_) => {
                    gauge.processes(&view.account).map(|all| all.len())
                }
            }
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0);
        }
    }

    fn say(&self, notes: Vec<String>) {
        for note in notes {
            // A full queue is the journal's loss: what is not known of a group stands in `limit show` too.
            self.journal.line(note);
        }
    }

    /// Finds out again who is in which group, and draws what follows from it. Waits for the name services, but not for
    /// long.
    ///
    /// # Errors
    /// Any [`Refusal`]; everything is as before then.
    pub(crate) fn look_up_members(&self) -> Result<(), Refusal> {
        self.look_up(&mut self.directory())
    }

    fn look_up(&self, directory: &mut Directory) -> Result<(), Refusal> {
        let gids = self.kept().book.gids();
        if gids.is_empty() {
            return Ok(());
        }
        let known = directory.ask(&Wanted { gids, ..Wanted::default() }, running());
        self.say(known.notes);
        let mut kept = self.kept();
        let mut book = (*kept.book).clone();
        book.replace_members(known.members);
        if book == *kept.book { Ok(()) } else { self.commit(&mut kept, book, Change::All) }
    }

    /// The same where users or groups of this machine have changed; not when somebody is finding out already.
    fn look_up_if_changed(&self) -> Result<(), Refusal> {
        match self.directory.try_lock() {
            Ok(mut directory) if directory.files_changed() => self.look_up(&mut directory),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Draws the line of a group, for whoever is found to be in it.
    fn set_group_line(&self, limit: SetLimit, gid: Gid, peer: Peer) -> Result<(), Refusal> {
        let SetLimit { line, now, target } = limit;
        let mut directory = self.directory();
        let mut gids = self.kept().book.gids();
        gids.insert(gid);
        let known = directory.ask(&Wanted { gids, ..Wanted::default() }, running());
        self.say(known.notes);
        let mut kept = self.kept();
        let place = Self::place(&kept.book, peer, &target)?;
        let mut book = (*kept.book).clone();
        book.set(place.clone(), line);
        book.replace_members(known.members);
        self.commit(&mut kept, book, Change::One { place, now })
    }

    /// Reads the configuration again, and who is in which group; a bad one changes nothing. What was said of it, for the
    /// journal.
    pub(crate) fn reload(&self) -> Result<&'static str, String> {
        let config = crate::config::load(&self.places).map_err(|error| error.to_string())?;
        let mut directory = self.directory();
        let drawn = self.kept().book.gids();
        let known = directory.ask(&settings::wanted(&config, drawn), running());
        let settings = Settings::of(&config, self.dry_run, self.mem_total, &known)?;
        self.say(known.notes);
        self.say(settings.left_out);
        let mut kept = self.kept();
        let mut book = (*kept.book).clone();
        book.replace_config(config.limits.uids, settings.lines);
        book.replace_members(known.members);
        self.caller
            .ask(|reply| Request::Configure { configured: settings.guards, reply })
            .map_err(|refusal| refusal.to_string())?;
        let mut tunables = self.tunables();
        tunables.configure(settings.working_set);
        if let Err(refusal) = self.working_set.set(&tunables.terms()) {
            self.journal.line(refusal.to_string());
        }
        drop(tunables);
        self.expedite.set(settings.reaping);
        // The loader stays: sizes, charge and protection are the loaded programs', which hold the counts.
        self.commit(&mut kept, book, Change::All).map_err(|refusal| refusal.to_string())?;
        Ok(
            "configuration reloaded; [protect], [history], [metrics], [maps] and limits.charge take effect at the next start",
        )
    }
}

/// The users that run something now: a group that lists no members may still have them.
fn running() -> BTreeSet<Uid> {
    let mut uids = BTreeSet::new();
    // Where not all can be listed, those seen until then are asked for; the others' lines are drawn at the next look.
    ProcRoot::open(Path::new("/proc"))
        .and_then(|mut proc| {
            proc.processes(|process| {
                uids.insert(process.uid);
            })
        })
        .ok();
    uids
}

fn unread(error: &HistoryError) -> Refusal {
    match error {
        HistoryError::Building => Refusal::Unavailable(error.to_string()),
        HistoryError::State(_)
        | HistoryError::Io { .. }
        | HistoryError::InUse { .. }
        | HistoryError::Future { .. }
        | HistoryError::Database(_)
        | HistoryError::Refused { .. }
        | HistoryError::Unwritten(..)
        | HistoryError::TooSlow(_)
        | HistoryError::Closed => Refusal::Internal(error.to_string()),
    }
}

impl Control for ControlService {
    fn standing(&self) -> Result<Standing, Refusal> {
        Ok(Standing {
            book: Arc::clone(&self.kept().book),
            mem_total: self.mem_total,
            page_size: self.page_size,
        })
    }

    fn status(&self, peer: Peer) -> Result<Status, Refusal> {
        let mut status = self.caller.ask(|reply| Request::Status { asker: peer.uid, reply })?;
        if let Some(guard) = &mut status.guards.workingset {
            guard.state = self.working_set.words();
        }
        self.measure(&mut status.accounts);
        self.tell_of_jobs(&mut status.accounts);
        status.jobs = Some(jobs::all(&status.accounts, self.kept().book.jobs()));
        // What it has locked of files is the working set's, and in memory once, whoever maps it.
        let locked = self.working_set.locked_bytes();
        status.guards.own.resident_bytes = resident_bytes().map(|bytes| bytes.saturating_sub(locked));
        status.reaping = Some(self.expedite.view());
        status.guards.own.uptime_seconds = Some(self.started.elapsed().as_secs());
        Ok(status)
    }

    fn limits(&self, peer: Peer, only: Option<&Account>) -> Result<Vec<AccountView>, Refusal> {
        let only = only.cloned();
        let mut views = self.caller.ask(|reply| Request::Accounts { only, asker: peer.uid, reply })?;
        self.measure(&mut views);
        self.tell_of_jobs(&mut views);
        Ok(views)
    }

    fn processes(&self, _: Peer, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        self.inspection.list(wanted)
    }

    fn running(&self) -> Vec<Uid> {
        let owners = Owners::of_machine();
        let mut uids: Vec<Uid> = running().into_iter().collect();
        uids.sort_by_key(|uid| owners.owner(*uid) != *uid);
        uids
    }

    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        let SetLimit { ref target, line, now } = limit;
        let line: Line = line;
        let of_a_job = matches!(target, Target::Job(_));
        let check = if of_a_job { validate_for_job } else { validate };
        check(&line, self.mem_total).map_err(|error| Refusal::Invalid(error.to_string()))?;
        self.pace(peer);
        if let Some(gid) = target.gid() {
            return self.set_group_line(limit, gid, peer);
        }
        self.look_up_if_changed()?;
        let mut kept = self.kept();
        let place = Self::place(&kept.book, peer, target)?;
        if let Place::Job(id, _) = place {
            jobs::stays_strict(&kept.book, id, Some(line))?;
        }
        if !kept.book.has_room(&place) {
            return Err(Refusal::Unavailable(match place {
                Place::Own(_) => format!(
                    "{OWN_LINES_MAX} users have drawn lines of their own, and no more are kept; ask root to draw yours, or to \
                     clear others"
                ),
                Place::Administrator(_) | Place::Job(..) => format!(
                    "{MEASURED_LINES_MAX} cgroups have lines, and no more are kept; clear one, or draw one for a cgroup above"
                ),
            }));
        }
        let mut book = (*kept.book).clone();
        book.set(place.clone(), line);
        self.commit(&mut kept, book, Change::One { place, now })
    }

    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        self.pace(peer);
        self.look_up_if_changed()?;
        let mut kept = self.kept();
        let place = Self::place(&kept.book, peer, &target)?;
        if let Place::Job(id, _) = place {
            jobs::stays_strict(&kept.book, id, None)?;
        }
        let mut book = (*kept.book).clone();
        let cleared = book.clear(place.clone());
        if book != *kept.book {
            self.commit(&mut kept, book, Change::One { place, now: false })?;
        }
        Ok(cleared)
    }

    fn guard_time(&self) -> Duration {
        self.caller.worked()
    }

    fn before_start(&self) {
        if let Err(refusal) = self.look_up_if_changed() {
            self.say(vec![format!("the lines of groups stay as they were: {refusal}")]);
        }
    }

    fn start_job(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal> {
        self.start_job_of(peer, start)
    }

    fn protection(&self, peer: Peer) -> Result<ProtectView, Refusal> {
        let mut view = self.working_set.view();
        if view.floor.is_some() {
            let status = self.caller.ask(|reply| Request::Status { asker: peer.uid, reply })?;
            let told = view.floor.as_mut().zip(status.guards.workingset);
            if let Some((floor, guard)) = told {
                (floor.kills, floor.last_incident) = (guard.incidents, guard.last_incident);
            }
        }
        Ok(view)
    }

    fn set_protection(&self, _peer: Peer, changes: &[TunableChange]) -> Result<(), Refusal> {
        let mut tunables = self.tunables();
        let before = tunables.terms();
        let (terms, saved) = tunables.changed(changes);
        let undone = |refusal: Refusal| {
            // As it was, as far as it can be: what refused the change may refuse this as well, and says so.
            self.working_set.set(&before).err().unwrap_or(refusal)
        };
        self.working_set.set(&terms).map_err(undone)?;
        tunables.save(saved).map_err(|error| undone(Refusal::Internal(error.to_string())))
    }

    fn expedite(&self, peer: Peer, pid: Pid, start_ns: u64) -> Result<bool, Refusal> {
        self.expedite.take(peer, pid, start_ns)
    }

    fn history(&self, _peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        let HistoryQuery { since, after_id, before_id, limit } = query;
        let found = self.reader.query(&Query { since, after_id, before_id, limit });
        // An idle daemon keeps no cache.
        self.reader.close();
        found.map_err(|error| unread(&error))
    }

    fn await_news(&self, known: Option<u64>, within: Duration) -> u64 {
        self.reader.await_news(known, within)
    }

    fn near(&self) -> Vec<NearView> {
        let view = |one: Outlook| NearView {
            account: one.account,
            usage_bytes: one.usage.0,
            hard_bytes: one.line.0,
            seconds_left: one.left.map(|left| left.0 / 1_000_000_000),
        };
        self.recorder.near().into_iter().map(view).collect()
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
