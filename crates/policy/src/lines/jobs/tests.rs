use super::{Job, JobId, Jobs, Line, Uid};
use crate::{account::Action, size::Size, units::Bytes};

fn job(user: u32, outer: Option<JobId>) -> Job {
    Job { outer, ..Job::new(Uid(user)) }
}

#[test]
fn no_number_is_given_twice() {
    let mut jobs = Jobs::default();
    let first = jobs.add(job(1000, None));
    jobs.remove(first);
    let second = jobs.add(job(1000, None));
    assert_eq!((first, second), (JobId(1), JobId(2)));
    let read: Jobs = serde_json::from_str(&serde_json::to_string(&jobs).unwrap()).unwrap();
    assert_eq!(read, jobs);
}

#[test]
fn those_in_a_job_that_ends_are_in_what_it_was_in() {
    let mut jobs = Jobs::default();
    let outer = jobs.add(job(1000, None));
    let middle = jobs.add(job(1000, Some(outer)));
    let inner = jobs.add(job(1000, Some(middle)));
    assert_eq!(jobs.around(inner), [middle, outer]);
    jobs.remove(middle);
    assert_eq!(jobs.around(inner), [outer]);
    jobs.remove(outer);
    assert_eq!(jobs.around(inner), []);
}

#[test]
fn the_strict_job_around_one_is_the_innermost_that_denies() {
    let line = |action| Line { hard: Size::Bytes(Bytes(1 << 30)), soft: None, action };
    let mut jobs = Jobs::default();
    let mut within =
        |outer, action: Option<Action>| jobs.add(Job { line: action.map(line), ..job(1000, outer) });
    let outer = within(None, Some(Action::Deny));
    let counted = within(Some(outer), None);
    let strict = within(Some(counted), Some(Action::Deny));
    let kills = within(Some(strict), Some(Action::Kill));
    let around = [outer, counted, strict, kills].map(|id| jobs.strict_around(id));
    assert_eq!(around, [None, Some(outer), Some(outer), Some(strict)]);
    assert!(jobs.strict().map(|(id, _)| id).eq([outer, strict]));
}

#[test]
fn jobs_around_each_other_are_told_once() {
    let mut jobs = Jobs::default();
    let one = jobs.add(job(1000, None));
    let other = jobs.add(job(1000, Some(one)));
    jobs.get_mut(one).unwrap().outer = Some(other);
    assert_eq!(jobs.around(other), [one, other]);
}

#[test]
fn one_user_leaves_places_to_others() {
    let mut jobs = Jobs::default();
    while jobs.have_room(Uid(1000), 64) {
        jobs.add(job(1000, None));
    }
    assert_eq!(jobs.iter().count(), 8);
    for user in 1001.. {
        if !jobs.have_room(Uid(user), 64) {
            break;
        }
        jobs.add(job(user, None));
    }
    assert_eq!(jobs.iter().count(), 32);
    assert!(Jobs::default().have_room(Uid(1000), 2) && !Jobs::default().have_room(Uid(1000), 1));
}
