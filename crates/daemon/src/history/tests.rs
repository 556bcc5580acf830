use super::*;

mod course;
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Outcome as Action, Trigger, Victim},
    units::{Pid, Uid},
};
use std::{fs, time::SystemTime};

/// Names as processes may give themselves, after what is not UTF-8 was replaced.
pub(super) const HOSTILE: &[&str] = &[
    "",
    "plain",
    ") Z 1 (",
    "a\nplimsoll1 00000000 incident 1 {}\n",
    "\"quoted\" \\ back'tick`",
    "\u{0}\u{1}\u{7}\u{8}\t\r\u{1b}[31mred\u{7f}",
    "C1 \u{9b}31m",
    "right to left \u{202e}\u{2066}",
    "line \u{2028} paragraph \u{2029}",
    "replaced \u{fffd}\u{fffd}",
    "beyond the basic plane \u{1f4a3}",
    "'); DROP TABLE incident; --",
];

const SOON: Duration = Duration::from_secs(20);

/// 2026-11-21T00:00:00Z, and a second later for each id.
pub(super) fn time_of(id: u64) -> Timestamp {
    Timestamp::from_second(1_795_219_200 + i64::try_from(id % 100_000).unwrap()).unwrap()
}

pub(super) fn incident(id: u64) -> Incident {
    let victim = |pid| Victim {
        pid: Pid(pid),
        start_ns: 123_456_789,
        uid: Uid(60_001),
        comm: "hog".to_owned(),
        cmdline: Some("/usr/bin/hog --size 1G".to_owned()),
        cgroup: Some("/user.slice/user-60001.slice".to_owned()),
        usage_bytes: 300 << 20,
        weight_permille: None,
        session: false,
    };
    Incident {
        id,
        time: time_of(id),
        account: Some(Account::User(Uid(60_001))),
        guard: Guard::Limits,
        trigger: Trigger::InKernel,
        action: Action::Kill,
        victims: vec![victim(u32::try_from(id % 1000).unwrap() + 5000)],
        usage_bytes: 300 << 20,
        hard_bytes: Some(256 << 20),
        overshoot_bytes: 44 << 20,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: Some(9_000),
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: "over-hard-limit-largest".to_owned(),
        peers: vec![victim(2), victim(3)],
        origin: None,
        course: None,
    }
}

/// Far more than any test needs; the incidents of the tests may lie in the past or in the future.
const CAPS: Caps =
    Caps { max_bytes: 64 << 20, max_age: Duration::from_secs(1 << 33), max_incidents: 1 << 30 };

fn open_with(folder: &Path, caps: Caps) -> History {
    History::open(folder, caps, |_| {}).unwrap()
}

fn open(folder: &Path) -> History {
    open_with(folder, CAPS)
}

/// Records and waits, a queue at a time.
fn record(history: &History, ids: impl IntoIterator<Item = u64>) {
    for (number, id) in ids.into_iter().enumerate() {
        if number % (QUEUE_MAX / 2) == 0 {
            history.writer.flush(SOON).unwrap();
        }
        history.writer.record(incident(id));
    }
    history.writer.flush(SOON).unwrap();
}

fn all(history: &History) -> Vec<Incident> {
    history.reader.pages(None, PAGE_MAX).flat_map(Result::unwrap).collect()
}

fn all_ids(history: &History) -> Vec<u64> {
    all(history).iter().map(|incident| incident.id).collect()
}

fn clean() -> Counts {
    Counts::default()
}

#[test]
fn what_was_recorded_is_found_by_id_pid_time_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    assert_eq!((history.next_id, history.reader.last().unwrap()), (1, None));
    record(&history, 1..=1100);
    let reader = &history.reader;
    assert_eq!(reader.by_id(1).unwrap(), Some(incident(1)));
    assert_eq!(reader.by_id(1101).unwrap(), None);
    assert_eq!(reader.by_id(u64::MAX).unwrap(), None);
    assert_eq!(reader.last().unwrap(), Some(incident(1100)));
    // 50 and 1050 have the same victim pid.
    assert_eq!(reader.by_pid(Pid(5050)).unwrap(), Some(incident(1050)));
    assert_eq!(reader.by_pid(Pid(5999)).unwrap(), Some(incident(999)));
    assert_eq!(reader.by_pid(Pid(2)).unwrap(), None);
    let ids = |query: Query| reader.query(&query).unwrap().iter().map(|found| found.id).collect::<Vec<_>>();
    assert_eq!(ids(Query { limit: 3, ..Query::default() }), [1098, 1099, 1100]);
    assert_eq!(ids(Query { limit: 2, before_id: Some(10), since: None }), [8, 9]);
    assert_eq!(ids(Query { limit: 9, before_id: Some(10), since: Some(time_of(8)) }), [8, 9]);
    assert_eq!(ids(Query { limit: 9, before_id: None, since: Some(time_of(1101)) }), [0; 0]);
    assert_eq!(ids(Query { limit: 0, ..Query::default() }), [0; 0]);
    assert_eq!(ids(Query { limit: usize::MAX, ..Query::default() }).len(), PAGE_MAX);
    assert_eq!(all_ids(&history), (1..=1100).collect::<Vec<_>>());
    let pages: Vec<usize> = reader.pages(Some(time_of(1001)), 40).map(|page| page.unwrap().len()).collect();
    assert_eq!(pages, [40, 40, 20]);
    reader.close();
    assert_eq!(reader.by_id(2).unwrap(), Some(incident(2)));
    assert_eq!(history.writer.counts(), clean());
}

