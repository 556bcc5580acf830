//! How often each user is told: at most once a minute, then with how many there were.

use plimsoll_policy::{incident::Incident, units::Uid};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// From one notice to the same user to the next.
const APART: Duration = Duration::from_secs(60);
/// Of so many users it is known when they were told last. Of more, some are told sooner again.
const USERS_MAX: usize = 4096;

/// Whoever was told less than [`APART`] ago, and what has been held back since.
#[derive(Debug, Default)]
pub(super) struct Pace {
    told: BTreeMap<Uid, Told>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    /// The newest of those held back, and how many they are.
    held: Option<(Incident, u64)>,
}

impl Pace {
    /// Whether it is to be told now; else it is held back.
    pub(super) fn offer(&mut self, uid: Uid, incident: &Incident, now: Instant) -> bool {
        if let Some(told) = self.told.get_mut(&uid) {
            let count = told.held.as_ref().map_or(0, |(_, count)| *count);
            told.held = Some((incident.clone(), count.saturating_add(1)));
            return false;
        }
        if self.told.len() < USERS_MAX {
            self.told.insert(uid, Told { at: now, held: None });
        }
        true
    }

    /// What was held back long enough: to whom, the newest, and how many they are. Whoever is told is held back again.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(Uid, Incident, u64)> {
        let mut due = Vec::new();
        self.told.retain(|uid, told| {
            if now.saturating_duration_since(told.at) < APART {
                return true;
            }
            let Some((incident, count)) = told.held.take() else { return false };
            due.push((*uid, incident, count));
            told.at = now;
            true
        });
        due
    }

    /// How long it is until something that is held back is due; `None`: nothing is.
    pub(super) fn next_due(&self, now: Instant) -> Option<Duration> {
        let held = self.told.values().filter(|told| told.held.is_some());
        held.map(|told| (told.at + APART).saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::notify::sample;

    #[test]
    fn a_user_is_told_at_once_and_then_once_a_minute_with_the_number() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let numbered = |id| Incident { id, ..sample() };
        assert!(pace.offer(Uid(1000), &numbered(1), at(0)));
        assert_eq!(pace.next_due(at(0)), None);
        for id in 2..=1_000 {
            assert!(!pace.offer(Uid(1000), &numbered(id), at(1)));
        }
        // Another user's is no reason to wait.
        assert!(pace.offer(Uid(1001), &numbered(1_001), at(1)));
        assert_eq!(pace.next_due(at(10)), Some(Duration::from_secs(50)));
        assert!(pace.take_due(at(59)).is_empty());
        let due: Vec<_> =
            pace.take_due(at(60)).into_iter().map(|(uid, last, count)| (uid, last.id, count)).collect();
        assert_eq!(due, [(Uid(1000), 1_000, 999)]);
        assert!(!pace.offer(Uid(1000), &numbered(1_002), at(61)), "the minute begins anew");
        assert_eq!(pace.take_due(at(121)).len(), 1);
        assert!(pace.take_due(at(200)).is_empty());
        assert!(pace.offer(Uid(1000), &numbered(1_003), at(201)), "a quiet minute has passed");
    }
}
