//! The lines as they should be, and the order in which they are drawn: when accounts run out, the administrator's lines by
//! number come first.

use super::attached::Attached;
use crate::guard::{
    kernel::{Kernel, Programs as _},
    request::Change,
};
use plimsoll_policy::{
    account::{Action, Counted},
    lines::{LineBook, Place, Resolved, Target},
    units::{Bytes, Gid, PageSize, Uid},
};
use plimsoll_sys::bpf::{ABOVE_MOST, AccountFacts, BpfError, DefaultLine, Enforce, LineSet};
use std::collections::{BTreeMap, BTreeSet};

/// What the kernel side sends for an action; in a dry run it only tells.
pub(super) const fn signal_of(action: Action, dry_run: bool) -> u32 {
    match action {
        _ if dry_run => 0,
        Action::Kill => 9,
        Action::Term => 15,
        Action::Notify | Action::Deny => 0,
    }
}

/// Draws a line that was drawn just now. That of `default` for a user who runs nothing may have given way to another's since:
/// the programs draw it again when that user next allocates.
fn draw_again<K: Kernel>(attached: &Attached<K>, drawn: &LineSet) -> Result<(), BpfError> {
    match attached.limits.set_line(drawn) {
        Err(error) if error.is_full() && drawn.from_default => Ok(()),
        done => done.map(drop),
    }
}

/// Whether an account has this line already, and is charged where it is to be.
pub(super) fn stands(known: &AccountFacts, drawn: &LineSet) -> bool {
    known.hard == drawn.hard
        && known.soft == drawn.soft
        && known.signal == drawn.signal
        && known.from_default == drawn.from_default
        && known.above == drawn.above
        && known.effective.is_some()
}

/// The first of these accounts, as the programs have those above one. In order, as they are compared with what was drawn.
pub(super) fn in_places(accounts: impl Iterator<Item = u32>) -> [u32; ABOVE_MOST] {
    let mut places = [0; ABOVE_MOST];
    for (place, account) in places.iter_mut().zip(accounts) {
        *place = account;
    }
    places.sort_unstable();
    places
}

/// Those of users.
pub(super) fn by_user(accounts: &[AccountFacts]) -> BTreeMap<Uid, AccountFacts> {
    accounts.iter().filter_map(|one| Some((one.whose.user()?, *one))).collect()
}

/// Whether a line of its own, a group's or a job's, is to be enforced at once.
fn at_once(change: &Change, target: &Target) -> Enforce {
    match change {
        Change::One { place, now: true } if place.target() == *target => Enforce::Now,
        Change::One { .. } | Change::JobsEnded | Change::Turns | Change::All => Enforce::Ratchet,
    }
}

/// A group with a line for all its members together.
struct GroupLine {
    drawn: LineSet,
    action: Action,
    /// The number of its account, as far as there is one for it.
    account: Option<u32>,
    /// It is to be drawn: it is new, or another.
    moved: bool,
}

