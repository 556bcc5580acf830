//! `/etc/passwd` and `/etc/group`, as far as membership goes. Read as glibc's `files` service reads them: what it skips
//! is skipped here.

use super::field::{decimal_u32, lines};
use plimsoll_policy::units::{Gid, Uid};

/// One user of `/etc/passwd`. The name can hold anything but a newline and a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswdEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The user's number.
    pub uid: Uid,
    /// The primary group.
    pub gid: Gid,
}

/// One group of `/etc/group`. The names can hold anything but a newline, a colon and (members) a comma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The group's number.
    pub gid: Gid,
    members: &'a [u8],
}

impl<'a> GroupEntry<'a> {
    /// The names of the members that are listed: not those whose primary group it is.
    pub fn members(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.members.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty())
    }
}

/// The users of `/etc/passwd`, in its order. Comments, NIS's `+` and `-` lines and lines that are no users are left out.
pub fn passwd_entries(text: &[u8]) -> impl Iterator<Item = PasswdEntry<'_>> {
    entries(text).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let (uid, gid) = (number(fields.next()?)?, number(fields.next()?)?);
        Some(PasswdEntry { name, uid: Uid(uid), gid: Gid(gid) })
    })
}

/// The groups of `/etc/group`, in its order. What is left out is as in [`passwd_entries`].
pub fn group_entries(text: &[u8]) -> impl Iterator<Item = GroupEntry<'_>> {
    entries(text).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let gid = number(fields.next()?)?;
        Some(GroupEntry { name, gid: Gid(gid), members: fields.next().unwrap_or_default() })
    })
}

/// One range of subordinate uids, as `/etc/subuid` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubordinateEntry<'a> {
    /// The name of whose they are, or the uid in digits.
    pub owner: &'a [u8],
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

/// The ranges of `/etc/subuid`, in its order. Lines that are no ranges, or reach past the last uid, are left out.
pub fn subordinate_entries(text: &[u8]) -> impl Iterator<Item = SubordinateEntry<'_>> {
    entries(text).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let owner = fields.next()?;
        let (first, count) = (number(fields.next()?)?, number(fields.next()?)?);
        let last = first.checked_add(count.checked_sub(1)?)?;
        Some(SubordinateEntry { owner, first, last })
    })
}

fn entries(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = lines(text).map(<[u8]>::trim_ascii);
    lines.filter(|line| !matches!(line.first(), None | Some(b'#' | b'+' | b'-' | b':')))
}

/// The kernel uses 4294967295 for 'none'.
fn number(digits: &[u8]) -> Option<u32> {
    decimal_u32(digits).filter(|number| *number != u32::MAX)
}

#[cfg(test)]
mod tests;
