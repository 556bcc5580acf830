//! Other programs that Plimsoll is compared with: Debian's earlyoom in its dry run, and Debian's nohang without the right to
//! signal anybody. The ways in which the seed watches memory are workloads (`timer`, `trace`).

use std::path::PathBuf;

pub(crate) mod earlyoom;
pub(crate) mod nohang;

/// The places where distributions put daemons, if not in the search path.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Where a program is, if it is installed, or unpacked in a folder of the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
