//! A machine that is a list of processes, for the machine guard alone: what it sees, whom it signals, and how often it looked.

use super::super::MachineGuard;
use crate::{
    facts::{
        cgroups::{Group, NotKnown},
        shared::Walked,
    },
    guard::{
        BelowFloor, Eligibility, Ledger, Workers,
        context::Context,
        kernel::{Held, Kernel, Reaps},
        kill::cgroups::CgroupKiller,
        selection::population::{Growth, Population, Seen, Source},
    },
    history::Recorded,
    journal::{Journal, Notices},
    offload::Offload,
};
use plimsoll_api::status::SelectionEffort;
use plimsoll_policy::{
    frag::compaction::ORDERS,
    machine::MachineConfig,
    preference::{Mark, Rules, Scope},
    reading::Reading,
    reap::Rates,
    selection::Standing,
    units::{Bytes, Nanos, Pages, Pid},
    victim::{Signal, VictimId},
};
use plimsoll_sys::{
    bpf::{Awaited, BpfError, Events, Limits, Pins, Selector},
    cgroup::CgroupId,
    process::{
        Errno, HeldFolder, Portrait, ProcRoot, Process, ProcessError, ReaperHandle, ScanCounts, Subject,
        page_size,
    },
};
use plimsoll_wire::text::{Comm, Meminfo};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::Path,
    rc::Rc,
    sync::{Arc, mpsc::Receiver},
};

/// The first process of this number.
pub(in crate::guard) const fn id(pid: u32) -> VictimId {
    VictimId { pid: Pid(pid), start_ns: 1 }
}

/// Reason and victims of each.
pub(super) type Incidents = Vec<(String, Vec<u32>)>;

#[derive(Debug, Default)]
struct State {
    now: u64,
    available: u64,
    swap_free: u64,
    people: BTreeMap<u32, Seen>,
    floor: Option<Pages>,
    notes: Vec<Growth>,
    lost: bool,
    listed: usize,
    portraits: usize,
    decisions: usize,
    blind: bool,
    hidden: Option<u32>,
    by_cgroup: bool,
    sent: Vec<(VictimId, Signal)>,
    /// Ends when somebody is about to signal it.
    slips_away: Option<u32>,
    /// Ends as soon as the rules were held against it.
    leaves: Option<u32>,
    /// For when a CPU that works is to be told of. `None`: no programs do that.
    awaited: Option<Nanos>,
    /// For when it is to be told of pages that are taken back.
    pressed: Nanos,
    /// Announced to the reaper, and how many signals had been sent then.
    announced: Vec<(VictimId, usize)>,
}

/// The way to it.
#[derive(Debug, Clone, Default)]
pub(in crate::guard) struct Town(Rc<RefCell<State>>);

#[derive(Debug)]
pub(in crate::guard) struct Hold(Town, VictimId);

fn seen(pid: u32, start_ns: u64, parent: u32, pages: u64, comm: &str) -> Seen {
    Seen {
        parent: Pid(parent),
        mm: u64::from(pid) << 8 | start_ns,
        cgroup_id: Some(1),
        ..Seen::of_tests(VictimId { pid: Pid(pid), start_ns }, pages, comm.as_bytes())
    }
}

impl Town {
    /// Of these: number, parent, pages, name.
    pub(in crate::guard) fn of(people: &[(u32, u32, u64, &str)]) -> Self {
        let town = Self::default();
        town.0.borrow_mut().now = 1_000_000_000_000;
        for (pid, parent, pages, comm) in people {
            town.put(seen(*pid, 1, *parent, *pages, comm));
        }
        town
    }

    fn put(&self, one: Seen) {
        self.0.borrow_mut().people.insert(one.id.pid.0, one);
    }

    fn change(&self, pid: u32, change: impl FnOnce(&mut Seen)) {
        change(self.0.borrow_mut().people.get_mut(&pid).unwrap());
    }

