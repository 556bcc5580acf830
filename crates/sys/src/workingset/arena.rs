//! Where chunks of files are mapped: two ranges of addresses, one for each tier, so that a tier is let go by one call.
//!
//! A range is reserved once and parted into slots of one chunk. A slot that holds nothing is mapped without rights,
//! so that `munlock(2)` of the whole range meets no hole. [`SoftRelease`] takes no lock and allocates nothing: it
//! may run on any thread while another one maps and locks. Who locks looks at the count of releases afterwards, and
//! takes the lock back where one came in between.
#![expect(unsafe_code, reason = "maps and locks files")]

use super::{Refusal, mapped::Mapped};
use crate::process::page_size;
use plimsoll_policy::{
    units::Bytes,
    workingset::{Blocks, CHUNK_PAGES, Tier},
};
use rustix::{
    io::Errno,
    mm::{
        Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap, mmap_anonymous, munlock, munmap,
    },
};
use std::{
    collections::BTreeSet,
    ffi::c_void,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Slots of a tier: for all of memory, and for small files, which take one each. Addresses cost nothing; of
/// mappings the kernel gives a process 65,530 (`vm.max_map_count`), and each slot with a small file takes two.
const SMALL_FILES: u64 = 8192;
const SLOTS_MAX: u64 = 1 << 20;

/// One tier's range of addresses.
#[derive(Debug)]
pub(super) struct Arena {
    base: usize,
    slot_bytes: usize,
    page_bytes: usize,
    slots: usize,
    /// `None`: what is mapped is not told here.
    mapped: Option<Mapped>,
    free: Mutex<BTreeSet<usize>>,
    releases: AtomicU64,
    releases_done: AtomicU64,
}

impl Arena {
    fn reserve(slots: usize, page_bytes: usize) -> Result<Self, Errno> {
        let pages = usize::try_from(CHUNK_PAGES).map_err(|_narrow| Errno::NOMEM)?;
        let slot_bytes = page_bytes.checked_mul(pages).ok_or(Errno::NOMEM)?;
        // One more, so that slots can begin where large pages do.
        let bytes =
            slots.checked_add(1).and_then(|count| count.checked_mul(slot_bytes)).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choosing replaces nothing; without rights, nothing is
        // read or written by it.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = start.addr().checked_next_multiple_of(slot_bytes).ok_or(Errno::NOMEM)?;
        let free = Mutex::new((0..slots).collect());
        Ok(Self {
            base,
            slot_bytes,
            page_bytes,
            slots,
            mapped: Mapped::open().ok(),
            free,
            releases: AtomicU64::new(0),
            releases_done: AtomicU64::new(0),
        })
    }

    /// How often it was released.
    pub(super) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    fn release(&self) -> Result<(), Errno> {
        let unlocked = self.close();
        self.releases_done.fetch_add(1, Ordering::SeqCst);
        unlocked
    }

    /// A release that is never done: who maps after that finds it on its way.
    fn close(&self) -> Result<(), Errno> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        let start: *mut c_void = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: munlock changes no memory's contents, only whether it may be reclaimed; the range is this arena's
        // own, mapped for as long as the arena lives.
        unsafe { munlock(start, self.slots.saturating_mul(self.slot_bytes)) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let start: *mut c_void = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: each slot holds the arena by an `Arc`, so none is left; nothing else points into the range.
        let unmapped = unsafe { munmap(start, self.slots.saturating_mul(self.slot_bytes)) };
        // The addresses stay taken where the kernel is out of memory: nothing hangs on them.
        unmapped.unwrap_or_default();
    }
}

/// One chunk of a file, mapped, and locked until the tier is released. Unlocked and unmapped when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    arena: Arc<Arena>,
    index: usize,
    pages: usize,
    releases: u64,
}

