//! Jobs in the programs: who enters one, and their lines.

use super::{
    attached::Attached,
    jobs::{JOBS_EVERY, TURNS_APART_MAX, TURNS_EVERY, TURNS_REST},
    lines::refuse,
    wanted::{Wanted, by_user, in_places, signal_of, stands},
};
use crate::{
    api::control::Refusal,
    guard::{
        Context, Guard,
        kernel::{Kernel, Programs as _},
        request::{Change, OfJobs},
    },
    pressure_socket::Topic,
};
use plimsoll_policy::{
    account::{Action, Counted},
    lines::{Job, Jobs, LineBook, Place, Resolved, Stand, Target, Turns},
    units::{Bytes, Gid, JobId, Nanos, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{AccountFacts, BpfError, Enforce, LineSet},
    process::{PidFd, ProcRoot},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd as _,
    path::Path,
    sync::Arc,
};

impl<K: Kernel> Attached<K> {
    /// Takes in what a walk has found of jobs.
    pub(super) fn look_at_jobs(
        &mut self,
        accounts: &[AccountFacts],
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        if !self.jobs.any {
            return Ok(());
        }
        self.jobs.look(accounts, context.now());
        let lost = self.limits.counters()?.jobs_lost;
        let more = lost.saturating_sub(core::mem::replace(&mut self.jobs.lost, lost));
        if more > 0 {
            context.notices.say(format_args!(
                "{more} processes are in none of the jobs that started them: the kernel had no memory to note it; their users' \
                 lines hold for them"
            ));
        }
        Ok(())
    }
}

impl<K: Kernel> Guard<K> {
    pub(crate) fn answer_of_jobs(&mut self, asked: OfJobs) {
        match asked {
            OfJobs::Around { process, reply } => reply.send(self.job_around(&process)),
            OfJobs::Enter { process, job, reply } => reply.send(self.enter_job(process, job)),
            OfJobs::Ended { walk, reply } => reply.send(self.ended_jobs(walk).map_err(Refusal::from)),
            OfJobs::Turns { jobs, reply } => reply.send(self.turns_of(&jobs).map_err(Refusal::from)),
        }
    }

    /// The job that a process is in; it may be one that has ended.
    fn job_around(&self, process: &PidFd) -> Result<Option<JobId>, Refusal> {
        let Some(attached) = &self.attached else { return Ok(None) };
        Ok(attached.limits.job_of(process.as_fd())?)
    }

    /// This process is in a job from here on.
    fn enter_job(&mut self, process: Arc<PidFd>, job: JobId) -> Result<u64, Refusal> {
        let attached =
            self.attached.as_mut().ok_or_else(|| Refusal::Unavailable("no lines are in force".to_owned()))?;
        attached.limits.enter_job(process.as_fd(), job)?;
        attached.jobs.begin(job, Arc::clone(&process));
        if let Some(known) = self.book.jobs().get(job) {
            self.strict.enter(process.as_fd(), job, known)?;
        }
        Ok(self.context.ledger.next_id())
    }

    /// The jobs that have ended as far as is known, and those that nobody is counted in; `walk`: has all tasks walked soon, for
    /// the next who asks.
    fn ended_jobs(&mut self, walk: bool) -> Result<Vec<JobId>, BpfError> {
        let Some(attached) = &mut self.attached else {
            // Nobody is in any; those that wait need no programs for that.
            let ended = self.book.jobs().iter().filter(|(_, job)| !job.waits);
            return Ok(ended.map(|(id, _)| id).collect());
        };
        let all = self.book.jobs().iter().map(|(id, _)| id);
        if walk {
            attached.want_scan();
        }
        let counted: BTreeSet<Counted> = attached.limits.accounts()?.iter().map(|one| one.whose).collect();
        let uncounted = all.filter(|id| !counted.contains(&(*id).into()) && !attached.jobs.has_starter(*id));
        let uncounted: Vec<JobId> = uncounted.collect();
        Ok(attached.jobs.ended(self.context.kernel.now()).chain(uncounted).collect())
    }

    /// Has jobs taken from the lines that have ended, and the programs go a while after the last one, where they are there for
    /// nobody else.
    pub(crate) fn have_jobs_ended(&mut self) {
        let now = self.context.kernel.now();
        let Some(attached) = &mut self.attached else { return };
        if attached.jobs.take_ended() {
            (self.tend_jobs.0)();
        }
        let is_long = |left: &Nanos| now.0.saturating_sub(left.0) >= JOBS_EVERY.0;
        let left = attached.jobs.left.take_if(|left| is_long(left));
        if left.is_some()
            && self.book.is_empty()
            && let Err(refusal) = self.draw_book(&Change::All)
        {
            self.context.notices.once("jobs", &refusal);
        }
    }

    /// Holds those who wait for their turn since an earlier daemon: nobody else is in their jobs, and where it was stopped,
    /// they are in none.
    pub(super) fn hold_who_wait(&mut self) {
        let (Some(attached), Ok(root)) = (&mut self.attached, ProcRoot::open(Path::new("/proc"))) else {
            return;
        };
        for (id, job) in self.book.jobs().iter().filter(|(_, job)| job.waits) {
            let open = |first: VictimId| PidFd::open_verified(&root, first.pid, first.start_ns).ok();
            // It may end meanwhile.
            if !attached.jobs.has_starter(id)
                && let Some(process) = job.first.and_then(open)
                && attached.limits.enter_job(process.as_fd(), id).is_ok()
            {
                let is_strict = self.strict.enter(process.as_fd(), id, job);
                attached.jobs.begin(id, Arc::new(process));
                if let Err(error) = is_strict {
                    self.context.notices.once("strict jobs", &error);
                }
            }
        }
    }

    /// Those of these jobs that wait and have their turn.
    fn turns_of(&mut self, jobs: &Jobs) -> Result<Vec<JobId>, BpfError> {
        let (now, mem_total, page_size) =
            (self.context.kernel.now(), self.mem_total, self.context.ledger.page_size());
        let users: BTreeSet<Uid> =
            jobs.iter().filter(|(_, job)| job.reserve.is_some()).map(|(_, job)| job.user).collect();
        let all = self.book.groups();
        let groups_of =
            |uid: Uid| (uid, all.iter().copied().filter(|gid| self.book.is_member(uid, *gid)).collect());
        let groups: BTreeMap<Uid, Vec<Gid>> = users.iter().copied().map(groups_of).collect();
        let (mut usage, mut over) = (BTreeMap::new(), BTreeSet::new());
        if let Some(attached) = &mut self.attached {
            let accounts = attached.limits.accounts()?;
            usage.extend(accounts.iter().map(|one| (one.whose, page_size.to_bytes(one.usage))));
            over = attached.jobs.unused(jobs, &accounts, now);
        }
        // Also of those who have no account yet.
        let all =
            users.into_iter().map(Counted::from).chain(groups.values().flatten().copied().map(Counted::from));
        for whose in all {
            usage.entry(whose).or_default();
        }
        let stand = |(whose, usage): (Counted, Bytes)| {
            (whose, Stand { usage, hard: self.book.hard_bytes(whose, mem_total, page_size) })
        };
        let accounts = usage.into_iter().map(stand).collect();
        let mut turns = Turns { accounts, groups, over, available: Bytes(u64::MAX) };
        let by_lines = jobs.turns(&turns);
        if by_lines.is_empty() {
            return Ok(by_lines);
        }
        // Where it cannot be read, lines alone say.
        let available = self.context.kernel.read_meminfo().ok().and_then(|read| read.mem_available);
        Ok(available.map_or(by_lines, |available| {
            turns.available = available;
            jobs.turns(&turns)
        }))
    }

    /// Looks whose turn it is, while anybody waits.
    pub(crate) fn look_for_turns(&mut self) {
        let now = self.context.kernel.now();
        if self.turns_due.is_none_or(|due| due > now) {
            return;
        }
        let book = Arc::clone(&self.book);
        let turns = self.turns_of(book.jobs());
        let done = self.context.kernel.now();
        let rest = Nanos(done.0.saturating_sub(now.0).saturating_mul(TURNS_REST));
        self.turns_due = Some(done.saturating_add(rest.clamp(TURNS_EVERY, TURNS_APART_MAX)));
        match turns {
            Ok(turns) if turns.is_empty() => {}
            Ok(_) => (self.tend_jobs.0)(),
            Err(error) => self.context.notices.once("jobs", &error),
        }
    }

    /// Tells those that waited that they have their turn.
    pub(super) fn tell_turns(&mut self, before: &LineBook) {
        let had_to_wait = before.jobs().iter().filter(|(_, job)| job.waits);
        let book = Arc::clone(&self.book);
        let has_turn = |id: &JobId| book.jobs().get(*id).is_some_and(|job| !job.waits);
        let topics = had_to_wait
            .filter(|(id, _)| has_turn(id))
            .map(|(id, job)| Topic { owner: job.user, job: Some(id) });
        self.context.listeners.have_turns(topics);
    }

    /// Draws what a change of jobs changes, without a walk; false where that is not all there is to draw.
    pub(super) fn draw_jobs(&mut self, change: &Change) -> Result<bool, Refusal> {
        let user = match change {
            Change::One { place: Place::Job(_, user), .. } => Some(*user),
            Change::JobsEnded => None,
            Change::One { .. } | Change::All | Change::Turns => return Ok(false),
        };
        let Some(attached) = &mut self.attached else { return Ok(false) };
        let account = user.map(|user| attached.limits.account(user.into())).transpose()?.flatten();
        // That of `default` would give way to another's; and what was not drawn before is drawn now.
        let is_missing = user.is_some() && account.is_none_or(|account| account.from_default);
        if is_missing || self.undrawn.failed.is_some() {
            return Ok(false);
        }
        let page_size = self.context.ledger.page_size();
        let mut wanted =
            Wanted::of(&self.book, change, self.mem_total, page_size, self.context.config.dry_run);
        let accounts = attached.limits.accounts()?;
        if wanted.lacks_a_group(&accounts) {
            return Ok(false);
        }
        attached.begin_drawing(self.context.kernel.now())?;
        // Nobody is in one that is new.
        let job = match change {
            Change::One { place: Place::Job(id, _), .. } => Some(Counted::Job(*id)),
            Change::One { .. } | Change::All | Change::JobsEnded | Change::Turns => None,
        };
        if job.is_none_or(|job| accounts.iter().any(|one| one.whose == job)) {
            attached.want_scan();
        }
        let accounts = wanted.draw_jobs_alone(attached, &accounts)?;
        let refused = wanted.refused;
        attached.jobs.left = self.book.is_empty().then(|| self.context.kernel.now());
        attached.jobs.any |= self.book.is_empty();
        self.tell_lines_of(&accounts);
        refuse(refused)?;
        Ok(true)
    }
}

impl Wanted<'_> {
    /// Draws jobs, where nothing else has changed; all accounts after that.
    fn draw_jobs_alone<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        accounts: &[AccountFacts],
    ) -> Result<Vec<AccountFacts>, BpfError> {
        self.draw_jobs(attached, accounts)?;
        let users = by_user(accounts);
        self.clear_others(attached, &users)?;
        // Who had a job does not keep an account from those who run something now.
        let had_a_job = |uid: &Uid, one: &AccountFacts| {
            !one.from_default && self.is_default(*uid) && !self.have_jobs.contains(uid)
        };
        for (uid, _) in users.iter().filter(|(uid, one)| had_a_job(uid, one)) {
            if let Some(line) = self.resolve(*uid) {
                attached.limits.set_line(&self.line(*uid, &line, Enforce::Within))?;
            }
        }
        let accounts = attached.limits.accounts()?;
        attached.groups.renew(&accounts);
        Ok(accounts)
    }

    /// Whether somebody who has no job any more is charged to fewer groups than they are to be.
    fn lacks_a_group(&self, accounts: &[AccountFacts]) -> bool {
        by_user(accounts).into_iter().any(|(uid, one)| {
            let charged = one.above.iter().filter(|group| **group != 0).count();
            charged < self.charged_most(uid) && charged < self.groups_of(uid).len()
        })
    }

    /// Has an account for each job, below its user's, theirs and those of the jobs around it, and none for one that has ended.
    pub(super) fn draw_jobs<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        accounts: &[AccountFacts],
    ) -> Result<(), BpfError> {
        let job = |one: &AccountFacts| match one.whose {
            Counted::Job(id) => Some((id, *one)),
            Counted::User(_) | Counted::Group(_) => None,
        };
        let standing: BTreeMap<JobId, AccountFacts> = accounts.iter().filter_map(job).collect();
        // The innermost first: what is left in one is taken from all above it, once.
        for id in standing.keys().rev().filter(|id| self.book.jobs().get(**id).is_none()) {
            attached.limits.clear_line((*id).into())?;
            attached.watched.remove(&(*id).into());
        }
        let (users, mut numbers) = (by_user(accounts), BTreeMap::new());
        for (id, job) in self.book.jobs().iter() {
            let known = standing.get(&id);
            let drawn = users.get(&job.user).and_then(|user| self.job_line((id, job), user, &numbers));
            let Some((line_set, action)) = drawn else {
                self.has_no_account(id.into());
                continue;
            };
            let number = match known {
                Some(known) if stands(known, &line_set) && line_set.enforce != Enforce::Now => {
                    Ok(known.index)
                }
                Some(_) | None => attached.limits.set_line(&line_set),
            };
            match number {
                Ok(number) => {
                    numbers.insert(id, number);
                    attached.watch(id.into(), action);
                }
                Err(error) if error.is_full() => self.has_no_account(id.into()),
                Err(error) => return Err(error),
            }
        }
        attached.jobs.drawn(&numbers);
        Ok(())
    }

    /// A job's line, where those around it have these accounts.
    fn job_line(
        &self,
        (id, job): (JobId, &Job),
        user: &AccountFacts,
        numbers: &BTreeMap<JobId, u32>,
    ) -> Option<(LineSet, Action)> {
        let mut line = self.book.resolve_target(&Target::Job(id), self.mem_total, self.page_size)?;
        // The programs of strict jobs refuse what is past it: here it is counted only.
        if line.action == Action::Deny {
            line = Resolved::none(line.source);
        }
        let around = self.book.jobs().around(id);
        let around = around.iter().filter_map(|outer| numbers.get(outer)).copied();
        let groups = user.above.into_iter().filter(|group| *group != 0);
        let line_set = LineSet {
            whose: id.into(),
            user: Some(job.user),
            hard: line.hard,
            soft: line.soft,
            signal: signal_of(line.action, self.dry_run),
            enforce: self.enforce_at_once(&Target::Job(id)),
            from_default: false,
            above: in_places([user.index].into_iter().chain(groups).chain(around)),
        };
        Some((line_set, line.action))
    }
}
