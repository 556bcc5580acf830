//! One configuration file as it is written: every key optional, unknown keys refused, laid over each other by file.

use super::{
    Charge, Config, ConfigError, Expedited, Fragmentation, History, Limits, Listen, Machine, Maps, Metrics,
    NamedLine, Protect, Reaping, SharedCharge, Tmalloc, Workingset,
    metrics::LISTEN_MAX,
    rules::{CheckedRule, RULES_MAX},
};
use plimsoll_policy::{
    account::CgroupPath,
    human,
    last_defence::{Headroom, LastDefenceConfig},
    limits::{LimitConfig, TriggerSet},
    lines::{self, Line, UidRange},
    machine::{MachineConfig, Permille, StallConfig, Thresholds},
    preference::{Pattern, Programs, Rules},
    size::Size,
    units::{Bytes, Nanos, Uid},
    who::Who,
    workingset::{Ratio, Tunables},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::{collections::BTreeMap, path::Path};

/// One day, the longest any wait may be set to.
const DAY_MS: u64 = 86_400_000;
/// The kernel's own largest `pid_max`.
const PID_MAX: u64 = 1 << 22;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// A whole number within bounds that the message names.
#[derive(Debug, Clone, Copy)]
struct Within<const MIN: u64, const MAX: u64>(u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(deserializer)?;
        match u64::try_from(value) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Self(number)),
            _ => Err(D::Error::custom(format!("{value} is out of range; allowed is {MIN} to {MAX}"))),
        }
    }
}

impl<const MIN: u64, const MAX: u64> Within<MIN, MAX> {
    /// `MAX` of each use below fits; a value that did not would be cut to the largest.
    fn as_u32(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }

    /// From milliseconds, of which there is at most a day.
    fn as_nanos(self) -> Nanos {
        Nanos(self.0.saturating_mul(1_000_000))
    }
}

/// A share in percent, with one decimal: `10`, `7.5` or `"7.5%"`; `MAX` in thousandths.
#[derive(Debug, Clone, Copy)]
struct Percent<const MAX: u16>(Permille);

impl<'de, const MAX: u16> Deserialize<'de> for Percent<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a percentage such as 10, 7.5 or \"7.5%\"")]
        enum Written {
            Whole(i64),
            Decimal(f64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Whole(number) => format!("{number}%"),
            Written::Decimal(number) => format!("{number}%"),
            Written::Text(text) => text,
        };
        let permille = match text.parse::<Size>() {
            Ok(Size::OfRam(share)) if share.get() % 10 == 0 => Some(share.get() / 10),
            Ok(Size::OfRam(_) | Size::Bytes(_)) | Err(_) => None,
        };
        permille.filter(|permille| (1..=MAX).contains(permille)).map(|permille| Self(Permille(permille))).ok_or_else(|| {
            let (shown, whole, tenth) = (human::escaped(&text), MAX / 10, MAX % 10);
            D::Error::custom(format!(
                "'{shown}' is no percentage from 0.1 to {whole}.{tenth} with at most one decimal; write for example 7.5"
            ))
        })
    }
}

/// A size within bounds that the message names; a share of RAM would mean nothing there.
#[derive(Debug, Clone, Copy)]
struct SizeWithin<const MIN: u64, const MAX: u64>(Bytes);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for SizeWithin<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Size::deserialize(deserializer)? {
            Size::Bytes(bytes) if (MIN..=MAX).contains(&bytes.0) => Ok(Self(bytes)),
            size @ (Size::Bytes(_) | Size::OfRam(_)) => {
                let [least, most] = [MIN, MAX].map(|bytes| Size::Bytes(Bytes(bytes)));
                Err(D::Error::custom(format!("{size} is out of range; allowed is {least} to {most}")))
            }
        }
    }
}

/// Room above the line, as [`Headroom`] reads it; a plain number is bytes.
#[derive(Debug, Clone, Copy)]
struct Room(Headroom);

