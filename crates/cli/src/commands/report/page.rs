//! The page: the same facts and sentences as `why`, with the minutes before as plots and every number in a table.
//!
//! Made of the incident and nothing else: the same incident gives the same page, byte by byte.

use plimsoll_policy::{
    account::Account,
    human::{bytes, span},
    incident::{Course, Guard, Incident, MachineSample, Outcome, Victim, origin::Killer},
    reason::Reason,
    units::{Bytes, Nanos},
};
use plimsoll_report::{
    html::Html,
    plot::{self, Plot, Row, Style, Unit},
    story::{
        Reader, Telling,
        course::{Trend, percent, seconds, trend, usage},
        tell,
    },
};

mod tables;

/// Nothing from anywhere, nothing that runs: should a name ever get through as markup, it could still do nothing.
const HEAD: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ",
    "base-uri 'none'; form-action 'none'\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<style>\n",
);

/// What is shown before growth began, at least and as a part of how long it lasted.
const LEAD_MS: i64 = 3_000;

/// Waiting for less than a hundredth of the time is left to the sentence and the table.
const STALLS_WORTH_PERMILLE: u64 = 10;

/// The page of an incident.
pub(super) fn page(incident: &Incident, name: Option<&str>, reader: Reader) -> String {
    let told = tell(incident, name, reader);
    let title = title(incident);
    let mut html = Html::default();
    html.raw(HEAD)
        .raw(plot::STYLE)
        .raw(include_str!("page.css"))
        .raw("</style>\n<title>")
        .text(&title)
        .raw("</title>\n</head>\n<body>\n<main>\n");
    html.raw("<p class=\"over\">Plimsoll incident ").number(incident.id).raw(", ");
    html.text(&incident.time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()).raw("</p>\n<h1>");
    html.text(&title).raw("</h1>\n");
    sentences(&mut html, &told.happened);
    sentences(&mut html, &told.deed);
    html.piece(&facts(incident, name));
    advice(&mut html, &told.advice);
    chapter(&mut html, "Before", &told.before, &plots(incident));
    chapter(&mut html, "Who could have been taken", &told.compared, &tables::processes(incident));
    chapter(&mut html, "After", &told.after, &Html::default());
    html.piece(&tables::samples(incident));
    details(&mut html, incident, name, &told);
    html.raw("<footer>Written by plimsoll ").raw(env!("CARGO_PKG_VERSION"));
    html.raw(". Times are UTC. ").raw(if is_foreign(incident) {
        "What a victim held is as its killer counted it, or as it was read last."
    } else {
        "Usage is anonymous and swapped memory, each process's own."
    });
    html.raw("</footer>\n");
    html.raw("</main>\n</body>\n</html>\n");
    html.into_string()
}

/// Whether it was not the guard that decided.
const fn is_foreign(incident: &Incident) -> bool {
    matches!(incident.guard, Guard::Kernel)
}

/// Who killed, where it was not the guard; lost records have no more of it than that.
fn killer(incident: &Incident) -> Option<Killer> {
    let known = incident.origin.as_ref().map(|origin| origin.killer);
    is_foreign(incident).then(|| known.unwrap_or(Killer::Kernel))
}

/// What is said of it in one line.
fn title(incident: &Incident) -> String {
    if let Some(count) = incident.unrecorded {
        if incident.reason == Reason::IncidentsFolded.text() {
            return format!("{count} incidents, told only as their number");
        }
        let what = match (is_foreign(incident), count) {
            (true, 1) => "kill was not recorded",
            (true, _) => "kills were not recorded",
            (false, 1) => "action was not recorded",
            (false, _) => "actions were not recorded",
        };
        return format!("{count} {what}");
    }
    let Some(first) = incident.victims.first() else {
        return match (killer(incident), &incident.account) {
            (Some(Killer::Kernel), _) => "The kernel's OOM killer ended a process".to_owned(),
            (Some(Killer::SystemdOomd), _) => "systemd-oomd took a cgroup".to_owned(),
            (Some(Killer::Earlyoom), _) => "earlyoom ended a process".to_owned(),
            (None, Some(_)) => "A line was crossed".to_owned(),
            (None, None) => "The machine ran short of memory".to_owned(),
        };
    };
    let (name, pid) = (&first.comm, first.pid);
    let done = match incident.action {
        Outcome::Kill => "was killed",
        Outcome::Term => "was asked to end",
        Outcome::Deny => "had an allocation refused",
        Outcome::Refuse => "had a reservation refused",
        Outcome::Notify => "was named, and nothing was sent",
    };
    format!("{name} (process {pid}) {done}")
}

/// What the plots say where the decision was.
const fn mark(incident: &Incident) -> &'static str {
    match incident.action {
        Outcome::Kill => "killed",
        Outcome::Term => "asked to end",
        Outcome::Deny | Outcome::Refuse => "refused",
        Outcome::Notify => "decided",
    }
}

