//! What cgroups that have a line hold, and the machine: read off the guard thread, because the kernel adds a cgroup's numbers
//! up when they are read, and allocates for that, so that it waits where memory is short.
//!
//! No event tells of them. The guard says when to look, and at what.

mod in_force;

use crate::offload::{Haste, Lane, Offload};
use in_force::LinesInForce;
pub(crate) use in_force::{InForceFile, OPEN};
use plimsoll_policy::{
    account::{Account, CgroupPath},
    reading::Reading,
    units::{Bytes, Nanos, Pid},
};
use plimsoll_sys::{
    cgroup::{MemoryCgroup, Programs},
    process::{ProcRoot, clock_monotonic_ns, online_cpus},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

/// Cgroups whose files are kept open; when there are more, all are opened anew.
const OPEN_MAX: usize = 512;

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// The guard's number for it.
    pub(crate) key: u32,
    /// What it is.
    pub(crate) account: Account,
    /// The line in force: above this usage it is to be told who is in it.
    pub(crate) line: Bytes,
    /// The line as it was drawn; `None`: it is drawn no more, or nobody ends for it.
    pub(crate) hard: Option<Bytes>,
    /// It was drawn when the daemon began, and is looked at for the first time.
    pub(crate) inherits: bool,
}

/// What was seen of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// As in the [`Order`].
    pub(crate) key: u32,
    /// What programs hold there. `Absent`: there is no such cgroup now.
    pub(crate) usage: Reading<Programs>,
    /// Who is in it and below it, where that was to be told. `None`: not told, or everybody.
    pub(crate) members: Option<BTreeSet<Pid>>,
    /// The line that an earlier daemon had in force.
    pub(crate) inherited: Option<Bytes>,
}

/// What was seen of all that was asked about at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// One for each order.
    pub(crate) looks: Vec<Look>,
    /// When it was begun.
    pub(crate) began: Nanos,
    /// How long it took.
    pub(crate) took: Nanos,
    /// How many CPUs work; `None`: not known.
    pub(crate) cpus: Option<u32>,
}

/// Has them looked at.
#[derive(Debug)]
pub(crate) struct Meter {
    orders: Lane<Vec<Order>>,
}

impl Meter {
    /// Tells what it sees with `tell`.
    pub(crate) fn new(
        offload: &Offload,
        mut gauge: Gauge,
        mut file: InForceFile,
        tell: impl Fn(Looked) + Send + 'static,
    ) -> Self {
        let mut in_force = LinesInForce::new(file.read());
        // It waits for a disk.
        let saved = offload.lane(Haste::Ordinary, 1, move |lines| file.write(lines));
        // Late by as long as it waits for a CPU, and in a storm that is when it matters.
        let orders = offload.lane(Haste::Urgent, 1, move |orders: Vec<Order>| {
            let mut looked = gauge.look(&orders);
            in_force.take(&orders, &mut looked.looks);
            tell(looked);
            in_force.hand(|lines| saved.hand(lines));
        });
        Self { orders }
    }

    /// One that sees nothing, and what it is asked.
    #[cfg(test)]
    pub(crate) fn by_another() -> (Self, std::sync::mpsc::Receiver<Vec<Order>>) {
        let (orders, asked) = Lane::of_another(1);
        (Self { orders }, asked)
    }

    /// Asks for a look; false while it is still at the one before. Never waits.
    pub(crate) fn ask(&self, orders: Vec<Order>) -> bool {
        self.orders.hand(orders)
    }
}

/// Reads.
#[derive(Debug)]
pub(crate) struct Gauge {
    proc: ProcRoot,
    /// What is mapped of files and shared memory counts, too.
    mapped: bool,
    open: BTreeMap<CgroupPath, MemoryCgroup>,
}

impl Gauge {
    pub(crate) const fn new(proc: ProcRoot, mapped: bool) -> Self {
        Self { proc, mapped, open: BTreeMap::new() }
    }

