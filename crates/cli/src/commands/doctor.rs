//! `plimsoll doctor`: what this kernel offers.

mod features;
mod verdict;

use crate::{
    commands::limit,
    exit::{Ending, Exit},
    names::Names,
    output,
};
use clap::Args;
use features::{Feature, features};
use plimsoll_api::accounts::DefaultView;
use plimsoll_api::client::Client;
use plimsoll_policy::{counter::Shape, human, lines::Target, units::Bytes};
use plimsoll_report::table::Table;
use plimsoll_sys::{
    probe::{Answer, probe_bpf, probe_machine},
    process::{kernel_version, page_size, possible_cpus},
};
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
};
use verdict::verdict;

/// How to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    kernel: Option<String>,
    features: Vec<Row>,
    /// The line of `default`, with whom it leaves out; `null`: there is none, or no daemon to tell.
    default: Option<DefaultView>,
    /// `null`: nobody knows how many CPUs this machine may have.
    counters: Option<Counters>,
    verdict: String,
}

/// How well the usage of an account is known while its processes take memory: see `plimsoll_policy::counter`.
#[derive(Debug, Serialize)]
struct Counters {
    /// Possible ones.
    cpus: u32,
    /// As near as this to the soft limit it is exact.
    exact_within_bytes: u64,
    /// Farther away it is off by no more than this, and by no more than a quarter of the distance.
    bound_bytes: u64,
}

impl Counters {
    fn of(cpus: u32) -> Self {
        let shape = Shape::of(cpus);
        let bytes = |pages| page_size().to_bytes(pages).0;
        Self { cpus, exact_within_bytes: bytes(shape.exact_within()), bound_bytes: bytes(shape.max_bound()) }
    }
}

/// One feature, for scripts.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// `null`: could not be found out.
    present: Option<bool>,
    used_for: &'static str,
    /// What is used in its place; `null` where nothing has to be.
    fallback: Option<&'static str>,
    /// What was seen, where it is not there or could not be found out.
    detail: Option<String>,
}

impl From<&Feature> for Row {
    fn from(feature: &Feature) -> Self {
        let (present, detail) = match &feature.answer {
            Answer::Present => (Some(true), None),
            Answer::Absent(seen) => (Some(false), Some(seen.clone())),
            Answer::Unknown(why) => (None, Some(why.clone())),
        };
        Self {
            name: feature.name.clone(),
            present,
            used_for: feature.used_for,
            fallback: (present == Some(false)).then_some(feature.fallback),
            detail,
        }
    }
}

/// Probes and prints.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let asked = Client::connect(socket).and_then(|mut client| client.show_limits(Some(Target::Default)));
    let default = asked.ok().and_then(|limits| limits.default);
    let features = features(&probe_bpf(), &probe_machine());
    let mut names = Names::default();
    let report = Report {
        kernel: kernel_version().ok().map(|version| version.to_string()),
        features: features.iter().map(Row::from).collect(),
        default: default.map(|line| names.fill_in_default(&line)),
        counters: possible_cpus().ok().map(Counters::of),
        verdict: verdict(&features),
    };
    if arguments.json {
        output::json(out, &report)?
    } else {
        show(out, &report, &mut names)?
    }
    Ok(Exit::Done)
}

fn show(out: &mut dyn Write, report: &Report, names: &mut Names) -> io::Result<()> {
    writeln!(out, "Kernel {}.\n", report.kernel.as_deref().unwrap_or("of an unknown version"))?;
    let mut table = Table::new(["FEATURE", "HERE", "USED FOR"], &[]);
    for row in &report.features {
        let here = match row.present {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        table.row([row.name.clone(), here.to_owned(), row.used_for.to_owned()]);
    }
    write!(out, "{table}")?;
    for (heading, present) in [("Not here", Some(false)), ("Could not be found out", None)] {
        let mut rows = report.features.iter().filter(|row| row.present == present).peekable();
        if rows.peek().is_some() {
            writeln!(out, "\n{heading}:")?;
        }
        let rows: Vec<&Row> = rows.collect();
        for alike in rows.chunk_by(|one, next| one.detail == next.detail && one.fallback == next.fallback) {
            tell(out, alike)?;
        }
    }
    writeln!(out)?;
    if let Some(Counters { cpus, exact_within_bytes, bound_bytes }) = report.counters {
        let [within, bound] = [exact_within_bytes, bound_bytes].map(|bytes| human::bytes(Bytes(bytes)));
        writeln!(
            out,
            "CPUs: {cpus}. Usage is exact within {within} of a soft limit. Farther away each CPU keeps some of it to itself: \
             {bound} together at most, and a quarter of the distance."
        )?;
    }
    limit::uncovered(out, report.default.as_ref(), names)?;
    writeln!(out, "{}", output::printable(&report.verdict))
}

/// Features that lack for the same reason, and have the same in their place.
fn tell(out: &mut dyn Write, alike: &[&Row]) -> io::Result<()> {
    let names: Vec<&str> = alike.iter().map(|row| row.name.as_str()).collect();
    let Some(first) = alike.first() else { return Ok(()) };
    let detail = output::printable(first.detail.as_deref().unwrap_or("no reason known"));
    writeln!(out, "  {}: {detail}.", names.join(", "))?;
    match first.fallback {
        Some(fallback) => writeln!(out, "    In its place: {fallback}."),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
