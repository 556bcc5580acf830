use super::*;
use crate::workingset::{
    Locks,
    testing::{Disk, Shell, id, lock_all, open, run, until},
};
use plimsoll_policy::{
    units::{Bytes, Pages},
    workingset::{Blocks, Tier},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    mount::{MountFlags, UnmountFlags},
};
use std::fs;

#[test]
fn umount_is_not_held_up_and_is_seen() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 40);
    let mut mounts = Mounts::new().unwrap();
    let locks = Locks::reserve(Bytes(16 << 20)).unwrap();
    let mut hot = open(&mut mounts, file).unwrap();
    lock_all((&mut hot, &disk.at("hot")), &locks, 0..1, Tier::Hard, 40);
    assert_eq!(mounts.refresh().unwrap(), Refreshed::default());
    disk.unmount().unwrap();
    until("the change is told", || {
        let mut notice = [PollFd::new(&mounts.notice, PollFlags::PRI)];
        poll(&mut notice, Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap() > 0
    });
    // Other tests mount and unmount, too.
    until("the device is gone", || mounts.refresh().unwrap().gone.contains(&file.device));
    assert!(disk.is_in_use());
    drop(hot);
    until("nothing holds the disk", || !disk.is_in_use());
    assert_eq!(open(&mut mounts, file).unwrap_err(), Refusal::Unreachable);
}

#[test]
fn files_below_an_overlay_are_held_and_its_own_are_not() {
    let Some(disk) = Disk::make("ext4") else { return };
    fs::create_dir(disk.at("lower")).unwrap();
    let file = disk.file("lower/hot", 30);
    let merged = disk.beside("merged");
    let [upper, work] = ["upper", "work"].map(|name| {
        fs::create_dir(disk.at(name)).unwrap();
        disk.at(name)
    });
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        disk.at("lower").display(),
        upper.display(),
        work.display()
    );
    if let Err(why) = run("mount", &["-t", "overlay", "-o", &options, "overlay", merged.to_str().unwrap()]) {
        return crate::process::testing::skip(format_args!("{why}"));
    }
    let of_overlay = id(&merged.join("hot"));
    let mut mounts = Mounts::new().unwrap();
    let refused = open(&mut mounts, of_overlay).map(|_| ());
    let mut hot = open(&mut mounts, file).unwrap();
    let locked = hot.lock(&Locks::reserve(Bytes(16 << 20)).unwrap(), 0..1, Blocks::ALL, Tier::Hard);
    // Neither of the two is held up.
    run("umount", &[merged.to_str().unwrap()]).unwrap();
    disk.unmount().unwrap();
    assert_eq!(refused, Err(Refusal::FileSystem));
    assert!(matches!(locked, Ok(Pages(25..=30))), "{locked:?}");
}

#[test]
fn a_fuse_filesystem_that_does_not_answer_is_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let Ok(server) = File::options().read(true).write(true).open("/dev/fuse") else {
        return crate::process::testing::skip("there is no /dev/fuse");
    };
    let number = std::os::fd::AsRawFd::as_raw_fd(&server);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let options = std::ffi::CString::new(options).unwrap();
    if let Err(why) = rustix::mount::mount("none", &place, "fuse", MountFlags::NODEV, options.as_c_str()) {
        return crate::process::testing::skip(format_args!("{why}"));
    }
    let mut mounts = Mounts::new().unwrap();
    let text = fs::read("/proc/self/mountinfo").unwrap();
    let device =
        text.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok()).find_map(|mount| {
            (unescape(mount.mount_point)? == place.as_os_str().as_encoded_bytes()).then_some(mount.device)
        });
    let file = FileId { device: device.unwrap(), inode: 1, generation: 0 };
    let refused = open(&mut mounts, file).map(|_| ());
    rustix::mount::unmount(&place, UnmountFlags::DETACH | UnmountFlags::FORCE).unwrap();
    drop(server);
    assert_eq!(refused, Err(Refusal::FileSystem));
}

