//! User names and numbers. Names are looked up here, in the client, with the caller's own rights and name services: the
//! daemon must not wait for a directory server while memory runs out.

use crate::exit::Failure;
use nix::unistd::{Uid as SystemUid, User};
use plimsoll_policy::{
    account::{Account, AccountView},
    human,
    units::Uid,
    who::Who,
};
use std::collections::BTreeMap;

/// Reads WHO and turns a user name into its number; a number stays as it is, whether or not a user has it.
pub(crate) fn resolve(text: &str) -> Result<Who, Failure> {
    let who: Who = text.parse().map_err(Failure::usage)?;
    who.supported().map_err(Failure::usage)?;
    let Who::User(name) = who else { return Ok(who) };
    match User::from_name(&name) {
        Ok(Some(user)) => Ok(Who::Uid(Uid(user.uid.as_raw()))),
        Ok(None) => Err(Failure::failed(format_args!(
            "there is no user '{}'; see 'getent passwd', or give a uid",
            human::escaped(&name)
        ))),
        Err(error) => Err(Failure::failed(format_args!(
            "cannot look up user '{}': {}; give a uid",
            human::escaped(&name),
            error.desc()
        ))),
    }
}

/// Numbers to names, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<Uid, Option<String>>,
}

impl Names {
    /// The name of a user; `None` where there is none or it cannot be found out.
    pub(crate) fn of_uid(&mut self, uid: Uid) -> Option<String> {
        let look_up = || User::from_uid(SystemUid::from_raw(uid.0)).ok().flatten().map(|user| user.name);
        self.known.entry(uid).or_insert_with(look_up).clone()
    }

    /// The account with its name.
    pub(crate) fn fill_in(&mut self, view: &AccountView) -> AccountView {
        AccountView { name: self.of(view.account), ..view.clone() }
    }

    /// The name of an account.
    pub(crate) fn of(&mut self, account: Account) -> Option<String> {
        match account {
            Account::User(uid) => self.of_uid(uid),
        }
    }
}

#[cfg(test)]
mod tests;
