//! Incidents, and the story of one.

use super::{Ink, State, mark, offset, table};
use crate::{commands::history::victims, output};
use plimsoll_policy::human;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Text},
    widgets::{Paragraph, Row, Table},
};

/// The newest, as many as there is room for.
pub(super) fn newest(frame: &mut Frame<'_>, state: &State, ink: Ink, area: Rect) {
    if state.incidents.is_empty() {
        let text = if state.status.is_some() { "No incidents." } else { "" };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let most = usize::from(area.height.saturating_sub(1));
    let rows = state.incidents.values().rev().take(most).map(|row| self::row(state, row, false));
    frame.render_widget(incidents(rows.collect(), ink), area);
}

/// All of them, the newest first, and the story of the one with the mark under them.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, ink: Ink, area: Rect) {
    let [list, title, story] =
        Layout::vertical([Constraint::Percentage(40), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    if state.incidents.is_empty() {
        frame.render_widget(Paragraph::new("No incidents."), list);
        return;
    }
    let marked = state.incident();
    let rows_shown = list.height.saturating_sub(1);
    let at = state.incidents.keys().rev().position(|id| Some(*id) == marked).unwrap_or(0);
    let from = offset(at, state.incidents.len(), rows_shown);
    let rows = state.incidents.values().rev().skip(from).take(rows_shown.into()).map(|row| {
        let is_marked = Some(row.incident.id) == marked;
        let shown = self::row(state, row, is_marked);
        if is_marked { shown.style(ink.marked()) } else { shown }
    });
    frame.render_widget(incidents(rows.collect(), ink), list);
    let told = state.story.as_ref().filter(|(id, _)| Some(*id) == marked);
    let Some((id, text)) = told else { return };
    frame.render_widget(Paragraph::new(Line::styled(format!("Why {id}:"), ink.heading())), title);
    let lines: Vec<String> =
        text.lines().flat_map(|line| output::wrapped(line, usize::from(story.width))).collect();
    let most = lines.len().saturating_sub(usize::from(story.height));
    let shown = lines.into_iter().skip(state.story_line.min(most)).map(Line::raw);
    frame.render_widget(Paragraph::new(Text::from_iter(shown)), story);
}

fn incidents<'a>(rows: Vec<Row<'a>>, ink: Ink) -> Table<'a> {
    let length = Constraint::Length;
    let widths = [length(1), length(6), length(14), length(10), length(6), length(10), Constraint::Min(10)];
    table(["", "    ID", "TIME", "WHOSE", "DONE", "     USAGE", "PROCESS, REASON"], widths, rows, ink)
}

fn row(state: &State, row: &super::super::ask::Row, is_marked: bool) -> Row<'static> {
    let incident = &row.incident;
    let time = incident.time.to_zoned(state.zone.clone());
    let usage = incident.usage().map_or_else(|| "-".to_owned(), human::bytes);
    Row::new([
        mark(is_marked).to_owned(),
        format!("{:>6}", incident.id),
        time.strftime("%m-%d %H:%M:%S").to_string(),
        row.whose.clone(),
        incident.action.text().to_owned(),
        format!("{usage:>10}"),
        format!("{}, {}", victims(incident), human::escaped(&incident.reason)),
    ])
}
