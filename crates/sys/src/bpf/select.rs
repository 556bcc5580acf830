//! The facts that a victim is selected by, straight from the kernel: all processes with approximate counts in one walk,
//! exact counts of a few, and notice of who grows past a floor.
//!
//! [`Selector::load`] belongs into the loader's child. Where somebody urgent will wait for a sweep, one is to come before.
//! Between calls nothing runs: the walk is a pinned link without a tracepoint, and the only tracepoint is attached from
//! [`Selector::watch`] to [`Selector::unwatch`], or to the end of this process.

mod measure;
mod shared;
mod watch;

pub use measure::Measured;
pub use shared::{SharedMemory, SharedWalks};
pub use watch::{Grown, GrownCounts};

use super::{
    build_pins::BuildPins,
    error::BpfError,
    link::begin_walk,
    map::Map,
    object::{PER_THREAD, Plan},
    pins::{cause, number},
    program::SyscallProgram,
    types::Features,
};
use crate::process;
use measure::{Measure, judge};
use plimsoll_policy::{units::Pages, victim::VictimId};
use plimsoll_wire::{
    abi,
    task::{Looseness, TaskFacts, decode},
    text::parse_cpu_online,
};
use shared::{
    HANDED, HANDED_LOST, HANDED_MORE, OPEN_SHARES, OPEN_WALK, SHARED_WALK, TELL_HANDED, WALK_OPEN,
    WALK_SHARED,
};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::Path,
    time::Duration,
};
use watch::Watch;

/// Tells the programs from those of another build.
const BUILD: u64 = number(env!("PLIMSOLL_SELECT_BUILD"));

const SWEEP: &str = "sweep_tasks";
const ON_GROWTH: &str = "on_growth";

/// Exact counts: by a call, or, before Linux 6.2, by an iterator over one task.
const MEASURE: [&str; 2] = ["measure", "measure_task"];

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "select", BUILD)
}

/// Which programs are loaded beside the sweep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    measure: bool,
    watch: bool,
    shared: bool,
}

impl Parts {
    pub(super) const ALL: Self = Self { measure: true, watch: true, shared: true };
    const LEAST: Self = Self { measure: false, watch: false, shared: false };
}

/// Everything; then what is left when the kernel refuses a part of it.
const ATTEMPTS: [Parts; 5] = [
    Parts::ALL,
    Parts { shared: false, ..Parts::ALL },
    Parts { measure: true, ..Parts::LEAST },
    Parts { watch: true, ..Parts::LEAST },
    Parts::LEAST,
];

pub(super) fn plan(cpus: u32, kernel: Features, parts: Parts) -> Plan {
    let [by_call, by_task] = MEASURE;
    let mut left_out = vec![if kernel.finds_tasks { by_task } else { by_call }];
    if !parts.measure {
        left_out = MEASURE.to_vec();
    }
    if !parts.watch {
        left_out.extend([ON_GROWTH, "watch_set"]);
    }
    if !parts.shared {
        left_out.extend([WALK_OPEN, WALK_SHARED, SHARED_WALK, OPEN_WALK, OPEN_SHARES]);
        left_out.extend([HANDED, HANDED_MORE, HANDED_LOST]);
    }
    if !parts.shared || !kernel.tells_received {
        left_out.extend(TELL_HANDED);
    }
    Plan {
        name: "select",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/select.bpf.o")),
        left_out,
        attached: vec![SWEEP],
        ..Plan::of_counters(cpus, kernel)
    }
}

/// What the kernel gives at once at most: `seq->size` of kernel/bpf/bpf_iter.c, eight pages of 4 KiB.
const RECORDS_BYTES: usize = 32 * 1024;

const RECORD_BYTES: usize = size_of::<abi::plimsoll_task>();

/// What this kernel takes of the programs. Sweeps are always there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offers {
    /// [`Selector::measure`] works.
    pub measures: bool,
    /// [`Selector::watch`] works.
    pub watches: bool,
    /// What the kernel said of a program that it refused.
    pub refused: Option<String>,
}

/// What a sweep met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepCounts {
    /// Shown to the visitor.
    pub visited: u64,
    /// Dropped because no process can be like that: a fault of ours.
    pub undecodable: u64,
}