impl Slot {
    /// Maps `pages` of a file from `offset` bytes on, and has the kernel lock whatever of them is mapped from now on.
    pub(super) fn map(
        arena: &Arc<Arena>,
        file: BorrowedFd<'_>,
        offset: u64,
        pages: usize,
    ) -> Result<Self, Refusal> {
        // What is locked while a release is on its way would be counted and might be unlocked by it.
        let releases = arena.releases();
        if arena.releases_done.load(Ordering::SeqCst) != releases {
            return Err(Refusal::Released);
        }
        let index = {
            let mut free = arena.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.pop_first().ok_or(Refusal::Full)?
        };
        // From here on dropping it puts the slot back.
        let slot = Self { arena: Arc::clone(arena), index, pages, releases };
        let fail = |operation| {
            move |errno| if errno == Errno::NOMEM { Refusal::Full } else { Refusal::of(operation, errno) }
        };
        let (start, bytes) = (slot.start(), slot.bytes());
        // SAFETY: the range is this slot's own, and holds no memory that anything refers to. The mapping is never read
        // or written by this process, so that a file cut short cannot raise SIGBUS.
        unsafe { mmap(start, bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, file, offset) }
            .map_err(fail("map a file"))?;
        // Not to read ahead should a page go just before it is mapped, nor to take mapping it for use; and no child
        // is to hold the mount of the file.
        for advice in [Advice::Random, Advice::LinuxDontFork] {
            // SAFETY: neither changes what the memory holds, which is this slot's own.
            unsafe { madvise(start, bytes, advice) }.map_err(fail("advise of a mapping"))?;
        }
        // SAFETY: mlock changes no memory's contents, and with this flag makes nothing resident.
        unsafe { mlock_with(start, bytes, MlockFlags::ONFAULT) }.map_err(|errno| match errno {
            // What exceeding RLIMIT_MEMLOCK is called; the limit does not hold with CAP_IPC_LOCK.
            Errno::NOMEM | Errno::PERM => Refusal::Denied("lock memory"),
            other => Refusal::of("lock memory", other),
        })?;
        slot.check_held()?;
        Ok(slot)
    }

    /// Whether its lock holds: its tier has not been released since.
    pub(super) fn is_held(&self) -> bool {
        self.arena.releases() == self.releases
    }

    /// Maps the pages of some blocks that are in the page cache, which locks them; gives how many pages are locked. That may be
    /// more: of a large folio the kernel maps all there is (Linux 6.18). Reads nothing from the disk, unless a page is taken
    /// between looking and mapping: then that page.
    pub(super) fn capture(&self, blocks: Blocks) -> Result<usize, Refusal> {
        let mut resident = vec![0_u8; self.pages];
        let look = |errno| Refusal::of("look which pages are in memory", errno);
        self.resident(&mut resident).map_err(look)?;
        for (page, is_in) in (0_u64..).zip(&mut resident) {
            if !blocks.contains(page) {
                *is_in = 0;
            }
        }
        let (mut first, mut locked) = (0_usize, 0_usize);
        for run in resident.chunk_by(|one, other| (*one ^ *other) & 1 == 0) {
            if run.first().is_some_and(|page| page & 1 != 0) {
                match self.advise(first, run.len(), Advice::LinuxPopulateRead) {
                    Ok(()) => locked = locked.saturating_add(run.len()),
                    // EFAULT: the file was cut short. All of it is taken up by the next capture, as it does not count.
                    Err(Errno::FAULT | Errno::INTR | Errno::AGAIN) => {}
                    Err(errno) => return Err(Refusal::of("map pages that are in memory", errno)),
                }
            }
            first = first.saturating_add(run.len());
        }
        self.check_held()?;
        Ok(self.mapped().unwrap_or(locked))
    }

    /// How many pages of it are mapped; `None`: that is not told.
    pub(super) fn mapped(&self) -> Option<usize> {
        usize::try_from(self.arena.mapped.as_ref()?.pages(self.range())?).ok()
    }

    /// Lets go of what is not in these blocks.
    pub(super) fn narrow(&self, blocks: Blocks) {
        let stays: Vec<bool> = (0_u64..).take(self.pages).map(|page| blocks.contains(page)).collect();
        let mut first = 0_usize;
        for run in stays.chunk_by(|one, next| one == next) {
            if run.first() == Some(&false) {
                // Where that fails it stays locked, and is counted.
                self.advise(first, run.len(), Advice::LinuxDontneedLocked).unwrap_or_default();
            }
            first = first.saturating_add(run.len());
        }
    }

    /// Undoes a lock that was begun before a release and done after it.
    fn check_held(&self) -> Result<(), Refusal> {
        if self.is_held() {
            return Ok(());
        }
        // SAFETY: as in `Arena::close`, for this slot alone.
        let unlocked = unsafe { munlock(self.start(), self.bytes()) };
        // Nothing can be done about a failure that dropping the slot would not do.
        unlocked.unwrap_or_default();
        Err(Refusal::Released)
    }

