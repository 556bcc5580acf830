//! `plimsoll usage`: a user's own line, usage and peak, and what of theirs was killed and why, on one screen.

use crate::{
    commands::{history, limit},
    exit::{Ending, Exit, Failure},
    names::{self, Names},
    output,
};
use clap::Args;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use nix::unistd;
use plimsoll_api::{
    accounts::{AccountView, ProcessView},
    client::{CallError, Client},
    message::HistoryCall,
};
use plimsoll_policy::{
    account::{Account, Action},
    human,
    incident::Incident,
    lines::Target,
    reason::Reason,
    units::{Bytes, Uid},
    who::Who,
};
use plimsoll_report::table::Table;
use serde::Serialize;
use std::{io::Write, path::Path};

/// How far back it looks.
const DAYS: i64 = 30;
/// So many processes and incidents fit on a screen of 24 lines with everything else.
const PROCESSES: usize = 3;
const INCIDENTS: u64 = 3;
/// The width of a line of text, and the cells of the bar.
const COLUMNS: usize = 79;
const CELLS: u64 = 50;

/// Whose, and how to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A user name or a uid, for root; yours when left out.
    user: Option<String>,
    /// Print one line, as for a message of the day.
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// All that is shown.
#[derive(Debug, Serialize)]
struct Told {
    account: Account,
    name: Option<String>,
    /// `None`: no line is drawn, so nothing is counted.
    line: Option<AccountView>,
    /// Lines that the user shares with the other members of a group.
    groups: Vec<AccountView>,
    /// Those that run or wait.
    jobs: Vec<AccountView>,
    /// Incidents are told since then.
    since: Timestamp,
    /// The newest, oldest first.
    incidents: Vec<Incident>,
}

/// Asks and prints.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let uid = arguments.user.as_deref().map_or_else(|| Ok(own_uid()), user)?;
    let mut names = Names::default();
    let now = Timestamp::now();
    let mut told = ask(&mut Client::connect(socket)?, uid, now)?;
    told.name = names.of_uid(uid);
    if arguments.json {
        told.line = told.line.as_ref().map(|view| names.fill_in(view));
        told.groups = told.groups.iter().map(|view| names.fill_in(view)).collect();
        output::json(out, &told)?;
    } else if arguments.brief {
        writeln!(out, "{}", brief(&told, &TimeZone::system()))?;
    } else {
        output::lines(out, &screen(&told, &TimeZone::system(), &mut names))?;
    }
    Ok(Exit::Done)
}

fn own_uid() -> Uid {
    Uid(unistd::getuid().as_raw())
}

fn user(text: &str) -> Result<Uid, Failure> {
    let who = names::resolve(text)?;
    if let Who::Uid(uid) = who {
        return Ok(uid);
    }
    Err(Failure::usage(format_args!(
        "'{}' is no user; give a user name or a uid, or see 'plimsoll limit show'",
        human::escaped(&who.to_string())
    )))
}

fn ask(client: &mut Client, uid: Uid, now: Timestamp) -> Result<Told, CallError> {
    let account = Account::User(uid);
    let who = || Some(Target::User(uid));
    let mut accounts = client.show_limits(who())?.accounts;
    if !accounts.is_empty() {
        limit::fill_in(&mut accounts, client.show_processes(who(), Some(PROCESSES as u64))?);
    }
    let line = accounts.into_iter().find(|view| view.account == account);
    let all = client.show_limits(None)?.accounts;
    let groups_of_user = names::groups_of(uid);
    let is_theirs = |view: &AccountView| match &view.account {
        Account::Group(gid) => groups_of_user.contains(gid),
        Account::User(_) | Account::Job(_) | Account::Cgroup(_) | Account::System => {
            view.job.as_ref().is_some_and(|job| job.uid == uid && job.is_there(view.processes))
        }
    };
    let (jobs, groups) = all.into_iter().filter(is_theirs).partition(|view: &AccountView| view.job.is_some());
    let since = now.checked_sub(SignedDuration::from_hours(24 * DAYS)).unwrap_or(Timestamp::MIN);
    // Who is not root sees none of another user's.
    let sees_own_jobs = uid == own_uid() && !unistd::getuid().is_root();
    let is_own_job = |account: &Account| sees_own_jobs && matches!(account, Account::Job(_));
    let query = HistoryCall { since: Some(since), before_id: None, limit: Some(INCIDENTS) };
    let incidents = client.history_where(query, |incident| {
        incident.account.as_ref().is_some_and(|whose| *whose == account || is_own_job(whose))
            || incident.victims.iter().any(|victim| victim.uid == uid)
    })?;
    Ok(Told { account, name: None, line, groups, jobs, since, incidents })
}

