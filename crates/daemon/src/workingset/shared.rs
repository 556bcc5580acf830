//! What the threads and the control API know together. Locks here are held for as long as it takes to copy.

use super::{
    terms::Terms,
    view::{Held, Settings},
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use plimsoll_api::protect::{FloorView, ProtectView};
use plimsoll_policy::{
    units::{Bytes, Nanos, PageSize, Pages},
    workingset::{Tier, Tunables, floor::FloorState},
};
use plimsoll_sys::{bpf::WorkingSet as Programs, workingset::Locks};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What of the floor is told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Floor {
    pub(super) state: FloorState,
    pub(super) clean: Option<Pages>,
}

/// What the threads and the control API share.
#[derive(Debug)]
pub(super) struct Shared {
    dry_run: bool,
    tunables: Mutex<Tunables>,
    stopping: AtomicBool,
    locks: Locks,
    /// The programs that count use; detached when it stops, also while the worker waits for a disk.
    counts: Mutex<Programs>,
    /// Pages that are locked, by tier.
    hard: AtomicU64,
    soft: AtomicU64,
    soft_releases: AtomicU64,
    /// Until then nothing is locked in the soft tier again, on `CLOCK_MONOTONIC`.
    soft_rests_until: AtomicU64,
    /// Swapping is held back: nothing is gained by waiting for it.
    swap_held: AtomicBool,
    held: Mutex<Held>,
    settings: Mutex<Settings>,
    floor: Mutex<Floor>,
    bells: [EventFd; 3],
}

/// Whose bell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Thread {
    Worker,
    Floor,
    Setter,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(terms: &Terms, locks: Locks, counts: Programs) -> io::Result<Self> {
        let bell = || EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        Ok(Self {
            dry_run: terms.dry_run,
            tunables: Mutex::new(terms.tunables),
            stopping: AtomicBool::new(false),
            locks,
            counts: Mutex::new(counts),
            hard: AtomicU64::new(0),
            soft: AtomicU64::new(0),
            soft_releases: AtomicU64::new(0),
            soft_rests_until: AtomicU64::new(0),
            swap_held: AtomicBool::new(false),
            held: Mutex::default(),
            settings: Mutex::default(),
            floor: Mutex::default(),
            bells: [bell()?, bell()?, bell()?],
        })
    }

    pub(super) const fn dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn tunables(&self) -> Tunables {
        *lock(&self.tunables)
    }

    pub(super) const fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Has other tunables hold from the next turn on, which begins at once.
    pub(super) fn change(&self, tunables: Tunables) {
        *lock(&self.tunables) = tunables;
        self.ring_all();
    }

    /// Unlocks and detaches everything, and has all threads end.
    ///
    /// # Errors
    /// One line: what could not be undone. All that follows is undone all the same.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.stopping.store(true, Ordering::SeqCst);
        self.ring_all();
        // What the worker is locking just now it unlocks itself: it looks at the count of releases when it has.
        let released = self.locks.close().map_err(|error| error.to_string());
        let detached = self.counts().detach().map_err(|error| error.to_string());
        released.and(detached)
    }

    /// For as long as it takes to read counts.
    pub(super) fn counts(&self) -> MutexGuard<'_, Programs> {
        lock(&self.counts)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    const fn bell(&self, whose: Thread) -> &EventFd {
        let [worker, floor, setter] = &self.bells;
        match whose {
            Thread::Worker => worker,
            Thread::Floor => floor,
            Thread::Setter => setter,
        }
    }

    fn ring_all(&self) {
        [Thread::Worker, Thread::Floor, Thread::Setter].into_iter().for_each(|whose| self.ring(whose));
    }

    pub(super) fn ring(&self, whose: Thread) {
        // A bell that cannot be written to is full, and so it rings.
        self.bell(whose).write(1).ok();
    }

    pub(super) fn bell_of(&self, whose: Thread) -> BorrowedFd<'_> {
        self.bell(whose).as_fd()
    }

    /// Whether it rang; it does not any more.
    pub(super) fn hush(&self, whose: Thread) -> bool {
        self.bell(whose).read().is_ok()
    }

    /// What is locked now.
    pub(super) fn locked(&self, tier: Tier) -> Pages {
        Pages(self.pages_of(tier).load(Ordering::Relaxed))
    }

    /// Likewise, of both tiers.
    pub(super) fn locked_in_all(&self) -> Pages {
        Pages(self.locked(Tier::Hard).0.saturating_add(self.locked(Tier::Soft).0))
    }

    pub(super) fn set_locked(&self, tier: Tier, pages: Pages) {
        let before = self.pages_of(tier).swap(pages.0, Ordering::Relaxed);
        self.ring_at_first(tier, Pages(before), pages);
    }

    /// Once there is a soft tier the programs are to say when it has to go.
    fn ring_at_first(&self, tier: Tier, before: Pages, now: Pages) {
        if tier == Tier::Soft && before == Pages(0) && now > Pages(0) {
            self.ring(Thread::Floor);
        }
    }

    /// So many more are about to be locked; gives how many were before.
    pub(super) fn add_locked(&self, tier: Tier, pages: Pages) -> Pages {
        let before = Pages(self.pages_of(tier).fetch_add(pages.0, Ordering::Relaxed));
        self.ring_at_first(tier, before, pages);
        before
    }

    /// So many were not after all. What is let go of meanwhile counts as none.
    pub(super) fn take_locked(&self, tier: Tier, pages: Pages) {
        let less = |before: u64| Some(before.saturating_sub(pages.0));
        let _before = self.pages_of(tier).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    const fn pages_of(&self, tier: Tier) -> &AtomicU64 {
        match tier {
            Tier::Hard => &self.hard,
            Tier::Soft => &self.soft,
        }
    }

    /// Nothing is locked in the soft tier until then.
    pub(super) fn rest_soft(&self, until: Nanos) {
        self.soft_rests_until.store(until.0, Ordering::SeqCst);
    }

    /// The soft tier was let go.
    pub(super) fn soft_released(&self) {
        if self.soft.swap(0, Ordering::Relaxed) > 0 {
            self.soft_releases.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn soft_rests(&self, now: Nanos) -> bool {
        now.0 < self.soft_rests_until.load(Ordering::SeqCst)
    }

    pub(super) fn set_held(&self, held: Held) {
        *lock(&self.held) = held;
    }

    /// What was changed of the kernel's settings.
    pub(super) fn set_settings(&self, settings: Settings) {
        self.swap_held.store(settings.held_by.is_some(), Ordering::Relaxed);
        *lock(&self.settings) = settings;
    }

    pub(super) fn swap_is_held(&self) -> bool {
        self.swap_held.load(Ordering::Relaxed)
    }

    pub(super) fn set_floor(&self, floor: Floor) {
        *lock(&self.floor) = floor;
    }

    /// All but what the caller knows better: tunables, cgroup, state.
    pub(super) fn view(&self, page_size: PageSize) -> ProtectView {
        let held = lock(&self.held).clone();
        let floor = *lock(&self.floor);
        let mut view = held.view(page_size);
        view.soft_releases = self.soft_releases.load(Ordering::Relaxed);
        view.hard.locked_bytes = page_size.to_bytes(self.locked(Tier::Hard)).0;
        view.soft.locked_bytes = page_size.to_bytes(self.locked(Tier::Soft)).0;
        let bytes = |pages| page_size.to_bytes(pages).0;
        view.floor = (floor.state.line > Pages(0)).then(|| FloorView {
            line_bytes: bytes(floor.state.line),
            clean_bytes: floor.clean.map(bytes),
            standing: floor.state.standing,
            // The guard's to count, who writes incidents down.
            kills: 0,
            last_incident: None,
        });
        lock(&self.settings).tell(&mut view, page_size);
        view.memory_bytes = held.memory.map(|Bytes(bytes)| bytes);
        view
    }
}
