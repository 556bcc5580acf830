//! What an account is called in metrics: never by a container's id or a cgroup's path, which come and go.

use super::page::Labels;
use crate::{directory::Mark, owners::read_capped};
use plimsoll_policy::{account::Account, container::container_of, units::Uid};
use plimsoll_wire::text::passwd_entries;
use std::{collections::BTreeMap, path::Path};

/// Who has which name, as far as the daemon knows it without asking anybody.
const USERS: &str = "/etc/passwd";

/// Whose series it is. Accounts that are called the same are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    /// One user's.
    User(Uid),
    /// A systemd unit's.
    Unit(String),
    /// All programs'.
    System,
    /// Of cgroups that no unit is above, or of more than are told apart.
    Other,
}

impl Of {
    pub(super) fn account(account: &Account) -> Self {
        match account {
            Account::User(uid) => Self::User(*uid),
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
    pub(super) fn labels(&self, users: &Users) -> Labels {
        let (kind, name) = match self {
            Self::User(uid) => ("user", Some(("user", users.name(*uid)))),
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

/// The names of users.
#[derive(Debug, Default)]
pub(super) struct Users {
    names: BTreeMap<Uid, String>,
    /// The file as it was read.
    read: Option<Mark>,
}

impl Users {
    /// Reads the file where it has changed since.
    pub(super) fn renew(&mut self) {
        let mark = Mark::of(Path::new(USERS));
        if mark != self.read {
            // What cannot be read is as if it were empty: users have their numbers then.
            *self = Self { read: mark, ..Self::of(&read_capped(Path::new(USERS)).unwrap_or_default()) };
        }
    }

    /// From the text of `/etc/passwd`. No two users are called the same: of one name the first counts, as for the C library,
    /// and a name of digits alone could be another's number.
    pub(super) fn of(passwd: &[u8]) -> Self {
        let mut uids: BTreeMap<&str, Uid> = BTreeMap::new();
        let mut names = BTreeMap::new();
        for user in passwd_entries(passwd) {
            let Ok(name) = core::str::from_utf8(user.name) else { continue };
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number && *uids.entry(name).or_insert(user.uid) == user.uid {
                names.entry(user.uid).or_insert_with(|| name.to_owned());
            }
        }
        Self { names, read: None }
    }

    fn name(&self, uid: Uid) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests;
