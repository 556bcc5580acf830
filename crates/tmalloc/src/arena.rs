//! Arenas: lists of regions, each behind a lock of its own, and how they grow by leases.
//!
//! A thread allocates from one arena; what it frees goes back to whose it is. No lock of an arena is held while somebody
//! is asked or pages are populated: the watcher takes these locks to give idle memory back, and the coordinator that asks for
//! it may be asking on behalf of this very request.

use crate::{
    class,
    client::{self, Grant, Patience, Refusal},
    daemonless, fork,
    lock::{Held, Lock},
    pages,
    region::{self, Hole, Holes, REGION_BYTES, Region},
    watch,
};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicUsize, Ordering},
};

/// At most so many, fewer on small machines.
pub(crate) const ARENAS: usize = 16;

/// What a lease opens. Populating takes most of a refill's time, some 1 us a page, so this is what keeps it below 50 us.
const LEASE_BYTES: usize = 64 << 10;
/// Near the line a lease is no more than this part of what is left for all, which is asked again after so many leases.
const LEASE_SHARE: usize = 16;
const LEASES_PER_LOOK: usize = 8;
/// Regions that nothing is left in and that are kept for what comes, per arena.
const SPARE_REGIONS: usize = 2;

/// A block in a list, which begins in its own payload.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) next: *mut Node,
}

#[derive(Debug)]
struct Arena {
    first: *mut Region,
}

static ARENA: [Lock<Arena>; ARENAS] = [const { Lock::new(Arena { first: ptr::null_mut() }) }; ARENAS];

/// One grant at a time is asked for and populated; those that wait for memory do not hold it.
static GROWING: Lock<()> = Lock::new(());
/// Near the line: what a lease may open, in bytes, and how many leases go by it before it is looked at again.
static NEAR_LEASE_BYTES: AtomicUsize = AtomicUsize::new(0);
static NEAR_LEASES: AtomicUsize = AtomicUsize::new(0);
/// What the process holds by grants, in bytes.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the process holds by grants, in bytes.
pub(crate) fn held_bytes() -> usize {
    HELD_BYTES.load(Ordering::Relaxed)
}

