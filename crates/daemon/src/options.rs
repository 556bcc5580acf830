//! Where the daemon finds and puts things, and whether it acts.

use plimsoll_api::{CONTROL_SOCKET, PRESSURE_SOCKET_NAME, TMALLOC_SOCKET_NAME};
use std::path::PathBuf;

/// The configuration file; where no other is named, `/etc/plimsoll/conf.d/*.toml` is read as well.
pub const CONFIG_FILE: &str = "/etc/plimsoll/plimsoll.toml";
/// The state folder.
pub const STATE_FOLDER: &str = "/var/lib/plimsoll";
/// The folder on a bpffs that programs and maps are pinned in.
pub const PIN_FOLDER: &str = "/sys/fs/bpf/plimsoll";

/// What `plimsoll daemon` was told on its command line. Each place can be moved, so that daemons with different ones run
/// side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonOptions {
    /// The configuration file.
    pub config: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// The tmalloc socket; `None`: beside the control socket.
    pub tmalloc_socket: Option<PathBuf>,
    /// The pressure socket; `None`: beside the control socket.
    pub pressure_socket: Option<PathBuf>,
    /// The pin folder.
    pub pin: PathBuf,
    /// Decide and record, but send no signal.
    pub dry_run: bool,
    /// Leave what is pinned at work after a clean stop: for upgrades.
    pub keep: bool,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            config: CONFIG_FILE.into(),
            state: STATE_FOLDER.into(),
            socket: CONTROL_SOCKET.into(),
            tmalloc_socket: None,
            pressure_socket: None,
            pin: PIN_FOLDER.into(),
            dry_run: false,
            keep: false,
        }
    }
}

impl DaemonOptions {
    /// Where tmalloc's socket goes: daemons with different control sockets have different ones of these, too.
    #[must_use]
    pub fn tmalloc_socket(&self) -> PathBuf {
        self.tmalloc_socket.clone().unwrap_or_else(|| self.socket.with_file_name(TMALLOC_SOCKET_NAME))
    }

    /// Where the pressure socket goes: likewise.
    #[must_use]
    pub fn pressure_socket(&self) -> PathBuf {
        self.pressure_socket.clone().unwrap_or_else(|| self.socket.with_file_name(PRESSURE_SOCKET_NAME))
    }
}
