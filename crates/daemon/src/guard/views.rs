//! What the guard shows of itself.

use super::{
    Guard,
    kernel::{Kernel as TheKernel, Programs as _, Records as _},
    kill::pending::Owner,
    limits::shared::{NOT_FULLY_KNOWN, Shared, named},
    machine::MachineGuard,
};
use crate::{
    api::control::Refusal,
    tmalloc::{Shown, Tally},
};
use plimsoll_api::{
    accounts::{AccountView, SharedFileView},
    status::{
        GuardView, Guards, Kernel, MapView, MarginView, OthersView, OwnView, Pressure, Selection, Status,
        TmallocView, Triggers,
    },
};
use plimsoll_policy::{
    account::{Account, Action, Counted},
    incident::Guard as Side,
    machine::{MachineConfig, MachineReading, Margin, Permille, Thresholds},
    units::{Bytes, Nanos, Pages, Uid, part},
};
use plimsoll_sys::bpf::AccountFacts;
use plimsoll_wire::shared::SharedName;

/// How often users other than root can have all tasks walked.
const SCAN_FOR_USERS_EVERY: Nanos = Nanos(100_000_000);

/// What is said of a strict job that is none.
const NOT_STRICT: &str = "its line is not in force: nothing refuses memory to it now";

/// The programs, as they are attached while there are lines.
const PROGRAMS: [&str; 4] = [
    "tp_btf/exit_mmap",
    "tp_btf/sched_process_fork",
    "tp_btf/sched_process_exec",
    "tp_btf/hrtimer_expire_entry",
];

impl<K: TheKernel> Guard<K> {
    /// Accounts with a line, exact at this moment: what is not settled is settled first.
    pub(super) fn account_views(
        &mut self,
        only: Option<&Account>,
        asker: Uid,
    ) -> Result<Vec<AccountView>, Refusal> {
        let facts = match only {
            Some(Account::Cgroup(_) | Account::System) => Vec::new(),
            Some(Account::User(_) | Account::Group(_) | Account::Job(_)) | None => {
                self.settled_accounts(asker).map_err(|error| Refusal::Internal(error.to_string()))?
            }
        };
        let users = facts.iter().filter_map(|facts| self.view(facts, asker));
        let mut views: Vec<AccountView> = users
            .chain(self.measured.views(self.page_size()))
            .filter(|view| only.is_none_or(|only| *only == view.account))
            .collect();
        views.sort_by(|a, b| a.account.cmp(&b.account));
        Ok(views)
    }

    /// A scan settles counters of accounts far from their line, and processes that changed user without an event since.
    /// Whoever is not root gets what the last one found if that was a moment ago: asking often must not keep the guard
    /// busy.
    fn settled_accounts(&mut self, asker: Uid) -> Result<Vec<AccountFacts>, plimsoll_sys::bpf::BpfError> {
        let Some(attached) = &mut self.attached else {
            return Ok(Vec::new());
        };
        if asker == Uid::ROOT || attached.last_scan_ago(self.context.kernel.now()) > SCAN_FOR_USERS_EVERY {
            attached.scan(&self.context.kernel)?;
        }
        attached.limits.accounts()
    }

    fn view(&self, facts: &AccountFacts, asker: Uid) -> Option<AccountView> {
        let page_size = self.page_size();
        let line = self.book.resolve_counted(facts.whose, self.mem_total, page_size)?;
        let bytes = |pages| page_size.to_bytes(pages).0;
        let shared = self.walked_shared();
        let users = self.users_of(facts.whose);
        let is_partly = |shared: &Shared| users.iter().any(|uid| shared.partly.contains(uid));
        let is_partly = shared.is_some_and(is_partly);
        // What other members have is not a member's to read.
        let is_shown = |uid: &Uid| facts.user.is_some() || asker == Uid::ROOT || *uid == asker;
        let owners: Vec<Uid> = users.iter().copied().filter(is_shown).collect();
        let is_strict = line.action == Action::Deny;
        let strict = self.strict.view(facts.whose, bytes);
        let limit = |pages| (!line.is_none() && !is_strict).then(|| bytes(pages));
        Some(AccountView {
            account: facts.whose.into(),
            name: self.job_name(facts.whose),
            usage_bytes: bytes(facts.usage.saturating_add(facts.lasting)),
            reserved_bytes: bytes(facts.reserved),
            shared_bytes: shared.map(|_| bytes(facts.shared.saturating_add(facts.lasting))),
            shared_files: self.shared_files(&owners),
            peak_bytes: Some(bytes(facts.peak)),
            soft_bytes: limit(facts.soft),
            hard_bytes: if is_strict { strict.map(|_| bytes(line.hard)) } else { limit(facts.hard) },
            effective_bytes: facts.effective.and_then(limit),
            action: line.action,
            near: facts.near,
            processes: u64::from(facts.processes),
            source: line.source,
            target: Some(line.set_as.target()),
            set_by: Some(line.set_as.set_by()),
            note: (is_strict && strict.is_none())
                .then(|| NOT_STRICT.into())
                .or_else(|| is_partly.then(|| NOT_FULLY_KNOWN.into()))
                .or_else(|| self.doubt_of(facts.whose)),
            job: None,
            strict,
            process_list: None,
            process_list_more: None,
        })
    }