impl<'de> Deserialize<'de> for Room {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "\"auto\", a size such as \"512M\" or a share of the line such as \"25%\""
        )]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => bytes.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A path from the root, without control characters, so that it can be compared and printed as it stands.
#[derive(Debug, Clone)]
struct AbsolutePath(String);

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let plain = text.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
        if text.starts_with('/') && plain && text.len() < 4096 && !text.contains(char::is_control) {
            return Ok(Self(text));
        }
        let shown = human::escaped(&text);
        Err(D::Error::custom(format!(
            "'{shown}' is not an absolute path; write it from /, without '//', '.' and '..'"
        )))
    }
}

/// A pattern of paths.
#[derive(Debug, Clone)]
struct CheckedPattern(Pattern);

impl<'de> Deserialize<'de> for CheckedPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Pattern::new(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A user's key, spelled as [`Who`] spells it, so that `1000` and `user:1000` of two files are the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UserKey(String);

impl<'de> Deserialize<'de> for UserKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.parse::<Who>() {
            Ok(who @ (Who::User(_) | Who::Uid(_))) => Ok(Self(who.to_string())),
            Ok(Who::Default) => {
                Err(D::Error::custom("the line for everybody else is the key limits.default"))
            }
            Ok(Who::Members(_) | Who::MembersOf(_)) => {
                Err(D::Error::custom("the lines of groups are in the table limits.groups"))
            }
            Ok(Who::Group(_) | Who::Gid(_)) => {
                Err(D::Error::custom("lines for all members together are in the table limits.budgets"))
            }
            Ok(Who::Cgroup(_)) => {
                Err(D::Error::custom("the lines of cgroups are in the table limits.cgroups"))
            }
            Ok(Who::System) => Err(D::Error::custom("the line of the machine is the key limits.system")),
            Ok(other @ Who::Job(_)) => {
                Err(D::Error::custom(format!("'{other}' cannot have a line here; give a user name or a uid")))
            }
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}

/// A group's key: its name or gid, with or without the `@` of the command line, spelled as [`Who`] spells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey(String);

impl<'de> Deserialize<'de> for GroupKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let has_sign = text.starts_with('@') || text.starts_with("group:");
        let with_sign = if has_sign { text } else { format!("@{text}") };
        match with_sign.parse::<Who>() {
            Ok(who @ (Who::Members(_) | Who::MembersOf(_))) => Ok(Self(who.to_string())),
            Ok(who @ (Who::Group(_) | Who::Gid(_))) => {
                Err(D::Error::custom(format!("'{who}' is all members together: see limits.budgets")))
            }
            Ok(
                other @ (Who::User(_)
                | Who::Uid(_)
                | Who::Default
                | Who::Job(_)
                | Who::Cgroup(_)
                | Who::System),
            ) => Err(D::Error::custom(format!("'{other}' is no group; give the name or the gid of one"))),
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}

/// The key of a line for all members of a group together: its name or gid, with or without `group:`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BudgetKey(String);

impl<'de> Deserialize<'de> for BudgetKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.starts_with('@') {
            let why = format!("'{text}' is each member: see limits.groups");
            return Err(D::Error::custom(human::escaped(&why)));
        }
        let with_word = if text.starts_with("group:") { text } else { format!("group:{text}") };
        with_word.parse::<Who>().map(|who| Self(who.to_string())).map_err(D::Error::custom)
    }
}

/// A cgroup's key: its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CgroupKey(CgroupPath);

impl<'de> Deserialize<'de> for CgroupKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A line, with everything checked that does not depend on the machine's RAM.
#[derive(Debug, Clone, Copy)]
struct CheckedLine(Line);

impl<'de> Deserialize<'de> for CheckedLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Line::deserialize(deserializer)?;
        // Bytes and a share of RAM can only be compared where the RAM is known: by the caller.
        let comparable = line.soft.filter(|soft| {
            matches!((soft, line.hard), (Size::Bytes(_), Size::Bytes(_)) | (Size::OfRam(_), Size::OfRam(_)))
        });
        lines::validate(&Line { soft: comparable, ..line }, Bytes(u64::MAX)).map_err(D::Error::custom)?;
        Ok(Self(line))
    }
}

