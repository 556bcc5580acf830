//! A disk for files that reclaim may take: what lies in memory only is no file to it.

use super::{
    SOON,
    guest::{self, command},
    until,
};
use plimsoll_sys::process::page_size;
use rustix::fs::{Advice, fadvise, statfs};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// File systems that cannot stand for a disk's: tmpfs, 9p (the lab's root folder), overlayfs.
const NO_DISK: [i64; 3] = [0x0102_1994, 0x0102_1997, 0x794c_7630];

/// A folder on a disk: this machine's, or the guest's own. `None`, which is said, where there is none.
#[derive(Debug)]
pub struct Disk {
    folder: TempDir,
    mounted: bool,
}

impl Disk {
    /// For this test.
    pub fn of(test: &str) -> Option<Self> {
        // Other users read what is on it.
        let of = |parent: &str| {
            let open = fs::Permissions::from_mode(0o755);
            tempfile::Builder::new().permissions(open).prefix("plimsoll-test-").tempdir_in(parent).unwrap()
        };
        for parent in ["/tmp", "/var/tmp"] {
            if !NO_DISK.contains(&statfs(parent).unwrap().f_type) {
                return Some(Self { folder: of(parent), mounted: false });
            }
        }
        let device = guest::disk(test)?;
        let disk = Self { folder: of("/tmp"), mounted: true };
        command("mkfs.ext4", &["-q", "-F", device.to_str().unwrap()]);
        command("mount", &[device.to_str().unwrap(), disk.folder.path().to_str().unwrap()]);
        Some(disk)
    }

    /// A place on it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of so many pages that is on the disk and not in memory.
    pub fn cold(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path(name);
        let mut file = File::create_new(&path).unwrap();
        for page in 0..pages {
            file.write_all(&vec![u8::try_from(page % 251).unwrap(); page_bytes()]).unwrap();
        }
        file.sync_all().unwrap();
        drop_cached(&path);
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let folder = self.folder.path().to_str().unwrap().to_owned();
            until("the disk is unmounted", SOON, || {
                Command::new("umount").arg(&folder).status().unwrap().success().then_some(())
            });
        }
    }
}

/// Of a page.
pub fn page_bytes() -> usize {
    usize::try_from(page_size().bytes().0).unwrap()
}

/// Has what is cached of a file dropped; locked pages stay.
pub fn drop_cached(path: &Path) {
    fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

/// Bytes of a file in the page cache.
pub fn cached_bytes(path: &Path) -> u64 {
    let output = Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "RES"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
