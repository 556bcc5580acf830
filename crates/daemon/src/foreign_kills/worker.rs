//! The worker: takes victims from the ring a batch at a time, waits a moment for what else is told of them, has them written
//! down, and only then gives their records back to the ring, so that none is lost if the daemon dies meanwhile.

use super::{
    batch::{Credit, arranged, candidates},
    kill::{ForeignKill, of_kernel, victim},
    killers::Sources,
    log_window::{LogWindow, Told},
    messages::{Message, Shared},
};
use crate::{
    facts::jobs::JobFinder,
    guard::{ArrangedKill, Arrangements, Caller, Request},
    history::{HistoryError, Reader, Writer},
    journal::{Journal, Notices},
    message::Receiver,
    offload::{Haste, Lane, Offload, Waits},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::epoll::EpollFlags,
};
use plimsoll_policy::{
    units::{JobId, PageSize, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{BpfError, OomKills, OomOffers},
    kernel_log::KernelLog,
    process::{ProcRoot, oom_kills, tick_ns},
};
use plimsoll_wire::marked::Marked;
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TryRecvError},
    },
    time::{Duration, Instant},
};

/// How long the kernel's log and the last defence may take to tell of a kill. The log follows within microseconds; the last
/// defence is woken at the same time, and is a lane like this one.
const GATHER: Duration = Duration::from_millis(250);

/// How long a deed of the last defence waits for the kernel's own word of it.
const DEED_PATIENCE: Duration = Duration::from_millis(600);

/// How long the history may take to write before records are given back.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// How long a history that is being built is waited for, before kills of the time before this daemon are taken for new.
const READER_PATIENCE: Duration = Duration::from_secs(30);

/// When what the guard had no room for is brought again.
const AGAIN: Duration = Duration::from_millis(500);

/// Victims of one batch: as many as the ring holds.
const BATCH_MAX: usize = 256;

/// Kills remembered, for what is told of them late.
const REMEMBERED_MAX: usize = 64;

/// What the worker starts with.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Opened while there was the right to.
    pub(crate) log: Result<KernelLog, String>,
    pub(crate) proc: ProcRoot,
    pub(crate) jobs: JobFinder,
    pub(crate) page_size: PageSize,
    pub(crate) caller: Caller,
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    pub(crate) journal: Journal,
    pub(crate) arrangements: Arrangements,
    /// Where other killers write, or why they are not followed.
    pub(crate) sources: Result<Sources, String>,
}

/// A deed of the last defence that no kill was found for yet.
#[derive(Debug, Clone, Copy)]
struct Unmatched {
    deed: ArrangedKill,
    since: Instant,
}

/// What is brought to the guard, until it is written down.
#[derive(Debug)]
struct Delivery {
    kill: ForeignKill,
    /// Of those that found no room in the ring, how many are to be given back as told.
    lost: u64,
    /// Set by the guard: a request may still be waiting there when we have given up, and is then brought again.
    written: Arc<AtomicBool>,
}

impl Delivery {
    fn of(kill: ForeignKill) -> Self {
        Self { kill, lost: 0, written: Arc::default() }
    }
}

/// How messages come to the worker, and what is left of them goes.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: Receiver<Message>,
    pub(super) shared: Arc<Shared>,
    /// What could not be delivered, at the end.
    pub(super) rest: SyncSender<Vec<ForeignKill>>,
}

#[derive(Debug)]
struct Worker {
    inbox: Inbox,
    /// For the queue and the ring.
    waits: Waits,
    kills: Option<OomKills>,
    /// The first victims are of the time before this daemon.
    first: bool,
    log: Option<LogWindow>,
    credit: Credit,
    deeds: Vec<Unmatched>,
    /// With whose they were.
    remembered: VecDeque<(VictimId, Uid)>,
    undelivered: Vec<Delivery>,
    /// Records of the ring that could not be decoded, and were told of.
    undecodable: u64,
    proc: ProcRoot,
    jobs: JobFinder,
    page_size: PageSize,
    caller: Caller,
    writer: Writer,
    reader: Reader,
    notices: Notices,
    arrangements: Arrangements,
    stopping: bool,
}

/// Has it work from now on, for as long as the lane is there.
pub(super) fn start(setup: Setup, inbox: Inbox, offload: &Offload) -> io::Result<Lane<()>> {
    let Setup { log, proc, jobs, page_size, caller, writer, reader, journal, arrangements, sources: _ } =
        setup;
    let mut notices = Notices::new(journal);
    let log = log
        .map(LogWindow::new)
        .inspect_err(|error| notices.say(format_args!("kills are told without the kernel's log: {error}")))
        .ok();
    let waits = Waits::new()?;
    waits.add(&inbox.queue, EpollFlags::EPOLLIN)?;
    let readable = waits.readable()?;
    let mut worker = Worker {
        inbox,
        waits,
        kills: None,
        first: true,
        log,
        credit: Credit::from(None),
        deeds: Vec::new(),
        remembered: VecDeque::new(),
        undelivered: Vec::new(),
        undecodable: 0,
        proc,
        jobs,
        page_size,
        caller,
        writer,
        reader,
        notices,
        arrangements,
        stopping: false,
    };
    offload.attend(Haste::Ordinary, readable, move || worker.turn())
}

