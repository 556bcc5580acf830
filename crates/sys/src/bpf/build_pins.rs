//! A topic's folder below the pin root, and in it one folder for each build's programs. Nothing in them is worth keeping for
//! another build, so those are simply replaced; a folder of this build's name is complete, as it is renamed to that when all
//! is in it.

use super::{
    error::BpfError,
    link::open_pinned,
    object::Plan,
    pins::{cause, create_folder, remove_entries},
};
use crate::probe::in_initial_pid_namespace;
use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Where the programs are pinned before all are.
const LOADING: &str = "loading";

/// The pins of one build.
#[derive(Debug, Clone)]
pub(super) struct BuildPins {
    /// Of all builds.
    folder: PathBuf,
    own: PathBuf,
}

impl BuildPins {
    /// Those of a topic's programs; `build` tells them from those of another build. bpffs allows no dots in names.
    pub(super) fn below(root: &Path, topic: &str, build: u64) -> Self {
        let folder = root.join(topic);
        Self { own: folder.join(format!("{build:016x}")), folder }
    }

    /// A pin of this build's programs.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Whether this build's programs are there, all that were pinned.
    pub(super) fn is_complete(&self) -> bool {
        self.own.is_dir()
    }

    /// Whether those of other builds are there.
    pub(super) fn has_others(&self) -> bool {
        let others = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        others.map(|entry| entry.path()).any(|path| path != self.own && !path.ends_with(LOADING))
    }

    /// Opens a pinned link, or a program.
    pub(super) fn open(&self, name: &str) -> Result<OwnedFd, BpfError> {
        let path = self.path(name);
        open_pinned(&path).map_err(|error| cause(&path, "open", &error))
    }

    /// Pins the first of these plans that the kernel takes, unless this build's programs are there. What it said when it
    /// refused one comes back.
    pub(super) fn load(
        &self,
        plans: impl FnOnce() -> Result<Vec<Plan>, BpfError>,
    ) -> Result<Option<String>, BpfError> {
        require_initial_pid_namespace()?;
        if self.is_complete() {
            return self.remove_others().map(|()| None);
        }
        let mut refused = None;
        for plan in plans()? {
            match self.pin(&plan) {
                Ok(()) => return Ok(refused),
                Err(BpfError::Load(why)) => refused = refused.or(Some(why)),
                Err(other) => return Err(other),
            }
        }
        Err(BpfError::Load(refused.unwrap_or_default()))
    }

    fn pin(&self, plan: &Plan) -> Result<(), BpfError> {
        let mut loaded = plan.load(None)?;
        loaded.find_cpu_offsets()?;
        let folder = self.begin()?;
        plan.pin_maps(&mut loaded, &folder)?;
        plan.pin_programs(&loaded, &folder)?;
        plan.attach(&loaded, &folder)?;
        self.finish()
    }

    /// An empty folder to pin into.
    pub(super) fn begin(&self) -> Result<PathBuf, BpfError> {
        let loading = self.folder.join(LOADING);
        remove_entries(&loading)?;
        create_folder(&loading)?;
        Ok(loading)
    }

    /// What was pinned into the folder of [`BuildPins::begin`] is this build's; others go.
    pub(super) fn finish(&self) -> Result<(), BpfError> {
        let loading = self.folder.join(LOADING);
        fs::rename(&loading, &self.own).map_err(|error| cause(&loading, "rename", &error))?;
        self.remove_others()
    }

    /// Removes the pins of other builds, and what was left half made.
    pub(super) fn remove_others(&self) -> Result<(), BpfError> {
        self.remove_but(Some(&self.own)).map(|_| ())
    }

    /// Removes the pins of all builds. Whether there were any.
    pub(super) fn remove_all(&self) -> Result<bool, BpfError> {
        let removed = self.remove_but(None)?;
        match fs::remove_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(cause(&self.folder, "remove", &error))
            }
            Ok(()) | Err(_) => Ok(removed),
        }
    }

    fn remove_but(&self, kept: Option<&Path>) -> Result<bool, BpfError> {
        let failed = |error| cause(&self.folder, "read", &error);
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let mut removed = false;
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if kept != Some(path.as_path()) {
                remove_entries(&path)?;
                removed = true;
            }
        }
        Ok(removed)
    }
}

/// In any other, process numbers are not those of the kernel's records.
fn require_initial_pid_namespace() -> Result<(), BpfError> {
    match in_initial_pid_namespace() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(BpfError::Load("this is a pid namespace of its own, with numbers of its own".into()))
        }
        Err(error) => Err(BpfError::Load(format!("/proc/self/ns/pid: {error}"))),
    }
}
