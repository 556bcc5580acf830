//! The thread that counts use, plans and locks. What has to be opened it leaves to the opener, so that it waits for no disk.

mod holding;

use super::{
    charges::Charges,
    duty_cycle::{DutyCycle, GLANCE},
    locked_files::LockedFiles,
    opener::Opener,
    readings::Readings,
    shared::{Shared, Thread},
    times::{now, timeout_until},
};
use crate::journal::{Journal, Notices};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, poll},
};
use plimsoll_policy::{
    units::{Bytes, Nanos},
    workingset::{Barred, Budget, FileId, Heat, Plan, Tier, Use},
};
use plimsoll_sys::{
    bpf::{Accesses, BpfError},
    process::ProcRoot,
    workingset::Mounts,
};
use std::sync::Arc;

/// From one turn to the next: a turn counts for one pass through a chunk at most.
const TURN: Nanos = Nanos(500_000_000);

/// While pages are taken that may be held: what comes back has to be locked before it goes again.
const HURRIED_TURN: Nanos = Nanos(100_000_000);

/// For so long after some were taken; and after the begin, as whether any are shows soon.
const HURRIES: Nanos = Nanos(10_000_000_000);
const HURRIES_AT_FIRST: Nanos = Nanos(1_000_000_000);

/// From one plan to the next meanwhile, and at other times.
const HURRIED_PLAN: Nanos = Nanos(300_000_000);
const PLAN: Nanos = Nanos(1_000_000_000);

/// How often it is looked which files running processes execute.
const EXECUTABLES_EVERY: Nanos = Nanos(15_000_000_000);

/// How often files are asked whether they still have a name, and mounts of other namespaces whether they are still there.
const LOOK_EVERY: Nanos = Nanos(1_000_000_000);

/// After a change mounts are read at once, and again so soon at most: where containers come and go they change all the time.
const MOUNTS_EVERY: Nanos = Nanos(100_000_000);

/// How long a refusal is believed that says something about the file.
const LASTING: Nanos = Nanos(600_000_000_000);

/// What it works with.
pub(super) struct Means {
    pub(super) mounts: Mounts,
    pub(super) opener: Opener,
    pub(super) readings: Readings,
    pub(super) journal: Journal,
}

/// What the worker thread works with.
pub(super) struct Worker {
    shared: Arc<Shared>,
    mounts: Mounts,
    opener: Opener,
    readings: Readings,
    proc: ProcRoot,
    notices: Notices,
    charges: Charges,
    plan: Plan,
    /// What that was made for.
    budget: Budget,
    heat: Heat,
    stock: LockedFiles,
    duty: DutyCycle,
    uses: Vec<Use>,
    due: Nanos,
    hurries_until: Nanos,
    /// Accesses were watched since the last drain, all the time.
    watched: bool,
    /// When it is looked how many accesses there are, after it began to watch them.
    glance_due: Option<Nanos>,
    planned: Nanos,
    executables_due: Nanos,
    look_due: Nanos,
    mounts_due: Option<Nanos>,
    mounts_read: Nanos,
    /// Since when files wait to be opened, and nothing was heard of any.
    waits_since: Option<Nanos>,
}

impl Worker {
    /// # Errors
    /// One line: what cannot be read.
    pub(super) fn new(shared: Arc<Shared>, means: Means) -> Result<Self, String> {
        let Means { mounts, opener, readings, journal } = means;
        let mut notices = Notices::new(journal);
        let (charges, untold) = Charges::new(readings.page_size());
        if let Some(why) = untold {
            notices.say(format_args!("working set: whose memory is locked is not told here, and no cgroup's share is kept to: {why}"));
        }
        Ok(Self {
            heat: Heat::new(readings.page_size()),
            stock: LockedFiles::new(shared.locks().clone()),
            duty: DutyCycle::new(0, now()),
            proc: Readings::proc().map_err(|error| error.to_string())?,
            charges,
            plan: Plan::default(),
            budget: Budget::default(),
            uses: Vec::new(),
            due: Nanos(0),
            hurries_until: now().saturating_add(HURRIES_AT_FIRST),
            watched: false,
            glance_due: None,
            planned: Nanos(0),
            executables_due: Nanos(0),
            look_due: Nanos(0),
            mounts_due: None,
            mounts_read: Nanos(0),
            waits_since: None,
            notices,
            shared,
            mounts,
            opener,
            readings,
        })
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) {
        self.begin_to_watch();
        while !self.shared.is_stopping() {
            if let Err(errno) = self.wait() {
                self.notices.say(format_args!("the working set is not protected any more: poll: {errno}"));
                return;
            }
            if self.shared.hush(Thread::Worker) {
                // Other tunables, or the soft tier was let go.
                (self.due, self.planned) = (Nanos(0), Nanos(0));
            }
            let moment = now();
            self.take_opened(moment);
            if self.mounts_due.is_some_and(|due| due <= moment) {
                self.look_at_mounts();
            }
            if self.glance_due.is_some_and(|due| due <= moment) {
                let watched = self.watch(moment);
                self.say_failure(watched);
            }
            if self.due <= moment && !self.shared.is_stopping() {
                self.turn(moment);
                let turn = if self.hurries(moment) { HURRIED_TURN } else { TURN };
                self.due = now().max(moment.saturating_add(turn));
            }
        }
    }

