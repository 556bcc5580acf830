//! What an account is called in metrics: never by a container's id or a cgroup's path, which come and go.

use super::page::Labels;
use crate::{directory::Mark, owners::read_capped};
use plimsoll_policy::{
    account::Account,
    container::container_of,
    units::{Gid, Uid},
};
use plimsoll_wire::text::{group_entries, passwd_entries};
use std::{collections::BTreeMap, path::Path};

/// Who has which name, as far as the daemon knows it without asking anybody.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Whose series it is. Accounts that are called the same are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// One user's.
    User(Uid),
    /// All members' of one group.
    Group(Gid),
    /// All jobs' of one user: they come and go, and so do their names.
    Jobs(Uid),
    /// A systemd unit's.
    Unit(String),
    /// All programs'.
    System,
    /// Of cgroups that no unit is above, or of more than are told apart.
    Other,
}

impl Of {
    /// `user`: who is known to have started it, where it is a job.
    pub(super) fn account(account: &Account, user: Option<Uid>) -> Self {
        match account {
            Account::User(uid) => Self::User(*uid),
            Account::Group(gid) => Self::Group(*gid),
            Account::Job(_) => user.map_or(Self::Other, Self::Jobs),
            Account::Cgroup(path) => {
                unit(path.as_str()).map_or(Self::Other, |unit| Self::Unit(unit.to_owned()))
            }
            Account::System => Self::System,
        }
    }

    /// Whether everybody on the machine may know.
    pub(super) const fn is_of_machine(&self) -> bool {
        matches!(self, Self::System)
    }

    /// What it is of, and its name.
    pub(super) fn labels(&self, names: &Names) -> Labels {
        let (kind, name) = match self {
            Self::User(uid) => ("user", Some(("user", names.of_user(*uid)))),
            Self::Group(gid) => ("group", Some(("group", names.of_group(*gid)))),
            Self::Jobs(uid) => ("jobs", Some(("user", names.of_user(*uid)))),
            Self::Unit(unit) => ("unit", Some(("unit", unit.clone()))),
            Self::System => ("system", None),
            Self::Other => ("other", None),
        };
        [("kind", kind.to_owned())].into_iter().chain(name).collect()
    }
}

/// The innermost systemd unit on a path that is not a container's, and in none.
fn unit(path: &str) -> Option<&str> {
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    let outside = ends.map_while(|end| path.get(..end).filter(|above| container_of(above).is_none()));
    let is_unit = |name: &&str| [".service", ".scope", ".slice"].iter().any(|kind| name.ends_with(kind));
    outside.filter_map(|above| above.rsplit('/').next()).filter(is_unit).last()
}

/// The names of users and groups.
#[derive(Debug, Default)]
pub(super) struct Names {
    users: BTreeMap<Uid, String>,
    groups: BTreeMap<Gid, String>,
    /// The files as they were read.
    read: [Option<Mark>; 2],
}

impl Names {
    /// Reads the files where they have changed since.
    pub(super) fn renew(&mut self) {
        let marks = [USERS, GROUPS].map(|file| Mark::of(Path::new(file)));
        if marks != self.read {
            // What cannot be read is as if it were empty: users have their numbers then.
            let [users, groups] =
                [USERS, GROUPS].map(|file| read_capped(Path::new(file)).unwrap_or_default());
            *self = Self { read: marks, ..Self::of(&users, &groups) };
        }
    }

    /// From the texts of `/etc/passwd` and `/etc/group`.
    pub(super) fn of(passwd: &[u8], group: &[u8]) -> Self {
        let users = passwd_entries(passwd).map(|user| (user.name, user.uid));
        let groups = group_entries(group).map(|group| (group.name, group.gid));
        Self { users: named(users), groups: named(groups), read: [None, None] }
    }

    fn of_user(&self, uid: Uid) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    fn of_group(&self, gid: Gid) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

/// By number. No two are called the same: of one name the first counts, as for the C library, and a name of digits alone
/// could be another's number.
fn named<'a, N: Copy + Ord>(entries: impl Iterator<Item = (&'a [u8], N)>) -> BTreeMap<N, String> {
    let mut numbers: BTreeMap<&str, N> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for (name, number) in entries {
        let Ok(name) = core::str::from_utf8(name) else { continue };
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && *numbers.entry(name).or_insert(number) == number {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests;
