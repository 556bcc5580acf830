//! What the scenarios share: the guest, its swap, the files, and the programs that are to live.

use crate::{
    child::{self, Workload, look_until},
    error::BenchError,
    options::Options,
    proc,
    workingset::data::write_file,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Those that are to live; the reader among them; those that are to end.
pub(super) const OTHER_UID: u32 = 60_011;
pub(crate) const READER_UID: u32 = 60_012;
pub(super) const HOG_UID: u32 = 60_013;

/// Between two reads of the file.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(300);

/// Without pressure, before it begins.
pub(super) const WARMING: Duration = Duration::from_secs(3);

/// The serial number of the disk to swap to that `lab/boot.sh` gives a guest: the mark of one.
const DISK: &str = "plimsoll-swap";

/// Why nothing is measured on other machines.
pub(crate) const GUESTS_ONLY: &str =
    "it uses up the whole machine's memory: only a guest of the lab may (lab/bench.sh)";

/// Where the guest swaps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SwapKind {
    /// Nowhere.
    None,
    /// To a disk.
    Disk,
    /// Into compressed memory, half as large as the machine's.
    Compressed,
}

/// What they share.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) options: &'a Options,
    memory_bytes: u64,
    disk: PathBuf,
    /// `None` without a file system to make them on.
    files: Option<Files>,
}

#[derive(Debug)]
struct Files {
    /// An eighth of memory.
    read: PathBuf,
    /// Larger than memory.
    large: PathBuf,
    /// A page that anybody may write to.
    page: PathBuf,
}

impl Files {
    fn make(folder: &Path, memory_bytes: u64) -> Result<Self, BenchError> {
        let file = |name: &str, bytes| write_file(&folder.join(name), bytes);
        let (read, large) = (file("read", memory_bytes / 8)?, file("large", memory_bytes / 4 * 5)?);
        let page = file("page", 4096)?;
        fs::set_permissions(&page, fs::Permissions::from_mode(0o666))
            .map_err(BenchError::io("let a file be written to"))?;
        Ok(Self { read, large, page })
    }
}

impl<'a> Stage<'a> {
    pub(super) fn open(options: &'a Options) -> Result<Self, BenchError> {
        let disk = disk().ok_or_else(|| BenchError::Unfit { problem: GUESTS_ONLY.to_owned() })?;
        let memory_bytes = proc::told("MemTotal", proc::meminfo()?.mem_total)?;
        let files = options.data.as_deref().map(|folder| Files::make(folder, memory_bytes)).transpose()?;
        Ok(Self { options, memory_bytes, disk, files })
    }

    /// Whether there are files.
    pub(super) const fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// A program that reads one of them.
    pub(super) fn reader(&self) -> Result<Option<Workload>, BenchError> {
        let start = |files: &Files| {
            Workload::start(&self.options.workload, &[&"read", &READER_UID, &files.read.display()])
        };
        self.files.as_ref().map(start).transpose()
    }

    pub(super) fn large(&self) -> Result<&Path, BenchError> {
        self.files.as_ref().map(|files| files.large.as_path()).ok_or_else(no_files)
    }

    pub(super) fn page(&self) -> Result<&Path, BenchError> {
        self.files.as_ref().map(|files| files.page.as_path()).ok_or_else(no_files)
    }

    /// One of so many equal parts of memory.
    pub(super) const fn part(&self, of: u64) -> u64 {
        self.memory_bytes / of
    }

    /// A program that holds so much.
    pub(super) fn hold(&self, uid: u32, bytes: u64) -> Result<Workload, BenchError> {
        Workload::start(&self.options.workload, &[&"hold", &uid, &bytes])
    }

    /// Waits until the run before is forgotten.
    pub(super) fn settle(&self) -> Result<(), BenchError> {
        fs::write("/proc/sys/vm/drop_caches", "3").map_err(BenchError::io("drop the caches"))?;
        let calm = || Ok((proc::available_bytes()? > self.part(10) * 7).then_some(()));
        look_until(Duration::from_secs(30), Duration::from_millis(100), calm)?
            .ok_or_else(|| BenchError::Unfit { problem: "memory did not come back".to_owned() })
    }

    /// A new cgroup with that process.
    pub(super) fn group_with(&self, name: &str, pid: u32) -> Result<Group, BenchError> {
        let group = Group::make(name)?;
        let file = group.folder.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(BenchError::io(format!("write {}", file.display())))?;
        Ok(group)
    }

    pub(super) fn swap(&self, kind: SwapKind) -> Result<Option<Swap>, BenchError> {
        match kind {
            SwapKind::None => Ok(None),
            SwapKind::Disk => Swap::on(&self.disk).map(Some),
            SwapKind::Compressed => {
                fs::write("/sys/block/zram0/disksize", self.part(2).to_string())
                    .map_err(BenchError::io("set the size of zram0"))?;
                Swap::on(Path::new("/dev/zram0")).map(Some)
            }
        }
    }
}

/// That disk; `None` where this is no guest.
pub(crate) fn disk() -> Option<PathBuf> {
    let found = fs::read_dir("/sys/block").ok()?.flatten().find(|block| {
        fs::read_to_string(block.path().join("serial")).is_ok_and(|serial| serial.trim() == DISK)
    });
    Some(Path::new("/dev").join(found?.file_name()))
}

/// In use until this is dropped.
#[derive(Debug)]
pub(super) struct Swap {
    device: PathBuf,
}

impl Swap {
    fn on(device: &Path) -> Result<Self, BenchError> {
        child::run(&mut Command::new("mkswap"), &[device])?;
        child::run(&mut Command::new("swapon"), &[device])?;
        Ok(Self { device: device.to_owned() })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // Where that fails, the next one cannot begin, and says so.
        drop(child::run(&mut Command::new("swapoff"), &[&self.device]));
        if self.device.ends_with("zram0") {
            drop(fs::write("/sys/block/zram0/reset", "1"));
        }
    }
}

/// A cgroup whose processes end with it.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
}

impl Group {
    fn make(name: &str) -> Result<Self, BenchError> {
        let folder = Path::new("/sys/fs/cgroup").join(format!("plimsoll-suite-{name}"));
        fs::create_dir(&folder).map_err(BenchError::io(format!("create {}", folder.display())))?;
        Ok(Self { folder })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        let gone = || Ok(fs::remove_dir(&self.folder).is_ok().then_some(()));
        // One that is left makes the next fail, and say so.
        drop(look_until(Duration::from_secs(20), Duration::from_millis(20), gone));
    }
}

/// A file system that nobody can write to until this is dropped.
#[derive(Debug)]
pub(super) struct Frozen {
    folder: PathBuf,
}

impl Frozen {
    pub(super) fn file_system_of(file: &Path) -> Result<Self, BenchError> {
        let folder = file.parent().unwrap_or(file).to_owned();
        child::run(Command::new("fsfreeze").arg("--freeze"), &[&folder])?;
        Ok(Self { folder })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Where that fails, the bench does not end, which its guest's time does.
        drop(child::run(Command::new("fsfreeze").arg("--unfreeze"), &[&self.folder]));
    }
}

fn no_files() -> BenchError {
    BenchError::Unfit { problem: "give it a folder on a disk: --data".to_owned() }
}

/// A shell's script, of that user.
pub(super) fn user_script(uid: u32, text: &str) -> Command {
    let mut command = Command::new("setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "/bin/sh", "-c", text]);
    command
}
