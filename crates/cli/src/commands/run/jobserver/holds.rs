//! Processes that are held: stopped by `SIGSTOP`. They go on when there is room, when the job's program has ended, and when
//! this process has gone: its heir sees to that.

use super::members::Member;
use crate::commands::run::program::own;
use plimsoll_policy::{units::Pid, victim::VictimId};
use plimsoll_sys::process::{PidFd, ProcRoot};
use rustix::fs::{OFlags, fcntl_setfl};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, PipeWriter, Write as _, pipe},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// The part of this program that is the heir: it has processes go on when whoever held them has gone. Its standard input
/// tells, a line for each, who is held from here on (`+PID START`) and who is not (`-PID START`).
pub(crate) const HAVE_GO_ON: &str = "have-go-on";

/// One that could not be held is left alone for so long.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// So long after one goes on those above it may stop themselves as it was stopped.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);
/// So many more are held by one look: what is told of them fits into a pipe.
const MORE_MAX: usize = 1000;

/// Who is held.
#[derive(Debug)]
pub(super) struct Holds {
    root: ProcRoot,
    held: BTreeSet<VictimId>,
    /// Those above them that stopped themselves, as some do whose child stops (`script`, `nsenter`): they go on with them.
    followed: BTreeSet<VictimId>,
    /// Who was above one that is held, until when: some have yet to stop themselves when it goes on.
    above: BTreeMap<Pid, Instant>,
    /// Those that somebody else stopped.
    others: BTreeSet<VictimId>,
    refused: BTreeMap<VictimId, Instant>,
    /// From the first one on, and of whom it knows.
    heir: Option<Heir>,
    told: BTreeSet<VictimId>,
}

impl Holds {
    pub(super) const fn new(root: ProcRoot) -> Self {
        Self {
            root,
            held: BTreeSet::new(),
            followed: BTreeSet::new(),
            above: BTreeMap::new(),
            others: BTreeSet::new(),
            refused: BTreeMap::new(),
            heir: None,
            told: BTreeSet::new(),
        }
    }

    /// Whom somebody else has stopped, or who could not be held, is not to be held.
    pub(super) fn leave_others_alone(&mut self, members: &mut [Member]) {
        let there: BTreeSet<VictimId> = members.iter().map(|member| member.seen.id).collect();
        self.refused.retain(|id, since| there.contains(id) && since.elapsed() < REFUSED_FOR);
        self.above.retain(|_, since| since.elapsed() < FOLLOWS_WITHIN);
        self.above.extend(above(&self.held, members).into_iter().map(|pid| (pid, Instant::now())));
        let (mut others, mut followed) = (BTreeSet::new(), BTreeSet::new());
        for Member { seen, .. } in members.iter().filter(|member| member.is_stopped) {
            let follows = self.above.contains_key(&seen.id.pid) || self.followed.contains(&seen.id);
            if follows && !self.others.contains(&seen.id) {
                followed.insert(seen.id);
            } else if !self.held.contains(&seen.id) {
                others.insert(seen.id);
            }
        }
        (self.others, self.followed) = (others, followed);
        for member in members {
            let id = member.seen.id;
            let is_left_alone =
                self.others.contains(&id) || self.followed.contains(&id) || self.refused.contains_key(&id);
            member.seen.may_be_held &= !is_left_alone;
        }
    }

    /// Has these held, and nobody else.
    pub(super) fn hold(&mut self, held: &BTreeSet<VictimId>, members: &[Member]) {
        for id in self.held.difference(held).copied().collect::<Vec<_>>() {
            self.set_stopped(id, false);
            self.held.remove(&id);
        }
        let above = above(held, members);
        let followed = std::mem::take(&mut self.followed);
        let (stay, go_on): (BTreeSet<_>, BTreeSet<_>) =
            followed.into_iter().partition(|id| above.contains(&id.pid));
        self.followed = stay;
        for id in go_on {
            self.set_stopped(id, false);
        }
        // A terminal has all go on that it had stopped.
        let ran_again = |member: &&Member| !member.is_stopped && self.held.contains(&member.seen.id);
        let ran_again: Vec<VictimId> =
            members.iter().filter(ran_again).map(|member| member.seen.id).collect();
        for id in ran_again {
            self.set_stopped(id, true);
        }
        let more: Vec<VictimId> = held.difference(&self.held).copied().take(MORE_MAX).collect();
        // Before they are held: else nobody would have them go on.
        let all = self.held.iter().chain(&self.followed).chain(&more).copied().collect();
        if !self.tell_heir(all) {
            self.let_all_go_on();
            self.refused.extend(more.iter().map(|id| (*id, Instant::now())));
            return;
        }
        for id in more {
            if self.set_stopped(id, true) {
                self.held.insert(id);
            } else {
                self.refused.insert(id, Instant::now());
            }
        }
    }