impl Worker {
    /// Sees to all that has happened; whether it goes on.
    fn turn(&mut self) -> bool {
        self.take_messages();
        if let Err(error) = self.take_victims() {
            self.notices.once("kills of the kernel", &error);
            // Without its ring it would be readable for ever.
            self.unequip(&error.to_string());
        }
        self.settle_deeds(self.stopping);
        self.try_again();
        if let Err(errno) = self.listen() {
            self.inbox.shared.told.store(false, Ordering::Relaxed);
            self.notices.say(format_args!("kills of others are not heard of any more: {errno}"));
            self.stopping = true;
        }
        if self.stopping {
            let rest = self.rest();
            // Whoever stopped it may wait no longer.
            self.inbox.rest.send(rest).ok();
        }
        !self.stopping
    }

    /// Has it woken by the ring, and when deeds are due or the guard is to be tried again.
    fn listen(&mut self) -> nix::Result<()> {
        let now = Instant::now();
        let due = self.deeds.iter().map(|one| one.since + DEED_PATIENCE).min();
        let again = (!self.undelivered.is_empty()).then(|| now + AGAIN);
        // What waits in the ring for that would be told again and again.
        let ring = if again.is_some() { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
        if let Some(kills) = &self.kills {
            self.waits.change(kills.fd(), ring)?;
        }
        let due = due.into_iter().chain(again).min();
        // Later rather than too early, when nothing would be due.
        self.waits.set(due.map(|due| due.saturating_duration_since(now) + Duration::from_millis(1)))
    }

    /// What the guard had no room for.
    fn try_again(&mut self) {
        if !self.stopping {
            for delivery in std::mem::take(&mut self.undelivered) {
                self.bring(delivery);
            }
        }
    }

    /// What the guard did not write down while it was asked, for it to do so at its end.
    fn rest(&mut self) -> Vec<ForeignKill> {
        let mut rest = std::mem::take(&mut self.undelivered);
        rest.retain(|delivery| !delivery.written.load(Ordering::Relaxed));
        let lost = rest.iter().map(|delivery| delivery.lost).fold(0, u64::saturating_add);
        if lost > 0
            && let Err(error) = self.told_lost(lost)
        {
            self.notices.once("kills of the kernel", &error);
        }
        rest.into_iter().map(|delivery| delivery.kill).collect()
    }

    fn take_messages(&mut self) {
        loop {
            match self.inbox.queue.next() {
                Ok(Message::Equip(kills)) => self.equip(*kills),
                Ok(Message::ArrangedKill(deed)) => self.deeds.push(Unmatched { deed, since: Instant::now() }),
                Ok(Message::Foreign(facts)) => self.deliver(ForeignKill::Known(facts)),
                Err(TryRecvError::Disconnected) => return self.stopping = true,
                Err(TryRecvError::Empty) => {
                    return self.stopping |= self.inbox.shared.stopping.load(Ordering::Acquire);
                }
            }
        }
    }

    fn equip(&mut self, kills: OomKills) {
        let words = match (kills.offers(), &self.log) {
            (OomOffers::Victims, Some(_)) => "on: told by oom/mark_victim, with the kernel's own report",
            (OomOffers::Victims, None) => {
                "on: told by oom/mark_victim; the kernel's log cannot be read, so causes are not known"
            }
            (OomOffers::Numbers, Some(_)) => {
                "on: told by oom/mark_victim, which has but a number here, and by the kernel's own report"
            }
            (OomOffers::Numbers, None) => {
                "on: told by oom/mark_victim, which has but a number here; the kernel's log cannot be read"
            }
        };
        if let Err(errno) = self.waits.add(kills.fd(), EpollFlags::EPOLLIN) {
            return self.unequip(&errno.to_string());
        }
        Shared::set(&self.inbox.shared.kernel, words.to_owned());
        self.kills = Some(kills);
        self.inbox.shared.told.store(true, Ordering::Relaxed);
    }

    fn unequip(&mut self, why: &str) {
        self.inbox.shared.told.store(false, Ordering::Relaxed);
        Shared::set(&self.inbox.shared.kernel, format!("not heard of any more: {why}"));
        if let Some(kills) = self.kills.take() {
            self.waits.remove(kills.fd());
        }
    }

    /// One batch after the other, until the ring is empty.
    fn take_victims(&mut self) -> Result<(), BpfError> {
        let first = std::mem::take(&mut self.first) && self.kills.is_some();
        self.first |= self.kills.is_none();
        loop {
            let Some(kills) = &mut self.kills else {
                return Ok(());
            };
            let (mut batch, mut jobs) = (Vec::new(), BTreeMap::new());
            while batch.len() < BATCH_MAX
                && let Some(marked) = kills.next_victim()?
            {
                // Now: it may be gone when the log has told of it.
                if let Some(victim) = &marked.victim {
                    let id = VictimId { pid: victim.pid, start_ns: victim.start_ns };
                    jobs.extend(self.jobs.job_of(id).map(|job| (id, job)));
                }
                batch.push(marked);
            }
            let (lost, undecodable) = (kills.lost()?, kills.undecodable());
            self.tell_unrecorded(lost, undecodable);
            if batch.is_empty() {
                if first {
                    // Only now is it known that none of those counted before is still to be told.
                    self.credit = Credit::from(oom_kills().ok());
                }
                return self.kills.as_ref().map_or(Ok(()), OomKills::give_back);
            }
            self.gather(&batch, first);
            self.publish(&batch, &jobs, first);
            self.give_back()?;
            if self.stopping {
                return Ok(());
            }
        }
    }

    /// Kills of which there is no record: those that found no room in the ring, and those whose record makes no sense.
    fn tell_unrecorded(&mut self, lost: u64, undecodable: u64) {
        // Some may be on their way to the guard already.
        let waiting = self.undelivered.iter().map(|delivery| delivery.lost).fold(0, u64::saturating_add);
        let lost = lost.saturating_sub(waiting);
        let strange = undecodable.saturating_sub(self.undecodable);
        self.undecodable = undecodable;
        if strange > 0 {
            self.notices.say(format_args!("{strange} records of the kernel's kills could not be decoded"));
        }
        let count = lost.saturating_add(strange);
        if count > 0 {
            self.bring(Delivery { lost, ..Delivery::of(ForeignKill::Unrecorded(count)) });
        }
    }

    fn told_lost(&self, lost: u64) -> Result<(), BpfError> {
        self.kills.as_ref().map_or(Ok(()), |kills| kills.told_lost(lost))
    }

    /// Once they are on the disk: those that the daemon dies with before are told by the next one.
    fn give_back(&mut self) -> Result<(), BpfError> {
        if let Err(error) = self.writer.flush(WRITE_PATIENCE) {
            self.notices.once("history", &error);
        }
        if self.undelivered.is_empty()
            && let Some(kills) = &self.kills
        {
            kills.give_back()?;
        }
        Ok(())
    }

    /// Waits until the log names each of them, and where something was arranged, for what the last defence says.
    fn gather(&mut self, batch: &[Marked], first: bool) {
        let deadline = Instant::now() + GATHER;
        if first
            && let Some(log) = &mut self.log
            && let Err(error) = log.rewind()
        {
            self.notices.once("kernel log", &error);
        }
        loop {
            self.read_log();
            self.take_messages();
            let named = self
                .log
                .as_ref()
                .is_none_or(|log| batch.iter().all(|marked| marked.exiting || log.names(marked.thread)));
            let deeds = !self.arrangements.any() || self.deeds.len() >= batch.len();
            // What is older than this daemon is not waited for.
            if (named && deeds) || first || self.stopping || Instant::now() >= deadline {
                return;
            }
            let descriptors = self.log.as_ref().filter(|_| !named).map(LogWindow::fd);
            let mut descriptors: Vec<PollFd<'_>> =
                descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into_iter().collect();
            let soon = Instant::now() + Duration::from_millis(if named { 20 } else { 250 });
            if poll_until(&mut descriptors, Some(soon.min(deadline))).is_err() {
                return;
            }
        }
    }

    fn read_log(&mut self) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.read()
        {
            self.notices.once("kernel log", &error);
            self.log = None;
        }
    }

