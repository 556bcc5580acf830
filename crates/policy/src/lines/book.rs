//! All lines together, and the rule of which one counts.

use super::{
    BTreeMap, BTreeSet, Bytes, Gid, HARD_BYTES_MIN, JobId, Jobs, Line, LineError, Members, Membership,
    PageSize, Pages, Place, Resolved, Source, StoredLine, Target, Uid, UidRange, Vec, validate,
};
use crate::account::Counted;
use alloc::sync::Arc;
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};

/// Lines of users' own that are kept, of all users together: in the file that keeps them they leave room for as many of the
/// administrator's.
pub const OWN_LINES_MAX: usize = 2048;

/// Lines of cgroups and of the machine that are kept: each is looked at again and again.
pub const MEASURED_LINES_MAX: usize = 256;

/// Every line there is: from the configuration, from the state folder, and users' own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineBook {
    range: UidRange,
    config: BTreeMap<Target, Line>,
    state: BTreeMap<Target, Line>,
    own: BTreeMap<Uid, Line>,
    /// Shared: a book is copied for each change, and groups can be large.
    members: Arc<Members>,
    jobs: Arc<Jobs>,
}

/// What became of a line that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cleared {
    /// A line was removed.
    Removed,
    /// There was none.
    NothingSet,
    /// One was removed or not, and the configuration still draws one: it has to be removed there.
    StillInConfig,
}