fn sentences(html: &mut Html, told: &[String]) {
    for sentence in told {
        html.raw("<p>").text(sentence).raw("</p>\n");
    }
}

fn chapter(html: &mut Html, heading: &'static str, told: &[String], more: &Html) {
    if told.is_empty() && more.is_empty() {
        return;
    }
    html.raw("<section><h2>").raw(heading).raw("</h2>\n");
    sentences(html, told);
    html.piece(more).raw("</section>\n");
}

fn advice(html: &mut Html, told: &[String]) {
    html.raw("<section><h2>What to do</h2>\n<ul>\n");
    for one in told {
        html.raw("<li>").text(&capital(one)).raw("</li>\n");
    }
    html.raw("</ul></section>\n");
}

/// Advice goes on from 'What to do:' elsewhere; here each begins a sentence.
fn capital(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// The numbers that matter, in boxes.
fn facts(incident: &Incident, name: Option<&str>) -> Html {
    let size = |size: u64| bytes(Bytes(size));
    let time = |ns: u64| span(Nanos(ns));
    let whose = match (&incident.account, name) {
        (None | Some(Account::System), _) => "the machine".to_owned(),
        (Some(Account::Cgroup(path)), _) => format!("cgroup {path}"),
        (Some(Account::User(uid)), Some(name)) => format!("{name} (uid {uid})"),
        (Some(Account::User(uid)), None) => format!("user {uid}"),
        (Some(Account::Group(gid)), Some(name)) => format!("group {name} (gid {gid})"),
        (Some(Account::Group(gid)), None) => format!("group {gid}"),
        (Some(Account::Job(id)), Some(name)) => format!("job {name} (job {id})"),
        (Some(Account::Job(id)), None) => format!("job {id}"),
    };
    let over = incident.hard_bytes.map(|_| size(incident.overshoot_bytes));
    let (killed_by, whose_line, of_user) = match killer(incident) {
        Some(killer) => (Some(killer.name().to_owned()), None, incident.account.as_ref().map(|_| whose)),
        None => (None, Some(whose), None),
    };
    let used = |foreign| incident.usage().filter(|_| is_foreign(incident) == foreign).map(bytes);
    let all = [
        ("Killed by", killed_by),
        ("Of", of_user),
        (
            "Cgroup",
            incident
                .origin
                .as_ref()
                .filter(|_| is_foreign(incident))
                .and_then(|origin| origin.cgroup.clone()),
        ),
        ("Victim held", used(true)),
        ("Whose line", whose_line),
        ("Usage", used(false)),
        ("Line", incident.hard_bytes.map(size)),
        ("Over by", over),
        ("Crossing to signal", incident.cross_to_signal_ns.map(time)),
        ("Signal to memory back", incident.signal_to_freed_ns.map(time)),
        ("Given back", incident.freed_bytes.map(size)),
    ];
    let mut html = Html::default();
    html.raw("<dl class=\"facts\">\n");
    for (term, value) in all {
        if let Some(value) = value {
            html.raw("<div><dt>").raw(term).raw("</dt><dd>").text(&value).raw("</dd></div>\n");
        }
    }
    html.raw("</dl>\n");
    html
}

fn details(html: &mut Html, incident: &Incident, name: Option<&str>, told: &Telling) {
    // In a page there is room for what `why` tells administrators only.
    let full = tell(incident, name, Reader::Administrator);
    let lines = if told.details.is_empty() { &full.details } else { &told.details };
    html.raw("<details><summary>Details</summary>\n");
    sentences(html, lines);
    html.raw("</details>\n");
}

/// The plots there is something for.
fn plots(incident: &Incident) -> Html {
    let mut html = Html::default();
    let Some(course) = &incident.course else { return html };
    let window = window(incident, course);
    let (mut points, after) = usage(incident);
    // The decision alone is in the facts already.
    if points.len() > 1 || !after.is_empty() {
        points.extend(after);
        html.piece(&usage_plot(incident, course, points, window));
    }
    html.piece(&memory_plot(incident, course, window));
    html.piece(&stall_plot(incident, course, window));
    html
}

/// From a little before growth began, or all of it, to the last that is known.
fn window(incident: &Incident, course: &Course) -> (i64, i64) {
    let times = || {
        let account = course.account.iter().map(|sample| sample.at_ms);
        account.chain(course.machine.iter().map(|sample| sample.at_ms))
    };
    let first = times().min().unwrap_or(0).min(-1000);
    let from = match trend(&usage(incident).0) {
        Some(Trend::Grew { since_ms, .. }) => {
            let since = i64::try_from(since_ms).unwrap_or(i64::MAX);
            since.saturating_add(LEAD_MS.max(since / 3)).saturating_neg()
        }
        Some(Trend::Steady { .. }) | None => first,
    };
    (first.max(from), times().max().unwrap_or(0).max(1000))
}

fn usage_plot(incident: &Incident, course: &Course, points: Vec<(i64, u64)>, window: (i64, i64)) -> Html {
    let what = if incident.account.is_some() { "usage of the account" } else { "memory of all programs" };
    let title = match (&incident.account, incident.hard_bytes) {
        (Some(_), Some(_)) => "Usage and the line",
        (Some(_), None) => "Usage of the account",
        (None, Some(_)) => "Memory of all programs and where the guard acts",
        (None, None) => "Memory of all programs",
    };
    let before = usage(incident).0;
    let last = before.last().map(|(_, last)| bytes(Bytes(*last)));
    let mut rows = vec![Row { name: what.to_owned(), style: Style::Area, points }];
    let mut line: Vec<(i64, u64)> =
        course.account.iter().filter_map(|sample| Some((sample.at_ms, sample.line_bytes?))).collect();
    if let Some(hard) = incident.hard_bytes {
        let at = line.iter().position(|(at_ms, _)| *at_ms > 0).unwrap_or(line.len());
        line.insert(at, (0, hard));
        if line.len() == 1 {
            line.insert(0, (window.0, hard));
        }
        rows.push(Row {
            name: format!("the line, {}", bytes(Bytes(hard))),
            style: Style::Limit,
            points: line,
        });
    }
    let description = match trend(&before) {
        Some(Trend::Grew { since_ms, from_bytes, to_bytes }) => format!(
            "The {what} rises from {} {} before the decision to {} at it.",
            bytes(Bytes(from_bytes)),
            seconds(since_ms),
            bytes(Bytes(to_bytes))
        ),
        Some(Trend::Steady { .. }) | None => last.map_or_else(
            || format!("The {what} before the decision is not known."),
            |last| format!("The {what} is {last} at the decision."),
        ),
    };
    let description = &format!("{description} The numbers are in a table below.");
    let (marks, rows) = (&[(0, mark(incident))], &rows);
    Plot { id: "usage", title, description, unit: Unit::Bytes, window, marks, rows }.draw()
}

fn memory_plot(incident: &Incident, course: &Course, window: (i64, i64)) -> Html {
    let mut rows = vec![row_of(course, "memory available", Style::Area, |sample| sample.mem_available_bytes)];
    if course.swap_total_bytes.is_some_and(|total| total > 0) {
        rows.push(row_of(course, "swap free", Style::Plain, |sample| sample.swap_free_bytes));
    }
    let of = course.mem_total_bytes.map_or_else(String::new, |total| format!(" of {}", bytes(Bytes(total))));
    rows.retain(|row| !row.points.is_empty());
    let title = &format!("The machine's memory available{of}");
    let description = "The machine's available memory over the same time. The numbers are in a table below.";
    let (marks, rows) = (&[(0, mark(incident))], &rows);
    draw_some(&Plot { id: "memory", title, description, unit: Unit::Bytes, window, marks, rows })
}

fn stall_plot(incident: &Incident, course: &Course, window: (i64, i64)) -> Html {
    let mut rows = vec![
        row_of(course, "some programs waited", Style::Area, |sample| sample.some_permille.map(u64::from)),
        row_of(course, "all waited at once", Style::Plain, |sample| sample.full_permille.map(u64::from)),
    ];
    rows.retain(|row| !row.points.is_empty());
    let most = rows.iter().flat_map(|row| &row.points).map(|(_, share)| *share).max().unwrap_or(0);
    if most < STALLS_WORTH_PERMILLE {
        return Html::default();
    }
    let most = percent(u16::try_from(most).unwrap_or(u16::MAX));
    let title = "Time in which programs waited for memory";
    let description = &format!("At most {most} of the time. The numbers are in a table below.");
    let (marks, rows) = (&[(0, mark(incident))], &rows);
    draw_some(&Plot { id: "stalls", title, description, unit: Unit::Permille, window, marks, rows })
}

/// Something of the machine over time.
fn row_of(course: &Course, name: &str, style: Style, pick: fn(&MachineSample) -> Option<u64>) -> Row {
    let points = course.machine.iter().filter_map(|sample| Some((sample.at_ms, pick(sample)?))).collect();
    Row { name: name.to_owned(), style, points }
}

fn draw_some(plot: &Plot<'_>) -> Html {
    if plot.rows.is_empty() { Html::default() } else { plot.draw() }
}

/// How a process is named in a table.
fn process(html: &mut Html, process: &Victim) {
    html.raw("<bdi>").text(if process.comm.is_empty() { "?" } else { &process.comm }).raw("</bdi>");
}

#[cfg(test)]
mod tests;
