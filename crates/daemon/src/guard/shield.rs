//! Who is never a victim, by root-owned executable or by cgroup; never by name alone, which anyone can take.

use crate::config::Config;
use plimsoll_policy::selection::{Candidate, Protection, Standing};
use plimsoll_sys::process::ProcRoot;
use plimsoll_wire::text::parse_mount;
use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

/// How many of the largest processes are looked up: more than selection can reach.
const LOOKED_UP_MAX: usize = 64;

/// What is protected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shield {
    /// Device and inode.
    executables: HashSet<(u64, u64)>,
    /// Paths from the root of the hierarchy, without a slash at the end.
    cgroups: Vec<String>,
    /// Where cgroup v2 is mounted.
    cgroup_root: Option<PathBuf>,
}

impl Shield {
    /// The configured executables that are there, root's and regular files; the configured cgroups.
    pub(crate) fn new(config: &Config) -> Self {
        let files = config.protect.exe.iter().filter_map(|path| std::fs::metadata(path).ok());
        Self {
            executables: files
                .filter(|file| file.is_file() && file.uid() == 0)
                .map(|file| (file.dev(), file.ino()))
                .collect(),
            cgroups: config.protect.cgroup.iter().map(|path| path.trim_end_matches('/').to_owned()).collect(),
            cgroup_root: cgroup_root(),
        }
    }

    /// How many executables and cgroups that are.
    pub(crate) fn len(&self) -> usize {
        self.executables.len().saturating_add(self.cgroups.len())
    }

    /// The protected cgroups that exist now, as the programs know them: a cgroup v2 directory's inode number is its id
    /// (64-bit kernels, since 5.5). The cgroups below them are known by their ancestors.
    pub(crate) fn cgroup_ids(&self) -> Vec<u64> {
        let Some(root) = &self.cgroup_root else {
            return Vec::new();
        };
        let folders = self.cgroups.iter().map(|path| root.join(path.trim_start_matches('/')));
        folders.filter_map(|folder| std::fs::metadata(folder).ok()).map(|folder| folder.ino()).collect()
    }

    /// Marks those of the largest candidates whose executable is protected.
    pub(crate) fn by_executable(&self, proc: &ProcRoot, candidates: &mut [Candidate]) {
        let protects = |one: &Candidate| {
            let identity = proc.exe_identity(one.pid).ok().flatten();
            identity.is_some_and(|exe| {
                exe.only_root_writes() && self.executables.contains(&(exe.device, exe.inode))
            })
        };
        mark(candidates, protects, Protection::Executable);
    }

    /// Marks those of the largest candidates whose cgroup is protected, or below one that is.
    pub(crate) fn by_cgroup(&self, proc: &mut ProcRoot, candidates: &mut [Candidate]) {
        if self.cgroups.is_empty() {
            return;
        }
        let protects = |one: &Candidate| {
            let cgroup = proc.cgroup(one.pid).ok().flatten();
            cgroup.is_some_and(|path| self.cgroups.iter().any(|protected| is_within(&path, protected)))
        };
        mark(candidates, protects, Protection::Cgroup);
    }
}

/// Looks at the largest only: they are all that selection can reach.
fn mark(candidates: &mut [Candidate], mut protects: impl FnMut(&Candidate) -> bool, protection: Protection) {
    candidates.sort_unstable_by_key(|one| core::cmp::Reverse(one.usage.latest()));
    for one in candidates.iter_mut().filter(|one| one.standing == Standing::Free).take(LOOKED_UP_MAX) {
        if protects(one) {
            one.standing = Standing::Protected(protection);
        }
    }
}

fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn cgroup_root() -> Option<PathBuf> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mounts = text.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok());
    let found = mounts.into_iter().find(|mount| mount.filesystem == b"cgroup2")?;
    Some(Path::new(OsStr::from_bytes(found.mount_point)).to_path_buf())
}

#[cfg(test)]
mod tests;
