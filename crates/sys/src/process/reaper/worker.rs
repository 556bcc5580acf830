//! One thread of the reaper.

use super::{
    super::{
        PidFd, ProcRoot, Reap, clock_monotonic_ns,
        cpu_tree::{Leave, leave},
        expedite::{Turn, expedite, give_turn},
        freezer::thaw,
        page_size,
        reserve::Reserved,
        root::EntryPath,
        urgency::{raise_decider, unhurried},
    },
    Crew, KilledBy,
    early::Early,
    queue::{Job, Taker, Work},
    report::{Holdings, ReapReport},
};
use plimsoll_policy::{
    reap::{Hindrance, Hindrances},
    units::Bytes,
};
use plimsoll_wire::text::{ProcessState, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    mem,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Duration,
};

/// Waits between tries, in milliseconds: 63 in all, after which one that was not killed is left to itself. A signal
/// that was sent from inside the kernel may arrive a tick after its record did.
pub(super) const RETRY_WAITS_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// From this try on (7 ms after the first) it is looked at closer: an unhindered victim of 256 MiB is gone by then.
const LOOK_AT_ATTEMPT: u32 = 4;

/// The same as a time.
const LOOK_NS: u64 = 7_000_000;

/// What an unhindered victim frees at least, on the machines that were measured (it is five times that): one that takes
/// longer, and these 7 ms, did not get the CPU.
const UNHINDERED_BYTES_A_NS: u64 = 4;

/// From one turn of a victim to the next: four fifths of the time are for others.
const TURNS_NS: u64 = 10_000_000;

/// What is freed in 2 ms: with so little, freeing is itself no longer than a turn. In a fork storm each victim is so small, and
/// dozens wait for a CPU.
const TURN_BYTES_MAX: u64 = UNHINDERED_BYTES_A_NS * 2_000_000;

/// How long a killed victim is waited for: the report is made then, whether or not it is gone.
const EXIT_DEADLINE_NS: u64 = 2_000_000_000;

/// How often a victim that takes its time is looked at, once the waits are used up.
const LINGER_NS: u64 = 64_000_000;

/// From this size on another thread helps: a smaller one is free before the other has woken.
pub(super) const HELP_BYTES_MIN: u64 = 128 << 20;

/// Victims on their way out that one thread waits for; beyond, the oldest of those that others killed is reported as it stands,
/// or of those that are held, or the oldest of all.
const LINGERING_MAX: usize = 16;

/// One thread.
pub(super) struct Worker {
    crew: Arc<Crew>,
    root: ProcRoot,
    duties: Duties,
}

/// What a thread has to do: all that another needs to go on in its place.
#[derive(Default)]
pub(super) struct Duties {
    /// The victim whose memory is being freed.
    current: Option<Case>,
    /// Those on their way out, oldest first.
    lingering: Vec<Case>,
    /// Nothing more will come.
    closed: bool,
    /// From when on a victim may have a turn: after each, others have twice as long.
    rested_ns: u64,
}

impl Duties {
    /// With room for all that there can be: nothing is allocated while memory is short.
    pub(super) fn new() -> Self {
        Self { lingering: Vec::with_capacity(LINGERING_MAX), ..Self::default() }
    }
}

/// One victim, from its turn on.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct Case {
    /// Whoever frees its memory has it as well.
    pidfd: Arc<PidFd>,
    tag: u64,
    killed_by: KilledBy,
    /// It keeps others that somebody else killed waiting.
    in_the_way: bool,
    /// Time spent on it.
    cost_ns: u64,
    handed_ns: u64,
    /// Another thread was at it before.
    early: Option<Arc<Early>>,
    turn_ns: u64,
    /// When to look again.
    next_ns: u64,
    held: Option<Holdings>,
    result: Reap,
    attempts: u32,
    /// SIGKILL is known to have reached it.
    killed: bool,
    expedited: bool,
    looked: bool,
    /// CPU time that one of its threads has.
    reserved: Option<Reserved>,
    /// When `process_mrelease` said that all was free.
    reaped_ns: Option<u64>,
    /// It said so at the first try.
    at_first: bool,
    found: Hindrances,
    lifted: Hindrances,
}

