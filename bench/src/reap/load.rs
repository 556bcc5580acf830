//! What victims of `reap` are throttled by: busy processes, and a cgroup with a CPU quota.

use super::{Load, Throttle};
use crate::{child::Workload, error::BenchError, options::Options};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A test user; the victims are another's.
const HOG_UID: u32 = 60_031;

/// Two for each CPU.
const HOGS_A_CPU: usize = 2;

/// On the slow CPU.
const HOGS_OF_SLOW_CPU: usize = 9;

/// Processes that want the CPU all the time; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Hogs {
    _hogs: Vec<Workload>,
}

impl Hogs {
    pub(super) fn start(options: &Options, load: Load) -> Result<Self, BenchError> {
        let count = match load {
            Load::None => 0,
            Load::All => cpus().min(32) * HOGS_A_CPU,
            Load::SlowCpu => HOGS_OF_SLOW_CPU,
        };
        let hogs = (0..count).map(|_| Workload::start(&options.workload, &[&"busy", &HOG_UID]));
        let hogs = hogs.collect::<Result<Vec<_>, _>>()?;
        if load == Load::SlowCpu {
            for hog in &hogs {
                set("taskset", &["-a", "-p", "-c", &slow_cpu().to_string(), &hog.pid().to_string()])?;
            }
        }
        Ok(Self { _hogs: hogs })
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The last one.
pub(super) fn slow_cpu() -> usize {
    cpus().saturating_sub(1)
}

pub(super) fn set(program: &str, arguments: &[&str]) -> Result<(), BenchError> {
    crate::child::run(&mut std::process::Command::new(program), arguments).map(|_| ())
}

/// A cgroup that may use 1 % of one CPU, or has the least share of it.
#[derive(Debug)]
pub(super) struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// `None` where there is no cpu controller that can be written.
    pub(super) fn make(throttle: Throttle) -> Result<Option<Self>, BenchError> {
        let name = format!("plimsoll-bench-{}", std::process::id());
        let (v1, v2) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let (root, settings): (_, &[(&str, &str)]) = if v1.join("cpu.cfs_quota_us").exists() {
            if throttle == Throttle::Shares {
                (v1, &[("cpu.shares", "2")])
            } else {
                (v1, &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "1000")])
            }
        } else if v2.join("cgroup.subtree_control").exists() {
            // In force already, or refused: then `cpu.max` is missing below.
            fs::write(v2.join("cgroup.subtree_control"), "+cpu").ok();
            if throttle == Throttle::Shares {
                (v2, &[("cpu.weight", "1")])
            } else {
                (v2, &[("cpu.max", "1000 100000")])
            }
        } else {
            return Ok(None);
        };
        let folder = root.join(name);
        if let Err(error) = fs::create_dir(&folder) {
            return if error.kind() == io::ErrorKind::AlreadyExists {
                Err(BenchError::io(format!("create {}", folder.display()))(error))
            } else {
                Ok(None)
            };
        }
        let quota = Self { folder };
        let refused = settings.iter().any(|(file, value)| fs::write(quota.folder.join(file), value).is_err());
        Ok((!refused).then_some(quota))
    }

    /// Puts a process under it.
    pub(super) fn hold(&self, pid: u32) -> Result<(), BenchError> {
        let file = self.folder.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(BenchError::io(format!("write {}", file.display())))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Its victims are dead and waited for; a folder that is left is empty.
        fs::remove_dir(&self.folder).ok();
    }
}
