use super::*;
use alloc::vec;

fn usage(at_ms: i64) -> UsageSample {
    UsageSample { at_ms, usage_bytes: 5, line_bytes: Some(9) }
}

fn machine(at_ms: i64) -> MachineSample {
    MachineSample {
        at_ms,
        mem_available_bytes: Some(1),
        anon_bytes: None,
        swap_free_bytes: None,
        some_permille: Some(3),
        full_permille: None,
    }
}

#[test]
fn what_is_recorded_later_goes_on_where_it_begins_and_nothing_is_there_twice() {
    let mut course = Course {
        account: vec![usage(-3000), usage(-1000), usage(-5)],
        machine: vec![machine(-2000)],
        mem_total_bytes: Some(64),
        swap_total_bytes: None,
        ..Course::default()
    };
    course.go_on(Course {
        account: vec![usage(-1000), usage(-5), usage(900)],
        machine: vec![machine(-10), machine(990)],
        mem_total_bytes: None,
        swap_total_bytes: Some(7),
        ..Course::default()
    });
    let times = |course: &Course| course.account.iter().map(|one| one.at_ms).collect::<Vec<_>>();
    assert_eq!(times(&course), [-3000, -1000, -5, 900]);
    assert_eq!(course.machine.iter().map(|one| one.at_ms).collect::<Vec<_>>(), [-2000, -10, 990]);
    assert_eq!((course.mem_total_bytes, course.swap_total_bytes), (Some(64), Some(7)));
    let before = course.clone();
    course.go_on(Course::default());
    assert_eq!(course, before);
}

#[test]
fn the_oldest_samples_go_first() {
    let mut course = Course { account: vec![usage(-3), usage(-2), usage(-1)], ..Course::default() };
    course.keep_newest(2);
    assert_eq!(course.account, [usage(-2), usage(-1)]);
    course.keep_newest(5);
    assert_eq!(course.account.len(), 2);
}

#[test]
fn json_of_a_later_version_is_read_and_of_an_earlier_one_too() {
    let text = r#"{"account":[{"at_ms":-1,"usage_bytes":2,"line_bytes":null,"new":1}],"weather":"fine"}"#;
    let course: Course = serde_json::from_str(text).unwrap();
    assert_eq!(course.account, [UsageSample { at_ms: -1, usage_bytes: 2, line_bytes: None }]);
    assert!(course.machine.is_empty() && !course.is_empty());
}
