use super::*;
use crate::history::tests::incident;
use record::Outcome;
use std::collections::BTreeSet;

const MAX_BYTES: u64 = 1 << 20;

/// A child that another test has forked, and that has not called exec yet, holds the lock of a log closed just now.
fn open(folder: &Path) -> OpenedLog {
    for _ in 0..100 {
        match Log::open(folder, MAX_BYTES) {
            Err(HistoryError::InUse { .. }) => std::thread::sleep(std::time::Duration::from_millis(50)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the log stays in use")
}

fn write(log: &mut Log, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        log.push_incident(&mut incident(id)).unwrap();
    }
    log.commit().unwrap();
}

fn ids(path: &Path) -> Vec<u64> {
    let Some(file) = open_to_read(path).unwrap() else { return Vec::new() };
    let mut lines = Lines::new(file, 0);
    let mut ids = Vec::new();
    while let Some(line) = lines.next_line().unwrap() {
        ids.extend(record::check(line.bytes).map(|checked| checked.id));
    }
    ids
}

#[test]
fn a_new_log_starts_with_id_1_and_a_reopened_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut opened = open(folder.path());
    assert_eq!((opened.next_id, opened.repaired), (1, Repaired::default()));
    write(&mut opened.log, 1..=3);
    opened.log.push_outcome(&mut Outcome { id: 2, ..Outcome::default() }).unwrap();
    opened.log.commit().unwrap();
    drop(opened);
    let opened = open(folder.path());
    assert_eq!((opened.next_id, opened.repaired), (4, Repaired::default()));
    assert_eq!(ids(&current_path(folder.path())), [1, 2, 3, 2]);
}

#[test]
fn a_crash_at_any_byte_of_the_last_record_costs_that_record_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    let mut opened = open(folder.path());
    write(&mut opened.log, 1..=2);
    let start = opened.log.length_bytes;
    let third = || Incident { victims: Vec::new(), peers: Vec::new(), ..incident(3) };
    opened.log.push_incident(&mut third()).unwrap();
    opened.log.commit().unwrap();
    drop(opened);
    let whole = fs::read(&path).unwrap();
    for length in start..whole.len() as u64 {
        fs::write(&path, &whole[..usize::try_from(length).unwrap()]).unwrap();
        let mut opened = open(folder.path());
        let repaired = Repaired { cut_bytes: length - start, damaged_records: 0 };
        assert_eq!((opened.next_id, opened.repaired), (3, repaired), "at {length}");
        assert_eq!(fs::metadata(&path).unwrap().len(), start);
        opened.log.push_incident(&mut third()).unwrap();
        opened.log.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn zeros_that_a_power_cut_left_behind_the_last_record_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    write(&mut open(folder.path()).log, 1..=2);
    let whole = fs::read(&path).unwrap();
    let mut torn = whole.clone();
    torn.resize(whole.len() + 300_000, 0);
    fs::write(&path, torn).unwrap();
    let opened = open(folder.path());
    assert_eq!(opened.repaired, Repaired { cut_bytes: 300_000, damaged_records: 0 });
    assert_eq!((opened.next_id, fs::read(&path).unwrap()), (3, whole));
}

#[test]
fn damage_in_the_middle_is_stepped_over_and_left_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    write(&mut open(folder.path()).log, 1..=3);
    let whole = fs::read(&path).unwrap();
    let line_bytes = whole.len() / 3;
    for at in line_bytes..2 * line_bytes {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        fs::write(&path, &damaged).unwrap();
        let opened = open(folder.path());
        // A newline that is no more joins two records to one damaged line, a new one splits its record into two.
        let expected = if whole[at] == b'\n' { vec![1] } else { vec![1, 3] };
        assert_eq!(ids(&path), expected, "at {at}");
        let damaged_records = if damaged[at] == b'\n' { 2 } else { 1 };
        assert_eq!(opened.repaired, Repaired { cut_bytes: 0, damaged_records }, "at {at}");
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn a_line_longer_than_any_record_is_stepped_over_with_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    write(&mut open(folder.path()).log, [1]);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&vec![b'x'; 3 << 20]).unwrap();
    file.write_all(b"\n").unwrap();
    let opened = open(folder.path());
    assert_eq!(opened.repaired, Repaired { cut_bytes: 0, damaged_records: 1 });
    let mut lines = Lines::new(open_to_read(&path).unwrap().unwrap(), 0);
    lines.next_line().unwrap();
    assert_eq!(lines.next_line().unwrap().unwrap().bytes.len(), record::RECORD_MAX_BYTES);
    assert!(lines.next_line().unwrap().is_none());
}

