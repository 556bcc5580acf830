//! Plots as inline SVG, in whole numbers: no script, nothing from elsewhere, readable for who hears them read.
//!
//! A plot is 720 units wide and as wide as the page; labels become larger on narrow screens (`page.css`).

use crate::{html::Html, story::course::percent};
use plimsoll_policy::{
    human,
    units::{Bytes, Nanos},
};

/// How a plot looks, in the colours that `--card`, `--ink` and so on stand for.
pub const STYLE: &str = include_str!("plot.css");

/// What they stand for in a picture of its own.
const COLOURS: &str = "svg{background:#fff;--card:#fff;--ink:#1d2329;--soft:#5a646e;--rule:#dcdfe2;--first:#1b62b5;\
                       --second:#8a5a00;--limit:#b3261e;--wash:#1b62b524}";

const WIDTH: i64 = 720;
/// Under the top edge: room for the mark of the decision.
const TOP: i64 = 34;
/// Where the plot ends and times begin.
const BOTTOM: i64 = 250;
const HEIGHT: i64 = 284;
/// Above a picture of its own: room for its title.
const CAPTION: i64 = 24;

/// Seconds from one mark to the next, the first that gives few enough.
const STEPS_S: [i64; 10] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const MARKS_MAX: i64 = 6;

/// The widest window that is drawn, to either side: a day.
const WINDOW_MAX_MS: i64 = 86_400_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Thousandths of the time.
    Permille,
    /// Microseconds; each decade is as high as the next.
    Micros,
}

impl Unit {
    fn words(self, value: u64) -> String {
        match self {
            Self::Bytes => human::bytes(Bytes(value)),
            Self::Permille => percent(u16::try_from(value).unwrap_or(u16::MAX)),
            Self::Micros => human::span(Nanos(value.saturating_mul(1000))),
        }
    }

    /// The lowest and the highest value that is drawn, with a little air above, and never a scale of nothing.
    fn ends(self, values: impl Iterator<Item = u64>) -> (u64, u64) {
        let (low, high) = values.fold((u64::MAX, 0), |(low, high), value| (low.min(value), high.max(value)));
        let airy = high.saturating_add(high / 8);
        let decade = |value: u64, up: u32| 10_u64.saturating_pow(value.max(1).ilog10().saturating_add(up));
        match self {
            Self::Bytes => (0, airy.max(1 << 20)),
            Self::Permille => (0, airy.clamp(60, 1000)),
            Self::Micros => {
                let low = decade(low.min(high), 0);
                (low, decade(high.saturating_sub(1), 1).max(low.saturating_mul(10)))
            }
        }
    }

    /// The marks up the side between these ends: two or three of them, or four.
    fn marks(self, low: u64, top: u64) -> Vec<u64> {
        let step = match self {
            Self::Micros => {
                let next = |value: &u64| value.checked_mul(10);
                return std::iter::successors(Some(low), next).take_while(|value| *value <= top).collect();
            }
            // The power of two at or under a third, or the next: more than four labels lie on each other on a phone.
            Self::Bytes => {
                let step = 1_u64 << (top / 3).max(1).ilog2();
                if top / step >= 4 { step.saturating_mul(2) } else { step }
            }
            Self::Permille if top <= 100 => 25,
            Self::Permille if top <= 400 => 100,
            Self::Permille => 250,
        };
        let next = |value: &u64| value.checked_add(step);
        std::iter::successors(Some(step), next).take_while(|value| *value <= top).collect()
    }
}

/// How a row of points is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A line with the area under it.
    Area,
    /// A line.
    Plain,
    /// A broken line that keeps its height until the next point: a limit.
    Limit,
    /// A dot each.
    Dots,
}

impl Style {
    const fn class(self) -> &'static str {
        match self {
            Self::Area | Self::Dots => "first",
            Self::Plain => "second",
            Self::Limit => "limit",
        }
    }
}

/// A row of points: milliseconds from the decision (or another moment), and how much.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// The points, in the order of their times.
    pub points: Vec<(i64, u64)>,
}

/// One plot.
#[derive(Debug)]
pub struct Plot<'a> {
    /// Part of the names by which its title and description are found; one word.
    pub id: &'static str,
    /// What stands above it.
    pub title: &'a str,
    /// What a screen reader says of it.
    pub description: &'a str,
    /// What the values are.
    pub unit: Unit,
    /// What to show, in milliseconds.
    pub window: (i64, i64),
    /// What is said of some moments, such as that of the decision; milliseconds.
    pub marks: &'a [(i64, &'a str)],
    /// What is drawn.
    pub rows: &'a [Row],
}