    /// What walks found; `None` where there was none, or shared memory is not charged.
    fn walked_shared(&self) -> Option<&Shared> {
        let charged = self.attached.as_ref().filter(|_| self.context.config.charges_shared);
        charged.map(|attached| &attached.shared_memory).filter(|shared| shared.unexplained.is_some())
    }

    /// Whose processes are charged to an account.
    fn users_of(&self, whose: Counted) -> Vec<Uid> {
        self.attached.as_ref().map_or_else(Vec::new, |attached| attached.groups.users_of(whose))
    }

    /// What its user calls a job; other names are for the client to look up.
    fn job_name(&self, whose: Counted) -> Option<String> {
        match whose {
            Counted::Job(id) => self.book.jobs().get(id)?.name.clone(),
            Counted::User(_) | Counted::Group(_) => None,
        }
    }

    /// Why members of a group may be missing, or still be charged to it.
    fn doubt_of(&self, whose: Counted) -> Option<String> {
        match whose {
            Counted::User(_) | Counted::Job(_) => None,
            Counted::Group(gid) => {
                Some(format!("of its members: {}", self.book.membership(gid)?.doubt.as_ref()?))
            }
        }
    }

    fn shared_files(&self, users: &[Uid]) -> Vec<SharedFileView> {
        let largest = self.walked_shared().map_or_else(Vec::new, |shared| shared.largest_of(users));
        let view = |(name, pages): &(SharedName, Pages)| SharedFileView {
            name: named(name),
            bytes: self.page_size().to_bytes(*pages).0,
        };
        largest.iter().map(view).collect()
    }

    pub(super) fn status(&mut self, asker: Uid) -> Result<Status, Refusal> {
        let accounts = self.account_views(None, asker)?;
        let limits_on = self.attached.is_some() && !self.undrawn.is_all();
        let measured = !self.measured.is_empty();
        Ok(Status {
            daemon: true,
            triggers: Triggers {
                kernel: self.kernel_trigger(),
                daemon: if !self.context.config.triggers.daemon {
                    "switched off in the configuration"
                } else if self.context.config.dry_run {
                    "dry run: decisions are recorded, nothing is sent"
                } else if limits_on && measured {
                    "in force: kills the largest process by pidfd when the kernel side asks, and where it sees a line of \
                     a cgroup or of the system crossed"
                } else if limits_on {
                    "in force: kills the largest process by pidfd when the kernel side asks"
                } else if measured {
                    "in force: looks at cgroups and the system, and kills the largest process by pidfd where a line is \
                     crossed"
                } else if self.machine.is_some() && self.undrawn.is_all() {
                    "in force for the machine guard; no line is in force"
                } else if self.machine.is_some() {
                    "in force for the machine guard; no line is set"
                } else if self.undrawn.is_all() {
                    "no line is in force"
                } else {
                    "idle: no line is set and the machine guard is off"
                }
                .into(),
                last_defence: self.context.last_defence.words(limits_on, self.context.config.dry_run),
            },
            guards: self.guards(limits_on || measured),
            accounts,
            groups: Vec::new(),
            default: None,
            reaping: None,
            pressure_socket: Some(self.context.listeners.shown()),
            jobs: None,
            pressure: self.pressure(),
            kernel: self.kernel()?,
        })
    }