    fn look(&mut self, orders: &[Order]) -> Looked {
        let began = Nanos(clock_monotonic_ns());
        let looks = orders.iter().map(|order| {
            let usage = self.usage(&order.account);
            let usage = self.without_files(usage, order);
            let over = usage.known().is_some_and(|programs| programs.usage > order.line);
            let members = if over { self.processes(&order.account) } else { None };
            Look { key: order.key, usage, members, inherited: None }
        });
        let looks = looks.collect();
        let took = Nanos(clock_monotonic_ns()).saturating_sub(began);
        Looked { looks, began, took, cpus: online_cpus().ok() }
    }

    /// What programs hold there.
    pub(crate) fn usage(&mut self, account: &Account) -> Reading<Programs> {
        match account {
            Account::User(_) | Account::Group(_) | Account::Job(_) => Reading::Absent,
            Account::Cgroup(path) => match self.of_cgroup(path, MemoryCgroup::programs) {
                Ok(usage) => Reading::Known(usage),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Absent,
                Err(_) => Reading::Unreadable,
            },
            Account::System => self.of_machine().map_or(Reading::Unreadable, Reading::Known),
        }
    }

    /// Files that grew just now look like programs' memory until the kernel has added up what is below: where that makes the
    /// difference, each cgroup below is asked by itself.
    fn without_files(&mut self, usage: Reading<Programs>, order: &Order) -> Reading<Programs> {
        let Account::Cgroup(path) = &order.account else { return usage };
        match usage.known() {
            Some(programs) if programs.usage > order.line && programs.settled <= order.line => {
                let now = self.of_cgroup(path, MemoryCgroup::settled_now);
                let settled = now.unwrap_or(programs.settled).max(programs.settled);
                Reading::Known(Programs { usage: programs.usage.min(settled), settled, ..programs })
            }
            _ => usage,
        }
    }

    /// Who is in it and below it; `None` where that cannot be told, and of the machine.
    pub(crate) fn processes(&mut self, account: &Account) -> Option<BTreeSet<Pid>> {
        match account {
            Account::User(_) | Account::Group(_) | Account::Job(_) | Account::System => None,
            Account::Cgroup(path) => match self.of_cgroup(path, |cgroup, _| cgroup.processes()) {
                Ok(listed) => Some(listed),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(_) => self.processes_by_their_own(path),
            },
        }
    }

    /// The same, found by what each of all processes says of itself: where a cgroup cannot be listed, or not whole.
    fn processes_by_their_own(&mut self, path: &CgroupPath) -> Option<BTreeSet<Pid>> {
        let mut all = Vec::new();
        let counted = self.proc.processes(|process| all.push(process.pid));
        counted.ok()?;
        Some(all.into_iter().filter(|pid| self.proc.is_below(*pid, path).unwrap_or(false)).collect())
    }

    /// How many processes the machine runs; `None` where that cannot be told.
    pub(crate) fn count_all(&mut self) -> Option<usize> {
        let mut count = 0_usize;
        let counted = self.proc.processes(|process| {
            count = count.saturating_add(usize::from(!process.kernel_thread));
        });
        counted.ok().map(|_| count)
    }

    fn of_machine(&mut self) -> Option<Programs> {
        let info = self.proc.read_meminfo().ok()?;
        let swapped = info.swap_total?.saturating_sub(info.swap_free?);
        let swapped = swapped.saturating_sub(info.swap_cached.unwrap_or_default());
        let mapped = info.mapped.filter(|_| self.mapped).unwrap_or_default();
        let usage = info.anonymous?.saturating_add(swapped).saturating_add(mapped);
        Some(Programs { usage, settled: usage, mapped })
    }

    /// One that was removed is looked for again the next time: another may have its path by then.
    fn of_cgroup<T>(
        &mut self,
        path: &CgroupPath,
        read: impl FnOnce(&MemoryCgroup, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let cgroup = match self.open.remove(path).filter(MemoryCgroup::is_at_its_path) {
            Some(cgroup) => cgroup,
            None => MemoryCgroup::open(path.as_str())?,
        };
        let value = read(&cgroup, self.mapped)?;
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(path.clone(), cgroup);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
