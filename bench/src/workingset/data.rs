//! The files that the workers read, and a program with libraries of its own; all removed when dropped.

use super::Sizes;
use crate::{
    child::{self, Workload},
    error::BenchError,
    scope,
    workload::Random,
};
use rustix::fs::{Advice, FsWord, fadvise, statfs, statvfs};
use std::{
    fmt::Display,
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Of tmpfs, as statfs(2) tells it.
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// Written, and brought to the disk, before it is dropped from the cache: no more dirty pages than this.
const WRITTEN_AT_ONCE_BYTES: u64 = 64 * MIB;

/// What stays free on the disk: one part in so many of what the files take.
const SPARE_PART: u64 = 8;

/// Programs that say their version, largest libraries first.
const PROGRAMS: [&str; 6] = ["clang", "rustc", "gdb", "python3", "git", "perl"];

/// Less than this is no program with large libraries; the first larger one is taken, else the largest.
const LARGE_BYTES: u64 = 32 * MIB;

/// Private copies of a program and its libraries.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) bytes: u64,
}

impl Program {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// The files.
#[derive(Debug)]
pub(super) struct Data {
    folder: TempDir,
    /// Comes after the bench, should that be ended from outside.
    _broom: Workload,
    /// 10 % of the memory.
    pub(super) timed: PathBuf,
    /// Twice the budget of the hard tier.
    pub(super) large: PathBuf,
    /// Larger than the memory.
    pub(super) stream: PathBuf,
    pub(super) program: Option<Program>,
}

impl Data {
    /// Writes them in a folder of their own in `parent` (the temporary folder where `None`); `binary` carries the workloads.
    pub(super) fn make(binary: &Path, parent: Option<&Path>, sizes: &Sizes) -> Result<Self, BenchError> {
        let temporary = std::env::temp_dir();
        let parent = parent.unwrap_or(&temporary);
        refuse_unfit(parent, sizes)?;
        let folder = tempfile::Builder::new()
            .prefix(scope::FOLDER_PREFIX)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(parent)
            .map_err(BenchError::io(format!("folder in {}", parent.display())))?;
        let path = fs::canonicalize(folder.path()).map_err(BenchError::io("find the folder"))?;
        let name = scope::path();
        let words: [&dyn Display; 3] = [&"broom", &name.trim_start_matches('/'), &path.display()];
        let broom = Workload::start(binary, &words)?;
        let file = |name: &str, bytes| write_file(&folder.path().join(name), bytes);
        let (timed, large) = (file("timed", sizes.timed_bytes)?, file("large", sizes.large_bytes)?);
        let stream = file("stream", sizes.stream_bytes)?;
        let program = copy_program(folder.path(), sizes.program_bytes_max);
        let data = Self { folder, _broom: broom, timed, large, stream, program };
        data.forget()?;
        Ok(data)
    }

