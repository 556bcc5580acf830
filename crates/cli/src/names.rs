//! User names and numbers. Names are looked up here, in the client, with the caller's own rights and name services: the
//! daemon must not wait for a directory server while memory runs out.

use crate::exit::Failure;
use nix::unistd::{Gid as SystemGid, Group, Uid as SystemUid, User, getgrouplist};
use plimsoll_api::accounts::{AccountView, DefaultView, GroupView, UserView};
use plimsoll_api::status::Status;
use plimsoll_policy::{
    account::Account,
    human,
    lines::Target,
    units::{Gid, Uid},
    who::Who,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
};

/// Reads WHO and turns the name of a user or a group into its number; a number stays as it is, whether or not somebody
/// has it.
pub(crate) fn resolve(text: &str) -> Result<Who, Failure> {
    let who: Who = text.parse().map_err(Failure::usage)?;
    match who {
        Who::User(name) => resolve_user(&name),
        Who::Members(name) => resolve_group(&name).map(Who::MembersOf),
        Who::Group(name) => resolve_group(&name).map(Who::Gid),
        Who::Uid(_)
        | Who::MembersOf(_)
        | Who::Gid(_)
        | Who::Default
        | Who::Job(_)
        | Who::Cgroup(_)
        | Who::System => Ok(who),
    }
}

fn resolve_group(name: &str) -> Result<Gid, Failure> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Gid(group.gid.as_raw())),
        Ok(None) => Err(Failure::usage(format_args!(
            "there is no group '{}'; see 'getent group', or give a gid in its place",
            human::escaped(name)
        ))),
        Err(error) => Err(Failure::failed(format_args!(
            "cannot look up group '{}': {}; give a gid in its place",
            human::escaped(name),
            error.desc()
        ))),
    }
}

fn resolve_user(name: &str) -> Result<Who, Failure> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Who::Uid(Uid(user.uid.as_raw()))),
        Ok(None) => Err(Failure::failed(format_args!(
            "there is no user '{}'; see 'getent passwd', or give a uid",
            human::escaped(name)
        ))),
        Err(error) => Err(Failure::failed(format_args!(
            "cannot look up user '{}': {}; give a uid",
            human::escaped(name),
            error.desc()
        ))),
    }
}

/// The groups that a user is a member of; none where that cannot be found out.
pub(crate) fn groups_of(uid: Uid) -> BTreeSet<Gid> {
    let user = User::from_uid(SystemUid::from_raw(uid.0)).ok().flatten();
    let name = user.and_then(|user| Some((CString::new(user.name).ok()?, user.gid)));
    let groups = name.and_then(|(name, gid)| getgrouplist(&name, gid).ok()).unwrap_or_default();
    groups.into_iter().map(|gid| Gid(gid.as_raw())).collect()
}

/// Numbers to names, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<Uid, Option<String>>,
    groups: BTreeMap<Gid, Option<String>>,
}

impl Names {
    /// The name of a user; `None` where there is none or it cannot be found out.
    pub(crate) fn of_uid(&mut self, uid: Uid) -> Option<String> {
        let look_up = || User::from_uid(SystemUid::from_raw(uid.0)).ok().flatten().map(|user| user.name);
        self.known.entry(uid).or_insert_with(look_up).clone()
    }

    /// The name of a group, in the same way.
    pub(crate) fn of_gid(&mut self, gid: Gid) -> Option<String> {
        let look_up = || Group::from_gid(SystemGid::from_raw(gid.0)).ok().flatten().map(|group| group.name);
        self.groups.entry(gid).or_insert_with(look_up).clone()
    }

    /// The name of the group that a line is for; `None` also where it is for no group.
    pub(crate) fn of_group(&mut self, target: &Target) -> Option<String> {
        match target {
            Target::Members(gid) | Target::Group(gid) => self.of_gid(*gid),
            Target::User(_) | Target::Job(_) | Target::Default | Target::Cgroup(_) | Target::System => None,
        }
    }

    /// A group's line with the group's name.
    pub(crate) fn fill_in_group(&mut self, view: &GroupView) -> GroupView {
        GroupView { name: self.of_group(&view.account), ..view.clone() }
    }

    /// The `default` line with the names of those whom it leaves out.
    pub(crate) fn fill_in_default(&mut self, view: &DefaultView) -> DefaultView {
        let named = |user: &UserView| UserView { uid: user.uid, name: self.of_uid(user.uid) };
        DefaultView { uncovered: view.uncovered.iter().map(named).collect(), ..view.clone() }
    }

    /// The account with its name.
    pub(crate) fn fill_in(&mut self, view: &AccountView) -> AccountView {
        AccountView { name: self.of_view(view), ..view.clone() }
    }

    /// The state with the names of accounts and groups.
    pub(crate) fn fill_in_status(&mut self, mut status: Status) -> Status {
        status.accounts = status.accounts.iter().map(|account| self.fill_in(account)).collect();
        status.groups = status.groups.iter().map(|group| self.fill_in_group(group)).collect();
        status.default = status.default.as_ref().map(|line| self.fill_in_default(line));
        status
    }

    /// The name of an account; a job's is what its user calls it.
    pub(crate) fn of_view(&mut self, view: &AccountView) -> Option<String> {
        self.of(&view.account).or_else(|| view.name.clone())
    }

    /// The name of an account; `None` also where it is neither a user's nor a group's.
    pub(crate) fn of(&mut self, account: &Account) -> Option<String> {
        match account {
            Account::User(uid) => self.of_uid(*uid),
            Account::Group(gid) => self.of_gid(*gid),
            Account::Job(_) | Account::Cgroup(_) | Account::System => None,
        }
    }
}

#[cfg(test)]
mod tests;
