//! Lines into the programs: what is drawn is what the book says, and nothing is attached when it says nothing.

use super::{Guard, attached::Attached, request::Change};
use crate::api::control::Refusal;
use plimsoll_policy::{
    account::Action,
    lines::{LineBook, Resolved, Target},
    units::{PageSize, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, BpfError, DefaultLine, Enforce, LineSet};
use std::{collections::BTreeSet, sync::Arc};

/// What the kernel side sends for an action; in a dry run it only tells.
const fn signal_of(action: Action, dry_run: bool) -> u32 {
    match action {
        _ if dry_run => 0,
        Action::Kill => 9,
        Action::Term => 15,
        Action::Notify | Action::Deny => 0,
    }
}

fn refused(error: &BpfError) -> Refusal {
    Refusal::Internal(error.to_string())
}

impl Guard {
    /// Brings the programs to what the book says.
    pub(crate) fn draw(&mut self, book: &Arc<LineBook>, change: Change) -> Result<(), Refusal> {
        let before = core::mem::replace(&mut self.book, Arc::clone(book));
        let drawn = self.draw_book(change);
        if drawn.is_err() {
            self.book = before;
            // Loaded for the first line, which was not drawn: nothing stays attached for nobody. What a daemon before
            // this one left in force stays in force.
            if self.book.is_empty() && change != Change::All {
                self.attached = None;
                if let Err(error) = self.pins.remove() {
                    self.notices.say(&error);
                }
            }
        }
        drawn.map_err(|error| refused(&error))
    }

    fn draw_book(&mut self, change: Change) -> Result<(), BpfError> {
        if self.book.is_empty() {
            self.attached = None;
            return self.pins.remove().map(|_| ());
        }
        let attached = match self.attached.take() {
            Some(attached) => attached,
            None => Attached::adopt(&self.pins)?,
        };
        let attached = self.attached.insert(attached);
        attached.limits.protect_cgroups(&self.shield.cgroup_ids())?;
        let page_size = self.ledger.page_size();
        let mut wanted = Wanted {
            book: &self.book,
            resolve: &|book, uid| book.resolve(uid, self.mem_total, page_size),
            default: self.book.resolve_default(self.mem_total, page_size),
            dry_run: self.limit_config.dry_run,
        };
        wanted.draw(attached, change, &mut self.proc)?;
        self.enforce_now()
    }

    /// Pages and bytes, for those who show them.
    pub(super) fn page_size(&self) -> PageSize {
        self.ledger.page_size()
    }
}

const fn enforce(now: bool) -> Enforce {
    if now { Enforce::Now } else { Enforce::Ratchet }
}

/// How a user's line is found.
type Resolve<'a> = &'a dyn Fn(&LineBook, Uid) -> Option<Resolved>;

/// The lines as they should be.
struct Wanted<'a> {
    book: &'a LineBook,
    resolve: Resolve<'a>,
    default: Option<Resolved>,
    dry_run: bool,
}

