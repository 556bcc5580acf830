//! The four tunables, by le9uo's names, with its ranges and defaults.

use super::Budget;
use crate::{
    human,
    units::{Pages, part},
};
use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Per cent of physical memory, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Ratio(u8);

impl Ratio {
    /// `None` above 100.
    #[must_use]
    pub const fn new(per_cent: u8) -> Option<Self> {
        if per_cent <= 100 { Some(Self(per_cent)) } else { None }
    }

    /// Per cent.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// So much of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: Pages) -> Pages {
        Pages(part(whole.0, self.0.into(), 100).unwrap_or(whole.0)).min(whole)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = u64::deserialize(deserializer)?;
        u8::try_from(given)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| de::Error::custom(format_args!("{given} per cent of memory; give 0 to 100")))
    }
}

/// What is protected, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tunables {
    /// Whether anything is done at all; 0 or 1.
    #[serde(serialize_with = "write_switch", deserialize_with = "read_switch")]
    pub workingset_protection: bool,
    /// Anonymous memory under this is not swapped out.
    pub anon_min_ratio: Ratio,
    /// So much clean file memory is kept: the hottest of it is locked, and when less than this is left, a process ends.
    pub clean_min_ratio: Ratio,
    /// So much more is locked, until reclaim finds next to nothing else.
    pub clean_low_ratio: Ratio,
}

impl Default for Tunables {
    /// le9uo's: off; 15 %, 15 %, 0 %.
    fn default() -> Self {
        Self {
            workingset_protection: false,
            anon_min_ratio: Ratio(15),
            clean_min_ratio: Ratio(15),
            clean_low_ratio: Ratio(0),
        }
    }
}

impl Tunables {
    /// What may be locked on a machine (or in a memory cgroup) of so many pages; nothing while protection is off.
    ///
    /// The soft tier comes on top of the hard one. le9uo's two ratios are levels of one quantity: there, the soft one does
    /// nothing until it is above the hard one. Here each of them does what it says by itself.
    ///
    /// An eighth of what the hard tier is to keep is not locked: were all of it, the floor of the same height would never be
    /// reached, and whoever takes all the memory would be ended by the kernel's own OOM killer alone, after it has taken
    /// everything that is not locked.
    #[must_use]
    pub fn budget(&self, memory: Pages) -> Budget {
        if !self.workingset_protection {
            return Budget::default();
        }
        let kept = self.clean_min_ratio.of(memory);
        let soft = self.clean_low_ratio.of(memory).min(memory.saturating_sub(kept));
        Budget { hard: kept.saturating_sub(Pages(kept.0 >> 3)), soft }
    }

    /// Whether the multi-generational LRU is to keep what was used last (`min_ttl_ms`): where that alone can.
    ///
    /// Files that are locked are in none of its generations. It goes by the age of the oldest one of files, which is young
    /// then whatever else is old (`lruvec_is_reclaimable` of Linux 6.1 and 6.12), so that kswapd calls the OOM killer while
    /// there is swap: on 6.12 with 512 MiB of memory and half of that free in swap in 4 of 8 runs with 1000 ms, in 1 of 5 with
    /// 100 ms, in none of 8 with 0.
    #[must_use]
    pub fn keeps_last_used(&self) -> bool {
        self.workingset_protection && self.anon_min_ratio > Ratio(0) && !self.locks_files()
    }

    /// Whether any file may be locked.
    #[must_use]
    pub fn locks_files(&self) -> bool {
        self.workingset_protection && self.clean_min_ratio.max(self.clean_low_ratio) > Ratio(0)
    }

    /// Changes one of them.
    pub const fn apply(&mut self, setting: Setting) {
        let ratio = Ratio(setting.value);
        match setting.tunable {
            Tunable::WorkingsetProtection => self.workingset_protection = setting.value == 1,
            Tunable::AnonMinRatio => self.anon_min_ratio = ratio,
            Tunable::CleanMinRatio => self.clean_min_ratio = ratio,
            Tunable::CleanLowRatio => self.clean_low_ratio = ratio,
        }
    }

    /// One of them, as a number: 0 or 1, or per cent.
    #[must_use]
    pub const fn get(&self, tunable: Tunable) -> u8 {
        match tunable {
            Tunable::WorkingsetProtection => self.workingset_protection as u8,
            Tunable::AnonMinRatio => self.anon_min_ratio.get(),
            Tunable::CleanMinRatio => self.clean_min_ratio.get(),
            Tunable::CleanLowRatio => self.clean_low_ratio.get(),
        }
    }
}

