//! Disks for tests, in files, mounted where nobody else looks.

use super::{HotFile, Locks, Mounts, Refusal, handle};
use plimsoll_policy::{
    units::Pages,
    workingset::{Blocks, FileId, Tier},
};
use plimsoll_wire::text::{parse_mount, unescape};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    ops::Range,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Bytes of a page, as everywhere that these tests run.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A filesystem of its own, unmounted and gone when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: TempDir,
}

/// Runs a command; whether it succeeded, and what it said if not.
pub(crate) fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Disk {
    /// Makes and mounts one; `None`, which is said, where that cannot be done here.
    pub(crate) fn make(kind: &str) -> Option<Self> {
        let disk = Self { folder: tempfile::tempdir().unwrap() };
        disk.format(kind)
            .and_then(|()| disk.mount("defaults"))
            .map_err(|why| {
                crate::process::testing::skip(format_args!("no {kind} can be mounted here: {why}"))
            })
            .ok()?;
        Some(disk)
    }

    fn format(&self, kind: &str) -> Result<(), String> {
        let megabytes = if kind == "xfs" { 320 } else { 128 };
        File::create(self.image()).unwrap().set_len(megabytes << 20).unwrap();
        fs::create_dir(self.at("")).unwrap();
        run(&format!("mkfs.{kind}"), &[self.image().to_str().unwrap()]).map(|_| ())
    }

    /// Mounts it at its place.
    pub(crate) fn mount(&self, options: &str) -> Result<(), String> {
        let (image, place) = (self.image(), self.at(""));
        run("mount", &["-o", &format!("loop,{options}"), image.to_str().unwrap(), place.to_str().unwrap()])
            .map(|_| ())
    }

    /// The file that it is in.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// A folder beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A path on it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("disk").join(name)
    }

    /// Writes a file of so many pages and has it on the disk and in memory.
    pub(crate) fn file(&self, name: &str, pages: u64) -> FileId {
        let path = self.at(name);
        let mut file = File::create(&path).unwrap();
        let page = vec![7; usize::try_from(PAGE_BYTES).unwrap()];
        for _ in 0..pages {
            file.write_all(&page).unwrap();
        }
        file.sync_all().unwrap();
        id(&path)
    }

    /// Unmounts it. What the other tests of this process start has a file open as well, until it is another program.
    pub(crate) fn unmount(&self) -> Result<(), String> {
        let mut tries = 20_u32;
        loop {
            let done = run("umount", &[self.at("").to_str().unwrap()]).map(|_| ());
            if done.is_ok() || tries == 0 {
                return done;
            }
            tries -= 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the kernel has it in use by any mount, seen or not: the loop device is there as long.
    pub(crate) fn is_in_use(&self) -> bool {
        let image = self.image();
        fs::read_dir("/sys/block").unwrap().flatten().any(|block| {
            let backing = fs::read_to_string(block.path().join("loop/backing_file"));
            backing.is_ok_and(|path| Path::new(path.trim_end()) == image)
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let place = self.at("");
        drop(run("fsfreeze", &["-u", place.to_str().unwrap()]));
        drop(run("umount", &["-l", place.to_str().unwrap()]));
    }
}

/// Finds a file and opens it.
pub(crate) fn open(mounts: &mut Mounts, file: FileId) -> Result<HotFile, Refusal> {
    mounts.way(file)?.open()
}

/// Locks chunks of a file that is in memory, and all `pages` of them: reclaim, which takes whatever was read once, can come
/// before the lock.
#[track_caller]
pub(crate) fn lock_all(
    (file, path): (&mut HotFile, &Path),
    locks: &Locks,
    chunks: Range<u32>,
    tier: Tier,
    pages: u64,
) {
    file.lock(locks, chunks, Blocks::ALL, tier).unwrap();
    until("all of it is locked", || {
        fs::read(path).unwrap();
        file.capture() == Pages(pages)
    });
}

/// How the kernel names a file.
pub(crate) fn id(path: &Path) -> FileId {
    let file = File::open(path).unwrap();
    id_on(path, handle::generation(file.as_fd()).unwrap_or(0))
}

fn id_on(path: &Path, generation: u32) -> FileId {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID).unwrap();
    let text = fs::read("/proc/self/mountinfo").unwrap();
    let mount = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| parse_mount(line).ok())
        .find(|mount| u64::from(mount.id) == found.stx_mnt_id)
        .unwrap();
    assert!(path.as_os_str().as_bytes().starts_with(&unescape(mount.mount_point).unwrap()));
    FileId { device: mount.device, inode: found.stx_ino, generation }
}

/// How many pages of a file are in the page cache, as another program sees it.
pub(crate) fn cached_pages(path: &Path) -> u64 {
    let told = run("fincore", &["--noheadings", "--output", "PAGES", path.to_str().unwrap()]).unwrap();
    told.trim().parse().unwrap()
}

/// Has the kernel take a file's pages from memory, where nobody holds them.
pub(crate) fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Pages of a file that this process holds locked, as the kernel counts them.
pub(crate) fn locked_pages(file: FileId) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let (major, minor) = file.device_numbers();
    let device = format!("{major:02x}:{minor:02x}");
    let inode = file.inode.to_string();
    let (mut is_it, mut kilobytes) = (false, 0);
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Locked:", locked, "kB"] if is_it => kilobytes += locked.parse::<u64>().unwrap(),
            [range, _, _, on, number, ..] if range.contains('-') => is_it = *on == device && *number == inode,
            _ => {}
        }
    }
    kilobytes * 1024 / PAGE_BYTES
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let slowness = std::env::var("PLIMSOLL_TEST_SLOWNESS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(10) * slowness.unwrap_or(1);
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A shell that does what it is told line by line, ended when dropped.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Shell {
    /// Starts a program that reads its orders from its standard input.
    pub(crate) fn start(command: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(command)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Tells it a line, and gives the line that it answers.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.hear()
    }

    /// The next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.said.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