    fn note(&self, pid: u32) {
        let mut state = self.0.borrow_mut();
        let one = state.people[&pid];
        if state.floor.is_some_and(|floor| one.private.latest().unwrap() >= floor) {
            state.notes.push(Growth { id: one.id, mm: one.mm });
        }
    }

    /// Of available memory, without swap.
    pub(in crate::guard) fn has(&self, available: Bytes) {
        self.has_with_swap(available, Bytes(0));
    }

    pub(super) fn has_with_swap(&self, available: Bytes, swap_free: Bytes) {
        let mut state = self.0.borrow_mut();
        (state.available, state.swap_free) = (available.0, swap_free.0);
    }

    pub(in crate::guard) fn passes(&self, nanos: u64) {
        self.0.borrow_mut().now += nanos;
    }

    pub(in crate::guard) fn now(&self) -> u64 {
        self.0.borrow().now
    }

    /// Becomes smaller, or larger unseen.
    pub(in crate::guard) fn set(&self, pid: u32, pages: u64) {
        self.change(pid, |one| one.private = Reading::Known(Pages(pages)));
    }

    /// Becomes larger.
    pub(super) fn grows(&self, pid: u32, pages: u64) {
        self.set(pid, pages);
        self.note(pid);
    }

    pub(in crate::guard) fn comes(&self, pid: u32, parent: u32, pages: u64, comm: &str) {
        self.put(seen(pid, 1, parent, pages, comm));
        self.note(pid);
    }

    /// Another of the same number.
    pub(super) fn comes_again(&self, pid: u32, parent: u32, pages: u64, comm: &str) {
        self.put(seen(pid, 2, parent, pages, comm));
        self.note(pid);
    }

    pub(super) fn executes(&self, pid: u32, comm: &str) {
        self.change(pid, |one| {
            one.comm = Comm::from_bytes(comm.as_bytes());
            one.execs = Some(2);
        });
    }

    /// Was ended by somebody else, and is not gone.
    pub(in crate::guard) fn dies(&self, pid: u32) {
        self.change(pid, |one| one.standing = Standing::Dying);
    }

    pub(in crate::guard) fn gone(&self, pid: u32) {
        self.0.borrow_mut().people.remove(&pid);
    }

    pub(super) fn lose_notes(&self) {
        self.0.borrow_mut().lost = true;
    }

    /// Nobody can be looked at.
    pub(in crate::guard) fn blind(&self, blind: bool) {
        self.0.borrow_mut().blind = blind;
    }

    /// This one cannot be looked at.
    pub(super) fn hides(&self, pid: Option<u32>) {
        self.0.borrow_mut().hidden = pid;
    }

    /// `memory.oom.group` is set on every cgroup.
    pub(in crate::guard) fn kills_by_cgroup(&self) {
        self.0.borrow_mut().by_cgroup = true;
    }

    /// Programs tell of CPUs that work, or do not.
    pub(in crate::guard) fn tells(&self, tells: bool) {
        self.0.borrow_mut().awaited = tells.then_some(Nanos(0));
    }

    pub(in crate::guard) fn awaited(&self) -> Option<Nanos> {
        self.0.borrow().awaited
    }

    pub(super) fn pressed(&self) -> Nanos {
        self.0.borrow().pressed
    }

    /// Ends just before it would be signalled.
    pub(super) fn slips_away(&self, pid: u32) {
        self.0.borrow_mut().slips_away = Some(pid);
    }

    /// Ends once it was found that it may be selected.
    pub(super) fn leaves(&self, pid: u32) {
        self.0.borrow_mut().leaves = Some(pid);
    }

    /// Who was announced to the reaper, and how many signals had been sent before.
    pub(super) fn announced(&self) -> Vec<(VictimId, usize)> {
        self.0.borrow().announced.clone()
    }

    pub(in crate::guard) fn sent(&self) -> Vec<(VictimId, Signal)> {
        self.0.borrow().sent.clone()
    }

