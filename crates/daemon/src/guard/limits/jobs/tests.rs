use super::{super::shared::tests::account, JobId, JobList, Jobs, Nanos, TURNS_EVERY};
use plimsoll_policy::{
    lines::Job,
    units::{Bytes, Pid, Uid},
};
use plimsoll_sys::{bpf::AccountFacts, process::PidFd};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::Arc,
};

const SECOND: u64 = 1_000_000_000;

fn job(id: u32, processes: u32) -> AccountFacts {
    AccountFacts { whose: JobId(id).into(), processes, ..account(0, 0) }
}

fn ended(jobs: &mut Jobs, accounts: &[AccountFacts], at: u64) -> Vec<JobId> {
    jobs.look(accounts, Nanos(at));
    let ended: Vec<JobId> = jobs.ended(Nanos(at)).collect();
    assert_eq!(jobs.take_ended(), !ended.is_empty());
    ended
}

#[test]
fn one_has_ended_that_was_empty_for_a_second() {
    let mut jobs = Jobs::default();
    assert_eq!(ended(&mut jobs, &[job(1, 0), job(2, 1)], SECOND), []);
    assert!(jobs.are_in_doubt());
    // Its process executed another program just then.
    assert_eq!(ended(&mut jobs, &[job(1, 1), job(2, 0)], 2 * SECOND), []);
    assert_eq!(ended(&mut jobs, &[job(1, 0), job(2, 0)], 3 * SECOND), [JobId(2)]);
    assert_eq!(ended(&mut jobs, &[job(1, 0), job(2, 0)], 4 * SECOND), [JobId(1), JobId(2)]);
    jobs.drawn(&BTreeMap::from([(JobId(1), 5)]));
    assert!(jobs.any && !jobs.are_in_doubt());
    jobs.drawn(&BTreeMap::new());
    assert!(!jobs.any && !jobs.are_in_doubt());
}

#[test]
fn a_promise_is_free_when_two_looks_found_nobody() {
    let (mut jobs, mut list) = (Jobs::default(), JobList::default());
    let [first, _, plain, waits] =
        [(true, false), (true, false), (false, false), (true, true)].map(|(has_promise, waits)| {
            list.add(Job { reserve: has_promise.then_some(Bytes(1)), waits, ..Job::new(Uid(1000)) })
        });
    let empty = [job(1, 0), job(2, 1), job(3, 0), job(4, 0)];
    let mut look = |accounts: &[AccountFacts], at| jobs.unused(&list, accounts, Nanos(at));
    assert_eq!(look(&empty, 0), BTreeSet::new());
    assert_eq!(look(&empty, TURNS_EVERY.0 - 1), BTreeSet::new());
    let unused = look(&empty, TURNS_EVERY.0);
    assert_eq!(unused, BTreeSet::from([first, waits]), "nothing is promised to {plain}");
    assert_eq!(look(&[job(1, 1)], 2 * TURNS_EVERY.0), BTreeSet::new());
    assert_eq!(look(&empty, 3 * TURNS_EVERY.0), BTreeSet::new(), "it executed another program");
    assert_eq!(look(&empty, 5 * SECOND), BTreeSet::new(), "or may have, while nobody looked");
}

#[test]
fn one_that_is_being_started_has_not_ended() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut jobs = Jobs::default();
    jobs.begin(JobId(1), Arc::new(PidFd::open(Pid(child.id())).unwrap()));
    assert_eq!(ended(&mut jobs, &[job(1, 0)], SECOND), []);
    assert_eq!(ended(&mut jobs, &[job(1, 0)], 9 * SECOND), []);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ended(&mut jobs, &[job(1, 0)], 10 * SECOND), []);
    assert_eq!(ended(&mut jobs, &[job(1, 0)], 11 * SECOND), [JobId(1)]);
}
