//! Which processes an account's usage is made of, counted exactly: on the thread of whoever asks, and at their expense.

use crate::{
    api::control::{Inspected, Refusal},
    facts::meter::Gauge,
};
use plimsoll_api::accounts::{AccountProcesses, ProcessView};
use plimsoll_policy::{
    account::{Account, Counted},
    reading::Reading,
    units::{PageSize, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::{
    bpf::{AccountFacts, BpfError, Limits, Measured, Pins, Selector},
    process::{ProcRoot, ProcessError},
};
use plimsoll_wire::task::TaskFacts;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// The most processes in one answer, of all accounts: at some 300 bytes of JSON each it stays well under what a client reads.
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

/// The address spaces that are charged to an account: of whom, and what for each alone.
type Charged = BTreeMap<u64, (Uid, Pages)>;

/// Who is in an account.
#[derive(Debug)]
enum Members {
    /// Whom a user is charged for, or a job.
    Charged(Charged),
    /// Whom a group is charged for.
    Shared(Charged),
    /// Who is in the cgroup.
    Listed(BTreeSet<Pid>),
    All,
}

impl Members {
    /// Whether this one is, and may be told to whoever sees only this user's, or all. An address space, or a number, may be
    /// another's since they were listed.
    fn shows(&self, facts: &TaskFacts, only_of: Option<Uid>) -> bool {
        let is_theirs = only_of.is_none_or(|only| facts.uid == only);
        match self {
            // Whose account it is may see all of it, subordinate uids, too.
            Self::Charged(charged) => charged.get(&facts.mm).is_some_and(|(uid, _)| *uid == facts.uid),
            Self::Shared(charged) => is_theirs && charged.contains_key(&facts.mm),
            Self::Listed(listed) => is_theirs && listed.contains(&facts.pid),
            Self::All => is_theirs,
        }
    }

    fn charge(&self, facts: &TaskFacts) -> Option<Pages> {
        match self {
            Self::Charged(charged) | Self::Shared(charged) => charged.get(&facts.mm).map(|(_, pages)| *pages),
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
        let mut all = Vec::new();
        let take = |facts: &TaskFacts| {
            if members.iter().any(|members| members.shows(facts, wanted.only_of)) {
                all.push(*facts);
            }
        };
        selector.sweep(take).map_err(|error| uncounted(&error))?;
        all.sort_unstable_by_key(|facts| (Reverse(facts.counted()), facts.pid));
        let (mut left, mut accounts_left) = (TOLD_MAX, wanted.accounts.len());
        let answers = wanted.accounts.iter().zip(&members).map(|(account, members)| {
            let of_it: Vec<TaskFacts> =
                all.iter().filter(|facts| members.shows(facts, wanted.only_of)).copied().collect();
            // What one has too many of is none of the others' loss.
            let share = left.div_ceil(accounts_left.max(1));
            let told = of_it.get(..wanted.most.min(share)).unwrap_or(&of_it);
            let processes = self.counted(&mut selector, told, (members, wanted.only_of));
            left = left.saturating_sub(told.len());
            accounts_left = accounts_left.saturating_sub(1);
            let more = u64::try_from(of_it.len().saturating_sub(told.len())).unwrap_or(u64::MAX);
            AccountProcesses { account: account.clone(), processes, more }
        });
        Ok(answers.collect())
    }

    fn members(&self, accounts: &[Account]) -> Result<Vec<Members>, Refusal> {
        let counted = accounts.iter().filter_map(Account::counted).collect();
        let mut charged = self.charged(&counted).map_err(|error| uncounted(&error))?;
        let proc = ProcRoot::open(Path::new("/proc"));
        let proc = proc.map_err(|error: ProcessError| Refusal::Internal(error.to_string()))?;
        let mut gauge = Gauge::new(proc, self.mapped);
        let members = accounts.iter().map(|account| match account {
            Account::User(uid) => {
                Ok(Members::Charged(charged.remove(&Counted::User(*uid)).unwrap_or_default()))
            }
            Account::Group(gid) => {
                Ok(Members::Shared(charged.remove(&Counted::Group(*gid)).unwrap_or_default()))
            }
            Account::Job(id) => Ok(Members::Charged(charged.remove(&Counted::Job(*id)).unwrap_or_default())),
            Account::Cgroup(path) => match gauge.processes(account) {
                Some(listed) => Ok(Members::Listed(listed)),
                None if matches!(gauge.usage(account), Reading::Absent) => {
                    Ok(Members::Listed(BTreeSet::new()))
                }
                None => Err(Refusal::Unavailable(format!("who is in cgroup:{path} cannot be read"))),
            },
            Account::System => Ok(Members::All),
        });
        members.collect()
    }

    /// Which address spaces are charged to each of these accounts.
    fn charged(&self, wanted: &BTreeSet<Counted>) -> Result<BTreeMap<Counted, Charged>, BpfError> {
        let mut charged = BTreeMap::<Counted, Charged>::new();
        if wanted.is_empty() {
            return Ok(charged);
        }
        let mut limits = Limits::open(&Pins::new(&self.pin))?;
        let accounts = limits.accounts()?;
        let is_wanted = |one: &&AccountFacts| one.whose.user().is_none() && wanted.contains(&one.whose);
        let shared: BTreeMap<u32, Counted> =
            accounts.iter().filter(is_wanted).map(|one| (one.index, one.whose)).collect();
        let is_below = |one: &&AccountFacts| one.above.iter().any(|above| shared.contains_key(above));
        let members: BTreeMap<u32, &AccountFacts> =
            accounts.iter().filter(is_below).map(|one| (one.index, one)).collect();
        limits.address_spaces(|space| {
            let user = Some(Counted::User(space.user)).filter(|user| wanted.contains(user));
            let above = members.get(&space.account).into_iter().flat_map(|member| &member.above);
            // A job has processes itself, and those of the jobs in it.
            let all =
                above.chain([&space.account]).filter_map(|index| shared.get(index)).copied().chain(user);
            for whose in all.filter(|_| !space.left) {
                charged.entry(whose).or_default().insert(space.mm, (space.uid, space.own));
            }
        })?;
        Ok(charged)
    }

    /// With exact counts, where the kernel takes a program for that, and what is charged. Who has gone is left out, and who is
    /// not to be shown any more.
    fn counted(
        &self,
        selector: &mut Selector,
        told: &[TaskFacts],
        (members, only_of): (&Members, Option<Uid>),
    ) -> Vec<ProcessView> {
        let id = |facts: &TaskFacts| VictimId { pid: facts.pid, start_ns: facts.start_ns };
        let ids: Vec<VictimId> = told.iter().map(id).collect();
        let mut now: Vec<Option<TaskFacts>> = told.iter().copied().map(Some).collect();
        let mut places = now.iter_mut();
        let take = |_, measured| {
            if let Some(place) = places.next() {
                *place = match measured {
                    Measured::Known(exact) => Some(exact),
                    Measured::Another | Measured::Gone => None,
                }
            }
        };
        // What is not to be had exactly is told with how far it may be off.
        selector.measure(&ids, take).ok();
        let shown = now.into_iter().flatten().filter(|facts| members.shows(facts, only_of));
        let mut shown: Vec<TaskFacts> = shown.collect();
        shown.sort_by_key(|facts| Reverse(facts.counted()));
        shown.iter().map(|facts| self.view(facts, members.charge(facts))).collect()
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

fn uncounted(error: &BpfError) -> Refusal {
    Refusal::Unavailable(format!(
        "no program of Plimsoll's counts processes now ({error}); 'plimsoll doctor' says what this kernel offers"
    ))
}
