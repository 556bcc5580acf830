//! How many connections there may be of whom. A share that is full turns the next one away. Where all places are taken, whoever
//! has most gives one up to a user who has fewer: no number of one user's connections keeps another one out.

use plimsoll_policy::units::Uid;
use std::collections::{BTreeMap, BTreeSet};

/// Connections of one user.
pub(super) const USER_MAX: usize = 256;
/// All of them. The unit has the service manager keep as many.
pub(super) const TOTAL_MAX: usize = 2048;

/// A connection. They count up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u64);

/// What becomes of one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// There is room.
    Free,
    /// This one has to go for it.
    Instead(ClientId),
    /// There is none.
    Refused,
}

/// Who has which.
#[derive(Debug, Default)]
pub(super) struct Shares {
    owners: BTreeMap<Uid, BTreeSet<ClientId>>,
    count: usize,
}

impl Shares {
    /// Whether there is room for one more of this owner's.
    pub(super) fn room_for(&self, owner: Uid) -> Entry {
        let own = self.owners.get(&owner).map_or(0, BTreeSet::len);
        if own >= USER_MAX {
            return Entry::Refused;
        }
        if self.count < TOTAL_MAX {
            return Entry::Free;
        }
        let most = self.owners.values().max_by_key(|clients| clients.len());
        let most = most.filter(|clients| clients.len() > own.saturating_add(1));
        // The one that came last: nobody who was there before somebody began to take many.
        most.and_then(BTreeSet::last).map_or(Entry::Refused, |last| Entry::Instead(*last))
    }

    /// One more.
    pub(super) fn enter(&mut self, owner: Uid, id: ClientId) {
        if self.owners.entry(owner).or_default().insert(id) {
            self.count = self.count.saturating_add(1);
        }
    }

    /// One is gone.
    pub(super) fn leave(&mut self, owner: Uid, id: ClientId) {
        let Some(clients) = self.owners.get_mut(&owner) else { return };
        if clients.remove(&id) {
            self.count = self.count.saturating_sub(1);
        }
        if clients.is_empty() {
            self.owners.remove(&owner);
        }
    }

    /// How many there are, and of how many users.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.count, self.owners.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters as many as there is room for, of at most so many; who had to go.
    fn fill(shares: &mut Shares, owner: u32, ids: std::ops::Range<u64>) -> (usize, Vec<ClientId>) {
        let (mut entered, mut gone) = (0, Vec::new());
        for id in ids.map(ClientId) {
            match shares.room_for(Uid(owner)) {
                Entry::Free => {}
                Entry::Instead(other) => {
                    let of = *shares.owners.iter().find(|(_, ids)| ids.contains(&other)).unwrap().0;
                    shares.leave(of, other);
                    gone.push(other);
                }
                Entry::Refused => continue,
            }
            shares.enter(Uid(owner), id);
            entered += 1;
        }
        (entered, gone)
    }

    #[test]
    fn one_user_has_a_share_and_no_more() {
        let mut shares = Shares::default();
        assert_eq!(fill(&mut shares, 1, 0..1000), (USER_MAX, vec![]));
        assert_eq!(fill(&mut shares, 2, 1000..1003), (3, vec![]));
        assert_eq!(shares.counts(), (USER_MAX + 3, 2));
        shares.leave(Uid(1), ClientId(0));
        shares.leave(Uid(1), ClientId(0));
        assert_eq!(shares.room_for(Uid(1)), Entry::Free);
    }

    #[test]
    fn many_users_together_keep_nobody_out_who_has_fewer() {
        let mut shares = Shares::default();
        let users = u32::try_from(TOTAL_MAX / USER_MAX).unwrap();
        for user in 0..users {
            let first = u64::from(user) * 1000;
            assert_eq!(fill(&mut shares, user, first..first + 1000).0, USER_MAX);
        }
        assert_eq!(shares.counts().0, TOTAL_MAX);
        let (entered, gone) = fill(&mut shares, 99, 90_000..90_010);
        assert_eq!((entered, gone.len()), (10, 10));
        assert!(gone.iter().all(|one| one.0 % 1000 >= 250), "who came last goes: {gone:?}");
        assert_eq!(shares.counts().0, TOTAL_MAX);
        assert_eq!(shares.owners[&Uid(99)].len(), 10);
        // Whoever has as many as the others takes nothing from them.
        let (entered, _) = fill(&mut shares, 98, 80_000..80_500);
        assert!((200..USER_MAX).contains(&entered), "{entered}");
    }
}
