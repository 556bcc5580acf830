//! Who acts with another's credentials: overlayfs reads with those of who mounted it (`override_creds`), and whatever is
//! touched meanwhile is charged to who touches it.
#![cfg(test)]

mod support;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::{fs, os::unix::fs::PermissionsExt as _};
use support::{apart::apart, program::Program};

const MOUNTER: u32 = 60_130;
const READER: u32 = 60_131;
const ROOM: u32 = 60_132;
const FREE: u32 = 60_133;

/// Says `ready`, reads 16 MiB of a file 12 times, each time into memory that it has not touched yet, says `full` and waits.
fn reads(file: &str) -> String {
    format!(
        "say('ready')\n\
         memory = mmap.mmap(-1, 192 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         view = memoryview(memory)\n\
         for round in range(12):\n    \
             with open('{file}', 'rb', buffering=0) as file:\n        \
                 at = round << 24\n        \
                 while at < round + 1 << 24:\n            \
                     at += file.readinto(view[at:round + 1 << 24])\n\
         say('full')\n\
         time.sleep(60)\n"
    )
}

#[test]
fn who_reads_a_file_of_another_users_overlay_is_not_charged_to_that_user() {
    apart(|| {
        let fixture = fixture!();
        fixture.limit(MOUNTER, "64M", &[]);
        let mut shell = fixture.as_user(MOUNTER, "unshare");
        // Its own namespaces of users and mounts: nobody's permission is needed.
        shell.args(["-Urm", "sh", "-c"]).arg(
            "mount -t tmpfs none /mnt && cd /mnt && mkdir l u w m && head -c 16777216 /dev/zero > l/file && \
             mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w m && echo ready && exec sleep 60",
        );
        let mut mounter = Program::of(shell).ready();
        let before = fixture.usage_pages(MOUNTER);
        let mut reader =
            fixture.root_python(&reads(&format!("/proc/{}/root/mnt/m/file", mounter.pid()))).filled();
        assert!(reader.runs() && mounter.runs());
        let after = fixture.usage_pages(MOUNTER);
        assert!(after <= before + 64, "{before} pages before, {after} after");
        assert!(fixture.history().is_empty());
    });
}

#[test]
fn a_limited_user_reads_an_overlay_of_roots_up_to_the_line_and_no_further() {
    apart(|| {
        let fixture = fixture!();
        let place = tempfile::Builder::new().prefix("plimsoll-test-overlay-").tempdir().unwrap();
        let own = |name: &str| place.path().join(name);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        mount(Some("none"), place.path(), Some("tmpfs"), MsFlags::empty(), Some("mode=755")).unwrap();
        ["l", "u", "w", "m"].iter().for_each(|name| fs::create_dir(own(name)).unwrap());
        fs::write(own("l/file"), vec![0; 16 << 20]).unwrap();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            own("l").display(),
            own("u").display(),
            own("w").display()
        );
        mount(Some("none"), &own("m"), Some("overlay"), MsFlags::empty(), Some(options.as_str())).unwrap();
        fixture.limit(READER, "64M", &[]);
        let mut reader = fixture.python(READER, &reads(own("m/file").to_str().unwrap())).ready();
        reader.killed();
        assert_eq!(fixture.incidents(1).first().unwrap()["account"], format!("user:{READER}"));
        umount2(&own("m"), MntFlags::MNT_DETACH).unwrap();
        umount2(place.path(), MntFlags::MNT_DETACH).unwrap();
    });
}

#[test]
fn who_becomes_another_user_in_somebody_elses_memory_moves_none_of_it() {
    let fixture = fixture!();
    fixture.limit(ROOM, "64M", &[]);
    let mut scripted = fixture.scripted(&[FREE, ROOM]);
    scripted.make(1, &format!("hop {FREE}"));
    scripted.tell(1, "touch 131072");
    // As a child of vfork does that changes its user before exec.
    scripted.make(1, "clone 2");
    scripted.tell(2, &format!("setuid {ROOM}"));
    scripted.tell(2, "touch 1024");
    scripted.tell(1, "touch 1024");
    assert_eq!(fixture.usage_pages(ROOM), 0);
    assert!(fixture.history().is_empty());
    scripted.tell(2, "exec");
    assert!(fixture.usage_pages(ROOM) > 0);
    scripted.tell(1, "touch 1024");
}