/// A trigger's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Trigger {
    Kernel,
    Daemon,
    LastDefence,
}

/// Declares a section: each field optional, and the later file's value taken where it has one.
macro_rules! section {
    ($name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct $name {
            $($field: Option<$kind>,)*
        }

        impl $name {
            fn overlay(&mut self, later: Self) {
                $(if later.$field.is_some() { self.$field = later.$field; })*
            }
        }
    };
}

section!(RawLimits {
    default: CheckedLine,
    users: BTreeMap<UserKey, CheckedLine>,
    groups: BTreeMap<GroupKey, CheckedLine>,
    budgets: BTreeMap<BudgetKey, CheckedLine>,
    cgroups: BTreeMap<CgroupKey, CheckedLine>,
    system: CheckedLine,
    charge: Charge,
    shared: SharedCharge,
    uid_min: Within<0, 4_294_967_294>,
    uid_max: Within<0, 4_294_967_294>,
    kill_deadline_ms: Within<1, DAY_MS>,
    term_grace_ms: Within<0, DAY_MS>,
    triggers: Vec<Trigger>,
});
section!(RawMachine {
    enabled: bool,
    term_memory: Percent<999>,
    kill_memory: Percent<999>,
    term_swap: Percent<1000>,
    kill_swap: Percent<1000>,
    term_grace_ms: Within<0, DAY_MS>,
    kill_deadline_ms: Within<1, DAY_MS>,
    memory_max: SizeWithin<MIB, TIB>,
    notice: bool,
    notice_memory: Percent<999>,
    notice_swap: Percent<1000>,
    reclaim: bool,
    spike_ms: Within<0, DAY_MS>,
    stall: Percent<1000>,
    stall_ms: Within<500, 60_000>,
});
section!(RawLastDefence { memory_max: bool, headroom: Room, oom_score_adj: bool });
section!(RawProtect { exe: Vec<AbsolutePath>, cgroup: Vec<AbsolutePath>, });
section!(RawSession { exe: Vec<CheckedPattern>, shells: Vec<CheckedPattern>, });
section!(RawHistory {
    max_bytes: SizeWithin<MIB, TIB>,
    max_age_days: Within<1, 36_500>,
    max_incidents: Within<1, 10_000_000>,
});
section!(RawTmalloc { headroom: SizeWithin<0, TIB> });
section!(RawReaping { expedite: Expedited, expedite_from: SizeWithin<MIB, TIB> });
section!(RawFragmentation { enabled: bool });
section!(RawWorkingset {
    workingset_protection: Within<0, 1>,
    anon_min_ratio: Within<0, 100>,
    clean_min_ratio: Within<0, 100>,
    clean_low_ratio: Within<0, 100>,
    cgroup: AbsolutePath,
});
section!(RawMetrics { listen: Vec<Listen>, group: GroupKey, users: bool });
section!(RawMaps { max_processes: Within<0, PID_MAX>, max_accounts: Within<1, 65_534>, });

/// One file, or several laid over each other.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    limits: RawLimits,
    machine: RawMachine,
    last_defence: RawLastDefence,
    protect: RawProtect,
    session: RawSession,
    history: RawHistory,
    tmalloc: RawTmalloc,
    reaping: RawReaping,
    fragmentation: RawFragmentation,
    workingset: RawWorkingset,
    metrics: RawMetrics,
    maps: RawMaps,
    rules: Vec<CheckedRule>,
}