    /// What the kernel side does here, and what this kernel does not let it do.
    fn kernel_trigger(&self) -> String {
        let undrawn = self.undrawn.words();
        let Some(attached) = self.attached.as_ref().filter(|_| !self.undrawn.is_all()) else {
            return undrawn.unwrap_or_else(|| "not attached: no line is set".into());
        };
        if !self.context.config.triggers.kernel {
            return "switched off in the configuration: crossings are only reported".into();
        }
        if self.context.config.dry_run {
            return "dry run: crossings are recorded, nothing is sent".into();
        }
        let meta = attached.limits.meta();
        let mut told = if meta.signals_others {
            "in force: kills the account's largest process in the event that crosses, asleep or not"
                .to_owned()
        } else {
            "in force: kills the allocating process in the event that crosses when it is the account's largest; another \
             one is killed by the daemon (before Linux 6.13 the kernel cannot), and the allocating one when no daemon \
             answers"
                .to_owned()
        };
        if meta.task_caches {
            told.push_str(
                "; page counts that threads keep to themselves (before Linux 6.2) are read after each fault",
            );
        }
        if let Some(undrawn) = undrawn {
            told.push_str("; ");
            told.push_str(&undrawn);
        }
        told
    }

    fn guards(&self, limits_on: bool) -> Guards {
        let dying_lines =
            self.context.pending.count_of(|owner| matches!(owner, Owner::Line(_) | Owner::Measured(_)));
        let dying_machine = self.context.pending.count_of(|owner| owner == Owner::Machine);
        let dying_floor = self.context.pending.count_of(|owner| owner == Owner::WorkingSet);
        let view = |on: bool, dying, guard| GuardView {
            state: if on { "on" } else { "off" }.into(),
            dry_run: self.context.config.dry_run,
            dying,
            incidents: self.context.ledger.recorded(guard),
            last_incident: self.context.ledger.last_id(guard),
        };
        let (history, commit) = self.context.ledger.written();
        let (kernel, programs) = self.foreign_kills.words();
        let (incidents, last) =
            (self.context.ledger.recorded(Side::Kernel), self.context.ledger.last_id(Side::Kernel));
        let rivals = self.foreign_kills.rivals().iter().map(|unit| (*unit).to_owned()).collect();
        Guards {
            others: Some(OthersView { kernel, programs, rivals, incidents, last_incident: last }),
            tmalloc: Some(self.tmalloc()),
            // Whether it is on is for others to say.
            workingset: Some(view(false, dying_floor, Side::Workingset)),
            fragmentation: Some(self.fragmentation.view(&self.context.ledger)),
            limits: view(limits_on, dying_lines, Side::Limits),
            pressure: view(self.machine.is_some(), dying_machine, Side::Pressure),
            own: OwnView {
                resident_bytes: None,
                uptime_seconds: None,
                wake_ups: Some(self.wake_ups),
                incidents_lost: Some(history.dropped.saturating_add(history.unwritten)),
                incidents_waiting: Some(history.waiting),
                commit_last_ns: commit.map(|(last, _)| last),
                commit_longest_ns: commit.map(|(_, longest)| longest),
                protected: u64::try_from(self.context.eligibility.shield.len()).ok(),
                reap_lowest_bytes_per_second: self.context.pending.rates().lowest(),
            },
        }
    }

    fn tmalloc(&self) -> TmallocView {
        let (state, tally) = match self.context.tmalloc.shown() {
            Shown::On(tally) => (String::from("on"), tally),
            Shown::Starting => (String::from("starting"), Tally::default()),
            Shown::Off(why) => (format!("off: {why}"), Tally::default()),
        };
        TmallocView {
            state,
            connections: tally.connections,
            waiting: tally.waiting,
            granted: tally.granted,
            refused: tally.refused,
            incidents: self.context.ledger.recorded(Side::Tmalloc),
            last_incident: self.context.ledger.last_id(Side::Tmalloc),
        }
    }

