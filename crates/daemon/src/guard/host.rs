//! The machine's own kernel, behind what the guard asks of one.

use super::{
    kernel::{Held, Kernel, Programs, Reaps, Records},
    selection::population::{Growth, Population, Seen, Source},
};
use crate::{
    facts::cgroups::{Cgroups, Found, Group, Key, NotKnown, cgroup_not_known},
    offload::Offload,
};
use nix::poll::{PollFd, PollFlags};
use plimsoll_policy::{
    account::Counted,
    frag::compaction::ORDERS,
    preference::{Mark, Scope},
    reading::Reading,
    reap::Rates,
    selection::Standing,
    units::{Gid, JobId, Nanos, Pages, Pid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::{
    bpf::{
        AccountFacts, AddressSpace, Awaited, BpfError, CopiesPart, Counts, Coverage, DefaultLine, Events,
        FamilyFacts, Holder, Limits, LineSet, Looks, MapFacts, Measured, Membership, Meta, Pins,
        ProtectedExe, Selector, SharedPages, Told, VictimMark, Weighing,
    },
    cgroup::CgroupRoot,
    process::{
        HeldFolder, PidFd, Portrait, ProcRoot, Process, ProcessError, Reaper, ScanCounts, clock_monotonic_ns,
        kernel_version, memory_stall_trigger, unhurried,
    },
};
use plimsoll_wire::{abi, record::Record, task::TaskFacts, text::Meminfo};
use std::{
    io,
    num::NonZero,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    thread::available_parallelism,
    time::Duration,
};

/// `/proc`, and what is faster than it where this kernel has it.
#[derive(Debug)]
pub(crate) struct Host {
    proc: ProcRoot,
    selector: Option<Selector>,
    cgroups: Cgroups,
    looks: Option<Looks>,
    /// Readable when programs wait for memory; `None` on a kernel that does not tell.
    stalls: Option<OwnedFd>,
    /// That many ordinary threads at most have their turn soon.
    few: u32,
    /// Reading where a process is waits for whoever makes a cgroup: up to Linux 6.10.
    cgroup_file_waits: bool,
}

/// Threads that run or wait for each CPU: an ordinary one has a third of it.
const FEW: usize = 3;

/// As much of the time as at lmkd's first level ('some', 70 ms of 1 s), of a window that needs no CAP_SYS_RESOURCE.
const STALLED: Duration = Duration::from_millis(140);
const STALLED_OF: Duration = Duration::from_secs(2);

/// Since this version `/proc/PID/cgroup` takes no lock that others hold while they wait for memory.
const CGROUP_FILE_IS_FREE: (u32, u32) = (6, 11);

impl Host {
    /// `other`: another way to the same `/proc`, for whoever looks at cgroups.
    pub(crate) fn new(offload: &Offload, proc: ProcRoot, other: ProcRoot) -> Self {
        let free =
            kernel_version().is_ok_and(|version| (version.major, version.minor) >= CGROUP_FILE_IS_FREE);
        let cgroups = Cgroups::new(offload, CgroupRoot::open().ok(), other);
        let stalls = memory_stall_trigger(STALLED, STALLED_OF).ok();
        let cpus = available_parallelism().map_or(1, NonZero::get);
        let few = u32::try_from(cpus.saturating_mul(FEW)).unwrap_or(u32::MAX);
        Self { proc, selector: None, cgroups, looks: None, stalls, few, cgroup_file_waits: !free }
    }

    /// What tells that it is time to look at memory. The file of stalls can always be read.
    pub(super) fn tells_when_to_look(&self) -> impl Iterator<Item = PollFd<'_>> {
        let looks = self.looks.iter().map(|looks| PollFd::new(looks.fd(), PollFlags::POLLIN));
        looks.chain(self.stalls.iter().map(|stalls| PollFd::new(stalls.as_fd(), PollFlags::POLLPRI)))
    }

    /// Where a process is that is not known to be in any cgroup but the root of the v2 hierarchy: another may tell more.
    fn portray_elsewhere(
        &mut self,
        held: &HeldFolder,
        id: VictimId,
        into: &mut Portrait,
    ) -> Result<(), ProcessError> {
        if !self.cgroup_file_waits {
            return held.portray(None, into);
        }
        match self.cgroups.find(&Key::Process(id)) {
            Some(Found::Path(path)) => held.portray(Some(path), into),
            Some(Found::Cgroup(_) | Found::Nothing) => held.portray(Some(b""), into),
            None => Err(cgroup_not_known(id.pid)),
        }
    }
}

/// As the selection programs tell it.
fn seen(facts: &TaskFacts) -> Seen {
    let private = Pages(facts.anonymous.0.saturating_add(facts.swapped.0));
    let errors = facts.errors;
    Seen {
        id: VictimId { pid: facts.pid, start_ns: facts.start_ns },
        parent: facts.parent,
        uid: facts.uid,
        mm: facts.mm,
        private: Reading::Known(private),
        shared: facts.shared,
        // Of two counts and a third.
        error: Pages(errors.anonymous.0.saturating_mul(2).saturating_add(errors.mapped.0)),
        ceiling: facts.mapped,
        oom_score_adj: i16::try_from(facts.oom_score_adj).ok(),
        standing: if facts.dying || facts.oom_victim { Standing::Dying } else { Standing::Free },
        cgroup_id: Some(facts.cgroup_id),
        execs: Some(facts.execs),
        comm: facts.comm,
    }
}

impl Population for Host {
    fn now(&self) -> Nanos {
        Nanos(clock_monotonic_ns())
    }

    fn begin_decision(&mut self) {
        self.cgroups.begin();
    }

    fn own_pid(&self) -> Pid {
        Pid(std::process::id())
    }

    fn census(&mut self, mut visit: impl FnMut(&Seen)) -> Result<Source, ProcessError> {
        // In a crowd whoever waits for its turn has it when there is no memory any more.
        let is_crowd = !self.has_room();
        if let Some(selector) = &mut self.selector {
            let visit = |facts: &TaskFacts| visit(&seen(facts));
            let swept = if is_crowd { selector.sweep_in_pieces(visit) } else { selector.sweep(visit) };
            if swept.is_ok() {
                return Ok(Source::Programs);
            }
        }
        self.proc.processes(|process| visit(&Seen::from(process))).map(|_| Source::Proc)
    }

    fn look_closely(&mut self, id: VictimId) -> Option<Seen> {
        if let Some(selector) = &mut self.selector {
            let mut found = None;
            let measured = selector.measure(&[id], |_, measured| found = Some(measured));
            match (measured, found) {
                (Ok(()), Some(Measured::Known(facts))) => return Some(Seen { id, ..seen(&facts) }),
                (Ok(()), Some(Measured::Another | Measured::Gone)) => return None,
                (Ok(()), None) | (Err(_), _) => {}
            }
        }
        Seen::again(&self.proc.process(id.pid).ok()?, id)
    }

    fn portray(
        &mut self,
        id: VictimId,
        cgroup_id: Option<u64>,
        into: &mut Portrait,
    ) -> Result<bool, ProcessError> {
        let held = HeldFolder::open(&self.proc, id)?;
        match cgroup_id.map(|cgroup| self.cgroups.find(&Key::Id(cgroup))) {
            Some(Some(Found::Cgroup(folder))) if folder.own.path != b"/" => {
                held.portray(Some(&folder.own.path), into).map(|()| true)
            }
            Some(None) => Err(cgroup_not_known(id.pid)),
            Some(Some(_)) | None => self.portray_elsewhere(&held, id, into).map(|()| false),
        }
    }

    fn mark_of(&mut self, cgroup: &[u8], id: Option<u64>) -> Result<Option<Mark>, NotKnown> {
        Ok(self.cgroups.at_path(cgroup, id)?.and_then(|folder| folder.mark))
    }

    fn group_of(&mut self, cgroup: &[u8], id: Option<u64>, scope: Scope) -> Result<Option<Group>, NotKnown> {
        Ok(self.cgroups.at_path(cgroup, id)?.and_then(|folder| match scope {
            Scope::Cgroup => Some(folder.own.clone()),
            Scope::Process | Scope::Tree => folder.oom_group.clone(),
        }))
    }

    fn watch(&mut self, floor: Pages) -> bool {
        self.selector.as_mut().is_some_and(|selector| selector.watch(floor).is_ok())
    }

    fn grown(&mut self, mut visit: impl FnMut(Growth)) -> Option<bool> {
        let selector = self.selector.as_mut()?;
        let counts = selector.grown(|grown| visit(Growth { id: grown.id, mm: grown.mm })).ok()?;
        Some(counts.lost == 0)
    }

    fn unwatch(&mut self) {
        if let Some(selector) = &mut self.selector {
            // However that ends, it is detached. No hurry: the kernel waits for all CPUs.
            unhurried(|| selector.unwatch().ok());
        }
    }

    fn equip(&mut self, selector: Selector) {
        self.selector = Some(selector);
    }
}

impl Kernel for Host {
    type Held = PidFd;
    type Reaper = Reaper;
    type Programs = Limits;
    type Records = Events;

    fn adopt(&self, pins: &Pins) -> Result<(Limits, Events), BpfError> {
        let limits = Limits::open_latest(pins)?;
        let events = limits.events()?;
        Ok((limits, events))
    }

    fn adopt_replaced(&self, pins: &Pins) -> Option<(Limits, Events)> {
        // Those of another version cannot be read.
        let limits = pins.beside().root().exists().then(|| Limits::open(pins).ok())??;
        let events = limits.events().ok()?;
        Some((limits, events))
    }

    fn remove(&self, pins: &Pins) -> Result<bool, BpfError> {
        pins.remove_programs()
    }

    fn hold(&self, pid: Pid, start_ns: u64) -> Result<PidFd, ProcessError> {
        PidFd::open_verified(&self.proc, pid, start_ns)
    }

    fn process(&mut self, pid: Pid) -> Result<Process, ProcessError> {
        self.proc.process(pid)
    }

    fn processes(&mut self, visit: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError> {
        self.proc.processes(visit)
    }

    fn cgroup(&mut self, pid: Pid) -> Result<Option<String>, ProcessError> {
        self.proc.cgroup(pid)
    }

    fn waiting_pages(&mut self) -> Reading<Pages> {
        match self.proc.read_zoneinfo() {
            Ok(zones) => zones.waiting().map_or(Reading::Absent, Reading::Known),
            Err(_) => Reading::Unreadable,
        }
    }

    fn equip_looks(&mut self, looks: Looks) {
        self.looks = Some(looks);
    }

    fn told_to_look(&mut self) -> Told {
        let told = self.looks.as_mut().map_or(Ok(Told::default()), Looks::told);
        told.unwrap_or_else(|_| {
            self.looks = None;
            Told::default()
        })
    }

    fn missed_blocks(&mut self) -> Option<[u64; ORDERS]> {
        self.looks.as_ref()?.missed().ok()
    }

    fn ask_look(&mut self, what: Awaited, moment: Nanos) -> bool {
        if self.looks.as_ref().is_some_and(|looks| looks.ask(what, moment).is_err()) {
            self.looks = None;
        }
        self.looks.is_some()
    }

    fn has_room(&mut self) -> bool {
        self.proc.read_running().is_some_and(|running| running <= self.few)
    }

    fn read_meminfo(&mut self) -> Result<Meminfo, ProcessError> {
        self.proc.read_meminfo()
    }
}

impl Held for PidFd {
    fn try_clone(&self) -> Result<Self, ProcessError> {
        Self::try_clone(self)
    }

    fn send_signal(&self, signal: Signal) -> Result<(), ProcessError> {
        Self::send_signal(self, signal)
    }

    fn has_exited(&self) -> Result<bool, ProcessError> {
        Self::has_exited(self)
    }

    fn job(&self, membership: &Membership) -> Option<JobId> {
        membership.job_of(self.as_fd()).ok().flatten()
    }
}

impl Reaps for Reaper {
    type Held = PidFd;

    fn expect(&self, victim: &PidFd) {
        Self::expect(self, victim);
    }

    fn submit(&self, victim: PidFd, tag: u64) -> Result<(), PidFd> {
        Self::submit(self, victim, tag)
    }

    fn rates(&self) -> Rates {
        Self::rates(self)
    }

    fn stop(self) -> io::Result<()> {
        Self::stop(self)
    }
}

impl Programs for Limits {
    fn meta(&self) -> Meta {
        Self::meta(self)
    }

    fn counters(&self) -> Result<abi::plimsoll_counters, BpfError> {
        Self::counters(self)
    }

    fn maps(&self) -> Vec<MapFacts> {
        Self::maps(self)
    }

    fn account(&mut self, whose: Counted) -> Result<Option<AccountFacts>, BpfError> {
        Self::account(self, whose)
    }

    fn accounts(&mut self) -> Result<Vec<AccountFacts>, BpfError> {
        Self::accounts(self)
    }

    fn address_spaces(&mut self, visit: impl FnMut(&AddressSpace)) -> Result<(), BpfError> {
        Self::address_spaces(self, visit)
    }

    fn walk(&mut self, holding: impl FnMut(Holder)) -> Result<u32, BpfError> {
        Self::walk(self, holding)
    }

    fn sweep(&self) -> Result<u32, BpfError> {
        Self::sweep(self)
    }

    fn job_of(&self, process: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError> {
        Self::job_of(self, process)
    }

    fn enter_job(&self, process: BorrowedFd<'_>, job: JobId) -> Result<(), BpfError> {
        Self::enter_job(self, process, job)
    }

    fn mark(&self, mm: u64, pid: Pid, mark: VictimMark) -> Result<bool, BpfError> {
        Self::mark(self, mm, pid, mark)
    }

    fn weigh(&self, weighing: &Weighing) -> Result<bool, BpfError> {
        Self::weigh(self, weighing)
    }

    fn answer(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        Self::answer(self, account, hold_until_ns)
    }

    fn hold_shared(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        Self::hold_shared(self, account, hold_until_ns)
    }

    fn actions_told(&self, count: u64) -> Result<(), BpfError> {
        Self::actions_told(self, count)
    }

    fn folded_told(&self, account: u32, count: u32) -> Result<(), BpfError> {
        Self::folded_told(self, account, count)
    }

    fn take_place(&mut self) -> Result<(), BpfError> {
        Self::take_place(self)
    }

    fn set_line(&self, line: &LineSet) -> Result<u32, BpfError> {
        Self::set_line(self, line)
    }

    fn clear_line(&self, whose: Counted) -> Result<bool, BpfError> {
        Self::clear_line(self, whose)
    }

    fn set_default(&self, line: Option<&DefaultLine>) -> Result<(), BpfError> {
        Self::set_default(self, line)
    }

    fn protect_cgroups(&self, ids: &[u64]) -> Result<(), BpfError> {
        Self::protect_cgroups(self, ids)
    }

    fn protect_exes(&self, exes: &[ProtectedExe]) -> Result<(), BpfError> {
        Self::protect_exes(self, exes)
    }

    fn attend(&self, kernel_trigger: bool) -> Result<(), BpfError> {
        Self::attend(self, kernel_trigger)
    }

    fn family(&mut self, family: u64) -> Result<Option<FamilyFacts>, BpfError> {
        Self::family(self, family)
    }

    fn watch_copies(&mut self, watch: bool) -> Result<bool, BpfError> {
        Self::watch_copies(self, watch)
    }

    fn watch_events(&self, watch: bool) -> Result<(), BpfError> {
        Self::watch_events(self, watch)
    }

    fn set_look(&self, due: Option<Nanos>) -> Result<(), BpfError> {
        Self::set_look(self, due)
    }

    fn set_copies(&self, family: u64, copied: Pages, parts: &[CopiesPart]) -> Result<bool, BpfError> {
        Self::set_copies(self, family, copied, parts)
    }

    fn measure_again(&self, account: u32, read: Coverage) -> Result<bool, BpfError> {
        Self::measure_again(self, account, read)
    }

    fn verify(&self, account: u32) -> Result<(), BpfError> {
        Self::verify(self, account)
    }

    fn set_shared(&self, account: u32, whose: Counted, owned: Option<SharedPages>) -> Result<bool, BpfError> {
        Self::set_shared(self, account, whose, owned)
    }

    fn correct(&self, account: u32, group: Gid, more: &Counts) -> Result<bool, BpfError> {
        Self::correct(self, account, group, more)
    }
}

impl Records for Events {
    fn next_record(&mut self) -> Result<Option<Record>, BpfError> {
        Self::next_record(self)
    }

    fn undecodable(&self) -> u64 {
        Self::undecodable(self)
    }
}
