//! What the page tells, from the daemon's status, the machine's own numbers and what incidents add up to.

use super::{
    account::{Names, Of},
    page::{Labels, Page, Value},
    tally::{Counts, seconds},
};
use plimsoll_api::{
    accounts::AccountView,
    status::{Guards, JobsView, Kernel, OwnView, Pressure, Status},
};
use plimsoll_wire::text::{Meminfo, Pressure as Stalls};
use std::{collections::BTreeMap, time::Duration};

/// Accounts that are shown: of more, those that use most.
const ACCOUNTS_MAX: usize = 1024;

/// What is read for a page. What is not known is left out of it.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) status: Status,
    pub(super) memory: Meminfo,
    pub(super) stalls: Option<Stalls>,
    /// The time of CPUs that the daemon has had.
    pub(super) cpu: Duration,
    /// Clients of the metrics that were cut.
    pub(super) cut: u64,
}

/// The page; with `users`, for whoever may know of single users and units.
pub(super) fn page(facts: &Facts, counts: &Counts, users: Option<&Names>) -> Page {
    let mut page = Page::default();
    let status = &facts.status;
    let version = Vec::from([("version", env!("CARGO_PKG_VERSION").to_owned())]);
    page.gauges("plimsoll_build_info", "Always 1; the daemon's version.", [(version, Value::Whole(1))]);
    guards(&mut page, &status.guards);
    incidents(&mut page, counts);
    memory(&mut page, facts, &status.pressure);
    own(&mut page, facts, &status.guards.own);
    kernel(&mut page, &status.kernel);
    asked(&mut page, status);
    accounts(&mut page, &status.accounts, users);
    jobs(&mut page, status.jobs);
    account_kills(&mut page, counts, users);
    page
}

fn label(name: &'static str, value: &str) -> Labels {
    Vec::from([(name, value.to_owned())])
}

fn guards(page: &mut Page, guards: &Guards) {
    let on = |state: &str| Value::from(state.split([';', ' ']).next() == Some("on"));
    let others = [
        ("workingset", guards.workingset.as_ref().map(|guard| &guard.state)),
        ("fragmentation", guards.fragmentation.as_ref().map(|guard| &guard.state)),
        ("tmalloc", guards.tmalloc.as_ref().map(|guard| &guard.state)),
    ];
    let all = [("limits", Some(&guards.limits.state)), ("pressure", Some(&guards.pressure.state))];
    page.gauges(
        "plimsoll_guard_on",
        "1 where the guard is at work; limits is also 0 while no line is drawn.",
        all.into_iter().chain(others).filter_map(|(name, state)| Some((label("guard", name), on(state?)))),
    );
    page.gauge(
        "plimsoll_dry_run",
        "1 where the daemon decides and sends nothing.",
        Some(guards.limits.dry_run),
    );
    let dying = [
        ("limits", Some(guards.limits.dying)),
        ("pressure", Some(guards.pressure.dying)),
        ("workingset", guards.workingset.as_ref().map(|guard| guard.dying)),
    ];
    page.gauges(
        "plimsoll_dying_processes",
        "Victims that were signalled and are not gone yet.",
        dying.into_iter().filter_map(|(name, dying)| Some((label("guard", name), dying?.into()))),
    );
}

fn incidents(page: &mut Page, counts: &Counts) {
    page.counters(
        "plimsoll_kills",
        "SIGKILLs since the daemon started, by who decided. They stay counted when the victim and its container are gone.",
        counts.kills.iter().map(|(kind, number)| {
            let labels = [
                ("guard", kind.guard),
                ("origin", kind.origin),
                ("reason", kind.reason),
                ("trigger", kind.trigger),
            ];
            (labels.map(|(name, value)| (name, value.to_owned())).into(), (*number).into())
        }),
    );
    page.counters(
        "plimsoll_incidents",
        "Incidents since the daemon started: kills, SIGTERMs, refusals of memory, notices.",
        counts.incidents.iter().map(|((guard, action), number)| {
            let labels = [("action", *action), ("guard", *guard)];
            (labels.map(|(name, value)| (name, value.to_owned())).into(), (*number).into())
        }),
    );
    page.histograms(
        "plimsoll_cross_to_signal_seconds",
        "From the moment a line was crossed to the signal sent.",
        counts.to_signal.iter().map(|(trigger, spread)| (label("trigger", trigger), spread.clone())),
    );
    page.histograms(
        "plimsoll_signal_to_freed_seconds",
        "From the signal to the victim's memory being back.",
        [(Labels::new(), counts.to_freed.clone())],
    );
    page.counter("plimsoll_freed_bytes", "Memory that victims gave back.", Some(counts.freed_bytes));
}

