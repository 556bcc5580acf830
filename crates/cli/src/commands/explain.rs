//! `plimsoll explain`: the kernel's own OOM reports in plain words.
//!
//! No daemon is asked, nothing on this machine is looked at but the log: a report of another machine reads the same.

mod journal;
mod json;
mod kmsg;

use crate::{
    exit::{Ending, Exit, Failure},
    output,
};
use clap::Args;
use plimsoll_policy::human;
use plimsoll_report::oom::log::{LINE_BYTES_MAX, Log, Parser};
use plimsoll_report::oom::{Diagnosis, Report, diagnose};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
};

/// Where the log comes from, and how to print what it comes to.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A log: dmesg's output, a syslog or journal file, a serial console's, a mail. '-' is standard input, which is also
    /// read when nothing is given and it is no terminal; on a terminal it is the kernel's own buffer.
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Read the kernel's own buffer (/dev/kmsg), as dmesg does.
    #[arg(long, conflicts_with = "file")]
    dmesg: bool,
    /// Ask the journal for the kernel's messages since boot (journalctl -k).
    #[arg(long, conflicts_with_all = ["file", "dmesg"])]
    journal: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Reads, judges, prints.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Ending {
    let (log, source) = read(arguments)?;
    let judged: Vec<(&Report, Diagnosis)> =
        log.reports.iter().map(|report| (report, diagnose(report))).collect();
    if arguments.json {
        let list: Vec<json::Explained<'_>> =
            judged.iter().map(|(report, diagnosis)| json::explained(report, diagnosis)).collect();
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    if judged.is_empty() {
        writeln!(out, "No OOM report was found in {source}.")?;
        return Ok(Exit::Done);
    }
    if log.left_out > 0 {
        let more = output::counted(log.left_out, "older report is", "older reports are");
        writeln!(out, "{more} left out.\n")?;
    }
    for (index, (report, diagnosis)) in judged.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        tell(out, (index.saturating_add(1), judged.len()), report, diagnosis)?;
    }
    Ok(Exit::Done)
}

fn read(arguments: &Arguments) -> Result<(Log, String), Failure> {
    let mut parser = Parser::default();
    let source = match &arguments.file {
        Some(path) if path.as_os_str() != "-" => {
            let named = format!("'{}'", path.display());
            file(path, &mut parser).map_err(|error| unreadable(&named, &error))?;
            named
        }
        None if arguments.journal => {
            journal::read(&mut parser)?;
            String::from("the journal of this boot")
        }
        None if arguments.dmesg || io::stdin().is_terminal() => {
            kmsg::read(&mut parser)?;
            String::from("the kernel's buffer")
        }
        Some(_) | None => {
            lines(&mut io::stdin().lock(), &mut parser)
                .map_err(|error| unreadable("standard input", &error))?;
            String::from("standard input")
        }
    };
    Ok((parser.finish(), source))
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    cannot_read(what, error, "give a file with the kernel's messages, or - for standard input")
}

/// As one line, with what to do.
fn cannot_read(what: &str, error: &io::Error, instead: &str) -> Failure {
    let message = format_args!("cannot read {what}: {error}; {instead}");
    let permitted = error.kind() != io::ErrorKind::PermissionDenied;
    if permitted { Failure::failed(message) } else { Failure::not_permitted(message) }
}

fn file(path: &Path, parser: &mut Parser) -> io::Result<()> {
    lines(&mut BufReader::with_capacity(1 << 16, File::open(path)?), parser)
}

/// Feeds lines however long they are: of one, no more is kept than the parser looks at.
fn lines(reader: &mut dyn BufRead, parser: &mut Parser) -> io::Result<()> {
    let mut line: Vec<u8> = Vec::new();
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            parser.line(&line);
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = end.and_then(|end| buffer.get(..end)).unwrap_or(buffer);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        let used = part.len().saturating_add(usize::from(end.is_some()));
        reader.consume(used);
        if end.is_some() {
            parser.line(&line);
            line.clear();
        }
    }
}

/// One report in words.
fn tell(
    out: &mut dyn Write,
    place: (usize, usize),
    report: &Report,
    diagnosis: &Diagnosis,
) -> io::Result<()> {
    let (number, of) = place;
    let mut head = if of > 1 { format!("OOM report {number} of {of}") } else { String::from("OOM report") };
    let since_boot = report.when.since_boot.map(|since| format!("{} after boot", human::span(since)));
    let kernel = report.kernel.as_ref().map(|kernel| format!("Linux {kernel}"));
    for part in
        [report.when.clock.clone().or(since_boot), report.when.host.clone(), kernel].into_iter().flatten()
    {
        head = format!("{head}, {part}");
    }
    writeln!(out, "{}", output::printable(&head))?;
    writeln!(out, "Cause: {} ({}).", diagnosis.cause, report.kind.name())?;
    for sentence in &diagnosis.story {
        writeln!(out, "{sentence}")?;
    }
    for (index, advice) in diagnosis.advice.iter().enumerate() {
        writeln!(out, "{} {advice}", if index == 0 { "What to do:" } else { "Or:" })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
