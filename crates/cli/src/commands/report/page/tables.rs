//! The tables of the page: who was compared, and every sample, for those who do not see the plots.

use super::{Html, process};
use plimsoll_policy::{
    human::bytes,
    incident::{Incident, Victim},
    units::Bytes,
};
use plimsoll_report::story::course::percent;

/// Of a command line, in characters: Java's run to thousands.
const COMMAND_CHARS_MAX: usize = 160;

/// Those who paid and those they were compared with, the largest first.
pub(super) fn processes(incident: &Incident) -> Html {
    let mut html = Html::default();
    let mut all: Vec<(&Victim, bool)> = incident.victims.iter().map(|victim| (victim, true)).collect();
    all.extend(incident.peers.iter().map(|peer| (peer, false)));
    all.sort_by_key(|(one, victim)| (core::cmp::Reverse(one.usage_bytes), !victim, one.pid));
    let largest = all.first().map_or(0, |(one, _)| one.usage_bytes).max(1);
    if all.is_empty() {
        return html;
    }
    html.raw("<div class=\"wide\"><table><caption>The processes compared, the largest first</caption>\n");
    html.raw("<thead><tr><th scope=\"col\">Process</th><th scope=\"col\" class=\"n\">User</th>");
    html.raw("<th scope=\"col\" class=\"n\">Usage</th></tr></thead>\n<tbody>\n");
    for (one, victim) in all {
        html.raw(if victim { "<tr class=\"victim\"><td>" } else { "<tr><td>" });
        process(&mut html, one);
        html.raw(" <span class=\"n\">").number(one.pid.0).raw("</span>");
        if victim {
            html.raw(" <span class=\"tag\">taken</span>");
        }
        if let Some(command) = &one.cmdline {
            html.raw("<br><code><bdi>").text(&cut(command)).raw("</bdi></code>");
        }
        if let Some(cgroup) = &one.cgroup {
            html.raw("<br><code><bdi>").text(&cut(cgroup)).raw("</bdi></code>");
        }
        html.raw("</td><td class=\"n\">").number(one.uid.0).raw("</td><td class=\"n\">");
        html.text(&bytes(Bytes(one.usage_bytes)));
        let part = u128::from(one.usage_bytes) * 1000 / u128::from(largest);
        html.raw(
            "<svg class=\"bar\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        );
        html.raw("<rect width=\"").number(i128::try_from(part).unwrap_or(0)).raw("\" height=\"10\"/></svg>");
        html.raw("</td></tr>\n");
    }
    html.raw("</tbody></table></div>\n");
    html
}

fn cut(text: &str) -> String {
    let mut start: String = text.chars().take(COMMAND_CHARS_MAX).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

/// Every sample that the incident keeps.
pub(super) fn samples(incident: &Incident) -> Html {
    let mut html = Html::default();
    let Some(course) = &incident.course else { return html };
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), |size| bytes(Bytes(size)));
    let share = |share: Option<u16>| share.map_or_else(|| "-".to_owned(), percent);
    html.raw("<details><summary>The numbers as tables</summary>\n");
    if !course.account.is_empty() {
        head(&mut html, "The account", &["Time", "Usage", "Line"]);
        for one in &course.account {
            row(&mut html, &[time(one.at_ms), size(Some(one.usage_bytes)), size(one.line_bytes)]);
        }
        html.raw("</tbody></table></div>\n");
    }
    if !course.machine.is_empty() {
        head(
            &mut html,
            "The machine",
            &["Time", "Available", "Of programs", "Swap free", "Some waited", "All waited"],
        );
        for one in &course.machine {
            row(
                &mut html,
                &[
                    time(one.at_ms),
                    size(one.mem_available_bytes),
                    size(one.anon_bytes),
                    size(one.swap_free_bytes),
                    share(one.some_permille),
                    share(one.full_permille),
                ],
            );
        }
        html.raw("</tbody></table></div>\n");
    }
    html.raw("</details>\n");
    html
}

fn head(html: &mut Html, caption: &'static str, columns: &[&'static str]) {
    html.raw("<div class=\"wide\"><table><caption>").raw(caption).raw("</caption><thead><tr>");
    for column in columns {
        html.raw("<th scope=\"col\" class=\"n\">").raw(column).raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
}

fn row(html: &mut Html, cells: &[String]) {
    html.raw("<tr>");
    for cell in cells {
        html.raw("<td class=\"n\">").text(cell).raw("</td>");
    }
    html.raw("</tr>\n");
}

/// From the decision, in seconds with a tenth.
fn time(at_ms: i64) -> String {
    let size = at_ms.unsigned_abs();
    let sign = if at_ms < 0 { "\u{2212}" } else { "+" };
    format!("{sign}{}.{} s", size / 1000, size % 1000 / 100)
}