    pub(in crate::guard) fn listed(&self) -> usize {
        self.0.borrow().listed
    }

    pub(in crate::guard) fn portraits(&self) -> usize {
        self.0.borrow().portraits
    }

    /// How often the time to wait for answers began anew.
    pub(super) fn decisions(&self) -> usize {
        self.0.borrow().decisions
    }

    pub(super) fn watched(&self) -> bool {
        self.0.borrow().floor.is_some()
    }
}

impl Population for Town {
    fn now(&self) -> Nanos {
        Nanos(self.0.borrow().now)
    }

    fn begin_decision(&mut self) {
        self.0.borrow_mut().decisions += 1;
    }

    fn own_pid(&self) -> Pid {
        Pid(2)
    }

    fn census(&mut self, visit: impl FnMut(&Seen)) -> Result<Source, ProcessError> {
        let mut state = self.0.borrow_mut();
        state.listed += 1;
        state.people.values().for_each(visit);
        Ok(Source::Programs)
    }

    fn look_closely(&mut self, id: VictimId) -> Option<Seen> {
        self.0.borrow().people.get(&id.pid.0).filter(|one| one.id == id).copied()
    }

    fn portray(&mut self, id: VictimId, _: Option<u64>, into: &mut Portrait) -> Result<bool, ProcessError> {
        let mut state = self.0.borrow_mut();
        state.portraits += 1;
        if state.blind || state.hidden == Some(id.pid.0) {
            let (subject, errno) = (Subject::Process(id.pid), Errno::from_raw_os_error(110));
            return Err(ProcessError::Failed { operation: "look at", subject, errno });
        }
        // Its own: all of them run this test.
        let own = Pid(std::process::id());
        let mut root = ProcRoot::open(Path::new("/proc")).unwrap();
        let start_ns = root.process(own).unwrap().start_ns;
        let held = HeldFolder::open(&root, VictimId { pid: own, start_ns })?;
        if state.leaves == Some(id.pid.0) {
            state.people.remove(&id.pid.0);
        }
        held.portray(Some(b"/no/such.service"), into).map(|()| true)
    }

    fn mark_of(&mut self, _: &[u8], _: Option<u64>) -> Result<Option<Mark>, NotKnown> {
        Ok(None)
    }

    fn group_of(&mut self, cgroup: &[u8], _: Option<u64>, _: Scope) -> Result<Option<Group>, NotKnown> {
        let group = || Group { path: cgroup.to_owned(), id: CgroupId(1) };
        Ok(self.0.borrow().by_cgroup.then(group))
    }

    fn watch(&mut self, floor: Pages) -> bool {
        self.0.borrow_mut().floor = Some(floor);
        true
    }

    fn grown(&mut self, visit: impl FnMut(Growth)) -> Option<bool> {
        let mut state = self.0.borrow_mut();
        state.notes.drain(..).for_each(visit);
        Some(!std::mem::take(&mut state.lost))
    }

    fn unwatch(&mut self) {
        self.0.borrow_mut().floor = None;
    }

    fn equip(&mut self, _: Selector) {}
}

impl Kernel for Town {
    type Held = Hold;
    type Reaper = Self;
    type Programs = Limits;
    type Records = Events;

    fn adopt(&self, _: &Pins) -> Result<(Limits, Events), BpfError> {
        Err(BpfError::Missing("lines"))
    }

    fn adopt_replaced(&self, _: &Pins) -> Option<(Limits, Events)> {
        None
    }

    fn remove(&self, _: &Pins) -> Result<bool, BpfError> {
        Ok(false)
    }

    fn hold(&self, pid: Pid, start_ns: u64) -> Result<Hold, ProcessError> {
        let id = VictimId { pid, start_ns };
        if self.0.borrow().slips_away == Some(pid.0) {
            self.gone(pid.0);
        }
        let here = self.0.borrow().people.get(&pid.0).is_some_and(|one| one.id == id);
        if here { Ok(Hold(self.clone(), id)) } else { Err(ProcessError::Vanished(pid)) }
    }

