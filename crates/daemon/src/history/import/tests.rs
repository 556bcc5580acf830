use super::*;
use crate::history::{
    Caps, Counts, History, PAGE_MAX,
    tests::{CAPS, SOON, all_ids, incident, open, open_with},
};
use proptest::prelude::*;
use std::{fs, os::unix::fs::PermissionsExt};

fn line(kind: &str, id: u64, json: &serde_json::Value) -> String {
    let body = format!("{kind} {id} {json}");
    format!("plimsoll1 {:08x} {body}\n", crc32fast::hash(body.as_bytes()))
}

fn told(incident: &Incident) -> String {
    line("incident", incident.id, &serde_json::to_value(incident).unwrap())
}

fn outcome(id: u64, freed_bytes: u64) -> String {
    let json = serde_json::json!({"id": id, "signal_to_freed_ns": null, "freed_bytes": freed_bytes});
    line("outcome", id, &json)
}

/// A file as an earlier version left it.
fn leave(folder: &Path, name: &str, text: impl AsRef<[u8]>) {
    fs::write(folder.join(name), text).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// The database that was built from the log, as far as this version reads it.
fn leave_database(folder: &Path, ids: impl IntoIterator<Item = u64>) {
    leave(folder, DATABASE, "");
    let connection = rusqlite::Connection::open(folder.join(DATABASE)).unwrap();
    let schema = "CREATE TABLE incident(id INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
        CREATE TABLE course(incident_id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT; PRAGMA user_version = 2";
    connection.execute_batch(schema).unwrap();
    for id in ids {
        let body = serde_json::to_string(&incident(id)).unwrap();
        let sql = "INSERT INTO incident VALUES (?1, ?2, ?3)";
        connection.execute(sql, rusqlite::params![id.cast_signed(), 0, body]).unwrap();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.retain(|name| !name.starts_with("incidents.sqlite"));
    names
}

#[test]
fn what_earlier_versions_kept_is_taken_in_once_and_their_files_go() {
    let folder = tempfile::tempdir().unwrap();
    let older: Vec<String> = (1..=3).map(|id| told(&incident(id))).collect();
    leave(folder.path(), LOGS[0], older.concat() + &outcome(2, 7));
    leave(folder.path(), LOGS[1], told(&incident(4)) + &outcome(4, 8) + &outcome(1, 9));
    leave_database(folder.path(), 1..=4);
    for _ in 0..2 {
        let history = open(folder.path());
        assert_eq!((history.next_id, history.written_below), (5, 5));
        assert_eq!(all_ids(&history), [1, 2, 3, 4]);
        let freed = [1, 2, 3, 4].map(|id| history.reader.by_id(id).unwrap().unwrap().freed_bytes);
        assert_eq!(freed, [Some(9), Some(7), None, Some(8)]);
        assert_eq!(history.writer.counts(), Counts::default());
        assert_eq!(names(folder.path()), [""; 0]);
        history.writer.close(SOON).unwrap();
    }
}

#[test]
fn a_log_that_was_taken_in_and_is_still_there_is_taken_in_no_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let text = told(&incident(1)) + &outcome(1, 9);
    leave(folder.path(), LOGS[1], &text);
    open(folder.path()).writer.close(SOON).unwrap();
    // As after a power cut between the commit and the removal.
    leave(folder.path(), LOGS[1], &text);
    let history = open(folder.path());
    assert_eq!((all_ids(&history), history.next_id), (vec![1], 2));
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_log_with_damage_gives_all_its_other_records_and_is_set_aside() {
    let whole = [1, 2, 3].map(|id| told(&incident(id)));
    let length = whole[1].len();
    for at in [0, 9, 10, 17, 30, length - 2] {
        let folder = tempfile::tempdir().unwrap();
        let mut damaged = whole.concat().into_bytes();
        damaged[whole[0].len() + at] ^= 0x04;
        leave(folder.path(), LOGS[1], &damaged);
        let history = open(folder.path());
        assert_eq!((all_ids(&history), history.next_id), (vec![1, 3], 4), "at {at}");
        assert_eq!(names(folder.path()), ["incidents.log.damaged-1"]);
        assert_eq!(fs::read(folder.path().join("incidents.log.damaged-1")).unwrap(), damaged);
    }
}

#[test]
fn an_unfinished_record_and_a_line_longer_than_any_are_passed_over() {
    for end in
        ["plimsoll1 0123".to_owned(), "x".repeat(3 << 20) + "\n", told(&incident(2)).trim_end().to_owned()]
    {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), LOGS[1], told(&incident(1)) + &end);
        let history = open(folder.path());
        assert_eq!((all_ids(&history), history.next_id), (vec![1], 2));
        assert_eq!(names(folder.path()), ["incidents.log.damaged-1"]);
    }
}

#[test]
fn records_of_a_newer_version_keep_the_daemon_from_starting_and_the_files_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let text = told(&incident(1)) + "plimsoll2 something else\nplimsoll1 unfinished";
    leave(folder.path(), LOGS[1], &text);
    let error = History::open(folder.path(), CAPS, |_| {}).unwrap_err();
    assert!(matches!(error, HistoryError::Future { version: 2, .. }), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join(LOGS[1])).unwrap(), text);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn without_a_log_the_database_is_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    leave_database(folder.path(), 5..=300);
    let history = open(folder.path());
    assert_eq!((all_ids(&history), history.next_id), ((5..=300).collect(), 301));
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn what_an_incident_of_another_time_has_the_number_of_stays_outside() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    history.writer.record(incident(1));
    history.writer.close(SOON).unwrap();
    // An older plimsoll was installed again, and began to count anew.
    let theirs = Incident { time: incident(77).time, ..incident(1) };
    leave(folder.path(), LOGS[1], told(&theirs) + &outcome(1, 5) + &told(&incident(2)));
    let history = open(folder.path());
    assert_eq!(all_ids(&history), [1, 2]);
    assert_eq!(history.reader.by_id(1).unwrap(), Some(incident(1)));
    assert_eq!(names(folder.path()), ["incidents.log.damaged-1"]);
}

