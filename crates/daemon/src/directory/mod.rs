//! Who is in which group, and which number a configured name has.
//!
//! The daemon itself only reads `/etc/passwd` and `/etc/group`. The name services are asked by a child ([`lookup`]) that
//! is given seconds; the guard thread never waits for it. What is not known stays as it was known before, also by an
//! earlier daemon, and is said.

mod asking;
mod files;
pub mod lookup;
mod memory;
mod services;

use asking::{Answers, Asking, GroupAnswer};
pub(crate) use files::Mark;
use files::{Files, Listed, Stamp};
use lookup::Job;
use memory::{Memory, Remembered};
use plimsoll_policy::{
    lines::{Members, Membership, renewed},
    units::{Gid, Uid},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// How many users without a say of their own are asked for by number: as many as there can be accounts.
const UIDS_MAX: usize = 65_536;

/// What has to be known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Users that the configuration names.
    pub(crate) users: BTreeSet<String>,
    /// Groups that the configuration names.
    pub(crate) groups: BTreeSet<String>,
    /// Groups that have a line.
    pub(crate) gids: BTreeSet<Gid>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named<T> {
    /// This number.
    Number(T),
    /// Nobody has this name.
    Nobody,
    /// That could not be found out, for this reason.
    Unanswered(String),
}

/// What is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) users: BTreeMap<String, Named<Uid>>,
    pub(crate) groups: BTreeMap<String, Named<Gid>>,
    pub(crate) members: Members,
    /// For the journal: what is not known, or no more.
    pub(crate) notes: Vec<String>,
}

impl Known {
    /// Whether a name's number is still to be found out.
    pub(crate) fn lacks_numbers(&self) -> bool {
        self.users.values().any(|named| matches!(named, Named::Unanswered(_)))
            || self.groups.values().any(|named| matches!(named, Named::Unanswered(_)))
    }
}

/// Files, memory and name services together.
#[derive(Debug)]
pub(crate) struct Directory {
    files: Files,
    memory: Memory,
    asking: Asking,
    /// Of the files when they were read last.
    stamp: Option<Stamp>,
    /// Doubts that the journal has.
    told: BTreeMap<Gid, String>,
}

impl Directory {
    /// With what an earlier daemon knew; and what was wrong with that.
    pub(crate) fn open(state: &Path) -> (Self, Option<String>) {
        let (memory, wrong) = Memory::open(state);
        let directory = Self {
            files: Files::default(),
            memory,
            asking: Asking::default(),
            stamp: None,
            told: BTreeMap::new(),
        };
        (directory, wrong)
    }

    /// Whether users or groups were added or removed here since they were read.
    pub(crate) fn files_changed(&self) -> bool {
        self.stamp.is_some_and(|stamp| stamp != self.files.stamp())
    }

    /// What is known without waiting for anybody.
    pub(crate) fn recall(&self, wanted: &Wanted) -> Known {
        let not_asked = "the name services have not been asked yet".to_owned();
        let answers = Answers { unfinished: Some(not_asked), ..Answers::default() };
        self.combine(wanted, &self.files.read(), &answers).0
    }

    /// The numbers of configured names, once the name services had their time. Nothing is kept of it yet: the state folder
    /// is made when the configuration is known to be good.
    pub(crate) fn ask_numbers(&mut self, wanted: &Wanted) -> Known {
        self.question(wanted, BTreeSet::new()).0
    }

    /// Remembers such numbers. The error is one line.
    pub(crate) fn keep_numbers(&mut self, known: &Known) -> Result<(), String> {
        let before = self.memory.get();
        let users = numbers(&before.users, &known.users);
        let groups = numbers(&before.groups, &known.groups);
        let members = before.members.clone();
        self.memory.put(Remembered { users, groups, members })
    }

    /// What is known once the name services had their time. `running`: users that run something now.
    pub(crate) fn ask(&mut self, wanted: &Wanted, running: BTreeSet<Uid>) -> Known {
        let (mut known, remembered) = self.question(wanted, running);
        if let Err(error) = self.memory.put(remembered) {
            known.notes.push(format!("what is known of groups was not saved: {error}"));
        }
        let doubts = known.members.iter().filter_map(|(gid, members)| Some((*gid, members.doubt.clone()?)));
        let doubts: BTreeMap<Gid, String> = doubts.collect();
        let new = doubts.iter().filter(|(gid, doubt)| self.told.get(gid) != Some(doubt));
        known.notes.extend(new.map(|(gid, doubt)| format!("members of group {gid}: {doubt}")));
        self.told = doubts;
        known
    }

    fn question(&mut self, wanted: &Wanted, running: BTreeSet<Uid>) -> (Known, Remembered) {
        // Before they are read: what changes meanwhile is noticed the next time.
        self.stamp = Some(self.files.stamp());
        let listed = self.files.read();
        let job = self.job(wanted, &listed, running);
        let nothing_to_ask = job.users.is_empty() && job.groups.is_empty() && job.gids.is_empty();
        let answers = if nothing_to_ask { Answers::default() } else { self.asking.ask(&job) };
        self.combine(wanted, &listed, &answers)
    }

