//! Watches over a job: stays beside the program, tells what becomes of the job, and ends as the program does.
//!
//! The first thread waits for the program and for signals, and for nothing else. A daemon that is gone, or late, costs events.

use super::{
    arguments::{Arguments, not_started},
    child::{Child, HANDED_ON, Happened, end_as, shown, with_signals},
    events::{Event, Lines, What, processes},
    jobserver::{Jobserver, Tokens},
    listen::{News, Question, left_behind, listen},
    program,
};
use crate::{
    commands::jobs,
    exit::{Ending, Exit, Failure},
    hook,
    interrupt::Interrupt,
    names::Names,
    output,
};
use plimsoll_api::{
    accounts::{AccountView, ProcessView},
    client::Client,
    message::StartJobReply,
};
use plimsoll_policy::{
    account::{Account, Counted},
    incident::Outcome,
    units::{JobId, Pid},
};
use plimsoll_sys::process::named_descriptor;
use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Options that a command after --on-near is not likely to have.
const OURS: [&str; 5] = ["--status-fd", "--end-orphans", "--reserve", "--wait", "--jobserver"];
/// How long the daemon may take over one question.
pub(super) const ANSWER: Duration = Duration::from_secs(3);
/// Where the program failed, how long what may have killed a part of it is waited for.
const CAUSE_WITHIN: Duration = Duration::from_millis(300);
/// How long the daemon is tried where there may be somebody to end.
const ORPHANS_WITHIN: Duration = Duration::from_secs(15);
/// From one look for signals to the next, while the end is told.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is known of the job, and who is told.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) socket: PathBuf,
    pub(super) id: JobId,
    name: Option<String>,
    names: Names,
    lines: Option<Lines>,
    on_near: Arc<OnNear>,
    /// The newest incident that was looked at.
    last: u64,
    /// It may end as soon as it was refused memory.
    is_strict: bool,
    /// The line that it began with.
    hard: Option<u64>,
    /// As its account was last seen.
    view: Option<AccountView>,
    /// The highest usage that was ever seen.
    peak: Option<u64>,
    /// The program runs, or has run.
    began: bool,
    /// The program has ended, and nothing is told any more.
    pub(super) over: bool,
}

/// What is run when the line is near, once at a time.
#[derive(Debug, Default)]
struct OnNear {
    command: Vec<OsString>,
    runs: AtomicBool,
}

/// Starts it, watches, and ends as it does.
pub(super) fn run(arguments: &Arguments, socket: &Path) -> Ending {
    check_on_near(&arguments.on_near)?;
    let lines = arguments.status_fd.map(|number| {
        named_descriptor(number).ok_or_else(|| {
            let what = "--status-fd 9 wants '9>FILE', or a pipe there";
            not_started(format_args!("descriptor {number} is not open: {what}"))
        })
    });
    let lines = lines.transpose()?.map(File::from);
    let is_told = lines.is_some() || !arguments.on_near.is_empty();
    let mut tokens = tokens(arguments)?;
    let signals = Interrupt::and(&HANDED_ON)?;
    let mut child = Child::start(arguments, socket, tokens.as_mut())?;
    let mut lines = lines.map(Lines::to);
    let (mut watched, mut jobserver) = (None, None);
    let status = loop {
        match child.next(&signals)? {
            Happened::InJob(job) => {
                let Some(job) = job else { continue };
                if watched.is_none() {
                    let one = Watched::new(arguments, socket, &job, lines.take());
                    watched = one.map(|one| Arc::new(Mutex::new(one)));
                }
                let Some(one) = watched.clone() else { continue };
                enter(&one).begins(if job.waits { What::Waiting } else { What::Started });
                if job.waits {
                    continue;
                }
                if let Some(tokens) = tokens.take() {
                    let (id, first) = (enter(&one).id, Pid(child.number()));
                    let begun = Jobserver::begin(tokens, socket, id, first);
                    jobserver =
                        Some(begun.map_err(|error| not_started(format_args!("--jobserver: {error}")))?);
                }
                if is_told {
                    thread::spawn(move || listen(&one));
                }
            }
            Happened::Ended(status) => break status,
        }
    };
    // What is left behind goes on, and the pipe of one that never began goes.
    drop((jobserver, tokens));
    if let Some(watched) = watched {
        let (end_orphans, at_once) = (arguments.end_orphans, Arc::new(AtomicBool::new(false)));
        let (is_hurried, (done, ended)) = (Arc::clone(&at_once), channel::<()>());
        thread::spawn(move || {
            enter(&watched).end(status, is_told, end_orphans.then_some(&*is_hurried));
            drop(done);
        });
        // Whoever wants it to end has orphans ended at once; and the next time all is left as it is.
        while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if signals.next().is_some() && at_once.swap(true, Ordering::AcqRel) {
                break;
            }
        }
    }
    end_as(&signals, status)
}