    fn publish(&mut self, batch: &[Marked], jobs: &BTreeMap<VictimId, JobId>, first: bool) {
        let names = |marked: &Marked| self.log.as_ref().is_some_and(|log| log.names(marked.thread));
        let marks = candidates(batch.iter().map(|marked| (marked, names(marked))));
        let named: Vec<bool> = marks.iter().map(|(_, named)| *named).collect();
        let killed = self.credit.killed(&named, oom_kills().ok());
        let mut deeds: Vec<ArrangedKill> = self.deeds.iter().map(|one| one.deed).collect();
        for ((marked, _), killed) in marks.into_iter().zip(killed) {
            if !killed {
                continue;
            }
            let told = self.log.as_ref().map_or_else(Told::default, |log| log.tell(marked.thread));
            let mut dead = victim(marked, &told, self.page_size);
            if marked.victim.is_none() {
                self.look_up(&mut dead);
            }
            if first && self.is_told(dead.pid, dead.start_ns) {
                continue;
            }
            let id = VictimId { pid: dead.pid, start_ns: dead.start_ns };
            dead.jobs.extend(jobs.get(&id).copied().or_else(|| self.jobs.job_of(id)));
            let deed = arranged(&mut deeds, Some(id), Some(dead.uid), same);
            let uid = dead.uid;
            let facts = of_kernel(marked, &told, dead, deed);
            if let Some(id) = facts.id() {
                if self.remembered.len() >= REMEMBERED_MAX {
                    self.remembered.pop_front();
                }
                self.remembered.push_back((id, uid));
            }
            self.deliver(ForeignKill::Known(Box::new(facts)));
        }
        self.deeds.retain(|one| {
            let at = deeds.iter().position(|deed| *deed == one.deed);
            at.map(|at| deeds.swap_remove(at)).is_some()
        });
        if let Some(log) = &mut self.log {
            let threads: Vec<Pid> = batch.iter().map(|marked| marked.thread).collect();
            log.told(&threads);
        }
    }