    fn job(&self, wanted: &Wanted, listed: &Listed, running: BTreeSet<Uid>) -> Job {
        // A name that this machine's own files have is theirs.
        let users = wanted.users.iter().filter(|name| !listed.users.contains_key(name.as_bytes()));
        let groups = wanted.groups.iter().filter(|name| !listed.groups.contains_key(name.as_bytes()));
        let here = wanted.groups.iter().filter_map(|name| listed.groups.get(name.as_bytes()).copied());
        let gids: BTreeSet<Gid> = wanted.gids.iter().copied().chain(here).collect();
        let before = self.memory.get().members.values().flatten().copied();
        Job {
            users: users.cloned().collect(),
            groups: groups.cloned().collect(),
            uids: running.into_iter().chain(before).take(UIDS_MAX).collect(),
            gids,
            // One more than it is given: the daemon ends it, where there still is one.
            seconds: u32::try_from(asking::PATIENCE.as_secs()).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    /// What follows from all sources, and what of it is to be remembered.
    fn combine(&self, wanted: &Wanted, listed: &Listed, answers: &Answers) -> (Known, Remembered) {
        let remembered = self.memory.get();
        let mut notes: Vec<String> = listed.trouble.clone().into_iter().collect();
        let mut users = BTreeMap::new();
        for name in &wanted.users {
            let found = (listed.users.get(name.as_bytes()), answers.users.get(name));
            let named = number(name, found, remembered.users.get(name), answers, &mut notes);
            users.insert(name.clone(), named);
        }
        let (mut groups, mut gids) = (BTreeMap::new(), wanted.gids.clone());
        for name in &wanted.groups {
            let found = (listed.groups.get(name.as_bytes()), answers.groups.get(name));
            let named = number(name, found, remembered.groups.get(name), answers, &mut notes);
            gids.extend(if let Named::Number(gid) = named { Some(gid) } else { None });
            groups.insert(name.clone(), named);
        }
        let members: Members =
            gids.into_iter().map(|gid| (gid, self.membership(gid, listed, answers))).collect();
        let to_remember = Remembered {
            users: numbers(&remembered.users, &users),
            groups: numbers(&remembered.groups, &groups),
            members: members.iter().map(|(gid, membership)| (*gid, membership.uids.clone())).collect(),
        };
        (Known { users, groups, members, notes }, to_remember)
    }

    fn membership(&self, gid: Gid, listed: &Listed, answers: &Answers) -> Membership {
        let none = BTreeSet::new();
        let before = self.memory.get().members.get(&gid).unwrap_or(&none);
        let unheard = GroupAnswer::default();
        let said = answers.of_groups.get(&gid).unwrap_or(&unheard);
        let in_files = listed.members_of(gid);
        let uids = renewed(before, &in_files, &said.answer);
        let unconfirmed =
            uids.iter().filter(|uid| !in_files.contains(uid) && !said.answer.members.contains(uid)).count();
        let kept = match unconfirmed {
            0 => String::new(),
            1 => "; 1 member known before keeps its line".to_owned(),
            many => format!("; {many} members known before keep their line"),
        };
        let missing = said.unknown && !listed.has_group(gid);
        let doubt = if let Some(why) = answers.unfinished.as_ref().or(listed.trouble.as_ref()) {
            Some(format!("{why}{kept}"))
        } else if missing {
            Some(format!("no group has this number now{kept}"))
        } else if let Some(trouble) = &answers.trouble {
            Some(format!("{trouble}{kept}"))
        } else if said.strays > 0 {
            let plural = if said.strays == 1 { "name in it belongs" } else { "names in it belong" };
            Some(format!("{} {plural} to no user now{kept}", said.strays))
        } else if unconfirmed > 0 {
            Some(format!("not all are users now{kept}"))
        } else {
            None
        };
        Membership { uids, doubt }
    }
}

/// What a name stands for: in the files, by the services, or as remembered where these do not know it (any more).
fn number<T: Copy + std::fmt::Display>(
    name: &str,
    (here, said): (Option<&T>, Option<&Option<T>>),
    remembered: Option<&T>,
    answers: &Answers,
    notes: &mut Vec<String>,
) -> Named<T> {
    if let Some(number) = here.or(said.and_then(Option::as_ref)) {
        return Named::Number(*number);
    }
    let why = || {
        let why = answers.unfinished.as_ref().or(answers.trouble.as_ref());
        why.cloned().unwrap_or_else(|| "the name services said nothing of it".to_owned())
    };
    match (remembered, said) {
        (Some(number), _) => {
            notes.push(format!("'{name}' is not known now and keeps its number {number} of before"));
            Named::Number(*number)
        }
        (None, Some(_)) => Named::Nobody,
        (None, None) => Named::Unanswered(why()),
    }
}

/// What is remembered of names: what was, for earlier configurations too, and what is known now.
fn numbers<T: Copy>(before: &BTreeMap<String, T>, now: &BTreeMap<String, Named<T>>) -> BTreeMap<String, T> {
    let known = now.iter().filter_map(|(name, named)| match named {
        Named::Number(number) => Some((name.clone(), *number)),
        Named::Nobody | Named::Unanswered(_) => None,
    });
    let mut all: BTreeMap<String, T> = before.clone();
    all.extend(known);
    all
}

#[cfg(test)]
mod tests;
