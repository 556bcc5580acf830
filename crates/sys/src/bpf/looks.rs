//! When memory is to be looked at, told by programs (`bpf/pressure.bpf.c`): by a CPU that works after a moment, or by whoever
//! takes pages back after another. No timer is needed, and a machine whose CPUs all idle wakes nobody.
//!
//! [`Looks::load`] belongs into the loader's child; [`Looks::open`] attaches. What is attached goes with [`Looks`], at the
//! latest at the end of this process.

use super::{
    build_pins::BuildPins,
    error::BpfError,
    link::attach_tracepoint,
    map::Map,
    object::Plan,
    pins::number,
    ring::Ring,
    site::Table as _,
    types::{find, kernel_types},
};
use libbpf_rs::btf::{Btf, BtfKind};
use plimsoll_policy::{frag::compaction::ORDERS, units::Nanos};
use plimsoll_wire::abi;
use rustix::time::{ClockId, clock_getres};
use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};
use zerocopy::IntoBytes as _;

/// Tells the programs from those of another build.
const BUILD: u64 = number(env!("PLIMSOLL_PRESSURE_BUILD"));

const ON_TICK: &str = "on_tick";
const ON_RECLAIM: [&str; 2] = ["on_wakeup_kswapd", "on_direct_reclaim"];

/// Left out by a kernel without the tracepoint (`CONFIG_COMPACTION`): there is no kcompactd either.
const ON_COMPACTION: &str = "on_try_to_compact";
const COMPACTION: &str = "btf_trace_mm_compaction_try_to_compact_pages";

/// CPUs that take no ticks while one program runs on them.
const TICKLESS: &str = "/sys/devices/system/cpu/nohz_full";

fn pins(root: &Path) -> BuildPins {
    BuildPins::below(root, "pressure", BUILD)
}

pub(super) fn plan() -> Plan {
    // Where that cannot be known, the kernel refuses what it does not know.
    let lacks = |types: Btf<'static>| find(&types, BtfKind::Typedef, COMPACTION).is_none();
    Plan {
        name: "pressure",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/pressure.bpf.o")),
        tried: &[ON_TICK],
        left_out: kernel_types().is_ok_and(lacks).then_some(ON_COMPACTION).into_iter().collect(),
        ..Plan::default()
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The machine guard's: that a CPU works.
    Memory,
    /// That of the guard of cgroups' and the system's lines: that a CPU works.
    Usage,
    /// The machine guard's: that somebody takes pages back.
    Reclaim,
    /// That of whoever charges shared memory: that a CPU works.
    Shared,
    /// That of the guard of large blocks: that a CPU works.
    Blocks,
    /// The same one's: that somebody finds no block of several pages at once.
    Missed,
    /// That of the guard of users' lines, far from all of them: that a CPU works.
    Lines,
}

/// What was told since this was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// When it was told last that the machine guard is to look; `None`: it was not.
    pub machine: Option<Nanos>,
    /// Somebody found no block of several pages at once.
    pub missed: bool,
}

/// The programs, attached.
#[derive(Debug)]
pub struct Looks {
    ring: Ring,
    wanted: Map,
    missed: Map,
    _attached: Vec<OwnedFd>,
}

impl Looks {
    /// Loads and pins below `root/pressure`, unless this build's programs are there. Those of other builds go. Heavy: for the
    /// loader's child.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses one; [`BpfError::Pin`].
    pub fn load(root: &Path) -> Result<(), BpfError> {
        pins(root).load(|| Ok(vec![plan()])).map(drop)
    }

    /// Has the kernel verify the programs, and lets go of them.
    ///
    /// # Errors
    /// [`BpfError::Load`] when the kernel refuses one.
    pub fn verify() -> Result<(), BpfError> {
        plan().verify()
    }

    /// Removes all pins below `root/pressure`, of whichever build. Returns whether there were any.
    ///
    /// # Errors
    /// [`BpfError::Pin`] for the first that could not be removed.
    pub fn remove(root: &Path) -> Result<bool, BpfError> {
        pins(root).remove_all()
    }

