//! The thread that waits for nobody: lets the soft tier go when reclaim makes no progress, and keeps ready whom the programs
//! may end at the floor.

use super::{
    readings::{Now, Readings},
    shared::{Floor, Shared, Thread},
    times::{now, timeout_until},
};
use crate::{
    guard::{BelowFloor, Caller, Ranked, Request},
    journal::{Journal, Notices},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, poll},
};
use plimsoll_policy::{
    reading::Reading,
    units::{Nanos, PageSize, Pages, Pid},
    victim::VictimId,
    workingset::{
        Ratio, Tier, Tunables,
        anon::{self, AnonReading, AnonState},
        floor::{FLOOR_DEADLINE, FloorReading, FloorState, judge, soft_reserve},
    },
};
use plimsoll_sys::{
    bpf::WorkingSet as Programs,
    process::{PidFd, Priority, ProcRoot, online_cpus, raise_decider},
    workingset::SoftRelease,
};
use plimsoll_wire::workingset::{Crossing, FloorSettings, WorkingSetEvent, WorkingSetEventKind};
use std::{
    collections::BTreeSet,
    os::fd::AsFd as _,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
};

/// From one look to the next: while the floor is near, and when it is farthest.
const NEAR: Nanos = Nanos(100_000_000);
const FAR: Nanos = Nanos(1_000_000_000);

/// How long the programs believe whom they were told: five looks that were late.
const VALID: Nanos = Nanos(500_000_000);

/// As fast as memory is taken on a machine of today, in bytes a second.
const FASTEST_BYTES_PER_SECOND: u64 = 4 << 30;

/// After the soft tier was let go nothing is locked in it for so long.
const SOFT_RESTS: Nanos = Nanos(10_000_000_000);

/// How long the guard is given to end somebody before it is asked again.
const ASKED: Nanos = Nanos(200_000_000);

/// What the floor thread works with.
pub(super) struct FloorThread {
    shared: Arc<Shared>,
    programs: Programs,
    soft: SoftRelease,
    readings: Readings,
    /// Whose counts the programs go by; none of a cgroup, whose counts are exact, and where it is not told how many there are.
    cpus: u32,
    proc: ProcRoot,
    caller: Caller,
    notices: Notices,
    state: FloorState,
    /// Reports that were lost, and looks at the floor that could not be, as far as that was told.
    unheard: u64,
    blind: u64,
    victims: Vec<VictimId>,
    ranked: Option<Receiver<Vec<VictimId>>>,
    dying: Option<(VictimId, PidFd)>,
    /// What the programs asked for last, and when: they do once, and wait for it to be done.
    asked: Option<(Nanos, Crossing)>,
    asked_until: Nanos,
    due: Nanos,
    last: Option<Now>,
    /// The cgroup that is protected and those below, as they were at the last look.
    inodes: Option<BTreeSet<u64>>,
}

impl FloorThread {
    pub(super) fn new(
        shared: Arc<Shared>,
        programs: Programs,
        readings: Readings,
        caller: Caller,
        journal: Journal,
    ) -> Result<Self, String> {
        let proc = Readings::proc().map_err(|error| error.to_string())?;
        let of_machine = readings.cgroup_inode().is_none();
        // Of what the programs counted before, that was told.
        let before = programs.floor_counts().unwrap_or_default();
        Ok(Self {
            cpus: if of_machine { online_cpus().unwrap_or(0) } else { 0 },
            soft: shared.locks().soft_release(),
            shared,
            programs,
            proc,
            caller,
            notices: Notices::new(journal),
            state: FloorState::default(),
            unheard: before.lost,
            blind: before.blind,
            victims: Vec::new(),
            ranked: None,
            dying: None,
            asked: None,
            asked_until: Nanos(0),
            due: Nanos(0),
            last: None,
            inodes: readings.inodes(),
            readings,
        })
    }

    /// Looks out until it is told to stop.
    pub(super) fn run(mut self) {
        // Of this thread alone: it does little, and what it does is what everybody waits for when memory runs out.
        if raise_decider() == Priority::Unchanged {
            // Then it takes its turn, as the guard does.
        }
        while !self.shared.is_stopping() {
            if let Err(errno) = self.wait() {
                self.notices.say(format_args!("the floor is not kept any more: poll: {errno}"));
                break;
            }
            // Other tunables, or more is locked; or whom the guard would select, which is no reason to look.
            if self.shared.hush(Thread::Floor) && (self.ranked.is_none() || self.is_more_locked()) {
                self.due = Nanos(0);
            }
            self.take_events();
            self.take_ranking();
            self.look_at_dying();
            let moment = now();
            if self.due <= moment {
                self.look(moment);
            }
        }
        self.give_up();
    }

