//! Use of the page cache by file and chunk, the files that are executed, and the floor below which clean file memory does not
//! fall: the reader of the programs of `bpf/workingset.bpf.c`.
//!
//! [`WorkingSet::load`] belongs into the loader's child; [`WorkingSet::open`] is light. Only programs and maps are pinned: what
//! is attached is attached by descriptors of this value, and ends with it or with this process.

mod load;
mod reads;

pub(super) use load::Kernel;

use super::{
    build_pins::BuildPins,
    error::BpfError,
    link::{attach_tracepoint, begin_walk},
    map::Map,
    pins::number,
    ring::Ring,
    site::Table as _,
};
use plimsoll_policy::workingset::{FileId, Use};
use plimsoll_wire::workingset::{
    CHUNK_BYTES, EVENT_BYTES, FILE_BYTES, FloorCounts, FloorSettings, USE_BYTES, WorkingSetEvent,
    decode_event, decode_file, decode_use,
};
use reads::Reads;
use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

/// Tells the programs from those of another build.
const BUILD: u64 = number(env!("PLIMSOLL_WORKINGSET_BUILD"));

/// Entries that are taken out of a map at once: some 64 KiB of them. A bucket of the map has far fewer.
const BATCH: usize = 1024;

/// What is attached as long as a working set is protected, where the kernel has it: pages that come and go, and the floor.
const ALWAYS: [&str; 7] = [
    "on_add",
    "on_delete",
    "on_direct_begin",
    "on_limit_begin",
    "on_shrink",
    "on_direct_end",
    "on_limit_end",
];

/// Where pages that are read or mapped can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accesses {
    /// At tracepoints (about Linux 6.12).
    Tracepoints,
    /// At the functions themselves (Linux 6.1, where the kernel allows trampolines).
    Functions,
    /// Nowhere: only what comes into the page cache and what is evicted is known.
    Nowhere,
}

/// What this kernel takes of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent answers")]
pub struct WorkingSetOffers {
    /// How accesses are seen.
    pub accesses: Accesses,
    /// The walk over executables sees each process once (Linux 6.7); else once for each of its threads, which takes long.
    pub walks_processes: bool,
    /// The floor's programs may signal a process other than the one in reclaim (Linux 6.13); else they ask, and whoever is
    /// asked takes the process by pidfd.
    pub signals_others: bool,
    /// They see that a victim is gone, or was before (Linux 6.2); else they wait for a time, and who is asked has to have them
    /// hold for as long as a victim lives.
    pub finds_tasks: bool,
    /// The floor of a memory cgroup works.
    pub limits: bool,
    /// What the kernel said of programs that it refused.
    pub refused: Option<String>,
}

/// The files that running processes have mapped to execute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Executables {
    /// Each once, in order.
    pub files: Vec<FileId>,
    /// There may be more: the map was full.
    pub cut: bool,
}

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "workingset", BUILD)
}

