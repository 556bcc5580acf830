//! `plimsoll protect`: which files are kept in memory, and how much.

use crate::{
    exit::{Ending, Exit, Failure},
    output,
};
use clap::{Args, Subcommand};
use plimsoll_api::client::Client;
use plimsoll_api::protect::{AnonView, FileView, FloorView, ProtectView, TierView};
use plimsoll_policy::{
    human,
    units::Bytes,
    workingset::{Tier, TunableChange, Tunables, floor::Standing},
};
use plimsoll_report::table::Table;
use std::{
    io::{self, Write},
    path::Path,
};

/// How many files are shown unless all are asked for.
const FILES_SHOWN: u64 = 20;

/// `plimsoll protect ...`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: ShowArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what is kept in memory, and why.
    Show(ShowArguments),
    /// Change tunables at once; they are kept, and win over the configuration.
    Set(SetArguments),
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// Show all files, not the first 20. Only root sees files.
    #[arg(long)]
    all: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct SetArguments {
    /// workingset_protection=0|1, anon_min_ratio=PCT, clean_min_ratio=PCT, clean_low_ratio=PCT (of memory); without a
    /// value, what the configuration says holds again.
    #[arg(required = true, value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shows or sets.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    match &arguments.command {
        Some(Command::Set(set)) => change(set, socket, out),
        Some(Command::Show(show)) => show_all(show, socket, out),
        None => show_all(&arguments.show, socket, out),
    }
}

fn show_all(arguments: &ShowArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let files = (!arguments.all && !arguments.json).then_some(FILES_SHOWN);
    let view = Client::connect(socket)?.show_protection(files)?;
    if arguments.json {
        output::json(out, &view)?;
    } else {
        show(out, &view)?;
    }
    Ok(Exit::Done)
}

fn change(arguments: &SetArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let settings: Result<Vec<TunableChange>, _> =
        arguments.settings.iter().map(|setting| setting.parse()).collect();
    let view = Client::connect(socket)?.set_protection(settings.map_err(Failure::usage)?)?;
    if arguments.json {
        output::json(out, &view)?;
    } else {
        tell_tunables(out, &view)?;
    }
    Ok(Exit::Done)
}

fn size(bytes: u64) -> String {
    human::bytes(Bytes(bytes)).to_string()
}

fn tell_tunables(out: &mut dyn Write, view: &ProtectView) -> io::Result<()> {
    let Tunables { workingset_protection, anon_min_ratio, clean_min_ratio, clean_low_ratio } = view.tunables;
    writeln!(out, "Working-set protection: {}", output::printable(&view.state))?;
    writeln!(
        out,
        "workingset_protection={} anon_min_ratio={anon_min_ratio} clean_min_ratio={clean_min_ratio} clean_low_ratio={clean_low_ratio}",
        u8::from(workingset_protection),
    )
}

fn show(out: &mut dyn Write, view: &ProtectView) -> io::Result<()> {
    tell_tunables(out, view)?;
    let whose = match &view.cgroup {
        Some(cgroup) => format!("the cgroup {}", output::printable(cgroup)),
        None => "this machine".to_owned(),
    };
    if let Some(memory) = view.memory_bytes {
        writeln!(out, "Of {} of memory of {whose}:\n", size(memory))?;
    }
    let mut tiers = Table::new(["TIER", "LOCKED", "BUDGET", "FILES"], &["LOCKED", "BUDGET", "FILES"]);
    for (name, tier) in [("hard", view.hard), ("soft", view.soft)] {
        let TierView { budget_bytes, locked_bytes, files } = tier;
        tiers.row([name.to_owned(), size(locked_bytes), size(budget_bytes), files.to_string()]);
    }
    write!(out, "{tiers}")?;
    if view.soft_releases > 0 {
        writeln!(out, "The soft tier was let go {} times, as memory ran out.", view.soft_releases)?;
    }
    if let Some(floor) = &view.floor {
        writeln!(out, "\n{}", floor_sentence(floor))?;
    }
    if let Some(anon) = &view.anon {
        writeln!(out, "{}", anon_sentence(anon))?;
    }
    if let Some(milliseconds) = view.min_ttl_ms {
        writeln!(
            out,
            "The multi-generational LRU keeps what was used within {milliseconds} ms (min_ttl_ms; put back when protection ends)."
        )?;
    }
    show_files(out, view)
}

fn floor_sentence(floor: &FloorView) -> String {
    let FloorView { line_bytes, clean_bytes, standing, kills, last_incident } = floor;
    let stands = match standing {
        Standing::Off => "it is not kept",
        Standing::Unknown => "how much there is could not be read",
        Standing::Above if clean_bytes.is_some_and(|clean| clean < *line_bytes) => "and memory is not short",
        Standing::Above => "far from it",
        Standing::Near => "near it",
        Standing::Swapping => "under it, and the kernel swaps",
        Standing::NothingToFree => "under it, and no process's end would bring memory back",
        Standing::Below => "under it: a process ends when the kernel takes pages back",
    };
    let clean = clean_bytes.map_or_else(|| "not known".to_owned(), size);
    let mut text = format!("Floor of clean file memory: {}; now {clean}, {stands}.", size(*line_bytes));
    if let Some(id) = last_incident {
        text.push_str(&format!(" Incidents there: {kills}; the last is told by 'plimsoll why {id}'."));
    }
    text
}

fn anon_sentence(anon: &AnonView) -> String {
    let AnonView { line_bytes, anon_bytes, held_by } = anon;
    let now = anon_bytes.map_or_else(|| "not known".to_owned(), size);
    let means = match held_by {
        Some(means) => format!("nothing more is swapped out ({})", output::printable(means)),
        None => "the kernel may swap".to_owned(),
    };
    format!("Floor of programs' own memory: {}; now {now} in RAM, {means}.", size(*line_bytes))
}

fn show_files(out: &mut dyn Write, view: &ProtectView) -> io::Result<()> {
    if !view.files.is_empty() {
        writeln!(out)?;
        let mut table = Table::new(["LOCKED", "OF", "TIER", "REASON", "FILE"], &["LOCKED", "OF"]);
        for file in &view.files {
            let FileView { path, size_bytes, locked_bytes, tier, reason, .. } = file;
            let tier = match tier {
                Some(Tier::Hard) => "hard",
                Some(Tier::Soft) => "soft",
                None => "-",
            };
            let name = path.as_deref().map_or_else(|| file.file.to_string(), output::printable);
            let whole = size_bytes.map_or_else(|| "?".to_owned(), size);
            table.row([size(*locked_bytes), whole, tier.to_owned(), output::printable(reason), name]);
        }
        write!(out, "{table}")?;
    }
    for barred in &view.barred {
        writeln!(
            out,
            "{} files are used and not held, or not all of them: {}",
            barred.files,
            output::printable(&barred.reason)
        )?;
    }
    if view.opening > 0 {
        writeln!(out, "{} files wait to be opened.", view.opening)?;
    }
    if !view.cgroup_shares && view.hard.locked_bytes.saturating_add(view.soft.locked_bytes) > 0 {
        writeln!(
            out,
            "Limits of memory cgroups are not looked at: the kernel does not tell whose memory is locked."
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