#[test]
fn outcomes_complete_their_incidents_whenever_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let told = |id, ns, bytes| Outcome { id, signal_to_freed_ns: ns, freed_bytes: bytes, course: None };
    history.writer.record(incident(1));
    history.writer.outcome(told(1, Some(11), None));
    history.writer.record(incident(2));
    history.writer.flush(SOON).unwrap();
    history.writer.outcome(told(2, Some(22), Some(4096)));
    history.writer.outcome(told(1, None, Some(8192)));
    history.writer.outcome(told(77, Some(1), Some(1)));
    history.writer.flush(SOON).unwrap();
    let expect = |history: &History| {
        for (id, ns, bytes) in [(1, 11, 8192), (2, 22, 4096)] {
            let found = history.reader.by_id(id).unwrap().unwrap();
            assert_eq!((found.signal_to_freed_ns, found.freed_bytes), (Some(ns), Some(bytes)), "{id}");
        }
    };
    expect(&history);
    assert_eq!(history.writer.counts(), Counts { unmatched: 1, ..clean() });
    history.writer.close(SOON).unwrap();
    store::remove(folder.path()).unwrap();
    expect(&open(folder.path()));
}

#[test]
fn hostile_names_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let told = |id: usize, name: &str| {
        let mut told = incident(id as u64);
        told.victims[0].comm = name.to_owned();
        told.victims[0].cmdline = Some(name.to_owned());
        told.victims[0].cgroup = Some(name.to_owned());
        told
    };
    for (id, name) in HOSTILE.iter().enumerate() {
        history.writer.record(told(id + 1, name));
    }
    history.writer.flush(SOON).unwrap();
    for (id, name) in HOSTILE.iter().enumerate() {
        assert_eq!(history.reader.by_id(id as u64 + 1).unwrap(), Some(told(id + 1, name)));
    }
    let log = fs::read_to_string(log::current_path(folder.path())).unwrap();
    assert_eq!(log.lines().count(), HOSTILE.len());
}

#[test]
fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::MetadataExt;
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("state");
    let history = open(&folder);
    record(&history, 1..=3);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.path());
        seen += 1;
    }
    // The log, the database, and its two companions.
    assert_eq!(seen, 4);
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    let (log, database) = (log::current_path(folder.path()), store::path(folder.path()));
    std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
    assert!(matches!(
        History::open(folder.path(), CAPS, |_| {}),
        Err(HistoryError::State(StateError::NotAFile { .. }))
    ));
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &database).unwrap();
    let history = open(folder.path());
    record(&history, [1]);
    assert!(matches!(history.reader.last(), Err(HistoryError::Unusable { .. })));
    assert!(history.writer.counts().database_errors > 0);
    assert!(history.writer.last_error().unwrap().contains("not a plain file"));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
    // The log went on, and the database follows as soon as it can.
    fs::remove_file(&database).unwrap();
    record(&history, [2]);
    assert_eq!(all_ids(&history), [1, 2]);
}

/// Fills a folder, closes it, lets `change` loose on it, and opens it again.
fn after(change: impl FnOnce(&Path)) -> (tempfile::TempDir, History) {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    record(&history, 1..=300);
    history.writer.outcome(Outcome {
        id: 300,
        signal_to_freed_ns: Some(1),
        freed_bytes: Some(2),
        course: None,
    });
    history.writer.close(SOON).unwrap();
    change(folder.path());
    let history = open(folder.path());
    (folder, history)
}

