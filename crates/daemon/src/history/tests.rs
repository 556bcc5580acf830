use super::*;

mod course;
mod refused;
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Outcome as Action, Trigger, Victim},
    units::{Pid, Uid},
};
use std::{path::PathBuf, time::Duration};

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

pub(super) const SOON: Duration = Duration::from_secs(20);

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
        jobs: Vec::new(),
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
        compaction: None,
        course: None,
    }
}

/// Far more than any test needs; the incidents of the tests may lie in the past or in the future.
pub(super) const CAPS: Caps =
    Caps { max_bytes: 64 << 20, max_age: Duration::from_secs(1 << 33), max_incidents: 1 << 30 };

/// A child that another test has forked, and that has not called exec yet, holds the lock of a folder closed just now.
pub(super) fn open_with(folder: &Path, caps: Caps) -> History {
    for _ in 0..100 {
        match History::open(folder, caps, |_| {}) {
            Err(HistoryError::InUse { .. }) => std::thread::sleep(Duration::from_millis(50)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the folder stays in use")
}

pub(super) fn open(folder: &Path) -> History {
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

pub(super) fn all_ids(history: &History) -> Vec<u64> {
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
    assert_eq!(ids(Query { limit: 9, after_id: 1098, ..Query::default() }), [1099, 1100]);
    assert_eq!(ids(Query { limit: 1, after_id: 1098, ..Query::default() }), [1100]);
    assert_eq!(ids(Query { limit: 9, after_id: u64::MAX, ..Query::default() }), [0; 0]);
    assert_eq!(ids(Query { limit: 2, before_id: Some(10), ..Query::default() }), [8, 9]);
    assert_eq!(
        ids(Query { limit: 9, before_id: Some(10), since: Some(time_of(8)), ..Query::default() }),
        [8, 9]
    );
    assert_eq!(ids(Query { limit: 9, since: Some(time_of(1101)), ..Query::default() }), [0; 0]);
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
    // The database, and its two companions.
    assert_eq!(seen, 3);
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    for name in ["incidents.sqlite", "incidents.log", "history.sqlite"] {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(name)).unwrap();
        assert!(matches!(
            History::open(folder.path(), CAPS, |_| {}),
            Err(HistoryError::State(StateError::NotAFile { .. }))
        ));
        assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
        fs::remove_file(folder.path().join(name)).unwrap();
        let history = open(folder.path());
        record(&history, [1]);
        assert_eq!(all_ids(&history), [1]);
    }
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

fn assert_whole(history: &History, set_aside: u64) {
    assert_eq!(history.next_id, 301);
    assert_eq!(all_ids(history), (1..=300).collect::<Vec<_>>());
    assert_eq!(history.reader.by_id(300).unwrap().unwrap().freed_bytes, Some(2));
    assert_eq!(history.writer.counts(), Counts { set_aside, errors: set_aside, ..clean() });
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

/// The file that was set aside first.
fn aside(folder: &Path) -> PathBuf {
    folder.join("incidents.sqlite.damaged-1")
}

#[test]
fn a_file_of_a_newer_version_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    record(&history, [1]);
    history.writer.close(SOON).unwrap();
    execute(folder.path(), "PRAGMA user_version = 2");
    let before = fs::read(store::path(folder.path())).unwrap();
    let error = History::open(folder.path(), CAPS, |_| {}).unwrap_err();
    assert!(matches!(error, HistoryError::Future { version: 2, known: 1, .. }), "{error}");
    assert_eq!(fs::read(store::path(folder.path())).unwrap(), before);
    execute(folder.path(), "PRAGMA user_version = 1");
    assert_eq!(all_ids(&open(folder.path())), [1]);
}

#[test]
fn a_file_that_lost_its_version_is_set_aside_and_what_it_holds_is_taken_over() {
    let (folder, history) = after(|folder| execute(folder, "PRAGMA user_version = 0"));
    // The first query waits until that is done.
    assert_eq!(all_ids(&history).len(), 300);
    assert_whole(&history, 1);
    assert!(aside(folder.path()).exists());
    assert!(history.writer.last_error().unwrap().contains("incidents.sqlite.damaged-1"));
}

#[test]
fn a_file_without_its_tables_is_set_aside_and_new_incidents_are_kept() {
    for (table, kept) in [("incident", 0), ("victim", 300), ("course", 0)] {
        let (folder, history) = after(|folder| execute(folder, &format!("DROP TABLE {table}")));
        // What only outcomes and new incidents touch shows when the next one comes.
        record(&history, [301]);
        assert_eq!(all_ids(&history), (301 - kept..=301).collect::<Vec<_>>(), "{table}");
        assert_eq!(history.writer.counts(), Counts { set_aside: 1, errors: 1, ..clean() }, "{table}");
        assert_eq!(history.reader.by_pid(Pid(5301)).unwrap(), Some(incident(301)), "{table}");
        assert!(aside(folder.path()).exists());
        history.writer.close(SOON).unwrap();
        assert_eq!(open(folder.path()).next_id, history.next_id.max(302), "{table}");
    }
}

#[test]
fn a_file_that_is_no_database_is_set_aside_and_ids_go_on_rising() {
    // SQLite takes less than a header for an empty database, which is filled without any fuss.
    for (length, set_aside) in [(1, 0), (100, 1), (10_000, 1)] {
        let (folder, history) = after(|folder| fs::write(store::path(folder), "x".repeat(length)).unwrap());
        let next_id = history.next_id;
        // Without anything to go by, ids go by the clock.
        assert_eq!((next_id > 1_700_000_000, history.written_below > 0), (set_aside > 0, set_aside == 0));
        record(&history, [next_id]);
        assert_eq!(all_ids(&history), [next_id]);
        assert_eq!(history.writer.counts(), Counts { set_aside, errors: set_aside, ..clean() });
        assert_eq!(
            fs::read(aside(folder.path())).map_or(0, |bytes| bytes.len()),
            if set_aside > 0 { length } else { 0 }
        );
        history.writer.close(SOON).unwrap();
        let again = open(folder.path());
        assert_eq!((again.next_id, again.written_below), (next_id + 1, next_id + 1));
    }
}

/// Asks until the file that was found damaged has been replaced.
fn when_replaced(history: &History, id: u64) -> Option<Incident> {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        match history.reader.by_id(id) {
            Ok(found) => return found,
            Err(HistoryError::Building) if std::time::Instant::now() < deadline => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_file_that_a_query_finds_damaged_is_set_aside_and_new_incidents_are_kept() {
    let (folder, history) = after(|folder| {
        let path = store::path(folder);
        let mut bytes = fs::read(&path).unwrap();
        // All but the first page, which holds the schema.
        bytes[4096..].fill(0x5a);
        fs::write(&path, bytes).unwrap();
    });
    assert_eq!(when_replaced(&history, 7), None);
    assert_eq!(history.writer.counts().set_aside, 1);
    assert!(aside(folder.path()).exists());
    record(&history, [history.next_id]);
    assert_eq!(all_ids(&history), [history.next_id]);
}

#[test]
fn of_a_file_with_one_damaged_page_all_other_incidents_are_taken_over() {
    let (folder, history) = after(|folder| {
        let path = store::path(folder);
        let mut bytes = fs::read(&path).unwrap();
        let body = b"\"id\":150,";
        let at = bytes.windows(body.len()).position(|window| window == body).unwrap() / 4096 * 4096;
        bytes[at..at + 4096].fill(0x5a);
        fs::write(&path, bytes).unwrap();
    });
    assert_eq!(when_replaced(&history, 150), None);
    assert_eq!(history.writer.counts().set_aside, 1);
    let kept = all_ids(&history);
    assert!(kept.len() > 290 && kept[0] == 1 && kept.last() == Some(&300), "{kept:?}");
    assert_eq!(history.reader.by_id(300).unwrap().unwrap().freed_bytes, Some(2));
    assert!(aside(folder.path()).exists());
    assert_eq!(history.next_id, 301);
}

#[test]
fn a_body_that_is_no_incident_has_the_file_set_aside_and_all_others_taken_over() {
    let (_folder, history) = after(|folder| execute(folder, "UPDATE incident SET body = '{}' WHERE id = 7"));
    assert!(matches!(history.reader.by_id(7), Err(HistoryError::Building)));
    history.writer.flush(SOON).unwrap();
    assert_eq!(all_ids(&history), (1..=6).chain(8..=300).collect::<Vec<_>>());
    assert_eq!(history.writer.counts(), Counts { set_aside: 1, errors: 1, ..clean() });
    record(&history, [301]);
    assert_eq!(history.reader.last().unwrap(), Some(incident(301)));
}

#[test]
fn files_that_were_set_aside_are_no_more_than_four() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for round in 1..=6 {
        fs::write(&path, format!("{round}")).unwrap();
        store::set_aside(&path).unwrap();
    }
    let kept = [1, 2, 3, 4]
        .map(|number| fs::read_to_string(folder.path().join(format!("file.damaged-{number}"))).unwrap());
    assert_eq!(kept, ["1", "2", "3", "6"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn a_crash_at_any_byte_of_the_last_commit_costs_that_commit_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let wal = |folder: &Path| folder.join("incidents.sqlite-wal");
    let length = || usize::try_from(fs::metadata(wal(folder.path())).unwrap().len()).unwrap();
    record(&history, [1]);
    record(&history, [2]);
    let two = length();
    record(&history, [3]);
    let (database, log) =
        (fs::read(store::path(folder.path())).unwrap(), fs::read(wal(folder.path())).unwrap());
    assert!(log.len() == length() && two < log.len());
    for cut in (two..log.len()).step_by(509).chain([log.len() - 1, log.len()]) {
        let after = tempfile::tempdir().unwrap();
        fs::write(wal(after.path()), &log[..cut]).unwrap();
        fs::write(store::path(after.path()), &database).unwrap();
        let history = open(after.path());
        let last = if cut == log.len() { 3 } else { 2 };
        assert_eq!((all_ids(&history), history.next_id), ((1..=last).collect(), last + 1), "at {cut}");
        assert_eq!(history.writer.counts(), clean());
        record(&history, [9]);
        assert_eq!(history.reader.last().unwrap(), Some(incident(9)));
    }
}

#[test]
fn ids_go_on_where_every_incident_was_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    record(&open(folder.path()), 1..=9);
    let caps = Caps { max_age: Duration::ZERO, ..CAPS };
    let history = open_with(folder.path(), caps);
    assert_eq!((all_ids(&history), history.next_id), (vec![], 10));
}

#[test]
fn how_long_a_commit_took_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    assert_eq!(history.writer.commit_ns(), None);
    let ago = Timestamp::now().checked_sub(Duration::from_secs(3)).unwrap();
    history.writer.record(Incident { time: ago, ..incident(1) });
    history.writer.flush(SOON).unwrap();
    history.writer.record(Incident { time: Timestamp::now(), ..incident(2) });
    history.writer.flush(SOON).unwrap();
    let (last, longest) = history.writer.commit_ns().unwrap();
    assert!(last < 3_000_000_000 && (3_000_000_000..60_000_000_000).contains(&longest), "{last} {longest}");
}

#[test]
fn the_file_stays_under_its_cap_and_ids_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let caps = Caps { max_bytes: 1 << 20, ..CAPS };
    let history = open_with(folder.path(), caps);
    let length = |suffix: &str| {
        let path = folder.path().join(format!("incidents.sqlite{suffix}"));
        fs::metadata(path).map_or(0, |found| found.len())
    };
    for first in (1..=3000).step_by(20) {
        record(&history, first..first + 20);
        assert!(length("-wal") <= 5 << 20, "{} after {first}", length("-wal"));
    }
    let ids = all_ids(&history);
    // The first stands for what went before it.
    assert!(ids[0] > 500, "{}", ids[0]);
    assert_eq!(ids[1..], (ids[0] + 1..=3000).collect::<Vec<_>>());
    let told = |incident: &Incident| incident.unrecorded.unwrap_or(1);
    assert_eq!(all(&history).iter().map(told).sum::<u64>(), 3000);
    assert_eq!(history.writer.counts(), clean());
    history.writer.close(SOON).unwrap();
    // A batch more than the cap at most.
    assert!(length("") <= caps.max_bytes + (64 << 10), "{}", length(""));
    let again = open_with(folder.path(), caps);
    assert_eq!((again.next_id, all_ids(&again)), (3001, ids));
    again.writer.close(SOON).unwrap();
    // A smaller cap is kept from the next start on.
    let smaller = open_with(folder.path(), Caps { max_bytes: 512 << 10, ..CAPS });
    assert_eq!(all(&smaller).iter().map(told).sum::<u64>(), 3000);
    smaller.writer.close(SOON).unwrap();
    assert!(length("") <= 512 << 10, "{}", length(""));
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

/// Tells what it hears.
struct Listening(mpsc::Sender<u64>);

impl Hearer for Listening {
    fn incident(&mut self, incident: &mut Incident) {
        self.0.send(incident.id).unwrap();
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.0.send(outcome.signal_to_freed_ns.unwrap()).unwrap();
    }
}

#[test]
fn who_hears_of_incidents_hears_what_becomes_known_of_them_later() {
    let folder = tempfile::tempdir().unwrap();
    let (tell, told) = mpsc::channel();
    let history = History::open_with_notes(folder.path(), CAPS, None, Listening(tell), |_| {}).unwrap();
    record(&history, 1..=1);
    history.writer.outcome(Outcome { id: 1, signal_to_freed_ns: Some(77), ..Outcome::default() });
    history.writer.flush(SOON).unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 77]);
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
    assert!(matches!(history.reader.last(), Err(HistoryError::Closed)));
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