    pub(super) fn let_all_go_on(&mut self) {
        for id in std::mem::take(&mut self.held).into_iter().chain(std::mem::take(&mut self.followed)) {
            self.set_stopped(id, false);
        }
    }

    /// It may have ended, or refuse to be signalled.
    fn set_stopped(&self, id: VictimId, stopped: bool) -> bool {
        set_stopped(&self.root, id, stopped)
    }

    /// Whether it knows of all these, and nobody else; another one where the heir has gone, or does not read.
    fn tell_heir(&mut self, all: BTreeSet<VictimId>) -> bool {
        if all.is_empty() {
            // There is nothing to inherit.
            (self.heir, self.told) = (None, all);
            return true;
        }
        let changes = list('+', all.difference(&self.told)) + &list('-', self.told.difference(&all));
        if !self.heir.as_mut().is_some_and(|heir| heir.hears(&changes)) {
            // The old one goes when there is another.
            self.heir = Heir::start(&list('+', all.iter())).ok();
        }
        self.told = all;
        self.heir.is_some()
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.let_all_go_on();
    }
}

/// Who is an ancestor of one of these.
fn above(held: &BTreeSet<VictimId>, members: &[Member]) -> BTreeSet<Pid> {
    if held.is_empty() {
        return BTreeSet::new();
    }
    let parents: BTreeMap<Pid, Pid> =
        members.iter().map(|member| (member.seen.id.pid, member.seen.parent)).collect();
    let mut above = BTreeSet::new();
    for id in held {
        let mut next = parents.get(&id.pid);
        while let Some(parent) = next.filter(|parent| above.insert(**parent)) {
            next = parents.get(parent);
        }
    }
    above
}

fn set_stopped(root: &ProcRoot, id: VictimId, stopped: bool) -> bool {
    let process = PidFd::open_verified(root, id.pid, id.start_ns);
    process.and_then(|process| process.set_stopped(stopped)).is_ok()
}

fn list<'all>(sign: char, all: impl Iterator<Item = &'all VictimId>) -> String {
    all.map(|VictimId { pid, start_ns }| format!("{sign}{pid} {start_ns}\n")).collect()
}

/// Ends with whoever has it.
#[derive(Debug)]
struct Heir {
    process: Child,
    input: PipeWriter,
}

impl Heir {
    /// One that knows of all these.
    fn start(all: &str) -> io::Result<Self> {
        let (output, input) = pipe()?;
        let mut command = own();
        // What ends the group of this process does not end it.
        command.arg(HAVE_GO_ON).process_group(0);
        let process = command.stdin(output).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut heir = Self { process, input };
        heir.input.write_all(all.as_bytes())?;
        // From here on one that does not read is replaced.
        fcntl_setfl(&heir.input, OFlags::NONBLOCK)?;
        Ok(heir)
    }

    /// Whether it is there, and knows of the changes.
    fn hears(&mut self, changes: &str) -> bool {
        let is_there = matches!(self.process.try_wait(), Ok(None));
        is_there
            && (changes.is_empty()
                || matches!(self.input.write(changes.as_bytes()), Ok(length) if length == changes.len()))
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        // It may have ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Waits until whoever holds processes has gone, and has those go on.
pub(crate) fn have_go_on() -> Result<(), String> {
    let mut held = BTreeSet::new();
    let (mut input, mut line) = (io::stdin().lock(), String::new());
    // A line without an end was cut off: what it would tell of was not done.
    while input.read_line(&mut line).map_err(|error| error.to_string())? > 0 && line.ends_with('\n') {
        let change = line.split_at_checked(1).and_then(|(sign, rest)| {
            let (pid, start_ns) = rest.trim_end().split_once(' ')?;
            Some((sign, VictimId { pid: Pid(pid.parse().ok()?), start_ns: start_ns.parse().ok()? }))
        });
        match change {
            Some(("+", id)) => {
                held.insert(id);
            }
            Some((_, id)) => {
                held.remove(&id);
            }
            None => {}
        }
        line.clear();
    }
    let root = ProcRoot::open(Path::new("/proc")).map_err(|error| error.to_string())?;
    for id in held {
        set_stopped(&root, id, false);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