    fn resident(&self, pages: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: mincore writes one byte for each page of the range, which is mapped, to `pages`, which has as many.
        let result = unsafe { libc::mincore(self.start(), self.bytes(), pages.as_mut_ptr()) };
        if result == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    fn advise(&self, first: usize, pages: usize, advice: Advice) -> Result<(), Errno> {
        let start = self.start().wrapping_byte_add(first.saturating_mul(self.arena.page_bytes));
        // SAFETY: makes pages of this slot's own mapping of a file present for reading, where what would be a SIGBUS is
        // reported as an error, or unmaps them: nothing refers to them, and the file keeps them. `first` and `pages` lie
        // within the slot, as they were counted from its own pages.
        unsafe { madvise(start, pages.saturating_mul(self.arena.page_bytes), advice) }
    }

    /// How many pages of the file it maps.
    pub(super) const fn pages(&self) -> usize {
        self.pages
    }

    /// First address and bytes.
    pub(super) fn range(&self) -> (u64, u64) {
        let number = |value| u64::try_from(value).unwrap_or(0);
        (number(self.start().addr()), number(self.bytes()))
    }

    fn start(&self) -> *mut c_void {
        let below = self.index.saturating_mul(self.arena.slot_bytes);
        std::ptr::with_exposed_provenance_mut(self.arena.base.saturating_add(below))
    }

    fn bytes(&self) -> usize {
        self.pages.saturating_mul(self.arena.page_bytes)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Unlocked first: to let go of the file's last name can wait for its filesystem, and the pages shall not.
        // SAFETY: as in `Arena::close`, for this slot alone.
        let unlocked = unsafe { munlock(self.start(), self.bytes()) };
        unlocked.unwrap_or_default();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces the slot's own mapping, to which nothing refers any more, by one without rights.
        let emptied = unsafe { mmap_anonymous(self.start(), self.bytes(), ProtFlags::empty(), flags) };
        // Where the kernel has no room for it the slot is not used again.
        if emptied.is_ok() {
            self.arena.free.lock().unwrap_or_else(PoisonError::into_inner).insert(self.index);
        }
    }
}

/// The room for both tiers.
#[derive(Debug, Clone)]
pub struct Locks {
    hard: Arc<Arena>,
    soft: Arc<Arena>,
}

impl Locks {
    /// Reserves addresses for a machine, or a cgroup, with so much memory. Takes no memory; to be called after the
    /// process locked its own ([`crate::process::lock_memory`]), or these addresses would be counted as locked.
    ///
    /// # Errors
    /// [`Refusal::Full`] where there are no such addresses.
    pub fn reserve(memory: Bytes) -> Result<Self, Refusal> {
        let chunk = page_size().bytes().0.saturating_mul(CHUNK_PAGES).max(1);
        Self::with_slots(memory.0.div_ceil(chunk).saturating_add(SMALL_FILES).min(SLOTS_MAX))
    }

    /// With so many slots in each tier.
    pub(super) fn with_slots(slots: u64) -> Result<Self, Refusal> {
        let reserve = || {
            let (slots, page) = (usize::try_from(slots).ok()?, usize::try_from(page_size().bytes().0).ok()?);
            Arena::reserve(slots, page).ok().map(Arc::new)
        };
        let (hard, soft) = (reserve().ok_or(Refusal::Full)?, reserve().ok_or(Refusal::Full)?);
        Ok(Self { hard, soft })
    }

    pub(super) const fn arena(&self, tier: Tier) -> &Arc<Arena> {
        match tier {
            Tier::Hard => &self.hard,
            Tier::Soft => &self.soft,
        }
    }

    /// What lets go of the soft tier, for a thread that hears of memory running out.
    #[must_use]
    pub fn soft_release(&self) -> SoftRelease {
        SoftRelease(Arc::clone(&self.soft))
    }

    /// Unlocks everything at once, in both tiers, for good: whatever is to be locked after that is [`Refusal::Released`]. Files
    /// stay open and mapped until they are dropped.
    ///
    /// # Errors
    /// What the kernel says, which then did not unlock all of it.
    pub fn close(&self) -> Result<(), Refusal> {
        let fail = |errno| Refusal::of("unlock memory", errno);
        let (soft, hard) = (self.soft.close(), self.hard.close());
        soft.map_err(fail)?;
        hard.map_err(fail)
    }
}

/// Lets go of the soft tier.
#[derive(Debug, Clone)]
pub struct SoftRelease(Arc<Arena>);

impl SoftRelease {
    /// Unlocks every chunk of the soft tier in one call. What is being locked meanwhile is unlocked by who locks
    /// it. Takes no lock of ours and allocates nothing; the kernel's lock of this process's mappings is held by
    /// others for a chunk at a time at most.
    ///
    /// # Errors
    /// What the kernel says, which then did not unlock all of it.
    pub fn release(&self) -> Result<(), Refusal> {
        self.0.release().map_err(|errno| Refusal::of("unlock memory", errno))
    }
}