    fn process(&mut self, pid: Pid) -> Result<Process, ProcessError> {
        Err(ProcessError::Vanished(pid))
    }

    fn processes(&mut self, _: impl FnMut(&Process)) -> Result<ScanCounts, ProcessError> {
        Ok(ScanCounts::default())
    }

    fn cgroup(&mut self, _: Pid) -> Result<Option<String>, ProcessError> {
        Ok(None)
    }

    fn ask_look(&mut self, what: Awaited, moment: Nanos) -> bool {
        let mut state = self.0.borrow_mut();
        if what == Awaited::Reclaim {
            state.pressed = moment;
        }
        state.awaited = state.awaited.map(|_| moment);
        state.awaited.is_some()
    }

    fn missed_blocks(&mut self) -> Option<[u64; ORDERS]> {
        self.0.borrow().awaited.map(|_| [0; ORDERS])
    }

    fn waiting_pages(&mut self) -> Reading<Pages> {
        Reading::Absent
    }

    fn read_meminfo(&mut self) -> Result<Meminfo, ProcessError> {
        let state = self.0.borrow();
        let swap = if state.swap_free > 0 { 2 << 30 } else { 0 };
        Ok(Meminfo {
            mem_total: Some(Bytes(8 << 30)),
            mem_available: Some(Bytes(state.available)),
            anonymous: Some(Bytes(1 << 30)),
            swap_total: Some(Bytes(swap)),
            swap_free: Some(Bytes(state.swap_free)),
            ..Meminfo::default()
        })
    }
}

impl Held for Hold {
    fn try_clone(&self) -> Result<Self, ProcessError> {
        Ok(Self(self.0.clone(), self.1))
    }

    fn send_signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let mut state = self.0.0.borrow_mut();
        state.sent.push((self.1, signal));
        if signal == Signal::Kill
            && let Some(one) = state.people.get_mut(&self.1.pid.0)
        {
            one.standing = Standing::Dying;
        }
        Ok(())
    }

    fn has_exited(&self) -> Result<bool, ProcessError> {
        Ok(!self.0.0.borrow().people.contains_key(&self.1.pid.0))
    }
}

impl Reaps for Town {
    type Held = Hold;

    fn expect(&self, victim: &Hold) {
        let mut state = self.0.borrow_mut();
        let sent = state.sent.len();
        state.announced.push((victim.1, sent));
    }

    fn submit(&self, _: Hold, _: u64) -> Result<(), Hold> {
        Ok(())
    }

    fn rates(&self) -> Rates {
        Rates::new()
    }

    fn stop(self) -> io::Result<()> {
        Ok(())
    }
}

/// A machine guard of a town, with what it works with.
pub(in crate::guard) struct Guarded {
    pub(in crate::guard) guard: MachineGuard,
    context: Context<Town>,
    recorded: Recorded,
    lines: Receiver<String>,
    told: RefCell<(Vec<String>, Incidents)>,
}

/// Whatever a test did, what was decided is decided once more.
impl Drop for Guarded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.guard.assert_replays();
        }
    }
}

impl Guarded {
    pub(in crate::guard) fn new(town: &Town, config: MachineConfig, rules: Rules) -> Self {
        let (writer, recorded) = Recorded::by_a_writer(1000);
        let (journal, lines) = Journal::gather();
        let groups =
            CgroupKiller::new(&Offload::start().unwrap(), &journal, &ReaperHandle::default()).unwrap();
        let ledger = Ledger::new(writer, 1, page_size());
        let eligibility = Eligibility { rules: Arc::new(rules), ..Eligibility::default() };
        let mute = Context::mute(town.clone(), town.clone(), ledger, Notices::new(journal));
        Self {
            guard: MachineGuard::new(config),
            context: Context { workers: Workers { groups, ..Workers::mute() }, eligibility, ..mute },
            recorded,
            lines,
            told: RefCell::default(),
        }
    }

