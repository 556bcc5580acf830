//! A store that cannot be written for a while.

use super::*;
use std::{sync::mpsc::channel, time::Instant};

/// What follows the number of those that found no room.
const LOST: &str = " records are not in the history: its queue was full";

/// A history, and what it says.
fn listened_to(folder: &Path) -> (History, mpsc::Receiver<String>) {
    let (say, said) = channel();
    let say = move |line| say.send(line).unwrap_or_default();
    (History::open_with_notes(folder, CAPS, None, |_: &mut Incident| {}, say).unwrap(), said)
}

/// Keeps everybody else from writing until it is dropped.
fn occupy(folder: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(store::path(folder)).unwrap();
    connection.busy_timeout(SOON).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn what_cannot_be_written_waits_is_told_and_is_written_when_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let (history, said) = listened_to(folder.path());
    record(&history, [1]);
    let occupied = occupy(folder.path());
    history.writer.record(incident(2));
    history.writer.outcome(Outcome { id: 1, freed_bytes: Some(5), ..Outcome::default() });
    assert!(matches!(history.writer.flush(SOON), Err(HistoryError::Unwritten(1.., _))));
    assert!(history.writer.counts().waiting > 0 && history.writer.counts().errors > 0);
    // What is there can still be read, and nobody waits.
    assert_eq!(all_ids(&history), [1]);
    let before = Instant::now();
    history.writer.record(incident(3));
    assert!(before.elapsed() < Duration::from_millis(100));
    drop(occupied);
    let deadline = Instant::now() + SOON;
    while all_ids(&history) != [1, 2, 3] {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    history.writer.flush(SOON).unwrap();
    assert_eq!(history.reader.by_id(1).unwrap().unwrap().freed_bytes, Some(5));
    let counts = history.writer.counts();
    assert_eq!((counts.waiting, counts.unwritten, counts.dropped), (0, 0, 0));
    // However often it was tried.
    let said: Vec<String> = said.try_iter().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("cannot be written") && said[0].contains("locked"), "{said:?}");
    assert!(said[1].contains("written again"), "{said:?}");
}

#[test]
fn what_waits_is_bounded_and_the_rest_is_counted_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let (history, said) = listened_to(folder.path());
    let occupied = occupy(folder.path());
    let many = 4 * QUEUE_MAX as u64;
    // The thread takes some meanwhile: which ones find room is by chance.
    let has_room = |id: &u64| {
        let before = history.writer.dropped();
        history.writer.record(incident(*id));
        history.writer.dropped() == before
    };
    let kept: Vec<u64> = (1..=many).filter(has_room).collect();
    let dropped = history.writer.dropped();
    assert!((many - 2 * QUEUE_MAX as u64 - 1..many).contains(&dropped), "{dropped}");
    drop(occupied);
    let deadline = Instant::now() + SOON;
    while history.writer.flush(SOON).is_err() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(kept.len() as u64, many - dropped);
    assert_eq!(all_ids(&history), kept);
    let lost = said.try_iter().filter_map(|line| line.strip_suffix(LOST)?.parse::<u64>().ok()).sum::<u64>();
    assert_eq!(lost, dropped);
}

#[test]
fn closing_while_nothing_can_be_written_says_so_and_is_not_held_up() {
    let folder = tempfile::tempdir().unwrap();
    let (history, _said) = listened_to(folder.path());
    let occupied = occupy(folder.path());
    history.writer.record(incident(1));
    let before = Instant::now();
    assert!(matches!(history.writer.close(SOON), Err(HistoryError::Unwritten(1, _))));
    assert!(before.elapsed() < SOON / 2);
    drop(occupied);
    assert_eq!(all_ids(&open(folder.path())), [0; 0]);
}

#[test]
fn a_query_keeps_the_write_ahead_log_from_growing_no_longer_than_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let reader = history.reader.clone();
    let (done, end) = channel::<()>();
    // Without a pause between two queries.
    let asks = std::thread::spawn(move || {
        while let Err(mpsc::TryRecvError::Empty) = end.try_recv() {
            reader.query(&Query { limit: PAGE_MAX, ..Query::default() }).unwrap();
        }
    });
    let mut longest = 0;
    for first in (1..=6000).step_by(100) {
        record(&history, first..first + 100);
        longest = longest.max(fs::metadata(folder.path().join("incidents.sqlite-wal")).unwrap().len());
    }
    drop(done);
    asks.join().unwrap();
    assert!(longest <= 6 << 20, "{longest}");
}