fn size(bytes: u64) -> String {
    human::bytes(Bytes(bytes))
}

fn called(told: &Told) -> String {
    told.name.as_deref().map_or_else(|| told.account.to_string(), human::escaped)
}

/// Of `whole` parts of the line, how many are used.
fn share(view: &AccountView, whole: u64) -> Option<u64> {
    output::share(view.usage_bytes, view.hard_bytes?, whole)
}

/// In a few words: how much of how much.
fn usage(view: &AccountView) -> String {
    let mut text = format!("{} used", size(view.usage_bytes));
    if let Some(hard) = view.hard_bytes {
        text.push_str(&format!(" of {}", size(hard)));
    }
    if let Some(percent) = share(view, 100) {
        text.push_str(&format!(" ({percent} %)"));
    }
    if view.near {
        text.push_str(", near the line");
    }
    text
}

/// The highest usage, as far as it is kept: it was as high as now at least.
fn peak(view: &AccountView) -> String {
    match view.peak_bytes.map(|peak| peak.max(view.usage_bytes)) {
        Some(peak) if Some(peak) >= view.soft_bytes => size(peak),
        Some(peak) => format!("{} at least; it is kept from the soft limit on", size(peak)),
        None => "not known".to_owned(),
    }
}

/// One line.
fn brief(told: &Told, zone: &TimeZone) -> String {
    let usage = told.line.as_ref().map_or_else(|| "no line is drawn".to_owned(), usage);
    let last = match told.incidents.last() {
        None => format!("nothing killed or refused in {DAYS} days"),
        Some(last) => {
            let time = last.time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M");
            let (action, victims) = (last.action.text(), history::victims(last));
            format!("last incident {time}: {action} {victims}, see 'plimsoll why {}'", last.id)
        }
    };
    format!("Memory of {}: {usage}; {last}.", called(told))
}

/// At most 24 lines of 80 columns.
fn screen(told: &Told, zone: &TimeZone, names: &mut Names) -> String {
    let mut text = match &told.line {
        Some(view) => line(told, view, names),
        None => {
            let mut text = format!(
                "{}: no line is drawn, so usage is not counted.\nRoot draws one with: plimsoll limit set {} 2G\n",
                called(told),
                called(told)
            );
            besides(told, names, &mut |name, what| text.push_str(&fact(name, what)));
            text
        }
    };
    text.push('\n');
    text.push_str(&incidents(told, zone));
    text
}

const fn deed(action: Action) -> &'static str {
    match action {
        Action::Notify => "is only recorded",
        Action::Deny => "refuses the allocation",
        Action::Term => "asks the largest process to end",
        Action::Kill => "kills the largest process",
    }
}

/// Usage, line, peak, processes.
fn line(told: &Told, view: &AccountView, names: &mut Names) -> String {
    let processes = output::counted(view.processes, "process", "processes");
    let mut text = format!("{}: {}, in {processes}.\n", called(told), usage(view));
    if let Some(filled) = share(view, CELLS) {
        let cells = (0..CELLS).map(|cell| if cell < filled { '#' } else { '.' });
        text.push_str(&format!("[{}]\n", cells.collect::<String>()));
    }
    let mut tell = |name: &str, what: &str| text.push_str(&fact(name, what));
    if let Some(hard) = view.hard_bytes {
        let soft = view.soft_bytes.map_or_else(String::new, |soft| format!(" (soft {})", size(soft)));
        tell("Line:", &format!("{}{soft}; crossing it {}.", size(hard), deed(view.action)));
        tell("From:", &format!("{}.", limit::provenance(view, names)));
    }
    if let Some(effective) = view.effective_bytes.filter(|_| view.effective_bytes > view.hard_bytes) {
        tell("Now:", &format!("{} is in force, until usage falls to the line.", size(effective)));
    }
    tell("Peak:", &format!("{}.", peak(view)));
    let part = |bytes: u64, what: &str| (bytes > 0).then(|| format!("{} {what}", size(bytes)));
    let shared = part(view.shared_bytes.unwrap_or(0), "are shared memory");
    let granted = part(view.reserved_bytes, "more granted and not used");
    let parts: Vec<String> = shared.into_iter().chain(granted).collect();
    if !parts.is_empty() {
        tell("Besides:", &format!("{}.", parts.join("; ")));
    }
    besides(told, names, &mut tell);
    if let Some(note) = &view.note {
        tell("Note:", &format!("{}.", output::printable(note)));
    }
    // All of it is to fit on the screen.
    let fewer = !told.groups.is_empty() && !told.jobs.is_empty();
    text.push_str(&processes_of(view, if fewer { PROCESSES - 1 } else { PROCESSES }));
    text
}

