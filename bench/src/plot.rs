//! Draws figures over time as SVG: time to the right, the figure upwards, each decade as high as the next. Pure.

use crate::report::Trace;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 45.0;

/// Marks of time that an axis has at most.
const TICKS: f64 = 12.0;

/// What a trace spans: time, and powers of ten.
struct Span {
    from_s: f64,
    to_s: f64,
    low: i32,
    high: i32,
}

impl Span {
    fn of(trace: &Trace) -> Self {
        let times = trace.points.iter().map(|[at, _]| *at).chain(trace.marks.iter().map(|mark| mark.at_s));
        let (from_s, to_s) = times.fold((0.0_f64, 1.0_f64), |(low, high), at| (low.min(at), high.max(at)));
        let figures = trace.points.iter().map(|[_, figure]| *figure).filter(|figure| *figure > 0.0);
        let (low, high) =
            figures.fold((f64::MAX, f64::MIN), |(low, high), figure| (low.min(figure), high.max(figure)));
        let decade = |figure: f64, up: bool| {
            (-9..=9)
                .find(|power| 10_f64.powi(*power) >= figure)
                .map_or(0, |power| if up || 10_f64.powi(power) <= figure { power } else { power - 1 })
        };
        let (low, high) = if low > high { (-3, 1) } else { (decade(low, false), decade(high, true)) };
        Self { from_s, to_s, low, high: high.max(low + 1) }
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + (at_s - self.from_s) / (self.to_s - self.from_s) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, figure: f64) -> f64 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let part = (figure.log10().clamp(low, high) - low) / (high - low);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }

    /// Between two marks of time: 1, 2 or 5 times a power of ten.
    fn step_s(&self) -> f64 {
        let least = (self.to_s - self.from_s) / TICKS;
        (-3..6)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|first| first * 10_f64.powi(power)))
            .find(|step| *step >= least)
            .unwrap_or(1.0)
    }
}

/// The trace as a picture of its own.
#[must_use]
pub fn svg(trace: &Trace) -> String {
    let span = Span::of(trace);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\">{}</text>\n",
        escaped(&trace.variant)
    );
    draw_axes(&mut out, &span, &trace.unit);
    for (mark, row) in trace.marks.iter().zip((0_u8..2).cycle()) {
        let (x, top) = (span.x(mark.at_s), TOP - 6.0 - 14.0 * f64::from(row));
        // A String takes all that is written to it.
        let _written = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#b03030\" \
             stroke-dasharray=\"4 3\"/>\n<text x=\"{x:.1}\" y=\"{top:.1}\" fill=\"#b03030\">{}</text>",
            HEIGHT - BOTTOM,
            escaped(&mark.label)
        );
    }
    for [at_s, figure] in &trace.points {
        let (x, y) = (span.x(*at_s), span.y(*figure));
        let _written = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#2060a0\"><title>{at_s:.1} s: {figure:.4} {}</title></circle>",
            escaped(&trace.unit)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn draw_axes(out: &mut String, span: &Span, unit: &str) {
    let floor = HEIGHT - BOTTOM;
    for power in span.low..=span.high {
        let figure = 10_f64.powi(power);
        let y = span.y(figure);
        let _written = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{figure} {}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            escaped(unit)
        );
    }
    let step_s = span.step_s();
    let mut at_s = (span.from_s / step_s).ceil() * step_s;
    while at_s <= span.to_s {
        let x = span.x(at_s);
        let shown = if at_s == 0.0 { 0.0 } else { at_s };
        let _written = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{floor}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"black\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{shown} s</text>",
            floor + 4.0,
            floor + 18.0
        );
        at_s += step_s;
    }
    let _written = writeln!(
        out,
        "<path d=\"M{LEFT} {TOP} V{floor} H{:.1}\" fill=\"none\" stroke=\"black\"/>",
        WIDTH - RIGHT
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
