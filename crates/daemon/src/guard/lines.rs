//! Lines into the programs: what is drawn is what the book says, and nothing is attached when it says nothing.

use super::{
    Guard,
    attached::Attached,
    kernel::{Kernel, Programs as _},
    request::Change,
};
use crate::{api::control::Refusal, coordinator::Word};
use plimsoll_policy::{
    account::Action,
    lines::{LineBook, Place, Resolved, Target},
    units::{Bytes, PageSize, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, BpfError, DefaultLine, Enforce, LineSet};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

impl<K: Kernel> Guard<K> {
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
                if let Err(error) = self.kernel.remove(&self.pins) {
                    self.notices.say(&error);
                }
            }
        }
        self.coordinator.tell(Word::Lines);
        drawn.map_err(|error| refused(&error))
    }

    fn draw_book(&mut self, change: Change) -> Result<(), BpfError> {
        if self.book.is_empty() {
            self.take_records();
            self.attached = None;
            self.tell_lines()?;
            return self.kernel.remove(&self.pins).map(|_| ());
        }
        let mut replaced = match self.attached {
            Some(_) => None,
            None => Attached::adopt_replaced(&self.kernel, &self.pins),
        };
        self.hear_out(replaced.as_mut());
        let attached = match self.attached.take() {
            Some(attached) => attached,
            None => Attached::adopt(&self.kernel, &self.pins)?,
        };
        let attached = self.attached.insert(attached);
        attached.limits.attend(self.limit_config.triggers.kernel)?;
        attached.limits.protect_cgroups(&self.shield.cgroup_ids())?;
        let page_size = self.ledger.page_size();
        let mut wanted = Wanted {
            book: &self.book,
            mem_total: self.mem_total,
            page_size,
            default: self.book.resolve_default(self.mem_total, page_size),
            dry_run: self.limit_config.dry_run,
            explicit: self.book.explicit_uids(),
            own: match change {
                Change::One { place: Place::Own(uid), .. } => Some(uid),
                Change::One { .. } | Change::All => None,
            },
            members: self.book.member_uids(),
            gave_way: BTreeSet::new(),
            without_room: 0,
        };
        wanted.draw(attached, change, &mut self.kernel)?;
        if wanted.without_room > 0 {
            self.notices.say(format_args!(
                "{} members of groups have no line: all accounts are in use; raise maps.max_accounts and start again",
                wanted.without_room
            ));
        }
        // Both are in force until the switch, so that there is no gap. What the old ones did is heard before it, because
        // it is gone with a daemon that dies behind it, and what they did last, after it.
        self.hear_out(replaced.as_mut());
        if let Some(attached) = &mut self.attached {
            attached.limits.take_place()?;
        }
        self.hear_out(replaced.as_mut());
        self.enforce_now()?;
        self.tell_lines()
    }

    /// Pages and bytes, for those who show them.
    pub(super) fn page_size(&self) -> PageSize {
        self.ledger.page_size()
    }
}

/// The lines as they should be.
struct Wanted<'a> {
    book: &'a LineBook,
    mem_total: Bytes,
    page_size: PageSize,
    default: Option<Resolved>,
    dry_run: bool,
    /// Users with a line of their own or from the administrator, by number.
    explicit: BTreeSet<Uid>,
    /// Whoever changes the own line.
    own: Option<Uid>,
    /// Members of groups with a line.
    members: BTreeSet<Uid>,
    /// Users who run nothing, and whose account was needed for another.
    gave_way: BTreeSet<Uid>,
    /// Members that no account was left for.
    without_room: usize,
}

