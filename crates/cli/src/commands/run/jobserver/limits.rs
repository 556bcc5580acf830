//! What the job's processes may have together: the nearest of the lines that hold for it, and of the machine's memory.

use plimsoll_api::{accounts::AccountView, client::Client};
use plimsoll_policy::{
    account::Account,
    units::{Bytes, Gid, JobId, Uid},
};
use plimsoll_sys::process::ProcRoot;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long the daemon may take over one question, and how long one that is busy is asked: nobody is looked at meanwhile.
const ANSWER: Duration = Duration::from_millis(200);
/// From one question to the daemon to the next; sooner where the job's usage has changed by more than what stays free; later
/// where it gave no answer.
const ASKED_EVERY: Duration = Duration::from_millis(250);
const ASKED_SOONER: Duration = Duration::from_millis(50);
const ASKED_LATER: Duration = Duration::from_secs(2);
/// This part of a line stays free, for what grows from one look to the next; and this part of the machine's memory.
const LINE_PART: u64 = 64;
const MACHINE_PART: u64 = 16;
/// So many jobs are around one at most.
const OUTER_MAX: usize = 8;

/// Asked again and again.
#[derive(Debug)]
pub(super) struct Limits {
    socket: PathBuf,
    id: JobId,
    root: ProcRoot,
    around: Vec<Account>,
    asked: Option<Instant>,
    has_answered: bool,
    /// What the processes had then.
    usage: Bytes,
    /// As they were last known: those of accounts, and with the machine's memory.
    drawn: Bytes,
    line: Bytes,
}

impl Limits {
    pub(super) fn of(socket: &Path, id: JobId, root: ProcRoot) -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().map(|gid| Account::Group(Gid(gid.as_raw())));
        let user = Account::User(Uid(rustix::process::getuid().as_raw()));
        let around = groups.chain([user]).collect();
        let (usage, drawn, line) = (Bytes(0), Bytes(u64::MAX), Bytes(0));
        Self {
            socket: socket.to_owned(),
            id,
            root,
            around,
            asked: None,
            has_answered: true,
            usage,
            drawn,
            line,
        }
    }

    /// What processes may have that have `usage` by themselves now.
    pub(super) fn line(&mut self, usage: Bytes) -> Bytes {
        let every = match self.usage.0.abs_diff(usage.0) > self.line.0 / LINE_PART {
            _ if !self.has_answered => ASKED_LATER,
            true => ASKED_SOONER,
            false => ASKED_EVERY,
        };
        if self.asked.is_none_or(|asked| asked.elapsed() >= every) {
            self.asked = Some(Instant::now());
            self.usage = usage;
            let until = Instant::now() + ANSWER;
            let told = Client::ask(&self.socket, ANSWER, until, |daemon| daemon.show_limits(None));
            self.has_answered = told.is_ok();
            // One that is gone, or late, leaves the lines as they were.
            if let Some(room) = told.ok().and_then(|limits| room(&limits.accounts, self.id, &self.around)) {
                self.drawn = Bytes(usage.0.saturating_add(room));
            }
            let machine = self.machine().map_or(u64::MAX, |room| usage.0.saturating_add(room));
            self.line = Bytes(self.drawn.0.min(machine));
        }
        self.line
    }

    fn machine(&mut self) -> Option<u64> {
        let memory = self.root.read_meminfo().ok()?;
        Some(memory.mem_available?.0.saturating_sub(memory.mem_total?.0.div_ceil(MACHINE_PART)))
    }
}

/// How much more a job may have by the lines that hold for it: its own, those of the jobs that it is in, and those of the
/// accounts `around`. What processes share counts once in these, and what is in no process counts as well. `None`: the job
/// has ended.
fn room(accounts: &[AccountView], id: JobId, around: &[Account]) -> Option<u64> {
    let of = |account: &Account| accounts.iter().find(|view| view.account == *account);
    let mut inner = Some(of(&Account::Job(id))?);
    let mut all: Vec<&AccountView> = around.iter().filter_map(of).collect();
    for _ in 0..OUTER_MAX {
        let Some(view) = inner else { break };
        all.push(view);
        inner = view.job.as_ref().and_then(|job| job.outer.as_ref()).and_then(of);
    }
    let room = |view: &&AccountView| {
        let hard = view.hard_bytes?;
        // What is committed in a strict job is what is refused.
        let usage = view.strict.map_or(0, |strict| strict.committed_bytes).max(view.usage_bytes);
        Some(hard.saturating_sub(hard.div_ceil(LINE_PART)).saturating_sub(usage))
    };
    Some(all.iter().filter_map(room).min().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