impl Raw {
    /// Decodes one file.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ConfigError> {
        let invalid = |offset: usize, message: &str| ConfigError::Invalid {
            path: path.to_path_buf(),
            line: line_of(bytes, offset),
            message: one_line(message),
        };
        let text = core::str::from_utf8(bytes)
            .map_err(|error| invalid(error.valid_up_to(), "not UTF-8 text; save the file as UTF-8"))?;
        toml::from_str(text)
            .map_err(|error| invalid(error.span().map_or(0, |span| span.start), error.message()))
    }

    /// Lays a later file over this one: its keys win, and so do its lines of users and groups, each by itself. Its rules
    /// come before the earlier ones: the first that matches decides.
    pub(super) fn overlay(&mut self, mut later: Self) {
        later.rules.append(&mut self.rules);
        self.rules = later.rules;
        let (users, groups) = (later.limits.users.take(), later.limits.groups.take());
        let (budgets, cgroups) = (later.limits.budgets.take(), later.limits.cgroups.take());
        self.limits.overlay(later.limits);
        self.limits.users.get_or_insert_default().extend(users.unwrap_or_default());
        self.limits.groups.get_or_insert_default().extend(groups.unwrap_or_default());
        self.limits.budgets.get_or_insert_default().extend(budgets.unwrap_or_default());
        self.limits.cgroups.get_or_insert_default().extend(cgroups.unwrap_or_default());
        self.machine.overlay(later.machine);
        self.last_defence.overlay(later.last_defence);
        self.protect.overlay(later.protect);
        self.session.overlay(later.session);
        self.history.overlay(later.history);
        self.tmalloc.overlay(later.tmalloc);
        self.reaping.overlay(later.reaping);
        self.fragmentation.overlay(later.fragmentation);
        self.workingset.overlay(later.workingset);
        self.metrics.overlay(later.metrics);
        self.maps.overlay(later.maps);
    }

    /// Fills in the defaults and compares the keys with each other; what contradicts is returned as a message.
    pub(super) fn resolve(self, uids: UidRange) -> Result<Config, String> {
        Ok(Config {
            limits: self.limits.resolve(uids)?,
            machine: self.machine.resolve()?,
            last_defence: self.last_defence.resolve(),
            protect: self.protect.resolve(),
            history: self.history.resolve(),
            tmalloc: self.tmalloc.resolve(),
            reaping: self.reaping.resolve(),
            fragmentation: self.fragmentation.resolve(),
            workingset: self.workingset.resolve(),
            metrics: self.metrics.resolve()?,
            maps: self.maps.resolve(),
            rules: rules(self.rules)?.with_session(self.session.resolve()),
        })
    }
}

fn rules(checked: Vec<CheckedRule>) -> Result<Rules, String> {
    if checked.len() > RULES_MAX {
        return Err(format!("more than {RULES_MAX} [[rules]]: merge some, one may have lists of patterns"));
    }
    Rules::new(checked.into_iter().map(|rule| rule.0).collect())
        .map_err(|(place, error)| format!("rule {} of [[rules]]: {error}", place.saturating_add(1)))
}

impl RawSession {
    fn resolve(self) -> Programs {
        let default = Programs::default();
        let patterns = |own: Option<Vec<CheckedPattern>>, default| {
            own.map_or(default, |own| own.into_iter().map(|pattern| pattern.0).collect())
        };
        Programs { exe: patterns(self.exe, default.exe), shells: patterns(self.shells, default.shells) }
    }
}