fn memory(page: &mut Page, facts: &Facts, pressure: &Pressure) {
    let Facts { memory, stalls, .. } = facts;
    let bytes = |bytes: Option<plimsoll_policy::units::Bytes>| bytes.map(|bytes| bytes.0);
    page.gauge("plimsoll_memory_bytes", "Memory of the machine.", pressure.mem_total_bytes);
    page.gauge(
        "plimsoll_memory_available_bytes",
        "Available memory of the machine.",
        bytes(memory.mem_available),
    );
    page.gauge("plimsoll_swap_bytes", "Swap of the machine.", bytes(memory.swap_total));
    page.gauge("plimsoll_swap_free_bytes", "Free swap of the machine.", bytes(memory.swap_free));
    let at = |term: Option<u64>, kill: Option<u64>| {
        let both = [("term", term), ("kill", kill)];
        both.into_iter().filter_map(|(action, bytes)| Some((label("action", action), bytes?.into())))
    };
    page.gauges(
        "plimsoll_memory_threshold_bytes",
        "The machine guard acts when available memory is at or under this, and free swap under its own.",
        at(pressure.term_at_mem_bytes, pressure.kill_at_mem_bytes),
    );
    page.gauges(
        "plimsoll_swap_threshold_bytes",
        "The machine guard acts when free swap is at or under this, and available memory under its own.",
        at(pressure.term_at_swap_bytes, pressure.kill_at_swap_bytes),
    );
    let margin = pressure.margin.as_ref();
    page.gauge(
        "plimsoll_margin_bytes",
        "Memory that has to be left when a victim is selected, as last worked out.",
        margin.map(|margin| margin.bytes),
    );
    page.gauge(
        "plimsoll_fill_bytes_per_second",
        "How fast memory and swap are being used up, as last measured.",
        margin.map(|margin| margin.fill_bytes_per_second),
    );
    page.gauge(
        "plimsoll_exhausted_in_seconds",
        "Until memory and swap are used up at that rate; absent while they are not.",
        pressure.exhausted_in_ns.map(seconds),
    );
    let stalled = |stalls: &Stalls| [("some", stalls.some.total_us), ("full", stalls.full.total_us)];
    page.counters(
        "plimsoll_pressure_stalled_seconds",
        "Time for which some or all programs of the machine waited for memory, since it started (PSI).",
        stalls.iter().flat_map(stalled).map(|(share, micros)| {
            (label("share", share), Duration::from_micros(micros).as_secs_f64().into())
        }),
    );
}

fn own(page: &mut Page, facts: &Facts, own: &OwnView) {
    page.gauge("plimsoll_uptime_seconds", "Since the daemon started.", own.uptime_seconds);
    page.gauge("plimsoll_resident_bytes", "Resident memory of the daemon.", own.resident_bytes);
    page.counter(
        "plimsoll_cpu_seconds",
        "Time of CPUs that the daemon has had.",
        Some(facts.cpu.as_secs_f64()),
    );
    page.counter("plimsoll_guard_wakeups", "Times the guard thread woke up.", own.wake_ups);
    page.counter(
        "plimsoll_incidents_lost",
        "Incidents that found no room in the queue of the history, or can never be stored.",
        own.incidents_lost,
    );
    page.gauge(
        "plimsoll_incidents_waiting",
        "Records of incidents that the disk refuses at present.",
        own.incidents_waiting,
    );
    page.gauge(
        "plimsoll_commit_longest_seconds",
        "The longest from an incident to its being on the disk.",
        own.commit_longest_ns.map(seconds),
    );
    page.gauge(
        "plimsoll_reap_lowest_bytes_per_second",
        "The lowest rate at which a victim's memory came back.",
        own.reap_lowest_bytes_per_second,
    );
    page.gauge("plimsoll_protected_processes", "Processes that may never be selected.", own.protected);
    page.counter(
        "plimsoll_metrics_clients_cut",
        "Clients of these metrics that were cut: too slow, too many, or not understood.",
        Some(facts.cut),
    );
}

fn kernel(page: &mut Page, kernel: &Kernel) {
    page.gauge(
        "plimsoll_programs_attached",
        "1 where programs are attached on the allocation path.",
        Some(kernel.attached),
    );
    page.gauge("plimsoll_map_bytes", "Kernel memory of the maps of lines.", kernel.map_bytes);
    page.counters(
        "plimsoll_map_full",
        "Times that a map was full when an entry was needed.",
        kernel.maps.iter().filter_map(|map| Some((label("map", &map.name), map.full?.into()))),
    );
    page.counter(
        "plimsoll_kernel_records_dropped",
        "Records from the kernel that found no room in the ring.",
        kernel.records_dropped,
    );
    page.counter(
        "plimsoll_signals_failed",
        "Signals that the kernel refused to send.",
        kernel.signals_failed,
    );
}

