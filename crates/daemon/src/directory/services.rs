//! The machine's name services (`nsswitch.conf`: files, SSSD, LDAP, winbind, systemd), behind a trait so that the rules of
//! [`super::lookup`] can be tried with services that fail.

use nix::{
    errno::Errno,
    unistd::{Gid as SystemGid, Group, Uid as SystemUid, User, getgrouplist},
};
use plimsoll_policy::units::{Gid, Uid};
use std::{ffi::CString, ops::ControlFlow};

/// Why a question has no answer.
pub(super) type Trouble = String;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) primary: Gid,
}

/// What can be asked. `Ok(None)` is 'no such', which is also what many services say when they cannot be reached.
pub(super) trait NameServices {
    fn user_named(&self, name: &str) -> Result<Option<Person>, Trouble>;
    fn user(&self, uid: Uid) -> Result<Option<Person>, Trouble>;
    fn group_named(&self, name: &str) -> Result<Option<Gid>, Trouble>;
    /// The names of the members that the group lists.
    fn group(&self, gid: Gid) -> Result<Option<Vec<String>>, Trouble>;
    /// Every group of a user, the primary one too.
    fn groups_of(&self, person: &Person) -> Result<Vec<Gid>, Trouble>;
    /// The users that can be enumerated: number and primary group.
    fn each_user(&self, visit: &mut dyn FnMut(Uid, Gid) -> ControlFlow<()>) -> Result<(), Trouble>;
}

/// The C library's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nss;

fn trouble(what: impl std::fmt::Display) -> impl FnOnce(Errno) -> Trouble {
    move |errno| format!("cannot look up {what}: {}", errno.desc())
}

fn person(user: User) -> Person {
    Person { name: user.name, uid: Uid(user.uid.as_raw()), primary: Gid(user.gid.as_raw()) }
}

impl NameServices for Nss {
    fn user_named(&self, name: &str) -> Result<Option<Person>, Trouble> {
        User::from_name(name).map(|user| user.map(person)).map_err(trouble(format_args!("user '{name}'")))
    }

    fn user(&self, uid: Uid) -> Result<Option<Person>, Trouble> {
        let found = User::from_uid(SystemUid::from_raw(uid.0));
        found.map(|user| user.map(person)).map_err(trouble(format_args!("uid {uid}")))
    }

    fn group_named(&self, name: &str) -> Result<Option<Gid>, Trouble> {
        let found = Group::from_name(name).map_err(trouble(format_args!("group '{name}'")))?;
        Ok(found.map(|group| Gid(group.gid.as_raw())))
    }

    fn group(&self, gid: Gid) -> Result<Option<Vec<String>>, Trouble> {
        let found =
            Group::from_gid(SystemGid::from_raw(gid.0)).map_err(trouble(format_args!("gid {gid}")))?;
        Ok(found.map(|group| group.mem))
    }

    fn groups_of(&self, person: &Person) -> Result<Vec<Gid>, Trouble> {
        let of = || format!("the groups of '{}'", person.name);
        let name = CString::new(person.name.as_str()).map_err(|error| format!("{}: {error}", of()))?;
        let groups = getgrouplist(&name, SystemGid::from_raw(person.primary.0)).map_err(trouble(of()))?;
        Ok(groups.into_iter().map(|gid| Gid(gid.as_raw())).collect())
    }

    fn each_user(&self, visit: &mut dyn FnMut(Uid, Gid) -> ControlFlow<()>) -> Result<(), Trouble> {
        plimsoll_sys::users::each_user(|_, uid, gid| visit(uid, gid))
            .map_err(|errno| format!("cannot list users: {errno}"))
    }
}