impl Wanted<'_> {
    fn line(&self, uid: Uid, line: &Resolved, enforce: Enforce) -> LineSet {
        LineSet {
            uid,
            hard: line.hard,
            soft: line.soft,
            signal: signal_of(line.action, self.dry_run),
            enforce,
            from_default: self.is_default(uid),
        }
    }

    /// Whether nobody drew a line for this user in particular.
    fn is_default(&self, uid: Uid) -> bool {
        !self.book.explicit_uids().contains(&uid)
    }

    /// Draws what changed. Lines that stand already, unchanged, keep the line in force that they have.
    fn draw(
        &mut self,
        attached: &mut Attached,
        change: Change,
        proc: &mut plimsoll_sys::process::ProcRoot,
    ) -> Result<(), BpfError> {
        let standing = attached.limits.accounts()?;
        // A user's own change concerns that user; walking all processes is for the lines of many.
        let one = match change {
            Change::One { target: Target::User(uid), .. } => Some(uid),
            Change::One { target: Target::Default, .. } | Change::All => None,
        };
        let present = if one.is_some() { BTreeSet::new() } else { self.present(proc) };
        let uids: BTreeSet<Uid> = self
            .book
            .explicit_uids()
            .into_iter()
            .chain(standing.iter().map(|one| one.uid))
            .chain(present)
            .collect();
        if self.default.is_none() {
            attached.limits.set_default(None)?;
        }
        let mut changed = Vec::new();
        for uid in uids {
            let known = standing.iter().find(|one| one.uid == uid);
            match (self.resolve)(self.book, uid) {
                None => {
                    if known.is_some() {
                        attached.limits.clear_line(uid)?;
                        attached.watched.remove(&uid);
                    }
                }
                Some(line) => {
                    let now =
                        matches!(change, Change::One { target, now: true } if self.concerns(target, uid));
                    let drawn = self.draw_one(attached, &self.line(uid, &line, enforce(now)), known, now);
                    if self.is_default(uid) && drawn.as_ref().is_err_and(BpfError::is_full) {
                        // Counted by the programs when this user next allocates; the others get their lines.
                        continue;
                    }
                    if drawn? {
                        changed.push((uid, line, now));
                    } else {
                        attached.watch(uid, line.action);
                    }
                }
            }
        }
        self.draw_default(attached)?;
        // Every account whose processes are being entered is open until all of them are: no race, and no kill for what
        // was there before the line. Twice, because only from the first time on is every event settled: the second
        // time, a line below present usage is drawn at the very usage.
        attached.scan()?;
        for (uid, line, now) in &changed {
            attached.limits.set_line(&self.line(*uid, line, enforce(*now)))?;
            attached.watch(*uid, line.action);
        }
        if !changed.is_empty() {
            attached.scan()?;
        }
        for (uid, line, now) in &changed {
            attached.limits.set_line(&self.line(*uid, line, enforce(*now)))?;
        }
        Ok(())
    }

    /// Draws one line; true when it is to be drawn again after the scan: because it was left open, or because usage
    /// was not settled.
    fn draw_one(
        &self,
        attached: &Attached,
        drawn: &LineSet,
        known: Option<&AccountFacts>,
        now: bool,
    ) -> Result<bool, BpfError> {
        let open = LineSet { enforce: Enforce::Open, ..*drawn };
        let Some(known) = known else {
            attached.limits.set_line(&open)?;
            return Ok(true);
        };
        if known.from_default != drawn.from_default {
            attached.limits.clear_line(drawn.uid)?;
            attached.limits.set_line(&open)?;
            return Ok(true);
        }
        let unchanged = known.hard == drawn.hard && known.soft == drawn.soft && known.signal == drawn.signal;
        if unchanged && !now {
            return Ok(false);
        }
        attached.limits.set_line(drawn)?;
        Ok(true)
    }

    fn draw_default(&self, attached: &Attached) -> Result<(), BpfError> {
        let Some(line) = &self.default else {
            return Ok(());
        };
        let range = self.book.range();
        attached.limits.set_default(Some(&DefaultLine {
            hard: line.hard,
            soft: line.soft,
            signal: signal_of(line.action, self.dry_run),
            uid_min: range.min,
            uid_max: range.max,
        }))
    }

    fn concerns(&self, target: Target, uid: Uid) -> bool {
        match target {
            Target::User(user) => user == uid,
            Target::Default => self.is_default(uid),
        }
    }

    /// Users that run something now and fall under the default line: theirs are drawn before the programs may draw
    /// them, so that what they use already kills nobody.
    fn present(&self, proc: &mut plimsoll_sys::process::ProcRoot) -> BTreeSet<Uid> {
        let mut present = BTreeSet::new();
        if self.default.is_some() {
            let range = self.book.range();
            let listed = proc.processes(|process| {
                if range.contains(process.uid) {
                    present.insert(process.uid);
                }
            });
            // Without the list, a user's first event draws the line: right, but not open for what runs already.
            if listed.is_err() {
                present.clear();
            }
        }
        present
    }
}