impl LineBook {
    /// An empty book; `range` says whom the `default` line is for.
    #[must_use]
    pub fn new(range: UidRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// Whom the `default` line is for.
    #[must_use]
    pub const fn range(&self) -> UidRange {
        self.range
    }

    /// Takes over what the configuration says now, in the place of what it said before.
    pub fn replace_config(&mut self, range: UidRange, lines: impl IntoIterator<Item = (Target, Line)>) {
        self.range = range;
        self.config = lines.into_iter().collect();
    }

    /// Takes over who is in which group, in the place of what was known before.
    pub fn replace_members(&mut self, members: Members) {
        self.members = Arc::new(members);
    }

    /// The jobs there are.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// To add jobs, and to take them away.
    pub fn jobs_mut(&mut self) -> &mut Jobs {
        Arc::make_mut(&mut self.jobs)
    }

    /// Who is in a group, where it was ever looked for.
    #[must_use]
    pub fn membership(&self, gid: Gid) -> Option<&Membership> {
        self.members.get(&gid)
    }

    /// Whether a user is known to be in a group.
    #[must_use]
    pub fn is_member(&self, uid: Uid, gid: Gid) -> bool {
        self.members.get(&gid).is_some_and(|membership| membership.uids.contains(&uid))
    }

    /// Puts a line into its place and returns the one that was there. Permission and validity are the caller's to
    /// check, with [`crate::permission::may`] and [`validate`].
    pub fn set(&mut self, place: Place, line: Line) -> Option<Line> {
        match place {
            Place::Administrator(target) => self.state.insert(target, line),
            Place::Own(uid) => self.own.insert(uid, line),
            Place::Job(id, _) => self.jobs_mut().get_mut(id).and_then(|job| job.line.replace(line)),
        }
    }

    /// Removes a line. The administrator's `clear` of a user removes the user's own line too: afterwards only the
    /// configuration or the `default` line can apply.
    pub fn clear(&mut self, place: Place) -> Cleared {
        let (removed, target) = match place {
            Place::Own(uid) => return Self::cleared(self.own.remove(&uid).is_some()),
            Place::Job(id, _) => {
                return Self::cleared(
                    self.jobs_mut().get_mut(id).is_some_and(|job| job.line.take().is_some()),
                );
            }
            Place::Administrator(target) => {
                let own = matches!(&target, Target::User(uid) if self.own.remove(uid).is_some());
                (self.state.remove(&target).is_some() || own, target)
            }
        };
        if self.config.contains_key(&target) { Cleared::StillInConfig } else { Self::cleared(removed) }
    }

    const fn cleared(removed: bool) -> Cleared {
        if removed { Cleared::Removed } else { Cleared::NothingSet }
    }

    /// The line kept in a place, as typed.
    #[must_use]
    pub fn get(&self, place: &Place) -> Option<&Line> {
        match place {
            Place::Administrator(target) => self.state.get(target),
            Place::Own(uid) => self.own.get(uid),
            Place::Job(id, _) => self.jobs.get(*id)?.line.as_ref(),
        }
    }

    /// The administrator's line as typed: from the state folder, else from the configuration.
    #[must_use]
    pub fn administrators(&self, target: &Target) -> Option<(&Line, Source)> {
        let state = self.state.get(target).map(|line| (line, Source::State));
        state.or_else(|| self.config.get(target).map(|line| (line, Source::Config)))
    }

    /// Whether one more line can be kept there; the administrator's of users always can.
    #[must_use]
    pub fn has_room(&self, place: &Place) -> bool {
        match place {
            Place::Administrator(target) if target.measured().is_some() => {
                let measured = self.measured();
                measured.contains(target) || measured.len() < MEASURED_LINES_MAX
            }
            Place::Administrator(_) | Place::Job(..) => true,
            Place::Own(uid) => self.own.contains_key(uid) || self.own.len() < OWN_LINES_MAX,
        }
    }

    /// The users that the administrator drew a line for by number.
    #[must_use]
    pub fn numbered_uids(&self) -> BTreeSet<Uid> {
        let users = self.targets().filter_map(|target| match target {
            Target::User(uid) => Some(*uid),
            Target::Members(_)
            | Target::Group(_)
            | Target::Job(_)
            | Target::Default
            | Target::Cgroup(_)
            | Target::System => None,
        });
        users.collect()
    }

    /// The users that have a line of their own or from the administrator, by number; not those of `default` and of
    /// groups.
    #[must_use]
    pub fn explicit_uids(&self) -> BTreeSet<Uid> {
        self.numbered_uids().into_iter().chain(self.own.keys().copied()).collect()
    }

    /// The groups that have a line, for each of their members or for all together.
    #[must_use]
    pub fn gids(&self) -> BTreeSet<Gid> {
        self.targets().filter_map(Target::gid).collect()
    }

    /// The groups with a line for all their members together.
    #[must_use]
    pub fn groups(&self) -> BTreeSet<Gid> {
        let groups = self.targets().filter(|target| matches!(target, Target::Group(_)));
        groups.filter_map(Target::gid).collect()
    }

    /// Those of them whose line is in force, for each user who is in one: the tightest first.
    #[must_use]
    pub fn groups_of_members(&self, mem_total: Bytes, page_size: PageSize) -> BTreeMap<Uid, Vec<Gid>> {
        let drawn = |gid| Some((self.resolve_target(&Target::Group(gid), mem_total, page_size)?.hard, gid));
        let drawn: BTreeSet<_> = self.groups().into_iter().filter_map(drawn).collect();
        let mut groups: BTreeMap<Uid, Vec<Gid>> = BTreeMap::new();
        for (_, gid) in drawn {
            for uid in self.membership(gid).into_iter().flat_map(|membership| &membership.uids) {
                groups.entry(*uid).or_default().push(gid);
            }
        }
        groups
    }

    /// The accounts that a job of this user's is charged to besides its own, where it is started in that one: the user's, those
    /// of the user's groups, and the jobs'.
    #[must_use]
    pub fn above_job(
        &self,
        user: Uid,
        outer: Option<JobId>,
        mem_total: Bytes,
        page_size: PageSize,
    ) -> Vec<Counted> {
        let groups = self.groups_of_members(mem_total, page_size).remove(&user).unwrap_or_default();
        let jobs = outer.into_iter().flat_map(|outer| [outer].into_iter().chain(self.jobs.around(outer)));
        let above = groups.into_iter().map(Counted::from).chain(jobs.map(Counted::from));
        [user.into()].into_iter().chain(above).collect()
    }

    /// The cgroups that have a line, and the machine where it has one.
    #[must_use]
    pub fn measured(&self) -> BTreeSet<Target> {
        self.targets().filter(|target| target.measured().is_some()).cloned().collect()
    }

    /// The known members of all groups that have a line.
    #[must_use]
    pub fn member_uids(&self) -> BTreeSet<Uid> {
        let memberships = self.gids().into_iter().filter_map(|gid| self.membership(gid));
        memberships.flat_map(|membership| &membership.uids).copied().collect()
    }

    /// What the administrator drew a line for; some twice.
    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.config.keys().chain(self.state.keys())
    }

