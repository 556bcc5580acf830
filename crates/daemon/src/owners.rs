//! For whom a connection counts: all the subordinate uids of a user are that user, or rootless containers could take every
//! slot there is.

use crate::directory::Mark;
use plimsoll_policy::units::Uid;
use plimsoll_wire::text::{passwd_entries, subordinate_entries};
use std::{collections::BTreeMap, fs::File, io::Read as _, path::Path};

/// Who has subordinate uids, and which uid a name is.
const FILES: [&str; 2] = ["/etc/subuid", "/etc/passwd"];

/// The largest file that is read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Ranges of subordinate uids, as the machine's files have them.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By first uid: the last, and whose they are.
    ranges: BTreeMap<u32, (u32, Uid)>,
    /// The files as they were read.
    read: [Option<Mark>; 2],
}

impl Owners {
    /// Whom this uid counts for, now: the files are read where they have changed since. What cannot be read is as if it were
    /// empty.
    pub(crate) fn owner_now(&mut self, uid: Uid) -> Uid {
        self.renew();
        self.owner(uid)
    }

    /// As the machine's files have them now.
    pub(crate) fn of_machine() -> Self {
        let mut owners = Self::default();
        owners.renew();
        owners
    }

    fn renew(&mut self) {
        let marks = FILES.map(|path| Mark::of(Path::new(path)));
        if marks != self.read {
            let [subuid, passwd] = FILES.map(|path| read_capped(Path::new(path)).unwrap_or_default());
            *self = Self { read: marks, ..Self::of(&subuid, &passwd) };
        }
    }

    /// From the text of `/etc/subuid` and of `/etc/passwd`. The uids of an owner whom the latter does not know count as one,
    /// and so do those that root handed out: nobody is root for having them.
    pub(crate) fn of(subuid: &[u8], passwd: &[u8]) -> Self {
        let users: BTreeMap<&[u8], Uid> = passwd_entries(passwd).map(|user| (user.name, user.uid)).collect();
        let mut ranges = BTreeMap::new();
        for entry in subordinate_entries(subuid) {
            let number = || core::str::from_utf8(entry.owner).ok()?.parse().ok().map(Uid);
            let known = users.get(entry.owner).copied().or_else(number).filter(|owner| *owner != Uid::ROOT);
            let owner = known.unwrap_or(Uid(entry.first));
            ranges.insert(entry.first, (entry.last, owner));
        }
        Self { ranges, read: [None; 2] }
    }

    /// Whom this uid counts for.
    pub(crate) fn owner(&self, uid: Uid) -> Uid {
        match self.ranges.range(..=uid.0).next_back() {
            Some((_, (last, owner))) if uid.0 <= *last => *owner,
            Some(_) | None => uid,
        }
    }
}

/// At most 1 MiB of a file.
pub(crate) fn read_capped(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_uids_count_for_their_owner() {
        let owners = Owners::of(
            b"alice:100000:65536\n# bob\nbob:165536:65536\n1002:300000:10\ngone:400000:5\nroot:500000:5\nnonsense\n",
            b"root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n",
        );
        let cases = [
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_072, 231_072),
            (300_009, 1002),
            (300_010, 300_010),
            (400_003, 400_000),
            (500_004, 500_000),
        ];
        for (uid, owner) in cases {
            assert_eq!(owners.owner(Uid(uid)), Uid(owner), "of {uid}");
        }
    }
}
