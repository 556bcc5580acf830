//! What a user's session stands on: the compositor, the session bus, the user manager, the terminal multiplexer, the login
//! shell. With one of these all that runs in the session ends, or cannot be reached any more.
//!
//! It goes by an executable that only root can write, and by the unit. Whoever is in a session chooses what these programs
//! are told to do, and in which of their units they run: what keeps a hog from hiding there is that it is last only up to
//! a part of the line (`PLIMSOLL_SESSION_SHIFT` of bpf/wire/limits.h).

use super::{Facts, Pattern, cgroup};
use crate::units::Uid;
use alloc::vec::Vec;

/// Compositors and X servers, the session bus, the user manager, terminal multiplexers, wherever a distribution put them: seen
/// in Debian 12/13, Ubuntu 24.04, Fedora 41/42 and Arch packages.
pub const PROGRAMS: &[&str] = &[
    "/usr/*/gnome-shell",
    "/usr/*/mutter",
    "/usr/*/kwin_wayland",
    "/usr/*/kwin_x11",
    "/usr/*/plasmashell",
    "/usr/*/cosmic-comp",
    "/usr/*/sway",
    "/usr/*/weston",
    "/usr/*/weston-desktop-shell",
    "/usr/*/Hyprland",
    "/usr/*/labwc",
    "/usr/*/wayfire",
    "/usr/*/niri",
    "/usr/*/river",
    "/usr/*/Xwayland",
    "/usr/*/Xorg",
    "/usr/*/dbus-daemon",
    "/usr/*/dbus-broker",
    "/usr/*/dbus-broker-launch",
    "/usr/lib/systemd/systemd",
    "/usr/*/tmux",
    "/usr/*/screen",
    "/usr/*/zellij",
];

/// Login shells.
pub const SHELLS: &[&str] =
    &["/usr/bin/bash", "/usr/bin/dash", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/ksh*", "/usr/bin/mksh"];

/// Which programs those are; by default [`PROGRAMS`] and [`SHELLS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// Paths of executables.
    pub exe: Vec<Pattern>,
    /// Paths of shells: only where they lead a session that has a terminal, by their own name. What a shell was started for
    /// to interpret has the name of its script, or leads no session.
    pub shells: Vec<Pattern>,
}

impl Default for Programs {
    fn default() -> Self {
        // None is refused, as a test shows.
        let patterns = |texts: &[&str]| texts.iter().filter_map(|text| Pattern::new(text).ok()).collect();
        Self { exe: patterns(PROGRAMS), shells: patterns(SHELLS) }
    }
}

impl Programs {
    /// Whether a path is one of theirs.
    pub(super) fn name(&self, exe: &[u8]) -> bool {
        self.exe.iter().chain(&self.shells).any(|pattern| pattern.matches(exe))
    }

    /// Whether a process is one of those.
    pub(super) fn carry(&self, facts: &Facts<'_>) -> bool {
        let Some(exe) = facts.exe.filter(|exe| exe.only_root_writes) else {
            return false;
        };
        let is_shell = facts.leads_terminal
            && is_called_after(facts.comm, exe.path)
            && self.shells.iter().any(|pattern| pattern.matches(exe.path));
        (is_shell || self.exe.iter().any(|pattern| pattern.matches(exe.path)))
            && facts.cgroup.is_none_or(|path| is_place_of(path, facts.uid))
    }
}

/// Whether a shell has its own name, or a part of it: `sh` is bash or dash, `ksh` is ksh93.
fn is_called_after(comm: &[u8], exe: &[u8]) -> bool {
    let name = exe.rsplit(|byte| *byte == b'/').next().unwrap_or(exe);
    !comm.is_empty() && (name.starts_with(comm) || name.ends_with(comm))
}

/// Whether a user's session may run there: in what systemd made for it, or where there is no systemd.
fn is_place_of(path: &[u8], uid: Uid) -> bool {
    let mut units = cgroup::units(path, true).peekable();
    if units.peek().is_none() {
        return true;
    }
    let of_user = |unit: &[u8]| {
        let number = unit.strip_prefix(b"user-").and_then(|rest| rest.strip_suffix(b".slice"));
        number.is_some_and(|number| number == alloc::format!("{}", uid.0).as_bytes())
    };
    let is_session = |unit: &[u8]| {
        unit.starts_with(b"user@") && unit.ends_with(b".service")
            || unit.starts_with(b"session-") && unit.ends_with(b".scope")
    };
    units.any(of_user) && units.any(is_session)
}

#[cfg(test)]
mod tests;