    /// No line is in force for anybody, and there is no job: nothing has to be attached. Lines of cgroups and of the machine
    /// need no programs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.targets().all(|target| target.measured().is_some())
    }

    /// The line in force for a user; `None` where there is none. A user's own counts under an administrator's only.
    #[must_use]
    pub fn resolve(&self, uid: Uid, mem_total: Bytes, page_size: PageSize) -> Option<Resolved> {
        let Some(theirs) = self.resolve_administrators(uid, mem_total, page_size) else {
            return self.resolve_with_jobs(uid);
        };
        let own = self
            .own
            .get(&uid)
            .and_then(|line| resolve_line(line, (Source::State, Place::Own(uid)), mem_total, page_size));
        match own {
            Some(own) if own.hard < theirs.hard => Some(tightened(own, &theirs)),
            Some(_) | None => Some(theirs),
        }
    }

    /// The line the administrator gave a user, by number, through a group or by `default`: what the user's own line may
    /// not exceed. Whoever has none and is in a group with a line for all together is counted: see [`Resolved::is_none`].
    #[must_use]
    pub fn resolve_administrators(
        &self,
        uid: Uid,
        mem_total: Bytes,
        page_size: PageSize,
    ) -> Option<Resolved> {
        let resolve = |target| self.resolve_target(&target, mem_total, page_size);
        let groups = || {
            let theirs = self.members.iter().filter(|(_, membership)| membership.uids.contains(&uid));
            theirs.map(|(gid, _)| *gid)
        };
        let of_groups = || groups().filter_map(|gid| resolve(Target::Members(gid))).reduce(more_generous);
        let default = || if self.range.contains(uid) { resolve(Target::Default) } else { None };
        let counted = || {
            let drawn =
                groups().filter_map(|gid| resolve(Target::Group(gid))).min_by_key(|line| line.hard)?;
            Some(Resolved { set_as: drawn.set_as, ..Resolved::none(drawn.source) })
        };
        resolve(Target::User(uid)).or_else(of_groups).or_else(default).or_else(counted)
    }

    /// The `default` line in force for [`LineBook::range`].
    #[must_use]
    pub fn resolve_default(&self, mem_total: Bytes, page_size: PageSize) -> Option<Resolved> {
        self.resolve_target(&Target::Default, mem_total, page_size)
    }

    /// The administrator's line of one target, whoever it applies to.
    #[must_use]
    pub fn resolve_target(&self, target: &Target, mem_total: Bytes, page_size: PageSize) -> Option<Resolved> {
        if let Target::Job(id) = target {
            return self.resolve_job(*id, mem_total, page_size);
        }
        let (line, source) = self.administrators(target)?;
        resolve_line(line, (source, Place::Administrator(target.clone())), mem_total, page_size)
    }

    /// The line of an account that events are charged to; `None` where there is none to draw.
    #[must_use]
    pub fn resolve_counted(&self, whose: Counted, mem_total: Bytes, page_size: PageSize) -> Option<Resolved> {
        match whose {
            Counted::User(uid) => self.resolve(uid, mem_total, page_size),
            Counted::Group(gid) => self.resolve_target(&Target::Group(gid), mem_total, page_size),
            Counted::Job(id) => self.resolve_job(id, mem_total, page_size),
        }
    }

    /// Where it is, in bytes; `None`: none is in force.
    #[must_use]
    pub fn hard_bytes(&self, whose: Counted, mem_total: Bytes, page_size: PageSize) -> Option<Bytes> {
        let line = self.resolve_counted(whose, mem_total, page_size).filter(|line| !line.is_none())?;
        Some(page_size.to_bytes(line.hard))
    }

    /// Who has jobs is counted, whoever draws a line for them or not.
    fn resolve_with_jobs(&self, uid: Uid) -> Option<Resolved> {
        let (id, _) = self.jobs.iter().find(|(_, job)| job.user == uid)?;
        Some(Resolved { set_as: Place::Job(id, uid), ..Resolved::none(Source::State) })
    }

    /// The line of a job, or none in force: it is counted in any case.
    fn resolve_job(&self, id: JobId, mem_total: Bytes, page_size: PageSize) -> Option<Resolved> {
        let job = self.jobs.get(id)?;
        let place = Place::Job(id, job.user);
        let drawn = job.line.as_ref();
        let drawn =
            drawn.and_then(|line| resolve_line(line, (Source::State, place.clone()), mem_total, page_size));
        Some(drawn.unwrap_or_else(|| Resolved { set_as: place, ..Resolved::none(Source::State) }))
    }

    /// Lines of the state folder that this machine would refuse today, because its RAM changed or the file was edited.
    /// Those of less than [`HARD_BYTES_MIN`] are not in force; the others are, with soft held down to hard.
    #[must_use]
    pub fn faults(&self, mem_total: Bytes) -> Vec<(Place, LineError)> {
        let state = self.state.iter().map(|(target, line)| (Place::Administrator(target.clone()), line));
        let own = self.own.iter().map(|(uid, line)| (Place::Own(*uid), line));
        state
            .chain(own)
            .filter_map(|(place, line)| validate(line, mem_total).err().map(|error| (place, error)))
            .collect()
    }

    /// What the state file has to keep, in a stable order.
    #[must_use]
    pub fn to_stored(&self) -> Vec<StoredLine> {
        let state = self.state.iter().map(|(target, line)| StoredLine {
            target: target.clone(),
            set_by: Uid::ROOT,
            line: *line,
        });
        let own = self.own.iter().map(|(uid, line)| StoredLine {
            target: Target::User(*uid),
            set_by: *uid,
            line: *line,
        });
        state.chain(own).collect()
    }

    /// Takes over what the state file kept. Returns the entries that nobody could have set (a user's for another, for a
    /// group or for `default`, or one more than is kept), which are left out.
    pub fn load_stored(&mut self, lines: impl IntoIterator<Item = StoredLine>) -> Vec<StoredLine> {
        let mut refused = Vec::new();
        for stored in lines {
            match Place::of(stored.set_by, stored.target.clone()) {
                Some(place) if self.has_room(&place) => {
                    self.set(place, stored.line);
                }
                Some(_) | None => refused.push(stored),
            }
        }
        refused
    }
}

