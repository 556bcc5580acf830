//! Extended attributes of a cgroup: what its owner wants, and what was done to it.
//!
//! **What its owner wants.** systemd writes `ManagedOOMPreference=` of a unit as `user.oomd_avoid` or
//! `user.oomd_omit`, value `1`, on the unit's cgroup; systemd-oomd takes avoided cgroups last and omitted ones
//! never. Whoever owns the folder can write them, too. systemd-oomd (`oomd_fetch_cgroup_oom_preference()` in
//! src/oom/oomd-util.c) honours both only where the cgroup is root's, or is owned by the owner of the cgroup that
//! is being relieved; up to about 251 only root's counted. Where both are set, omit wins. Facebook's oomd has
//! `user.oomd_avoid`, and the same as `trusted.`, which only `CAP_SYS_ADMIN` can write; no omit.
//!
//! **What was done to it.** systemd-oomd adds 1 to `user.oomd_ooms` before a kill and the number of processes to
//! `user.oomd_kill` after it, both decimal. From 251 on, process 1 (and a user's manager) compares `user.oomd_ooms`
//! of a unit's own cgroup with what it saw last, whenever a child of its own out of that unit has exited, and when
//! the cgroup runs empty (`unit_check_oomd_kill()` in src/core/cgroup.c). If it grew, it logs "systemd-oomd killed
//! N process(es) in this unit" and does what the unit's `OOMPolicy=` says. 248 to 250 read `user.oomd_kill` and
//! only log it.
//!
//! Seen with systemd 252 on 6.12 (a service of a shell and two children, `systemctl show -p Result`):
//!
//! | killed | marked | `OOMPolicy=` | Result |
//! | --- | --- | --- | --- |
//! | all of it | before | stop (what services have) | `oom-kill`; also a scope, and a unit of a user's manager |
//! | all of it | 0.2 s after, or not | stop | `signal` |
//! | all of it, or the main process | before | continue (what `Delegate=yes` makes of it) | `signal` |
//! | the main process | before | stop | `oom-kill`, and the rest of the unit is ended |
//! | a worker | no | stop | none: the unit runs on |
//! | a worker | before | stop | none at first; `oom-kill` when the unit later ends well by itself or is stopped |
//!
//! The last line is why a worker's death is not marked. It can be told in another way: a line of the journal that
//! root writes with the field `OBJECT_SYSTEMD_UNIT=x.service` is shown by `systemctl status x` and `journalctl -u
//! x` (a field `UNIT=` is not).

use super::{Cgroup, CgroupError};
use plimsoll_policy::units::Uid;
use plimsoll_wire::text::{parse_oomd_count, parse_oomd_mark};
use rustix::{
    fs::{XattrFlags, fgetxattr, fsetxattr},
    io::Errno,
};
use std::ffi::CStr;

/// Room for a mark or a count: 20 digits.
const VALUE_BYTES: usize = 32;

/// Who can have set a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// Root: the folder is root's and only root can write to it, or it is a `trusted.` attribute.
    Root,
    /// The owner of the folder (or root).
    Owner(Uid),
    /// Anybody in a group, or anybody at all: the folder can be written to by more than its owner.
    Anybody,
}

/// The marks on one cgroup; `None` where one is not set, or is set to false. They hold for this cgroup alone: those
/// below it do not inherit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// To be taken only when nothing else is left: `user.oomd_avoid`, `trusted.oomd_avoid`.
    pub avoid: Option<SetBy>,
    /// Not to be taken: `user.oomd_omit`.
    pub omit: Option<SetBy>,
}

impl Cgroup {
    /// Reads the marks. One that cannot be understood marks nothing, as for systemd.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`], otherwise by what the kernel says.
    pub fn marks(&self) -> Result<Marks, CgroupError> {
        self.check_there()?;
        let stat = self.stat().map_err(|errno| self.failed("ask for the owner", errno))?;
        let owner = Uid(stat.st_uid);
        let by_user = match (stat.st_mode & 0o022, owner) {
            (0, Uid(0)) => SetBy::Root,
            (0, _) => SetBy::Owner(owner),
            _ => SetBy::Anybody,
        };
        let mark = |trusted: Option<&CStr>, user: &CStr| -> Result<Option<SetBy>, CgroupError> {
            if let Some(name) = trusted
                && self.is_marked(name)?
            {
                return Ok(Some(SetBy::Root));
            }
            Ok(self.is_marked(user)?.then_some(by_user))
        };
        Ok(Marks {
            avoid: mark(Some(c"trusted.oomd_avoid"), c"user.oomd_avoid")?,
            omit: mark(None, c"user.oomd_omit")?,
        })
    }

    /// Tells systemd that a kill in this cgroup begins: adds 1 to `user.oomd_ooms`. Before the first signal, or
    /// process 1 may hear of the exit first and call it `signal`. On the cgroup of the unit
    /// ([`super::CgroupRoot::unit_of`]); what systemd does with it is its `OOMPolicy=`: `stop`, the default of
    /// services, ends the whole unit.
    ///
    /// So do this where all of the unit is killed, or a process whose parent is the manager (process 1, or a user's
    /// `systemd --user`): the main process, mostly. Not for one of its workers: the manager does not hear of their
    /// end, and would blame the unit's next exit, whenever and however that is, on this kill.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Unreadable`] when somebody wrote another thing than a number there, otherwise by
    /// what the kernel says. Nothing was written then, and the unit's result will be `signal`.
    pub fn note_oom_kill_begins(&self) -> Result<(), CgroupError> {
        self.add_to(c"user.oomd_ooms", 1)
    }

    /// Adds the processes that were killed to `user.oomd_kill`, which systemd tells in its log. After the kill; the
    /// cgroup may be gone by then, which is no fault.
    ///
    /// # Errors
    /// As [`Cgroup::note_oom_kill_begins`].
    pub fn note_oom_kill(&self, processes: u64) -> Result<(), CgroupError> {
        self.add_to(c"user.oomd_kill", processes)
    }

    fn is_marked(&self, name: &CStr) -> Result<bool, CgroupError> {
        let mut value = [0; VALUE_BYTES];
        match self.attribute(name, &mut value) {
            Ok(Some(value)) => Ok(parse_oomd_mark(value).unwrap_or(false)),
            Ok(None) => Ok(false),
            // Longer than any word for true.
            Err(Errno::RANGE) => Ok(false),
            Err(errno) => Err(self.failed("read a mark", errno)),
        }
    }

    fn add_to(&self, name: &CStr, more: u64) -> Result<(), CgroupError> {
        const OPERATION: &str = "count a kill";
        let mut value = [0; VALUE_BYTES];
        let value = self.attribute(name, &mut value).map_err(|errno| self.failed(OPERATION, errno))?;
        let before = parse_oomd_count(value.unwrap_or_default())
            .map_err(|error| CgroupError::unreadable(OPERATION, self.path(), error))?;
        let sum = before.checked_add(more).ok_or_else(|| self.failed(OPERATION, Errno::OVERFLOW))?;
        fsetxattr(self.dir(), name, sum.to_string().as_bytes(), XattrFlags::empty())
            .map_err(|errno| self.failed(OPERATION, errno))
    }

    /// The value of an attribute; `None` where it is not set.
    fn attribute<'value>(&self, name: &CStr, value: &'value mut [u8]) -> Result<Option<&'value [u8]>, Errno> {
        match fgetxattr(self.dir(), name, &mut *value) {
            Ok(length) => Ok(value.get(..length)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests;