/// The lines as they should be.
pub(crate) struct Wanted<'a> {
    pub(super) book: &'a LineBook,
    pub(super) mem_total: Bytes,
    pub(super) page_size: PageSize,
    default: Option<Resolved>,
    pub(super) dry_run: bool,
    change: &'a Change,
    /// Whoever changes the own line.
    pub(super) own: Option<Uid>,
    /// Users that the administrator drew a line for by number.
    numbered: BTreeSet<Uid>,
    /// These, and users with a line of their own.
    explicit: BTreeSet<Uid>,
    /// Members of groups with a line, for each of them or for all together.
    members: BTreeSet<Uid>,
    /// Users who have jobs.
    pub(super) have_jobs: BTreeSet<Uid>,
    /// The groups with a line for all together that each of their members is charged to, the tightest first: more than
    /// [`ABOVE_MOST`], perhaps.
    charged: BTreeMap<Uid, Vec<Gid>>,
    /// These groups.
    groups: BTreeMap<Gid, GroupLine>,
    /// Users whose account was needed for another.
    cleared: BTreeSet<Uid>,
    /// Of these, who run something.
    pub(crate) gave_way: BTreeSet<Counted>,
    /// Those with a line by number, groups, and members, that no account was left for.
    pub(crate) without: BTreeSet<Counted>,
    /// Whom the change is about, one user or one group, where no account was left for them.
    pub(crate) refused: Option<Counted>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(
        book: &'a LineBook,
        change: &'a Change,
        mem_total: Bytes,
        page_size: PageSize,
        dry_run: bool,
    ) -> Self {
        let group = |gid| {
            let target = Target::Group(gid);
            let line = book.resolve_target(&target, mem_total, page_size)?;
            let drawn = LineSet {
                whose: gid.into(),
                user: None,
                hard: line.hard,
                soft: line.soft,
                signal: signal_of(line.action, dry_run),
                enforce: at_once(change, &target),
                from_default: false,
                above: [0; ABOVE_MOST],
            };
            Some((gid, GroupLine { drawn, action: line.action, account: None, moved: false }))
        };
        Self {
            book,
            mem_total,
            page_size,
            default: book.resolve_default(mem_total, page_size),
            dry_run,
            change,
            own: match change {
                Change::One { place: Place::Own(uid) | Place::Job(_, uid), .. } => Some(*uid),
                Change::One { .. } | Change::JobsEnded | Change::Turns | Change::All => None,
            },
            numbered: book.numbered_uids(),
            explicit: book.explicit_uids(),
            members: book.member_uids(),
            have_jobs: book.jobs().iter().map(|(_, job)| job.user).collect(),
            charged: book.groups_of_members(mem_total, page_size),
            groups: book.groups().into_iter().filter_map(group).collect(),
            cleared: BTreeSet::new(),
            gave_way: BTreeSet::new(),
            without: BTreeSet::new(),
            refused: None,
        }
    }

    pub(super) fn resolve(&self, uid: Uid) -> Option<Resolved> {
        self.book.resolve(uid, self.mem_total, self.page_size)
    }

    pub(super) fn line(&self, uid: Uid, line: &Resolved, enforce: Enforce) -> LineSet {
        LineSet {
            whose: uid.into(),
            user: Some(uid),
            hard: line.hard,
            soft: line.soft,
            signal: signal_of(line.action, self.dry_run),
            enforce,
            // It would give way to others, and what a job has is charged to it by its number.
            from_default: self.is_default(uid) && !self.have_jobs.contains(&uid),
            above: self.above(uid),
        }
    }

    /// The accounts of the groups that a user is in, as far as they have one; by number, as what they are compared with.
    fn above(&self, uid: Uid) -> [u32; ABOVE_MOST] {
        let accounts = self.groups_of(uid).iter().filter_map(|gid| self.groups.get(gid)?.account);
        in_places(accounts.take(self.charged_most(uid)))
    }

    /// Users in more groups than are charged.
    pub(crate) fn beyond(&self) -> impl Iterator<Item = Uid> {
        self.charged
            .iter()
            .filter(|(uid, groups)| groups.len() > self.charged_most(**uid))
            .map(|(uid, _)| *uid)
    }

    /// The groups that a user is in, the tightest first.
    pub(super) fn groups_of(&self, uid: Uid) -> &[Gid] {
        self.charged.get(&uid).map_or(&[], Vec::as_slice)
    }

    /// To how many of them the user is charged at most: a job is charged to one more than its user, to that one.
    pub(super) fn charged_most(&self, uid: Uid) -> usize {
        ABOVE_MOST.saturating_sub(usize::from(self.have_jobs.contains(&uid)))
    }

    /// Whether nobody drew a line for this user or for a group they are in.
    pub(super) fn is_default(&self, uid: Uid) -> bool {
        !self.explicit.contains(&uid) && !self.members.contains(&uid)
    }

    /// Users that may have a line, with it. When accounts run out, it shall be for those who run nothing now: they come last,
    /// and the administrator's lines by number first.
    fn lines(&self, standing: &BTreeMap<Uid, AccountFacts>, present: &BTreeSet<Uid>) -> Vec<(Uid, Resolved)> {
        let mut seen = BTreeSet::new();
        let here = self.numbered.iter().chain(&self.own).chain(standing.keys()).chain(present);
        let users = here.chain(&self.have_jobs).chain(&self.members).chain(&self.explicit);
        let once = users.copied().filter(|uid| seen.insert(*uid));
        once.filter_map(|uid| Some((uid, self.resolve(uid)?))).collect()
    }

    /// Takes away the lines of those who have none any more, which makes room.
    pub(super) fn clear_others<K: Kernel>(
        &self,
        attached: &mut Attached<K>,
        standing: &BTreeMap<Uid, AccountFacts>,
    ) -> Result<(), BpfError> {
        for uid in standing.keys().filter(|uid| self.resolve(**uid).is_none()) {
            attached.limits.clear_line((*uid).into())?;
            attached.watched.remove(&(*uid).into());
        }
        Ok(())
    }

    /// The one user or group whom the change is about.
    fn one(&self) -> Option<Counted> {
        match self.change {
            Change::One { place, .. } => match place.target() {
                Target::User(uid) => Some(Counted::User(uid)),
                Target::Group(gid) => Some(Counted::Group(gid)),
                Target::Job(id) => Some(Counted::Job(id)),
                Target::Default | Target::Members(_) | Target::Cgroup(_) | Target::System => None,
            },
            Change::JobsEnded | Change::Turns | Change::All => None,
        }
    }

    /// Has an account for each group's line, and none for one that has none any more. A new one is open until its members are
    /// charged to it.
    fn open_groups<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        standing: &[AccountFacts],
        users: &BTreeMap<Uid, AccountFacts>,
    ) -> Result<(), BpfError> {
        for one in standing {
            let Counted::Group(gid) = one.whose else { continue };
            if let Some(group) = self.groups.get_mut(&gid) {
                group.account = Some(one.index);
                group.moved = !stands(one, &group.drawn) || group.drawn.enforce == Enforce::Now;
            } else {
                attached.limits.clear_line(one.whose)?;
                attached.watched.remove(&one.whose);
            }
        }
        let new = self.groups.iter().filter(|(_, group)| group.account.is_none());
        let new: Vec<(Gid, LineSet)> = new.map(|(gid, group)| (*gid, group.drawn)).collect();
        for (gid, drawn) in new {
            let account = self.open_group(attached, &drawn, users)?;
            if account.is_none() {
                self.has_no_account(gid.into());
            }
            if let Some(group) = self.groups.get_mut(&gid) {
                (group.account, group.moved) = (account, account.is_some());
            }
        }
        for (gid, group) in self.groups.iter().filter(|(_, group)| group.account.is_some()) {
            attached.watch((*gid).into(), group.action);
        }
        Ok(())
    }

    /// The number of a group's new account; `None` where there is none left.
    fn open_group<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        line: &LineSet,
        users: &BTreeMap<Uid, AccountFacts>,
    ) -> Result<Option<u32>, BpfError> {
        let open = LineSet { enforce: Enforce::Open, ..*line };
        let mut number = attached.limits.set_line(&open);
        if number.as_ref().is_err_and(BpfError::is_full) && self.make_room(attached, users, line.whose)? {
            number = attached.limits.set_line(&open);
        }
        match number {
            Err(error) if error.is_full() => Ok(None),
            number => number.map(Some),
        }
    }

    /// Has all that members have charged to their groups, and draws the lines of groups that are to be drawn. What is there
    /// already ends nobody: a group's line is open while somebody with something comes below it, for as long as that takes. Who
    /// did is among `changed` then.
    fn join_groups<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        changed: &mut Vec<(Uid, LineSet, Action)>,
    ) -> Result<(), BpfError> {
        let (mut joining, mut opened) = (Vec::new(), BTreeSet::new());
        for (uid, one) in by_user(&attached.limits.accounts()?) {
            let above = self.above(uid);
            // Who was left without an account and got one meanwhile is not entered yet: the next draw has them join.
            if above == one.above || self.without.contains(&one.whose) {
                continue;
            }
            if let Some(line) = self.resolve(uid) {
                let line_set = self.line(uid, &line, self.enforce(uid, &line));
                joining.push((uid, line_set, line.action));
                opened.extend(above.into_iter().filter(|group| one.usage.0 > 0 && !one.is_below(*group)));
            }
        }
        let joined = self.join(attached, &joining, &opened);
        // Whatever came of that, no line stays open.
        self.draw_groups(attached).and(joined)?;
        changed.retain(|(one, ..)| !joining.iter().any(|(uid, ..)| uid == one));
        changed.append(&mut joining);
        Ok(())
    }

    /// Draws lines of users who come below groups, with those of the groups of these numbers open.
    fn join<K: Kernel>(
        &mut self,
        attached: &Attached<K>,
        joining: &[(Uid, LineSet, Action)],
        opened: &BTreeSet<u32>,
    ) -> Result<(), BpfError> {
        let is_opened = |group: &GroupLine| group.account.is_some_and(|account| opened.contains(&account));
        for group in self.groups.values_mut().filter(|group| is_opened(group)) {
            group.moved = true;
            attached.limits.set_line(&LineSet { enforce: Enforce::Open, ..group.drawn })?;
        }
        joining.iter().try_for_each(|(_, line_set, _)| draw_again(attached, line_set))
    }

    /// Notes that no account is left for a group or a job.
    pub(super) fn has_no_account(&mut self, whose: Counted) {
        if self.one() == Some(whose) {
            self.refused = Some(whose);
        }
        self.without.insert(whose);
    }

    /// Draws the lines of groups that are to be drawn.
    fn draw_groups<K: Kernel>(&self, attached: &Attached<K>) -> Result<(), BpfError> {
        for group in self.groups.values().filter(|group| group.moved) {
            attached.limits.set_line(&group.drawn)?;
        }
        Ok(())
    }

    /// Draws what changed. Lines that stand already, unchanged, keep the line in force that they have. One that no account is
    /// left for costs no other.
    pub(crate) fn draw<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        kernel: &mut K,
    ) -> Result<(), BpfError> {
        let accounts = attached.limits.accounts()?;
        let standing = by_user(&accounts);
        // A user's own change concerns that user; walking all processes is for the lines of many.
        let is_of_one = self.own.is_some() || self.one().is_some_and(|one| one.user().is_some());
        let present = if is_of_one { BTreeSet::new() } else { self.present(kernel) };
        if self.default.is_none() {
            attached.limits.set_default(None)?;
        }
        self.clear_others(attached, &standing)?;
        self.open_groups(attached, &accounts, &standing)?;
        let mut changed = Vec::new();
        for (uid, line) in self.lines(&standing, &present) {
            if self.cleared.contains(&uid) {
                continue;
            }
            let line_set = self.line(uid, &line, self.enforce(uid, &line));
            // Whoever comes below a group does so once all that they have is charged to their own account.
            let stays = line_set
                .above
                .into_iter()
                .filter(|group| standing.get(&uid).is_some_and(|one| one.is_below(*group)));
            let line_set = LineSet { above: in_places(stays), ..line_set };
            match self.draw_first(attached, (uid, &line_set), (&standing, &present))? {
                Some(true) => changed.push((uid, line_set, line.action)),
                Some(false) => drop(attached.watch(uid.into(), line.action)),
                // One of `default` is counted by the programs when that user next allocates.
                None if self.one() == Some(uid.into()) => self.refused = Some(uid.into()),
                None => drop(self.has_none(uid)),
            }
        }
        changed.retain(|(uid, ..)| !self.cleared.contains(uid));
        self.draw_default(attached)?;
        // Every account whose processes are being entered is open until all of them are: no race, and no kill for what
        // was there before the line. Twice, because only from the first time on is every event settled: the second
        // time, a line below present usage is drawn at the very usage.
        attached.scan(kernel)?;
        for (uid, line_set, action) in &changed {
            draw_again(attached, line_set)?;
            attached.watch((*uid).into(), *action);
        }
        self.join_groups(attached, &mut changed)?;
        let accounts = attached.limits.accounts()?;
        self.draw_jobs(attached, &accounts)?;
        // One that was never open was exact where that mattered before the first time.
        changed.retain(|(uid, ..)| self.own != Some(*uid));
        if !changed.is_empty() || self.groups.values().any(|group| group.moved) {
            attached.scan(kernel)?;
        }
        for (_, line_set, _) in &changed {
            draw_again(attached, line_set)?;
        }
        self.draw_groups(attached)?;
        attached.groups.renew(&attached.limits.accounts()?);
        Ok(())
    }

    /// As [`Wanted::draw_one`], by another's account where none is left; `None` where there is no such account either.
    fn draw_first<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        (uid, drawn): (Uid, &LineSet),
        (standing, present): (&BTreeMap<Uid, AccountFacts>, &BTreeSet<Uid>),
    ) -> Result<Option<bool>, BpfError> {
        let comes_first = self.numbered.contains(&uid) || self.own == Some(uid) || present.contains(&uid);
        let mut done = self.draw_one(attached, (uid, drawn), standing.get(&uid));
        if comes_first
            && done.as_ref().is_err_and(BpfError::is_full)
            && self.make_room(attached, standing, uid.into())?
        {
            done = self.draw_one(attached, (uid, drawn), None);
        }
        match done {
            Err(error) if error.is_full() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Notes that no account is left for somebody whom the administrator drew a line for.
    fn has_none(&mut self, uid: Uid) -> bool {
        (self.numbered.contains(&uid) || self.members.contains(&uid)) && self.without.insert(uid.into())
    }

    /// Takes the account of somebody without a line by number, for another; false where there is none. Who runs something gives
    /// way to the administrator's lines by number only: whoever has the least, and members last.
    fn make_room<K: Kernel>(
        &mut self,
        attached: &mut Attached<K>,
        standing: &BTreeMap<Uid, AccountFacts>,
        whose: Counted,
    ) -> Result<bool, BpfError> {
        let by_number = whose.user().is_none_or(|uid| self.numbered.contains(&uid));
        let may_go = |(uid, one): &(&Uid, &AccountFacts)| {
            let idle = one.processes == 0;
            let has_it = !self.cleared.contains(uid) && self.resolve(**uid).is_some();
            let may_go = !self.numbered.contains(uid) && !self.have_jobs.contains(uid);
            has_it && may_go && (idle || by_number)
        };
        let cost =
            |(uid, one): &(&Uid, &AccountFacts)| (one.processes > 0, self.members.contains(uid), one.usage);
        let Some((uid, one)) = standing.iter().filter(may_go).min_by_key(cost) else {
            return Ok(false);
        };
        if one.processes > 0 {
            // Until all is drawn: their next event would have the account back before it is another's.
            attached.limits.set_default(None)?;
            self.gave_way.insert(one.whose);
        }
        attached.limits.clear_line(one.whose)?;
        attached.watched.remove(&one.whose);
        self.cleared.insert(*uid);
        self.has_none(*uid);
        Ok(true)
    }

    /// Draws one line; true when it is to be drawn again after the scan: because it was left open, or because usage
    /// was not settled. An account keeps all that it is charged, wherever its line comes from.
    fn draw_one<K: Kernel>(
        &self,
        attached: &Attached<K>,
        (uid, drawn): (Uid, &LineSet),
        known: Option<&AccountFacts>,
    ) -> Result<bool, BpfError> {
        let Some(known) = known else {
            attached.limits.set_line(&self.first(uid, drawn))?;
            return Ok(true);
        };
        if stands(known, drawn) && drawn.enforce != Enforce::Now {
            return Ok(false);
        }
        attached.limits.set_line(drawn)?;
        Ok(true)
    }

    /// What is in force while what a user runs is still being entered: nothing, or where they draw it themselves what the
    /// programs would have drawn for them at their next event.
    fn first(&self, uid: Uid, drawn: &LineSet) -> LineSet {
        let theirs = |_: &Uid| self.book.resolve_administrators(uid, self.mem_total, self.page_size);
        match self.own.filter(|own| *own == uid).as_ref().and_then(theirs) {
            Some(line) => LineSet { above: drawn.above, ..self.line(uid, &line, Enforce::Now) },
            None => LineSet { enforce: Enforce::Open, ..*drawn },
        }
    }

    fn draw_default<K: Kernel>(&self, attached: &mut Attached<K>) -> Result<(), BpfError> {
        attached.coarse.default_soft = self.default.as_ref().map(|line| line.soft);
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
    fn enforce(&self, uid: Uid, line: &Resolved) -> Enforce {
        match self.change {
            Change::One { place, now: true } if self.concerns(&place.target(), uid, line) => Enforce::Now,
            // Nor for others, where their lines are drawn with it.
            Change::One { .. } if self.own.is_some() => Enforce::Within,
            Change::One { .. } | Change::JobsEnded | Change::Turns | Change::All => Enforce::Ratchet,
        }
    }

    /// What is said of one line of its own, a group's or a job's.
    pub(super) fn enforce_at_once(&self, target: &Target) -> Enforce {
        at_once(self.change, target)
    }

    fn concerns(&self, target: &Target, uid: Uid, line: &Resolved) -> bool {
        match target {
            Target::User(user) => *user == uid,
            Target::Members(_) => line.set_as.target() == *target,
            // Theirs is another.
            Target::Group(_) | Target::Job(_) => false,
            Target::Default => self.is_default(uid),
            Target::Cgroup(_) | Target::System => false,
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