    fn pressure(&self) -> Pressure {
        let reading = self.machine.as_ref().and_then(|machine| machine.last());
        let known = |pick: fn(&MachineReading) -> Option<Bytes>| reading.and_then(pick).map(|bytes| bytes.0);
        let available = known(|reading| reading.mem_available.known());
        let anon = known(|reading| reading.anon.known());
        let swap_total = known(|reading| reading.swap_total.known());
        let config = self.machine.as_ref().map(|machine| *machine.config());
        let swap = |permille: fn(&MachineConfig) -> Thresholds| {
            let Permille(share) = permille(config.as_ref()?).swap;
            part(swap_total?, share.into(), 1000)
        };
        let programs = available.zip(anon).map(|(available, anon)| Bytes(available.saturating_add(anon)));
        let memory = |thresholds: fn(&MachineConfig) -> Thresholds| {
            let config = config.as_ref()?;
            Some(config.memory_line(&thresholds(config), programs?).0)
        };
        let margin =
            self.machine.as_ref().filter(|machine| machine.last().is_some()).map(MachineGuard::margin);
        let left = available
            .zip(known(|reading| reading.swap_free.known()))
            .map(|(memory, swap)| memory.saturating_add(swap));
        let exhausted = |margin: &Margin| margin.time_for(Bytes(left?)).map(|time| time.0);
        Pressure {
            mem_total_bytes: Some(self.mem_total.0),
            mem_available_bytes: available,
            anon_bytes: anon,
            swap_total_bytes: swap_total,
            swap_free_bytes: known(|reading| reading.swap_free.known()),
            shared_unexplained_bytes: self.walked_shared().and_then(|it| it.unexplained).map(|bytes| bytes.0),
            term_at_mem_bytes: memory(|config| config.term),
            term_at_swap_bytes: swap(|config| config.term),
            kill_at_mem_bytes: memory(|config| config.kill),
            kill_at_swap_bytes: swap(|config| config.kill),
            looks: self.machine.as_ref().map(|machine| machine.told_by().into()),
            margin: margin.map(margin_view),
            exhausted_in_ns: margin.and_then(exhausted),
            selection: self.machine.as_ref().map(|machine| self.selection(machine)),
        }
    }

    fn selection(&self, machine: &MachineGuard) -> Selection {
        let now = self.context.kernel.now();
        let ready = machine.ready_since(now).map(|taken| now.0.saturating_sub(taken.0));
        Selection { from: machine.source().map(String::from), ready_ns: ready, last: machine.effort() }
    }

    fn kernel(&mut self) -> Result<Kernel, Refusal> {
        let release = plimsoll_sys::process::kernel_version().ok().map(|version| version.to_string());
        let Some(attached) = &mut self.attached else {
            return Ok(Kernel {
                release,
                attached: false,
                pin: Some(self.pins.root().display().to_string()),
                schema: None,
                programs: Vec::new(),
                maps: Vec::new(),
                map_bytes: Some(0),
                records_dropped: None,
                signals_failed: None,
            });
        };
        let counters = attached.limits.counters().map_err(|error| Refusal::Internal(error.to_string()))?;
        let accounts = attached.limits.accounts().map_err(|error| Refusal::Internal(error.to_string()))?;
        let users = accounts.iter().filter(|one| one.whose.user().is_some());
        let processes = users.map(|one| u64::from(one.processes)).sum();
        let maps: Vec<MapView> = attached
            .limits
            .maps()
            .into_iter()
            .map(|map| MapView {
                used: match map.name {
                    "mms" => Some(processes),
                    "account_numbers" => u64::try_from(accounts.len()).ok(),
                    _ => None,
                },
                full: match map.name {
                    "mms" => Some(counters.mms_full),
                    "accounts" => Some(counters.accounts_full),
                    "families" => Some(counters.families_full),
                    "records" => Some(counters.records_dropped.saturating_add(attached.events.undecodable())),
                    _ => None,
                },
                name: map.name.into(),
                max: u64::from(map.entries_max),
                bytes: map.memory_bytes,
            })
            .collect();
        let at_events = !attached.coarse.is_used();
        let task_caches = attached.limits.meta().task_caches;
        Ok(Kernel {
            release,
            attached: at_events,
            pin: Some(self.pins.root().display().to_string()),
            schema: Some(attached.limits.meta().schema),
            programs: PROGRAMS
                .into_iter()
                .chain(at_events.then_some("tp_btf/rss_stat"))
                .chain((at_events && task_caches).then_some("fexit/handle_mm_fault"))
                .chain(self.strict.is_on().then_some("fmod_ret/security_vm_enough_memory_mm"))
                .chain(attached.limits.meta().refuses_forks.then_some("fmod_ret/security_task_alloc"))
                .map(String::from)
                .collect(),
            map_bytes: maps.iter().map(|map| map.bytes).sum(),
            maps,
            records_dropped: Some(counters.records_dropped),
            signals_failed: Some(counters.signals_failed),
        })
    }
}

fn margin_view(margin: &Margin) -> MarginView {
    MarginView {
        bytes: margin.bytes.0,
        fill_bytes_per_second: margin.fill_per_second,
        detect_ns: margin.detect.0,
        select_ns: margin.select.0,
        signal_ns: margin.signal.0,
        reap_ns: margin.reap.0,
        reap_bytes_per_second: margin.reap_per_second,
    }
}