    fn wait(&mut self) -> nix::Result<()> {
        let dues = [self.mounts_due, self.glance_due].into_iter().flatten();
        let due = dues.fold(self.due, Nanos::min);
        let mut watched = vec![
            PollFd::new(self.shared.bell_of(Thread::Worker), PollFlags::POLLIN),
            PollFd::new(self.opener.bell(), PollFlags::POLLIN),
        ];
        if self.mounts_due.is_none() {
            watched.push(PollFd::new(self.mounts.changed(), PollFlags::POLLPRI));
        }
        match poll(&mut watched, timeout_until(due)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if watched.get(2).and_then(PollFd::any).unwrap_or(false) {
            self.mounts_due = Some(self.mounts_read.saturating_add(MOUNTS_EVERY));
        }
        Ok(())
    }

    /// Where accesses cannot be watched, what comes and goes is all there is.
    fn begin_to_watch(&mut self) {
        let mut counts = self.shared.counts();
        let counted = counts.accesses().unwrap_or(0);
        self.duty = DutyCycle::new(counted, now());
        if counts.offers().accesses == Accesses::Nowhere {
            self.notices.say("working set: reads from the page cache cannot be seen here: files are ranked by what comes into it");
        } else if let Err(error) = counts.attach_reads() {
            self.notices.say(format_args!("working set: reads from the page cache are not seen: {error}"));
        } else {
            self.glance_due = Some(now().saturating_add(GLANCE));
        }
    }

    fn turn(&mut self, moment: Nanos) {
        let counted = self.count(moment);
        self.say_failure(counted);
        if self.uses.iter().any(|used| self.misses(used, moment)) {
            self.hurries_until = moment.saturating_add(HURRIES);
        }
        let watched = self.watch(moment);
        self.say_failure(watched);
        self.stock.capture(&self.uses);
        if moment >= self.look_due {
            self.look_due = moment.saturating_add(LOOK_EVERY);
            self.look_at_files(moment);
        }
        let apart = if self.hurries(moment) { HURRIED_PLAN } else { PLAN };
        if moment >= self.planned.saturating_add(apart) {
            self.planned = moment;
            self.follow_plan(moment);
        }
        for tier in [Tier::Hard, Tier::Soft] {
            self.shared.set_locked(tier, self.stock.pages(tier));
        }
        self.uses.clear();
        self.uses.shrink_to(1024);
    }

    fn hurries(&self, moment: Nanos) -> bool {
        moment < self.hurries_until
    }

    /// Whether reclaim took something that may be held: of a stream, which is larger than that, it takes all the time.
    fn misses(&self, used: &Use, moment: Nanos) -> bool {
        let fits = || self.readings.page_size().to_pages(Bytes(used.file_bytes)) <= self.budget.total();
        let barred = || used.barred.is_some() || self.heat.barred(used.chunk.file, moment).is_some();
        used.evicted > 0 && (self.stock.since(used.chunk).is_some() || fits() && !barred())
    }

    fn say_failure(&mut self, done: Result<(), BpfError>) {
        if let Err(error) = done {
            self.notices.once("working set", &error);
        }
    }

    /// Has accesses watched from now on, or not.
    fn watch(&mut self, moment: Nanos) -> Result<(), BpfError> {
        self.glance_due = None;
        let shared = Arc::clone(&self.shared);
        let mut counts = shared.counts();
        if !counts.is_attached() {
            // It is being turned off.
            return Ok(());
        }
        match (self.duty.watches(counts.accesses()?, moment), counts.reads_are_attached()) {
            (true, false) if counts.offers().accesses != Accesses::Nowhere => {
                counts.attach_reads()?;
                self.glance_due = Some(now().saturating_add(GLANCE));
            }
            (false, true) => {
                counts.detach_reads();
                self.watched = false;
            }
            (true | false, _) => {}
        }
        Ok(())
    }

    /// Takes in what was used.
    fn count(&mut self, moment: Nanos) -> Result<(), BpfError> {
        let mut counts = self.shared.counts();
        if !counts.is_attached() {
            // It is being turned off.
            return Ok(());
        }
        self.uses.clear();
        counts.drain(&mut self.uses)?;
        if !self.watched {
            self.uses.iter_mut().for_each(Use::infer);
            self.heat.was_blind(moment);
        }
        self.watched = counts.reads_are_attached();
        let executables = if moment >= self.executables_due {
            self.executables_due = moment.saturating_add(EXECUTABLES_EVERY);
            let found = counts.executables()?;
            if found.cut {
                self.notices.once(
                    "working set",
                    &"more files are executed than are told: some count for no more than others",
                );
            }
            found.files
        } else {
            Vec::new()
        };
        drop(counts);
        self.heat.observe(&self.uses, &executables, moment);
        Ok(())
    }

    fn look_at_files(&mut self, moment: Nanos) {
        for file in self.stock.drop_unlinked() {
            self.heat.bar(file, Barred::Unlinked, moment.saturating_add(LASTING));
        }
        let barred: Vec<FileId> = self
            .stock
            .holdings()
            .iter()
            .map(|holding| holding.extent.file)
            .filter(|file| self.heat.barred(*file, moment).is_some())
            .collect();
        barred.into_iter().for_each(|file| self.stock.drop_file(file));
        if self.mounts.has_foreign() {
            self.look_at_mounts();
        }
    }

    fn look_at_mounts(&mut self) {
        (self.mounts_due, self.mounts_read) = (None, now());
        match self.mounts.refresh() {
            Ok(refreshed) => {
                for device in refreshed.gone {
                    self.stock.drop_device(device);
                    self.opener.forget_device(device);
                    self.heat.forget_device(device);
                }
            }
            Err(error) => self.notices.once("mounts", &error),
        }
    }
}
