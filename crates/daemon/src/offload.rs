//! Work that can make whoever does it wait, kept off the guard thread: a few threads share all of it.
//!
//! Each kind of work has a lane: a bounded queue whose entries are worked off one at a time, in their order. A thread that
//! takes up work and leaves too few others waiting starts one first: ordinary work leaves two, so that urgent work, which
//! leaves one, has to start none as a rule. So work that does not come back holds up its own lane and no other, however many
//! do so, and nobody has to watch for that. At rest three threads sleep.
//!
//! One of those that wait does so in `epoll`, for all of them: a lane can also have work when a descriptor can be read
//! ([`Offload::attend`]), so that whoever waits for events needs no thread of their own.

mod waits;

pub(crate) use waits::Waits;

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
    },
};
use plimsoll_sys::process::{not_real_time, own_nice, raise_decider, set_own_nice};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// Threads that wait for work at most; one that finds so many ends.
const IDLE_MAX: usize = 3;

/// When no thread could be started, from one try to the next.
const START_AGAIN: Duration = Duration::from_millis(10);

/// Lanes that have work, at most: there are fewer, and each is among these once.
const LANES_MAX: usize = 256;

/// Whether whoever hands work over waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// The guard waits for it, for milliseconds: done as urgently as the guard decides.
    Urgent,
    /// Nobody does: it is done in the ordinary class, at the daemon's nice value.
    Ordinary,
}

impl Haste {
    /// How many others are to wait while a thread is at such work; where fewer do, it starts one. To start one can take its
    /// time where memory is short.
    const fn leaves(self) -> usize {
        match self {
            Self::Urgent => 1,
            Self::Ordinary => 2,
        }
    }
}

/// The threads. Clones share them; they end when the last clone and the last lane are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    ready: Arc<Ready>,
    /// Each thread has it.
    #[cfg(test)]
    crew: Weak<Crew>,
}

impl Offload {
    /// Starts as many threads as sleep at rest.
    ///
    /// # Errors
    /// When the kernel cannot start a thread, or has no descriptor left.
    pub(crate) fn start() -> io::Result<Self> {
        let (ready, next) = Ready::new()?;
        let crew = Arc::new(Crew {
            next: Mutex::new(next),
            wake: Arc::clone(&ready.wake),
            idle: AtomicUsize::new(0),
            nice: own_nice(),
            #[cfg(test)]
            is_full: false.into(),
        });
        for _ in 0..IDLE_MAX {
            start_thread(&crew)?;
        }
        Ok(Self {
            ready: Arc::new(ready),
            #[cfg(test)]
            crew: Arc::downgrade(&crew),
        })
    }

    /// One without a thread.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self { ready: Arc::new(Ready::new().unwrap().0), crew: Weak::new() }
    }

    /// Opens a lane in which `room` entries can wait while `work` is at one.
    pub(crate) fn lane<T: Send + 'static>(
        &self,
        haste: Haste,
        room: usize,
        work: impl FnMut(T) + Send + 'static,
    ) -> Lane<T> {
        let (entries, queue) = sync_channel(room);
        let worked = Worked {
            haste,
            left: AtomicUsize::new(0),
            queue: Mutex::new((queue, Box::new(work))),
            ready: Arc::clone(&self.ready),
        };
        Lane { entries, worked: Some(Arc::new(worked)) }
    }

    /// Attends to `readable` by `serve`, until that says that the service has ended.
    ///
    /// # Errors
    /// As [`Self::attend`].
    pub(crate) fn serve<S: Send + 'static>(
        &self,
        readable: OwnedFd,
        service: S,
        mut serve: impl FnMut(&mut S) -> bool + Send + 'static,
    ) -> io::Result<Served> {
        let (ending, ended) = sync_channel(0);
        // Dropped in this order: whoever waits for the end finds the service gone.
        let mut running = (service, ending);
        let work = move || {
            let (service, _ending) = &mut running;
            serve(service)
        };
        Ok(Served { ended, _lane: self.attend(Haste::Ordinary, readable, work)? })
    }

    /// Has `work` done each time that `readable` can be read, and when an entry is handed to the lane; for as long as the lane
    /// is there. It is done again at once when it leaves something to be read, and says whether it goes on: where not, it is
    /// dropped, and not asked again.
    ///
    /// # Errors
    /// What the kernel said: of an `epoll` that has no room.
    pub(crate) fn attend(
        &self,
        haste: Haste,
        readable: OwnedFd,
        work: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Lane<()>> {
        let wake = Arc::clone(&self.ready.wake);
        // Held until the lane is in the list: it may be readable already.
        let mut alarms = wake.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let place = alarms.iter().position(Alarm::is_over).unwrap_or(alarms.len());
        let number = u64::try_from(place).unwrap_or(BELL);
        wake.epoll.add(&readable, once(number))?;
        let attended = Attended { readable, once: once(number), wake: Arc::clone(&wake) };
        let mut going_on = Some((attended, work));
        let lane = self.lane(haste, 1, move |()| {
            going_on = going_on.take().and_then(|(attended, mut work)| {
                work().then(|| {
                    attended.ask_again();
                    (attended, work)
                })
            });
        });
        let alarm = Alarm { entries: lane.entries.clone(), worked: lane.worked.as_ref().map(Arc::downgrade) };
        match alarms.get_mut(place) {
            Some(over) => *over = alarm,
            None => alarms.push(alarm),
        }
        drop(alarms);
        Ok(lane)
    }

    /// Has `work` done once, beside all other work. Never waits.
    pub(crate) fn once(&self, work: impl FnOnce() + Send + 'static) {
        let mut work = Some(work);
        let lane = self.lane(Haste::Ordinary, 1, move |()| {
            if let Some(work) = work.take() {
                work();
            }
        });
        lane.hand(());
    }
}

