//! `plimsoll status`: what is guarded, and how.

pub(crate) mod follow;

use crate::{
    commands::limit,
    exit::{Ending, Exit},
    names::Names,
    output,
};
use clap::Args;
use plimsoll_api::status::{
    FragmentationView, GuardView, Guards, JobsView, Kernel, MarginView, OrderView, OthersView, OwnView,
    Pressure, PressureSocketView, ReapingView, Status, TmallocView, Triggers,
};
use plimsoll_api::{
    client::{CallError, Client},
    message::Limits,
};
use plimsoll_policy::{
    human,
    units::{Bytes, Nanos},
};
use plimsoll_report::table::Table;
use serde_json::Value;
use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

/// How often it may be asked at most and at least.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(86_400);

/// How to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON. Without a daemon this prints what is known without one, and ends with status 3 all the same.
    #[arg(long)]
    json: bool,
    /// Also list what each process of each account with a line holds.
    #[arg(long)]
    processes: bool,
    /// Go on: print one line every now and then, until Ctrl-C or until nobody reads any more. A daemon that is started again is
    /// found again.
    #[arg(long, conflicts_with = "processes")]
    follow: bool,
    /// With --follow: the seconds from one line to the next.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval, requires = "follow")]
    interval: Duration,
}

/// Seconds, of which there may be tenths.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let sensible = seconds.filter(|span| (SHORTEST..=LONGEST).contains(span));
    sensible.ok_or_else(|| "give seconds from 0.1 to 86400".to_owned())
}

