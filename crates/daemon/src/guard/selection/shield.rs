//! Who is never a victim, by root-owned executable or by cgroup; never by name alone, which anyone can take.

use crate::{
    config::{Config, login_path::LOGIN_PATH},
    guard::kernel::{Kernel, Programs},
};
use plimsoll_policy::{
    selection::{Candidate, Protection, Standing, VICTIMS_MAX, order},
    units::Uid,
};
use plimsoll_sys::{
    bpf::{BpfError, ProtectedExe},
    process::{ExeIdentity, ProcessError},
};
use plimsoll_wire::{abi, text::parse_mount};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{self, ErrorKind},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
};

/// What is protected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shield {
    /// Paths of executables, and whether only what system users run of each is protected.
    paths: Vec<(PathBuf, bool)>,
    /// What was found there last; then those that were there before, and may run still, the latest first.
    executables: Vec<ProtectedExe>,
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
        let of_login = |path: &String| (PathBuf::from(path), LOGIN_PATH.contains(&path.as_str()));
        let paths: Vec<(PathBuf, bool)> = config.protect.exe.iter().map(of_login).collect();
        // One that cannot be looked at now is found when they are renewed.
        let found = paths.iter().filter_map(|(path, of_system)| ProtectedExe::at(path, *of_system).ok()?);
        Self {
            executables: distinct(found),
            paths,
            first_user: config.limits.uids.min,
            cgroups: config.protect.cgroup.iter().map(|path| path.trim_end_matches('/').to_owned()).collect(),
            cgroup_root: cgroup_root(),
        }
    }

    /// With the executables that are at their paths now: an upgrade puts another file there. `None`: they are what they were,
    /// or cannot be told. Whoever runs a former one stays protected. Paths can lead anywhere: it may wait.
    pub(crate) fn renewed(&self) -> Option<Self> {
        let found =
            self.paths.iter().filter_map(|(path, of_system)| ProtectedExe::at(path, *of_system).transpose());
        let now = distinct(found.collect::<Result<Vec<_>, _>>().ok()?.into_iter());
        let before = self.executables.iter().map(|one| one.replaced());
        let (most, present) = (abi::PLIMSOLL_PROTECTED_MAX as usize, now.len());
        let mut executables = distinct(now.into_iter().chain(before));
        executables.truncate(most.max(present));
        (executables != self.executables).then(|| Self { executables, ..self.clone() })
    }

    /// What tells that something was put where an executable is, which may be another one: `None` where that cannot be told.
    /// Folders that others than root write to wake nobody: theirs are renewed when somebody is judged.
    pub(crate) fn watch(&self) -> Option<OwnedFd> {
        if self.paths.is_empty() {
            return None;
        }
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let folders: BTreeSet<PathBuf> = self.paths.iter().filter_map(|(path, _)| folder_of(path)).collect();
        for folder in folders {
            // Without it, renewed as those of others.
            let _or_none = inotify::add_watch(&watch, folder, WatchFlags::MOVED_TO | WatchFlags::CREATE);
        }
        Some(watch)
    }

    /// The executables, as the programs know them.
    pub(crate) fn executables(&self) -> &[ProtectedExe] {
        &self.executables
    }

    /// How many executables and cgroups that are.
    pub(crate) fn len(&self) -> usize {
        let present = self.executables.iter().filter(|one| !one.former).count();
        present.saturating_add(self.cgroups.len())
    }

    /// The protected cgroups that exist now, as the programs know them: a cgroup v2 directory's inode number is its id
    /// (64-bit kernels). The cgroups below them are known by their ancestors.
    ///
    /// # Errors
    /// When it cannot be told of one whether it exists.
    fn cgroup_ids(&self) -> io::Result<Vec<u64>> {
        let Some(root) = &self.cgroup_root else {
            return Ok(Vec::new());
        };
        let folders = self.cgroups.iter().map(|path| root.join(path.trim_start_matches('/')));
        let id = |folder: PathBuf| match std::fs::metadata(folder) {
            Ok(folder) => Some(Ok(folder.ino())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(error) => Some(Err(error)),
        };
        folders.filter_map(id).collect()
    }

    /// Tells the programs which cgroups are protected. Where that cannot be told, those are that were.
    pub(crate) fn protect_cgroups(&self, programs: &impl Programs) -> Result<(), BpfError> {
        self.cgroup_ids().map_or(Ok(()), |ids| programs.protect_cgroups(&ids))
    }

    /// What protects a process of this user, which runs this file and in this cgroup.
    pub(crate) fn protection(
        &self,
        uid: Uid,
        exe: Option<ExeIdentity>,
        cgroup: Option<&[u8]>,
    ) -> Option<Protection> {
        let by_exe = exe.is_some_and(|exe| {
            let runs = |one: &&ProtectedExe| one.place == (exe.device, exe.inode);
            let protects = |one: &ProtectedExe| {
                (!one.former || exe.links == 0) && (!one.of_system || uid < self.first_user)
            };
            exe.only_root_writes() && self.executables.iter().find(runs).is_some_and(protects)
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

/// The folder that a path leads to, where only root writes there.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let parent = std::fs::canonicalize(path).ok().and_then(|target| Some(target.parent()?.to_path_buf()));
    let folder = parent.or_else(|| Some(path.parent()?.to_path_buf()))?;
    let facts = std::fs::metadata(&folder).ok()?;
    (facts.uid() == 0 && facts.mode() & 0o022 == 0).then_some(folder)
}

/// Each file once, as it comes first; one that has a path besides that protects whoever runs it does so.
fn distinct(all: impl Iterator<Item = ProtectedExe>) -> Vec<ProtectedExe> {
    let mut each: Vec<ProtectedExe> = Vec::new();
    for one in all {
        match each.iter_mut().find(|other| other.place == one.place) {
            Some(other) => other.of_system &= one.of_system || one.former,
            None => each.push(one),
        }
    }
    each
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