    pub(in crate::guard) fn trace(&self) -> String {
        self.guard.trace()
    }

    pub(in crate::guard) fn assert_replays(&self) {
        self.guard.assert_replays();
    }

    /// It is time to look.
    pub(in crate::guard) fn tend(&mut self) {
        let due = self.guard.due().unwrap().0;
        let now = self.context.kernel.now();
        self.context.kernel.passes(due.saturating_sub(now));
        self.guard.tend(None, &mut self.context);
    }

    /// Pages are taken back, as soon as that is news.
    pub(super) fn pages_are_taken_back(&mut self) {
        let (pressed, now) = (self.context.kernel.pressed(), self.context.kernel.now());
        self.context.kernel.passes(pressed.0.saturating_sub(now));
        self.guard.tend(Some(pressed), &mut self.context);
    }

    /// Clean file memory is below its floor, and the programs could take nobody.
    pub(super) fn falls_below_floor(&mut self) {
        self.below_floor(None);
    }

    /// They took this one.
    pub(super) fn programs_take(&mut self, pid: u32) {
        self.context.kernel.dies(pid);
        self.below_floor(Some((id(pid), Nanos(self.context.kernel.now()))));
    }

    fn below_floor(&mut self, taken: Option<(VictimId, Nanos)>) {
        let below = BelowFloor {
            noticed: Nanos(self.context.kernel.now()),
            clean: Pages(10),
            line: Pages(100),
            taken,
            among: None,
        };
        self.guard.act_below_floor(&below, &mut self.context);
    }

    /// Whom the programs are to be told.
    pub(super) fn foremost(&mut self) -> Vec<u32> {
        let order = self.guard.foremost(None, &mut self.context).unwrap();
        order.iter().map(|one| one.pid.0).collect()
    }

    /// Somebody else's victim is gone.
    pub(super) fn settle(&mut self) -> Nanos {
        let now = Nanos(self.context.kernel.now());
        self.context.pending.settle(&self.context.ledger, now, |_| ());
        now
    }

    /// A victim is gone, and its memory back.
    pub(super) fn freed(&mut self, pid: u32) {
        let now = self.settle();
        let others = self.context.pending.count_of(|_| true) > 0;
        self.guard.freed(id(pid), others, self.context.workers.groups.busy(), now);
    }

    /// A cgroup is being ended, or is not any more.
    pub(super) fn is_ending(&self, ending: bool) {
        self.context.workers.groups.occupy(ending);
    }

    pub(in crate::guard) fn configure(&mut self, config: MachineConfig) {
        self.guard.configure(config);
    }

    pub(in crate::guard) fn learns_of_hidden(&mut self, walked: &Walked) {
        self.guard.take_hidden(walked, &mut self.context);
    }

    pub(super) fn judge_anew(&mut self) {
        self.guard.judge_anew();
    }

    pub(super) fn effort(&self) -> SelectionEffort {
        self.guard.effort().unwrap()
    }

    pub(super) fn ready(&self, now: Nanos) -> Option<Nanos> {
        self.guard.ready_since(now)
    }

    /// All that was said in the journal, once the other threads have nothing more to say.
    pub(super) fn said(&self) -> Vec<String> {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while self.context.workers.groups.busy() && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        let mut told = self.told.borrow_mut();
        told.0.extend(self.lines.try_iter());
        told.0.clone()
    }

    /// Reason and victims of each incident.
    pub(super) fn incidents(&self) -> Incidents {
        let mut told = self.told.borrow_mut();
        while let Some(incident) = self.recorded.next_incident() {
            let victims = incident.victims.iter().map(|victim| victim.pid.0).collect();
            told.1.push((incident.reason.to_string(), victims));
        }
        told.1.clone()
    }
}
