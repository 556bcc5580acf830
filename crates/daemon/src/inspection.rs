//! Which processes an account's usage is made of, counted exactly: on the thread of whoever asks, and at their expense. The
//! guard thread has nothing to do with it.

use crate::{
    api::control::{Inspected, Refusal},
    facts::meter::Gauge,
    owners::Owners,
};
use plimsoll_api::accounts::{AccountProcesses, ProcessView};
use plimsoll_policy::{
    account::Account,
    units::{PageSize, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{BpfError, Limits, Measured, Pins, Selector},
    process::{ProcRoot, ProcessError},
};
use plimsoll_wire::task::TaskFacts;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The most processes in one answer: at some 300 bytes of JSON each it stays well under what a client reads.
const TOLD_MAX: usize = 1024;

/// Where processes are found.
#[derive(Debug)]
pub(crate) struct Inspection {
    /// Where the programs are pinned.
    pub(crate) pin: PathBuf,
    /// As for [`Gauge::new`].
    pub(crate) mapped: bool,
    pub(crate) page_size: PageSize,
}

/// Who is in an account.
#[derive(Debug)]
enum Members {
    /// Whose address spaces are charged to it, and what for each alone.
    Charged(BTreeMap<u64, Pages>),
    /// Who is in the cgroup.
    Listed(BTreeSet<Pid>),
    All,
}

impl Members {
    fn has(&self, facts: &TaskFacts) -> bool {
        match self {
            Self::Charged(charged) => charged.contains_key(&facts.mm),
            Self::Listed(listed) => listed.contains(&facts.pid),
            Self::All => true,
        }
    }

    fn charge(&self, facts: &TaskFacts) -> Option<Pages> {
        match self {
            Self::Charged(charged) => charged.get(&facts.mm).copied(),
            Self::Listed(_) | Self::All => None,
        }
    }
}

impl Inspection {
    /// The processes of these accounts, the largest first.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] where no program counts processes, or not yet; [`Refusal::Internal`].
    pub(crate) fn list(&self, wanted: &Inspected) -> Result<Vec<AccountProcesses>, Refusal> {
        if wanted.accounts.is_empty() {
            return Ok(Vec::new());
        }
        let mut selector = Selector::open(&self.pin).map_err(|error| uncounted(&error))?;
        let members = self.members(&wanted.accounts)?;
        let owners = Owners::of_machine();
        // Also of an account: an address space, or a number, may be another's since they were listed.
        let is_theirs = |uid| wanted.only_of.is_none_or(|only| owners.owner(uid) == only);
        let mut all = Vec::new();
        let take = |facts: &TaskFacts| {
            if is_theirs(facts.uid) && members.iter().any(|members| members.has(facts)) {
                all.push(*facts);
            }
        };
        selector.sweep(take).map_err(|error| uncounted(&error))?;
        all.sort_unstable_by_key(|facts| (Reverse(held(facts)), facts.pid));
        let mut left = TOLD_MAX;
        let answers = wanted.accounts.iter().zip(&members).map(|(account, members)| {
            let of_it: Vec<TaskFacts> = all.iter().filter(|facts| members.has(facts)).copied().collect();
            let told = of_it.get(..wanted.most.min(left)).unwrap_or(&of_it);
            let processes = self.counted(&mut selector, told, members);
            left = left.saturating_sub(told.len());
            let more = u64::try_from(of_it.len().saturating_sub(told.len())).unwrap_or(u64::MAX);
            AccountProcesses { account: account.clone(), processes, more }
        });
        Ok(answers.collect())
    }

    fn members(&self, accounts: &[Account]) -> Result<Vec<Members>, Refusal> {
        let charged = if accounts.iter().any(|account| account.user().is_some()) {
            self.charged().map_err(|error| Refusal::Internal(error.to_string()))?
        } else {
            BTreeMap::new()
        };
        let proc = ProcRoot::open(Path::new("/proc"));
        let proc = proc.map_err(|error: ProcessError| Refusal::Internal(error.to_string()))?;
        let mut gauge = Gauge::new(proc, self.mapped);
        let members = accounts.iter().map(|account| match account {
            Account::User(uid) => Members::Charged(charged.get(uid).cloned().unwrap_or_default()),
            Account::Cgroup(_) => Members::Listed(gauge.processes(account).unwrap_or_default()),
            Account::System => Members::All,
        });
        Ok(members.collect())
    }

    /// Which address spaces are charged to each user, and what for each alone.
    fn charged(&self) -> Result<BTreeMap<Uid, BTreeMap<u64, Pages>>, BpfError> {
        let mut charged = BTreeMap::<Uid, BTreeMap<u64, Pages>>::new();
        Limits::open_latest(&Pins::new(&self.pin))?.address_spaces(|space| {
            if !space.left {
                let own = space.own.saturating_add(space.copied);
                charged.entry(space.user).or_default().insert(space.mm, own);
            }
        })?;
        Ok(charged)
    }

    /// With exact counts, where the kernel takes a program for that. Who has gone is left out.
    fn counted(&self, selector: &mut Selector, told: &[TaskFacts], members: &Members) -> Vec<ProcessView> {
        let mut views = Vec::with_capacity(told.len());
        for facts in told {
            let id = VictimId { pid: facts.pid, start_ns: facts.start_ns };
            let mut now = Some(*facts);
            let take = |_, measured| {
                now = match measured {
                    Measured::Known(exact) => Some(exact),
                    Measured::Another | Measured::Gone => None,
                }
            };
            // What is not to be had exactly is told with how far it may be off.
            selector.measure(&[id], take).ok();
            views.extend(now.map(|facts| self.view(&facts, members.charge(&facts))));
        }
        views.sort_by_key(|view| Reverse(view.held_bytes()));
        views
    }

    fn view(&self, facts: &TaskFacts, charged: Option<Pages>) -> ProcessView {
        let bytes = |pages| self.page_size.to_bytes(pages).0;
        ProcessView {
            pid: facts.pid,
            start_ns: facts.start_ns,
            uid: facts.uid,
            comm: facts.comm.to_string(),
            charged_bytes: charged.map(bytes),
            anon_bytes: bytes(facts.anonymous),
            swap_bytes: bytes(facts.swapped),
            shared_bytes: bytes(facts.shared),
            file_bytes: bytes(facts.file),
            error_bytes: bytes(facts.errors.anonymous.max(facts.errors.mapped)),
        }
    }
}

fn held(facts: &TaskFacts) -> Pages {
    facts.anonymous.saturating_add(facts.swapped).saturating_add(facts.shared)
}

fn uncounted(error: &BpfError) -> Refusal {
    Refusal::Unavailable(format!(
        "no program of Plimsoll's counts processes now ({error}); 'plimsoll doctor' says what this kernel offers"
    ))
}