#[test]
fn records_of_a_newer_version_keep_the_log_from_being_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    write(&mut open(folder.path()).log, [1]);
    let mut content = fs::read(&path).unwrap();
    content.extend_from_slice(b"plimsoll2 something else\nplimsoll1 unfinished");
    fs::write(&path, &content).unwrap();
    let error = Log::open(folder.path(), MAX_BYTES).unwrap_err();
    assert!(matches!(error, HistoryError::Future { version: 2, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn a_second_daemon_is_told_that_the_log_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let error = Log::open(folder.path(), MAX_BYTES).unwrap_err();
    assert!(matches!(error, HistoryError::InUse { .. }), "{error}");
    drop(first);
    open(folder.path());
}

#[test]
fn both_files_together_stay_under_the_cap_and_hold_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let (path, previous) = (current_path(folder.path()), previous_path(folder.path()));
    let mut log = open(folder.path()).log;
    let mut rotations = 0;
    for first in (1..=4000).step_by(20) {
        for id in first..first + 20 {
            log.push_incident(&mut incident(id)).unwrap();
        }
        rotations += u64::from(log.rotate_if_full(Timestamp::MIN).unwrap().is_some());
        log.commit().unwrap();
        let total: u64 =
            [&path, &previous].iter().map(|path| fs::metadata(path).map_or(0, |data| data.len())).sum();
        assert!(total <= MAX_BYTES, "{total} after {first}");
    }
    let kept = [ids(&previous), ids(&path)].concat();
    assert!(rotations > 2, "{rotations}");
    // The first of either stands for all before it.
    let (first, second) = (ids(&previous), ids(&path));
    assert_eq!(first[1..], (first[1]..=first[1] + first.len() as u64 - 2).collect::<Vec<_>>());
    assert_eq!(second[1..], (first.last().unwrap() + 1..=4000).collect::<Vec<_>>());
    assert!(second[0] < first[1], "{kept:?}");
    drop(log);
    // Also where the rotation was the last thing that happened.
    fs::remove_file(&path).unwrap();
    let before = *ids(&previous).last().unwrap();
    assert_eq!(open(folder.path()).next_id, before + 1);
}

#[test]
fn a_rotated_log_is_still_locked() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path(), 1).unwrap().log;
    write(&mut log, [1]);
    log.push_incident(&mut incident(2)).unwrap();
    assert_eq!(
        log.rotate_if_full(Timestamp::MIN).unwrap(),
        Some(Forgotten { up_to: 0, kept: BTreeSet::new() })
    );
    assert!(matches!(Log::open(folder.path(), 1), Err(HistoryError::InUse { .. })));
}

#[test]
fn a_rotation_that_a_crash_ended_half_way_is_ended_by_the_next_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (path, next) = (current_path(folder.path()), next_path(folder.path()));
    write(&mut open(folder.path()).log, 1..=3);
    // The file had become the predecessor, and the one that holds what was kept not yet the file.
    fs::rename(&path, previous_path(folder.path())).unwrap();
    let mut kept = Vec::new();
    record::encode_incident(&mut kept, &mut incident(1)).unwrap();
    fs::write(&next, &kept).unwrap();
    fs::set_permissions(&next, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(open(folder.path()).next_id, 4);
    assert_eq!((ids(&path), next.exists()), (vec![1], false));
}

#[test]
fn the_predecessor_is_dropped_when_all_of_it_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path()).log;
    let (previous, day) = (previous_path(folder.path()), Duration::from_secs(86_400));
    let now = SystemTime::now();
    log.drop_outdated(now, day).unwrap();
    fs::write(&previous, "").unwrap();
    log.drop_outdated(now - 2 * day, day).unwrap();
    log.drop_outdated(now, day).unwrap();
    assert!(previous.exists());
    log.drop_outdated(now + 2 * day, day).unwrap();
    assert!(!previous.exists());
}

#[test]
fn a_record_is_found_again_only_where_it_was_and_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = current_path(folder.path());
    let mut log = open(folder.path()).log;
    write(&mut log, [1]);
    let start = log.length_bytes;
    write(&mut log, [2, 3]);
    let file = || open_to_read(&path).unwrap().unwrap();
    let mut lines = resume_behind(file(), 0, checksum_at(&path, 0)).unwrap().unwrap();
    assert_eq!(lines.next_line().unwrap().unwrap().start, start);
    let second = checksum_at(&path, start);
    let mut lines = resume_behind(file(), start, second).unwrap().unwrap();
    assert_eq!(record::check(lines.next_line().unwrap().unwrap().bytes).unwrap().id, 3);
    assert!(lines.next_line().unwrap().is_none());
    for (start, checksum) in [(start, second ^ 1), (start + 1, second), (0, second), (1 << 40, second)] {
        assert!(resume_behind(file(), start, checksum).unwrap().is_none());
    }
}

fn checksum_at(path: &Path, start: u64) -> u32 {
    let mut file = open_to_read(path).unwrap().unwrap();
    file.seek(SeekFrom::Start(start)).unwrap();
    let mut lines = Lines::new(file, start);
    let line = lines.next_line().unwrap().unwrap();
    record::check(line.bytes).unwrap().checksum
}

#[test]
fn what_cannot_be_written_is_lost_whole_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path()).log;
    write(&mut log, [1]);
    // A file that is not open for writing fails as a full disk does.
    let writable = std::mem::replace(&mut log.file, File::open(current_path(folder.path())).unwrap());
    log.push_incident(&mut incident(2)).unwrap();
    log.push_incident(&mut incident(3)).unwrap();
    let (lost, _) = log.commit().unwrap_err();
    assert_eq!((lost, log.pending_bytes()), (2, 0));
    log.file = writable;
    write(&mut log, [4]);
    assert_eq!(ids(&current_path(folder.path())), [1, 4]);
}

#[test]
fn what_a_failed_write_left_behind_the_last_whole_record_is_taken_back() {
    use nix::{
        fcntl::{FcntlArg, SealFlag, fcntl},
        sys::memfd::{MFdFlags, memfd_create},
    };
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path()).log;
    // A file that may shrink and not grow, with the first half of a record at its end: a disk that filled up.
    let mut file = File::from(memfd_create("log", MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.write_all(b"whole\nhalf of").unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
    (log.file, log.length_bytes) = (file, 6);
    log.push_incident(&mut incident(1)).unwrap();
    let (lost, _) = log.commit().unwrap_err();
    assert_eq!((lost, log.file.metadata().unwrap().len()), (1, 6));
}
