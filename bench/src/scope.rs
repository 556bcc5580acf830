//! The memory cgroup that stands for the machine, in either version, with a bound on how fast it reads from the disk.

use crate::{child::STEP, error::BenchError, proc};
use plimsoll_policy::{units::Pid, victim::Signal};
use plimsoll_sys::process::PidFd;
use std::{
    fs,
    os::linux::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Between two attempts to remove a cgroup whose last processes are on their way out.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The cgroup; what is left in it is killed, and it is removed, when dropped.
#[derive(Debug)]
pub(crate) struct Scope {
    version: Version,
    memory: PathBuf,
    /// Where reading is held; `None` where it cannot be.
    io: Option<PathBuf>,
}

/// What a folder of files of a bench is called.
pub(crate) const FOLDER_PREFIX: &str = "plimsoll-bench-data-";

/// Before the process number of the bench.
pub(crate) const PREFIX: &str = "plimsoll-bench-";

const MEMORY_V1: &str = "/sys/fs/cgroup/memory";
const IO_V1: &str = "/sys/fs/cgroup/blkio";
const V2: &str = "/sys/fs/cgroup";

fn name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// The cgroup's path from the root of its hierarchy, the same for the whole life of this process.
pub(crate) fn path() -> String {
    format!("/{}", name())
}

/// Kills what is left in the cgroups of that name, and removes them: a scope's own, or those of a bench that is gone.
pub(crate) fn remove_all(name: &str) {
    let until = Instant::now() + STEP / 2;
    let folders = [IO_V1, MEMORY_V1, V2].map(|root| Path::new(root).join(name));
    while folders.iter().any(|folder| folder.exists() && fs::remove_dir(folder).is_err()) {
        if Instant::now() > until {
            return;
        }
        folders.iter().for_each(|folder| empty(folder));
        thread::sleep(POLL);
    }
}

/// Kills what is in it; all of it was started by one bench, and by nobody else.
fn empty(folder: &Path) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in text.lines().filter_map(|line| line.parse().ok()) {
        // That it is dead already is the only way to fail.
        PidFd::open(Pid(pid)).and_then(|pidfd| pidfd.send_signal(Signal::Kill)).ok();
    }
}

impl Scope {
    /// Makes it, with this limit and no swap.
    pub(crate) fn make(limit_bytes: u64) -> Result<Self, BenchError> {
        let name = name();
        let (v1, v2) = (Path::new(MEMORY_V1), Path::new(V2));
        let version = if v1.join("memory.limit_in_bytes").exists() { Version::One } else { Version::Two };
        let memory = match version {
            Version::One => v1.join(&name),
            Version::Two => {
                // In force already, or refused: then `memory.max` is missing below.
                fs::write(v2.join("cgroup.subtree_control"), "+memory").ok();
                fs::write(v2.join("cgroup.subtree_control"), "+io").ok();
                v2.join(&name)
            }
        };
        fs::create_dir(&memory).map_err(BenchError::io(format!("create {}", memory.display())))?;
        let mut scope = Self { version, memory, io: None };
        let (limit, swap) = match version {
            Version::One => ("memory.limit_in_bytes", ("memory.swappiness", "0")),
            Version::Two => ("memory.max", ("memory.swap.max", "0")),
        };
        let limit = scope.memory.join(limit);
        fs::write(&limit, limit_bytes.to_string())
            .map_err(BenchError::io(format!("write {}", limit.display())))?;
        // Not there without swap.
        fs::write(scope.memory.join(swap.0), swap.1).ok();
        scope.io = match version {
            Version::One => {
                let folder = Path::new(IO_V1).join(&name);
                fs::create_dir(&folder).is_ok().then_some(folder)
            }
            Version::Two => Some(scope.memory.clone()),
        };
        Ok(scope)
    }

    /// Puts a process under it.
    pub(crate) fn hold(&self, pid: u32) -> Result<(), BenchError> {
        let io = self.io.as_deref().filter(|folder| *folder != self.memory);
        for folder in std::iter::once(self.memory.as_path()).chain(io) {
            let file = folder.join("cgroup.procs");
            fs::write(&file, pid.to_string()).map_err(BenchError::io(format!("write {}", file.display())))?;
        }
        Ok(())
    }

    /// Holds reading from the disk that `file` lies on to so many bytes a second, `None` for as it is. Whether it could.
    pub(crate) fn hold_reading(&self, file: &Path, bytes_a_second: Option<u64>) -> bool {
        let (Some(folder), Some(disk)) = (&self.io, disk_of(file)) else { return false };
        let (setting, text) = match (self.version, bytes_a_second) {
            (Version::One, bytes) => {
                ("blkio.throttle.read_bps_device", format!("{disk} {}", bytes.unwrap_or(0)))
            }
            (Version::Two, Some(bytes)) => ("io.max", format!("{disk} rbps={bytes}")),
            (Version::Two, None) => ("io.max", format!("{disk} rbps=max")),
        };
        fs::write(folder.join(setting), text).is_ok()
    }

    /// How many processes the kernel's OOM killer took in it.
    pub(crate) fn kernel_kills(&self) -> Result<u64, BenchError> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        self.number(file, "oom_kill ")
    }

    /// Bytes in it that cannot be reclaimed: locked ones.
    pub(crate) fn locked_bytes(&self) -> Result<u64, BenchError> {
        self.number("memory.stat", "unevictable ")
    }

    fn number(&self, file: &str, name: &str) -> Result<u64, BenchError> {
        let path = self.memory.join(file);
        let text = fs::read_to_string(&path).map_err(BenchError::io(format!("read {}", path.display())))?;
        proc::number_field(&text, name)
            .ok_or_else(|| BenchError::malformed(format!("{name}of {}", path.display()), &text))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        remove_all(&name());
    }
}

/// `MAJOR:MINOR` of the whole disk that the file's file system lies on; `None` where it lies on none.
fn disk_of(file: &Path) -> Option<String> {
    let device = fs::metadata(file).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if folder.join("partition").exists() { folder.parent()?.to_owned() } else { folder };
    fs::read_to_string(disk.join("dev")).ok().map(|text| text.trim().to_owned())
}
