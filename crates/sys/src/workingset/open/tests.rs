use super::*;
use crate::workingset::{
    Locks,
    testing::{Disk, Shell, evict, id, lock_all, open, run, until},
};
use plimsoll_policy::{
    units::{Bytes, Pages},
    workingset::{Blocks, Tier},
};
use rustix::{
    fs::{CWD, Mode},
    thread::{CapabilitySets, set_capabilities},
};
use std::fs::{self, File};

fn opens_and_locks(kind: &str) {
    let Some(disk) = Disk::make(kind) else { return };
    let file = disk.file("hot", 700);
    let mut mounts = Mounts::new().unwrap();
    let mut hot = open(&mut mounts, file).unwrap();
    let locks = Locks::reserve(Bytes(64 << 20)).unwrap();
    lock_all((&mut hot, &disk.at("hot")), &locks, 0..2, Tier::Hard, 700);
    let other = FileId { generation: file.generation.wrapping_add(1), ..file };
    assert_eq!(open(&mut mounts, other).unwrap_err(), Refusal::Gone);
    let none = FileId { inode: file.inode.wrapping_add(1), ..file };
    assert_eq!(open(&mut mounts, none).unwrap_err(), Refusal::Gone);
}

#[test]
fn files_of_ext4_are_opened_by_inode_and_generation() {
    opens_and_locks("ext4");
}

#[test]
fn files_of_xfs_are_opened_by_inode_and_generation() {
    opens_and_locks("xfs");
}

#[test]
fn files_of_btrfs_are_opened_by_inode_and_generation() {
    opens_and_locks("btrfs");
}

#[test]
fn files_of_f2fs_are_opened_by_inode_and_generation() {
    opens_and_locks("f2fs");
}

#[test]
fn a_file_of_a_mounted_btrfs_subvolume_is_found() {
    let Some(disk) = Disk::make("btrfs") else { return };
    run("btrfs", &["subvolume", "create", disk.at("below").to_str().unwrap()]).unwrap();
    // So that its first inode is not one of the upper subvolume's.
    let file = {
        for number in 0..20 {
            fs::write(disk.at(&format!("below/{number}")), "x").unwrap();
        }
        disk.file("below/hot", 20)
    };
    let place = disk.beside("place");
    let device = run("findmnt", &["-no", "SOURCE", disk.at("").to_str().unwrap()]).unwrap();
    run("mount", &["-o", "subvol=below", device.trim(), place.to_str().unwrap()]).unwrap();
    let opened = open(&mut Mounts::new().unwrap(), file);
    run("umount", &[place.to_str().unwrap()]).unwrap();
    assert_eq!(opened.unwrap().id(), file);
}

/// Image of a filesystem that is made from a folder.
fn packed(command: &str, arguments: impl Fn(&str, &str) -> Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let [source, image, place] = ["source", "image", "place"].map(|name| folder.path().join(name));
    for made in [&source, &place] {
        fs::create_dir(made).unwrap();
    }
    for number in 0..3 {
        fs::write(source.join(number.to_string()), vec![3; 300 << 12]).unwrap();
    }
    let words = arguments(source.to_str().unwrap(), image.to_str().unwrap());
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let made = run(command, &words)
        .and_then(|_| run("mount", &["-o", "loop", image.to_str().unwrap(), place.to_str().unwrap()]));
    if let Err(why) = made {
        return crate::process::testing::skip(format_args!("{why}"));
    }
    let path = place.join("1");
    fs::read(&path).unwrap();
    let opened = open(&mut Mounts::new().unwrap(), id(&path)).map(|mut file| {
        let locks = Locks::reserve(Bytes(16 << 20)).unwrap();
        lock_all((&mut file, &path), &locks, 0..1, Tier::Hard, 300);
        evict(&path);
        file.capture()
    });
    run("umount", &["-l", place.to_str().unwrap()]).unwrap();
    assert_eq!(opened, Ok(Pages(300)));
}

#[test]
fn files_of_squashfs_are_opened_by_inode() {
    packed("mksquashfs", |source, image| vec![source.into(), image.into(), "-quiet".into()]);
}