#[test]
fn a_mount_of_another_namespace_is_reached_and_not_held_up() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 30);
    let (image, place) = (disk.image(), disk.at(""));
    disk.unmount().unwrap();
    until("nothing holds the disk", || !disk.is_in_use());
    let mut container = Shell::start("unshare", &["--mount", "--propagation", "private", "sh"]);
    let mount = format!(
        "mount -o loop {} {} && cat {}/hot >/dev/null && findmnt -no MAJ:MIN {}",
        image.display(),
        place.display(),
        place.display(),
        place.display()
    );
    let told = container.ask(&mount);
    let (major, minor) = told.trim().split_once(':').unwrap();
    let device = major.parse::<u32>().unwrap() << 20 | minor.parse::<u32>().unwrap();
    let file = FileId { device, ..file };
    let mut mounts = Mounts::new().unwrap();
    let mut hot = open(&mut mounts, file).unwrap();
    assert!(mounts.has_foreign());
    let locked = hot.lock(&Locks::reserve(Bytes(16 << 20)).unwrap(), 0..1, Blocks::ALL, Tier::Hard);
    // A page may have been taken since by who reclaims ahead of need (DAMON).
    assert!(matches!(locked, Ok(Pages(25..=30))), "{locked:?}");
    assert_eq!(mounts.refresh().unwrap(), Refreshed::default());
    assert_eq!(container.ask(&format!("umount {} && echo done", place.display())), "done");
    assert_eq!(mounts.refresh().unwrap().gone, [device]);
    drop(hot);
    until("nothing holds the disk", || !disk.is_in_use());
}

#[test]
fn the_end_of_another_namespace_is_seen() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 30);
    let place = disk.at("");
    let mut container = Shell::start("unshare", &["--mount", "--propagation", "private", "sh"]);
    assert_eq!(container.ask("echo here"), "here");
    disk.unmount().unwrap();
    let mut mounts = Mounts::new().unwrap();
    let hot = open(&mut mounts, file).unwrap();
    assert!(mounts.has_foreign(), "{}", place.display());
    drop(container);
    until("it is gone", || mounts.refresh().unwrap().gone == [file.device]);
    drop(hot);
    until("nothing holds the disk", || !disk.is_in_use());
}

#[test]
fn a_mount_that_is_covered_is_not_mistaken_for_what_covers_it() {
    let Some(disk) = Disk::make("ext4") else { return };
    let file = disk.file("hot", 30);
    let place = disk.at("");
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "cover", place.to_str().unwrap()]).unwrap();
    let covered = open(&mut Mounts::new().unwrap(), file).map(|_| ());
    run("umount", &[place.to_str().unwrap()]).unwrap();
    assert_eq!(covered, Err(Refusal::Unreachable));
    open(&mut Mounts::new().unwrap(), file).unwrap();
}

#[test]
fn a_disk_of_the_machine_s_own_is_not_removable_and_an_unknown_one_neither() {
    let unknown = 8 << MINOR_BITS | 0xf_ffff;
    assert!(!is_removable(unknown, b"/dev/sdzz"));
    // btrfs tells but the name of a disk.
    assert!(is_removable(0x2f, b"/dev/there-is-none"));
    assert!(is_removable(0x2f, b"/dev/null"));
    let folder = tempfile::tempdir().unwrap();
    let [disk, usb] = ["sda", "usb3/sdb/sdb1"].map(|name| folder.path().join(name));
    for made in [&disk, &usb] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(disk.join("removable"), "0\n").unwrap();
    assert!(!is_removable_at(&disk, 4));
    fs::write(disk.join("removable"), "1\n").unwrap();
    assert!(is_removable_at(&disk, 4));
    assert!(is_removable_at(&usb, 4));
    // An encrypted volume on one of them.
    let volume = folder.path().join("dm-0");
    fs::create_dir_all(volume.join("slaves")).unwrap();
    assert!(!is_removable_at(&volume, 4));
    std::os::unix::fs::symlink(&usb, volume.join("slaves/sdb1")).unwrap();
    assert!(is_removable_at(&volume, 4));
    // An image on a disk of the machine's own, and one that was removed.
    let image = folder.path().join("loop0");
    fs::create_dir_all(image.join("loop")).unwrap();
    for file in ["sda/removable", "gone"] {
        fs::write(image.join("loop/backing_file"), folder.path().join(file).to_str().unwrap()).unwrap();
        assert!(!is_removable_at(&image, 4));
    }
}
