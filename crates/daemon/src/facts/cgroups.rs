//! What is known of cgroups: their paths, their marks, and which of them go whole. Found out off the guard thread, because a
//! path through the tree of cgroups waits for whoever makes or removes one there, and they for memory; up to Linux 6.10 so does
//! `/proc/PID/cgroup` (kernel/cgroup/cgroup.c, `proc_cgroup_show`, takes the `cgroup_mutex`).
//!
//! The guard waits for an answer for 10 ms, for all that one decision asks 20 ms, and not at all while an earlier one is late.
//! A cgroup never moves, so its path holds as long as its id; marks are as old as the answer that told them.

use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::{
    preference::{Mark, Wish},
    units::{Nanos, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{Cgroup, CgroupError, CgroupErrorKind, CgroupId, CgroupRoot, Marks, SetBy},
    process::{Errno, HeldFolder, Portrait, ProcRoot, ProcessError, Subject, clock_monotonic_ns},
};
use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    time::{Duration, Instant},
};

/// How long the guard waits for an answer: as a rule it takes some fifty microseconds.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long it waits for all that it asks for one decision: hundreds may be asked about, each of whom is answered slowly.
const PATIENCE_IN_ALL: Duration = Duration::from_millis(20);

/// An answer this old is asked for again, and taken where no other comes in time.
const FRESH: Nanos = Nanos(1_000_000_000);

/// Answers kept at most: only the cgroups of those who may be selected are asked for.
const KNOWN_MAX: usize = 1024;

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The cgroup of this id.
    Id(u64),
    /// The cgroup at this path.
    Path(Vec<u8>),
    /// Where this process is, in whichever hierarchy tells it.
    Process(VictimId),
}

/// What was found: what could not be found out is told by there being no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A cgroup of the v2 hierarchy.
    Cgroup(CgroupFacts),
    /// A process's path, which may be of another hierarchy.
    Path(Vec<u8>),
    /// There is none.
    Nothing,
}

/// A cgroup, by path and by what tells it from a later one of the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its path from the root of the hierarchy.
    pub(crate) path: Vec<u8>,
    /// Its id.
    pub(crate) id: CgroupId,
}

/// It could not be found out, or not in time: not to be taken for an answer of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotKnown;

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupFacts {
    /// Its own path and id.
    pub(crate) own: Group,
    /// The mark on it, or on its unit.
    pub(crate) mark: Option<Mark>,
    /// What goes whole with a process in it, by `memory.oom.group`.
    pub(crate) oom_group: Option<Group>,
}

/// Finds things out, and may take as long as the kernel likes. `None`: it could not, this time.
type LookUp = dyn FnMut(&Key) -> Option<Found> + Send;

#[derive(Debug)]
struct Known {
    at: Nanos,
    found: Found,
}

/// Has cgroups looked at.
#[derive(Debug)]
pub(crate) struct Cgroups {
    ask: Lane<Key>,
    answers: Receiver<(Key, Option<Found>)>,
    known: BTreeMap<Key, Known>,
    /// Asked for and not answered yet: nobody waits until it is.
    late: bool,
    patience: Duration,
    /// What is left of the time to wait for this decision.
    left: Duration,
}

impl Cgroups {
    /// `cgroups`: where v2 is mounted.
    pub(crate) fn new(offload: &Offload, cgroups: Option<CgroupRoot>, mut proc: ProcRoot) -> Self {
        let mut portrait = Portrait::default();
        let look_up = move |key: &Key| find(key, cgroups.as_ref(), &mut proc, &mut portrait);
        Self::with(offload, Box::new(look_up), PATIENCE)
    }

    fn with(offload: &Offload, mut look_up: Box<LookUp>, patience: Duration) -> Self {
        let (answer, answers) = sync_channel(1);
        let ask = offload.lane(Haste::Urgent, 1, move |key| {
            let found = look_up(&key);
            // Whoever asked may have ended.
            answer.send((key, found)).ok();
        });
        let (known, left) = (BTreeMap::new(), PATIENCE_IN_ALL.max(patience));
        Self { ask, answers, known, late: false, patience, left }
    }

    /// Another decision begins.
    pub(crate) fn begin(&mut self) {
        self.left = PATIENCE_IN_ALL;
    }

    /// What there is to know, of this second or, where nothing newer comes in time, as it was known last. `None`: it is not
    /// known, and does not come in time or could not be found out.
    pub(crate) fn find(&mut self, key: &Key) -> Option<&Found> {
        let now = Nanos(clock_monotonic_ns());
        let fresh = |known: &Known| now.0.saturating_sub(known.at.0) < FRESH.0;
        let process = matches!(key, Key::Process(_));
        if process || !self.known.get(key).is_some_and(fresh) {
            self.refresh(key);
        }
        let known = self.known.get(key)?;
        // A process is anywhere else in the next moment.
        (!process || known.at >= now).then_some(&known.found)
    }

    /// The cgroup that is at this path, `None` where none is. `id`: its id, where that is known; a unit that was started again
    /// has the path of the one before, and another id.
    pub(crate) fn at_path(&mut self, path: &[u8], id: Option<u64>) -> Result<Option<&CgroupFacts>, NotKnown> {
        let by_id = match id.map(Key::Id) {
            Some(key) => match self.find(&key).ok_or(NotKnown)? {
                Found::Cgroup(folder) => (folder.own.path == path).then_some(key),
                Found::Path(_) | Found::Nothing => None,
            },
            None => None,
        };
        match self.find(&by_id.unwrap_or_else(|| Key::Path(path.to_vec()))).ok_or(NotKnown)? {
            Found::Cgroup(folder) => Ok(Some(folder)),
            Found::Path(_) | Found::Nothing => Ok(None),
        }
    }