#[test]
fn files_of_erofs_are_opened_by_inode() {
    packed("mkfs.erofs", |source, image| vec!["-zlz4".into(), image.into(), source.into()]);
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened() {
    let Some(disk) = Disk::make("ext4") else { return };
    let mut mounts = Mounts::new().unwrap();
    fs::create_dir(disk.at("folder")).unwrap();
    assert_eq!(open(&mut mounts, id(&disk.at("folder"))).unwrap_err(), Refusal::NotRegular);
    let hot = disk.file("hot", 1);
    for (name, kind, device) in [("pipe", FileType::Fifo, 0), ("null", FileType::CharacterDevice, 1 << 8 | 3)]
    {
        rustix::fs::mknodat(CWD, disk.at(name), kind, Mode::RUSR, device).unwrap();
        let found = statx(CWD, disk.at(name), AtFlags::empty(), StatxFlags::INO).unwrap();
        // 0: any generation, to ext4.
        let file = FileId { inode: found.stx_ino, generation: 0, ..hot };
        assert_eq!(open(&mut mounts, file).unwrap_err(), Refusal::NotRegular, "{name}");
    }
}

#[test]
fn a_file_without_a_name_is_refused() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 4);
    let held = File::open(disk.at("hot")).unwrap();
    fs::remove_file(disk.at("hot")).unwrap();
    assert_eq!(open(&mut Mounts::new().unwrap(), file).unwrap_err(), Refusal::Unlinked);
    drop(held);
    until("the inode is gone", || open(&mut Mounts::new().unwrap(), file).unwrap_err() == Refusal::Gone);
}

#[test]
fn a_lease_is_not_broken_by_opening() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 4);
    let mut mounts = Mounts::new().unwrap();
    let script = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\n\
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('leased', flush=True)\n\
        for line in sys.stdin: print('here', flush=True)";
    let mut holder = Shell::start("python3", &["-c", script, disk.at("hot").to_str().unwrap()]);
    assert_eq!(holder.hear(), "leased");
    mounts.refresh().unwrap();
    assert_eq!(open(&mut mounts, file).unwrap_err(), Refusal::Leased);
    // It would have been told by a signal that ends it.
    assert_eq!(holder.ask(""), "here");
    assert!(holder.runs());
    drop(holder);
    mounts.refresh().unwrap();
    open(&mut mounts, file).unwrap();
}

#[test]
fn a_frozen_filesystem_holds_nothing_up() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (file, place) = (disk.file("hot", 40), disk.at(""));
    let mut mounts = Mounts::new().unwrap();
    run("fsfreeze", &["-f", place.to_str().unwrap()]).unwrap();
    // Thaws it should anything here wait for that.
    let mut watchdog =
        Shell::start("sh", &["-c", "exec >&-; sleep 60; fsfreeze -u \"$0\"", place.to_str().unwrap()]);
    let mut hot = open(&mut mounts, file).unwrap();
    let locks = Locks::reserve(Bytes(16 << 20)).unwrap();
    // What reclaim took of it before cannot be read now.
    assert!(matches!(hot.lock(&locks, 0..1, Blocks::ALL, Tier::Hard), Ok(Pages(30..=40))));
    hot.capture();
    drop(hot);
    assert!(watchdog.runs(), "it had to be thawed");
    run("fsfreeze", &["-u", place.to_str().unwrap()]).unwrap();
}

#[test]
fn a_file_whose_pages_the_kernel_does_not_tell_of_is_refused() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 4);
    rustix::fs::chown(disk.at("hot"), Some(rustix::process::Uid::from_raw(60_350)), None).unwrap();
    let without = |wanted: CapabilitySet| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let own = capabilities(None).unwrap();
                let left = CapabilitySets { effective: own.effective - wanted, ..own };
                set_capabilities(None, left).unwrap();
                open(&mut Mounts::new().unwrap(), file).map(|_| ())
            });
            thread.join().unwrap()
        })
    };
    assert_eq!(without(CapabilitySet::FOWNER), Ok(()));
    assert_eq!(without(CapabilitySet::FOWNER | CapabilitySet::DAC_OVERRIDE), Err(Refusal::Hidden));
    disk.mount("remount,ro").unwrap();
    assert_eq!(without(CapabilitySet::FOWNER), Err(Refusal::Hidden));
    assert_eq!(without(CapabilitySet::empty()), Ok(()));
}
