//! The frame of a state. It is legible without colour: what colour says is in words or signs as well.

mod head;
mod history;
mod ink;

use super::state::{Focus, State, View, fullness};
use crate::output;
pub(super) use ink::Ink;
use plimsoll_api::accounts::{AccountView, ProcessView};
use plimsoll_policy::{human, units::Bytes};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Text},
    widgets::{Paragraph, Row, Table},
};

/// Rows of the screen of accounts that do not grow: processes with their heading, incidents with theirs.
const PROCESSES: u16 = 6;
const INCIDENTS: u16 = 4;
/// The cells of a bar.
pub(super) const CELLS: u64 = 20;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, ink: Ink) {
    let head = head::lines(state, ink, frame.area().width);
    let head_rows = u16::try_from(head.len()).unwrap_or(u16::MAX);
    let [top, body, keys] =
        Layout::vertical([Constraint::Length(head_rows), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(Text::from(head)), top);
    match state.view {
        View::Accounts => overview(frame, state, ink, body),
        View::History => history::draw(frame, state, ink, body),
    }
    frame.render_widget(Paragraph::new(Line::styled(legend(state), ink.dim())), keys);
}

const fn legend(state: &State) -> &'static str {
    match state.view {
        View::Accounts => "q leave  arrows choose  Tab other pane  p processes  h history and why",
        View::History => "q leave  arrows choose  Home newest  End oldest  PgUp/PgDn story  h back",
    }
}

/// Accounts, processes of the one with the mark, the newest incidents.
fn overview(frame: &mut Frame<'_>, state: &State, ink: Ink, area: Rect) {
    // A large screen gives processes half of what grows.
    let grown = (area.height.saturating_sub(INCIDENTS) / 2).max(PROCESSES);
    let processes_rows = if state.shows_processes { grown } else { 0 };
    let [accounts, processes, incidents] = Layout::vertical([
        Constraint::Min(2),
        Constraint::Length(processes_rows),
        Constraint::Length(INCIDENTS),
    ])
    .areas(area);
    draw_accounts(frame, state, ink, accounts);
    if state.shows_processes {
        draw_processes(frame, state, ink, processes);
    }
    history::newest(frame, state, ink, incidents);
}

pub(super) fn size(bytes: u64) -> String {
    human::bytes(Bytes(bytes))
}

/// The sign before the row with the mark.
pub(super) const fn mark(is_marked: bool) -> &'static str {
    if is_marked { ">" } else { " " }
}

/// What is used, by the cell: `#`; the soft limit: `|`; `!` at the end when the line is passed.
pub(super) fn bar(used: u64, soft: Option<u64>, hard: u64) -> String {
    let place = |bytes: u64| output::share(bytes, hard, CELLS).unwrap_or(0);
    let (filled, soft) = (place(used), soft.map(place));
    let cells = (0..CELLS).map(|cell| match () {
        () if used > hard && cell + 1 == CELLS => '!',
        () if soft == Some(cell) => '|',
        () if cell < filled => '#',
        () => '.',
    });
    format!("[{}]", cells.collect::<String>())
}

/// The first row shown, so that the mark stands in the middle where that can be.
pub(super) fn offset(marked: usize, count: usize, rows: u16) -> usize {
    let rows = usize::from(rows);
    marked.saturating_sub(rows / 2).min(count.saturating_sub(rows))
}

/// A table under headings.
pub(super) fn table<'a, const COLUMNS: usize>(
    headings: [&'static str; COLUMNS],
    widths: [Constraint; COLUMNS],
    rows: Vec<Row<'a>>,
    ink: Ink,
) -> Table<'a> {
    Table::new(rows, widths).header(Row::new(headings).style(ink.heading())).column_spacing(1)
}