fn assert_whole(history: &History, rebuilds: u64) {
    assert_eq!(history.next_id, 301);
    assert_eq!(all_ids(history), (1..=300).collect::<Vec<_>>());
    assert_eq!(history.reader.by_id(300).unwrap().unwrap().freed_bytes, Some(2));
    assert_eq!(history.writer.counts(), Counts { rebuilds, ..clean() });
    record(history, [301]);
    assert_eq!(history.reader.last().unwrap(), Some(incident(301)));
}

fn execute(folder: &Path, sql: &str) {
    rusqlite::Connection::open(store::path(folder)).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_sound_database_is_taken_as_it_is() {
    // A mark that a new database would not have.
    let (folder, history) = after(|folder| execute(folder, "PRAGMA application_id = 4711"));
    assert_whole(&history, 0);
    let connection = store::connect_to_read(&store::path(folder.path())).unwrap();
    assert_eq!(connection.pragma_query_value(None, "application_id", |row| row.get(0)), Ok(4711));
}

#[test]
fn a_missing_database_is_built_from_the_log() {
    let (_folder, history) = after(|folder| store::remove(folder).unwrap());
    assert_whole(&history, 0);
}

#[test]
fn a_database_of_another_schema_is_built_again() {
    for version in [0, 1, 3] {
        let (_folder, history) = after(|folder| execute(folder, &format!("PRAGMA user_version = {version}")));
        assert_whole(&history, 1);
    }
}

#[test]
fn a_database_without_its_tables_is_built_again() {
    for table in ["incident", "victim", "course", "taken_in"] {
        let (_folder, history) = after(|folder| execute(folder, &format!("DROP TABLE {table}")));
        // What only outcomes and new incidents touch shows when the next one comes.
        record(&history, [301]);
        assert_eq!(all_ids(&history), (1..=301).collect::<Vec<_>>(), "{table}");
        assert_eq!(history.writer.counts(), Counts { rebuilds: 1, ..clean() }, "{table}");
        assert_eq!(history.reader.by_pid(Pid(5007)).unwrap(), Some(incident(7)), "{table}");
    }
}

#[test]
fn a_file_that_is_no_database_is_built_again() {
    // SQLite takes less than a header for an empty database, which is filled without any fuss.
    for (length, rebuilds) in [(1, 0), (100, 1), (10_000, 1)] {
        let (_folder, history) = after(|folder| fs::write(store::path(folder), "x".repeat(length)).unwrap());
        assert_whole(&history, rebuilds);
    }
}

#[test]
fn a_damaged_page_found_by_a_query_has_the_database_built_again() {
    let (_folder, history) = after(|folder| {
        let path = store::path(folder);
        let mut bytes = fs::read(&path).unwrap();
        // All but the first page, which holds the schema.
        bytes[4096..].fill(0x5a);
        fs::write(&path, bytes).unwrap();
    });
    let deadline = std::time::Instant::now() + SOON;
    let found = loop {
        match history.reader.by_id(7) {
            Ok(found) => break found,
            Err(HistoryError::Building) if std::time::Instant::now() < deadline => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found, Some(incident(7)));
    assert!(history.writer.counts().rebuilds > 0);
    assert_eq!(all_ids(&history), (1..=300).collect::<Vec<_>>());
}

#[test]
fn a_body_that_is_no_incident_has_the_database_built_again() {
    let (_folder, history) = after(|folder| execute(folder, "UPDATE incident SET body = '{}' WHERE id = 7"));
    assert!(matches!(history.reader.by_id(7), Err(HistoryError::Building)));
    history.writer.flush(SOON).unwrap();
    assert_whole(&history, 1);
}

#[test]
fn a_database_that_lags_behind_the_log_catches_up() {
    let (folder, history) =
        after(|folder| fs::copy(store::path(folder), folder.join("old")).map(drop).unwrap());
    record(&history, 301..=350);
    history.writer.outcome(Outcome {
        id: 5,
        signal_to_freed_ns: Some(5),
        freed_bytes: Some(5),
        course: None,
    });
    history.writer.close(SOON).unwrap();
    store::remove(folder.path()).unwrap();
    fs::rename(folder.path().join("old"), store::path(folder.path())).unwrap();
    let history = open(folder.path());
    assert_eq!(all_ids(&history), (1..=350).collect::<Vec<_>>());
    assert_eq!(history.reader.by_id(5).unwrap().unwrap().freed_bytes, Some(5));
    assert_eq!(history.writer.counts(), clean());
}

#[test]
fn a_database_of_another_log_is_built_again() {
    let (_folder, history) = after(|folder| {
        let path = log::current_path(folder);
        let text = fs::read_to_string(&path).unwrap();
        let kept: Vec<&str> = text.lines().take(10).collect();
        fs::write(&path, kept.join("\n") + "\n").unwrap();
    });
    assert_eq!((history.next_id, all_ids(&history)), (11, (1..=10).collect()));
    assert_eq!(history.writer.counts(), Counts { rebuilds: 1, ..clean() });
}

#[test]
fn a_torn_record_is_cut_off_and_counted_and_the_next_one_takes_its_id() {
    let (folder, history) = after(|folder| {
        let path = log::current_path(folder);
        let mut bytes = fs::read(&path).unwrap();
        let torn = bytes.len() / 1000;
        bytes.extend_from_within(..torn);
        fs::write(&path, bytes).unwrap();
    });
    assert!(history.repaired.cut_bytes > 0);
    assert_whole(&history, 0);
    drop(folder);
}

#[test]
fn the_database_holds_no_more_than_the_log_and_ids_go_on_across_rotations() {
    let folder = tempfile::tempdir().unwrap();
    let caps = Caps { max_bytes: 1 << 20, ..CAPS };
    let history = open_with(folder.path(), caps);
    record(&history, 1..=3000);
    let ids = all_ids(&history);
    // Each file begins with a record that stands for what went before it.
    assert!(ids[0] > 500, "{}", ids[0]);
    assert_eq!(ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len());
    let told = |incident: &Incident| incident.unrecorded.unwrap_or(1);
    assert_eq!(all(&history).iter().map(told).sum::<u64>(), 3000);
    assert_eq!(history.writer.counts(), clean());
    history.writer.close(SOON).unwrap();
    store::remove(folder.path()).unwrap();
    let again = open_with(folder.path(), caps);
    assert_eq!((again.next_id, all_ids(&again)), (3001, ids));
}

#[test]
fn more_incidents_than_the_cap_push_the_oldest_out() {
    let folder = tempfile::tempdir().unwrap();
    let history = open_with(folder.path(), Caps { max_incidents: 20, ..CAPS });
    record(&history, 1..=50);
    record(&history, 51..=55);
    assert_eq!(all_ids(&history), (36..=55).collect::<Vec<_>>());
    assert_eq!(history.reader.by_pid(Pid(5010)).unwrap(), None);
    let connection = store::connect_to_read(&store::path(folder.path())).unwrap();
    let victims = connection.query_row("SELECT count(*) FROM victim", [], |row| row.get::<_, i64>(0));
    assert_eq!(victims, Ok(20), "victims of forgotten incidents are left");
    // An incident that is replaced counts once.
    record(&history, [55, 55, 55]);
    assert_eq!(all_ids(&history).len(), 20);
}

/// Of somebody else than [`incident`]'s account.
fn incident_of(user: u32, id: u64) -> Incident {
    Incident { account: Some(Account::User(Uid(user))), ..incident(id) }
}

#[test]
fn one_users_flood_pushes_nobody_elses_incidents_out_and_what_went_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let caps = Caps { max_bytes: 1 << 20, ..CAPS };
    let history = open_with(folder.path(), caps);
    let others = [(60_002, 1), (60_003, 2), (60_002, 3)];
    for (user, id) in others {
        history.writer.record(incident_of(user, id));
        history.writer.outcome(Outcome { id, freed_bytes: Some(7), ..Outcome::default() });
    }
    // Nobody's line, but somebody's processes: the kernel kills as often as one wants.
    let mut theirs = Incident { account: None, guard: Guard::Kernel, ..incident(4) };
    theirs.victims[0].uid = Uid(60_004);
    history.writer.record(theirs);
    record(&history, 5..=6000);
    let assert_told = |history: &History| {
        let all = all(history);
        let known: Vec<u64> = all.iter().map(|one| one.id).filter(|id| *id <= 4).collect();
        assert_eq!(known, [1, 2, 3, 4]);
        let freed = |id| history.reader.by_id(id).unwrap().unwrap().freed_bytes;
        assert_eq!(others.map(|(_, id)| freed(id)), [Some(7); 3]);
        assert_eq!(all.last().unwrap().id, 6000);
        assert!(all.len() > 400, "{}", all.len());
        assert_eq!(all.iter().map(|one| one.unrecorded.unwrap_or(1)).sum::<u64>(), 6000);
        let folds = all.iter().filter(|one| one.reason == "incidents-folded");
        assert!(folds.clone().all(|one| one.account == incident(1).account) && folds.count() <= 2);
        all.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    let ids = assert_told(&history);
    assert_eq!(history.writer.counts(), clean());
    history.writer.close(SOON).unwrap();
    store::remove(folder.path()).unwrap();
    let again = open_with(folder.path(), caps);
    assert_eq!((again.next_id, assert_told(&again)), (6001, ids));
}

#[test]
fn more_incidents_than_the_cap_push_out_those_of_who_has_most() {
    let folder = tempfile::tempdir().unwrap();
    let history = open_with(folder.path(), Caps { max_incidents: 20, ..CAPS });
    history.writer.record(incident_of(60_002, 1));
    record(&history, 2..=50);
    history.writer.record(incident_of(60_002, 51));
    history.writer.flush(SOON).unwrap();
    assert_eq!(all_ids(&history), [vec![1], (33..=51).collect()].concat());
}

#[test]
fn incidents_older_than_the_cap_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let history = open_with(folder.path(), Caps { max_age: 10 * hour, ..CAPS });
    for (id, age) in [(1, 12 * hour), (2, 8 * hour), (3, 11 * hour), (4, Duration::ZERO)] {
        let mut told = incident(id);
        let since_1970 = (SystemTime::now() - age).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        told.time = Timestamp::from_second(i64::try_from(since_1970.as_secs()).unwrap()).unwrap();
        history.writer.record(told);
    }
    history.writer.flush(SOON).unwrap();
    assert_eq!(all_ids(&history), [2, 4]);
}

#[test]
fn what_is_added_to_an_incident_is_added_before_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut called = 0;
    let history = History::open(folder.path(), CAPS, move |incident| {
        called += 1;
        incident.victims[0].cgroup = Some(format!("/added/{called}"));
    })
    .unwrap();
    record(&history, 1..=2);
    history.writer.outcome(Outcome { id: 1, signal_to_freed_ns: Some(1), ..Outcome::default() });
    history.writer.flush(SOON).unwrap();
    for id in 1..=2 {
        let found = history.reader.by_id(id).unwrap().unwrap();
        assert_eq!(found.victims[0].cgroup, Some(format!("/added/{id}")));
    }
}

