//! `plimsoll limit`: draw, show and remove lines.

mod processes;
mod show;

use crate::{
    exit::{Ending, Exit, Failure},
    names::{self, Names},
    output,
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use plimsoll_api::{
    client::Client,
    message::{ClearLimitReply, SetLimitCall},
};
use plimsoll_policy::{
    account::Action,
    human,
    lines::{Cleared, Target},
    size::{Permyriad, Size, SizeError, SizeErrorKind},
    units::Bytes,
    who::Who,
};
use std::{io::Write, path::Path};

pub(crate) use processes::{ask, fill_in, table};
pub(crate) use show::{doubts, lasting, list, notes, provenance, uncovered};

/// `plimsoll limit ...`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draw a line. Below the administrator's you may set your own as you like; all others are root's.
    Set(SetArguments),
    /// Show lines, and where each comes from.
    Show(ShowArguments),
    /// Remove a line.
    Clear(ClearArguments),
}

/// What a line can do that is not a strict job's, which stays so.
const AVAILABLE: [Action; 3] = [Action::Notify, Action::Term, Action::Kill];

#[derive(Debug, Args)]
struct SetArguments {
    /// A user name, a uid, @GROUP for each of its members, group:NAME for all of them together, 'default' for every user
    /// from UID_MIN to UID_MAX without a line, job:ID, cgroup:PATH, or 'system' for all programs together.
    who: String,
    /// The load line: 512M, 1.5G, 25% (of RAM), or bytes.
    hard: String,
    /// Where notice is given: a size, or a percentage of HARD [default: 90%].
    #[arg(long, value_name = "SIZE|PCT")]
    soft: Option<String>,
    /// What crossing the line does [default: kill].
    #[arg(long, value_parser = PossibleValuesParser::new(AVAILABLE.map(Action::text)))]
    action: Option<String>,
    /// Enforce it at once. Without this a line below present usage takes hold as usage falls.
    #[arg(long)]
    now: bool,
    /// Print the account as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// A user name, a uid, @GROUP, group:NAME, job:ID, 'default', cgroup:PATH, or 'system'; all that you may see when left
    /// out.
    who: Option<String>,
    /// Also list what each process holds.
    #[arg(long)]
    processes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClearArguments {
    /// A user name, a uid, @GROUP, group:NAME, job:ID, 'default', cgroup:PATH, or 'system'.
    who: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Carries out one of the three.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    match &arguments.command {
        Command::Set(set) => draw(set, socket, out),
        Command::Show(show) => show_lines(show, socket, out),
        Command::Clear(clear) => remove(clear, socket, out),
    }
}

/// WHO as the daemon takes it.
fn target(who: &str) -> Result<Target, Failure> {
    match names::resolve(who)? {
        Who::Uid(uid) => Ok(Target::User(uid)),
        Who::MembersOf(gid) => Ok(Target::Members(gid)),
        Who::Gid(gid) => Ok(Target::Group(gid)),
        Who::Job(id) => Ok(Target::Job(id)),
        Who::Default => Ok(Target::Default),
        Who::Cgroup(path) => Ok(Target::Cgroup(path)),
        Who::System => Ok(Target::System),
        // Names are resolved by then.
        other @ (Who::User(_) | Who::Members(_) | Who::Group(_)) => {
            Err(Failure::usage(format_args!("'{other}' is not available in this version")))
        }
    }
}

/// The call that `limit set` makes.
fn request(set: &SetArguments) -> Result<SetLimitCall, Failure> {
    let hard: Size = set.hard.parse().map_err(Failure::usage)?;
    let soft = set.soft.as_deref().map(|soft| soft_size(soft, hard)).transpose()?;
    let action = set.action.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    Ok(SetLimitCall { who: target(&set.who)?, hard, soft, action, now: set.now.then_some(true) })
}

/// A percentage of the hard limit, or a size. The daemon knows percentages of RAM only, so the share is taken here: of
/// bytes in bytes, of a share of RAM in hundredths of a percent, both rounded down.
pub(crate) fn soft_size(text: &str, hard: Size) -> Result<Size, Failure> {
    let share = match text.parse() {
        Ok(Size::OfRam(share)) => share,
        Ok(soft @ Size::Bytes(_)) => return Ok(soft),
        Err(SizeError { kind: SizeErrorKind::OverWhole, input }) => {
            let input = human::escaped(&input);
            return Err(Failure::usage(format_args!(
                "soft limit '{input}': above the hard limit {hard}, of which it is a share; give at most 100%"
            )));
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    Ok(match hard {
        Size::Bytes(bytes) => Size::Bytes(Size::OfRam(share).resolve(bytes)),
        Size::OfRam(of_ram) => {
            let Bytes(parts) = Size::OfRam(share).resolve(Bytes(of_ram.get().into()));
            // A share of a share is no larger than it.
            Size::OfRam(u16::try_from(parts).ok().and_then(Permyriad::new).unwrap_or(of_ram))
        }
    })
}

fn draw(set: &SetArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let request = request(set)?;
    let limits = Client::connect(socket)?.set_limit(&request)?;
    if set.json {
        output::json(out, &show::entries(&limits, &mut Names::default()))?;
    } else {
        for sentence in show::sentences(&limits, &mut Names::default()) {
            writeln!(out, "{sentence}")?;
        }
    }
    Ok(Exit::Done)
}

fn show_lines(arguments: &ShowArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let who = arguments.who.as_deref().map(target).transpose()?;
    let mut client = Client::connect(socket)?;
    let mut limits = client.show_limits(who.clone())?;
    let found = ask(&mut client, who, (arguments.processes, arguments.json))?;
    let mut names = Names::default();
    if arguments.json {
        fill_in(&mut limits.accounts, found);
        output::json(out, &show::entries(&limits, &mut names))?;
    } else if limits.accounts.is_empty() && limits.groups.is_empty() && limits.default.is_none() {
        match &arguments.who {
            Some(who) => writeln!(out, "No line is drawn for {}.", human::escaped(who))?,
            None => writeln!(out, "No line is drawn. Draw one with: plimsoll limit set USER 2G")?,
        }
    } else {
        show::list(out, &limits, &mut names)?;
        show::notes(out, &limits.accounts)?;
        show::doubts(out, &limits.groups, &mut names)?;
        show::lasting(out, &limits.accounts)?;
        show::uncovered(out, limits.default.as_ref(), &mut names)?;
        if arguments.processes {
            table(out, &found)?;
        }
    }
    Ok(Exit::Done)
}

fn remove(arguments: &ClearArguments, socket: &Path, out: &mut dyn Write) -> Ending {
    let result = Client::connect(socket)?.clear_limit(target(&arguments.who)?)?;
    if arguments.json {
        output::json(out, &ClearLimitReply { result })?;
    }
    let who = human::escaped(&arguments.who);
    match result {
        Cleared::Removed if arguments.json => Ok(Exit::Done),
        Cleared::Removed => {
            writeln!(out, "{who}: line removed.")?;
            Ok(Exit::Done)
        }
        Cleared::NothingSet => Err(Failure::failed(format_args!(
            "no line was set for {who}; see 'plimsoll limit show' for those there are"
        ))),
        Cleared::StillInConfig => Err(Failure::failed(format_args!(
            "the configuration still draws a line for {who}; remove it there and reload"
        ))),
    }
}

#[cfg(test)]
mod tests;