/// One kind of work. Clones hand over to the same queue.
pub(crate) struct Lane<T> {
    entries: SyncSender<T>,
    /// `None`: somebody else has the queue's other end.
    worked: Option<Arc<Worked<T>>>,
}

/// A service, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Served {
    ended: Receiver<()>,
    _lane: Lane<()>,
}

impl Served {
    /// Waits until it has ended, for so long at most.
    pub(crate) fn wait(self, most: Duration) {
        // It ends with its end of the channel, and says nothing before.
        self.ended.recv_timeout(most).ok();
    }
}

impl<T: Send + 'static> Lane<T> {
    /// Hands one entry over; false where there is no room for it. Never waits.
    pub(crate) fn hand(&self, entry: T) -> bool {
        if self.entries.try_send(entry).is_err() {
            return false;
        }
        if let Some(worked) = &self.worked
            && worked.left.fetch_add(1, Ordering::AcqRel) == 0
        {
            Arc::clone(worked).is_ready();
        }
        true
    }

    /// How many entries are not worked off yet.
    #[cfg(test)]
    fn left(&self) -> usize {
        self.worked.as_ref().map_or(0, |worked| worked.left.load(Ordering::Acquire))
    }

    /// One whose entries the caller takes.
    pub(crate) fn of_another(room: usize) -> (Self, Receiver<T>) {
        let (entries, queue) = sync_channel(room);
        (Self { entries, worked: None }, queue)
    }

    /// One that takes nothing.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self::of_another(0).0
    }
}

impl<T> Clone for Lane<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), worked: self.worked.clone() }
    }
}

impl<T> fmt::Debug for Worked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worked").finish_non_exhaustive()
    }
}

impl fmt::Debug for dyn Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

type Queue<T> = (Receiver<T>, Box<dyn FnMut(T) + Send>);

/// What a lane is worked off with.
struct Worked<T> {
    haste: Haste,
    /// Entries handed over and not worked off. While there are any, the lane is once among those that have work, or one thread
    /// is at it.
    left: AtomicUsize,
    queue: Mutex<Queue<T>>,
    ready: Arc<Ready>,
}

/// A lane, whatever its entries are.
trait Work: Send + Sync {
    fn haste(&self) -> Haste;
    /// Puts it among those that have work.
    fn is_ready(self: Arc<Self>);
    /// Whether there is more then.
    fn work_one_off(&self) -> bool;
}

impl<T: Send + 'static> Work for Worked<T> {
    fn haste(&self) -> Haste {
        self.haste
    }

    fn is_ready(self: Arc<Self>) {
        let ready = Arc::clone(&self.ready);
        // There is a place for each lane; all threads are gone where nobody listens.
        if ready.lanes.try_send(self).is_ok() {
            ready.wake.ring(1);
        }
    }

    fn work_one_off(&self) -> bool {
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let (entries, work) = &mut *queue;
            if let Ok(entry) = entries.try_recv() {
                work(entry);
            }
        }
        self.left.fetch_sub(1, Ordering::AcqRel) > 1
    }
}

/// The lanes that have work, for those who have it done.
#[derive(Debug)]
struct Ready {
    lanes: SyncSender<Arc<dyn Work>>,
    wake: Arc<Wake>,
}

impl Ready {
    fn new() -> io::Result<(Self, Receiver<Arc<dyn Work>>)> {
        let (lanes, next) = sync_channel(LANES_MAX);
        let flags = EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let bell = EventFd::from_value_and_flags(0, flags)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&bell, once(BELL))?;
        Ok((Self { lanes, wake: Arc::new(Wake { epoll, bell, alarms: Mutex::default() }) }, next))
    }
}

/// No more work comes: whoever is woken and finds none ends.
impl Drop for Ready {
    fn drop(&mut self) {
        self.wake.ring(u32::MAX);
    }
}