#[test]
fn what_is_taken_in_has_the_same_caps() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (1..=3000).map(|id| told(&incident(id))).collect();
    leave(folder.path(), LOGS[1], lines.concat());
    let caps = Caps { max_bytes: 1 << 20, ..CAPS };
    let history = open_with(folder.path(), caps);
    let pages: Vec<Incident> = history.reader.pages(None, PAGE_MAX).flat_map(Result::unwrap).collect();
    assert_eq!(pages.iter().map(|one| one.unrecorded.unwrap_or(1)).sum::<u64>(), 3000);
    history.writer.close(SOON).unwrap();
    let length = fs::metadata(store::path(folder.path())).unwrap().len();
    assert!(length <= caps.max_bytes, "{length}");
}

#[test]
fn no_single_bit_can_change_without_being_noticed_and_no_shorter_line_is_a_record() {
    let line = told(&incident(42)).into_bytes();
    for at in 0..line.len() {
        for bit in 0..8 {
            let mut changed = line.clone();
            changed[at] ^= 1 << bit;
            check(&changed).unwrap_err();
        }
        check(&line[..at]).unwrap_err();
    }
    assert_eq!(check(&line).unwrap().id, 42);
}

#[test]
fn a_newer_version_is_told_from_damage() {
    assert_eq!(check(b"plimsoll2 whatever\n"), Err(Unread::Future(2)));
    assert_eq!(check(b"plimsoll18446744073709551615 \n"), Err(Unread::Future(u64::MAX)));
    for damaged in [
        "",
        "\n",
        " \n",
        "plimsoll\n",
        "plimsoll1\n",
        "plimsoll2\n",
        "plimsoll2 ",
        "plimsoll1  \n",
        "Plimsoll1 0 \n",
    ] {
        assert_eq!(check(damaged.as_bytes()), Err(Unread::Damaged), "{damaged:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>, body: Vec<u8>, kind in "incident|outcome", id: u64) {
        prop_assert!(decode(&bytes).is_none());
        let mut content = format!("{kind} {id} ").into_bytes();
        content.extend_from_slice(&body);
        let mut line = format!("plimsoll1 {:08x} ", crc32fast::hash(&content)).into_bytes();
        line.extend_from_slice(&content);
        line.push(b'\n');
        // Whole by its checksum, so that the JSON decoder gets to see it.
        prop_assert!(decode(&line).is_none());
    }
}