    /// What `/proc` still has of a victim that the kernel told the number of.
    fn look_up(&mut self, dead: &mut plimsoll_policy::incident::Victim) {
        if let Ok(process) = self.proc.process(dead.pid) {
            dead.start_ns = process.start_ns;
            dead.uid = process.uid;
            dead.comm = process.comm.to_string();
        }
    }

    /// Whether an earlier daemon wrote this one down, and died before it gave its record back.
    fn is_told(&mut self, pid: Pid, start_ns: u64) -> bool {
        let deadline = Instant::now() + READER_PATIENCE;
        let found = loop {
            match self.reader.by_pid(pid) {
                Ok(found) => break found,
                // After a crash it is built anew from the log. Each question waits for it a while.
                Err(HistoryError::Building) if Instant::now() < deadline && !self.stopping => {
                    self.take_messages();
                }
                // Told twice is better than not at all.
                Err(error) => {
                    self.notices.once("history", &error);
                    break None;
                }
            }
        };
        self.reader.close();
        let ours = VictimId { pid, start_ns };
        found.is_some_and(|incident| {
            let ids = incident.victims.iter().map(|one| VictimId { pid: one.pid, start_ns: one.start_ns });
            ids.into_iter().any(|id| same(id, ours))
        })
    }

    /// Deeds that the kernel has not told of by now are all that is known; those of a kill that was written down without
    /// them are nothing new.
    fn settle_deeds(&mut self, all: bool) {
        let now = Instant::now();
        let (due, waiting): (Vec<Unmatched>, Vec<Unmatched>) =
            self.deeds.drain(..).partition(|one| all || now >= one.since + DEED_PATIENCE);
        self.deeds = waiting;
        for Unmatched { deed, .. } in due {
            let late = self.remembered.iter().position(|(id, uid)| match deed.victim {
                Some((theirs, _)) => same(theirs, *id),
                None => *uid == deed.uid,
            });
            if late.and_then(|at| self.remembered.remove(at)).is_none() {
                self.deliver(ForeignKill::Arranged(deed));
            }
        }
    }

    fn deliver(&mut self, kill: ForeignKill) {
        self.bring(Delivery::of(kill));
    }

    /// Has it written down. What was not is kept, for another time or for the guard's end.
    fn bring(&mut self, delivery: Delivery) {
        if self.stopping {
            return self.undelivered.push(delivery);
        }
        let (kill, written) = (delivery.kill.clone(), Arc::clone(&delivery.written));
        let answer = self.caller.ask(|reply| Request::ForeignKills { kill, written, reply });
        // The guard may have come to it while we gave up.
        let done = delivery.written.load(Ordering::Relaxed);
        if let Err(refusal) = answer.as_ref()
            && !done
        {
            self.notices.once("kills of others", refusal);
            return self.undelivered.push(delivery);
        }
        if delivery.lost > 0
            && let Err(error) = self.told_lost(delivery.lost)
        {
            // They would be told once more by the next daemon.
            self.notices.once("kills of the kernel", &error);
        }
    }
}

/// `/proc` tells start times in clock ticks, the programs exactly.
fn same(one: VictimId, other: VictimId) -> bool {
    let tick = |id: VictimId| id.start_ns.checked_div(tick_ns());
    one.pid == other.pid && tick(one) == tick(other)
}

fn poll_until(descriptors: &mut [PollFd<'_>], due: Option<Instant>) -> io::Result<()> {
    let timeout = due.map_or(PollTimeout::NONE, |due| {
        // Rounded up: woken too early, it would look again at once.
        let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(descriptors, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