    /// Nobody is ended any more, and nobody is kept ready.
    fn give_up(&self) {
        drop(self.programs.set_floor(&FloorSettings::default()));
        drop(self.caller.send(Request::FloorFar));
    }

    fn wait(&self) -> nix::Result<()> {
        let mut watched = vec![
            PollFd::new(self.programs.fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.bell_of(Thread::Floor), PollFlags::POLLIN),
        ];
        if let Some((_, pidfd)) = &self.dying {
            watched.push(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut watched, timeout_until(self.due)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether more is locked than the programs go by.
    fn is_more_locked(&self) -> bool {
        self.last.is_some_and(|last| self.shared.locked_in_all() > last.floor.locked)
    }

    fn take_events(&mut self) {
        let mut events = Vec::new();
        loop {
            match self.programs.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    self.notices.once("floor", &error);
                    break;
                }
            }
        }
        for event in without_answered(&events) {
            self.take(event);
        }
    }

    fn take(&mut self, event: &WorkingSetEvent) {
        match event.kind {
            WorkingSetEventKind::NoProgress { limited, .. } => {
                if !limited || self.concerns(event.cgroup) {
                    self.let_soft_go();
                }
            }
            WorkingSetEventKind::Taken(crossing, victim) => {
                self.state.sent(victim, event.time);
                self.asked = None;
                // Gone already is as good.
                self.dying = PidFd::open_verified(&self.proc, victim.pid, victim.start_ns)
                    .ok()
                    .map(|pidfd| (victim, pidfd));
                self.tell(event.time, crossing, Some((victim, event.time)));
            }
            WorkingSetEventKind::Ask(crossing, _) => {
                self.asked = Some((event.time, crossing));
                self.ask(event.time, crossing);
            }
            WorkingSetEventKind::Nobody(crossing) => self.ask(event.time, crossing),
            // Whoever takes memory that fast does not wait for the next look.
            WorkingSetEventKind::Near(_) => {
                if !self.state.near {
                    self.due = Nanos(0);
                }
            }
        }
    }

    /// Whether memory of a cgroup is ours to give back: a limit elsewhere is nothing to us. The kernel tries sixteen times
    /// before it kills, in less than a millisecond, so that nothing is read first where it can be known.
    fn concerns(&mut self, cgroup: Option<u64>) -> bool {
        let known = |inodes: &Option<BTreeSet<u64>>| match (inodes, cgroup) {
            (None, _) => true,
            (Some(inodes), Some(cgroup)) => inodes.contains(&cgroup),
            (Some(_), None) => false,
        };
        if known(&self.inodes) {
            return true;
        }
        self.inodes = self.readings.inodes();
        known(&self.inodes)
    }

    /// Whether the soft tier holds anything, or may at any moment.
    fn may_hold_soft(&self) -> bool {
        self.shared.locked(Tier::Soft) > Pages(0)
            || self.shared.tunables().clean_low_ratio != Ratio::default()
    }

    fn let_soft_go(&mut self) {
        let moment = now();
        let holds = self.shared.locked(Tier::Soft) > Pages(0);
        let begins = !self.shared.soft_rests(moment);
        if begins && !self.may_hold_soft() {
            return;
        }
        if holds || begins {
            // First, so that the worker locks no more in it.
            self.shared.rest_soft(moment.saturating_add(SOFT_RESTS));
        }
        // In any case: what the worker is locking just now is not counted yet.
        if let Err(error) = self.soft.release() {
            self.notices.once("soft tier", &error);
        }
        if holds || begins {
            self.shared.soft_released();
            // What was locked counts as clean memory no more.
            self.due = Nanos(0);
            self.shared.ring(Thread::Worker);
        }
    }

    /// The programs could take nobody: the guard does, unless it was asked a moment ago or there is swap.
    fn ask(&mut self, noticed: Nanos, crossing: Crossing) {
        let moment = now();
        if moment < self.asked_until || self.dying.is_some() || !self.may_end_somebody() {
            return;
        }
        self.asked_until = moment.saturating_add(ASKED);
        self.tell(noticed, crossing, None);
    }

    /// The guard may have waited for somebody's end, and that was not enough.
    fn ask_again(&mut self, moment: Nanos) {
        let stands = |(noticed, _): &(Nanos, Crossing)| moment < noticed.saturating_add(FLOOR_DEADLINE);
        self.asked = self.asked.filter(stands).filter(|_| self.state.below);
        if let Some((noticed, crossing)) = self.asked {
            self.ask(noticed, crossing);
        }
    }

    fn may_end_somebody(&self) -> bool {
        !self.shared.dry_run() && self.state.near && !self.state.spares
    }

    fn tell(&mut self, noticed: Nanos, crossing: Crossing, taken: Option<(VictimId, Nanos)>) {
        let below = BelowFloor {
            noticed,
            clean: crossing.clean,
            line: crossing.line,
            taken,
            among: self.readings.among(),
        };
        if self.caller.send(Request::BelowFloor(below)).is_err() {
            self.notices.once("floor", &"the guard was too busy to hear of a process that was ended");
        }
        self.due = Nanos(0);
    }

    /// Whoever was ended is gone: the next may be.
    fn look_at_dying(&mut self) {
        let gone = match &self.dying {
            Some((victim, pidfd)) if pidfd.has_exited().unwrap_or(true) => *victim,
            Some(_) | None => return,
        };
        self.dying = None;
        self.state.gone(gone);
        self.due = Nanos(0);
    }

    fn take_ranking(&mut self) {
        match self.ranked.as_ref().map(Receiver::try_recv) {
            Some(Ok(ranked)) => {
                self.ranked = None;
                self.victims = ranked;
                self.write(now());
            }
            // The guard had no time for it: the next look asks again.
            Some(Err(TryRecvError::Disconnected)) => self.ranked = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }

    /// Says what the programs could not do.
    fn tell_troubles(&mut self) {
        let counts = match self.programs.floor_counts() {
            Ok(counts) => counts,
            Err(error) => return self.notices.once("floor", &error),
        };
        let unheard = counts.lost.saturating_add(self.programs.undecodable());
        if unheard > self.unheard {
            self.notices.say(format_args!(
                "floor: {} reports of the programs were lost: somebody may have been ended without an incident",
                unheard.saturating_sub(self.unheard)
            ));
            self.unheard = unheard;
        }
        if counts.blind > self.blind {
            self.blind = counts.blind;
            self.notices.once(
                "floor",
                &"clean file memory could not be read while memory was reclaimed: nobody is ended then",
            );
        }
    }

    /// Reads how things stand, has the victims named while the floor is near, and tells the programs.
    fn look(&mut self, moment: Nanos) {
        self.tell_troubles();
        let locked = self.shared.locked_in_all();
        let read = match self.readings.read(&mut self.proc, locked) {
            Ok(read) => self.as_held(read),
            Err(error) => {
                self.notices.once("floor", &error);
                self.due = moment.saturating_add(FAR);
                return;
            }
        };
        if self.may_hold_soft() {
            self.inodes = self.readings.inodes();
        }
        let was_near = self.state.near;
        self.state = judge(self.state, &read.floor, &self.shared.tunables(), moment);
        let pressed = self.state.near;
        self.ask_again(moment);
        if pressed {
            self.rank();
        } else {
            self.victims.clear();
            if was_near && !self.state.near {
                drop(self.caller.send(Request::FloorFar));
            }
        }
        self.last = Some(read);
        self.write(moment);
        let far = until_short(&read, self.state.line, self.readings.page_size());
        self.due = moment.saturating_add(if pressed { NEAR } else { far });
        let clean = read.floor.clean.known().map(|clean| Pages(clean.0.saturating_add(locked.0)));
        self.shared.set_floor(Floor { state: self.state, clean });
    }

    /// What is held back from swap has nowhere to go. When there is more of it by now than is held back, the setter is told to
    /// let it go: it looks less often.
    fn as_held(&self, read: Now) -> Now {
        if !self.shared.swap_is_held() {
            return read;
        }
        let (read, holds) = without_swap(read, &self.shared.tunables());
        if !holds {
            self.shared.ring(Thread::Setter);
        }
        read
    }

    /// Has the guard say whom it would select; the answer comes later.
    fn rank(&mut self) {
        if self.ranked.is_some() || self.shared.dry_run() {
            return;
        }
        let (sender, receiver) = sync_channel(1);
        let shared = Arc::clone(&self.shared);
        let told = Ranked::new(move |victims| {
            if sender.try_send(victims).is_ok() {
                shared.ring(Thread::Floor);
            }
        });
        if self.caller.send(Request::Foremost { among: self.readings.among(), told }).is_ok() {
            self.ranked = Some(receiver);
        }
    }

    /// Tells the programs what to go by.
    fn write(&mut self, moment: Nanos) {
        let settings = self.settings(moment);
        if let Err(error) = self.programs.set_floor(&settings) {
            self.notices.once("floor", &error);
        }
    }

    fn settings(&self, moment: Nanos) -> FloorSettings {
        let cgroup = self.readings.cgroup_inode();
        let Some(now) = self.last else {
            return FloorSettings { own: own_pid(), cgroup, ..FloorSettings::default() };
        };
        let soft = self.shared.locked(Tier::Soft);
        let all = FloorSettings {
            free_max: Pages(now.floor.mem_total.0 >> 4),
            reserve: soft_reserve(&now.floor, soft, self.cpus, self.readings.page_size()),
            dirty: now.dirty,
            own: own_pid(),
            cgroup,
            ..FloorSettings::default()
        };
        if self.shared.dry_run() {
            return all;
        }
        // With swap that is free, or with nothing to gain, nobody is ended; nor while somebody is dying.
        let holds = self.state.spares || self.state.dying().is_some() || moment < self.asked_until;
        FloorSettings {
            line: self.state.line,
            locked: now.floor.locked,
            valid_until: if self.victims.is_empty() { Nanos(0) } else { moment.saturating_add(VALID) },
            hold_until: if holds { moment.saturating_add(VALID) } else { Nanos(0) },
            hold: FLOOR_DEADLINE,
            victims: self.victims.clone(),
            ..all
        }
    }
}

fn own_pid() -> Pid {
    Pid(std::process::id())
}

/// All but what was asked for and then done by the programs themselves: whoever reclaims does not wait for the answer.
fn without_answered(events: &[WorkingSetEvent]) -> impl Iterator<Item = &WorkingSetEvent> {
    let is_taken = |event: &WorkingSetEvent| matches!(event.kind, WorkingSetEventKind::Taken(..));
    let last_taken = events.iter().rposition(is_taken).unwrap_or(0);
    let is_answered = move |place: usize, event: &WorkingSetEvent| {
        place < last_taken && matches!(event.kind, WorkingSetEventKind::Ask(..))
    };
    events
        .iter()
        .enumerate()
        .filter(move |(place, event)| !is_answered(*place, event))
        .map(|(_, event)| event)
}

/// However much swap is free, while it is held back there is none; and whether it is to be held back any longer.
fn without_swap(mut now: Now, tunables: &Tunables) -> (Now, bool) {
    let FloorReading { anon, swap_free, mem_total, .. } = now.floor;
    let held = AnonState { holds: true, ..AnonState::default() };
    let holds = anon::judge(held, &AnonReading { anon, swap_total: swap_free, mem_total }, tunables).holds;
    if holds {
        now.floor.swap_free = Reading::Known(Pages(0));
    }
    (now, holds)
}

/// When the floor can be near at the earliest.
fn until_short(now: &Now, line: Pages, page_size: PageSize) -> Nanos {
    let clean = now.floor.clean.known().map_or(0, |clean| clean.0.saturating_add(now.floor.locked.0));
    let above = |amount: u64| amount.saturating_sub(line.0.saturating_mul(2));
    let free = above(now.floor.free.known().map_or(0, |free| free.0));
    let above = above(clean);
    let bytes = page_size.to_bytes(Pages(above.saturating_add(free))).0;
    let span = u128::from(bytes).saturating_mul(1_000_000_000) / u128::from(FASTEST_BYTES_PER_SECOND);
    Nanos(u64::try_from(span).unwrap_or(u64::MAX)).clamp(NEAR, FAR)
}

#[cfg(test)]
mod tests;
