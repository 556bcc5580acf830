//! The minutes before: beside the incidents, not in their lists, gone with them.

use super::*;
use plimsoll_policy::incident::{Course, UsageSample};

fn with_course(id: u64) -> Incident {
    let sample = |at_ms| UsageSample { at_ms, usage_bytes: 5, line_bytes: Some(9) };
    let course = Course { account: vec![sample(-1000), sample(-10)], ..Course::default() };
    Incident { course: Some(course), ..incident(id) }
}

#[test]
fn a_course_is_told_with_its_incident_and_never_in_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    history.writer.record(with_course(1));
    let after = UsageSample { at_ms: 900, usage_bytes: 1, line_bytes: Some(9) };
    let later = Course { account: vec![after], ..Course::default() };
    history.writer.outcome(Outcome { id: 1, course: Some(later.clone()), ..Outcome::default() });
    history.writer.flush(SOON).unwrap();
    let mut expected = with_course(1);
    expected.course.as_mut().unwrap().go_on(later);
    let pid = expected.victims[0].pid;
    let check = |history: &History| {
        assert_eq!(history.reader.by_id(1).unwrap().as_ref(), Some(&expected));
        assert_eq!(history.reader.last().unwrap().as_ref(), Some(&expected));
        assert_eq!(history.reader.by_pid(pid).unwrap().as_ref(), Some(&expected));
        let listed = history.reader.query(&Query { limit: 9, ..Query::default() }).unwrap();
        assert_eq!(listed, [Incident { course: None, ..expected.clone() }]);
        let paged: Vec<_> = history.reader.pages(None, 9).flat_map(Result::unwrap).collect();
        assert_eq!(paged, listed);
    };
    check(&history);
    history.writer.close(SOON).unwrap();
    drop(history);
    check(&open(folder.path()));
}

#[test]
fn the_course_of_an_incident_is_forgotten_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let history = open_with(folder.path(), Caps { max_incidents: 2, ..CAPS });
    for id in 1..=5 {
        history.writer.record(with_course(id));
    }
    history.writer.flush(SOON).unwrap();
    let connection = store::connect_to_read(&store::path(folder.path())).unwrap();
    let kept: i64 = connection.query_row("SELECT count(*) FROM course", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2);
}

#[test]
fn among_ten_thousand_incidents_each_is_found_with_its_own_course() {
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    let own = |id: u64| {
        let sample = |at_ms| UsageSample { at_ms, usage_bytes: id, line_bytes: Some(9) };
        let course = Course { account: (-40..0).map(sample).collect(), ..Course::default() };
        let mut own = Incident { course: Some(course), ..incident(id) };
        own.victims[0].pid = Pid(u32::try_from(100_000 + id).unwrap());
        own
    };
    for id in 1..=10_000 {
        history.writer.record(own(id));
        if id % 512 == 0 {
            history.writer.flush(SOON).unwrap();
        }
    }
    history.writer.flush(SOON).unwrap();
    assert_eq!(history.writer.counts(), clean());
    assert_eq!(history.reader.last().unwrap(), Some(own(10_000)));
    for id in [1, 4321, 9999] {
        assert_eq!(history.reader.by_id(id).unwrap(), Some(own(id)));
        assert_eq!(history.reader.by_pid(own(id).victims[0].pid).unwrap(), Some(own(id)));
    }
    let newest = history.reader.query(&Query { limit: 2, ..Query::default() }).unwrap();
    assert_eq!(newest, [9999, 10_000].map(|id| Incident { course: None, ..own(id) }));
}

#[test]
fn no_more_than_a_few_traces_wait_in_the_queue_and_no_incident_is_lost_for_that() {
    let (writer, recorded) = Recorded::by_a_writer(30);
    let course = || Some(Course { trace: Some("{}".to_owned()), ..Course::default() });
    let count = |recorded: &Recorded| {
        let all = std::iter::from_fn(|| recorded.next_incident()).collect::<Vec<_>>();
        (all.len(), all.iter().filter(|one| one.course.is_some()).count())
    };
    // What finds the queue full, or was taken, is in it no more.
    (1..=40).for_each(|id| writer.record(Incident { course: course(), ..incident(id) }));
    assert_eq!(count(&recorded), (30, 16));
    let folder = tempfile::tempdir().unwrap();
    let history = open(folder.path());
    for id in 1..=40 {
        history.writer.record(Incident { course: course(), ..incident(id) });
        history.writer.flush(SOON).unwrap();
    }
    let traced = (1..=40).filter_map(|id| history.reader.by_id(id).unwrap()?.course?.trace);
    assert_eq!(traced.count(), 40);
}
