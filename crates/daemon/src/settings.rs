//! The configuration, turned into what the guards take.

use crate::{
    config::{self, Config, NamedLine, Places, Reaping},
    directory::{Directory, Known, Named, Wanted},
    guard::Configured,
    metrics,
    options::{CONFIG_FILE, DaemonOptions},
    workingset::Terms,
};
use plimsoll_policy::{
    human,
    last_defence::LastDefenceConfig,
    limits::LimitConfig,
    lines::{Line, MEASURED_LINES_MAX, Target, validate},
    machine::{MachineConfig, fill_max},
    units::{Bytes, Gid},
    who::Who,
};
use plimsoll_sys::process::{mem_total, online_cpus};
use std::{
    collections::{BTreeMap, HashSet},
    fmt::Display,
    path::Path,
};

/// What the guards take.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) guards: Configured,
    pub(crate) working_set: Terms,
    pub(crate) reaping: Reaping,
    /// `None`: nobody reads metrics.
    pub(crate) metrics: Option<metrics::Setup>,
    pub(crate) lines: Vec<(Target, Line)>,
    /// Lines whose names stand for nobody knows whom, and why: they are not in force.
    pub(crate) left_out: Vec<String>,
}

impl Settings {
    /// # Errors
    /// One line: an unknown user or group, two lines for one of them, a line that this machine's RAM does not allow,
    /// thresholds that make no sense.
    pub(crate) fn of(
        config: &Config,
        dry_run: bool,
        mem_total: Bytes,
        known: &Known,
    ) -> Result<Self, String> {
        let mut left_out = Vec::new();
        Ok(Self {
            guards: Configured {
                limits: LimitConfig { dry_run, ..config.limits.ladder },
                machine: machine(&config.machine, dry_run)?,
                last_defence: last_defence(config, dry_run),
                rules: config.rules.clone(),
                headroom: config.tmalloc.headroom,
                // A dry run sets nothing.
                fragmentation: config.fragmentation.enabled && !dry_run,
            },
            working_set: Terms {
                tunables: config.workingset.tunables,
                cgroup: config.workingset.cgroup.clone(),
                dry_run,
            },
            // A dry run attaches nothing for it.
            reaping: if dry_run { Reaping::default() } else { config.reaping },
            metrics: metrics::Setup::of(&config.metrics, metrics_group(config, known, &mut left_out)?),
            lines: lines(&config.limits, mem_total, known, &mut left_out)?,
            left_out,
        })
    }
}

/// The configuration, as a start has it.
pub(crate) struct Read {
    pub(crate) places: Places,
    pub(crate) config: Config,
    pub(crate) mem_total: Bytes,
    pub(crate) directory: Directory,
    /// What was wrong with what an earlier daemon knew of names.
    pub(crate) forgotten: Option<String>,
    pub(crate) known: Known,
    pub(crate) settings: Settings,
}

/// # Errors
/// One line: what is wrong.
pub(crate) fn read(options: &DaemonOptions) -> Result<Read, String> {
    let named = (options.config != Path::new(CONFIG_FILE)).then_some(options.config.as_path());
    let places = Places::new(named);
    let config = config::load(&places).map_err(|error| error.to_string())?;
    let mem_total = mem_total().map_err(|error| error.to_string())?;
    let (mut directory, forgotten) = Directory::open(&options.state);
    let known = numbers(&mut directory, &wanted(&config, []));
    let settings = Settings::of(&config, options.dry_run, mem_total, &known)?;
    Ok(Read { places, config, mem_total, directory, forgotten, known, settings })
}

/// The numbers of configured names, as far as they are known without waiting. Only for one that nobody here has ever had
/// are the name services asked before guarding begins: it may be a slip of the pen, which is to be told now.
fn numbers(directory: &mut Directory, wanted: &Wanted) -> Known {
    let known = directory.recall(wanted);
    if known.lacks_numbers() { directory.ask_numbers(wanted) } else { known }
}

/// What has to be found out for a configuration, and for the groups that have lines besides.
pub(crate) fn wanted(config: &Config, gids: impl IntoIterator<Item = Gid>) -> Wanted {
    let mut wanted = Wanted { gids: gids.into_iter().collect(), ..Wanted::default() };
    let limits = &config.limits;
    let named = limits.users.iter().chain(&limits.groups).chain(&limits.budgets).map(|entry| &entry.who);
    for who in named.chain(&config.metrics.group) {
        match who {
            Who::User(name) => wanted.users.insert(name.clone()),
            Who::Members(name) | Who::Group(name) => wanted.groups.insert(name.clone()),
            Who::MembersOf(gid) | Who::Gid(gid) => wanted.gids.insert(*gid),
            Who::Uid(_) | Who::Default | Who::Job(_) | Who::Cgroup(_) | Who::System => false,
        };
    }
    wanted
}

fn machine(config: &config::Machine, dry_run: bool) -> Result<Option<MachineConfig>, String> {
    if !config.enabled {
        return Ok(None);
    }
    let machine =
        MachineConfig { dry_run, fill_max_per_second: fill_max(online_cpus().ok()), ..config.guard };
    machine.validate().map_err(|error| error.to_string())?;
    Ok(Some(machine))
}