fn tokens(arguments: &Arguments) -> Result<Option<Tokens>, Failure> {
    let Some(slots) = arguments.jobserver else { return Ok(None) };
    let cpus =
        || thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let tokens = Tokens::new(slots.unwrap_or_else(cpus).into());
    tokens.map(Some).map_err(|error| not_started(format_args!("--jobserver: no pipe can be made: {error}")))
}

pub(super) fn enter(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a command that is none, before anything is started; and options of ours that were swallowed by it.
fn check_on_near(command: &[OsString]) -> Result<(), Failure> {
    let Some((name, rest)) = command.split_first() else { return Ok(()) };
    if program::find(name).is_none() {
        let message = format!("--on-near: '{}' is not found; is it installed, and in PATH?", name.display());
        return Err(Failure::Told { exit: Exit::NoSuchProgram, message });
    }
    let option = |word: &OsString| word.to_str().and_then(|word| word.split('=').next()).map(str::to_owned);
    let ours = rest.iter().filter_map(option).find(|word| OURS.contains(&word.as_str()));
    ours.map_or(Ok(()), |word| {
        Err(not_started(format_args!(
            "{word} is behind --on-near, which goes on to '--': give {word} before it"
        )))
    })
}

impl Watched {
    fn new(arguments: &Arguments, socket: &Path, job: &StartJobReply, lines: Option<Lines>) -> Option<Self> {
        let Some(Counted::Job(id)) = job.account.counted() else { return None };
        Some(Self {
            socket: socket.to_owned(),
            id,
            name: arguments.name.clone(),
            is_strict: arguments.is_strict(),
            names: Names::default(),
            lines,
            on_near: Arc::new(OnNear { command: arguments.on_near.clone(), runs: AtomicBool::new(false) }),
            last: job.next_incident_id.unwrap_or(0).saturating_sub(1),
            hard: job.hard_bytes,
            view: None,
            peak: None,
            began: false,
            over: false,
        })
    }

    fn job(&self) -> Account {
        Account::Job(self.id)
    }

    pub(super) fn question(&self) -> Question {
        Question {
            socket: self.socket.clone(),
            id: self.id,
            last: self.last,
            within: Duration::ZERO,
            is_near: false,
        }
    }

    /// Notes how the account stands.
    fn see(&mut self, view: Option<AccountView>) {
        let Some(view) = view else { return };
        self.peak = self.peak.max(Some(view.usage_bytes)).max(view.peak_bytes);
        self.view = Some(view);
    }

    fn event(&self, what: What) -> Event {
        let view = self.view.as_ref();
        Event {
            usage_bytes: view.map(|view| view.usage_bytes),
            hard_bytes: view.map_or(self.hard, |view| view.hard_bytes),
            peak_bytes: self.peak,
            ..Event::new(what, self.job())
        }
    }

    fn tell(&mut self, event: &Event) {
        if let Some(lines) = &mut self.lines {
            lines.write(event);
        }
    }

    fn begins(&mut self, what: What) {
        self.began = what == What::Started;
        self.tell(&Event { processes: Some(Vec::new()), ..self.event(what) });
    }

    /// Tells what is new, each incident once.
    pub(super) fn take(&mut self, news: News) {
        let News { last, incidents, view, near } = news;
        if self.over {
            return;
        }
        self.see(view);
        let before = self.last;
        self.last = before.max(last);
        for incident in incidents.iter().filter(|incident| incident.id > before) {
            let name = match &incident.account {
                Some(account) if *account == self.job() => self.name.clone(),
                Some(account) => self.names.of(account),
                None => None,
            };
            // What is committed in a strict job was not all touched.
            if incident.account == Some(self.job()) && incident.action != Outcome::Deny {
                self.peak = self.peak.max(Some(incident.usage_bytes));
            }
            self.tell(&self.event(What::Killed).of_incident(incident, name.as_deref()));
        }
        if let Some((seconds_left, largest)) = near {
            let event =
                Event { processes: Some(processes(&largest)), seconds_left, ..self.event(What::Near) };
            self.tell(&event);
            self.on_near.begin(&event);
        }
    }

    /// The last that is told: what took it, if anything of ours did, what it left behind, and its end. `end_orphans`: where
    /// these are to be ended, whether that is to be at once.
    fn end(&mut self, status: Option<ExitStatus>, is_told: bool, end_orphans: Option<&AtomicBool>) {
        let (id, failed) = (self.id, status.is_none_or(|status| !status.success()));
        // What never ran has left nothing behind. It may have been killed while it waited.
        let was_signalled = status.is_some_and(|status| status.signal().is_some());
        let mut answers = self.began;
        let end_orphans = end_orphans.filter(|_| self.began);
        if is_told && (self.began || was_signalled) {
            let within = if failed || self.is_strict { CAUSE_WITHIN } else { Duration::ZERO };
            let news = Question { within, ..self.question() }.ask(Instant::now() + ANSWER);
            answers &= news.is_some();
            news.into_iter().for_each(|news| self.take(news));
        }
        let until = Instant::now() + if end_orphans.is_some() { ORPHANS_WITHIN } else { ANSWER };
        let ask = || Client::ask(&self.socket, ANSWER, until, |daemon| left_behind(daemon, id)).ok();
        // Where nothing has to be ended, one that is late is not waited for twice.
        let left = if answers || end_orphans.is_some() { ask() } else { None };
        let is_known = matches!(&left, Some((Some(_), _)));
        let orphans = left.map(|(view, orphans)| {
            self.see(view);
            orphans
        });
        let event = self.event(What::Ended);
        self.tell(&Event {
            usage_bytes: event.usage_bytes.filter(|_| is_known),
            processes: if self.began { orphans.as_deref().map(processes) } else { Some(Vec::new()) },
            status: status.map(shown),
            ..event
        });
        self.over = true;
        let unread = self.lines.take().map_or(0, Lines::finish);
        self.see_to(orphans, end_orphans);
        self.on_near.finish();
        if unread > 0 {
            let events = output::counted(unread, "event was", "events were");
            output::complain(format_args!("{events} not told on --status-fd: nobody read them in time"));
        }
    }

    /// What the program left behind is ended, or told.
    fn see_to(&self, orphans: Option<Vec<ProcessView>>, end_orphans: Option<&AtomicBool>) {
        let id = self.id;
        match (orphans, end_orphans) {
            (Some(orphans), _) if orphans.is_empty() => {}
            (Some(orphans), None) => {
                let count =
                    output::counted(u64::try_from(orphans.len()).unwrap_or(u64::MAX), "process", "processes");
                output::complain(format_args!(
                    "job {id} left {count} behind; 'plimsoll jobs end {id}' ends what is there"
                ));
            }
            (Some(_), Some(at_once)) => {
                let ended = Client::connect_within(&self.socket, ANSWER)
                    .and_then(|mut daemon| jobs::end(&mut daemon, id, at_once));
                let complaint = ended.map_or_else(|error| Some(error.into()), |ended| ended.complain(id));
                if let Some(Failure::Told { message, .. }) = complaint {
                    output::complain(message);
                }
            }
            (None, Some(_)) => output::complain(format_args!(
                "what job {id} left behind is not known, and not ended: the daemon does not answer; 'plimsoll jobs end {id}' \
                 ends it"
            )),
            // There may be nobody.
            (None, None) => {}
        }
    }
}

impl OnNear {
    /// Runs the command, unless it runs.
    fn begin(self: &Arc<Self>, event: &Event) {
        let Some((program, rest)) = self.command.split_first() else { return };
        if self.runs.swap(true, Ordering::AcqRel) {
            return;
        }
        let (mut command, json) = (with_signals(program, rest), event.to_json());
        // It says itself what is wrong with it.
        command.stdout(Stdio::null());
        let on_near = Arc::clone(self);
        thread::spawn(move || {
            if let Err(why) = hook::run(command, &json) {
                output::complain(format_args!("--on-near: {why}"));
            }
            on_near.runs.store(false, Ordering::Release);
        });
    }

    /// Waits until it has ended, or was ended.
    fn finish(&self) {
        while self.runs.load(Ordering::Acquire) {
            thread::sleep(LOOK_EVERY);
        }
    }
}