#[test]
fn a_full_queue_is_counted_and_never_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (go, gate) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let history = History::open(folder.path(), CAPS, move |incident| {
        if incident.id == 1 {
            entered.send(()).unwrap();
            gate.recv().unwrap();
        }
    })
    .unwrap();
    history.writer.record(incident(1));
    inside.recv().unwrap();
    // The thread is stuck in the first one; the queue takes its fill and the rest is dropped.
    for id in 2..2 + QUEUE_MAX as u64 + 10 {
        history.writer.record(incident(id));
    }
    assert_eq!(history.writer.dropped(), 10);
    let too_slow = history.writer.flush(Duration::from_millis(20));
    assert!(matches!(too_slow, Err(HistoryError::TooSlow(_))));
    go.send(()).unwrap();
    history.writer.flush(SOON).unwrap();
    assert_eq!(all_ids(&history), (1..=QUEUE_MAX as u64 + 1).collect::<Vec<_>>());
}

#[test]
fn after_closing_nothing_is_taken_and_the_folder_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    assert!(matches!(History::open(folder.path(), CAPS, |_| {}), Err(HistoryError::InUse { .. })));
    history.writer.record(incident(1));
    history.writer.close(SOON).unwrap();
    history.writer.record(incident(2));
    assert_eq!(history.writer.dropped(), 1);
    assert!(matches!(history.writer.flush(SOON), Err(HistoryError::Closed)));
    assert!(matches!(history.reader.last(), Err(HistoryError::Unusable { .. })));
    assert_eq!(all_ids(&open(folder.path())), [1]);
}

#[test]
fn what_was_recorded_between_asking_to_close_and_closing_is_counted_as_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (go, gate) = mpsc::channel::<()>();
    let history = History::open(folder.path(), CAPS, move |_| gate.recv().unwrap()).unwrap();
    history.writer.record(incident(1));
    assert!(matches!(history.writer.close(Duration::from_millis(20)), Err(HistoryError::TooSlow(_))));
    history.writer.record(incident(2));
    history.writer.record(incident(3));
    assert_eq!(history.writer.dropped(), 0);
    go.send(()).unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while history.writer.dropped() == 0 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(history.writer.dropped(), 2);
}

#[test]
fn an_incident_whose_id_is_out_of_range_is_counted_as_unwritten() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    history.writer.record(incident(0));
    history.writer.record(incident(1));
    history.writer.flush(SOON).unwrap();
    assert_eq!(history.writer.counts(), Counts { unwritten: 1, ..clean() });
    assert_eq!(all_ids(&history), [1]);
}