/// Where values come to lie.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from_ms: i64,
    to_ms: i64,
    /// 0 where values rise evenly, else where the lowest decade begins.
    low: u64,
    top: u64,
}

impl Scale {
    fn x(self, at_ms: i64) -> i64 {
        let (from, to) = (i128::from(self.from_ms), i128::from(self.to_ms));
        let part = (i128::from(at_ms) - from) * i128::from(WIDTH) / (to - from).max(1);
        i64::try_from(part).unwrap_or(0).clamp(0, WIDTH)
    }

    fn y(self, value: u64) -> i64 {
        let height = i128::from(BOTTOM - TOP);
        if self.low > 0 {
            let decades = |of: u64| (of as f64 / self.low as f64).log10();
            let part = decades(value.clamp(self.low, self.top)) / decades(self.top);
            #[expect(clippy::cast_possible_truncation, reason = "a part of the height")]
            return BOTTOM - (part * (BOTTOM - TOP) as f64).round() as i64;
        }
        let part = i128::from(value) * height / i128::from(self.top.max(1));
        BOTTOM - i64::try_from(part.min(height)).unwrap_or(0)
    }
}

impl Plot<'_> {
    /// The figure: the drawing, and what its lines are.
    #[must_use]
    pub fn draw(&self) -> Html {
        let mut html = Html::default();
        html.raw("<figure><figcaption>").text(self.title).raw("</figcaption><svg class=\"plot\"");
        self.draw_inside(&mut html, 0);
        html.raw("</svg><ul class=\"key\">");
        for row in self.rows {
            html.raw("<li class=\"").raw(row.style.class()).raw("\">").text(&row.name).raw("</li>");
        }
        html.raw("</ul></figure>");
        html
    }

    /// The drawing as a picture of its own (SVG).
    #[must_use]
    pub fn picture(&self) -> String {
        let mut html = Html::default();
        html.raw("<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\"");
        self.draw_inside(&mut html, CAPTION);
        html.raw("<text class=\"mark\" x=\"4\" y=\"-8\">").text(self.title).raw("</text>");
        html.raw("<style>").raw(COLOURS).raw(STYLE).raw("</style></svg>\n");
        html.into_string()
    }

    /// What is inside of the picture, with so much room above.
    fn draw_inside(&self, html: &mut Html, above: i64) {
        let values = self.rows.iter().flat_map(|row| self.visible(row)).map(|(_, value)| value);
        let (low, top) = self.unit.ends(values);
        let (from_ms, to_ms) = self.window();
        let scale = Scale { from_ms, to_ms, low, top };
        html.raw(" role=\"img\" viewBox=\"0 ").number(-above).raw(" ").number(WIDTH);
        html.raw(" ").number(HEIGHT + above);
        html.raw("\" aria-labelledby=\"").raw(self.id).raw("-title ").raw(self.id).raw("-description\">");
        html.raw("<title id=\"").raw(self.id).raw("-title\">").text(self.title).raw("</title>");
        html.raw("<desc id=\"").raw(self.id).raw("-description\">").text(self.description).raw("</desc>");
        let labels = self.draw_sides(html, scale);
        for row in self.rows {
            self.draw_row(html, scale, row);
        }
        html.piece(&labels);
        for (at_ms, words) in self.marks {
            draw_mark(html, scale.x(*at_ms), words);
        }
    }

    /// The window, with the decision in it, and some width.
    fn window(&self) -> (i64, i64) {
        (self.window.0.clamp(-WINDOW_MAX_MS, 0), self.window.1.clamp(1, WINDOW_MAX_MS))
    }

    /// The points in the window, and those just outside of it where lines come from and go to.
    fn visible(&self, row: &Row) -> Vec<(i64, u64)> {
        let (from, to) = self.window();
        let points = &row.points;
        let first = points.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let end = points.iter().position(|(at, _)| *at >= to).map_or(points.len(), |last| last + 1);
        points
            .get(first..end)
            .unwrap_or_default()
            .iter()
            .map(|(at, value)| (*at.clamp(&from, &to), *value))
            .collect()
    }

    /// What is measured against; the labels come back, to be laid over what is drawn.
    fn draw_sides(&self, html: &mut Html, scale: Scale) -> Html {
        let mut labels = Html::default();
        for value in self.unit.marks(scale.low, scale.top) {
            let y = scale.y(value);
            html.raw("<path class=\"grid\" d=\"M0 ").number(y).raw("H").number(WIDTH).raw("\"/>");
            let words = self.unit.words(value);
            labels.raw("<text x=\"4\" y=\"").number(y - 5).raw("\">").text(&words).raw("</text>");
        }
        html.raw("<path class=\"axis\" d=\"M0 ").number(BOTTOM).raw("H").number(WIDTH).raw("\"/>");
        let span_s = (scale.to_ms.saturating_sub(scale.from_ms) / 1000).max(1);
        let step = STEPS_S.into_iter().find(|step| span_s / step <= MARKS_MAX).unwrap_or(span_s / MARKS_MAX);
        let mut at_s = scale.from_ms / 1000 / step * step;
        while at_s * 1000 <= scale.to_ms {
            let x = scale.x(at_s * 1000);
            if at_s * 1000 >= scale.from_ms {
                let anchor = match x {
                    ..40 => "start",
                    680.. => "end",
                    _ => "middle",
                };
                html.raw("<path class=\"axis\" d=\"M").number(x).raw(" ").number(BOTTOM).raw("v5\"/>");
                html.raw("<text class=\"time\" x=\"").number(x).raw("\" y=\"").number(BOTTOM + 24);
                html.raw("\" text-anchor=\"").raw(anchor).raw("\">").text(&time(at_s)).raw("</text>");
            }
            at_s += step;
        }
        labels
    }

    fn draw_row(&self, html: &mut Html, scale: Scale, row: &Row) {
        let points = self.visible(row);
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        if row.style == Style::Dots {
            return points.iter().for_each(|(at_ms, value)| {
                draw_dot(html, (scale.x(*at_ms), scale.y(*value)), &self.unit.words(*value));
            });
        }
        let mut path = Html::default();
        let mut before = None;
        for (at, value) in &points {
            let (x, y) = (scale.x(*at), scale.y(*value));
            match before {
                None => path.raw("M").number(x).raw(" ").number(y),
                Some(before) if row.style == Style::Limit && before != y => {
                    path.raw("H").number(x).raw("V").number(y)
                }
                Some(_) => path.raw("L").number(x).raw(" ").number(y),
            };
            before = Some(y);
        }
        if row.style == Style::Area {
            html.raw("<path class=\"area\" d=\"").piece(&path);
            html.raw("V").number(BOTTOM).raw("H").number(scale.x(first.0)).raw("Z\"/>");
        }
        html.raw("<path class=\"row ").raw(row.style.class()).raw("\" d=\"").piece(&path);
        if row.style == Style::Limit {
            html.raw("H").number(WIDTH);
        }
        html.raw("\"/>");
        if points.len() == 1 && row.style != Style::Limit {
            draw_dot(html, (scale.x(last.0), scale.y(last.1)), &self.unit.words(last.1));
        }
    }
}

