//! Figures of a page that `bench/results` has: each says which row it is, and is held to it.
//!
//! `[12.3 GB/s][idle]` is such a figure. A line `[idle]: ../bench/results/FILE "CASE | VARIANT | FIELD"` says which:
//! - a row: `SCHED_IDLE | expedited | p50`; a ratio: `SCHED_IDLE | expedited / plain | median` (or `low`, `high`);
//! - where one file has several runs, one of them by words of its first line: `463 MiB | CASE | VARIANT | FIELD`;
//! - a note that begins so, and has the figure in it: `note | seed-8`.
//!
//! The figure is the row's, rounded to the places that are shown, in the unit that is shown.

use crate::{Finding, tree::Source};
use serde_json::Value;

/// A row or a ratio of a result.
#[derive(Default)]
struct Row {
    /// The first line of its run; empty where a file has one.
    run: String,
    case: String,
    variant: String,
    unit: String,
    fields: Vec<(String, f64)>,
}

#[derive(Default)]
struct Results {
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// A line of a page that names a row.
struct Mark<'a> {
    line: usize,
    label: &'a str,
    file: &'a str,
    row: &'a str,
}

/// The figures of `page` that are not those of the rows they name, and marks that mark nothing. `results` reads a file
/// of `bench/results`.
pub fn check(page: &Source, results: &dyn Fn(&str) -> Result<String, String>) -> Vec<Finding> {
    let marks: Vec<Mark<'_>> = page.lines().filter_map(|(line, text)| mark(line, text)).collect();
    let figures = figures(page);
    let unused = marks.iter().filter(|mark| figures.iter().all(|(_, _, label)| *label != mark.label));
    let unused = unused.map(|mark| (mark.line, format!("no figure is marked [{}]", mark.label)));
    let wrong = figures.iter().filter_map(|&(line, shown, label)| {
        let Some(mark) = marks.iter().find(|mark| mark.label == label) else {
            return Some((
                line,
                format!("[{shown}][{label}]: no line '[{label}]: PATH \"ROW\"' says what it is"),
            ));
        };
        let text = results(mark.file);
        let judged = text.and_then(|text| read(mark.file, &text)?.holds(mark.row, shown));
        judged.err().map(|what| (line, format!("[{shown}][{label}]: {}: {}: {what}", mark.file, mark.row)))
    });
    unused.chain(wrong).map(|(line, message)| Finding::new(&page.path, line, message)).collect()
}

fn mark(line: usize, text: &str) -> Option<Mark<'_>> {
    let (label, rest) = text.strip_prefix('[')?.split_once("]: ")?;
    let (path, row) = rest.split_once(' ').unwrap_or((rest, ""));
    let (_, file) = path.rsplit_once("bench/results/")?;
    Some(Mark { line, label, file, row: row.trim_matches('"') })
}

/// Line, text and label of each `[TEXT][LABEL]`, but in code.
fn figures(page: &Source) -> Vec<(usize, &str, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (line, text) in page.lines() {
        fenced ^= text.starts_with("```");
        for prose in text.split('`').step_by(2).filter(|_| !fenced) {
            let pairs = prose.split("][").zip(prose.split("][").skip(1));
            found.extend(pairs.filter_map(|(before, after)| {
                Some((line, before.rsplit('[').next()?, after.split(']').next()?))
            }));
        }
    }
    found
}

fn read(file: &str, text: &str) -> Result<Results, String> {
    if file.ends_with(".txt") {
        return Ok(printed(text));
    }
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let list = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
    let word = |row: &Value, name: &str| row.get(name).and_then(Value::as_str).map(str::to_owned);
    let pair = |row: &Value| Some(format!("{} / {}", word(row, "of")?, word(row, "to")?));
    let number = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
    let rows = list("rows").chain(list("ratios")).map(|row| Row {
        run: String::new(),
        case: word(row, "case").unwrap_or_default(),
        variant: word(row, "variant").or_else(|| pair(row)).unwrap_or_default(),
        unit: word(row, "unit").unwrap_or_default(),
        fields: row.as_object().into_iter().flatten().filter_map(number).collect(),
    });
    let notes = list("notes").filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Results { rows: rows.collect(), notes })
}

