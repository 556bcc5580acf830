//! Lines that are set and not in force.

use plimsoll_policy::account::Counted;
use std::collections::BTreeSet;

/// How many users are named of those that no account is left for.
const NAMED_MAX: usize = 5;

/// What to do when accounts run out.
pub(crate) const MORE_ACCOUNTS: &str = "all accounts are in use; raise maps.max_accounts and start again";

/// What is not in force of the lines there are.
#[derive(Debug, Default)]
pub(crate) struct Undrawn {
    /// Why drawing them came to no end.
    pub(crate) failed: Option<String>,
    /// Users with a line by number or of a group whom no account was left for.
    pub(crate) without_account: BTreeSet<Counted>,
}

impl Undrawn {
    /// Whether the lines are not in force, as far as is known.
    pub(crate) const fn is_all(&self) -> bool {
        self.failed.is_some()
    }

    /// What is not in force, and why; `None`: all is.
    pub(crate) fn words(&self) -> Option<String> {
        let without = || format!("NOT in force for {}: {MORE_ACCOUNTS}", named(&self.without_account));
        match &self.failed {
            Some(why) => Some(format!("NOT in force: {why}")),
            None => (!self.without_account.is_empty()).then(without),
        }
    }
}

pub(crate) fn named(users: &BTreeSet<Counted>) -> String {
    let first: Vec<String> = users.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match users.len().saturating_sub(first.len()) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::units::Uid;

    #[test]
    fn what_is_not_in_force_is_told_with_whom_and_why() {
        let mut undrawn = Undrawn::default();
        assert_eq!((undrawn.words(), undrawn.is_all()), (None, false));
        undrawn.without_account = (1000..1007).map(|uid| Uid(uid).into()).collect();
        let told = "NOT in force for user:1000, user:1001, user:1002, user:1003, user:1004 and 2 more: all accounts are in \
                    use; raise maps.max_accounts and start again";
        assert_eq!((undrawn.words().as_deref(), undrawn.is_all()), (Some(told), false));
        undrawn.failed = Some("no such program".into());
        assert_eq!(
            (undrawn.words().as_deref(), undrawn.is_all()),
            (Some("NOT in force: no such program"), true)
        );
    }
}
