//! The kernel as the guard sees it: everything that deciding and acting ask of it, and nothing else.
//!
//! The machine's own kernel is one implementation; the simulator of the tests is the other, so that what is proven
//! there is the code that guards. All of it is resolved when the program is compiled: the kill path pays nothing.

use super::selection::population::Population;
use plimsoll_policy::{
    account::Counted,
    frag::compaction::ORDERS,
    reading::Reading,
    reap::Rates,
    units::{Gid, JobId, Nanos, Pages, Pid},
    victim::Signal,
};
use plimsoll_sys::{
    bpf::{
        AccountFacts, AddressSpace, Awaited, BpfError, CopiesPart, Counts, Coverage, DefaultLine,
        FamilyFacts, Holder, LineSet, Looks, MapFacts, Membership, Meta, Pins, ProtectedExe, SharedPages,
        Told, VictimMark, Weighing,
    },
    process::{Process, ProcessError, ScanCounts},
};
use plimsoll_wire::{abi, record::Record, text::Meminfo};
use std::{fmt::Debug, io, os::fd::BorrowedFd};

/// Processes, and the way to the limits programs.
pub(crate) trait Kernel: Population {
    /// A process that is held.
    type Held: Held;
    /// Frees the memory of killed processes.
    type Reaper: Reaps<Held = Self::Held>;
    /// The limits programs in force.
    type Programs: Programs;
    /// What they report.
    type Records: Records;

    /// Takes over what is pinned.
    fn adopt(&self, pins: &Pins) -> Result<(Self::Programs, Self::Records), BpfError>;

    /// What is pinned and will be replaced by what [`Kernel::adopt`] takes over, to be read to its end.
    fn adopt_replaced(&self, pins: &Pins) -> Option<(Self::Programs, Self::Records)>;

    /// Removes the programs that are pinned; whether there were any.
    fn remove(&self, pins: &Pins) -> Result<bool, BpfError>;

    /// Holds the process that has this number and started then; any other is [`ProcessError::Vanished`].
    fn hold(&self, pid: Pid, start_ns: u64) -> Result<Self::Held, ProcessError>;

    /// One process.
    fn process(&mut self, pid: Pid) -> Result<Process, ProcessError>;

    /// Shows every process to `visit`.
    fn processes(&mut self, visit: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError>;

    /// Where a process runs.
    fn cgroup(&mut self, pid: Pid) -> Result<Option<String>, ProcessError>;

    /// Freed pages that wait in the lists of single CPUs.
    fn waiting_pages(&mut self) -> Reading<Pages>;

    /// Programs are there that tell when to look at memory.
    fn equip_looks(&mut self, _looks: Looks) {}

    /// What programs told since this was asked last.
    fn told_to_look(&mut self) -> Told {
        Told::default()
    }

    /// How often somebody found no block of each order at once; `None`: no programs count it.
    fn missed_blocks(&mut self) -> Option<[u64; ORDERS]> {
        None
    }

    /// Asks to be woken as soon as this happens at that moment or later. False: nobody will, and it takes a timer.
    fn ask_look(&mut self, _what: Awaited, _moment: Nanos) -> bool {
        false
    }

    /// Whether an ordinary thread soon has its turn.
    fn has_room(&mut self) -> bool {
        true
    }

    /// The machine's memory.
    fn read_meminfo(&mut self) -> Result<Meminfo, ProcessError>;
}

/// A process that is held: its number cannot come to mean another.
pub(crate) trait Held: Debug + Sized {
    /// Holds the same process once more.
    fn try_clone(&self) -> Result<Self, ProcessError>;

    /// Sends a signal. `Ok`: the kernel took it.
    fn send_signal(&self, signal: Signal) -> Result<(), ProcessError>;

    /// Whether it has exited; does not wait.
    fn has_exited(&self) -> Result<bool, ProcessError>;

    /// The job that it is in.
    fn job(&self, _membership: &Membership) -> Option<JobId> {
        None
    }
}

/// Frees the memory of killed processes, on a thread of its own.
pub(crate) trait Reaps: Debug {
    /// What it takes.
    type Held: Held;

    /// Says that a victim is about to be killed and handed over; never waits.
    fn expect(&self, victim: &Self::Held);

    /// Hands a victim over; never waits. It comes back when there is no room.
    fn submit(&self, victim: Self::Held, tag: u64) -> Result<(), Self::Held>;

    /// How fast memory came back.
    fn rates(&self) -> Rates;

    /// Finishes what is queued, and ends.
    fn stop(self) -> io::Result<()>;
}

/// The limits programs in force: as [`plimsoll_sys::bpf::Limits`], which says what each of these does and how it fails.
pub(crate) trait Programs: Debug {
    fn meta(&self) -> Meta;
    fn counters(&self) -> Result<abi::plimsoll_counters, BpfError>;
    fn maps(&self) -> Vec<MapFacts>;
    fn account(&mut self, whose: Counted) -> Result<Option<AccountFacts>, BpfError>;
    fn accounts(&mut self) -> Result<Vec<AccountFacts>, BpfError>;
    fn address_spaces(&mut self, visit: impl FnMut(&AddressSpace)) -> Result<(), BpfError>;
    fn walk(&mut self, holding: impl FnMut(Holder)) -> Result<u32, BpfError>;
    fn sweep(&self) -> Result<u32, BpfError>;
    fn job_of(&self, process: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError>;
    fn enter_job(&self, process: BorrowedFd<'_>, job: JobId) -> Result<(), BpfError>;
    fn mark(&self, mm: u64, pid: Pid, mark: VictimMark) -> Result<bool, BpfError>;
    fn weigh(&self, weighing: &Weighing) -> Result<bool, BpfError>;
    fn answer(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError>;
    fn hold_shared(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError>;
    fn actions_told(&self, count: u64) -> Result<(), BpfError>;
    fn folded_told(&self, account: u32, count: u32) -> Result<(), BpfError>;
    fn take_place(&mut self) -> Result<(), BpfError>;
    fn set_line(&self, line: &LineSet) -> Result<u32, BpfError>;
    fn clear_line(&self, whose: Counted) -> Result<bool, BpfError>;
    fn set_default(&self, line: Option<&DefaultLine>) -> Result<(), BpfError>;
    fn protect_cgroups(&self, ids: &[u64]) -> Result<(), BpfError>;
    fn protect_exes(&self, exes: &[ProtectedExe]) -> Result<(), BpfError>;
    fn attend(&self, kernel_trigger: bool) -> Result<(), BpfError>;
    fn family(&mut self, family: u64) -> Result<Option<FamilyFacts>, BpfError>;
    fn watch_copies(&mut self, watch: bool) -> Result<bool, BpfError>;
    fn watch_events(&self, watch: bool) -> Result<(), BpfError>;
    fn set_look(&self, due: Option<Nanos>) -> Result<(), BpfError>;
    fn set_copies(&self, family: u64, copied: Pages, parts: &[CopiesPart]) -> Result<bool, BpfError>;
    fn measure_again(&self, account: u32, read: Coverage) -> Result<bool, BpfError>;
    fn verify(&self, account: u32) -> Result<(), BpfError>;
    fn set_shared(&self, account: u32, whose: Counted, owned: Option<SharedPages>) -> Result<bool, BpfError>;
    fn correct(&self, account: u32, group: Gid, more: &Counts) -> Result<bool, BpfError>;
}

/// The programs' records, oldest first.
pub(crate) trait Records: Debug {
    fn next_record(&mut self) -> Result<Option<Record>, BpfError>;
    /// Records dropped because they could not be decoded.
    fn undecodable(&self) -> u64;
}
