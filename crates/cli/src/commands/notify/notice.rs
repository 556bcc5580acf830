//! What one user is told of one incident.

use plimsoll_api::accounts::{NearView, ProcessView};
use plimsoll_policy::{
    account::Account,
    human::{bytes, shown, span},
    incident::{Incident, Outcome},
    units::{Bytes, Nanos, Uid},
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
    /// What happened; `None`: a warning.
    pub(super) incident: Option<Incident>,
    /// Whose line is near; `None`: something happened.
    pub(super) near: Option<NearView>,
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
            incident: Some(incident.clone()),
            near: None,
        }
    }

    /// That an account comes near its line, before anything happens.
    pub(super) fn near(uid: Uid, name: Option<String>, near: &NearView, largest: &[ProcessView]) -> Self {
        let size = |size| bytes(Bytes(size));
        let (who, which) = match near.account {
            Account::Group(_) => ("The programs of your group", "The largest of yours"),
            Account::Job(_) => ("The programs of your job", "The largest"),
            Account::User(_) | Account::Cgroup(_) | Account::System => ("Your programs", "The largest"),
        };
        let mut text = vec![format!("{who} use {} of {}.", size(near.usage_bytes), size(near.hard_bytes))];
        text.extend(near.seconds_left.map(|left| {
            let left = match left {
                0 => "less than a second".to_owned(),
                left => span(Nanos(left.saturating_mul(1_000_000_000))),
            };
            format!("At the present rate the line is reached in {left}.")
        }));
        let named = |one: &ProcessView| {
            let held = one.anon_bytes.saturating_add(one.swap_bytes);
            format!("{} (process {}) with {}", shown(&one.comm), one.pid, size(held))
        };
        let named: Vec<String> = largest.iter().map(named).collect();
        text.extend((!named.is_empty()).then(|| format!("{which}: {}.", named.join(", "))));
        text.push(
            "What to do: save your work, and end what you need least. At the line the largest is killed."
                .to_owned(),
        );
        Self {
            uid: uid.0,
            name,
            title: "Your memory line is near".to_owned(),
            text: text.join("\n"),
            more: 0,
            incident: None,
            near: Some(near.clone()),
        }
    }

    /// In a word, for our own messages.
    pub(super) fn about(&self) -> String {
        self.incident
            .as_ref()
            .map_or_else(|| "a warning".to_owned(), |incident| format!("incident {}", incident.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::notify::sample;
    use plimsoll_policy::{account::Account, units::Pid};

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

    #[test]
    fn a_warning_tells_how_long_there_is_and_who_is_the_largest() {
        let account = Account::User(Uid(1000));
        let near = NearView { account, usage_bytes: 1900 << 20, hard_bytes: 2 << 30, seconds_left: Some(40) };
        let largest = ProcessView {
            pid: Pid(7),
            start_ns: 1,
            uid: Uid(1000),
            comm: "hog".to_owned(),
            charged_bytes: None,
            anon_bytes: 1 << 30,
            swap_bytes: 512 << 20,
            shared_bytes: 0,
            file_bytes: 0,
            error_bytes: 0,
        };
        let warning = Notice::near(Uid(1000), None, &near, &[largest]);
        let first = "Your programs use 1.9 GiB of 2.0 GiB.\nAt the present rate the line is reached in 40";
        assert!(warning.text.starts_with(first), "{}", warning.text);
        assert!(warning.text.contains("The largest: \"hog\" (process 7) with 1.5 GiB."), "{}", warning.text);
        assert_eq!(warning.about(), "a warning");
        let still = NearView { seconds_left: None, ..near };
        assert!(!Notice::near(Uid(1000), None, &still, &[]).text.contains("rate"));
    }
}
