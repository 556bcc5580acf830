//! Who keeps the accounts' books: the programs in the kernel, or in tests something that counts as they do.

use plimsoll_policy::units::{Pages, Pid, Uid};
use plimsoll_sys::bpf::{AccountFacts, BpfError, Grants, Reserved, Space};
use std::fmt::Debug;

/// What [`Grants`] does, which says how each of these fails. A reservation becomes usage page by page as its process touches
/// memory, without any call from here.
pub(crate) trait Grantor: Debug {
    /// The address space of a living process; `None`: it is not tracked, so its user has no line.
    fn find(&mut self, pid: Pid) -> Result<Option<Space>, BpfError>;
    /// Reserves, in one step, what fits under the line less `headroom`.
    fn reserve(&mut self, space: &Space, pages: Pages, headroom: Pages) -> Result<Reserved, BpfError>;
    /// Gives back what is left of the reservations; how much.
    fn settle(&mut self, space: &Space) -> Result<Pages, BpfError>;
    /// So much is no longer held by grants.
    fn give_up(&mut self, space: &Space, pages: Pages) -> Result<(), BpfError>;
    /// A user's account, and those that are charged besides; none: there is no line.
    fn accounts(&mut self, uid: Uid) -> Result<Vec<AccountFacts>, BpfError>;
    /// Every address space with a reservation.
    fn outstanding(&mut self) -> Result<Vec<Space>, BpfError>;
}

impl Grantor for Grants {
    fn find(&mut self, pid: Pid) -> Result<Option<Space>, BpfError> {
        Grants::find(self, pid)
    }

    fn reserve(&mut self, space: &Space, pages: Pages, headroom: Pages) -> Result<Reserved, BpfError> {
        Grants::reserve(self, space, pages, headroom)
    }

    fn settle(&mut self, space: &Space) -> Result<Pages, BpfError> {
        Grants::settle(self, space)
    }

    fn give_up(&mut self, space: &Space, pages: Pages) -> Result<(), BpfError> {
        Grants::give_up(self, space, pages)
    }

    fn accounts(&mut self, uid: Uid) -> Result<Vec<AccountFacts>, BpfError> {
        Grants::accounts(self, uid)
    }

    fn outstanding(&mut self) -> Result<Vec<Space>, BpfError> {
        let mut spaces = Vec::new();
        Grants::outstanding(self, |space, _| spaces.push(*space))?;
        Ok(spaces)
    }
}