/// Whose members may read metrics from unix sockets: nobody's while its number is not known.
fn metrics_group(config: &Config, known: &Known, left_out: &mut Vec<String>) -> Result<Option<Gid>, String> {
    let Some(group) = &config.metrics.group else { return Ok(None) };
    let named = match group {
        Who::MembersOf(gid) | Who::Gid(gid) => return Ok(Some(*gid)),
        Who::Members(name) | Who::Group(name) => name,
        Who::User(_) | Who::Uid(_) | Who::Default | Who::Job(_) | Who::Cgroup(_) | Who::System => {
            return Ok(None);
        }
    };
    match numbered(named, &known.groups, |gid| gid) {
        Ok(Ok(gid)) => Ok(Some(gid)),
        Ok(Err(why)) => {
            left_out
                .push(format!("metrics are read by root alone, not by '{}': {why}", human::escaped(named)));
            Ok(None)
        }
        Err(name) => Err(format!(
            "metrics.group names '{name}', which is no group here: correct the name or use the gid"
        )),
    }
}

/// A dry run arranges nothing.
fn last_defence(config: &Config, dry_run: bool) -> LastDefenceConfig {
    if dry_run || !config.limits.ladder.triggers.last_defence {
        LastDefenceConfig::OFF
    } else {
        config.last_defence
    }
}

fn lines(
    config: &config::Limits,
    mem_total: Bytes,
    known: &Known,
    left_out: &mut Vec<String>,
) -> Result<Vec<(Target, Line)>, String> {
    let allowed = |name: &dyn Display, line: &Line| {
        validate(line, mem_total).map_err(|error| format!("the configured line of {name}: {error}"))
    };
    let mut lines: Vec<(Target, Line)> = Vec::new();
    for (target, line) in [(Target::Default, &config.default), (Target::System, &config.system)] {
        if let Some(line) = line {
            allowed(&target, line)?;
            lines.push((target, *line));
        }
    }
    // One is the machine's.
    let most = MEASURED_LINES_MAX.saturating_sub(1);
    if config.cgroups.len() > most {
        return Err(format!("[limits.cgroups] has more than {most} lines: draw some for a cgroup above"));
    }
    let mut seen = HashSet::new();
    let named = config.users.iter().chain(&config.groups).chain(&config.budgets);
    for entry in named.chain(&config.cgroups) {
        allowed(&entry.who, &entry.line)?;
        let target = match target_of(entry, known)? {
            Ok(target) => target,
            Err(why) => {
                left_out.push(format!(
                    "the configured line of '{}' is NOT in force: {why}; reload once its number can be found out",
                    human::escaped(&entry.who.to_string())
                ));
                continue;
            }
        };
        if !seen.insert(target.clone()) {
            return Err(match target {
                Target::User(uid) => format!("[limits.users] has two lines for uid {uid}: keep one"),
                Target::Members(gid) => format!("[limits.groups] has two lines for gid {gid}: keep one"),
                Target::Group(gid) => format!("[limits.budgets] has two lines for gid {gid}: keep one"),
                Target::Default | Target::Job(_) | Target::Cgroup(_) | Target::System => {
                    format!("the configuration has two lines for {target}: keep one")
                }
            });
        }
        lines.push((target, entry.line));
    }
    Ok(lines)
}

/// Whom an entry is for, or why that is not known now.
fn target_of(entry: &NamedLine, known: &Known) -> Result<Result<Target, String>, String> {
    match &entry.who {
        Who::Uid(uid) => Ok(Ok(Target::User(*uid))),
        Who::MembersOf(gid) => Ok(Ok(Target::Members(*gid))),
        Who::Gid(gid) => Ok(Ok(Target::Group(*gid))),
        Who::Cgroup(path) => Ok(Ok(Target::Cgroup(path.clone()))),
        Who::User(name) => numbered(name, &known.users, Target::User).map_err(|name| {
            format!("[limits.users] names '{name}', who is no user here: correct the name or use the uid")
        }),
        Who::Members(name) => {
            numbered(name, &known.groups, Target::Members).map_err(|name| no_group("groups", &name))
        }
        Who::Group(name) => {
            numbered(name, &known.groups, Target::Group).map_err(|name| no_group("budgets", &name))
        }
        other @ (Who::Default | Who::Job(_) | Who::System) => {
            Err(format!("the configuration names '{other}', which is neither user nor group nor cgroup"))
        }
    }
}

fn no_group(table: &str, name: &str) -> String {
    format!("[limits.{table}] names '{name}', which is no group here: correct the name or use the gid")
}

/// The target behind a name, or why it is not known; the error is a name that nobody has.
fn numbered<T: Copy, U>(
    name: &str,
    known: &BTreeMap<String, Named<T>>,
    target: fn(T) -> U,
) -> Result<Result<U, String>, String> {
    match known.get(name) {
        Some(Named::Number(number)) => Ok(Ok(target(*number))),
        Some(Named::Unanswered(why)) => Ok(Err(why.clone())),
        Some(Named::Nobody) | None => Err(human::escaped(name)),
    }
}
