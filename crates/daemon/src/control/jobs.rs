//! Jobs: their start, their turn and their end.

use super::{ControlService, SavedLines};
use crate::{
    api::{
        control::{Refusal, StartJob},
        peer::Peer,
    },
    guard::{Change, OfJobs, Request},
};
use plimsoll_api::{
    accounts::{AccountView, JobView},
    message::StartJobReply,
    status::JobsView,
};
use plimsoll_policy::{
    account::{Account, Action, Counted},
    lines::{Job, Jobs, Line, LineBook, Place, validate_for_job},
    units::{Bytes, JobId, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::ABOVE_MOST,
    process::{PidFd, ProcRoot, ProcessError},
};
use std::{collections::BTreeSet, fmt::Display, path::Path, sync::Arc};

/// How many of these are there, and what is promised to them.
pub(super) fn all(views: &[AccountView], jobs: &Jobs) -> JobsView {
    let mut there = BTreeSet::new();
    let mut all = JobsView::default();
    for view in views {
        let Some((Counted::Job(id), job)) = view.account.counted().zip(view.job.as_ref()) else { continue };
        if job.is_there(view.processes) {
            there.insert(id);
            let count = if job.waits { &mut all.waiting } else { &mut all.running };
            *count = count.saturating_add(1);
        }
    }
    JobsView { promised_bytes: jobs.promised(|id| there.contains(&id)).0, ..all }
}

/// Refuses a line, or none, that would have a job strict from here on, though it has taken memory that nobody counted; or not
/// any more, though those around it count what it has.
pub(super) fn stays_strict(book: &LineBook, id: JobId, line: Option<Line>) -> Result<(), Refusal> {
    let is_strict = book.jobs().get(id).is_some_and(Job::is_strict);
    if is_strict == line.is_some_and(|line| line.action == Action::Deny) {
        return Ok(());
    }
    Err(Refusal::Invalid("a job is strict from its start to its end, or not at all".to_owned()))
}

impl ControlService {
    /// Starts a job, for whoever asks for it.
    pub(super) fn start_job_of(&self, peer: Peer, start: StartJob) -> Result<StartJobReply, Refusal> {
        if let Some(line) = &start.line {
            validate_for_job(line, self.mem_total).map_err(|error| Refusal::Invalid(error.to_string()))?;
        }
        let (process, first) = Self::starter(peer)?;
        let process = Arc::new(process);
        let mut kept = self.kept();
        let outer = self
            .caller
            .ask(|reply| Request::Jobs(OfJobs::Around { process: Arc::clone(&process), reply }))?;
        let outer = outer.filter(|id| kept.book.jobs().get(*id).is_some_and(|job| job.user == peer.uid));
        self.make_room_for_job(&mut kept, peer.uid, outer)?;
        let mut book = (*kept.book).clone();
        if outer.and_then(|outer| book.jobs().get(outer)).is_some_and(|outer| outer.waits) {
            return Err(Refusal::Invalid("who waits for a turn starts no other job".to_owned()));
        }
        let reserve = self.reserve_of(&start, peer, outer, &book)?;
        let StartJob { name, line, .. } = start;
        let waits = reserve.is_some();
        let job = Job { user: peer.uid, outer, name, line, first: Some(first), reserve, waits };
        let job = book.jobs_mut().add(job);
        if reserve.is_some() && self.turns_of(&book)?.contains(&job) {
            book.jobs_mut().begin(job);
        }
        let place = Place::Job(job, peer.uid);
        self.commit(&mut kept, book, Change::One { place, now: false })?;
        let entered = self.caller.ask(|reply| Request::Jobs(OfJobs::Enter { process, job, reply }));
        let next_incident_id = match entered {
            Ok(next) => Some(next),
            Err(refusal) => {
                self.remove_jobs(&mut kept, &[job])?;
                return Err(refusal);
            }
        };
        let hard = kept.book.hard_bytes(job.into(), self.mem_total, self.page_size);
        let hard_bytes = hard.map(|hard| hard.0);
        let waits = kept.book.jobs().get(job).is_some_and(|job| job.waits);
        Ok(StartJobReply { account: Account::Job(job), hard_bytes, next_incident_id, waits })
    }

    /// Takes jobs that have ended from the lines, and has those begin that have their turn.
    ///
    /// # Errors
    /// Any [`Refusal`]; they stay as they are then.
    pub(crate) fn tend_jobs(&self) -> Result<(), Refusal> {
        let mut kept = self.kept();
        let ended = self.end_jobs_in(&mut kept, false);
        let begun = self.give_turns(&mut kept);
        ended.and(begun)
    }

    fn give_turns(&self, kept: &mut SavedLines) -> Result<(), Refusal> {
        if !kept.book.jobs().any_waits() {
            return Ok(());
        }
        let turns = self.turns_of(&kept.book)?;
        if turns.is_empty() {
            return Ok(());
        }
        let mut book = (*kept.book).clone();
        for id in turns {
            book.jobs_mut().begin(id);
        }
        self.commit(kept, book, Change::Turns)
    }

    fn turns_of(&self, book: &LineBook) -> Result<Vec<JobId>, Refusal> {
        let jobs = book.jobs().clone();
        self.caller.ask(|reply| Request::Jobs(OfJobs::Turns { jobs, reply }))
    }

    /// What is to be promised to a job: refused where it can never be, as a line that holds for it is too low.
    fn reserve_of(
        &self,
        start: &StartJob,
        peer: Peer,
        outer: Option<JobId>,
        book: &LineBook,
    ) -> Result<Option<Bytes>, Refusal> {
        let Some(size) = start.reserve else { return Ok(None) };
        let reserve = size.resolve(self.mem_total);
        let mut lines = vec![("this machine's memory".to_owned(), self.mem_total)];
        lines.extend(start.line.map(|line| ("the job's line".to_owned(), line.hard.resolve(self.mem_total))));
        for whose in book.above_job(peer.uid, outer, self.mem_total, self.page_size) {
            let hard = book.hard_bytes(whose, self.mem_total, self.page_size);
            lines.extend(hard.map(|hard| (format!("the line of {whose}"), hard)));
        }
        match lines.into_iter().find(|(_, most)| reserve > *most) {
            Some((what, _)) => {
                Err(Refusal::Invalid(format!("{size} can never be promised: it is more than {what}")))
            }
            None if reserve == Bytes(0) => {
                Err(Refusal::Invalid("nothing is no promise: reserve a size above 0".to_owned()))
            }
            None => Ok(Some(reserve)),
        }
    }

    fn end_jobs_in(&self, kept: &mut SavedLines, walk: bool) -> Result<(), Refusal> {
        if kept.book.jobs().is_empty() {
            return Ok(());
        }
        let ended = self.caller.ask(|reply| Request::Jobs(OfJobs::Ended { walk, reply }))?;
        self.remove_jobs(kept, &ended)
    }

    fn remove_jobs(&self, kept: &mut SavedLines, ended: &[JobId]) -> Result<(), Refusal> {
        if ended.is_empty() {
            return Ok(());
        }
        let mut book = (*kept.book).clone();
        for id in ended {
            book.jobs_mut().remove(*id);
        }
        self.commit(kept, book, Change::JobsEnded)
    }

    /// Whether there is room for one more job of this user's, in that one.
    fn make_room_for_job(
        &self,
        kept: &mut SavedLines,
        user: Uid,
        outer: Option<JobId>,
    ) -> Result<(), Refusal> {
        let accounts = usize::try_from(kept.loader.accounts_max()).unwrap_or(usize::MAX);
        if !kept.book.jobs().have_room(user, accounts) {
            self.end_jobs_in(kept, true)?;
        }
        if !kept.book.jobs().have_room(user, accounts) {
            return Err(Refusal::Unavailable(
                "you run as many jobs as one user may have, or all users do; try again once one has ended"
                    .to_owned(),
            ));
        }
        if kept.book.above_job(user, outer, self.mem_total, self.page_size).len() > ABOVE_MOST {
            let why = match outer {
                Some(_) => "start it outside of this job",
                None => "and you are in so many groups with a line",
            };
            return Err(Refusal::Unavailable(format!(
                "a job is charged to {ABOVE_MOST} others at most: your account, those of your groups, and the jobs that it is \
                 in; {why}"
            )));
        }
        Ok(())
    }

    /// Who asks for a job, held: nobody else gets into it by its number.
    fn starter(peer: Peer) -> Result<(PidFd, VictimId), Refusal> {
        let gone =
            |why: &dyn Display| Refusal::NotFound(format!("who asked for a job cannot be held: {why}"));
        let pid = peer.pid.ok_or_else(|| gone(&"it is in another pid namespace"))?;
        let process = PidFd::open(pid).map_err(|error| gone(&error))?;
        let facts = ProcRoot::open(Path::new("/proc")).and_then(|mut root| root.process(pid));
        let facts = facts.map_err(|error| gone(&error))?;
        if process.has_exited().is_ok_and(|exited| !exited) && facts.uid == peer.uid {
            Ok((process, VictimId { pid, start_ns: facts.start_ns }))
        } else {
            Err(gone(&"it has exited"))
        }
    }

    /// What jobs are apart from their accounts.
    pub(super) fn tell_of_jobs(&self, views: &mut [AccountView]) {
        let book = Arc::clone(&self.kept().book);
        let mut proc = None;
        for view in views {
            let Some(Counted::Job(id)) = view.account.counted() else { continue };
            let Some(job) = book.jobs().get(id) else { continue };
            let proc = proc.get_or_insert_with(|| ProcRoot::open(Path::new("/proc")).ok()).as_mut();
            // `None`: it is not known whether it is there.
            let runs = job.first.zip(proc).and_then(|(first, proc)| match proc.process(first.pid) {
                Ok(found) => Some(found.start_ns == first.start_ns && !found.dying),
                Err(ProcessError::Vanished(_)) => Some(false),
                Err(_) => None,
            });
            let first = job.first.filter(|_| runs == Some(true));
            view.job = Some(JobView {
                uid: job.user,
                outer: job.outer.map(Account::Job),
                pid: first.map(|first| first.pid),
                start_ns: first.map(|first| first.start_ns),
                orphans: runs.map(|runs| if runs { 0 } else { view.processes }),
                promised_bytes: job.reserve.map(|reserve| reserve.0),
                waits: job.waits,
            });
        }
    }
}