fn fact(name: &str, what: &str) -> String {
    let parts = output::wrapped(what, COLUMNS - 9).into_iter().enumerate();
    parts.map(|(index, part)| format!("{:<9}{part}\n", if index == 0 { name } else { "" })).collect()
}

/// The fullest line that is shared with others, and what was started by 'plimsoll run'.
fn besides(told: &Told, names: &mut Names, tell: &mut dyn FnMut(&str, &str)) {
    if let Some(fullest) = told.groups.iter().max_by_key(|view| share(view, 1000)) {
        let who =
            names.of_view(fullest).map_or_else(|| fullest.account.to_string(), |name| human::escaped(&name));
        let more = match told.groups.len() {
            1 => String::new(),
            groups => format!(
                "; {} more",
                output::counted(u64::try_from(groups - 1).unwrap_or(0), "group", "groups")
            ),
        };
        tell("Group:", &format!("{who}: {} by all{more}.", usage(fullest)));
    }
    if !told.jobs.is_empty() {
        let jobs = || told.jobs.iter().filter_map(|view| view.job.as_ref());
        let count = |waits| jobs().filter(|job| job.waits == waits).map(|_| 1).sum();
        tell("Jobs:", &format!("{}; see 'plimsoll jobs'.", output::run_and_wait(count(false), count(true))));
    }
}

/// The largest, names last: they can be of any length.
fn processes_of(view: &AccountView, most: usize) -> String {
    let Some(listed @ [_, ..]) = view.process_list.as_deref() else { return String::new() };
    let mut table = Table::new(
        ["PID", "CHARGED", "ANONYMOUS", "SWAPPED", "LARGEST"],
        &["PID", "CHARGED", "ANONYMOUS", "SWAPPED"],
    );
    for ProcessView { pid, comm, charged_bytes, anon_bytes, swap_bytes, .. } in listed.iter().take(most) {
        table.row([
            pid.to_string(),
            charged_bytes.map_or_else(|| "-".to_owned(), size),
            size(*anon_bytes),
            size(*swap_bytes),
            human::shown(comm),
        ]);
    }
    format!("\n{table}")
}

/// The newest first, and why the newest was.
fn incidents(told: &Told, zone: &TimeZone) -> String {
    let Some(last) = told.incidents.last() else {
        return format!("Nothing of {}'s was killed or refused in the last {DAYS} days.\n", called(told));
    };
    let mut table = Table::new(["ID", "TIME", "DONE", "USAGE", "PROCESS"], &["ID", "USAGE"]);
    for incident in told.incidents.iter().rev() {
        table.row([
            incident.id.to_string(),
            incident.time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            incident.action.text().to_owned(),
            incident.usage().map_or_else(|| "-".to_owned(), human::bytes),
            history::victims(incident),
        ]);
    }
    let reason = last.reason.parse::<Reason>().ok();
    let why = reason.map_or_else(|| human::escaped(&last.reason), |reason| reason.sentence().to_owned());
    let why =
        output::wrapped(&format!("{}: {why} ('plimsoll why {}' tells more.)", last.id, last.id), COLUMNS);
    format!("The last in {DAYS} days:\n{table}{}\n", why.join("\n"))
}

#[cfg(test)]
mod tests;