/// What a bench prints without `--json`: tables, whose columns are two spaces apart at least.
fn printed(text: &str) -> Results {
    let (mut results, mut run, mut names) = (Results::default(), "", Vec::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        match cells.as_slice() {
            ["case", rest @ ..] => names = rest.to_vec(),
            [only] if only.starts_with("note: ") => results.notes.push(only.replacen("note: ", "", 1)),
            [only] if only.contains(": Linux ") => run = only,
            [case, variant, cells @ ..] => {
                let mut row = Row {
                    run: run.to_owned(),
                    case: (*case).to_owned(),
                    variant: (*variant).to_owned(),
                    ..Row::default()
                };
                for (&name, &cell) in names.iter().skip(1).zip(cells) {
                    match (name, cell.split_once(" to ")) {
                        ("unit", _) => row.unit = cell.to_owned(),
                        (_, Some((low, high))) => row.add(&[("low", low), ("high", high)]),
                        (_, None) => row.add(&[(name, cell)]),
                    }
                }
                results.rows.push(row);
            }
            _ => {}
        }
    }
    results
}

impl Row {
    /// What is no number is left out.
    fn add(&mut self, fields: &[(&str, &str)]) {
        let read = |&(name, text): &(&str, &str)| Some((name.to_owned(), text.parse().ok()?));
        self.fields.extend(fields.iter().filter_map(read));
    }
}

impl Results {
    /// Whether `shown` is what the row has that is named so.
    fn holds(&self, row: &str, shown: &str) -> Result<(), String> {
        let parts: Vec<&str> = row.split(" | ").collect();
        let (run, case, variant, field) = match *parts.as_slice() {
            ["note", begin] => {
                let words = |text: &str| format!(" {} ", text.replace([',', ';', ':'], ""));
                let mut notes = self.notes.iter().filter(|note| note.starts_with(begin));
                let has_it = notes.any(|note| words(note).contains(&words(shown)));
                return if has_it { Ok(()) } else { Err("no such note".to_owned()) };
            }
            [case, variant, field] => ("", case, variant, field),
            [run, case, variant, field] => (run, case, variant, field),
            _ => return Err("name a row as CASE | VARIANT | FIELD".to_owned()),
        };
        let (number, unit) = shown.split_once(' ').unwrap_or((shown, ""));
        let named = |row: &&Row| row.run.contains(run) && row.case == case && row.variant == variant;
        let rows = self.rows.iter().filter(named);
        let rows: Vec<(&Row, f64)> = rows.filter_map(|row| Some((row, factor(&row.unit, unit)?))).collect();
        let &[(row, factor)] = rows.as_slice() else {
            return Err(format!("{} rows of that name and unit", rows.len()));
        };
        let value = row.fields.iter().find(|(name, _)| name == field).ok_or("the row has no such field")?.1;
        let places = number.split_once('.').map_or(0, |(_, places)| places.len());
        let wanted = format!("{:.places$}", value * factor);
        if number == wanted { Ok(()) } else { Err(format!("it is {wanted}")) }
    }
}

/// What a figure in the unit `from` is to be multiplied by to be in `to`. Ratios have none, and may be called times;
/// counts may go without theirs.
fn factor(from: &str, to: &str) -> Option<f64> {
    const UNITS: [(&str, &str, f64); 9] = [
        ("ns", "time", 1e-9),
        ("us", "time", 1e-6),
        ("ms", "time", 1e-3),
        ("s", "time", 1.0),
        ("bytes", "size", 1.0),
        ("KiB", "size", 1024.0),
        ("MiB", "size", 1_048_576.0),
        ("MB/s", "rate", 1e6),
        ("GB/s", "rate", 1e9),
    ];
    let unit = |name: &str| UNITS.iter().find(|(unit, ..)| *unit == name);
    if from == to || (from, to) == ("", "times") || (to.is_empty() && unit(from).is_none()) {
        return Some(1.0);
    }
    let ((_, kind, from), (_, other, to)) = (unit(from)?, unit(to)?);
    (kind == other).then_some(from / to)
}

#[cfg(test)]
mod tests;
