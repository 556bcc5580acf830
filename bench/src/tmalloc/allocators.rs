//! The allocators that are compared: each is loaded first into a process of its own, where the same program calls it.

use crate::{child::Workload, error::BenchError};
use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The names of those that the cases speak of.
pub(super) const MALLOC: &str = "malloc";
pub(super) const TMALLOC: &str = "tmalloc";

/// The C library's with memory that stays: as it is set, it returns what is free at the end of its heap, and has it brought
/// in again by the next block, so that a batch measures the kernel.
pub(super) const UNTRIMMED: &str = "malloc, untrimmed";
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1073741824");

/// By name: what the files are called, the newest first.
const LIBRARIES: [(&str, &[&str]); 3] = [
    (TMALLOC, &["libtmalloc.so.0", "libtmalloc.so"]),
    ("jemalloc", &["libjemalloc.so.2"]),
    ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2"]),
];

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    /// Its name in the report.
    pub(super) name: &'static str,
    /// The library; `None` for the C library's own.
    library: Option<PathBuf>,
}

/// Those in the folder `first` or of this machine, the C library's at the head, and the names of those that are missing.
/// They are copied to `shelf`, where every user can read them: the place where they were built may be nobody else's.
pub(super) fn find(
    first: Option<&Path>,
    shelf: &Path,
) -> Result<(Vec<Contender>, Vec<&'static str>), BenchError> {
    let folders: Vec<PathBuf> = first.map(Path::to_owned).into_iter().chain(folders()).collect();
    let mut found: Vec<Contender> =
        [MALLOC, UNTRIMMED].map(|name| Contender { name, library: None }).into_iter().collect();
    let mut missing = Vec::new();
    for (name, files) in LIBRARIES {
        let mut paths = files.iter().flat_map(|file| folders.iter().map(move |folder| folder.join(file)));
        let Some(found_at) = paths.find(|path| path.is_file()) else {
            missing.push(name);
            continue;
        };
        let library = shelf.join(format!("{name}.so"));
        fs::copy(&found_at, &library).map_err(BenchError::io(format!("copy {}", found_at.display())))?;
        fs::set_permissions(&library, fs::Permissions::from_mode(0o755))
            .map_err(BenchError::io(format!("open {} to its users", library.display())))?;
        found.push(Contender { name, library: Some(library) });
    }
    Ok((found, missing))
}

/// Where libraries are: beside this program (as built), below the folders of the search path (as installed, or
/// unpacked), and where distributions put them.
fn folders() -> Vec<PathBuf> {
    let own = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let mut folders: Vec<PathBuf> = own.into_iter().flat_map(|own| [own.clone(), own.join("deps")]).collect();
    let path = env::var_os("PATH").unwrap_or_default();
    let prefixes = env::split_paths(&path).filter_map(|folder| Some(folder.parent()?.to_owned()));
    for prefix in prefixes.chain(["/usr/local", "/usr"].map(PathBuf::from)) {
        let multiarch = format!("lib/{}-linux-gnu", env::consts::ARCH);
        folders.extend([multiarch.as_str(), "lib64", "lib"].map(|folder| prefix.join(folder)));
    }
    folders
}

impl Contender {
    /// Which names a workload is to look for.
    pub(super) fn names(&self) -> &'static str {
        if self.name == TMALLOC { TMALLOC } else { MALLOC }
    }

    /// What has its library loaded before all others, and sets it.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let tunables = (self.name == UNTRIMMED).then(|| (TUNABLES.0, TUNABLES.1.into()));
        let library = self.library.iter().map(|library| ("LD_PRELOAD", library.clone().into()));
        tunables.into_iter().chain(library).collect()
    }

    /// A process that was started with it; an error where the library was not loaded: the loader only says so and goes on.
    pub(super) fn verified(&self, workload: Workload) -> Result<Workload, BenchError> {
        let Some(library) = &self.library else { return Ok(workload) };
        let maps = fs::read_to_string(format!("/proc/{}/maps", workload.pid())).unwrap_or_default();
        if library.to_str().is_some_and(|library| maps.lines().any(|line| line.ends_with(library))) {
            return Ok(workload);
        }
        let problem = format!("{} was not loaded into it", library.display());
        Err(BenchError::Workload { workload: self.name.to_owned(), problem })
    }
}