/// The pinned programs, what of them is attached, and the buffers for what they tell.
#[derive(Debug)]
pub struct WorkingSet {
    programs: Vec<(&'static str, OwnedFd)>,
    attached: Vec<OwnedFd>,
    reads: Reads,
    walk: OwnedFd,
    uses: Map,
    executables: Map,
    floor: Map,
    floor_state: Map,
    events: Ring,
    offers: WorkingSetOffers,
    undecodable: u64,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl WorkingSet {
    /// Loads and pins below `root/workingset`, unless this build's programs are there. Those of other builds go. Heavy: for the
    /// loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses even what every kernel since 6.1 takes, or this is no initial pid namespace,
    /// where the numbers would not be ours; [`BpfError::Pin`].
    pub fn load(root: &Path) -> Result<WorkingSetOffers, BpfError> {
        load::load(&pins(root))
    }

    /// Has the kernel verify the programs that are for it, and lets go of them.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses one.
    pub fn verify() -> Result<(), BpfError> {
        let kernel = Kernel::read()?;
        kernel.plan(kernel.ways().into_iter().next().unwrap_or(Accesses::Nowhere)).verify()
    }

    /// The ways to see accesses that have their places in this kernel, the best first.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel does not tell its types.
    pub fn ways() -> Result<Vec<Accesses>, BpfError> {
        Ok(Kernel::read()?.ways())
    }

    /// Removes all pins below `root/workingset`, of whichever build. Returns whether there were any. What a living process has
    /// attached stays attached until it ends.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Opens what [`WorkingSet::load`] pinned. Nothing is attached.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when this build's programs are not there.
    pub fn open(root: &Path) -> Result<Self, BpfError> {
        let pins = pins(root);
        let offers = load::offers(&pins, None);
        let open_all = |names: &[&'static str]| -> Result<Vec<_>, BpfError> {
            names
                .iter()
                .filter(|name| pins.has(name))
                .map(|name| pins.open(name).map(|program| (*name, program)))
                .collect()
        };
        let map = |name: &'static str| Map::open(&pins.path(name), name);
        Ok(Self {
            programs: open_all(&ALWAYS)?,
            attached: Vec::new(),
            reads: Reads::new(open_all(load::accesses_of(offers.accesses))?, map("recents")?),
            walk: pins.open(if offers.walks_processes { load::WALK } else { load::WALK_AREAS })?,
            uses: map("uses")?,
            executables: map("executables")?,
            floor: map("floor_line")?,
            floor_state: map("floor_state")?,
            events: Ring::open(&pins.path("events"), "events")?,
            offers,
            undecodable: 0,
            keys: vec![0; BATCH * CHUNK_BYTES],
            values: vec![0; BATCH * USE_BYTES],
        })
    }

    /// What of it works here.
    #[must_use]
    pub const fn offers(&self) -> &WorkingSetOffers {
        &self.offers
    }

    /// Attaches what tells of pages that come and go, of reclaim without progress, and of the floor, which is none until
    /// [`WorkingSet::set_floor`]. What was counted by an earlier owner is dropped.
    ///
    /// # Errors
    /// [`BpfError::Attach`], [`BpfError::Map`]; nothing is attached then.
    pub fn attach(&mut self) -> Result<(), BpfError> {
        if !self.attached.is_empty() {
            return Ok(());
        }
        self.set_floor(&FloorSettings::default())?;
        self.drain(&mut Vec::new())?;
        self.attached = attach_all(&self.programs)?;
        Ok(())
    }

    /// Detaches everything, the programs of [`WorkingSet::attach_reads`] too, and takes the floor away.
    ///
    /// # Errors
    /// [`BpfError::Map`]; everything is detached all the same.
    pub fn detach(&mut self) -> Result<(), BpfError> {
        self.attached.clear();
        self.reads.detach();
        self.set_floor(&FloorSettings::default())
    }

    /// Whether [`WorkingSet::attach`] was called last.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Attaches what tells of pages that are read or mapped, each of which costs then some 50 to 100 ns more.
    ///
    /// # Errors
    /// [`BpfError::Attach`], [`BpfError::Missing`] where [`Accesses::Nowhere`].
    pub fn attach_reads(&mut self) -> Result<(), BpfError> {
        self.reads.attach()
    }

    /// Detaches what tells of reads; of pages that are mapped it goes on telling until [`WorkingSet::detach`].
    pub fn detach_reads(&mut self) {
        self.reads.rest();
    }

    /// Whether reads are told of.
    #[must_use]
    pub const fn reads_are_attached(&self) -> bool {
        self.reads.are_attached()
    }

    /// How often the programs at reads ran since they were loaded: what their rate costs tells whether to go on.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn accesses(&self) -> Result<u64, BpfError> {
        self.reads.events()
    }

    /// Adds all that was counted since the last call, in no order, and begins anew. Counts that are made at this moment may be
    /// lost. Of more chunks than the map has room for (8192; on more than 32 CPUs 256 for each, 65536 at most) those used
    /// least lately are not there.
    ///
    /// # Errors
    /// [`BpfError::Map`]; what was added is out of the map.
    pub fn drain(&mut self, into: &mut Vec<Use>) -> Result<(), BpfError> {
        let Self { uses, keys, values, undecodable, .. } = self;
        uses.take_each((keys, values), |key: &[u8; CHUNK_BYTES], value| {
            match decode_use(key, value) {
                Ok(one) => into.push(one),
                Err(_ours) => *undecodable = undecodable.saturating_add(1),
            }
            Ok(())
        })
    }

    /// Walks over all processes for the files that they have mapped to execute. Takes a time that grows with the areas of
    /// memory that they have: some 30 ms for two thousand processes. A process whose map of memory is being changed at that
    /// moment is left out.
    ///
    /// # Errors
    /// [`BpfError::Scan`], [`BpfError::Map`]
    pub fn executables(&mut self) -> Result<Executables, BpfError> {
        let walk = begin_walk(self.walk.as_fd()).map_err(BpfError::Scan)?;
        // The programs write nothing here: what they find is in the map.
        while super::select::read_on(&walk, &mut [0; 64])? > 0 {}
        let mut found = Executables::default();
        let Self { executables, keys, values, undecodable, .. } = self;
        let keys = keys.get_mut(..BATCH * FILE_BYTES).unwrap_or_default();
        executables.take_each((keys, values), |key: &[u8; FILE_BYTES], _seen| {
            match decode_file(key) {
                Ok(file) => found.files.push(file),
                Err(_ours) => *undecodable = undecodable.saturating_add(1),
            }
            Ok(())
        })?;
        found.cut = found.files.len() >= self.executables.entries_max() as usize;
        found.files.sort_unstable();
        found.files.dedup();
        Ok(found)
    }

    /// Tells the programs what to go by from now on. Written word by word, not at once: a victim is taken only if its number
    /// and its start time belong together.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn set_floor(&self, settings: &FloorSettings) -> Result<(), BpfError> {
        self.floor.write(&0_u32.to_ne_bytes(), &settings.encode())
    }

    /// What the programs counted at the floor.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn floor_counts(&self) -> Result<FloorCounts, BpfError> {
        let mut bytes = [0; FloorCounts::BYTES];
        self.floor_state.read(&0_u32.to_ne_bytes(), &mut bytes)?;
        Ok(FloorCounts::decode(&bytes).unwrap_or_default())
    }

    /// To be polled for input: an event is there.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The next event, oldest first; the one before is given back.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it.
    pub fn next_event(&mut self) -> Result<Option<WorkingSetEvent>, BpfError> {
        self.events.next_decoded::<EVENT_BYTES, _>(&mut self.undecodable, decode_event)
    }

    /// Entries and records dropped because they could not be decoded: a fault of ours.
    #[must_use]
    pub const fn undecodable(&self) -> u64 {
        self.undecodable
    }
}

/// Attaches each; none when one cannot be.
fn attach_all(programs: &[(&'static str, OwnedFd)]) -> Result<Vec<OwnedFd>, BpfError> {
    programs
        .iter()
        .map(|(name, program)| {
            attach_tracepoint(program.as_fd()).map_err(|source| BpfError::Attach { program: name, source })
        })
        .collect()
}
