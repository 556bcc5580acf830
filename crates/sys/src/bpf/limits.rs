//! The limits programs in force, through their pins: lines drawn, accounts read, victims marked.

use super::{
    arguments::{
        CopiesPart, Coverage, DefaultLine, Enforce, FamilyFacts, Holder, LineSet, MapFacts, SharedPages,
        VictimMark, Weighing,
    },
    error::BpfError,
    events::Events,
    facts::{
        AccountFacts, AddressSpace, Counts, account_facts, account_of, address_space, kind_and_id, wire_pages,
    },
    link::{attach_tracepoint, open_pinned, pin},
    load::AT_EVENTS,
    map::Map,
    pins::{Meta, Pins, cause, remove_pin},
    protect::{ProtectedExe, replace},
    site::{Call as _, Site, Table},
};
use crate::process;
use plimsoll_policy::{
    account::Counted,
    units::{Gid, JobId, Nanos, Pages, Pid, Uid},
};
use plimsoll_wire::{abi, pages};
use std::{
    io::{self, Read as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};
use zerocopy::FromBytes as _;

/// Entries read from the address-space map at once. A batch must hold the fullest hash bucket; 512 entries in one
/// bucket of a table with at least as many buckets as entries do not happen.
const BATCH_ENTRIES: usize = 512;

/// How often a line is drawn again that met the account which an event made for the same user at the same time. Once it is
/// made it stays: the second try finds it.
const LINE_TRIES: u32 = 3;

/// The programs in force.
#[derive(Debug)]
pub struct Limits<S: Site = Pins> {
    site: S,
    /// Those whose place these are to take.
    replaces: Option<S>,
    meta: Meta,
    accounts: S::Map,
    account_numbers: S::Map,
    jobs: S::Map,
    mms: S::Map,
    families: S::Map,
    protected_cgroups: S::Map,
    protected_exes: S::Map,
    others: Vec<S::Map>,
    begin_scan: S::Program,
    sweep: S::Program,
    line_set: S::Program,
    line_clear: S::Program,
    default_set: S::Program,
    mark_victim: S::Program,
    weigh: S::Program,
    answer: S::Program,
    actions_told: S::Program,
    read_counters: S::Program,
    copies_set: S::Program,
    measured: S::Program,
    verify: S::Program,
    collect: S::Program,
    attend: S::Program,
    watch_copies: S::Program,
    set_look: S::Program,
    shared_set: S::Program,
    correct: S::Program,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// What the last walk took of a CPU.
    walk_took: Duration,
    /// Copies are counted as long as it is held.
    copies: Option<[OwnedFd; 2]>,
}

/// Which job a process is in, for who has not opened the programs.
#[derive(Debug)]
pub struct Membership(Map);

impl Membership {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when nothing is: then there are no jobs.
    pub fn open(pins: &Pins) -> Result<Self, BpfError> {
        pins.map("jobs").map(Self)
    }

    /// The job that a process is in, by its pidfd.
    ///
    /// # Errors
    /// [`BpfError::Map`] when somebody has waited for it.
    pub fn job_of(&self, process: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError> {
        job_in(&self.0, process)
    }
}

fn job_in(jobs: &impl Table, process: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError> {
    let mut job = [0; 4];
    let is_there = jobs.read(&process.as_raw_fd().to_ne_bytes(), &mut job)?;
    Ok(is_there.then(|| JobId(u32::from_ne_bytes(job))))
}

impl Limits {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// [`BpfError::Schema`] for another version's pins, [`BpfError::Pin`] when something is missing.
    pub fn open(pins: &Pins) -> Result<Self, BpfError> {
        let meta = pins.require_ours("adopt")?;
        let limits = Self::at(pins.clone(), meta)?;
        if limits.mms.value_bytes() < size_of::<abi::plimsoll_mm>()
            || limits.accounts.value_bytes() != size_of::<abi::plimsoll_account>()
        {
            return Err(BpfError::Schema {
                path: pins.root().to_path_buf(),
                found: 0,
                expected: abi::PLIMSOLL_SCHEMA,
            });
        }
        Ok(limits)
    }

    /// Opens what was loaded beside the pins to take their place, or else what is pinned.
    ///
    /// # Errors
    /// As [`Limits::open`].
    pub fn open_latest(pins: &Pins) -> Result<Self, BpfError> {
        let beside = pins.beside();
        if !beside.root().exists() {
            return Self::open(pins);
        }
        Ok(Self { replaces: Some(pins.clone()), ..Self::open(&beside)? })
    }

    /// Puts these in force alone, in the place of those that they were loaded beside; where there are none, nothing.
    ///
    /// # Errors
    /// [`BpfError::Pin`]; then the next daemon brings it to an end.
    pub fn take_place(&mut self) -> Result<(), BpfError> {
        if let Some(replaced) = self.replaces.take() {
            replaced.replace()?;
            self.site = replaced;
        }
        Ok(())
    }

    /// Has copies counted as they are made, or not any more; true where they were not before. What was copied before is
    /// found by surveys alone. Ends with this process.
    ///
    /// # Errors
    /// [`BpfError::Pin`], [`BpfError::Attach`].
    pub fn watch_copies(&mut self, watch: bool) -> Result<bool, BpfError> {
        if watch == self.copies.is_some() {
            return Ok(false);
        }
        if !watch {
            self.copies_are_watched(false)?;
            self.copies = None;
            return Ok(false);
        }
        let attach = |program: &'static str| {
            let path = self.site.programs().join(program);
            let pinned = open_pinned(&path).map_err(|error| cause(&path, "open", &error))?;
            attach_tracepoint(pinned.as_fd()).map_err(|source| BpfError::Attach { program, source })
        };
        self.copies = Some([attach("on_page_alloc")?, attach("on_page_free")?]);
        self.copies_are_watched(true)?;
        Ok(true)
    }

    /// Has each event looked at, or none: then somebody has to look in time ([`Limits::set_look`]). Outlives this process.
    ///
    /// # Errors
    /// [`BpfError::Pin`], [`BpfError::Attach`].
    pub fn watch_events(&self, watch: bool) -> Result<(), BpfError> {
        let there = |program: &&str| *program != "on_fault" || self.meta.task_caches;
        for program in AT_EVENTS.into_iter().filter(there) {
            let (link, pinned) = (self.site.links().join(program), self.site.programs().join(program));
            if !watch {
                remove_pin(&link)?;
            } else if !link.exists() {
                let opened = open_pinned(&pinned).map_err(|error| cause(&pinned, "open", &error))?;
                let attached = attach_tracepoint(opened.as_fd())
                    .map_err(|source| BpfError::Attach { program, source })?;
                pin(attached.as_fd(), &link).map_err(|error| cause(&link, "pin", &error))?;
            }
        }
        Ok(())
    }

    /// The reading end of the records.
    ///
    /// # Errors
    /// [`BpfError`] when the ring buffer cannot be opened.
    pub fn events(&self) -> Result<Events, BpfError> {
        Events::open(&self.site.maps().join("records"))
    }
}

impl<S: Site> Limits<S> {
    /// Those that are there, made for what `meta` says.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when something is missing.
    pub fn at(site: S, meta: Meta) -> Result<Self, BpfError> {
        let map = |name: &'static str| site.map(name);
        let program = |name: &'static str| site.program(name);
        let (mms, accounts) = (map("mms")?, map("accounts")?);
        Ok(Self {
            replaces: None,
            meta,
            keys: vec![0; BATCH_ENTRIES.saturating_mul(8)],
            values: vec![0; BATCH_ENTRIES.saturating_mul(mms.value_bytes())],
            walk_took: Duration::MAX,
            copies: None,
            accounts,
            account_numbers: map("account_numbers")?,
            jobs: map("jobs")?,
            protected_cgroups: map("protected_cgroups")?,
            mms,
            families: map("families")?,
            protected_exes: map("protected_exes")?,
            others: ["records", "cpu_offsets", "bss"].into_iter().map(map).collect::<Result<_, _>>()?,
            begin_scan: program("begin_scan")?,
            sweep: program("sweep")?,
            line_set: program("line_set")?,
            line_clear: program("line_clear")?,
            default_set: program("default_set")?,
            mark_victim: program("mark_victim")?,
            weigh: program("weigh")?,
            answer: program("answer")?,
            actions_told: program("actions_told")?,
            read_counters: program("read_counters")?,
            copies_set: program("copies_set")?,
            measured: program("measured")?,
            verify: program("verify")?,
            collect: program("collect")?,
            attend: program("attend")?,
            watch_copies: program("watch_copies")?,
            set_look: program("set_look")?,
            shared_set: program("shared_set")?,
            correct: program("correct")?,
            site,
        })
    }

    /// What the maps were made for.
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Draws or moves a line. Returns the number of its account.
    ///
    /// # Errors
    /// [`BpfError::Run`]: `ENOSPC` when no account is free.
    pub fn set_line(&self, line: &LineSet) -> Result<u32, BpfError> {
        let (of, id) = kind_and_id(line.whose);
        let mut context = abi::plimsoll_line_set {
            hard_pages: wire_pages(line.hard),
            soft_pages: wire_pages(line.soft),
            id,
            of,
            signal: line.signal,
            enforce: match line.enforce {
                Enforce::Ratchet => abi::PLIMSOLL_LINE_RATCHET,
                Enforce::Open => abi::PLIMSOLL_LINE_OPEN,
                Enforce::Now => abi::PLIMSOLL_LINE_NOW,
                Enforce::Within => abi::PLIMSOLL_LINE_WITHIN,
            },
            from_default: u32::from(line.from_default),
            user: line.user.map_or(abi::PLIMSOLL_NO_UID, |user| user.0),
            above: line
                .above
                .iter()
                .rev()
                .fold(0, |all, one| all << abi::PLIMSOLL_ABOVE_BITS | u64::from(*one)),
            ..Default::default()
        };
        let mut tries = 0;
        loop {
            self.line_set.run(&mut context)?;
            match context.result.saturating_neg() {
                0 => return Ok(context.account),
                // Meanwhile the default line got the user an account.
                libc::EAGAIN if tries < LINE_TRIES => tries += 1,
                _ => return Err(self.line_set.error(context.result)),
            }
        }
    }

    /// Takes a line away; false when there was none.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn clear_line(&self, whose: Counted) -> Result<bool, BpfError> {
        let (of, id) = kind_and_id(whose);
        let mut context = abi::plimsoll_line_clear { id, of, result: 0 };
        self.line_clear.run(&mut context)?;
        match context.result.saturating_neg() {
            0 => Ok(true),
            libc::ENOENT => Ok(false),
            _ => Err(self.line_clear.error(context.result)),
        }
    }

    /// Draws the line that users without their own get, or takes it away. Accounts made from it before keep theirs.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn set_default(&self, line: Option<&DefaultLine>) -> Result<(), BpfError> {
        let mut context = line.map_or(
            abi::plimsoll_default {
                hard_pages: i64::MAX,
                soft_pages: i64::MAX,
                uid_min: abi::PLIMSOLL_NO_UID,
                uid_max: abi::PLIMSOLL_NO_UID,
                ..Default::default()
            },
            |line| abi::plimsoll_default {
                hard_pages: wire_pages(line.hard),
                soft_pages: wire_pages(line.soft),
                uid_min: line.uid_min.0,
                uid_max: line.uid_max.0,
                signal: line.signal,
                pad: 0,
            },
        );
        self.default_set.run(&mut context).map(|_| ())
    }

    /// Walks all tasks once: enters what is not tracked, settles every counter, shows `holding` each living process that
    /// uses a dying address space. Returns the walk's number: see [`AddressSpace::walk`].
    ///
    /// # Errors
    /// [`BpfError`] when a step fails.
    pub fn walk(&mut self, holding: impl FnMut(Holder)) -> Result<u32, BpfError> {
        let mut last = self.walk_took;
        let done = process::walk(&mut last, || self.walk_all(holding));
        self.walk_took = last;
        done
    }

    fn walk_all(&mut self, mut holding: impl FnMut(Holder)) -> Result<u32, BpfError> {
        const HOLDER_BYTES: usize = size_of::<abi::plimsoll_holder>();
        let number = self.begin_scan.run_bare()?;
        let mut iterator = self.site.walk()?;
        // Whole entries at a time, so that none is split between two reads.
        let room = self.values.len() - self.values.len() % HOLDER_BYTES;
        loop {
            match iterator.read(self.values.get_mut(..room).unwrap_or_default()) {
                Ok(0) => break,
                Ok(bytes) => {
                    let read = self.values.get(..bytes).unwrap_or_default();
                    let entries = read.chunks_exact(HOLDER_BYTES);
                    let entries = entries.flat_map(abi::plimsoll_holder::read_from_bytes);
                    entries.map(holder).for_each(&mut holding);
                }
                // The kernel pauses a long walk (kernel/bpf/bpf_iter.c: MAX_ITER_OBJECTS) and goes on when read again.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(BpfError::Scan(error)),
            }
        }
        Ok(number)
    }

    /// Removes address spaces that two walks did not find alive; returns how many.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn sweep(&self) -> Result<u32, BpfError> {
        let mut context = abi::plimsoll_sweep::default();
        self.sweep.run(&mut context)?;
        Ok(context.removed)
    }

    /// Marks a victim. False when it is not tracked any more; for [`VictimMark::Dying`] also when it is another user's by
    /// now, or no victim is needed because the programs took one meanwhile: then none is to be signalled.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn mark(&self, mm: u64, pid: Pid, mark: VictimMark) -> Result<bool, BpfError> {
        let mut context = abi::plimsoll_victim {
            mm,
            tgid: pid.0,
            account: match mark {
                VictimMark::Dying { account } => account,
                VictimMark::Expired | VictimMark::Spared | VictimMark::Condemned => abi::PLIMSOLL_NOBODY,
            },
            mark: match mark {
                VictimMark::Dying { .. } => abi::PLIMSOLL_VICTIM_DYING,
                VictimMark::Expired => abi::PLIMSOLL_VICTIM_EXPIRED,
                VictimMark::Spared => abi::PLIMSOLL_VICTIM_SPARED,
                VictimMark::Condemned => abi::PLIMSOLL_VICTIM_CONDEMNED,
            },
            ..Default::default()
        };
        self.mark_victim.run(&mut context)?;
        Ok(context.result == 0)
    }

    /// Says what a process counts when its account's largest is looked for. False when it is not tracked any more, runs
    /// another program or is another user's by now: then nothing is said of anybody.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn weigh(&self, weighing: &Weighing) -> Result<bool, BpfError> {
        let mut context = abi::plimsoll_weight {
            mm: weighing.mm,
            start_ns: weighing.start_ns,
            tracked_ns: weighing.tracked_ns,
            tgid: weighing.pid.0,
            uid: weighing.uid.0,
            weight: u32::from(weighing.weight.permille()),
            never: u32::from(weighing.never),
            session: u32::from(weighing.session),
            ..Default::default()
        };
        self.weigh.run(&mut context)?;
        Ok(context.result == 0)
    }

    /// Answers an account that asked, and tells until when it need not ask again; 0: as usual.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn answer(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        self.hold(abi::plimsoll_answer { hold_until_ns, account, ..Default::default() })
    }

    /// As [`Limits::answer`], and of what shared memory alone takes past the line: what processes have for themselves is asked
    /// about all the same.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails or there is no such account.
    pub fn hold_shared(&self, account: u32, hold_until_ns: u64) -> Result<(), BpfError> {
        self.hold(abi::plimsoll_answer { hold_until_ns, account, shared: 1, ..Default::default() })
    }

    fn hold(&self, mut context: abi::plimsoll_answer) -> Result<(), BpfError> {
        self.answer.run(&mut context)?;
        if context.result == 0 { Ok(()) } else { Err(self.answer.error(context.result)) }
    }

    /// Finds, among all that an account is charged for, what nobody runs in any more, and counts it as dying.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn verify(&self, account: u32) -> Result<(), BpfError> {
        let mut context = abi::plimsoll_of_account { account, result: 0 };
        self.verify.run(&mut context)?;
        if context.result == 0 { Ok(()) } else { Err(self.verify.error(context.result)) }
    }

    /// Tells the programs whether the pages that are taken and freed are looked at, until this process ends.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn copies_are_watched(&self, watched: bool) -> Result<(), BpfError> {
        let mut context = abi::plimsoll_watch_copies { watched: u32::from(watched) };
        self.watch_copies.run(&mut context).map(|_| ())
    }

    /// Tells the programs by when somebody looks, while no event is looked at: where nobody does, they settle what there is
    /// at ticks. `None`: each event is looked at.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn set_look(&self, due: Option<Nanos>) -> Result<(), BpfError> {
        // An even number, and not 0.
        let due_ns = due.map_or(0, |due| due.0.max(2) & !1);
        self.set_look.run(&mut abi::plimsoll_set_look { due_ns }).map(|_| ())
    }

    /// Tells the programs that this process is the daemon: it answers, until its end, which they notice. `kernel_trigger`:
    /// they take victims themselves; else they only ask.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn attend(&self, kernel_trigger: bool) -> Result<(), BpfError> {
        let mut context = abi::plimsoll_attend { kernel_trigger: u32::from(kernel_trigger), result: 0 };
        self.attend.run(&mut context).map(|_| ())
    }

    /// Charges what a family's members were found to have copied of the pages that they share since a fork. `parts`: of
    /// each member at most so many are its own, and go with it. False: the family has ended.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn set_copies(&self, family: u64, copied: Pages, parts: &[CopiesPart]) -> Result<bool, BpfError> {
        let one = |mm: u64, pid: Pid, pages: Pages| {
            let mut context = abi::plimsoll_copies {
                family,
                mm,
                pages: wire_pages(pages),
                tgid: pid.0,
                ..Default::default()
            };
            self.copies_set.run(&mut context)?;
            Ok(context.result == 0)
        };
        for part in parts {
            // One that has left meanwhile took nothing of the family's with it.
            let _still_there: bool = one(part.mm, part.pid, part.copied)?;
        }
        one(0, Pid(0), copied)
    }

    /// Charges an account for the shared memory that its user owns; `None`: for none any more. Of a group it is said when all
    /// its members' was charged, and only by when. False: the account is another's by now, or its line is still being drawn.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn set_shared(
        &self,
        account: u32,
        whose: Counted,
        owned: Option<SharedPages>,
    ) -> Result<bool, BpfError> {
        let none = SharedPages { ending: Pages(0), lasting: Pages(0), begun: Nanos(0) };
        let SharedPages { ending, lasting, begun } = owned.unwrap_or(none);
        let (of, id) = kind_and_id(whose);
        let mut context = abi::plimsoll_shared_set {
            ending_pages: wire_pages(ending),
            lasting_pages: wire_pages(lasting),
            begun_ns: begun.0,
            account,
            id,
            of,
            result: 0,
        };
        self.shared_set.run(&mut context)?;
        Ok(context.result == 0)
    }

    /// Adds to what a group's account counts: what was missed when its members came below it. False: it is another's by now.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn correct(&self, account: u32, group: Gid, more: &Counts) -> Result<bool, BpfError> {
        let mut context = abi::plimsoll_correction {
            usage_pages: more.usage,
            dying_pages: more.dying,
            processes: more.processes,
            copyable_pages: more.copyable,
            reserved_pages: more.reserved,
            ending_pages: more.ending,
            lasting_pages: more.lasting,
            account,
            id: group.0,
            ..Default::default()
        };
        self.correct.run(&mut context)?;
        Ok(context.result == 0)
    }

    /// One family; `None` when it has ended.
    ///
    /// # Errors
    /// [`BpfError::Map`] when the map cannot be read.
    pub fn family(&self, family: u64) -> Result<Option<FamilyFacts>, BpfError> {
        let found = self.families.get::<abi::plimsoll_family>(&family.to_ne_bytes())?;
        Ok(found.map(|family| FamilyFacts {
            pages: pages(family.pages),
            shares: pages(family.shares),
            copied: pages(family.copied_pages),
            living: family.living,
            account: family.account,
        }))
    }

    /// Whether copy-on-write may still bring an account near its line. When it may not, the programs tell when it may
    /// again. What the surveys since then found of what went uncharged begins anew.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn measure_again(&self, account: u32, read: Coverage) -> Result<bool, BpfError> {
        let unread = match read {
            Coverage::All => 0,
            Coverage::Some => abi::PLIMSOLL_UNREAD_YET,
            Coverage::Hindered => abi::PLIMSOLL_UNREADABLE,
        };
        let mut context = abi::plimsoll_measured { account, unread, result: 0 };
        self.measured.run(&mut context)?;
        match context.result {
            0 | 1 => Ok(context.result == 1),
            error => Err(self.measured.error(error)),
        }
    }

    /// Processes in these cgroups (v2 ids), and in cgroups below them, are never taken by the kernel side; in no others.
    ///
    /// # Errors
    /// [`BpfError::Map`] when there are more than [`abi::PLIMSOLL_PROTECTED_MAX`].
    pub fn protect_cgroups(&self, ids: &[u64]) -> Result<(), BpfError> {
        replace(&self.protected_cgroups, ids.iter().map(|id| (id.to_ne_bytes(), 1)))
    }

    /// What runs these executables is never taken by the kernel side; what runs others is. Of what runs already that is known
    /// once all tasks were walked.
    ///
    /// # Errors
    /// As [`Limits::protect_cgroups`].
    pub fn protect_exes(&self, exes: &[ProtectedExe]) -> Result<(), BpfError> {
        replace(&self.protected_exes, exes.iter().map(ProtectedExe::entry))
    }

    /// One account; `None` when there is none.
    ///
    /// # Errors
    /// [`BpfError::Map`] when a map cannot be read.
    pub fn account(&self, whose: Counted) -> Result<Option<AccountFacts>, BpfError> {
        account_of(whose, &self.account_numbers, |index| read_account(&self.accounts, &self.collect, index))
    }

    /// Every account in use.
    ///
    /// # Errors
    /// [`BpfError::Map`] when a map cannot be read.
    pub fn accounts(&mut self) -> Result<Vec<AccountFacts>, BpfError> {
        let mut all = Vec::new();
        self.account_numbers.each((&mut self.keys, &mut self.values), |_key: &[u8; 8], index| {
            let number = u32::read_from_bytes(index).unwrap_or(abi::PLIMSOLL_NOBODY);
            let account = read_account(&self.accounts, &self.collect, number)?;
            all.extend(account.and_then(|account| account_facts(number, &account)));
            Ok(())
        })?;
        Ok(all)
    }

    /// Shows every tracked address space to `visit`, allocating nothing.
    ///
    /// # Errors
    /// [`BpfError::Map`] when the map cannot be read.
    pub fn address_spaces(&mut self, mut visit: impl FnMut(&AddressSpace)) -> Result<(), BpfError> {
        self.mms.each((&mut self.keys, &mut self.values), |key, value| {
            visit(&address_space(u64::from_ne_bytes(*key), value));
            Ok(())
        })
    }

    /// What the programs counted since they were loaded.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn counters(&self) -> Result<abi::plimsoll_counters, BpfError> {
        let mut counters = abi::plimsoll_counters::default();
        self.read_counters.run(&mut counters)?;
        Ok(counters)
    }

    /// Has a process in a job from here on, by its pidfd: what it forks is in it as well, and what it has by its next exec. It
    /// must have one thread.
    ///
    /// # Errors
    /// [`BpfError::Map`] when it has ended, or there is no memory.
    pub fn enter_job(&self, process: BorrowedFd<'_>, job: JobId) -> Result<(), BpfError> {
        self.jobs.write(&process.as_raw_fd().to_ne_bytes(), &job.0.to_ne_bytes())
    }

    /// The job that a process is in, by its pidfd.
    ///
    /// # Errors
    /// [`BpfError::Map`] when it has ended.
    pub fn job_of(&self, process: BorrowedFd<'_>) -> Result<Option<JobId>, BpfError> {
        job_in(&self.jobs, process)
    }

    /// So many of the programs' actions whose records were lost ([`abi::plimsoll_counters::actions_dropped`]) were told of.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn actions_told(&self, count: u64) -> Result<(), BpfError> {
        let mut context = abi::plimsoll_told { count, account: abi::PLIMSOLL_NOBODY, pad: 0 };
        self.actions_told.run(&mut context).map(|_| ())
    }

    /// So many of an account's kills that were only counted ([`AccountFacts::folded`]) were written down as their number.
    ///
    /// # Errors
    /// [`BpfError::Run`] when the program fails.
    pub fn folded_told(&self, account: u32, count: u32) -> Result<(), BpfError> {
        let mut context = abi::plimsoll_told { count: count.into(), account, pad: 0 };
        self.actions_told.run(&mut context).map(|_| ())
    }

    /// Every map: its size and the kernel memory it takes.
    #[must_use]
    pub fn maps(&self) -> Vec<MapFacts> {
        [&self.mms, &self.accounts, &self.account_numbers, &self.families]
            .into_iter()
            .chain([&self.protected_cgroups, &self.protected_exes])
            .chain(&self.others)
            .map(|map| MapFacts {
                name: map.name(),
                entries_max: map.entries_max(),
                memory_bytes: map.memory_bytes(),
            })
            .collect()
    }
}

fn holder(entry: abi::plimsoll_holder) -> Holder {
    Holder {
        mm: entry.mm,
        pid: Pid(entry.tgid),
        tracked_ns: entry.tracked_ns,
        start_ns: entry.start_ns,
        uid: Uid(entry.uid),
    }
}

/// An account with all that was charged to it, what lies in its tree too.
fn read_account(
    accounts: &impl Table,
    collect: &impl super::Call,
    index: u32,
) -> Result<Option<abi::plimsoll_account>, BpfError> {
    let read = || accounts.get::<abi::plimsoll_account>(&index.to_ne_bytes());
    let account = read()?;
    if account.is_none_or(|account| account.batch == 0) {
        return Ok(account);
    }
    collect.run(&mut abi::plimsoll_of_account { account: index, result: 0 })?;
    read()
}