/// What the threads that wait for all of them are woken by. They hold nothing meanwhile: a lock of the standard library is
/// tried a hundred times before its thread sleeps, which under an emulator takes as long as others have work: 280 ms were
/// seen, before all ordinary programs.
#[derive(Debug)]
struct Wake {
    epoll: Epoll,
    /// A token for each lane that has work.
    bell: EventFd,
    /// By what `epoll` keeps with their descriptors.
    alarms: Mutex<Vec<Alarm>>,
}

/// What `epoll` keeps with the bell.
const BELL: u64 = u64::MAX;

/// One of those who wait is woken, and nobody else until it is asked for again.
const fn once(number: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLONESHOT), number)
}

/// A lane that has work when its descriptor can be read; for as long as it is there.
#[derive(Debug)]
struct Alarm {
    entries: SyncSender<()>,
    worked: Option<Weak<Worked<()>>>,
}

/// A descriptor that a lane attends to, in the `epoll`.
struct Attended {
    readable: OwnedFd,
    once: EpollEvent,
    wake: Arc<Wake>,
}

impl Attended {
    fn ask_again(&self) {
        // It was added, and is open: nothing can be wrong with it.
        self.wake.epoll.modify(&self.readable, &mut self.once.clone()).ok();
    }
}

/// Others may have what it is of: to close it does not take it out.
impl Drop for Attended {
    fn drop(&mut self) {
        self.wake.epoll.delete(&self.readable).ok();
    }
}

impl Alarm {
    fn is_over(&self) -> bool {
        self.worked.as_ref().is_none_or(|worked| worked.strong_count() == 0)
    }
}

impl Wake {
    /// The counter holds 2^64 tokens: it cannot be full.
    fn ring(&self, tokens: u32) {
        self.bell.write(tokens.into()).ok();
    }

    /// Waits until a lane has work, or all of them are gone.
    fn wait(&self) {
        let mut event = [EpollEvent::empty()];
        loop {
            match self.epoll.wait(&mut event, EpollTimeout::NONE) {
                Ok(_) if event.iter().any(|event| event.data() == BELL) => break,
                Ok(_) => event.iter().for_each(|event| self.go_off(event.data())),
                Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
        self.bell.read().ok();
        // It was added, and is open. The next token is for another one.
        self.epoll.modify(&self.bell, &mut once(BELL)).ok();
    }

    fn go_off(&self, number: u64) {
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let alarm = usize::try_from(number).ok().and_then(|number| alarms.get(number));
        if let Some(Alarm { entries, worked }) = alarm
            && let Some(worked) = worked.as_ref().and_then(Weak::upgrade)
        {
            let lane = Lane { entries: entries.clone(), worked: Some(worked) };
            drop(alarms);
            // Where one waits already it is as good.
            lane.hand(());
        }
    }
}

/// What the threads share.
struct Crew {
    next: Mutex<Receiver<Arc<dyn Work>>>,
    wake: Arc<Wake>,
    /// How many wait for work.
    idle: AtomicUsize,
    /// The daemon's.
    nice: i32,
    /// No thread can be started.
    #[cfg(test)]
    is_full: std::sync::atomic::AtomicBool,
}

fn start_thread(crew: &Arc<Crew>) -> io::Result<()> {
    #[cfg(test)]
    if crew.is_full.load(Ordering::Acquire) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let own = Arc::clone(crew);
    let work = move || {
        // Started by one that is real-time it would be another.
        set_own_nice(own.nice);
        // Somebody waits for what is urgent.
        let _however_urgent = raise_decider();
        while own.may_wait() {
            let Some(lane) = own.take_up() else { break };
            let has_more = match lane.haste() {
                Haste::Urgent => lane.work_one_off(),
                Haste::Ordinary => not_real_time(|| lane.work_one_off()),
            };
            if has_more {
                // Behind the others that have work.
                lane.is_ready();
            }
        }
    };
    thread::Builder::new().name("offload".into()).spawn(work).map(|_not_joined| ())
}

impl Crew {
    /// Counts the calling thread as one that waits, unless enough do.
    fn may_wait(&self) -> bool {
        let more = |idle| (idle < IDLE_MAX).then_some(idle + 1);
        self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn wait_for_work(&self) -> Option<Arc<dyn Work>> {
        self.wake.wait();
        self.next.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// The next lane that has work; `None` when no more comes.
    fn take_up(self: &Arc<Self>) -> Option<Arc<dyn Work>> {
        loop {
            let lane = self.wait_for_work()?;
            let found = self.idle.fetch_sub(1, Ordering::AcqRel);
            let is_missed = found <= lane.haste().leaves() && start_thread(self).is_err();
            if !(is_missed && found == 1 && lane.haste() == Haste::Ordinary) {
                return Some(lane);
            }
            // The last one stays for urgent work, and for the moment in which another can be started.
            lane.is_ready();
            self.idle.fetch_add(1, Ordering::AcqRel);
            thread::sleep(START_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests;
