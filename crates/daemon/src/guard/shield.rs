//! Who is never a victim, by root-owned executable or by cgroup; never by name alone, which anyone can take.

use super::kernel::Kernel;
use crate::config::{Config, login_path::LOGIN_PATH};
use plimsoll_policy::{
    selection::{Candidate, Protection, Standing, VICTIMS_MAX, order},
    units::Uid,
};
use plimsoll_sys::process::{ExeIdentity, ProcessError};
use plimsoll_wire::text::parse_mount;
use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

/// What is protected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shield {
    /// By device and inode: whether it protects only what system users run.
    executables: HashMap<(u64, u64), bool>,
    /// The first uid that is no system user's.
    first_user: Uid,
    /// Paths from the root of the hierarchy, without a slash at the end.
    cgroups: Vec<String>,
    /// Where cgroup v2 is mounted.
    cgroup_root: Option<PathBuf>,
}

impl Shield {
    /// The configured executables that are there, root's and regular files; the configured cgroups.
    pub(crate) fn new(config: &Config) -> Self {
        let files = config.protect.exe.iter().filter_map(|path| {
            let file = std::fs::metadata(path).ok().filter(|file| file.is_file() && file.uid() == 0)?;
            Some(((file.dev(), file.ino()), LOGIN_PATH.contains(&path.as_str())))
        });
        Self {
            executables: files.collect(),
            first_user: config.limits.uids.min,
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

    /// What protects a process of this user, which runs this file and in this cgroup.
    pub(crate) fn protection(
        &self,
        uid: Uid,
        exe: Option<ExeIdentity>,
        cgroup: Option<&[u8]>,
    ) -> Option<Protection> {
        let by_exe = exe.is_some_and(|exe| {
            let of_system = self.executables.get(&(exe.device, exe.inode));
            exe.only_root_writes() && of_system.is_some_and(|only| !only || uid < self.first_user)
        });
        let by_cgroup = || cgroup.is_some_and(|path| self.covers(path));
        if by_exe { Some(Protection::Executable) } else { by_cgroup().then_some(Protection::Cgroup) }
    }

    /// Marks those of the largest candidates whose cgroup is protected, or below one that is.
    pub(crate) fn by_cgroup(&self, kernel: &mut impl Kernel, candidates: &mut [Candidate]) {
        if self.cgroups.is_empty() {
            return;
        }
        mark(candidates, |one| self.may_cover(kernel.cgroup(one.pid)), Protection::Cgroup);
    }

    /// Whether one who runs there is protected; where it could not be found out where that is, they are taken to be.
    fn may_cover(&self, cgroup: Result<Option<String>, ProcessError>) -> bool {
        match cgroup {
            Ok(path) => path.is_some_and(|path| self.covers(path.as_bytes())),
            Err(error) => error.is_passing(),
        }
    }

    /// Whether a cgroup is protected, or below one that is.
    fn covers(&self, path: &[u8]) -> bool {
        self.cgroups.iter().any(|protected| is_within(path, protected.as_bytes()))
    }
}

/// Looks at the largest until as many unprotected ones are found as selection can reach.
fn mark(candidates: &mut [Candidate], mut protects: impl FnMut(&Candidate) -> bool, protection: Protection) {
    candidates.sort_unstable_by(order);
    let mut unprotected = 0_usize;
    for one in candidates.iter_mut().filter(|one| one.standing == Standing::Free) {
        if protects(one) {
            one.standing = Standing::Protected(protection);
        } else {
            unprotected = unprotected.saturating_add(1);
        }
        if unprotected >= VICTIMS_MAX {
            break;
        }
    }
}

fn is_within(path: &[u8], ancestor: &[u8]) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn cgroup_root() -> Option<PathBuf> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mounts = text.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok());
    let found = mounts.into_iter().find(|mount| mount.filesystem == b"cgroup2")?;
    Some(Path::new(OsStr::from_bytes(found.mount_point)).to_path_buf())
}

#[cfg(test)]
mod tests;
