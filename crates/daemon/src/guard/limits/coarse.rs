//! The coarse tier: while everybody is far from their line no event is looked at, and all tasks are walked instead, as often as
//! the distance to the closest line asks for.

use super::attached::Attached;
use crate::guard::{
    context::Context,
    kernel::{Kernel, Programs as _},
};
use plimsoll_policy::{
    limits::look_after,
    units::{Bytes, Nanos, Pages},
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
    pub(crate) fn look_at_events(&mut self) -> Result<(), BpfError> {
        self.limits.watch_events(true)?;
        self.limits.set_look(None)?;
        self.coarse.used = false;
        Ok(())
    }

    /// Somebody may be near: each event is looked at, and all tasks are walked at once.
    pub(super) fn come_close(&mut self, context: &mut Context<K>) {
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
        let now = context.now();
        let after = self.look_after(now, context)?;
        let due = now.saturating_add(after.unwrap_or(HOLD));
        // Where nobody tells of it, a timer would wake CPUs that idle.
        let told = context.kernel.ask_look(Awaited::Lines, due);
        self.coarse.look = told.then_some(due);
        if after.is_none() || !told {
            self.come_close(context);
            return Ok(());
        }
        // Ticks first, so that there is no moment without either.
        self.limits.set_look(Some(due.saturating_add(LATE)))?;
        if !core::mem::replace(&mut self.coarse.used, true) {
            self.limits.watch_events(false)?;
        }
        Ok(())
    }

    /// From now to the next look; `None`: each event has to be looked at.
    fn look_after(&mut self, now: Nanos, context: &Context<K>) -> Result<Option<Nanos>, BpfError> {
        let is_coarse = self.coarse.is_used();
        let meta = self.limits.meta();
        // Pages of files are charged without being taken: nothing bounds how fast.
        let charges_files = meta.charged_members & 1 << abi::PLIMSOLL_MEMBER_FILE != 0;
        let is_busy = self.inherited
            || !self.near.is_empty()
            || self.folds.are_owed()
            || self.watched.values().any(|watch| watch.is_waiting());
        if charges_files || is_busy || (!is_coarse && now < self.coarse.held) {
            return Ok(None);
        }
        let accounts = self.limits.accounts()?;
        let rooms = accounts.iter().map(room_of);
        // What is left for whoever has no account yet.
        let Some(room) = rooms.chain(self.coarse.default_soft.map(Some)).min().flatten() else {
            return Ok(None);
        };
        let room: Bytes = context.ledger.page_size().to_bytes(room);
        Ok(look_after(room, self.walk_took(), Some(meta.cpus), is_coarse))
    }
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
