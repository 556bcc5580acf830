//! The result of a bench: JSON for scripts, a table for people.

use crate::statistics::{Median, Summary, paired_ratios};
use plimsoll_report::table::Table;
use serde::Serialize;
use std::fmt;

/// One run of one bench.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// The bench's name.
    pub bench: String,
    /// Where it ran.
    pub machine: Machine,
    /// The figures, one row a series.
    pub rows: Vec<Row>,
    /// Per-round ratios between two series of the same case.
    pub ratios: Vec<Ratio>,
    /// What the reader must know to judge the figures: what was skipped, lost or seen on the side.
    pub notes: Vec<String>,
    /// Figures over time, for a plot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<Trace>,
}

/// Figures over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// The workload.
    pub case: String,
    /// What was timed.
    pub variant: String,
    /// What the figures are.
    pub unit: String,
    /// When each began, in seconds, and the figure.
    pub points: Vec<[f64; 2]>,
    /// What happened meanwhile.
    pub marks: Vec<Mark>,
}

/// A moment of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// When, in seconds.
    pub at_s: f64,
    /// What.
    pub label: String,
}

/// The machine a result belongs to. `None` is 'not known'.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processors online.
    pub cpus: usize,
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Running under a hypervisor.
    pub virtual_machine: Option<bool>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Swap in bytes.
    pub swap_bytes: u64,
    /// Page size in bytes.
    pub page_size_bytes: u64,
    /// Transparent huge pages: the mode in force.
    pub transparent_hugepage: Option<String>,
    /// Load average over one minute when the bench began.
    pub load_average_at_start: Option<f64>,
    /// Version of the bench.
    pub version: String,
}

/// One series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The workload.
    pub case: String,
    /// Who guarded.
    pub variant: String,
    /// What the figures come to.
    #[serde(flatten)]
    pub figures: Summary,
    /// What the figures are.
    pub unit: String,
}

/// The ratio of two series, formed round by round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The workload.
    pub case: String,
    /// Numerator.
    pub of: String,
    /// Denominator.
    pub to: String,
    /// Of the rounds' ratios.
    #[serde(flatten)]
    pub rounds: Median,
}

/// A named series of one case, as the benches hand it over: who guarded, and the figures in the order of the rounds.
pub(crate) type Series<'a> = (&'a str, &'a [f64]);

impl BenchReport {
    /// An empty report.
    #[must_use]
    pub fn new(bench: &str, machine: Machine) -> Self {
        Self {
            bench: bench.to_owned(),
            machine,
            rows: Vec::new(),
            ratios: Vec::new(),
            notes: Vec::new(),
            traces: Vec::new(),
        }
    }

    /// Adds a row; a series without a figure becomes a note, not a row of zeros.
    pub(crate) fn add_row(&mut self, case: &str, (variant, figures): Series<'_>, unit: &str) {
        match Summary::of(figures) {
            Some(figures) => self.rows.push(Row {
                case: case.to_owned(),
                variant: variant.to_owned(),
                figures,
                unit: unit.to_owned(),
            }),
            None => self.notes.push(format!("{case}: {variant}: nothing measured")),
        }
    }

    /// Adds the ratio `of / to`, round by round.
    pub(crate) fn add_ratio(&mut self, case: &str, of: Series<'_>, to: Series<'_>) {
        if let Some(rounds) = Median::of(&paired_ratios(of.1, to.1)) {
            let (case, of, to) = (case.to_owned(), of.0.to_owned(), to.0.to_owned());
            self.ratios.push(Ratio { case, of, to, rounds });
        }
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let load =
            machine.load_average_at_start.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.2}"));
        writeln!(
            f,
            "{}: Linux {}, {} x {}, {} MiB, load {load} at start",
            self.bench,
            machine.kernel,
            machine.cpus,
            machine.cpu_model.as_deref().unwrap_or("unknown processor"),
            machine.memory_bytes >> 20,
        )?;
        let mut table = Table::new(["case", "variant", "n", "p50", "p99", "max", "unit"], &[]);
        for Row { case, variant, figures, unit } in &self.rows {
            let Summary { n, p50, p99, max } = *figures;
            let [p50, p99, max] = [p50, p99, max].map(figure);
            table.row([case.clone(), variant.clone(), n.to_string(), p50, p99, max, unit.clone()]);
        }
        write!(f, "{table}")?;
        if !self.ratios.is_empty() {
            let mut table = Table::new(["case", "ratio", "n", "median", "95 % confidence"], &[]);
            for Ratio { case, of, to, rounds } in &self.ratios {
                let Median { n, median, low, high } = rounds;
                let interval = match (low, high) {
                    (Some(low), Some(high)) => format!("{low:.3} to {high:.3}"),
                    _ => "too few rounds".to_owned(),
                };
                table.row([
                    case.clone(),
                    format!("{of} / {to}"),
                    n.to_string(),
                    format!("{median:.3}"),
                    interval,
                ]);
            }
            write!(f, "\n{table}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

/// Four significant digits are more than any of these figures carries.
fn figure(value: f64) -> String {
    if value == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests;
