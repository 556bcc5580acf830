//! A disk for files that reclaim may take: what lies in memory only is no file to it.

use super::{
    Fixture,
    guest::{self, command},
    program::Program,
    wait_for,
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

/// Reads a file whenever it is told to.
pub const READER: &str = "signal.alarm(600)\nsay('ready')\nwhile True:\n  path = hear()\n  with open(path, 'rb', buffering=0) as file:\n    while file.read(1 << 20): pass\n  say('read')\n";

/// Opens a file once, and reads it whenever it is told to.
pub const KEEPER: &str = "signal.alarm(600)\nsay('ready')\nfile = open(hear(), 'rb', buffering=0)\nsay('open')\nwhile True:\n  hear()\n  file.seek(0)\n  while file.read(1 << 20): pass\n  say('read')\n";

/// Has to be asked before something is opened (`FAN_CLASS_CONTENT`), and never answers.
const SCANNER: &str = "libc = ctypes.CDLL(None, use_errno=True)\nqueue = libc.fanotify_init(5, os.O_RDONLY)\nplace, flags, mask = hear().encode(), int(hear()), int(hear())\nmarked = libc.fanotify_mark(queue, flags, ctypes.c_uint64(mask), -100, place)\nsay('marked' if marked == 0 else f'refused {os.strerror(ctypes.get_errno())}')\nhear()\n";

/// What a scanner is asked about, as flags and mask: this file (`FAN_MARK_ADD`, `FAN_OPEN_PERM`); all files and folders of the
/// file system that this is on (`FAN_MARK_FILESYSTEM`, `FAN_ONDIR` as well).
pub const OF_ONE: (u32, u32) = (1, 0x1_0000);
pub const OF_ALL: (u32, u32) = (0x101, 0x4001_0000);

/// A scanner that answers nobody, until it is dropped. `None`, which is said: there cannot be one here.
pub fn scanner(fixture: &Fixture, place: &Path, (flags, mask): (u32, u32)) -> Option<Program> {
    let mut scanner = fixture.root_python(SCANNER);
    for word in [place.to_str().unwrap(), &flags.to_string(), &mask.to_string()] {
        scanner.tell(word);
    }
    let marked = scanner.line();
    if marked != "marked" {
        super::skip(format_args!("no permission mark can be had here: {marked}"));
        return None;
    }
    Some(scanner)
}

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
    pub fn of() -> Option<Self> {
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
        let device = guest::disk()?;
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
            wait_for("the disk is unmounted", || {
                Command::new("umount").arg(&folder).status().unwrap().success()
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