/// The pinned programs, and the buffers for what they tell: made once, so that nothing else allocates.
#[derive(Debug)]
pub struct Selector {
    sweep: OwnedFd,
    measure: Option<Measure>,
    watch: Option<Watch>,
    online: OnlineCpus,
    records: Vec<u8>,
    /// What the last sweep took of a CPU.
    sweep_took: Duration,
}

impl Selector {
    /// Loads and pins below `root/select`, for a machine of `cpus` possible CPUs, unless this build's programs are there.
    /// Those of other builds go. Heavy: for the loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses even the sweep, or this is no initial pid namespace, where the numbers
    /// would not be ours; [`BpfError::Pin`].
    pub fn load(root: &Path, cpus: u32) -> Result<Offers, BpfError> {
        let pins = pins(root);
        let refused = pins.load(|| {
            let kernel = Features::read()?;
            Ok(ATTEMPTS.map(|parts| plan(cpus, kernel, parts)).to_vec())
        })?;
        let measures = MEASURE.iter().any(|name| pins.has(name));
        Ok(Offers { measures, watches: pins.has(ON_GROWTH), refused })
    }

    /// Has the kernel verify all programs, and lets go of them.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses one.
    pub fn verify(cpus: u32) -> Result<(), BpfError> {
        plan(cpus, Features::read()?, Parts::ALL).verify()
    }

    /// Removes all pins below `root/select`, of whichever build. Returns whether there were any.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Opens what [`Selector::load`] pinned.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when this build's programs are not there.
    pub fn open(root: &Path) -> Result<Self, BpfError> {
        let pins = pins(root);
        let measure = if pins.has("measure") {
            Some(Measure::Call(SyscallProgram::open(&pins.path("measure"), "measure")?))
        } else if pins.has("measure_task") {
            Some(Measure::Iterate(pins.open("measure_task")?))
        } else {
            None
        };
        let watch = if pins.has(ON_GROWTH) {
            let set = SyscallProgram::open(&pins.path("watch_set"), "watch_set")?;
            Some(Watch::new(pins.open(ON_GROWTH)?, set, Map::open(&pins.path("grown"), "grown")?))
        } else {
            None
        };
        Ok(Self {
            sweep: pins.open(SWEEP)?,
            measure,
            watch,
            online: OnlineCpus::open(&pins)?,
            records: vec![0; RECORDS_BYTES - RECORDS_BYTES % RECORD_BYTES],
            sweep_took: Duration::MAX,
        })
    }

    /// What of it works here.
    #[must_use]
    pub const fn offers(&self) -> Offers {
        Offers { measures: self.measure.is_some(), watches: self.watch.is_some(), refused: None }
    }

    /// Shows every process that has memory to `visit`, once, in order of number; kernel threads and zombies have none. One
    /// that is forked meanwhile may be missed. Counts are approximate ([`TaskFacts::errors`]). Allocates nothing.
    ///
    /// # Errors
    /// [`BpfError::Scan`] when the walk cannot be begun or read.
    pub fn sweep(&mut self, visit: impl FnMut(&TaskFacts)) -> Result<SweepCounts, BpfError> {
        let mut last = self.sweep_took;
        let done = process::walk(&mut last, || self.sweep_all(visit, || ()));
        self.sweep_took = last;
        done
    }

    /// The same where so many wait for a CPU that the calling thread would be kept waiting beside them: as urgent as it is, in
    /// pieces between which it sleeps.
    ///
    /// # Errors
    /// As [`Selector::sweep`].
    pub fn sweep_in_pieces(&mut self, visit: impl FnMut(&TaskFacts)) -> Result<SweepCounts, BpfError> {
        let mut pieces = process::Pieces::begin();
        self.sweep_all(visit, || pieces.rest())
    }

    fn sweep_all(
        &mut self,
        mut visit: impl FnMut(&TaskFacts),
        mut between: impl FnMut(),
    ) -> Result<SweepCounts, BpfError> {
        let looseness = self.online.looseness()?;
        let walk = begin_walk(self.sweep.as_fd()).map_err(BpfError::Scan)?;
        let mut counts = SweepCounts::default();
        loop {
            let got = read_on(&walk, &mut self.records)?;
            if got == 0 {
                return Ok(counts);
            }
            for record in self.records.get(..got).unwrap_or_default().chunks(RECORD_BYTES) {
                match decode(record, looseness) {
                    Ok(facts) => {
                        counts.visited = counts.visited.saturating_add(1);
                        visit(&facts);
                    }
                    Err(_ours) => counts.undecodable = counts.undecodable.saturating_add(1),
                }
            }
            between();
        }
    }