/// Of two groups' lines the one with the larger hard limit; where they are the same, with the larger soft limit, then
/// with the milder action, then the first.
fn more_generous(first: Resolved, second: Resolved) -> Resolved {
    let generosity = |line: &Resolved| (line.hard, line.soft, Reverse(line.action.strictness()));
    if generosity(&second) > generosity(&first) { second } else { first }
}

/// A user's own lower line under the administrator's: it may not weaken what the other says.
fn tightened(own: Resolved, administrators: &Resolved) -> Resolved {
    let action = if own.action.strictness() < administrators.action.strictness() {
        administrators.action
    } else {
        own.action
    };
    Resolved { soft: own.soft.min(administrators.soft), action, ..own }
}

/// `None` for a line too small to be in force.
fn resolve_line(
    line: &Line,
    (source, set_as): (Source, Place),
    mem_total: Bytes,
    page_size: PageSize,
) -> Option<Resolved> {
    let hard_bytes = line.hard.resolve(mem_total);
    if hard_bytes < HARD_BYTES_MIN {
        return None;
    }
    let hard = page_size.to_pages(hard_bytes);
    let soft = match line.soft {
        Some(soft) => page_size.to_pages(soft.resolve(mem_total)).min(hard),
        None => nine_tenths(hard),
    };
    Some(Resolved { hard, soft, action: line.action, source, set_as })
}

/// 90 %, rounded down.
fn nine_tenths(pages: Pages) -> Pages {
    pages.saturating_sub(Pages(pages.0.div_ceil(10)))
}
