//! What one user is told of one incident.

use plimsoll_policy::{
    incident::{Incident, Outcome},
    units::Uid,
};
use plimsoll_report::story::{self, Reader, Telling};
use serde::Serialize;
use std::collections::BTreeSet;

/// Of one incident so many users are told at most: a machine guard takes one process, a cgroup's end some.
const CONCERNED_MAX: usize = 64;

/// A notice, as a command gets it on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Notice {
    /// Who is told.
    pub(super) uid: u32,
    pub(super) name: Option<String>,
    /// In a few words.
    pub(super) title: String,
    /// In sentences, with what to do. Names of processes in it are quoted.
    pub(super) text: String,
    /// So many incidents of theirs came before this one since the last notice.
    pub(super) more: u64,
    pub(super) incident: Incident,
}

/// Whoever lost a process, or would have; where nobody did, whose line it was. Refusals are the program's own to tell.
pub(super) fn concerned(incident: &Incident) -> BTreeSet<Uid> {
    if matches!(incident.action, Outcome::Refuse | Outcome::Deny) {
        return BTreeSet::new();
    }
    let victims: BTreeSet<Uid> =
        incident.victims.iter().map(|victim| victim.uid).take(CONCERNED_MAX).collect();
    if victims.is_empty() {
        return incident
            .account
            .as_ref()
            .and_then(plimsoll_policy::account::Account::user)
            .into_iter()
            .collect();
    }
    victims
}

fn title(incident: &Incident) -> &'static str {
    match incident.action {
        Outcome::Kill => "A process of yours was killed: memory",
        Outcome::Term => "A process of yours was asked to end: memory",
        Outcome::Notify if incident.victims.is_empty() => "Your memory line was crossed",
        Outcome::Notify | Outcome::Deny | Outcome::Refuse => "Plimsoll: memory",
    }
}

impl Notice {
    pub(super) fn of(uid: Uid, name: Option<String>, incident: &Incident, more: u64) -> Self {
        let Telling { happened, deed, advice, .. } = story::tell(incident, name.as_deref(), Reader::User);
        let advice = advice.into_iter().next().map(|advice| format!("What to do: {advice}"));
        let others = match more {
            0 => None,
            1 => Some("One more came before it since the last notice; see 'plimsoll history'.".to_owned()),
            more => {
                Some(format!("{more} more came before it since the last notice; see 'plimsoll history'."))
            }
        };
        let whole = format!("All of it: 'plimsoll why {}'.", incident.id);
        let text: Vec<String> =
            happened.into_iter().chain(deed).chain(advice).chain(others).chain([whole]).collect();
        Self {
            uid: uid.0,
            name,
            title: title(incident).to_owned(),
            text: text.join("\n"),
            more,
            incident: incident.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::notify::sample;
    use plimsoll_policy::account::Account;

    #[test]
    fn whoever_lost_a_process_is_told_and_without_one_whose_line_it_was() {
        let killed = sample();
        let uid = killed.victims[0].uid;
        assert_eq!(concerned(&killed), BTreeSet::from([uid]));
        let nobody = Incident { victims: Vec::new(), account: Some(Account::User(Uid(7))), ..killed.clone() };
        assert_eq!(concerned(&nobody), BTreeSet::from([Uid(7)]));
        assert_eq!(concerned(&Incident { action: Outcome::Refuse, ..killed }), BTreeSet::new());
    }

    #[test]
    fn a_notice_says_who_was_killed_why_what_to_do_and_how_many_more() {
        let incident = sample();
        let notice = Notice::of(Uid(1000), Some("alice".to_owned()), &incident, 2);
        assert_eq!(notice.title, "A process of yours was killed: memory");
        for part in ["was killed", "What to do: ", "2 more came before it", "'plimsoll why "] {
            assert!(notice.text.contains(part), "{part}: {}", notice.text);
        }
        assert!(!Notice::of(Uid(1000), None, &incident, 0).text.contains("more came"));
    }
}
