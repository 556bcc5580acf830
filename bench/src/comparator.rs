//! What Plimsoll is compared with: the ways in which the seed and its peers watch memory.
//!
//! - `timer`: every 200 ms the sum over the user's processes, as a polling daemon does.
//! - `tracepipe`: each `kmem:rss_stat` event read as text from the trace pipe, sums per user kept in user space.
//! - `trivial`: the same events, and on each one a scan of all processes of the user.
//! - `earlyoom`: Debian's own, in its dry run.
//! - `nohang`: Debian's own, without the right to signal anybody.

use std::path::PathBuf;

pub(crate) mod earlyoom;
pub(crate) mod event;
pub(crate) mod nohang;
pub(crate) mod timer;
pub(crate) mod trace;

/// The places where distributions put daemons, if not in the search path.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Where a program is, if it is installed, or unpacked in a folder of the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
