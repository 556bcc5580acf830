//! `[metrics]`: where they are read, and by whom.

use plimsoll_policy::{human, who::Who};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// The most addresses: each has descriptors of its own.
pub(super) const LISTEN_MAX: usize = 4;

/// The longest path that a unix socket can have (`sun_path`), with its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where metrics are read. Nowhere by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Each address once.
    pub listen: Vec<Listen>,
    /// Whose members may read from unix sockets; [`Who::Members`] or [`Who::MembersOf`]. `None`: root alone.
    pub group: Option<Who>,
    /// Loopback addresses tell of single users and units, too.
    pub users: bool,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket, by absolute path.
    Unix(PathBuf),
    /// A port of this machine that only programs on it reach.
    Loopback(SocketAddr),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Loopback(address) => write!(f, "{address}"),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let shown = human::escaped(&text);
        if text.starts_with('/') {
            let plain = text.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
            return if plain && text.len() <= SOCKET_PATH_BYTES_MAX && !text.contains(char::is_control) {
                Ok(Self::Unix(Path::new(&text).to_owned()))
            } else {
                Err(D::Error::custom(format!(
                    "'{shown}' is no path of a unix socket; write it from /, without '//', '.' and '..', in at most \
                     {SOCKET_PATH_BYTES_MAX} bytes"
                )))
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if !address.ip().is_loopback() => Err(D::Error::custom(format!(
                "'{shown}' can be reached from other machines; only loopback addresses are allowed: write \
                 127.0.0.1:{port} or [::1]:{port}, or the path of a unix socket",
                port = address.port()
            ))),
            Ok(address) if address.port() == 0 => {
                Err(D::Error::custom(format!("'{shown}' names no port; write for example 127.0.0.1:9758")))
            }
            Ok(address) => Ok(Self::Loopback(address)),
            Err(_) => Err(D::Error::custom(format!(
                "'{shown}' is neither the absolute path of a unix socket nor a loopback address with a port, such as \
                 127.0.0.1:9758"
            ))),
        }
    }
}
