//! Strict jobs: their lines in the programs that refuse memory, and what those have refused.

use super::jobs::JOBS_EVERY;
use crate::{
    api::control::Refusal,
    guard::{Guard, kernel::Kernel, request::Change},
    tmalloc::{By, Pace, Refused},
};
use plimsoll_api::accounts::StrictView;
use plimsoll_policy::{
    account::Counted,
    lines::Job,
    units::{JobId, Nanos, Pages, Uid},
};
use plimsoll_sys::bpf::{BpfError, Strict, StrictLine};
use plimsoll_wire::{abi, strict, text::Comm};
use std::{collections::BTreeMap, os::fd::BorrowedFd, path::Path};

/// So many records are taken in before everything else has its turn; the ring holds 600.
const RECORDS_AT_ONCE: u32 = 128;

/// The programs, as far as there are strict jobs.
#[derive(Debug, Default)]
pub(crate) struct StrictJobs {
    programs: Option<Strict>,
    /// Since when there is no strict job any more; the programs go a while after that.
    left: Option<Nanos>,
    /// How often something of each user's jobs is written down, and what the thread was called that has to wait for it.
    paces: BTreeMap<Uid, (Pace, Comm)>,
    /// What was said of what went wrong in them.
    told: [u64; abi::PLIMSOLL_STRICT_COUNTS as usize],
}

impl StrictJobs {
    /// To be polled for input.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.programs.as_ref().map(Strict::fd)
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let paces = self.paces.values().filter_map(|(pace, _)| pace.free_at());
        paces.chain(self.rests_at()).min()
    }

    /// When the programs are to go.
    fn rests_at(&self) -> Option<Nanos> {
        self.left.map(|left| left.saturating_add(JOBS_EVERY))
    }

    /// Whether they are in force.
    pub(crate) const fn is_on(&self) -> bool {
        self.programs.is_some()
    }

    /// Has these jobs be strict, and no others; false: that cannot be, as the programs are not there.
    fn draw(
        &mut self,
        root: &Path,
        wanted: &BTreeMap<JobId, StrictLine>,
        now: Nanos,
    ) -> Result<bool, BpfError> {
        if self.programs.is_none() {
            self.programs = Strict::open(root)?;
        }
        let Some(programs) = &self.programs else {
            // Those of another version hold the jobs that run, and nobody else.
            if wanted.is_empty() {
                Strict::remove(root)?;
            }
            return Ok(wanted.is_empty());
        };
        programs.draw(wanted)?;
        self.left = if wanted.is_empty() { self.left.or(Some(now)) } else { None };
        Ok(true)
    }

    /// Who starts a job is in it from its next exec on, where it is strict.
    pub(super) fn enter(&self, process: BorrowedFd<'_>, id: JobId, job: &Job) -> Result<(), BpfError> {
        match &self.programs {
            Some(programs) if job.is_strict() => programs.enter(process, id),
            Some(_) | None => Ok(()),
        }
    }

    /// What a job has and was refused; `None`: it is not strict.
    pub(crate) fn view(&self, whose: Counted, bytes: impl Fn(Pages) -> u64) -> Option<StrictView> {
        let Counted::Job(id) = whose else { return None };
        let committed = self.programs.as_ref()?.committed(id).ok()??;
        Some(StrictView {
            committed_bytes: bytes(committed.now),
            peak_bytes: bytes(committed.peak),
            refused: committed.refused,
        })
    }
}

impl<K: Kernel> Guard<K> {
    /// Brings the programs to what the book says of strict jobs. What fails of it is told, and refused where it is of the job
    /// whose line this is: all other lines are drawn in any case.
    pub(super) fn draw_strict(&mut self, change: &Change) -> Result<(), Refusal> {
        let (mem_total, page_size) = (self.mem_total, self.page_size());
        let jobs = self.book.jobs();
        let line = |id: JobId| {
            let job = jobs.get(id)?;
            let limit = self.book.resolve_counted(id.into(), mem_total, page_size)?.hard;
            Some((id, StrictLine { limit, user: job.user, outer: jobs.strict_around(id) }))
        };
        let wanted: BTreeMap<JobId, StrictLine> = if self.context.config.dry_run {
            BTreeMap::new()
        } else {
            jobs.strict().filter_map(|(id, _)| line(id)).collect()
        };
        let is_own = change.job().is_some_and(|id| wanted.contains_key(&id));
        let drawn = self.strict.draw(self.pins.root(), &wanted, self.context.kernel.now());
        self.tell_counts();
        let failed = match drawn {
            Ok(true) => return Ok(()),
            Ok(false) => "the programs that refuse memory to strict jobs are not there".to_owned(),
            Err(error) => error.to_string(),
        };
        if is_own {
            return Err(Refusal::Internal(failed));
        }
        self.context.notices.once("strict jobs", &failed);
        Ok(())
    }

    /// Takes in what was refused, and lets go of the programs a while after the last strict job.
    pub(crate) fn tend_strict(&mut self) {
        let now = self.context.kernel.now();
        self.take_denials(now);
        let due = self.strict.paces.iter_mut().filter_map(|(_, (pace, comm))| Some((pace.due(now)?, *comm)));
        for (refused, comm) in due.collect::<Vec<_>>() {
            self.record_refusal(&refused, Some(comm));
        }
        self.strict.paces.retain(|_, (pace, _)| pace.free_at().is_some());
        if self.strict.rests_at().is_none_or(|rests| rests > now) {
            return;
        }
        self.strict = StrictJobs::default();
        if let Err(error) = Strict::remove(self.pins.root()) {
            self.context.notices.once("strict jobs", &error);
        }
    }

    fn take_denials(&mut self, now: Nanos) {
        for _ in 0..RECORDS_AT_ONCE {
            let Some(programs) = &mut self.strict.programs else { return };
            match programs.next_refusal() {
                Ok(Some(denied)) => self.take_denial(&denied, now),
                Ok(None) => return,
                Err(error) => {
                    self.context.notices.once("strict jobs", &error);
                    // The next line that is drawn opens them anew.
                    self.strict.programs = None;
                    return;
                }
            }
        }
    }

    fn take_denial(&mut self, denied: &strict::Refusal, now: Nanos) {
        let Some(job) = self.book.jobs().get(denied.job) else { return };
        let refused = Refused {
            user: job.user,
            whose: denied.job.into(),
            pid: denied.pid,
            uid: denied.uid,
            start_ns: denied.start_ns,
            requested: denied.asked,
            usage: denied.committed,
            hard: denied.limit,
            line: denied.limit,
            suppressed: denied.untold,
            by: if denied.forks { By::StrictFork } else { By::Strict },
        };
        let (pace, comm) = self.strict.paces.entry(job.user).or_insert((Pace::default(), denied.comm));
        *comm = denied.comm;
        if let Some(refused) = pace.take(refused, now) {
            self.record_refusal(&refused, Some(denied.comm));
        }
    }

    /// Says what went wrong in the programs since this was said.
    fn tell_counts(&mut self) {
        let counts = self.strict.programs.as_ref().map(Strict::counts);
        let Some(Ok(counts)) = counts else { return };
        let before = core::mem::replace(&mut self.strict.told, counts);
        let what = [
            "times a process of a strict job got no more memory, as its user has too many of them",
            "processes of strict jobs are in none: the kernel had no memory to note it",
            "refusals to strict jobs are not in the history",
        ];
        for ((now, before), what) in counts.into_iter().zip(before).zip(what) {
            if now > before {
                self.context.notices.say(format_args!("{} {what}", now.saturating_sub(before)));
            }
        }
    }
}