    /// Shows each of these processes to `visit`, in this order, with exact counts. Costs microseconds for each, however many
    /// others there are; grows with the machine's CPUs. Allocates nothing.
    ///
    /// # Errors
    /// [`BpfError::Missing`] where the kernel takes no program for it, [`BpfError::Run`] when it fails; those before were
    /// shown.
    pub fn measure(
        &mut self,
        ids: &[VictimId],
        mut visit: impl FnMut(VictimId, Measured),
    ) -> Result<(), BpfError> {
        let looseness = self.online.looseness()?;
        let measure = self.measure.as_ref().ok_or(BpfError::Missing("exact counts of a process"))?;
        for id in ids {
            visit(*id, judge(*id, measure.facts(id.pid, looseness)?));
        }
        Ok(())
    }

    /// From here on notes which processes are seen with `floor` pages or more of anonymous, swapped and shared memory, by
    /// their approximate counts at their own changes; every process below it pays for three loads and a comparison. A
    /// sweep *after* this call and [`Selector::grown`] together tell all who may be there. Called again it moves the floor.
    /// A floor below [`TaskFacts::errors`] means little: so many pages may not show in the counts.
    ///
    /// # Errors
    /// [`BpfError::Missing`] where the kernel takes no program for it; [`BpfError::Attach`], [`BpfError::Run`].
    pub fn watch(&mut self, floor: Pages) -> Result<(), BpfError> {
        self.watch.as_mut().ok_or(BpfError::Missing("notice of growing processes"))?.begin(floor)
    }

    /// Whether a watch is on.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_on)
    }

    /// Shows each process that was noted since the last call to `visit`, and forgets it: one that goes on changing is noted
    /// again. Who it is may have ended, or the same memory be used by others as well. Allocates nothing.
    ///
    /// # Errors
    /// [`BpfError::Map`], [`BpfError::Run`].
    pub fn grown(&mut self, visit: impl FnMut(Grown)) -> Result<GrownCounts, BpfError> {
        self.watch.as_mut().map_or(Ok(GrownCounts::default()), |watch| watch.take(visit))
    }

    /// Detaches the program. What was noted until now can still be had with [`Selector::grown`].
    ///
    /// # Errors
    /// [`BpfError::Run`]; it is detached all the same.
    pub fn unwatch(&mut self) -> Result<(), BpfError> {
        self.watch.as_mut().map_or(Ok(()), Watch::end)
    }
}

/// How far approximate counts may be off. Before Linux 6.2 threads keep counts to themselves; since then CPUs do, of which
/// this file tells how many run.
#[derive(Debug)]
pub(super) struct OnlineCpus(Option<File>);

impl OnlineCpus {
    pub(super) fn open(pins: &BuildPins) -> Result<Self, BpfError> {
        if pins.has(PER_THREAD) {
            return Ok(Self(None));
        }
        let path = Path::new("/sys/devices/system/cpu/online");
        File::open(path).map(|file| Self(Some(file))).map_err(|error| cause(path, "open", &error))
    }

    pub(super) fn looseness(&self) -> Result<Looseness, BpfError> {
        let Some(file) = &self.0 else {
            return Ok(Looseness::PerThread);
        };
        // A page is the most that the kernel tells: a list that was cut would count too few.
        let mut text = [0; 4096];
        let length = file.read_at(&mut text, 0).map_err(BpfError::Scan)?;
        let online = parse_cpu_online(text.get(..length).unwrap_or_default())
            .map_err(|error| BpfError::Scan(io::Error::other(error)))?;
        Ok(Looseness::PerCpu { online })
    }
}

/// Goes on with a walk. The kernel pauses a long one (kernel/bpf/bpf_iter.c: `MAX_ITER_OBJECTS`) until it is read again.
pub(super) fn read_on(walk: &OwnedFd, room: &mut [u8]) -> Result<usize, BpfError> {
    loop {
        match rustix::io::read(walk, &mut *room) {
            Ok(got) => return Ok(got),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(BpfError::Scan(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests;
