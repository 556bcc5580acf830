//! Memory promised before it is touched, through the pins: a handle of its own for whoever answers those that ask.

use super::{
    error::BpfError,
    facts::{AccountFacts, AddressSpace, account_facts, account_of, address_space, wire_pages},
    pins::Pins,
    site::{Call, Site, Table as _},
};
use plimsoll_policy::{
    account::Counted,
    units::{Pages, Pid, Uid},
};
use plimsoll_wire::{self as wire, abi};

/// As [`super::Limits`] reads them: a batch must hold the fullest hash bucket.
const BATCH_ENTRIES: usize = 512;

/// The address space that a living process runs in, as it is tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Space {
    /// Opaque key.
    pub mm: u64,
    /// Thread-group leader.
    pub pid: Pid,
    /// Its start since boot in nanoseconds.
    pub start_ns: u64,
    /// Real uid of the process.
    pub uid: Uid,
    /// Whose account it is charged to: not `uid` where that is a subordinate one.
    pub user: Uid,
}

/// A line that a request does not fit below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLine {
    /// Whose.
    pub whose: Counted,
    /// What is charged to it, what is kept for copies included.
    pub usage: Pages,
    /// The line.
    pub hard: Pages,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Granted.
    Granted {
        /// Of the account, what was granted included.
        usage: Pages,
    },
    /// It does not fit below a line.
    Over(OverLine),
    /// What the account uses is not known well enough to tell: walk all tasks ([`super::Limits::walk`]) and ask again.
    Inexact,
    /// No line is drawn for whoever it is charged to.
    NoLine,
    /// It is not tracked, is dying, or its process runs something else by now.
    Gone,
}

/// The programs in force, for grants.
#[derive(Debug)]
pub struct Grants<S: Site = Pins> {
    accounts: S::Map,
    account_numbers: S::Map,
    mms: S::Map,
    reserve: S::Program,
    settle: S::Program,
    give_up: S::Program,
    find_space: S::Program,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Grants {
    /// Opens what is pinned. These programs and maps are what it goes on with: when the last line is cleared nothing is in
    /// force any more, and what is loaded for the next one has maps of its own, so that it has to be opened again.
    ///
    /// # Errors
    /// [`BpfError::Schema`] for another version's pins, [`BpfError::Pin`] when something is missing.
    pub fn open(pins: &Pins) -> Result<Self, BpfError> {
        pins.require_ours("open")?;
        Self::at(pins)
    }
}

impl<S: Site> Grants<S> {
    /// Those that are there.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when something is missing.
    pub fn at(site: &S) -> Result<Self, BpfError> {
        let map = |name: &'static str| site.map(name);
        let program = |name: &'static str| site.program(name);
        let mms = map("mms")?;
        Ok(Self {
            keys: vec![0; BATCH_ENTRIES.saturating_mul(8)],
            values: vec![0; BATCH_ENTRIES.saturating_mul(mms.value_bytes())],
            accounts: map("accounts")?,
            account_numbers: map("account_numbers")?,
            mms,
            reserve: program("reserve")?,
            settle: program("settle")?,
            give_up: program("give_up")?,
            find_space: program("find_space")?,
        })
    }

    /// The address space of a process; `None` when it is not tracked: it is gone, or nobody drew a line for its user.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn find(&mut self, pid: Pid) -> Result<Option<Space>, BpfError> {
        let mut context = abi::plimsoll_space { tgid: pid.0, ..Default::default() };
        self.find_space.run(&mut context)?;
        Ok((context.result == 0).then_some(Space {
            mm: context.mm,
            pid,
            start_ns: context.start_ns,
            uid: Uid(context.uid),
            user: Uid(context.user),
        }))
    }

    /// Grants `pages` if the account's usage, they and what is kept for copies included, stays at or below its line less
    /// `headroom`. In one step: of
    /// all that ask at once no two get the same pages.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails, `EINVAL` for 0 pages or more than any machine has.
    pub fn reserve(&self, space: &Space, pages: Pages, headroom: Pages) -> Result<Reserved, BpfError> {
        let mut context = abi::plimsoll_reserve {
            mm: space.mm,
            start_ns: space.start_ns,
            pages: wire_pages(pages),
            headroom_pages: wire_pages(headroom),
            tgid: space.pid.0,
            ..Default::default()
        };
        self.reserve.run(&mut context)?;
        let usage = wire::pages(context.usage_pages);
        match context.result.saturating_neg() {
            0 => Ok(Reserved::Granted { usage }),
            libc::ENOSPC => {
                let hard = wire::pages(context.hard_pages);
                let whose = wire::counted(context.of, context.id).unwrap_or(space.user.into());
                Ok(Reserved::Over(OverLine { whose, usage, hard }))
            }
            libc::EAGAIN => Ok(Reserved::Inexact),
            libc::ENOENT => Ok(Reserved::NoLine),
            libc::ESRCH => Ok(Reserved::Gone),
            _ => Err(self.reserve.error(context.result)),
        }
    }

    /// Gives back what the process has not touched of its grants, and tells how much that was: those pages are not held by
    /// a grant then. 0 also where the process is gone, whose end has given back all.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn settle(&self, space: &Space) -> Result<Pages, BpfError> {
        let context = Self::run(&self.settle, space, Pages(0))?;
        Ok(wire::pages(context.pages))
    }

    /// So many of the process's pages are not held by a grant any more. Nothing where it is gone.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn give_up(&self, space: &Space, pages: Pages) -> Result<(), BpfError> {
        Self::run(&self.give_up, space, pages).map(|_| ())
    }

    fn run(program: &S::Program, space: &Space, pages: Pages) -> Result<abi::plimsoll_grant, BpfError> {
        let mut context = abi::plimsoll_grant {
            mm: space.mm,
            start_ns: space.start_ns,
            pages: wire_pages(pages),
            tgid: space.pid.0,
            result: 0,
        };
        program.run(&mut context)?;
        match context.result.saturating_neg() {
            0 | libc::ESRCH => Ok(context),
            _ => Err(program.error(context.result)),
        }
    }

    /// A user's account, and those that are charged besides; none when the user has none. Far from the line usage lags
    /// behind the kernel's counters, and before the first grant what lies in the account's tree is not in it.
    ///
    /// # Errors
    /// [`BpfError::Map`] when a map cannot be read.
    pub fn accounts(&self, uid: Uid) -> Result<Vec<AccountFacts>, BpfError> {
        let own =
            account_of(uid.into(), &self.account_numbers, |number| self.accounts.get(&number.to_ne_bytes()))?;
        let mut accounts = Vec::from_iter(own);
        for number in own.into_iter().flat_map(|own| own.above).filter(|number| *number != 0) {
            let above = self.accounts.get(&number.to_ne_bytes())?;
            accounts.extend(above.and_then(|account| account_facts(number, &account)));
        }
        Ok(accounts)
    }

    /// Shows `visit` each address space that was granted pages and has not touched all of them, and how many are left.
    ///
    /// # Errors
    /// [`BpfError::Map`] when the map cannot be read.
    pub fn outstanding(&mut self, mut visit: impl FnMut(&Space, Pages)) -> Result<(), BpfError> {
        self.mms.each((&mut self.keys, &mut self.values), |key, value| {
            let one = address_space(u64::from_ne_bytes(*key), value);
            let AddressSpace { mm, pid, start_ns, uid, user, reserved, .. } = one;
            if reserved > Pages(0) {
                visit(&Space { mm, pid, start_ns, uid, user }, reserved);
            }
            Ok(())
        })
    }
}