impl RawLimits {
    fn resolve(self, uids: UidRange) -> Result<Limits, String> {
        let default = Limits::default();
        let users = self.users.unwrap_or_default().into_iter().map(|(UserKey(key), line)| named(&key, line));
        let groups =
            self.groups.unwrap_or_default().into_iter().map(|(GroupKey(key), line)| named(&key, line));
        let budgets =
            self.budgets.unwrap_or_default().into_iter().map(|(BudgetKey(key), line)| named(&key, line));
        let (users, groups) = (users.collect::<Result<_, _>>()?, groups.collect::<Result<_, _>>()?);
        let cgroups = self.cgroups.unwrap_or_default().into_iter();
        let cgroups =
            cgroups.map(|(CgroupKey(path), line)| NamedLine { who: Who::Cgroup(path), line: line.0 });
        let limits = Limits {
            default: self.default.map(|line| line.0),
            users,
            groups,
            budgets: budgets.collect::<Result<_, _>>()?,
            cgroups: cgroups.collect(),
            system: self.system.map(|line| line.0),
            charge: self.charge.unwrap_or(default.charge),
            uids: UidRange {
                min: self.uid_min.map_or(uids.min, |uid| Uid(uid.as_u32())),
                max: self.uid_max.map_or(uids.max, |uid| Uid(uid.as_u32())),
            },
            ladder: LimitConfig {
                kill_deadline: self.kill_deadline_ms.map_or(default.ladder.kill_deadline, Within::as_nanos),
                term_grace: self.term_grace_ms.map_or(default.ladder.term_grace, Within::as_nanos),
                triggers: self.triggers.map_or(default.ladder.triggers, |named| TriggerSet {
                    kernel: named.contains(&Trigger::Kernel),
                    daemon: named.contains(&Trigger::Daemon),
                    last_defence: named.contains(&Trigger::LastDefence),
                }),
                // By process it is charged already.
                charges_shared: self.shared.unwrap_or_default() == SharedCharge::Owner
                    && self.charge.unwrap_or(default.charge) == Charge::Anon,
                ..default.ladder
            },
        };
        let UidRange { min, max } = limits.uids;
        if min > max {
            return Err(format!("limits.uid_min = {min} is above limits.uid_max = {max}; set both"));
        }
        Ok(limits)
    }
}

/// The key was checked when it was decoded; it parses again.
fn named(key: &str, CheckedLine(line): CheckedLine) -> Result<NamedLine, String> {
    Ok(NamedLine { who: key.parse::<Who>().map_err(|error| error.to_string())?, line })
}

impl RawMachine {
    fn resolve(self) -> Result<Machine, String> {
        let default = MachineConfig::default();
        let guard = MachineConfig {
            term: Thresholds {
                memory: self.term_memory.map_or(default.term.memory, |share| share.0),
                swap: self.term_swap.map_or(default.term.swap, |share| share.0),
            },
            kill: Thresholds {
                memory: self.kill_memory.map_or(default.kill.memory, |share| share.0),
                swap: self.kill_swap.map_or(default.kill.swap, |share| share.0),
            },
            term_grace: self.term_grace_ms.map_or(default.term_grace, Within::as_nanos),
            kill_deadline: self.kill_deadline_ms.map_or(default.kill_deadline, Within::as_nanos),
            notice: self.notice.unwrap_or(true).then(|| {
                let default = default.notice.unwrap_or(default.term);
                Thresholds {
                    memory: self.notice_memory.map_or(default.memory, |share| share.0),
                    swap: self.notice_swap.map_or(default.swap, |share| share.0),
                }
            }),
            memory_max: self.memory_max.map_or(default.memory_max, |size| size.0),
            spike: self.spike_ms.map_or(default.spike, Within::as_nanos),
            stall: default
                .stall
                .map(|stall| StallConfig {
                    full: self.stall.map_or(stall.full, |share| share.0),
                    within: self.stall_ms.map_or(stall.within, Within::as_nanos),
                })
                .filter(|stall| stall.full < Permille(1000)),
            reclaim: self.reclaim.unwrap_or(default.reclaim),
            ..default
        };
        for (what, Permille(kill), Permille(term)) in
            [("memory", guard.kill.memory, guard.term.memory), ("swap", guard.kill.swap, guard.term.swap)]
        {
            if kill > term {
                return Err(format!(
                    "machine.kill_{what} = {}.{} is above machine.term_{what} = {}.{}, so SIGTERM would never come first; \
                     lower it or raise machine.term_{what}",
                    kill / 10,
                    kill % 10,
                    term / 10,
                    term % 10
                ));
            }
        }
        guard.validate().map_err(|error| error.to_string())?;
        Ok(Machine { enabled: self.enabled.unwrap_or(true), guard })
    }
}

impl RawLastDefence {
    fn resolve(self) -> LastDefenceConfig {
        let default = LastDefenceConfig::default();
        LastDefenceConfig {
            memory_max: self.memory_max.unwrap_or(default.memory_max),
            headroom: self.headroom.map_or(default.headroom, |room| room.0),
            oom_score_adj: self.oom_score_adj.unwrap_or(default.oom_score_adj),
        }
    }
}