impl Wanted<'_> {
    fn resolve(&self, uid: Uid) -> Option<Resolved> {
        self.book.resolve(uid, self.mem_total, self.page_size)
    }

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

    /// Whether nobody drew a line for this user or for a group they are in.
    fn is_default(&self, uid: Uid) -> bool {
        !self.explicit.contains(&uid) && !self.members.contains(&uid)
    }

    /// Users that may have a line, with it. When accounts run out, it shall be for members that run nothing now: they
    /// come last, and those with a line by number first.
    fn lines(&self, standing: &BTreeMap<Uid, AccountFacts>, present: &BTreeSet<Uid>) -> Vec<(Uid, Resolved)> {
        let mut seen = BTreeSet::new();
        let users = self.explicit.iter().chain(standing.keys()).chain(present).chain(&self.members);
        let once = users.copied().filter(|uid| seen.insert(*uid));
        once.filter_map(|uid| Some((uid, self.resolve(uid)?))).collect()
    }

    /// Takes away the lines of those who have none any more, which makes room.
    fn clear_others<K: Kernel>(
        &self,
        attached: &mut Attached<K>,
        standing: &BTreeMap<Uid, AccountFacts>,
    ) -> Result<(), BpfError> {
        for uid in standing.keys().filter(|uid| self.resolve(**uid).is_none()) {
            attached.limits.clear_line(*uid)?;
            attached.watched.remove(uid);
        }
        Ok(())
    }

    /// Draws what changed. Lines that stand already, unchanged, keep the line in force that they have.
    fn draw<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        change: Change,
        kernel: &mut K,
    ) -> Result<(), BpfError> {
        let accounts = attached.limits.accounts()?;
        let standing: BTreeMap<Uid, AccountFacts> = accounts.into_iter().map(|one| (one.uid, one)).collect();
        // A user's own change concerns that user; walking all processes is for the lines of many.
        let one = match change {
            Change::One { place, .. } => match place.target() {
                Target::User(uid) => Some(uid),
                Target::Default | Target::Group(_) => None,
            },
            Change::All => None,
        };
        let present = if one.is_some() { BTreeSet::new() } else { self.present(kernel) };
        if self.default.is_none() {
            attached.limits.set_default(None)?;
        }
        self.clear_others(attached, &standing)?;
        let mut changed = Vec::new();
        for (uid, line) in self.lines(&standing, &present) {
            if self.gave_way.contains(&uid) {
                continue;
            }
            let known = standing.get(&uid);
            let line_set = self.line(uid, &line, self.enforce(change, uid, &line));
            let mut drawn = self.draw_one(attached, &line_set, known);
            if drawn.as_ref().is_err_and(BpfError::is_full)
                && (self.explicit.contains(&uid) || present.contains(&uid))
                && self.make_room(attached, &standing)?
            {
                drawn = self.draw_one(attached, &line_set, known);
            }
            if !self.explicit.contains(&uid) && drawn.as_ref().is_err_and(BpfError::is_full) {
                // The others get their lines. One of `default` is counted by the programs when that user next allocates,
                // a member is told of by the caller.
                self.without_room = self.without_room.saturating_add(usize::from(!self.is_default(uid)));
                continue;
            }
            if drawn? {
                changed.push((line_set, line.action));
            } else {
                attached.watch(uid, line.action);
            }
        }
        changed.retain(|(line_set, _)| !self.gave_way.contains(&line_set.uid));
        self.draw_default(attached)?;
        // Every account whose processes are being entered is open until all of them are: no race, and no kill for what
        // was there before the line. Twice, because only from the first time on is every event settled: the second
        // time, a line below present usage is drawn at the very usage.
        attached.scan(kernel)?;
        for (line_set, action) in &changed {
            attached.limits.set_line(line_set)?;
            attached.watch(line_set.uid, *action);
        }
        // One that was never open was exact where that mattered before the first time.
        changed.retain(|(line_set, _)| line_set.enforce != Enforce::Within);
        if !changed.is_empty() {
            attached.scan(kernel)?;
        }
        for (line_set, _) in &changed {
            attached.limits.set_line(line_set)?;
        }
        Ok(())
    }

    /// Takes the account of somebody who runs nothing and has no line by number; false where there is none.
    fn make_room<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        standing: &BTreeMap<Uid, AccountFacts>,
    ) -> Result<bool, BpfError> {
        let idle = |one: &&AccountFacts| {
            let cleared = self.gave_way.contains(&one.uid) || self.resolve(one.uid).is_none();
            one.processes == 0 && !self.explicit.contains(&one.uid) && !cleared
        };
        let Some(uid) = standing.values().find(idle).map(|one| one.uid) else {
            return Ok(false);
        };
        attached.limits.clear_line(uid)?;
        attached.watched.remove(&uid);
        self.gave_way.insert(uid);
        self.without_room = self.without_room.saturating_add(usize::from(!self.is_default(uid)));
        Ok(true)
    }

    /// Draws one line; true when it is to be drawn again after the scan: because it was left open, or because usage
    /// was not settled. An account keeps all that it is charged, wherever its line comes from.
    fn draw_one<K: Kernel>(
        &self,
        attached: &Attached<K>,
        drawn: &LineSet,
        known: Option<&AccountFacts>,
    ) -> Result<bool, BpfError> {
        let Some(known) = known else {
            attached.limits.set_line(&self.first(drawn))?;
            return Ok(true);
        };
        let unchanged = known.hard == drawn.hard
            && known.soft == drawn.soft
            && known.signal == drawn.signal
            && known.from_default == drawn.from_default
            && known.effective.is_some();
        if unchanged && drawn.enforce != Enforce::Now {
            return Ok(false);
        }
        attached.limits.set_line(drawn)?;
        Ok(true)
    }

    /// What is in force while what a user runs is still being entered: nothing, or where they draw it themselves what the
    /// programs would have drawn for them at their next event.
    fn first(&self, drawn: &LineSet) -> LineSet {
        let theirs = |_: &Uid| self.book.resolve_administrators(drawn.uid, self.mem_total, self.page_size);
        match self.own.filter(|own| *own == drawn.uid).as_ref().and_then(theirs) {
            Some(line) => self.line(drawn.uid, &line, Enforce::Now),
            None => LineSet { enforce: Enforce::Open, ..*drawn },
        }
    }

    fn draw_default<K: Kernel>(&self, attached: &Attached<K>) -> Result<(), BpfError> {
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

    /// What a user says of the own line never raises what is in force for them above the administrator's.
    fn enforce(&self, change: Change, uid: Uid, line: &Resolved) -> Enforce {
        match change {
            Change::One { place, now: true } if self.concerns(place.target(), uid, line) => Enforce::Now,
            Change::One { .. } if self.own == Some(uid) => Enforce::Within,
            Change::One { .. } | Change::All => Enforce::Ratchet,
        }
    }

    fn concerns(&self, target: Target, uid: Uid, line: &Resolved) -> bool {
        match target {
            Target::User(user) => user == uid,
            Target::Group(_) => line.set_as == Place::Administrator(target),
            Target::Default => self.is_default(uid),
        }
    }

    /// Users that run something now: under the default line theirs are drawn before the programs may draw them, so that
    /// what they use already kills nobody.
    fn present(&self, kernel: &mut impl Kernel) -> BTreeSet<Uid> {
        let mut present = BTreeSet::new();
        if self.default.is_some() || !self.members.is_empty() {
            let listed = kernel.processes(|process| {
                present.insert(process.uid);
            });
            // Without the list, a user's first event draws the line: right, but not open for what runs already.
            if listed.is_err() {
                present.clear();
            }
        }
        present
    }
}
