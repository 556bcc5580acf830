//! Lines into the programs: what is drawn is what the book says, and nothing is attached when it says nothing.

use super::{
    attached::Attached,
    undrawn::{MORE_ACCOUNTS, named},
    wanted::Wanted,
};
use crate::{
    api::control::Refusal,
    guard::{
        Guard,
        kernel::{Kernel, Programs as _},
        last_defence::LineFacts,
        request::Change,
    },
    tmalloc::Message,
};
use plimsoll_policy::{
    account::Counted,
    lines::{LineBook, Place},
    units::PageSize,
};
use plimsoll_sys::bpf::{ABOVE_MOST, AccountFacts, BpfError};
use std::{collections::BTreeSet, sync::Arc};

impl From<BpfError> for Refusal {
    fn from(error: BpfError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// Tells whoever asked for a line that no account is left for it.
pub(super) fn refuse(refused: Option<Counted>) -> Result<(), Refusal> {
    refused.map_or(Ok(()), |whose| {
        Err(Refusal::Unavailable(format!("no line can be drawn for {whose}: {MORE_ACCOUNTS}")))
    })
}

impl<K: Kernel> Guard<K> {
    /// Brings the programs to what the book says.
    pub(crate) fn draw(&mut self, book: &Arc<LineBook>, change: &Change) -> Result<(), Refusal> {
        if change.is_measured() {
            self.take_book(book);
            self.measure(book, change);
            return Ok(());
        }
        let before = self.take_book(book);
        if *change == Change::Turns {
            self.tell_turns(&before);
            return Ok(());
        }
        // Before them: those who wait for a turn in a strict job are put into it with the others.
        let drawn = self.draw_strict(change).and_then(|()| self.draw_book(change));
        if let Err(refusal) = &drawn {
            self.take_book(&before);
            self.draw_strict(&Change::All).ok();
            self.take_back(change, refusal);
        } else {
            self.undrawn.failed = None;
            self.measure(book, change);
        }
        self.context.tmalloc.tell(Message::Lines);
        drawn
    }

    /// These are the lines now; those before.
    fn take_book(&mut self, book: &Arc<LineBook>) -> Arc<LineBook> {
        self.context.ledger.take_book(book);
        let due = self.turns_due.unwrap_or_else(|| self.context.kernel.now());
        self.turns_due = book.jobs().any_waits().then_some(due);
        core::mem::replace(&mut self.book, Arc::clone(book))
    }

    /// Draws the lines of cgroups and of the machine, which need no programs.
    pub(crate) fn measure(&mut self, book: &LineBook, change: &Change) {
        let now = self.context.now();
        self.measured.draw(book, change, (self.mem_total, self.context.ledger.page_size()), now);
    }

    /// A change failed: what there was before it is in force again, or is known not to be.
    fn take_back(&mut self, change: &Change, refusal: &Refusal) {
        self.undrawn.failed = match change {
            Change::All => Some(refusal.to_string()),
            // Loaded for the first line, which was not drawn: nothing stays attached for nobody. What a daemon before this
            // one left in force stays in force.
            Change::One { .. } if self.book.is_empty() => {
                self.attached = None;
                self.context.kernel.remove(&self.pins).err().map(|error| error.to_string())
            }
            // What was drawn for a job's user goes.
            Change::One { place: Place::Job(..), .. } if matches!(refusal, Refusal::Unavailable(_)) => {
                self.draw_jobs(&Change::JobsEnded).err().map(|refusal| refusal.to_string())
            }
            // Nothing was left half drawn.
            Change::One { .. } if matches!(refusal, Refusal::Unavailable(_)) => return,
            Change::One { .. } | Change::JobsEnded | Change::Turns => {
                self.draw_book(&Change::All).err().map(|refusal| refusal.to_string())
            }
        };
        if let Some(why) = &self.undrawn.failed {
            self.context.notices.say(format_args!("lines are NOT in force: {why}"));
        }
    }

    /// There are lines, and the programs for them cannot be had.
    pub(crate) fn leave_undrawn(&mut self, why: String) {
        self.context
            .notices
            .say(format_args!("lines are NOT in force, unless an earlier daemon left some: {why}"));
        self.undrawn.failed = Some(why);
    }

    pub(super) fn draw_book(&mut self, change: &Change) -> Result<(), Refusal> {
        // Programs stay a while after the last job: whoever runs one after the other does not have them loaded each time.
        let stays = *change == Change::JobsEnded && self.attached.is_some() && self.undrawn.failed.is_none();
        if self.book.is_empty() && !stays {
            self.take_last_records();
            self.attached = None;
            self.undrawn.without_account.clear();
            self.tell_lines()?;
            return Ok(self.context.kernel.remove(&self.pins).map(|_| ())?);
        }
        let (book, mem_total, page_size) =
            (Arc::clone(&self.book), self.mem_total, self.context.ledger.page_size());
        self.tell_folded_of(|whose| book.resolve_counted(whose, mem_total, page_size).is_none());
        if self.draw_jobs(change)? {
            return Ok(());
        }
        let mut replaced = match self.attached {
            Some(_) => None,
            None => Attached::adopt_replaced(&self.context.kernel, &self.pins),
        };
        self.hear_out(replaced.as_mut());
        let is_adopted = self.attached.is_none();
        let attached = match self.attached.take() {
            Some(attached) => attached,
            None => Attached::adopt(&self.context.kernel, &self.pins)?,
        };
        let attached = self.attached.insert(attached);
        attached.begin_drawing(self.context.kernel.now())?;
        attached.limits.attend(self.context.config.triggers.kernel)?;
        attached.limits.protect_exes(self.context.eligibility.shield.executables())?;
        self.context.eligibility.shield.protect_cgroups(&attached.limits)?;
        let mut wanted =
            Wanted::of(&self.book, change, self.mem_total, page_size, self.context.config.dry_run);
        let drawn = wanted.draw(attached, &mut self.context.kernel);
        let beyond = wanted.beyond().next();
        let Wanted { without, gave_way, refused, own, .. } = wanted;
        attached.shared_memory.drawn(own, self.context.kernel.now());
        self.tell_without(without, &gave_way);
        if let Some(uid) = beyond {
            let told = format!(
                "user:{uid} is in more groups with a line than {ABOVE_MOST}, or has jobs and is in as many: the tightest are charged"
            );
            self.context.notices.once("groups", &told);
        }
        drawn?;
        // Both are in force until the switch, so that there is no gap. What the old ones did is heard before it, because
        // it is gone with a daemon that dies behind it, and what they did last, after it.
        self.hear_out(replaced.as_mut());
        if let Some(attached) = &mut self.attached {
            attached.limits.take_place()?;
        }
        self.hear_out(replaced.as_mut());
        self.enforce_now()?;
        if is_adopted || *change == Change::All {
            self.hold_who_wait();
        }
        if let Some(attached) = &mut self.attached {
            attached.plan_look(&mut self.context)?;
        }
        self.tell_lines()?;
        refuse(refused)
    }

    /// Tells the last defence which lines there are.
    pub(crate) fn tell_lines(&mut self) -> Result<(), BpfError> {
        let accounts = match &mut self.attached {
            Some(attached) => attached.limits.accounts()?,
            None => Vec::new(),
        };
        self.tell_lines_of(&accounts);
        Ok(())
    }

    pub(super) fn tell_lines_of(&mut self, accounts: &[AccountFacts]) {
        let page_size = self.page_size();
        let lines = accounts.iter().filter_map(|account| LineFacts::new(account, page_size));
        self.context.last_defence.lines(lines.collect());
    }

    /// Says whom no account was left for: users of whom the administrator drew a line, and those who run something and had to
    /// give theirs up for one. Once, however often lines are drawn.
    fn tell_without(&mut self, without: BTreeSet<Counted>, gave_way: &BTreeSet<Counted>) {
        if without == self.undrawn.without_account && gave_way.is_empty() {
            return;
        }
        let numbered = self.book.numbered_uids();
        let (by_number, members): (BTreeSet<Counted>, BTreeSet<Counted>) =
            without.iter().copied().partition(|whose| whose.user().is_none_or(|uid| numbered.contains(&uid)));
        if !members.is_empty() {
            let count = members.len();
            self.context.notices.say(format_args!("{count} members of groups have no line: {MORE_ACCOUNTS}"));
        }
        if !by_number.is_empty() {
            self.context
                .notices
                .say(format_args!("no line is in force for {}: {MORE_ACCOUNTS}", named(&by_number)));
        }
        if !gave_way.is_empty() {
            self.context.notices.say(format_args!(
                "{} gave way to lines that the administrator drew by number, and have none: {MORE_ACCOUNTS}",
                named(gave_way)
            ));
        }
        self.undrawn.without_account = without;
    }

    /// Pages and bytes, for those who show them.
    pub(crate) fn page_size(&self) -> PageSize {
        self.context.ledger.page_size()
    }
}