/// More is held, once it is populated.
pub(crate) fn hold(bytes: usize) {
    HELD_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Less is held: it is unmapped by now. The coordinator is told by the caller.
pub(crate) fn hold_less(bytes: usize) {
    HELD_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// The right to ask for memory that is granted at once or not at all; requests that wait need none.
#[derive(Debug)]
#[must_use]
pub(crate) struct Growing(Option<Held<'static, ()>>);

/// See [`Growing`].
pub(crate) fn growing(patience: Patience) -> Growing {
    Growing((patience == Patience::None).then(|| GROWING.lock()))
}

impl Drop for Growing {
    fn drop(&mut self) {
        drop(self.0.take());
        watch::start_wanted();
    }
}

/// Takes up to `count` blocks of this class that are free, as a list and how many.
pub(crate) fn take(arena: usize, class: usize, count: usize) -> (*mut Node, usize) {
    let mut list = ptr::null_mut();
    let mut taken = 0;
    let Some(lock) = ARENA.get(arena) else { return (list, 0) };
    let mut state = lock.lock();
    while taken < count
        && let Some(block) = state.allocate(class)
    {
        let node = block.as_ptr().cast::<Node>();
        // SAFETY: a block holds 16 bytes at least, and this one is ours.
        unsafe { node.write(Node { next: list }) };
        list = node;
        taken += 1;
    }
    (list, taken)
}

/// Blocks go back to the arenas they are of. A list without an end in this generation's memory only.
///
/// # Safety
/// Nobody uses the blocks any more.
pub(crate) unsafe fn put_back(list: *mut Node) {
    let mut list = list;
    let mut held: Option<(u32, Held<'_, Arena>)> = None;
    while let Some(node) = NonNull::new(list) {
        // SAFETY: the list leads through blocks that are the caller's.
        list = unsafe { (*list).next };
        let region = region::base_of(node.as_ptr().cast()).cast::<Region>();
        // SAFETY: blocks lie in regions, whose arena never changes.
        let arena = unsafe { (*region).arena };
        if held.as_ref().is_none_or(|(of, _)| *of != arena) {
            drop(held.take());
            held = ARENA.get(arena as usize).map(|lock| (arena, lock.lock()));
        }
        // SAFETY: the lock of its arena is held, and the block is nobody's.
        unsafe { (*region).free(node.cast()) };
        // SAFETY: as above.
        if unsafe { (*region).is_idle() } {
            let surplus = held.as_mut().map_or(0, |(_, state)| state.give_surplus(region));
            if surplus > 0 {
                drop(held.take());
                hold_less(surplus);
                client::give_back(surplus);
            }
        }
    }
}

/// One block, asking for a lease where nothing is free.
pub(crate) fn refill(arena: usize, class: usize, patience: Patience) -> Result<NonNull<u8>, Refusal> {
    fork::prepare();
    let lock = ARENA.get(arena).ok_or(Refusal::Refused)?;
    let _growing = growing(patience);
    // Somebody else may have asked meanwhile.
    if let Some(block) = lock.lock().allocate(class) {
        return Ok(block);
    }
    let given = watch::given();
    let answer = match patience {
        Patience::None => grow_at_once(lock, arena, class),
        Patience::Until(_) | Patience::Endless => grow_by_waiting(lock, arena, class, patience),
    };
    match answer {
        Err(Refusal::NoDaemon) if daemonless::pass() => {
            // Not under the lock: the lease may have to be asked about.
            let wanted = lease(class);
            let plan = lock.lock().plan(class, wanted, usize::MAX, false);
            carry_out(plan, lock, arena, class, None)
        }
        Err(Refusal::Refused) => match take_from_others(class) {
            Some(block) => Ok(block),
            None if patience == Patience::None => grow_by_giving(lock, arena, class, given),
            None => Err(Refusal::Refused),
        },
        answer => answer,
    }
}

/// Opens `data_bytes` for many blocks at once under a grant of [`region::cost_of_new`] bytes, as a region of their own
/// kind: nothing else is allocated between.
pub(crate) fn open_under(grant: &mut usize, arena: usize, data_bytes: usize) -> bool {
    let Some(lock) = ARENA.get(arena) else { return false };
    let plan = lock.lock().plan_bytes(data_bytes, *grant, true);
    let cost = plan.cost();
    let opened = if cost <= *grant { plan.open(arena) } else { Err(0) };
    let mut state = lock.lock();
    if let Err(dropped) = opened {
        state.undo(plan);
        drop(state);
        client::give_back(dropped);
        return false;
    }
    state.settle(plan);
    drop(state);
    *grant -= cost;
    hold(cost);
    true
}

/// Gives idle pages back until `wanted` bytes are, or no more can be. The coordinator is told by the caller.
pub(crate) fn trim(wanted: usize) -> usize {
    let mut given = 0;
    for lock in &ARENA {
        if given < wanted {
            given += lock.lock().trim(wanted - given);
        }
    }
    hold_less(given);
    given
}

/// Forgets every region, in a forked child: all of them are the parent's.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn start_over() {
    for lock in &ARENA {
        // SAFETY: the caller is the only thread.
        unsafe { lock.start_over(Arena { first: ptr::null_mut() }) };
    }
    // SAFETY: as above.
    unsafe { GROWING.start_over(()) };
    NEAR_LEASES.store(0, Ordering::Relaxed);
    HELD_BYTES.store(0, Ordering::Relaxed);
}

/// How much the next lease opens, in bytes. Near the line it is little, so that nobody is refused for want of what lies idle
/// here: in the end no more than is needed.
fn lease(class: usize) -> usize {
    let needed = region::data_bytes_for(class);
    needed.max(if watch::is_tight() { near_lease() } else { LEASE_BYTES })
}

/// The same near the line. Only who grows calls this, one at a time.
fn near_lease() -> usize {
    let leases = NEAR_LEASES.load(Ordering::Relaxed);
    if leases > 0 {
        NEAR_LEASES.store(leases - 1, Ordering::Relaxed);
        return NEAR_LEASE_BYTES.load(Ordering::Relaxed);
    }
    let left = client::headroom().unwrap_or(0);
    let bytes = (left / LEASE_SHARE).min(LEASE_BYTES) / pages::size() * pages::size();
    NEAR_LEASE_BYTES.store(bytes, Ordering::Relaxed);
    NEAR_LEASES.store(LEASES_PER_LOOK, Ordering::Relaxed);
    bytes
}

/// A lease was refused: for a while each opens what is needed.
fn shrink_leases() {
    watch::note_refusal();
    NEAR_LEASE_BYTES.store(0, Ordering::Relaxed);
    NEAR_LEASES.store(LEASES_PER_LOOK, Ordering::Relaxed);
}

fn grow_at_once(lock: &Lock<Arena>, arena: usize, class: usize) -> Result<NonNull<u8>, Refusal> {
    let mut wanted = lease(class);
    loop {
        let plan = lock.lock().plan(class, wanted, usize::MAX, true);
        match client::reserve_at_once(plan.cost()) {
            Ok(grant) => return carry_out(plan, lock, arena, class, Some(grant)),
            Err(refusal) => {
                lock.lock().undo(plan);
                let needed = region::data_bytes_for(class);
                if refusal == Refusal::NoDaemon || wanted == needed {
                    return Err(refusal);
                }
                shrink_leases();
                wanted = needed;
            }
        }
    }
}

/// The last resort of who does not wait: memory that lies idle here goes back for what is needed, unless there was none,
/// nor any that the watcher has given back since.
fn grow_by_giving(
    lock: &Lock<Arena>,
    arena: usize,
    class: usize,
    given: u32,
) -> Result<NonNull<u8>, Refusal> {
    let needed = region::data_bytes_for(class);
    client::give_back(watch::give_idle(region::cost_of_new(needed)));
    if watch::given() == given {
        return Err(Refusal::Refused);
    }
    let plan = lock.lock().plan(class, needed, usize::MAX, true);
    match client::reserve_at_once(plan.cost()) {
        Ok(grant) => carry_out(plan, lock, arena, class, Some(grant)),
        Err(refusal) => {
            lock.lock().undo(plan);
            Err(refusal)
        }
    }
}

/// What is opened is decided when the grant comes: until then others may use and open what they need.
fn grow_by_waiting(
    lock: &Lock<Arena>,
    arena: usize,
    class: usize,
    patience: Patience,
) -> Result<NonNull<u8>, Refusal> {
    let needed = region::data_bytes_for(class);
    let most = region::cost_of_new(needed);
    let grant = client::reserve(most, patience)?;
    let plan = lock.lock().plan(class, needed, most, true);
    carry_out(plan, lock, arena, class, Some(grant))
}

fn carry_out(
    plan: Plan,
    lock: &Lock<Arena>,
    arena: usize,
    class: usize,
    grant: Option<Grant>,
) -> Result<NonNull<u8>, Refusal> {
    let opened = plan.open(arena);
    let cost = plan.cost();
    let mut state = lock.lock();
    let block = if opened.is_ok() {
        state.settle(plan);
        state.allocate(class)
    } else {
        state.undo(plan);
        None
    };
    drop(state);
    if let Some(grant) = grant {
        if opened.is_ok() {
            hold(cost);
        }
        client::settled(&grant);
        client::give_back(opened.err().unwrap_or(0));
    }
    block.ok_or(Refusal::Refused)
}

fn take_from_others(class: usize) -> Option<NonNull<u8>> {
    ARENA.iter().find_map(|lock| lock.lock().allocate(class))
}

/// How an arena is going to grow.
#[derive(Debug)]
enum Plan {
    /// Pages of these holes come back.
    Fill { region: *mut Region, holes: Holes, bytes: usize },
    /// A region is opened further.
    More { region: *mut Region, data_bytes: usize, bytes: usize },
    /// Another region begins.
    New { region: std::cell::Cell<*mut Region>, data_bytes: usize, asked: bool },
}

impl Plan {
    /// Bytes that are populated by it.
    fn cost(&self) -> usize {
        match self {
            Self::Fill { bytes, .. } | Self::More { bytes, .. } => *bytes,
            Self::New { data_bytes, .. } => region::cost_of_new(*data_bytes),
        }
    }

    /// Maps and populates, without any lock. `Err`: the kernel has no more; bytes that were populated in vain, and are not
    /// any more.
    fn open(&self, arena: usize) -> Result<(), usize> {
        match self {
            Self::Fill { holes, .. } => fill(*holes),
            Self::More { region, data_bytes, .. } => Region::open_more(*region, *data_bytes),
            Self::New { region, data_bytes, asked } => {
                let arena = u32::try_from(arena).unwrap_or(0);
                region.set(region::create(*data_bytes, *asked, arena)?);
                Ok(())
            }
        }
    }
}

fn fill(holes: Holes) -> Result<(), usize> {
    if holes.into_iter().all(Hole::populate) {
        return Ok(());
    }
    Err(holes.into_iter().map(Hole::drop_populated).sum())
}

impl Arena {
    fn regions(&self) -> Regions {
        Regions(self.first)
    }

    fn allocate(&mut self, class: usize) -> Option<NonNull<u8>> {
        // What was taken while nobody answered was not granted, and is not handed out again as if it were.
        let asks = client::is_connected();
        // SAFETY: the list leads through this arena's regions, whose lock is held.
        let mut regions = self.regions().filter(|region| unsafe { (**region).head.asked } || !asks);
        // SAFETY: as above.
        regions.find_map(|region| unsafe { (*region).allocate(class) })
    }

    /// How to open `wanted` bytes, with a block of this class among them, for `limit` bytes at most. The smallest hole that
    /// will do comes first, unless opening costs less and no more than that is wanted.
    fn plan(&mut self, class: usize, wanted: usize, limit: usize, asked: bool) -> Plan {
        let opening = self.plan_bytes(wanted, limit, asked);
        let limit = if wanted == region::data_bytes_for(class) { opening.cost() } else { limit };
        for region in self.regions().filter(|_| asked) {
            // SAFETY: one of this arena's regions, whose lock is held.
            let state = unsafe { &mut *region };
            if let Some(first) = state.smallest_hole(class).filter(|first| *first <= limit) {
                let (holes, bytes) = state.take_holes(class, first, wanted.min(limit));
                self.undo(opening);
                return Plan::Fill { region, holes, bytes };
            }
        }
        opening
    }

    /// How to open `data_bytes` in one piece.
    fn plan_bytes(&mut self, data_bytes: usize, limit: usize, asked: bool) -> Plan {
        for region in self.regions() {
            // SAFETY: one of this arena's regions, whose lock is held.
            let state = unsafe { &mut *region };
            if state.head.asked == asked
                && !state.growing
                && state.room() >= data_bytes
                && state.cost_of_more(data_bytes) <= limit
            {
                state.growing = true;
                return Plan::More { region, data_bytes, bytes: state.cost_of_more(data_bytes) };
            }
        }
        Plan::New { region: std::cell::Cell::new(ptr::null_mut()), data_bytes, asked }
    }

    /// What a plan opened is this arena's to hand out.
    fn settle(&mut self, plan: Plan) {
        match plan {
            // SAFETY: one of this arena's regions, whose lock is held.
            Plan::Fill { region, holes, .. } => unsafe { (*region).fill_holes(holes) },
            Plan::More { region, data_bytes, .. } => {
                // SAFETY: as above.
                let state = unsafe { &mut *region };
                state.add(data_bytes);
                state.growing = false;
            }
            Plan::New { region, .. } => {
                // SAFETY: nobody else knows it yet.
                unsafe { (*region.get()).next = self.first };
                self.first = region.get();
            }
        }
    }

    /// Nothing came of a plan.
    fn undo(&mut self, plan: Plan) {
        match plan {
            // SAFETY: one of this arena's regions, whose lock is held.
            Plan::Fill { region, holes, .. } => unsafe { (*region).keep_holes(holes) },
            // SAFETY: as above.
            Plan::More { region, .. } => unsafe { (*region).growing = false },
            Plan::New { .. } => {}
        }
    }

    /// Idle memory given back: whole regions, then pages of free blocks.
    fn trim(&mut self, wanted: usize) -> usize {
        let mut given = 0;
        let mut next = self.first;
        while let Some(region) = NonNull::new(next) {
            let region = region.as_ptr();
            // SAFETY: one of this arena's regions, whose lock is held.
            let state = unsafe { &mut *region };
            next = state.next;
            if given >= wanted || !state.head.asked {
                continue;
            }
            given += if state.is_idle() { self.destroy(region) } else { state.punch(wanted - given) };
        }
        given
    }

    /// Nothing is left in `region`: it is unmapped when enough others are like it. Bytes held no longer.
    fn give_surplus(&mut self, region: *mut Region) -> usize {
        // SAFETY: these are this arena's regions, whose lock is held.
        let idle = self.regions().filter(|region| unsafe { (**region).is_idle() }).count();
        if idle <= SPARE_REGIONS {
            return 0;
        }
        self.destroy(region)
    }

    fn destroy(&mut self, region: *mut Region) -> usize {
        let mut link = &raw mut self.first;
        // SAFETY: links lead through this arena's regions, whose lock is held.
        while !unsafe { *link }.is_null() {
            // SAFETY: as above.
            if unsafe { *link } == region {
                // SAFETY: as above; it is taken off the list.
                unsafe { *link = (*region).next };
                // SAFETY: it is idle, and nobody finds it any more.
                let asked = unsafe { (*region).head.asked };
                // SAFETY: as above.
                let bytes = unsafe { Region::destroy(region) };
                return if asked { bytes } else { 0 };
            }
            // SAFETY: as above.
            link = unsafe { &raw mut (**link).next };
        }
        0
    }
}

/// The regions of an arena whose lock is held.
struct Regions(*mut Region);

impl Iterator for Regions {
    type Item = *mut Region;

    fn next(&mut self) -> Option<*mut Region> {
        let region = self.0;
        // SAFETY: whoever iterates holds the lock that guards the list.
        self.0 = NonNull::new(region).map(|region| unsafe { (*region.as_ptr()).next })?;
        Some(region)
    }
}

const _: () = assert!(class::PAYLOAD_BYTES_MAX + LEASE_BYTES < REGION_BYTES);
