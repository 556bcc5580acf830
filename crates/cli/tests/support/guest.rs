//! What only a guest of the lab has, and what may be done to no other machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The serial number that `lab/boot.sh` gives the disk to swap to: the mark of a guest.
const DISK: &str = "plimsoll-swap";

/// The guest's disk; `None` elsewhere, which is said.
pub fn disk() -> Option<PathBuf> {
    let found = find_disk();
    if found.is_none() {
        super::skip("it changes the whole machine, so only a guest of the lab runs it (make lab)");
    }
    found
}

/// Whether this is a guest.
pub fn is_one() -> bool {
    find_disk().is_some()
}

fn find_disk() -> Option<PathBuf> {
    let mut blocks = fs::read_dir("/sys/block").unwrap().flatten();
    let found = blocks.find(|block| {
        fs::read_to_string(block.path().join("serial")).is_ok_and(|serial| serial.trim() == DISK)
    })?;
    Some(Path::new("/dev").join(found.file_name()))
}

/// Runs a command as root; it must succeed.
#[track_caller]
pub fn command(program: &str, arguments: &[&str]) {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Swap space, in use until this is dropped.
#[derive(Debug)]
pub struct Swap {
    device: PathBuf,
}

impl Swap {
    /// To this device.
    pub fn on(device: PathBuf) -> Self {
        let path = device.to_str().unwrap();
        command("mkswap", &[path]);
        command("swapon", &[path]);
        Self { device }
    }

    /// Into compressed memory.
    pub fn compressed(mebibytes: u32) -> Self {
        fs::write("/sys/block/zram0/disksize", format!("{mebibytes}M")).unwrap();
        Self::on(PathBuf::from("/dev/zram0"))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        command("swapoff", &[self.device.to_str().unwrap()]);
        if self.device.ends_with("zram0") {
            fs::write("/sys/block/zram0/reset", "1").unwrap();
        }
    }
}
