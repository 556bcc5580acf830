//! The coarse tier: while everybody is far from their line no event is looked at, and all tasks are walked instead, as often as
//! the distance to the closest line asks for.

use super::attached::{Attached, Watch};
use crate::guard::{
    context::Context,
    kernel::{Kernel, Programs as _},
};
use plimsoll_policy::{
    limits::look_after,
    units::{Nanos, Pages},
};
use plimsoll_sys::bpf::{AccountFacts, Awaited, BpfError};
use plimsoll_wire::{abi, record::RecordKind};

/// Once somebody came close, each event is looked at for this long: attaching programs and taking them away stops every CPU for
/// a moment, and whoever asked for grants asks again. As often it is looked whether that is needed still.
const HOLD: Nanos = Nanos(5_000_000_000);

/// Where the look is late by so much, programs at the ticks settle what there is.
const LATE: Nanos = Nanos(20_000_000);

/// Whether it is in use, and what that was chosen by.
#[derive(Debug, Default)]
pub(crate) struct Coarse {
    /// No event is looked at.
    used: bool,
    /// When to look next: for who is close, or while each event is looked at whether all are far again.
    look: Option<Nanos>,
    /// Until then each event is looked at, whatever there is.
    held: Nanos,
    /// The soft limit of users without an account yet.
    pub(super) default_soft: Option<Pages>,
}

impl Coarse {
    /// Whether no event is looked at.
    pub(crate) const fn is_used(&self) -> bool {
        self.used
    }

    /// Whether the next look is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.look.is_some_and(|look| look <= now)
    }
}

/// Whether a record tells of somebody who may be near.
pub(super) const fn asks_for_events(kind: RecordKind) -> bool {
    match kind {
        RecordKind::Exact
        | RecordKind::Near
        | RecordKind::Copies
        | RecordKind::Crossed
        | RecordKind::Notify
        | RecordKind::Acted => true,
        RecordKind::Far | RecordKind::Freed | RecordKind::Judge => false,
    }
}

impl<K: Kernel> Attached<K> {
    /// Has each event looked at from here on. What came before is found by the next walk.
    ///
    /// # Errors
    /// As [`plimsoll_sys::bpf::Limits::watch_events`]: then ticks go on, and the next look tries again.
    fn look_at_events(&mut self) -> Result<(), BpfError> {
        self.limits.watch_events(true)?;
        self.limits.set_look(None)?;
        self.coarse.used = false;
        Ok(())
    }

    /// Lines are drawn: each event is looked at, and for a while, so that who draws their own again and again does not have
    /// programs attached and taken away each time.
    pub(super) fn begin_drawing(&mut self, now: Nanos) -> Result<(), BpfError> {
        if self.coarse.is_used() {
            self.coarse.held = now.saturating_add(HOLD);
        }
        self.look_at_events()
    }

    /// Somebody may be near: each event is looked at, and all tasks are walked at once.
    pub(crate) fn come_close(&mut self, context: &mut Context<K>) {
        if !self.coarse.is_used() {
            return;
        }
        self.coarse.held = context.now().saturating_add(HOLD);
        match self.look_at_events() {
            Ok(()) => self.hasten_scan(),
            Err(error) => context.notices.once("events", &error),
        }
    }

    /// Plans the next look by what a walk that was made just now has found, or has each event looked at.
    pub(crate) fn plan_look(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let (now, page_size) = (context.now(), context.ledger.page_size());
        let ((took, began), cpus) = (self.last_walk(), Some(self.limits.meta().cpus));
        let Rooms { left, most } = self.rooms(now)?;
        let after = |room: Option<Pages>, took: Nanos, is_coarse: bool| {
            look_after(page_size.to_bytes(room?), took, cpus, is_coarse)
        };
        let (used, ever) = (self.coarse.is_used(), after(most, Nanos(0), true).map(|_| HOLD));
        let after = after(left, took, used);
        let due = after.or(ever).map(|after| began.saturating_add(after));
        // Where nobody tells of it, a timer would wake CPUs that idle.
        self.coarse.look = due.filter(|due| context.kernel.ask_look(Awaited::Lines, *due));
        let Some(due) = self.coarse.look.filter(|_| after.is_some()) else {
            self.come_close(context);
            return Ok(());
        };
        // Ticks first, so that there is no moment without either.
        self.limits.set_look(Some(due.saturating_add(LATE)))?;
        if self.coarse.used {
            return Ok(());
        }
        self.coarse.used = true;
        self.limits.watch_events(false).or_else(|error| self.look_at_events().and(Err(error)))
    }

    /// How close somebody is to their soft limit.
    fn rooms(&mut self, now: Nanos) -> Result<Rooms, BpfError> {
        // Pages of files are charged without being taken: nothing bounds how fast.
        if self.limits.meta().charged_members & 1 << abi::PLIMSOLL_MEMBER_FILE != 0 {
            return Ok(Rooms { left: None, most: None });
        }
        let is_busy = self.inherited
            || !self.near.is_empty()
            || self.folds.are_owed()
            || self.watched.values().any(Watch::is_waiting)
            || (!self.coarse.is_used() && now < self.coarse.held);
        let accounts = self.limits.accounts()?;
        // For whoever has no account yet.
        let other = self.coarse.default_soft;
        let left = accounts.iter().map(room_of).chain(other.map(Some)).min().flatten();
        let most = accounts.iter().map(|one| one.soft).chain(other).min();
        Ok(Rooms { left: left.filter(|_| !is_busy), most })
    }
}

/// The smallest room below a soft limit.
struct Rooms {
    /// That is left; `None`: each event has to be looked at.
    left: Option<Pages>,
    /// That can ever be, while lines are as they are; `None`: each event always has to.
    most: Option<Pages>,
}

/// How far an account is from its soft limit at least; `None`: each of its events has to be looked at.
fn room_of(account: &AccountFacts) -> Option<Pages> {
    // A line that is being drawn, memory that is on its way back, grants that are to be touched.
    if account.effective.is_none() || account.near || account.dying.0 > 0 || account.reserved.0 > 0 {
        return None;
    }
    let reach = account.usage.saturating_add(account.copyable).saturating_add(account.lasting);
    Some(account.soft.saturating_sub(reach))
}