texts! {
    /// Which of them, in le9uo's order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Tunable {
        /// `workingset_protection`
        WorkingsetProtection = "workingset_protection",
        /// `anon_min_ratio`
        AnonMinRatio = "anon_min_ratio",
        /// `clean_min_ratio`
        CleanMinRatio = "clean_min_ratio",
        /// `clean_low_ratio`
        CleanLowRatio = "clean_low_ratio",
    }
    /// Its name.
    fn name, Display
}

impl Tunable {
    /// The largest value; the smallest is 0.
    #[must_use]
    pub const fn largest(self) -> u8 {
        match self {
            Self::WorkingsetProtection => 1,
            Self::AnonMinRatio | Self::CleanMinRatio | Self::CleanLowRatio => 100,
        }
    }
}

/// One tunable and its new value, as in `plimsoll protect set K=V`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setting {
    tunable: Tunable,
    value: u8,
}

impl Setting {
    /// `None` where the value is out of the tunable's range.
    #[must_use]
    pub const fn new(tunable: Tunable, value: u8) -> Option<Self> {
        if value <= tunable.largest() { Some(Self { tunable, value }) } else { None }
    }

    /// Which tunable.
    #[must_use]
    pub const fn tunable(self) -> Tunable {
        self.tunable
    }

    /// Its value.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.value
    }
}

impl fmt::Display for Setting {
    /// `clean_min_ratio=15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.tunable, self.value)
    }
}

/// Why a setting is refused. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No `=` in it.
    #[error("'{}': give NAME=VALUE, for example clean_min_ratio=15", human::escaped(.0))]
    NoValue(String),
    /// No such tunable.
    #[error(
        "unknown tunable '{}'; there are workingset_protection, anon_min_ratio, clean_min_ratio and clean_low_ratio",
        human::escaped(.0)
    )]
    UnknownTunable(String),
    /// Not a whole number in the tunable's range.
    #[error(
        "{tunable}: '{}' is out of range; give a whole number from 0 to {}",
        human::escaped(.value),
        .tunable.largest()
    )]
    OutOfRange {
        /// Which.
        tunable: Tunable,
        /// What was given.
        value: String,
    },
}

impl FromStr for Setting {
    type Err = SettingError;

    /// `NAME=VALUE`; the `vm.` that le9uo's users write before the name may stay.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (name, value) = text.split_once('=').ok_or_else(|| SettingError::NoValue(text.to_string()))?;
        let (tunable, value) = (named(name)?, value.trim());
        // `parse` would take a sign.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { value.parse().ok() } else { None };
        number
            .and_then(|number| Self::new(tunable, number))
            .ok_or_else(|| SettingError::OutOfRange { tunable, value: value.to_string() })
    }
}

/// A tunable that is given a value, or goes back to what the configuration says: `clean_min_ratio=20`, `clean_min_ratio=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunableChange {
    /// It has this value from now on.
    Set(Setting),
    /// The configuration's value holds again.
    Unset(Tunable),
}

impl FromStr for TunableChange {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        match text.split_once('=') {
            Some((name, value)) if value.trim().is_empty() => named(name).map(Self::Unset),
            Some(_) | None => text.parse().map(Self::Set),
        }
    }
}

impl fmt::Display for TunableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(setting) => setting.fmt(f),
            Self::Unset(tunable) => write!(f, "{tunable}="),
        }
    }
}

as_text!(TunableChange);

/// The tunable of this name; the `vm.` that le9uo's users write before it may stay.
fn named(name: &str) -> Result<Tunable, SettingError> {
    let bare = name.trim();
    let bare = bare.strip_prefix("vm.").unwrap_or(bare);
    Tunable::ALL
        .into_iter()
        .find(|one| one.name() == bare)
        .ok_or_else(|| SettingError::UnknownTunable(name.trim().to_string()))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
fn write_switch<S: Serializer>(on: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(u8::from(*on))
}

fn read_switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    deserializer.deserialize_any(Switch)
}

/// 0 or 1 as a sysctl has it, or a plain boolean.
struct Switch;

impl de::Visitor<'_> for Switch {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0 or 1")
    }

    fn visit_bool<E: de::Error>(self, on: bool) -> Result<bool, E> {
        Ok(on)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<bool, E> {
        match value {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(E::custom(format_args!("workingset_protection = {other}; give 0 or 1"))),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<bool, E> {
        u64::try_from(value).map_or_else(
            |_| Err(E::custom(format_args!("workingset_protection = {value}; give 0 or 1"))),
            |value| self.visit_u64(value),
        )
    }
}

#[cfg(test)]
mod tests;