    /// A folder for further files.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program and its libraries.
    pub(super) fn program_files(&self) -> Vec<PathBuf> {
        let folder = self.program.as_ref().and_then(|program| fs::read_dir(&program.folder).ok());
        folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Drops these files, and no others, from the page cache: what is locked or mapped stays.
    pub(super) fn forget(&self) -> Result<(), BenchError> {
        let own = [&self.timed, &self.large, &self.stream].map(Clone::clone);
        for path in own.into_iter().chain(self.program_files()) {
            let file = File::open(&path).map_err(BenchError::io(format!("open {}", path.display())))?;
            forget_file(&file, &path)?;
        }
        Ok(())
    }
}

pub(crate) fn forget_file(file: &File, path: &Path) -> Result<(), BenchError> {
    fadvise(file, 0, None, Advice::DontNeed)
        .map_err(BenchError::io(format!("posix_fadvise {}", path.display())))
}

/// Says why files cannot be measured there.
fn refuse_unfit(parent: &Path, sizes: &Sizes) -> Result<(), BenchError> {
    let shown = parent.display();
    let kind = statfs(parent).map_err(BenchError::io(format!("statfs {shown}")))?.f_type;
    if kind == TMPFS_MAGIC {
        let problem = format!("{shown} is in memory: choose a folder on a disk with --data");
        return Err(BenchError::Unfit { problem });
    }
    let room = statvfs(parent).map_err(BenchError::io(format!("statvfs {shown}")))?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    let wanted_bytes = sizes.disk_bytes() + sizes.disk_bytes() / SPARE_PART;
    if free_bytes < wanted_bytes {
        let problem = format!(
            "{shown} has {} MiB free, {} are needed: choose another folder with --data",
            free_bytes / MIB,
            wanted_bytes / MIB
        );
        return Err(BenchError::Unfit { problem });
    }
    Ok(())
}

/// Bytes that look random, different in each MiB: no file system can share or shrink them.
pub(crate) fn write_file(path: &Path, bytes: u64) -> Result<PathBuf, BenchError> {
    let failed = || BenchError::io(format!("write {}", path.display()));
    let mut file = File::create(path).map_err(failed())?;
    let mut random = Random::seeded(bytes);
    let mut block: Vec<u8> = (0..MIB).map(|_| u8::try_from(random.below(256)).unwrap_or_default()).collect();
    let mut written = 0;
    while written < bytes {
        let count = MIB.min(bytes - written);
        for byte in block.iter_mut().step_by(512) {
            *byte = byte.wrapping_add(1);
        }
        let part = usize::try_from(count).ok().and_then(|count| block.get(..count)).unwrap_or_default();
        file.write_all(part).map_err(failed())?;
        written += count;
        if written % WRITTEN_AT_ONCE_BYTES == 0 || written == bytes {
            file.sync_data().map_err(failed())?;
            forget_file(&file, path)?;
        }
    }
    Ok(path.to_owned())
}

/// Copies the first program with large libraries; `None` where there is none that works from its copy.
fn copy_program(folder: &Path, bytes_max: u64) -> Option<Program> {
    let found: Vec<(&str, Vec<PathBuf>, u64)> = PROGRAMS
        .iter()
        .filter_map(|name| {
            let files = files_of(name)?;
            let bytes = files.iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum();
            (bytes <= bytes_max).then_some((*name, files, bytes))
        })
        .collect();
    let chosen = found
        .iter()
        .find(|(_, _, bytes)| *bytes >= LARGE_BYTES)
        .or_else(|| found.iter().max_by_key(|(_, _, bytes)| *bytes))?;
    let (name, files, bytes) = chosen;
    let folder = folder.join("program");
    fs::create_dir(&folder).ok()?;
    for (index, file) in files.iter().enumerate() {
        let to = if index == 0 { folder.join(name) } else { folder.join(file.file_name()?) };
        fs::copy(file, &to).ok()?;
        File::open(&to).ok()?.sync_data().ok()?;
    }
    let program = Program { name: (*name).to_owned(), folder, bytes: *bytes };
    let mut command = Command::new(program.path());
    child::run(command.env("LD_LIBRARY_PATH", &program.folder), &["--version"]).ok()?;
    Some(program)
}

/// The program itself, and after it the libraries that the loader finds for it.
fn files_of(name: &str) -> Option<Vec<PathBuf>> {
    let program = fs::canonicalize(crate::comparator::find_program(name)?).ok()?;
    // A stand-in for another program, as rustup's, goes by its own name.
    if program.file_name()?.to_str()?.starts_with("rustup") {
        return None;
    }
    let text = child::run(Command::new(&program).env("LD_TRACE_LOADED_OBJECTS", "1"), &["--version"]).ok()?;
    let libraries = text.lines().filter_map(|line| {
        let path = line.split_once(" => ")?.1.split_once(" (")?.0;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    Some(std::iter::once(program.clone()).chain(libraries).collect())
}