fn draw_dot(html: &mut Html, (x, y): (i64, i64), words: &str) {
    html.raw("<circle class=\"dot\" cx=\"").number(x).raw("\" cy=\"").number(y).raw("\" r=\"4\"><title>");
    html.text(words).raw("</title></circle>");
}

fn draw_mark(html: &mut Html, x: i64, words: &str) {
    html.raw("<path class=\"mark\" d=\"M")
        .number(x)
        .raw(" ")
        .number(TOP - 8)
        .raw("V")
        .number(BOTTOM)
        .raw("\"/>");
    let (anchor, x) = match x {
        ..120 => ("start", x + 2),
        600.. => ("end", x - 2),
        _ => ("middle", x),
    };
    html.raw("<text class=\"mark\" x=\"").number(x).raw("\" y=\"").number(TOP - 14);
    html.raw("\" text-anchor=\"").raw(anchor).raw("\">").text(words).raw("</text>");
}

/// A mark of the time axis, in seconds from the decision.
fn time(at_s: i64) -> String {
    let size = at_s.unsigned_abs();
    let text = if size >= 120 && size.is_multiple_of(60) {
        format!("{} min", size / 60)
    } else {
        format!("{size} s")
    };
    match at_s {
        0 => "0".to_owned(),
        ..0 => format!("\u{2212}{text}"),
        _ => format!("+{text}"),
    }
}

#[cfg(test)]
mod tests;
