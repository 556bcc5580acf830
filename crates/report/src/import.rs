//! Options of earlyoom and of systemd-oomd as our configuration: a file, with what differs beside each key and with what has no
//! counterpart by name.

use plimsoll_policy::human::escaped;
use plimsoll_wire::text::FuzzTarget;
use std::fmt;

mod earlyoom;
mod oomd;
mod regex;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 256 << 10;

/// Whose options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// `/etc/default/earlyoom`: its `EARLYOOM_ARGS`.
    Earlyoom,
    /// `oomd.conf`, or a unit with `ManagedOOM` settings.
    SystemdOomd,
}

/// What could not be understood. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError(String);

impl ImportError {
    fn value(option: &str, value: &str, expected: &str) -> Self {
        Self(format!("{option} '{}' is not {expected}", escaped(value)))
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}

/// A configuration that does what these options do, as near as it comes.
///
/// # Errors
/// [`ImportError`]: an option has a value that its program would not take either.
pub fn import(peer: Peer, text: &[u8]) -> Result<String, ImportError> {
    let text = String::from_utf8_lossy(text);
    let page = match peer {
        Peer::Earlyoom => earlyoom::import(&text)?,
        Peer::SystemdOomd => oomd::import(&text)?,
    };
    Ok(page.text())
}

/// The configuration as it comes together.
#[derive(Debug, Default)]
struct Page {
    machine: Vec<String>,
    rules: Vec<String>,
    /// What has no counterpart, each with what there is in its place.
    missing: Vec<String>,
}

impl Page {
    fn comment(&mut self, text: &str) {
        self.machine.push(format!("# {text}"));
    }

    fn key(&mut self, name: &str, value: impl fmt::Display) {
        self.machine.push(format!("{name} = {value}"));
    }

    fn missing(&mut self, option: &str, instead: &str) {
        self.missing.push(format!("# {}: {instead}", escaped(option)));
    }

    fn text(self) -> String {
        let mut lines = Vec::from(["[machine]".to_owned()]);
        lines.extend(self.machine);
        lines.extend(self.rules);
        if !self.missing.is_empty() {
            lines.push("\n# Without a counterpart:".to_owned());
            lines.extend(self.missing);
        }
        lines.join("\n") + "\n"
    }
}

/// A share in tenths of a percent, as the configuration takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Tenths(u32);

impl Tenths {
    /// `12`, `7.5` or `7.56`, of which the second decimal is left out; `None`: no such number, or more than 100.
    fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| {
            !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole) || !digits(decimals) {
            return None;
        }
        let tenth = decimals.bytes().next().map(|byte| u32::from(byte.saturating_sub(b'0')))?;
        let tenths = whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth)?;
        (tenths <= 1000).then_some(Self(tenths))
    }

    /// No less than a tenth and no more than that.
    fn within(self, most: u32) -> Self {
        Self(self.0.clamp(1, most))
    }
}

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.checked_div(10), self.0.checked_rem(10)) {
            (Some(whole), Some(0)) => write!(f, "{whole}"),
            (Some(whole), Some(tenth)) => write!(f, "{whole}.{tenth}"),
            _ => Err(fmt::Error),
        }
    }
}

/// This reader, for the fuzzers.
pub const FUZZ_TARGET: FuzzTarget = FuzzTarget { name: "import", check };

/// What must hold of any options: what comes of them is bounded, and nothing in it is raw.
fn check(text: &[u8]) -> Result<(), &'static str> {
    for peer in [Peer::Earlyoom, Peer::SystemdOomd] {
        let told = import(peer, text).unwrap_or_else(|error| error.to_string());
        if told.lines().any(|line| line.contains(plimsoll_policy::human::is_hazardous)) {
            return Err("foreign text is shown raw");
        }
        if told.len() > (64 << 10) + text.len().saturating_mul(128) {
            return Err("it is longer than promised");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