    /// Attaches what [`Looks::load`] pinned.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when this build's programs are not there, [`BpfError::Attach`] when the kernel refuses; also where
    /// some CPUs take no ticks while they work (`nohz_full`), or ticks are no timers of high resolution: nobody would be told.
    pub fn open(root: &Path) -> Result<Self, BpfError> {
        let refused = |program, source| BpfError::Attach { program, source };
        // With high-resolution timers the tick is one of them (tick_setup_sched_timer, kernel/time/tick-sched.c).
        let resolution = clock_getres(ClockId::Monotonic);
        if (resolution.tv_sec, resolution.tv_nsec) != (0, 1) {
            return Err(refused(ON_TICK, io::Error::other("this kernel has no high-resolution timers")));
        }
        let tickless = std::fs::read_to_string(TICKLESS).unwrap_or_default();
        if tickless.bytes().any(|byte| byte.is_ascii_digit()) {
            let why = format!("CPUs {} take no ticks while they work", tickless.trim());
            return Err(refused(ON_TICK, io::Error::other(why)));
        }
        let pins = pins(root);
        let attach = |name| {
            let program = pins.open(name)?;
            attach_tracepoint(program.as_fd()).map_err(|source| refused(name, source))
        };
        let mut attached = vec![attach(ON_TICK)?];
        for name in ON_RECLAIM.into_iter().chain(Some(ON_COMPACTION).filter(|name| pins.has(name))) {
            attached.push(attach(name)?);
        }
        Ok(Self {
            ring: Ring::open(&pins.path("told"), "told")?,
            wanted: Map::open(&pins.path("looks"), "looks")?,
            missed: Map::open(&pins.path("missed"), "missed")?,
            _attached: attached,
        })
    }

    /// To be polled for input: a look is due.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// What was told since this was asked. Whoever waits for [`Awaited::Usage`], [`Awaited::Shared`], [`Awaited::Blocks`] or
    /// [`Awaited::Lines`] was woken by it, and knows by the clock.
    ///
    /// # Errors
    /// [`BpfError::Events`] when the ring buffer is not as the kernel makes it.
    pub fn told(&mut self) -> Result<Told, BpfError> {
        let mut all = Told::default();
        while let Some(place) = self.ring.next()? {
            let mut told = abi::plimsoll_look::default();
            if !self.ring.copy(place, told.as_mut_bytes()) {
                continue;
            }
            match told.look {
                abi::PLIMSOLL_LOOK_MEMORY | abi::PLIMSOLL_LOOK_RECLAIM => {
                    all.machine = Some(Nanos(told.at_ns))
                }
                abi::PLIMSOLL_LOOK_MISSED => all.missed = true,
                _ => {}
            }
        }
        self.ring.give_back()?;
        Ok(all)
    }

    /// How often somebody found no block of each order at once, who has no other way.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn missed(&self) -> Result<[u64; ORDERS], BpfError> {
        let mut counts = abi::plimsoll_missed::default();
        self.missed.read(&0_u32.to_ne_bytes(), counts.as_mut_bytes())?;
        Ok(counts.by_order)
    }

    /// Asks to be told once, as soon as this happens at `moment` or later. What was asked before of the same is forgotten.
    ///
    /// # Errors
    /// [`BpfError::Map`]
    pub fn ask(&self, what: Awaited, moment: Nanos) -> Result<(), BpfError> {
        let key = match what {
            Awaited::Memory => abi::PLIMSOLL_LOOK_MEMORY,
            Awaited::Usage => abi::PLIMSOLL_LOOK_USAGE,
            Awaited::Reclaim => abi::PLIMSOLL_LOOK_RECLAIM,
            Awaited::Shared => abi::PLIMSOLL_LOOK_SHARED,
            Awaited::Blocks => abi::PLIMSOLL_LOOK_BLOCKS,
            Awaited::Missed => abi::PLIMSOLL_LOOK_MISSED,
            Awaited::Lines => abi::PLIMSOLL_LOOK_LINES,
        };
        self.wanted.write(&key.to_ne_bytes(), &moment.0.max(1).to_ne_bytes())
    }
}