    fn refresh(&mut self, key: &Key) {
        self.take_in_late();
        let began = Instant::now();
        if self.late || !self.ask.hand(key.clone()) {
            return;
        }
        match self.answers.recv_timeout(self.patience.min(self.left)) {
            Ok(answer) => self.take_in(answer),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.late = true,
        }
        self.left = self.left.saturating_sub(began.elapsed());
    }

    fn take_in_late(&mut self) {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.take_in(answer);
                self.late = false;
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }

    fn take_in(&mut self, (key, found): (Key, Option<Found>)) {
        // What was known before still is the best there is.
        let Some(found) = found else {
            return;
        };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, Known { at: Nanos(clock_monotonic_ns()), found });
    }
}

/// What stands for an answer that did not come, or not in time: somebody else is selected.
pub(crate) const fn cgroup_not_known(pid: Pid) -> ProcessError {
    ProcessError::Failed {
        operation: "find the cgroup",
        subject: Subject::Process(pid),
        errno: Errno::TIMEDOUT,
    }
}

fn find(key: &Key, root: Option<&CgroupRoot>, proc: &mut ProcRoot, portrait: &mut Portrait) -> Option<Found> {
    let folder = |root: &CgroupRoot, own: Result<Cgroup, CgroupError>| match own {
        // What went while it was looked at may be there again.
        Ok(own) => describe(root, &own).ok().map(Found::Cgroup),
        Err(error) => (!is_passing(&error)).then_some(Found::Nothing),
    };
    match (key, root) {
        (Key::Process(id), _) => {
            let held = HeldFolder::open(proc, *id);
            match held.and_then(|held| held.portray(None, portrait)) {
                Ok(()) => Some(portrait.cgroup().map_or(Found::Nothing, |path| Found::Path(path.to_vec()))),
                Err(ProcessError::Vanished(_)) => Some(Found::Nothing),
                Err(_) => None,
            }
        }
        (Key::Id(id), Some(root)) => folder(root, root.by_id(CgroupId(*id))),
        (Key::Path(path), Some(root)) => folder(root, root.cgroup(path)),
        (Key::Id(_) | Key::Path(_), None) => Some(Found::Nothing),
    }
}

/// Whether it may be another answer the next time: for want of memory or of descriptors, as a rule. Whoever has gone, or may
/// not be looked at on this machine, stays so.
pub(crate) const fn is_passing(error: &CgroupError) -> bool {
    match error.kind {
        CgroupErrorKind::Gone
        | CgroupErrorKind::Denied
        | CgroupErrorKind::Unsupported(_)
        | CgroupErrorKind::Refused(_) => false,
        CgroupErrorKind::Unreadable(_) | CgroupErrorKind::Failed(_) => true,
    }
}

fn describe(root: &CgroupRoot, own: &Cgroup) -> Result<CgroupFacts, CgroupError> {
    let group = |cgroup: &Cgroup| Group { path: [b"/", cgroup.path()].concat(), id: cgroup.id() };
    let oom_group = root.oom_group_of(own, None).or_else(unless_it_stays(None))?.as_ref().map(group);
    Ok(CgroupFacts { mark: mark_of(root, own)?, own: group(own), oom_group })
}

/// The mark that counts: one that anybody could have made does not.
fn mark(marks: &Marks) -> Option<Mark> {
    let by = |set: Option<SetBy>, wish| match set? {
        SetBy::Root => Some(Mark { wish, owner: Uid::ROOT }),
        SetBy::Owner(owner) => Some(Mark { wish, owner }),
        SetBy::Anybody => None,
    };
    by(marks.omit, Wish::Omit).or_else(|| by(marks.avoid, Wish::Avoid))
}

/// The mark on the cgroup at this path, or on its unit; `None` also where no cgroup of the v2 hierarchy is there. An error: it
/// could not be found out, and nobody in it is to be taken for unmarked.
pub(crate) fn mark_in(root: &CgroupRoot, cgroup: &[u8]) -> Result<Option<Mark>, CgroupError> {
    match root.cgroup(cgroup) {
        Ok(own) => mark_of(root, &own),
        Err(error) if is_passing(&error) => Err(error),
        Err(_nothing_there) => Ok(None),
    }
}

/// The mark on a cgroup, or on its unit: the service manager writes it there, whatever is below that. Where marks may not be
/// read at all there are none: else nobody could ever be selected. Where it has gone it is an error.
fn mark_of(root: &CgroupRoot, own: &Cgroup) -> Result<Option<Mark>, CgroupError> {
    let read = |cgroup: &Cgroup| cgroup.marks().map(|marks| mark(&marks)).or_else(unless_it_stays(None));
    if let Some(mark) = read(own)? {
        return Ok(Some(mark));
    }
    root.unit_of(own).or_else(unless_it_stays(None))?.map_or(Ok(None), |unit| read(&unit))
}

/// What stands for what this machine does not let us find out, now or later.
fn unless_it_stays<T>(missing: T) -> impl FnOnce(CgroupError) -> Result<T, CgroupError> {
    |error| if error.is_gone() || is_passing(&error) { Err(error) } else { Ok(missing) }
}

#[cfg(test)]
mod tests;
