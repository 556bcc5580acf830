//! Who is in the job: the program, and whoever was started by one of those that are.

use plimsoll_policy::{
    jobserver::{Program, Seen},
    units::{Bytes, Nanos, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::{ProcRoot, Process, ProcessError, page_size, tick_ns};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A process of the job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) seen: Seen,
    pub(super) is_stopped: bool,
    pub(super) threads: u64,
}

/// So long a child that runs what its parent runs may be about to execute something else: until then what it has is its
/// parent's, and its parent may wait for it.
const ABOUT_TO_EXECUTE: Duration = Duration::from_millis(50);

/// All that were found. Each look reads those that are in, and numbers that are new.
#[derive(Debug)]
pub(super) struct Members {
    root: ProcRoot,
    own: Uid,
    /// What this process runs: another one that holds others is not held.
    own_program: Option<Program>,
    pub(super) first: Pid,
    inside: BTreeMap<Pid, Inside>,
    outside: BTreeSet<Pid>,
}

#[derive(Debug, Clone, Copy)]
struct Inside {
    start_ns: u64,
    found: Instant,
}

impl Members {
    pub(super) fn below(first: Pid, root: ProcRoot) -> Self {
        let own = Uid(rustix::process::getuid().as_raw());
        let own_program = program(&root, Pid(std::process::id()));
        Self { root, own, own_program, first, inside: BTreeMap::new(), outside: BTreeSet::new() }
    }

    /// Who is there now.
    pub(super) fn look(&mut self) -> Result<Vec<Member>, ProcessError> {
        let pids: BTreeSet<Pid> = self.root.pids()?.into_iter().collect();
        self.outside.retain(|pid| pids.contains(pid));
        self.inside.retain(|pid, _| pids.contains(pid));
        let (mut members, mut new) = (Vec::new(), Vec::new());
        for pid in pids.difference(&self.outside).copied().collect::<Vec<_>>() {
            // First, so that what it had before it executed something is not taken for that program's.
            let program = program(&self.root, pid);
            // It has gone meanwhile, or is none of ours to read.
            let Ok(process) = self.root.process(pid) else { continue };
            let is_inside = self.inside.get(&pid).is_some_and(|inside| inside.start_ns == process.start_ns);
            if is_inside {
                members.push((process, program));
            } else {
                self.inside.remove(&pid);
                new.push((process, program));
            }
        }
        // A number can be lower than its parent's.
        loop {
            let is_one = |one: &Process| one.pid == self.first || self.inside.contains_key(&one.parent);
            let (found, rest): (Vec<Found>, Vec<Found>) = new.into_iter().partition(|(one, _)| is_one(one));
            new = rest;
            if found.is_empty() {
                break;
            }
            let now = Instant::now();
            self.inside.extend(
                found.iter().map(|(one, _)| (one.pid, Inside { start_ns: one.start_ns, found: now })),
            );
            members.extend(found);
        }
        self.outside.extend(new.iter().map(|(one, _)| one.pid));
        members.retain(|(one, _)| !one.is_zombie() && !one.dying);
        let by_number: BTreeMap<Pid, Found> = members.iter().map(|found| (found.0.pid, *found)).collect();
        Ok(members.iter().map(|found| self.member(found, by_number.get(&found.0.parent))).collect())
    }

    fn member(&self, (one, program): &Found, parent: Option<&Found>) -> Member {
        let inside = self.inside.get(&one.pid);
        let is_young = inside.is_some_and(|inside| inside.found.elapsed() < ABOUT_TO_EXECUTE);
        let usage = |one: &Process| one.usage().known().unwrap_or(Pages(0));
        let copied =
            parent.filter(|(_, parents)| is_young && parents == program).map(|(parent, _)| usage(parent));
        let pages = usage(one).saturating_sub(copied.unwrap_or(Pages(0)));
        let is_own = one.pid == self.first || program.is_none() || *program == self.own_program;
        let seen = Seen {
            id: VictimId { pid: one.pid, start_ns: one.start_ns },
            parent: one.parent,
            program: program.unwrap_or(Program { device: 0, inode: 0 }),
            usage: Bytes(page_size().to_bytes(pages).0),
            cpu: Nanos(one.cpu_ticks.saturating_mul(tick_ns())),
            may_be_held: one.uid == self.own && !is_own && copied.is_none(),
        };
        Member { seen, is_stopped: one.is_stopped(), threads: one.threads }
    }
}

/// A process, and what it ran just before it was read.
type Found = (Process, Option<Program>);

/// `None`: it runs none, or nobody may know.
fn program(root: &ProcRoot, pid: Pid) -> Option<Program> {
    let exe = root.exe_identity(pid).ok().flatten()?;
    Some(Program { device: exe.device, inode: exe.inode })
}