/// What others asked for.
fn asked(page: &mut Page, status: &Status) {
    let tmalloc = status.guards.tmalloc.as_ref();
    page.counter("plimsoll_grants", "Requests for memory that were granted.", tmalloc.map(|it| it.granted));
    page.counter("plimsoll_refusals", "Requests for memory that were refused.", tmalloc.map(|it| it.refused));
    page.gauge(
        "plimsoll_grants_waiting",
        "Requests for memory that wait for room.",
        tmalloc.map(|it| it.waiting),
    );
    let reaping = status.reaping.as_ref();
    page.counter(
        "plimsoll_expedited_victims",
        "Victims of others whose memory was freed from outside.",
        reaping.map(|it| it.victims),
    );
    let fragmentation = status.guards.fragmentation.as_ref();
    page.counter(
        "plimsoll_compactions",
        "Times that memory was compacted.",
        fragmentation.map(|it| it.compactions),
    );
}

/// Accounts of one name, added up.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    usage: u64,
    reserved: u64,
    processes: u64,
    soft: Option<u64>,
    hard: Option<u64>,
    near: bool,
}

impl Sum {
    fn add(&mut self, view: &AccountView) {
        self.usage = self.usage.saturating_add(view.usage_bytes);
        self.reserved = self.reserved.saturating_add(view.reserved_bytes);
        self.processes = self.processes.saturating_add(view.processes);
        let more = |sum: Option<u64>, one: Option<u64>| Some(sum.unwrap_or(0).saturating_add(one?)).or(sum);
        self.soft = more(self.soft, view.soft_bytes);
        self.hard = more(self.hard, view.hard_bytes);
        self.near |= view.near;
    }
}

fn accounts(page: &mut Page, views: &[AccountView], users: Option<&Names>) {
    let near = views.iter().filter(|view| view.near).count();
    let drawn = views.iter().filter(|view| view.hard_bytes.is_some()).count();
    page.gauge("plimsoll_accounts", "Accounts with a line.", u64::try_from(drawn).ok());
    page.gauge("plimsoll_accounts_near", "Accounts at or above their soft limit.", u64::try_from(near).ok());
    let mut sums: BTreeMap<Of, Sum> = BTreeMap::new();
    for view in views {
        let of = Of::account(&view.account, view.job.as_ref().map(|job| job.uid));
        if users.is_some() || of.is_of_machine() {
            sums.entry(of).or_default().add(view);
        }
    }
    let mut sums: Vec<(Of, Sum)> = sums.into_iter().collect();
    if sums.len() > ACCOUNTS_MAX {
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.usage));
        sums.truncate(ACCOUNTS_MAX);
        sums.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    let nameless = Names::default();
    let users = users.unwrap_or(&nameless);
    let mut each = |name, help, value: fn(&Sum) -> Option<Value>| {
        page.gauges(name, help, sums.iter().filter_map(|(of, sum)| Some((of.labels(users), value(sum)?))));
    };
    each("plimsoll_account_usage_bytes", "What the account is charged now.", |sum| Some(sum.usage.into()));
    each("plimsoll_account_reserved_bytes", "Reserved by the account and not yet touched.", |sum| {
        Some(sum.reserved.into())
    });
    each(
        "plimsoll_account_soft_bytes",
        "The soft limit: from here on the account is near its line.",
        |sum| sum.soft.map(Value::from),
    );
    each("plimsoll_account_hard_bytes", "The line.", |sum| sum.hard.map(Value::from));
    each("plimsoll_account_near", "1 where usage is at or above the soft limit.", |sum| {
        Some(sum.near.into())
    });
    each("plimsoll_account_processes", "Processes charged to the account.", |sum| Some(sum.processes.into()));
}

fn jobs(page: &mut Page, jobs: Option<JobsView>) {
    let states = |jobs: JobsView| [("running", jobs.running), ("waiting", jobs.waiting)];
    page.gauges(
        "plimsoll_jobs",
        "Jobs that run, and those that wait for their turn.",
        jobs.into_iter().flat_map(states).map(|(state, number)| (label("state", state), number.into())),
    );
    page.gauge(
        "plimsoll_jobs_promised_bytes",
        "Memory that is promised to jobs that run, used or not.",
        jobs.map(|jobs| jobs.promised_bytes),
    );
}

fn account_kills(page: &mut Page, counts: &Counts, users: Option<&Names>) {
    let Some(users) = users else { return };
    page.counters(
        "plimsoll_account_kills",
        "SIGKILLs for the account's line since the daemon started.",
        counts.accounts.iter().map(|(of, number)| (of.labels(users), (*number).into())),
    );
}

#[cfg(test)]
mod tests;