impl RawProtect {
    fn resolve(self) -> Protect {
        let mut protect = Protect::default();
        for AbsolutePath(path) in self.exe.unwrap_or_default() {
            if !protect.exe.contains(&path) {
                protect.exe.push(path);
            }
        }
        protect.cgroup = self.cgroup.unwrap_or_default().into_iter().map(|path| path.0).collect();
        protect
    }
}

impl RawHistory {
    fn resolve(self) -> History {
        let default = History::default();
        History {
            max_bytes: self.max_bytes.map_or(default.max_bytes, |size| size.0),
            max_age_days: self.max_age_days.map_or(default.max_age_days, Within::as_u32),
            max_incidents: self.max_incidents.map_or(default.max_incidents, |number| number.0),
        }
    }
}

impl RawTmalloc {
    fn resolve(self) -> Tmalloc {
        let default = Tmalloc::default();
        Tmalloc { headroom: self.headroom.map_or(default.headroom, |headroom| headroom.0) }
    }
}

impl RawReaping {
    fn resolve(self) -> Reaping {
        let default = Reaping::default();
        Reaping {
            expedite: self.expedite.unwrap_or(default.expedite),
            expedite_from: self.expedite_from.map_or(default.expedite_from, |size| size.0),
        }
    }
}

impl RawFragmentation {
    fn resolve(self) -> Fragmentation {
        let default = Fragmentation::default();
        Fragmentation { enabled: self.enabled.unwrap_or(default.enabled) }
    }
}

impl RawWorkingset {
    fn resolve(self) -> Workingset {
        let default = Tunables::default();
        let ratio = |written: Option<Within<0, 100>>, default: Ratio| {
            written.and_then(|ratio| u8::try_from(ratio.0).ok()).and_then(Ratio::new).unwrap_or(default)
        };
        Workingset {
            tunables: Tunables {
                workingset_protection: self
                    .workingset_protection
                    .map_or(default.workingset_protection, |on| on.0 == 1),
                anon_min_ratio: ratio(self.anon_min_ratio, default.anon_min_ratio),
                clean_min_ratio: ratio(self.clean_min_ratio, default.clean_min_ratio),
                clean_low_ratio: ratio(self.clean_low_ratio, default.clean_low_ratio),
            },
            cgroup: self.cgroup.map(|path| path.0),
        }
    }
}

impl RawMetrics {
    fn resolve(self) -> Result<Metrics, String> {
        let mut listen = Vec::new();
        for address in self.listen.unwrap_or_default() {
            if !listen.contains(&address) {
                listen.push(address);
            }
        }
        if listen.len() > LISTEN_MAX {
            return Err(format!("metrics.listen has more than {LISTEN_MAX} addresses: leave some out"));
        }
        // It was checked when it was decoded.
        let group = self.group.map(|GroupKey(name)| name.parse::<Who>()).transpose();
        Ok(Metrics {
            listen,
            group: group.map_err(|error| error.to_string())?,
            users: self.users.unwrap_or_default(),
        })
    }
}

impl RawMaps {
    fn resolve(self) -> Maps {
        let default = Maps::default();
        Maps {
            max_processes: self.max_processes.map_or(default.max_processes, Within::as_u32),
            max_accounts: self.max_accounts.map_or(default.max_accounts, Within::as_u32),
        }
    }
}

/// The line, counted from 1, that a byte offset lies in.
fn line_of(bytes: &[u8], offset: usize) -> usize {
    bytes.iter().take(offset).filter(|byte| **byte == b'\n').count().saturating_add(1)
}

/// The longest message; what is cut off is some of a long list or of a long name.
const MESSAGE_MAX_CHARS: usize = 500;

/// A decoder's message made fit for one line: it may hold newlines of its own, and anything that a key holds.
fn one_line(message: &str) -> String {
    let joined =
        message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let mut line = String::new();
    for character in joined.chars().take(MESSAGE_MAX_CHARS) {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
