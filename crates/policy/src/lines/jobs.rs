//! Jobs: what `plimsoll run` started, with all that it started in turn.

use super::{BTreeMap, Deserialize, JobId, Line, Serialize, String, Uid, Vec};
use crate::{account::Action, units::Bytes, victim::VictimId};

/// The longest name, in bytes.
pub const JOB_NAME_MAX: usize = 64;

/// Jobs of all users at once: their file stays under a megabyte.
pub const JOBS_MAX: usize = 2048;

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Who started it. Processes in it that became another user's are that user's.
    pub user: Uid,
    /// The job that it was started in, of the same user.
    pub outer: Option<JobId>,
    /// What its user calls it.
    pub name: Option<String>,
    /// Its line; `None`: it is counted only.
    pub line: Option<Line>,
    /// The process that it began with. `None`: an earlier version wrote it down.
    #[serde(default)]
    pub first: Option<VictimId>,
    /// So much is promised to it: see [`Jobs::turns`].
    #[serde(default)]
    pub reserve: Option<Bytes>,
    /// It waits for its turn: its program has not begun.
    #[serde(default)]
    pub waits: bool,
}

impl Job {
    /// Whether memory past its line is refused, instead of anybody being ended.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.line.is_some_and(|line| line.action == Action::Deny)
    }

    /// One that is counted only, in no other, and waits for nothing.
    #[must_use]
    pub const fn new(user: Uid) -> Self {
        Self { user, outer: None, name: None, line: None, first: None, reserve: None, waits: false }
    }
}

/// All jobs there are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Kept", into = "Kept")]
pub struct Jobs {
    /// The last number that was given.
    last: JobId,
    jobs: BTreeMap<JobId, Job>,
}

/// As a file keeps them: numbers are no keys of JSON.
#[derive(Serialize, Deserialize)]
struct Kept {
    last: JobId,
    jobs: Vec<(JobId, Job)>,
}

impl From<Kept> for Jobs {
    fn from(Kept { last, jobs }: Kept) -> Self {
        Self { last, jobs: jobs.into_iter().collect() }
    }
}

impl From<Jobs> for Kept {
    fn from(Jobs { last, jobs }: Jobs) -> Self {
        Self { last, jobs: jobs.into_iter().collect() }
    }
}

impl Jobs {
    /// One of them.
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The strict jobs, the oldest first.
    pub fn strict(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.iter().filter(|(_, job)| job.is_strict())
    }

    /// The innermost strict job that one is in.
    #[must_use]
    pub fn strict_around(&self, id: JobId) -> Option<JobId> {
        self.around(id).into_iter().find(|outer| self.get(*outer).is_some_and(Job::is_strict))
    }

    /// Whether any waits for its turn.
    #[must_use]
    pub fn any_waits(&self) -> bool {
        self.jobs.values().any(|job| job.waits)
    }

    /// Whether a user may have one more: each has a quarter of the places at most, and all together half of the accounts.
    #[must_use]
    pub fn have_room(&self, user: Uid, accounts: usize) -> bool {
        let most = JOBS_MAX.min(accounts / 2);
        let theirs = self.jobs.values().filter(|job| job.user == user).count();
        self.jobs.len() < most && theirs < most.div_ceil(4)
    }

    /// The jobs that one is in, the innermost first.
    #[must_use]
    pub fn around(&self, id: JobId) -> Vec<JobId> {
        let mut around = Vec::new();
        let mut next = self.get(id).and_then(|job| job.outer);
        while let Some(id) = next.filter(|id| !around.contains(id)) {
            around.push(id);
            next = self.get(id).and_then(|job| job.outer);
        }
        around
    }

    /// One of them, to change it.
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// One more; its number. No number is given twice.
    pub fn add(&mut self, job: Job) -> JobId {
        let is_taken = |jobs: &Self| jobs.last == JobId(0) || jobs.jobs.contains_key(&jobs.last);
        self.last.0 = self.last.0.wrapping_add(1);
        while is_taken(self) {
            self.last.0 = self.last.0.wrapping_add(1);
        }
        self.jobs.insert(self.last, job);
        self.last
    }

    /// It waits no more.
    pub fn begin(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.waits = false;
        }
    }

    /// It has ended. Those that it was around are in what it was in.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        for inner in self.jobs.values_mut().filter(|inner| inner.outer == Some(id)) {
            inner.outer = job.outer;
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests;
