//! Who is in which group, as far as it is known, and what an answer of the name services changes about that.

use super::{BTreeMap, BTreeSet, Gid, String, Uid};

/// The members of one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Those known.
    pub uids: BTreeSet<Uid>,
    /// Why some may be missing, or still be here though they left, as a sentence; `None`: all is known.
    pub doubt: Option<String>,
}

/// The members of each group that a line is drawn for.
pub type Members = BTreeMap<Gid, Membership>;

/// What the name services said of one group. Only what was said counts: silence about a user changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// They know the group. Otherwise nobody can be said not to be in it: a directory that cannot be reached looks like
    /// one that does not have the group.
    pub knows_group: bool,
    /// Users said to be in it.
    pub members: BTreeSet<Uid>,
    /// Users said to exist and not to be in it.
    pub others: BTreeSet<Uid>,
}

/// The members of a group after a look at the files of this machine and at an answer of the name services.
///
/// Whoever is named anywhere is a member. Whoever was one before stays one until the services know both group and user,
/// and say that the two do not belong together: an LDAP server that is down takes nobody's line away.
#[must_use]
pub fn renewed(before: &BTreeSet<Uid>, in_files: &BTreeSet<Uid>, answer: &Answer) -> BTreeSet<Uid> {
    let left = |uid: &Uid| answer.knows_group && answer.others.contains(uid);
    let staying = before.iter().filter(|uid| !left(uid));
    staying.chain(in_files).chain(&answer.members).copied().collect()
}
