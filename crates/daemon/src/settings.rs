//! The configuration, turned into what the guards take.

use crate::config::{self, Config};
use nix::unistd::User;
use plimsoll_policy::{
    limits::LimitConfig,
    lines::{Line, Target, validate},
    machine::MachineConfig,
    units::{Bytes, Uid},
    who::Who,
};
use std::collections::HashSet;

/// What the guards take.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limits: LimitConfig,
    pub(crate) machine: Option<MachineConfig>,
    pub(crate) lines: Vec<(Target, Line)>,
}

impl Settings {
    /// # Errors
    /// One line: an unknown user, two lines for one user, a line that this machine's RAM does not allow, thresholds that
    /// make no sense.
    pub(crate) fn of(config: &Config, dry_run: bool, mem_total: Bytes) -> Result<Self, String> {
        Ok(Self {
            limits: LimitConfig { dry_run, ..config.limits.ladder },
            machine: machine(&config.machine, dry_run)?,
            lines: lines(&config.limits, mem_total)?,
        })
    }
}

fn machine(config: &config::Machine, dry_run: bool) -> Result<Option<MachineConfig>, String> {
    if !config.enabled {
        return Ok(None);
    }
    let machine = MachineConfig { dry_run, ..config.guard };
    machine.validate().map_err(|error| error.to_string())?;
    Ok(Some(machine))
}

fn lines(config: &config::Limits, mem_total: Bytes) -> Result<Vec<(Target, Line)>, String> {
    let allowed = |name: &dyn std::fmt::Display, line: &Line| {
        validate(line, mem_total).map_err(|error| format!("the configured line of {name}: {error}"))
    };
    if let Some(line) = &config.default {
        allowed(&"default", line)?;
    }
    let mut lines: Vec<(Target, Line)> = config.default.iter().map(|line| (Target::Default, *line)).collect();
    let mut seen = HashSet::new();
    for entry in &config.users {
        let uid = uid_of(&entry.who)?;
        if !seen.insert(uid) {
            return Err(format!("[limits.users] has two lines for uid {uid}: keep one"));
        }
        allowed(&entry.who, &entry.line)?;
        lines.push((Target::User(uid), entry.line));
    }
    Ok(lines)
}

fn uid_of(who: &Who) -> Result<Uid, String> {
    match who {
        Who::Uid(uid) => Ok(*uid),
        Who::User(name) => match User::from_name(name) {
            Ok(Some(user)) => Ok(Uid(user.uid.as_raw())),
            Ok(None) => Err(format!(
                "[limits.users] names '{name}', who is no user here: correct the name or use the uid"
            )),
            Err(errno) => Err(format!("cannot look up user '{name}': {errno}")),
        },
        Who::Default | Who::Group(_) | Who::Job(_) | Who::Cgroup(_) | Who::System => {
            Err(format!("[limits.users] names '{who}', which is no user"))
        }
    }
}
