#![expect(unsafe_code, reason = "unmaps pages as the kernel does")]

use super::*;
use crate::workingset::{
    Mounts, SoftRelease,
    testing::{Disk, PAGE_BYTES, cached_pages, evict, lock_all, locked_pages, open, until},
};
use plimsoll_policy::units::Bytes;
use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

const HARD: Tier = Tier::Hard;
const SOFT: Tier = Tier::Soft;

fn locks() -> Locks {
    Locks::reserve(Bytes(64 << 20)).unwrap()
}

fn read_pages(path: &Path, first: u64, pages: u64) {
    let mut file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    file.seek(SeekFrom::Start(first * PAGE_BYTES)).unwrap();
    let mut bytes = vec![0; usize::try_from(pages * PAGE_BYTES).unwrap()];
    file.read_exact(&mut bytes).unwrap();
}

#[test]
fn what_is_locked_stays_in_memory_until_the_file_is_dropped() {
    let Some(disk) = Disk::make("ext4") else { return };
    let id = disk.file("hot", 1100);
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    lock_all((&mut file, &disk.at("hot")), &locks(), 0..9, HARD, 1100);
    assert_eq!((file.pages(), file.pages_in(SOFT)), (Pages(1100), Pages(0)));
    assert_eq!(locked_pages(id), 1100);
    evict(&disk.at("hot"));
    assert_eq!(cached_pages(&disk.at("hot")), 1100);
    file.unlock(1..3);
    assert_eq!(file.pages(), Pages(512));
    drop(file);
    assert_eq!(locked_pages(id), 0);
    until("it can be evicted", || {
        evict(&disk.at("hot"));
        cached_pages(&disk.at("hot")) == 0
    });
}

#[test]
fn of_a_chunk_only_the_blocks_are_locked_that_are_used() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (id, path) = (disk.file("hot", 600), disk.at("hot"));
    let locks = locks();
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    // Read so, it is in memory page by page: of a large folio the kernel would map more.
    evict(&path);
    // The last block of the second chunk has 8 pages.
    let (two, one) = (Blocks(0b10_0100), Blocks(0b100));
    let holds = |file: &mut HotFile, pages: u64| {
        until("all of them are locked", || {
            read_pages(&path, 0, 600);
            file.capture() == Pages(pages)
        });
        assert_eq!(locked_pages(id), pages);
    };
    file.lock(&locks, 0..2, two, HARD).unwrap();
    holds(&mut file, 32 + 16 + 8);
    let held: Vec<_> = file.chunks().map(|(chunk, what, _)| (chunk, what)).collect();
    assert_eq!(held, [(0, (two, HARD)), (1, (two, HARD))]);
    assert_eq!(file.holds(1), Some((two, HARD)));
    file.narrow(0, one);
    assert_eq!((file.pages(), locked_pages(id)), (Pages(16 + 16 + 8), 16 + 16 + 8));
    file.widen(0, Blocks(1));
    holds(&mut file, 32 + 16 + 8);
    file.lock(&locks, 0..1, Blocks::ALL, HARD).unwrap();
    holds(&mut file, 512 + 16 + 8);
    file.lock(&locks, 0..1, one, HARD).unwrap();
    holds(&mut file, 16 + 16 + 8);
}

#[test]
fn what_the_kernel_locks_beyond_the_blocks_is_counted() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (id, path) = (disk.file("hot", 1), disk.at("hot"));
    // In one piece, which large folios are made for where the file system has them.
    fs::write(&path, vec![1; usize::try_from(512 * PAGE_BYTES).unwrap()]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    file.lock(&locks(), 0..1, Blocks(1), HARD).unwrap();
    assert!(file.pages() >= Pages(16), "{:?}", file.pages());
    assert_eq!(file.pages(), Pages(locked_pages(id)));
    file.lock(&locks(), 0..1, Blocks(2), HARD).unwrap();
    assert_eq!(file.pages(), Pages(locked_pages(id)));
}

#[test]
fn only_what_is_in_memory_is_locked_and_what_comes_in_later_is_captured() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (id, path) = (disk.file("hot", 1024), disk.at("hot"));
    evict(&path);
    read_pages(&path, 100, 30);
    let before = cached_pages(&path);
    assert!(before < 512, "{before} pages are in memory");
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    assert_eq!(file.lock(&locks(), 0..2, Blocks::ALL, HARD), Ok(Pages(before)));
    assert_eq!(cached_pages(&path), before, "something was read from the disk");
    read_pages(&path, 600, 50);
    let after = cached_pages(&path);
    assert!(after > before);
    assert_eq!(file.pages(), Pages(before));
    file.capture_in(0..1);
    assert_eq!(file.pages(), Pages(before), "another chunk was captured");
    assert_eq!(file.capture(), Pages(after));
    assert_eq!(locked_pages(id), after);
}

#[test]
fn what_the_kernel_unmaps_though_it_is_locked_is_locked_again() {
    let Some(disk) = Disk::make("ext4") else { return };
    let id = disk.file("hot", 700);
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    lock_all((&mut file, &disk.at("hot")), &locks(), 0..2, HARD, 700);
    for (_, (start, bytes)) in file.ranges() {
        let start = std::ptr::with_exposed_provenance_mut(usize::try_from(start).unwrap());
        let bytes = usize::try_from(bytes).unwrap();
        // SAFETY: the range is one of the file's own mappings, which nothing refers to; the file keeps what it holds.
        unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxDontneedLocked) }.unwrap();
    }
    assert_eq!(locked_pages(id), 0);
    file.recapture_in(0..2);
    assert_eq!((file.pages(), locked_pages(id)), (Pages(700), 700));
}