impl Case {
    fn new(job: Job, early: Option<Arc<Early>>, turn_ns: u64) -> Self {
        let Job { pidfd, tag, killed_by, handed_ns } = job;
        Self {
            pidfd: Arc::new(pidfd),
            tag,
            killed_by,
            in_the_way: killed_by == KilledBy::Others,
            cost_ns: 0,
            handed_ns,
            early,
            turn_ns,
            next_ns: 0,
            held: None,
            result: Reap::NotDying,
            attempts: 0,
            killed: false,
            expedited: false,
            looked: false,
            reserved: None,
            reaped_ns: None,
            at_first: false,
            found: Hindrances::NONE,
            lifted: Hindrances::NONE,
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// When an unhindered one would be gone.
    fn late_ns(&self) -> u64 {
        // What was freed from outside is not for it to free.
        let bytes = self.held.filter(|_| self.reaped_ns.is_none()).map_or(0, |held| held.anonymous.0);
        let since_ns = self.reaped_ns.unwrap_or(self.turn_ns);
        since_ns.saturating_add(LOOK_NS).saturating_add(bytes / UNHINDERED_BYTES_A_NS)
    }
}

impl Worker {
    pub(super) const fn new(crew: Arc<Crew>, root: ProcRoot, duties: Duties) -> Self {
        Self { crew, root, duties }
    }

    /// Makes the calling thread fit for the work.
    pub(super) fn settle_in(crew: &Crew) {
        if let Some(cpus) = &crew.cpus {
            // Refused where the CPUs that may be used have changed since they were read: it runs where it may.
            rustix::thread::sched_setaffinity(None, cpus).ok();
        }
        // For what takes microseconds; freeing is done beside others.
        let _however_urgent = raise_decider();
    }

    /// Works until nothing more comes and every victim is reported. `None`: this thread was left to a victim and has come back
    /// from it. Another one has its work.
    pub(super) fn run(&mut self) -> Option<()> {
        if let Some(case) = self.duties.current.take() {
            self.go_on_without(case);
        }
        while !self.duties.closed || !self.duties.lingering.is_empty() {
            match if self.duties.closed { None } else { self.crew.taker.take() } {
                Some(Work::Reap(job)) if self.is_left_alone(&job) => {
                    let mut case = Case::new(job, None, clock_monotonic_ns());
                    self.make_way(&mut case);
                    let report = self.finish(case, false);
                    self.crew.tell(ReapReport { left_alone: true, ..report });
                }
                Some(Work::Reap(job)) => {
                    let mut case = self.begin(job)?;
                    self.make_way(&mut case);
                    self.linger(case);
                }
                Some(Work::Help(pidfd)) => self.help(&pidfd)?,
                Some(Work::Expect(pidfd)) => self.await_kill(&pidfd)?,
                Some(Work::End) => self.duties.closed = true,
                None => {
                    let taker = (!self.duties.closed).then_some(&self.crew.taker);
                    wait(taker, &self.duties.lingering);
                }
            }
            self.look_after()?;
        }
        Some(())
    }

    /// Whether nothing is done for somebody else's kill: it is one of our own victims, or is traced.
    fn is_left_alone(&mut self, job: &Job) -> bool {
        let traced = |root| status_of(root, &job.pidfd).is_some_and(|status| status.tracer.is_some());
        job.killed_by == KilledBy::Others
            && (self.crew.taker.is_own(job.pidfd.pid()) || traced(&mut self.root))
    }

    /// Makes room for one more.
    fn linger(&mut self, case: Case) {
        let lingering = &mut self.duties.lingering;
        if lingering.len() >= LINGERING_MAX {
            let others = lingering.iter().position(|case| case.killed_by == KilledBy::Others);
            let held = || lingering.iter().position(|case| case.result == Reap::Held);
            let oldest = lingering.remove(others.or_else(held).unwrap_or(0));
            self.report(oldest, false);
        }
        self.duties.lingering.push(case);
    }

    /// Takes each victim a step further that has exited or whose time has come.
    fn look_after(&mut self) -> Option<()> {
        let mut index = 0;
        while let Some(case) = self.duties.lingering.get(index) {
            // The kernel out of memory: it will be asked again.
            let exited = case.pidfd.has_exited().unwrap_or(false);
            if !exited && clock_monotonic_ns() < case.next_ns {
                index = index.saturating_add(1);
                continue;
            }
            let case = self.duties.lingering.remove(index);
            let (case, over) = if exited { (case, true) } else { self.go_on(case)? };
            if over {
                self.report(case, exited);
            } else {
                self.duties.lingering.insert(index, case);
                index = index.saturating_add(1);
            }
        }
        Some(())
    }

    /// Makes a call that may not come back, for the memory of `victim`. `None`: this thread was left to it, and what it had
    /// to do is another's by now.
    fn call<T>(&mut self, victim: &PidFd, call: impl FnOnce() -> T) -> Option<T> {
        let number = self.crew.calls.enter(victim.pid(), mem::take(&mut self.duties));
        let done = call();
        self.duties = self.crew.calls.leave(number)?;
        Some(done)
    }

    /// Whether no such call is made for it, since others of its owner's have not come back.
    fn is_passed_over(&mut self, victim: &PidFd, killed_by: KilledBy) -> bool {
        let Self { crew, root, .. } = self;
        crew.calls.pass_over(killed_by, || status_of(root, victim)?.real_uid)
    }

    /// Freeing it is over: the next one that somebody else killed may come.
    fn make_way(&self, case: &mut Case) {
        if mem::take(&mut case.in_the_way) {
            self.crew.taker.make_way();
        }
    }

    /// Frees beside another thread, which goes on in any case.
    fn help(&mut self, pidfd: &PidFd) -> Option<()> {
        if self.is_passed_over(pidfd, KilledBy::Us) {
            return Some(());
        }
        self.call(pidfd, || unhurried(|| pidfd.reap())).map(|_whatever| ())
    }

    /// Frees it as soon as it is killed. Whoever it is handed to helps, makes it urgent and reports.
    fn await_kill(&mut self, pidfd: &PidFd) -> Option<()> {
        if self.is_passed_over(pidfd, KilledBy::Us) {
            return Some(());
        }
        let early = Arc::new(Early::new(pidfd.pid(), self.anonymous(pidfd)));
        self.crew.taker.note_early(&early);
        self.call(pidfd, || unhurried(|| early.reap(pidfd)))
    }

    /// What a victim has that comes back to everybody.
    fn anonymous(&mut self, pidfd: &PidFd) -> Option<Bytes> {
        match self.root.files.anonymous_about(pidfd.pid()) {
            Ok(Some(pages)) if pidfd.has_number() => Some(page_size().to_bytes(pages)),
            Ok(_) | Err(_) => None,
        }
    }

    /// The first step.
    fn begin(&mut self, job: Job) -> Option<Case> {
        let turn_ns = clock_monotonic_ns();
        let own = job.killed_by == KilledBy::Us;
        if own {
            self.crew.taker.note_own(job.pidfd.pid());
        }
        let early = own.then(|| self.crew.taker.take_early(job.pidfd.pid())).flatten();
        let anonymous = match &early {
            Some(early) => early.anonymous,
            None => self.anonymous(&job.pidfd),
        };
        if own && early.is_none() && anonymous.is_some_and(|bytes| bytes.0 >= HELP_BYTES_MIN) {
            self.crew.taker.ask_for_help(&job.pidfd);
        }
        let turn_ns = early.as_ref().map_or(turn_ns, |early| early.since_ns().min(turn_ns));
        let mut case = Case::new(job, early, turn_ns);
        case.held = anonymous.map(|anonymous| Holdings { anonymous, ..Holdings::default() });
        let rest = self.status(&mut case).as_ref().and_then(Holdings::of);
        if let (Some(held), Some(rest)) = (&mut case.held, rest) {
            *held = Holdings { anonymous: held.anonymous, ..rest };
        }
        // One that runs has let go of its memory by now. One that does not may only leave its cgroup before it runs.
        self.expedite(&mut case);
        let mut case = self.try_to_reap(case)?;
        self.expedite(&mut case);
        self.end_at_once(&mut case);
        self.schedule(&mut case);
        Some(case)
    }

    /// Takes over a victim whose thread did not come back from it.
    fn go_on_without(&mut self, mut case: Case) {
        self.make_way(&mut case);
        case.result = Reap::Held;
        case.found.insert(Hindrance::HeldSpace);
        self.expedite(&mut case);
        self.schedule(&mut case);
        self.linger(case);
    }

    /// A later step; whether it was the last.
    fn go_on(&mut self, mut case: Case) -> Option<(Case, bool)> {
        if matches!(case.result, Reap::StillMapped | Reap::NotDying | Reap::Held) {
            case = self.try_to_reap(case)?;
            if !case.killed {
                self.status(&mut case);
            }
            self.expedite(&mut case);
        } else {
            case.attempts = case.attempts.saturating_add(1);
        }
        if case.attempts >= LOOK_AT_ATTEMPT && case.killed && !case.looked {
            case.looked = true;
            self.look_closer(&mut case);
        }
        // One that is held sleeps, whoever lets it run.
        if case.result == Reap::Held {
            case.reserved = None;
        } else if case.killed && clock_monotonic_ns() >= case.late_ns() {
            self.help_late(&mut case);
        }
        self.schedule(&mut case);
        let waited_ns = clock_monotonic_ns().saturating_sub(case.turn_ns);
        let tried = usize::try_from(case.attempts).unwrap_or(usize::MAX) > RETRY_WAITS_MS.len();
        let over = if case.killed { waited_ns >= EXIT_DEADLINE_NS } else { tried };
        Some((case, over))
    }

    /// `None` as [`Self::call`] says it: another thread has the victim, too.
    fn try_to_reap(&mut self, mut case: Case) -> Option<Case> {
        case.attempts = case.attempts.saturating_add(1);
        // Where a thread has not come back, another one would not, either.
        if Arc::strong_count(&case.pidfd) > 1 || self.is_passed_over(&case.pidfd, case.killed_by) {
            case.result = Reap::Held;
            case.found.insert(Hindrance::HeldSpace);
            return Some(case);
        }
        let (pidfd, hurries) = (Arc::clone(&case.pidfd), self.may_hurry(&case));
        self.duties.current = Some(case);
        let began_ns = clock_monotonic_ns();
        let result = self.call(&pidfd, || if hurries { pidfd.reap() } else { unhurried(|| pidfd.reap()) })?;
        let mut case = self.duties.current.take()?;
        case.cost_ns = case.cost_ns.saturating_add(clock_monotonic_ns().saturating_sub(began_ns));
        case.result = result;
        match case.result {
            Reap::Reaped => {
                case.reaped_ns = Some(clock_monotonic_ns());
                case.at_first = case.attempts == 1;
                case.killed = true;
            }
            Reap::StillMapped | Reap::AlreadyGone => case.killed = true,
            Reap::NotDying | Reap::Unsupported | Reap::Held | Reap::Failed(_) => {}
        }
        Some(case)
    }

    /// Reads its status, and notes what it tells. `None` when it is gone.
    fn status(&mut self, case: &mut Case) -> Option<Status> {
        let status = status_of(&mut self.root, &case.pidfd)?;
        case.killed |= status.kill_is_pending();
        let some = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| bytes.0 > 0);
        let state = |wanted| status.state == Some(wanted);
        case.found.insert_if(some(status.rss_shmem), Hindrance::SharedMemory);
        case.found.insert_if(some(status.hugetlb), Hindrance::Hugetlb);
        case.found.insert_if(some(status.locked), Hindrance::Locked);
        case.found.insert_if(status.core_dumping == Some(true), Hindrance::CoreDump);
        let stopped = state(ProcessState::Stopped) || state(ProcessState::Traced);
        case.found.insert_if(stopped, Hindrance::Stopped);
        Some(status)
    }

    /// Once it is known to be dying, and once only.
    fn expedite(&mut self, case: &mut Case) {
        if !case.killed || case.expedited || case.pidfd.has_exited().unwrap_or(false) {
            return;
        }
        case.expedited = true;
        match leave(&self.crew.cpu_tree, &mut self.root, &case.pidfd) {
            Ok(Leave::Moved) => {
                case.found.insert(Hindrance::CpuGroup);
                case.lifted.insert(Hindrance::CpuGroup);
            }
            Ok(Leave::Stays) => case.found.insert(Hindrance::CpuGroup),
            Ok(Leave::Free) | Err(_) => {}
        }
        // Gone: nothing holds it.
        let Ok(all) = expedite(&self.root.files, &case.pidfd, self.crew.cpus.as_ref()) else { return };
        case.found.insert_all(all.found);
        case.lifted.insert_all(all.lifted);
    }

    /// Whether all that there is to free takes no longer than a turn, and others have had theirs.
    fn may_hurry(&self, case: &Case) -> bool {
        case.killed_by == KilledBy::Us
            && case.held.is_some_and(|held| held.anonymous.0 <= TURN_BYTES_MAX)
            && clock_monotonic_ns() >= self.duties.rested_ns
    }

    /// A small one runs before everybody else: it is gone before others notice.
    fn end_at_once(&mut self, case: &mut Case) {
        if case.killed && self.may_hurry(case) && !case.pidfd.has_exited().unwrap_or(false) {
            self.give_turn(case);
        }
    }

    /// Real time for one that has not ended by now, in a piece that others hardly notice.
    fn help_late(&mut self, case: &mut Case) {
        case.found.insert(Hindrance::Starved);
        let turn = if case.reserved.is_some() { Some(Turn::Barred) } else { self.give_turn(case) };
        match if turn == Some(Turn::Barred) { self.reserve(case) } else { turn } {
            Some(Turn::Given) => case.lifted.insert(Hindrance::Starved),
            Some(Turn::Refused(why)) => case.found.insert(why),
            Some(Turn::Waits | Turn::Barred) | None => {}
        }
    }

    /// Time for one that may not be real-time where it is.
    fn reserve(&self, case: &mut Case) -> Option<Turn> {
        let began_ns = clock_monotonic_ns();
        let ours = case.killed_by == KilledBy::Us;
        let turn =
            self.crew.reservations.give(&self.root.files, &case.pidfd, &mut case.reserved, ours).ok()?;
        case.cost_ns = case.cost_ns.saturating_add(clock_monotonic_ns().saturating_sub(began_ns));
        Some(turn)
    }

    /// What came of a turn; `None` where it is gone, or others have not had theirs since the last turn: of many that are late,
    /// each would have a turn after the other otherwise, and nobody else one.
    fn give_turn(&mut self, case: &mut Case) -> Option<Turn> {
        let began_ns = clock_monotonic_ns();
        if began_ns < self.duties.rested_ns {
            return None;
        }
        let turn = give_turn(&self.root.files, &case.pidfd).ok()?;
        let ended_ns = clock_monotonic_ns();
        let took_ns = ended_ns.saturating_sub(began_ns);
        case.cost_ns = case.cost_ns.saturating_add(took_ns);
        self.duties.rested_ns = ended_ns.saturating_add(took_ns.saturating_mul(2));
        Some(turn)
    }

    /// It should be gone, and is not.
    fn look_closer(&mut self, case: &mut Case) {
        let state = self.status(case).and_then(|status| status.state);
        if state != Some(ProcessState::Uninterruptible) {
            return;
        }
        match thaw(&self.crew.freezer, &mut self.root, &case.pidfd) {
            Ok(true) => {
                case.found.insert(Hindrance::Frozen);
                case.lifted.insert(Hindrance::Frozen);
            }
            Ok(false) => case.found.insert(Hindrance::Uninterruptible),
            Err(_) => {
                case.found.insert(Hindrance::Frozen);
                case.found.insert(Hindrance::Denied);
            }
        }
    }

    fn schedule(&self, case: &mut Case) {
        let tries = usize::try_from(case.attempts).unwrap_or(usize::MAX);
        let wait_ms = tries.checked_sub(1).and_then(|index| RETRY_WAITS_MS.get(index));
        let wait_ns = wait_ms.map_or(LINGER_NS, |wait_ms| wait_ms.saturating_mul(1_000_000));
        let now_ns = clock_monotonic_ns();
        let next_ns = now_ns.saturating_add(wait_ns);
        case.next_ns = match (case.killed, now_ns < case.late_ns()) {
            (false, _) => next_ns,
            (true, true) => next_ns.min(case.late_ns()),
            (true, false) => next_ns.min(now_ns.saturating_add(TURNS_NS)),
        };
    }

    fn report(&mut self, case: Case, exited: bool) {
        if case.killed_by == KilledBy::Us {
            self.crew.taker.forget_own(case.pidfd.pid());
        }
        let report = self.finish(case, exited);
        self.crew.tell(report);
    }

    fn finish(&mut self, mut case: Case, exited: bool) -> ReapReport {
        let end_ns = clock_monotonic_ns();
        let shares = case.result == Reap::NotDying && case.killed;
        if exited && !case.killed {
            // It went between two tries.
            case.result = Reap::AlreadyGone;
        }
        if let Some(freed_ns) = case.early.as_ref().and_then(|early| early.freed_ns()) {
            (case.result, case.reaped_ns, case.at_first) = (Reap::Reaped, Some(freed_ns), true);
        }
        // That nobody else has the address space is known only from a try that succeeded: once the victim has let go
        // of it, nobody tells whether a living process goes on with it.
        let left = match (exited, case.result) {
            (true, Reap::Reaped | Reap::StillMapped) => Some(Bytes(0)),
            // What a core was written of goes with its process.
            (true, Reap::NotDying) if case.found.contains(Hindrance::CoreDump) => None,
            (true, Reap::NotDying) => case.held.map(|held| held.anonymous),
            (true, Reap::AlreadyGone | Reap::Unsupported | Reap::Held | Reap::Failed(_)) => None,
            (false, _) => self.status(&mut case).and_then(|status| status.rss_anonymous),
        };
        case.found.insert_if(shares && !case.found.contains(Hindrance::CoreDump), Hindrance::SharedSpace);
        let untouched = !case.killed && !exited && case.result != Reap::Held;
        case.found.insert_if(untouched, Hindrance::NotKilled);
        // SIGKILL wakes what is stopped.
        case.lifted.insert_if(exited && case.found.contains(Hindrance::Stopped), Hindrance::Stopped);
        let freed = case.result != Reap::Held && case.found.contains(Hindrance::HeldSpace);
        case.lifted.insert_if(freed, Hindrance::HeldSpace);
        // Not the end of its exit, which a tracer, for one, can put off.
        let back_ns = case.reaped_ns.or_else(|| (left == Some(Bytes(0)) && exited).then_some(end_ns));
        ReapReport {
            tag: case.tag,
            killed_by: case.killed_by,
            left_alone: false,
            cost_ns: case.cost_ns,
            pidfd: case.pidfd,
            result: case.result,
            attempts: case.attempts,
            queued_ns: case.turn_ns.saturating_sub(case.handed_ns),
            took_ns: end_ns.saturating_sub(case.turn_ns),
            exited,
            held: case.held,
            left,
            back_ns: back_ns.map(|back_ns| back_ns.saturating_sub(case.turn_ns)),
            at_first: case.at_first,
            found: case.found,
            lifted: case.lifted,
        }
    }
}

/// What its status tells. `None` when it is gone.
fn status_of(root: &mut ProcRoot, pidfd: &PidFd) -> Option<Status> {
    let pid = pidfd.pid();
    let status = EntryPath::new(pid, "status").and_then(|path| root.files.status(pid, path)).ok()?;
    pidfd.has_number().then_some(status)
}

/// Sleeps until something is handed over, a victim exits, or one's time has come; for ever where there is none.
fn wait(taker: Option<&Taker>, lingering: &[Case]) {
    let now_ns = clock_monotonic_ns();
    let due_ns = lingering.iter().map(|case| case.next_ns.saturating_sub(now_ns)).min();
    let timeout = due_ns.and_then(|due_ns| Timespec::try_from(Duration::from_nanos(due_ns)).ok());
    // Without a timeout nobody lingers, and there is a queue to wait on: the loop would have ended otherwise.
    let Some(first) = taker.map(|taker| taker.wake.as_fd()).or_else(|| lingering.first().map(Case::as_fd))
    else {
        return;
    };
    // The queue, or once more the first victim; then the victims. A place without one asks for nothing.
    let mut watched: [PollFd<'_>; LINGERING_MAX + 1] = std::array::from_fn(|index| {
        let victim = index.checked_sub(1).map(|index| lingering.get(index));
        match victim {
            None => PollFd::from_borrowed_fd(first, PollFlags::IN),
            Some(Some(case)) => PollFd::from_borrowed_fd(case.as_fd(), PollFlags::IN),
            Some(None) => PollFd::from_borrowed_fd(first, PollFlags::empty()),
        }
    });
    let used = lingering.len().saturating_add(1);
    // Interrupted or out of memory: the loop asks again.
    poll(watched.get_mut(..used).unwrap_or(&mut []), timeout.as_ref()).ok();
}
