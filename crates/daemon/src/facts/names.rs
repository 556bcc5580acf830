//! What processes are called and where they run, read before they are victims: afterwards there is nothing to read.
//!
//! A command line can take its time, so it is read off the guard thread, as soon as a process is near the line; whoever needs
//! it takes what is there by then.

use super::patient::PatientReaders;
use crate::offload::{Haste, Lane, Offload};
use plimsoll_policy::{
    incident::{Incident, Victim},
    victim::VictimId,
};
use plimsoll_sys::process::{ProcRoot, ProcessError, tick_ns};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Processes named in one request: the largest of an account.
pub(crate) const NAMED_MAX: usize = 8;

/// Requests waiting; when it is behind, later ones are left out.
const QUEUE_MAX: usize = 16;

/// Names remembered; beyond that all are forgotten and the near ones read again.
const REMEMBERED_MAX: usize = 1024;

/// What is known of one process.
#[derive(Debug, Clone, Default)]
struct ProcessNames {
    comm: Option<String>,
    cmdline: Option<String>,
    cgroup: Option<String>,
}

type KnownNames = Arc<Mutex<HashMap<VictimId, ProcessNames>>>;
type Asked = [Option<VictimId>; NAMED_MAX];

/// Asks for names to be read.
#[derive(Debug, Clone)]
pub(crate) struct NameReader {
    requests: Lane<Asked>,
    known: KnownNames,
    readers: PatientReaders,
}

impl NameReader {
    pub(crate) fn new(offload: &Offload, proc: ProcRoot, readers: PatientReaders) -> Self {
        let known = KnownNames::default();
        let mut reader = Reader { proc, readers: readers.clone(), known: Arc::clone(&known) };
        let requests = offload.lane(Haste::Ordinary, QUEUE_MAX, move |names| reader.write(names));
        Self { requests, known, readers }
    }

    /// One that reads nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        let readers = PatientReaders::new(&Offload::closed());
        Self { requests: Lane::closed(), known: KnownNames::default(), readers }
    }

    /// Has the first few processes read; never waits and allocates nothing.
    pub(crate) fn read(&self, processes: impl Iterator<Item = VictimId>) {
        let mut names: Asked = [None; NAMED_MAX];
        for (place, process) in names.iter_mut().zip(processes) {
            *place = Some(process);
        }
        // Behind: those incidents will lack a command line, which is told as unknown.
        let _was_taken = self.requests.hand(names);
    }

    fn life(&self, id: VictimId) -> Option<ProcessNames> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Adds names, command lines and cgroups to an incident: what was read before, else what is still there.
    pub(crate) fn complete(&self, proc: &mut ProcRoot, incident: &mut Incident) {
        for victim in incident.victims.iter_mut().chain(&mut incident.peers) {
            let id = VictimId { pid: victim.pid, start_ns: victim.start_ns };
            fill(victim, self.life(id).unwrap_or_default());
            if victim.comm.is_empty() || victim.cgroup.is_none() {
                fill(victim, read_names(proc, &self.readers, id).unwrap_or_default());
            }
        }
    }
}

fn fill(victim: &mut Victim, life: ProcessNames) {
    if victim.comm.is_empty() {
        victim.comm = life.comm.unwrap_or_default();
    }
    // What was read from the whole command line says more than the start that the kernel side copied.
    if life.cmdline.is_some() {
        victim.cmdline = life.cmdline;
    }
    if victim.cgroup.is_none() {
        victim.cgroup = life.cgroup;
    }
}

/// What names are read with.
struct Reader {
    proc: ProcRoot,
    readers: PatientReaders,
    known: KnownNames,
}

impl Reader {
    fn write(&mut self, names: Asked) {
        for id in names.into_iter().flatten() {
            let known = self.known().contains_key(&id);
            if !known && let Ok(life) = read_names(&mut self.proc, &self.readers, id) {
                let mut known = self.known();
                if known.len() >= REMEMBERED_MAX {
                    known.clear();
                }
                known.insert(id, life);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<VictimId, ProcessNames>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_names(
    proc: &mut ProcRoot,
    readers: &PatientReaders,
    id: VictimId,
) -> Result<ProcessNames, ProcessError> {
    let process = proc.process(id.pid)?;
    let ticks = |ns: u64| ns.checked_div(tick_ns());
    if ticks(process.start_ns) != ticks(id.start_ns) {
        return Err(ProcessError::Vanished(id.pid));
    }
    Ok(ProcessNames {
        comm: Some(process.comm.to_string()),
        cmdline: readers.command_line(id, process.uid),
        cgroup: proc.cgroup(id.pid).ok().flatten(),
    })
}