fn draw_accounts(frame: &mut Frame<'_>, state: &State, ink: Ink, area: Rect) {
    let accounts = state.accounts();
    if accounts.is_empty() {
        let text = if state.status.is_some() {
            "No account of yours has a line. Root draws one with: plimsoll limit set USER 2G"
        } else {
            "Nothing is known yet."
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let marked = state.account_at();
    let is_wide = area.width >= 110;
    let rows_shown = area.height.saturating_sub(1);
    let from = offset(marked, accounts.len(), rows_shown);
    let rows = accounts.iter().enumerate().skip(from).take(rows_shown.into()).map(|(at, view)| {
        let row = Row::new(account(view, at == marked, is_wide));
        row.style(account_style(view, at == marked && state.focus == Focus::Accounts, ink))
    });
    let rows: Vec<_> = rows.collect();
    let length = Constraint::Length;
    let bar = Constraint::Length(u16::try_from(CELLS + 2).unwrap_or(u16::MAX));
    let headings = [
        "",
        "ACCOUNT",
        "     USAGE",
        "      HARD",
        "LINE",
        "   %",
        " PROC",
        "STATE",
        "       SOFT",
        "       PEAK",
    ];
    let wide = if is_wide { 11 } else { 0 };
    let widths = [
        length(1),
        if is_wide { length(32) } else { Constraint::Min(10) },
        length(10),
        length(10),
        bar,
        length(4),
        length(5),
        length(6),
        length(wide),
        length(wide),
    ];
    frame.render_widget(table(headings, widths, rows, ink), area);
}

fn account(view: &AccountView, is_marked: bool, is_wide: bool) -> [String; 10] {
    let name = view.name.as_deref().map_or_else(|| view.account.to_string(), str::to_owned);
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
    let share = fullness(view).map_or_else(|| "-".to_owned(), |permille| (permille / 10).to_string());
    let line = view.hard_bytes.map_or_else(String::new, |hard| bar(view.usage_bytes, view.soft_bytes, hard));
    let over = view.hard_bytes.is_some_and(|hard| view.usage_bytes > hard);
    let standing = if over {
        "over"
    } else if view.near {
        "near"
    } else {
        ""
    };
    [
        mark(is_marked).to_owned(),
        human::escaped(&name),
        format!("{:>10}", size(view.usage_bytes)),
        format!("{:>10}", known(view.hard_bytes)),
        line,
        format!("{share:>4}"),
        format!("{:>5}", view.processes),
        standing.to_owned(),
        if is_wide { format!("{:>11}", known(view.soft_bytes)) } else { String::new() },
        if is_wide {
            format!("{:>11}", known(view.peak_bytes.filter(|peak| *peak > 0)))
        } else {
            String::new()
        },
    ]
}

fn account_style(view: &AccountView, is_marked: bool, ink: Ink) -> Style {
    let style = if view.hard_bytes.is_some_and(|hard| view.usage_bytes > hard) {
        ink.alarm()
    } else if view.near {
        ink.warning()
    } else {
        Style::new()
    };
    if is_marked { style.patch(ink.marked()) } else { style }
}

fn draw_processes(frame: &mut Frame<'_>, state: &State, ink: Ink, area: Rect) {
    let [title, list] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let whose = state.accounts().get(state.account_at()).map(|view| {
        view.name.as_deref().map_or_else(|| human::escaped(&view.account.to_string()), human::escaped)
    });
    let listed = state.processes.as_ref().filter(|of| Some(&of.account) == state.account.as_ref());
    let count =
        listed.map(|of| u64::try_from(of.processes.len()).unwrap_or(u64::MAX).saturating_add(of.more));
    let text = match (&whose, count) {
        (None, _) => "No processes.".to_owned(),
        (Some(whose), None) => format!("Processes of {whose}: not told yet."),
        (Some(whose), Some(0)) => format!("No processes of {whose}."),
        (Some(whose), Some(count)) => {
            format!("{} of {whose}, the largest first:", output::counted(count, "process", "processes"))
        }
    };
    let focused = state.focus == Focus::Processes;
    let style = if focused { ink.marked() } else { Style::new() };
    frame.render_widget(Paragraph::new(Line::styled(format!("{} {text}", mark(focused)), style)), title);
    let Some(listed) = listed else { return };
    let rows_shown = usize::from(list.height.saturating_sub(1));
    let from = state.process.min(listed.processes.len().saturating_sub(rows_shown));
    let rows = listed.processes.iter().skip(from).take(rows_shown).map(|one| Row::new(process(one)));
    let number = Constraint::Length(11);
    let widths = [Constraint::Length(8), number, number, number, number, Constraint::Min(10)];
    let headings = ["     PID", "    CHARGED", "  ANONYMOUS", "    SWAPPED", "     SHARED", "NAME"];
    frame.render_widget(table(headings, widths, rows.collect(), ink), list);
}

fn process(view: &ProcessView) -> [String; 6] {
    let ProcessView { pid, comm, charged_bytes, anon_bytes, swap_bytes, shared_bytes, error_bytes, .. } =
        view;
    let about = if *error_bytes > 0 { "~" } else { "" };
    let number = |bytes: u64| format!("{:>11}", format!("{about}{}", size(bytes)));
    [
        format!("{pid:>8}", pid = pid.to_string()),
        format!("{:>11}", charged_bytes.map_or_else(|| "-".to_owned(), size)),
        number(*anon_bytes),
        number(*swap_bytes),
        number(*shared_bytes),
        human::shown(comm),
    ]
}

#[cfg(test)]
mod tests;