#[test]
fn the_soft_tier_is_released_as_a_whole_and_the_hard_one_stays() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (mut mounts, locks) = (Mounts::new().unwrap(), locks());
    let ids = [disk.file("firm", 600), disk.file("soft", 700)];
    let [mut firm, mut soft] = ids.map(|id| open(&mut mounts, id).unwrap());
    lock_all((&mut firm, &disk.at("firm")), &locks, 0..2, HARD, 600);
    soft.lock(&locks, 0..1, Blocks::ALL, HARD).unwrap();
    lock_all((&mut soft, &disk.at("soft")), &locks, 0..2, SOFT, 700);
    assert_eq!((soft.pages_in(HARD), soft.pages_in(SOFT)), (Pages(0), Pages(700)));
    locks.soft_release().release().unwrap();
    assert_eq!((firm.pages(), soft.pages()), (Pages(600), Pages(0)));
    assert_eq!(ids.map(locked_pages), [600, 0]);
    assert_eq!(soft.capture(), Pages(0));
    assert_eq!(soft.forget_released(), 0);
    lock_all((&mut soft, &disk.at("soft")), &locks, 0..2, SOFT, 700);
    locks.close().unwrap();
    assert_eq!(ids.map(locked_pages), [0, 0]);
    // For good.
    assert_eq!(firm.lock(&locks, 0..2, Blocks::ALL, HARD), Err(Refusal::Released));
    assert_eq!(ids.map(locked_pages), [0, 0]);
}

#[test]
fn a_release_while_another_thread_locks_leaves_nothing_locked() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (mut mounts, locks) = (Mounts::new().unwrap(), locks());
    let id = disk.file("soft", 4096);
    let mut file = open(&mut mounts, id).unwrap();
    for _ in 0..20 {
        let release: SoftRelease = locks.soft_release();
        let (locking, released) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until("it locks", || locking.load(Ordering::SeqCst));
                release.release().unwrap();
                released.store(true, Ordering::SeqCst);
            });
            locking.store(true, Ordering::SeqCst);
            while file.lock(&locks, 0..8, Blocks::ALL, SOFT).is_ok() && !released.load(Ordering::SeqCst) {
                file.unlock(3..6);
            }
        });
        // What was locked after the release stays, and is counted as such; before it, nothing.
        assert_eq!(Pages(locked_pages(id)), file.pages());
        file.unlock(0..8);
    }
}

#[test]
fn a_file_that_is_cut_short_or_written_to_harms_nobody() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (id, path) = (disk.file("hot", 1024), disk.at("hot"));
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    let locks = locks();
    lock_all((&mut file, &path), &locks, 0..2, HARD, 1024);
    let writer = File::options().write(true).open(&path).unwrap();
    writer.set_len(10 * PAGE_BYTES).unwrap();
    assert_eq!(file.capture(), Pages(10));
    assert_eq!(file.lock(&locks, 0..2, Blocks::ALL, HARD), Ok(Pages(10)));
    writer.set_len(0).unwrap();
    assert_eq!(file.capture(), Pages(0));
    fs::write(&path, [5; 4096]).unwrap();
    file.lock(&locks, 0..1, Blocks::ALL, HARD).unwrap();
    assert_eq!(file.pages(), Pages(1));
}

#[test]
fn locking_a_file_leaves_its_time_of_access_alone() {
    let Some(disk) = Disk::make("ext4") else { return };
    let (id, path) = (disk.file("hot", 8), disk.at("hot"));
    let long_ago = ["-a", "-d", "2001-01-01", path.to_str().unwrap()];
    crate::workingset::testing::run("touch", &long_ago).unwrap();
    let before = fs::metadata(&path).unwrap().atime();
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    file.lock(&locks(), 0..1, Blocks::ALL, HARD).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().atime(), before);
}

#[test]
fn a_removed_file_is_seen_to_have_no_name() {
    let Some(disk) = Disk::make("ext4") else { return };
    let id = disk.file("hot", 8);
    let file = open(&mut Mounts::new().unwrap(), id).unwrap();
    assert_eq!(file.links(), Ok(1));
    fs::remove_file(disk.at("hot")).unwrap();
    assert_eq!(file.links(), Ok(0));
}

#[test]
fn more_chunks_than_there_is_room_for_are_refused() {
    let Some(disk) = Disk::make("ext4") else { return };
    let id = disk.file("hot", 1024);
    let mut file = open(&mut Mounts::new().unwrap(), id).unwrap();
    let locks = Locks::with_slots(1).unwrap();
    assert_eq!(file.lock(&locks, 0..2, Blocks::ALL, HARD), Err(Refusal::Full));
    assert_eq!(file.pages(), Pages(512));
    file.unlock(0..1);
    assert_eq!(file.lock(&locks, 1..2, Blocks::ALL, HARD), Ok(Pages(512)));
}