/// Asks and prints.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    if arguments.follow {
        return follow::follow(socket, arguments.interval, arguments.json, out);
    }
    let asked = Client::connect(socket).and_then(|mut client| {
        let status = client.status()?;
        Ok((status, limit::ask(&mut client, None, (arguments.processes, arguments.json))))
    });
    let (mut status, listed) = match asked {
        Ok(asked) => asked,
        Err(error @ CallError::NotRunning { .. }) => {
            if arguments.json {
                output::json(out, &not_running()?)?;
            }
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    let mut names = Names::default();
    // Without the list, all else is told.
    let (found, missing) = match listed {
        Ok(found) => (found, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    if arguments.json {
        limit::fill_in(&mut status.accounts, found);
        output::json(out, &names.fill_in_status(status))?;
    } else {
        show(out, &status, &mut names)?;
        if arguments.processes && missing.is_none() {
            limit::table(out, &found)?;
        }
    }
    missing.map_or(Ok(Exit::Done), |error| Err(error.into()))
}

/// Where [`without_a_daemon`] has to hold a number or a truth value that nobody knows.
const UNKNOWN: [&str; 9] = [
    "/guards/limits/dry_run",
    "/guards/limits/dying",
    "/guards/limits/incidents",
    "/guards/pressure/dry_run",
    "/guards/pressure/dying",
    "/guards/pressure/incidents",
    "/kernel/attached",
    "/kernel/programs",
    "/kernel/maps",
];

/// The same fields as ever when no daemon answers, `null` for all that is not known then.
fn not_running() -> Result<Value, serde_json::Error> {
    let mut status = serde_json::to_value(without_a_daemon())?;
    for pointer in UNKNOWN {
        if let Some(field) = status.pointer_mut(pointer) {
            *field = Value::Null;
        }
    }
    Ok(status)
}

/// What is pinned may still be at work: that is not known here, so the texts say so.
fn without_a_daemon() -> Status {
    let unknown = || "not known: the daemon is not running".to_owned();
    let off = "off: the daemon is not running".to_owned();
    Status {
        triggers: Triggers {
            kernel: unknown(),
            daemon: "off: not running".to_owned(),
            last_defence: unknown(),
        },
        guards: Guards {
            limits: GuardView { state: unknown(), ..GuardView::default() },
            pressure: GuardView { state: off, ..GuardView::default() },
            ..Guards::default()
        },
        ..Status::default()
    }
}

fn show(out: &mut dyn Write, status: &Status, names: &mut Names) -> io::Result<()> {
    let Guards { limits, pressure, own, others, tmalloc, workingset, fragmentation } = &status.guards;
    writeln!(out, "Plimsoll is running{}.\n", footing(own))?;

    let mut triggers = Table::new(["TRIGGER", "STATE"], &[]);
    let Triggers { kernel, daemon, last_defence } = &status.triggers;
    for (name, state) in [("kernel", kernel), ("daemon", daemon), ("last-defence", last_defence)] {
        triggers.row([name.to_owned(), output::printable(state)]);
    }
    write!(out, "{triggers}")?;
    writeln!(out)?;

    let mut guards =
        Table::new(["GUARD", "STATE", "DYING", "INCIDENTS", "LAST"], &["DYING", "INCIDENTS", "LAST"]);
    let workingset = workingset.iter().map(|guard| ("workingset", guard));
    for (name, guard) in [("limits", limits), ("pressure", pressure)].into_iter().chain(workingset) {
        let dry = if guard.dry_run { " (dry run: sends no signal)" } else { "" };
        guards.row([
            name.to_owned(),
            format!("{}{dry}", output::printable(&guard.state)),
            guard.dying.to_string(),
            guard.incidents.to_string(),
            guard.last_incident.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        ]);
    }
    if let Some(tmalloc) = tmalloc {
        guards.row(grants(tmalloc));
    }
    if let Some(fragmentation) = fragmentation {
        guards.row(large_blocks(fragmentation));
    }
    write!(out, "{guards}")?;
    writeln!(out)?;

    memory(out, &status.pressure)?;
    if let Some(others) = others {
        kills_of_others(out, others)?;
        if pressure.state == "on" && !pressure.dry_run {
            rivals(out, &others.rivals)?;
        }
    }
    if let Some(reaping) = &status.reaping {
        freed_for_others(out, reaping)?;
    }
    if let Some(socket) = &status.pressure_socket {
        told_before(out, socket)?;
    }
    if let Some(jobs) = status.jobs.filter(|jobs| jobs.running > 0 || jobs.waiting > 0) {
        run_as_jobs(out, jobs)?;
    }
    in_kernel(out, &status.kernel)?;
    lost(out, status)?;
    limit::notes(out, &status.accounts)?;
    limit::doubts(out, &status.groups, names)?;
    limit::lasting(out, &status.accounts)?;
    limit::uncovered(out, status.default.as_ref(), names)?;
    writeln!(out)?;
    if status.accounts.is_empty() && status.groups.is_empty() && status.default.is_none() {
        writeln!(out, "No account of yours has a line. Draw one with: plimsoll limit set USER 2G")
    } else {
        let Status { accounts, groups, default, .. } = status.clone();
        limit::list(out, &Limits { accounts, groups, default }, names)
    }
}

/// Who answers processes that ask for memory, as a guard that kills nobody.
fn grants(tmalloc: &TmallocView) -> [String; 5] {
    let TmallocView { state, connections, waiting, granted, refused, incidents, last_incident } = tmalloc;
    let busy = if *connections == 0 && *granted == 0 && *refused == 0 {
        String::new()
    } else {
        format!(", {connections} connections, {granted} granted, {refused} refused, {waiting} waiting")
    };
    of_no_victims("tmalloc", format!("{}{busy}", output::printable(state)), *incidents, *last_incident)
}

/// The row of a guard for which nobody is dying.
fn of_no_victims(guard: &str, state: String, incidents: u64, last_incident: Option<u64>) -> [String; 5] {
    let last = last_incident.map_or_else(|| "-".to_owned(), |id| id.to_string());
    [guard.to_owned(), state, "-".to_owned(), incidents.to_string(), last]
}

/// Who sees to it that there are blocks of several pages, as a guard that kills nobody.
fn large_blocks(fragmentation: &FragmentationView) -> [String; 5] {
    let FragmentationView { state, compacting, orders, incidents, last_incident, .. } = fragmentation;
    let mut told = output::printable(state);
    for OrderView { order, blocks, kept, of_no_use_bytes, gone_in_ns, .. } in orders {
        let scattered = human::bytes(Bytes(*of_no_use_bytes));
        told.push_str(&format!(
            "; order {order}: {blocks} blocks, {kept} kept, {scattered} free in smaller ones"
        ));
        if let Some(time) = gone_in_ns {
            told.push_str(&format!(", gone in {}", human::span(Nanos(*time))));
        }
    }
    if *compacting {
        told.push_str("; compacting");
    }
    of_no_victims("fragmentation", told, *incidents, *last_incident)
}

/// How what is not ours comes into the history.
fn kills_of_others(out: &mut dyn Write, others: &OthersView) -> io::Result<()> {
    writeln!(out, "Kills by the kernel: {}.", output::printable(&others.kernel))?;
    writeln!(out, "Kills by other programs: {}.", output::printable(&others.programs))
}

/// Who ends programs besides the machine guard, for the same shortage, and what leaves one of them. A unit that is only
/// disabled can be started by another: systemd-oomd is, by each unit that asks to be watched.
fn rivals(out: &mut dyn Write, units: &[String]) -> io::Result<()> {
    if units.is_empty() {
        return Ok(());
    }
    let units: Vec<_> = units.iter().map(|unit| output::printable(unit)).collect();
    writeln!(
        out,
        "{} and the machine guard end programs for the same shortage. To leave it to Plimsoll: systemctl mask --now {}",
        units.join(", "),
        units.join(" ")
    )
}

/// Who is told when an account comes near its line.
fn told_before(out: &mut dyn Write, socket: &PressureSocketView) -> io::Result<()> {
    let PressureSocketView { state, clients, users, told, refused } = socket;
    write!(out, "Pressure socket: {}", output::printable(state))?;
    if *clients > 0 || *told > 0 || *refused > 0 {
        let programs = output::counted(*clients, "program", "programs");
        let users = output::counted(*users, "user", "users");
        write!(out, ", listened to by {programs} of {users}, told {told} times, {refused} turned away")?;
    }
    writeln!(out, ".")
}

/// What `plimsoll run` started.
fn run_as_jobs(out: &mut dyn Write, jobs: JobsView) -> io::Result<()> {
    let JobsView { running, waiting, promised_bytes } = jobs;
    write!(out, "Jobs: {}", output::run_and_wait(running, waiting))?;
    if promised_bytes > 0 {
        write!(out, ", {} promised", human::bytes(Bytes(promised_bytes)))?;
    }
    writeln!(out, ".")
}

/// Whose victims are freed from outside.
fn freed_for_others(out: &mut dyn Write, reaping: &ReapingView) -> io::Result<()> {
    let ReapingView { state, victims, freed_bytes, refused } = reaping;
    write!(out, "Freed from outside: {}", output::printable(state))?;
    if *victims > 0 {
        let victims = output::counted(*victims, "victim of others", "victims of others");
        write!(out, "; {victims} until now, which held {}", human::bytes(Bytes(*freed_bytes)))?;
    }
    if *refused > 0 {
        write!(out, "; {refused} freed themselves, beyond their users' shares")?;
    }
    writeln!(out, ".")
}

/// How long, how large, how often awake: as far as known.
fn footing(own: &OwnView) -> String {
    let processes = |count| output::counted(count, "process", "processes");
    let told = [
        own.uptime_seconds.map(|seconds| format!(" for {}", duration(seconds))),
        own.resident_bytes.map(|bytes| format!(", {} resident", human::bytes(Bytes(bytes)))),
        own.wake_ups.map(|count| format!(", woken {}", output::counted(count, "time", "times"))),
        own.protected.map(|count| format!(", {} never selected", processes(count))),
    ];
    told.into_iter().flatten().collect()
}

pub(super) fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A time that is left: in tenths of a second in the last minute, else as [`duration`].
pub(super) fn left(nanos: u64) -> String {
    match nanos / 1_000_000_000 {
        0..60 => human::span(Nanos(nanos)),
        seconds => duration(seconds),
    }
}

pub(super) fn known(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "not known".to_owned(), |bytes| human::bytes(Bytes(bytes)))
}

/// Drivers have a few megabytes on any machine.
const WORTH_NAMING: u64 = 64 << 20;

fn memory(out: &mut dyn Write, pressure: &Pressure) -> io::Result<()> {
    let swap = match pressure.swap_total_bytes {
        None => "swap not known".to_owned(),
        Some(0) => "no swap".to_owned(),
        total => format!("swap: {} free of {}", known(pressure.swap_free_bytes), known(total)),
    };
    let (available, total) = (known(pressure.mem_available_bytes), known(pressure.mem_total_bytes));
    writeln!(out, "Memory: {available} available of {total}; {swap}.")?;
    if let Some(bytes @ WORTH_NAMING..) = pressure.shared_unexplained_bytes {
        let bytes = human::bytes(Bytes(bytes));
        writeln!(out, "  Shared memory: {bytes} are unexplained by any file, and charged to nobody.")?;
    }
    for (signal, memory, swap) in [
        ("SIGTERM", pressure.term_at_mem_bytes, pressure.term_at_swap_bytes),
        ("SIGKILL", pressure.kill_at_mem_bytes, pressure.kill_at_swap_bytes),
    ] {
        let Some(memory) = memory.map(|memory| human::bytes(Bytes(memory))) else {
            continue;
        };
        match swap.filter(|_| pressure.swap_total_bytes != Some(0)) {
            Some(swap) => {
                let swap = human::bytes(Bytes(swap));
                writeln!(
                    out,
                    "  {signal} at {memory} available or less, when free swap is {swap} or less too."
                )?;
            }
            None => writeln!(out, "  {signal} at {memory} available or less.")?,
        }
    }
    pressure.margin.as_ref().map_or(Ok(()), |margin| self::margin(out, margin, pressure))
}

/// What has to be left, term by term.
fn margin(out: &mut dyn Write, margin: &MarginView, pressure: &Pressure) -> io::Result<()> {
    let bytes = |bytes| human::bytes(Bytes(bytes));
    let time = |span| human::span(Nanos(span));
    if margin.fill_bytes_per_second == 0 {
        let rate = bytes(margin.reap_bytes_per_second);
        return writeln!(
            out,
            "  Margin: none, memory is not being used up; reaping gives back {rate}/s at least."
        );
    }
    writeln!(
        out,
        "  Margin: {} = {}/s x ({} detect + {} select + {} signal + {} reap, at {}/s).",
        bytes(margin.bytes),
        bytes(margin.fill_bytes_per_second),
        time(margin.detect_ns),
        time(margin.select_ns),
        time(margin.signal_ns),
        time(margin.reap_ns),
        bytes(margin.reap_bytes_per_second),
    )?;
    let left = pressure.exhausted_in_ns.map(time);
    left.map_or(Ok(()), |left| writeln!(out, "  At that rate memory and swap are used up in {left}."))
}

fn in_kernel(out: &mut dyn Write, kernel: &Kernel) -> io::Result<()> {
    let release = kernel.release.as_deref().map_or_else(|| "not known".to_owned(), output::printable);
    let programs: Vec<_> = kernel.programs.iter().map(|name| output::printable(name)).collect();
    let attached = match (kernel.attached, programs.is_empty()) {
        (false, true) => "nothing attached".to_owned(),
        (false, false) => {
            format!("nothing attached where memory is taken; attached: {}", programs.join(", "))
        }
        (true, true) => "attached".to_owned(),
        (true, false) => format!("attached: {}", programs.join(", ")),
    };
    write!(out, "Kernel: {release}; {attached}")?;
    if let Some(bytes) = kernel.map_bytes {
        write!(out, "; maps {}", human::bytes(Bytes(bytes)))?;
    }
    if let Some(pin) = &kernel.pin {
        write!(out, "; pinned in {}", output::printable(pin))?;
    }
    writeln!(out, ".")
}

/// What was lost or refused: silent when nothing was.
fn lost(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let kernel = &status.kernel;
    for (count, what) in [
        (
            status.guards.own.incidents_lost,
            "incidents were not written down (the queue was full, or they could not be stored)",
        ),
        (status.guards.own.incidents_waiting, "records of incidents wait for a disk that refuses them"),
        (kernel.records_dropped, "records from the kernel were dropped (ring full)"),
        (kernel.signals_failed, "signals were refused by the kernel"),
    ] {
        if let Some(count @ 1..) = count {
            writeln!(out, "Note: {count} {what}.")?;
        }
    }
    for map in &kernel.maps {
        if let Some(full @ 1..) = map.full {
            let times = output::counted(full, "time", "times");
            writeln!(
                out,
                "Note: map '{}' was full {times} (it holds {}).",
                output::printable(&map.name),
                map.max
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
