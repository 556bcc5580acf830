use super::{super::Job, BTreeMap, BTreeSet, Bytes, Counted, Gid, JobId, Jobs, Stand, Turns, Uid, Vec};
use alloc::vec;
use proptest::prelude::*;

const USER: Uid = Uid(1000);
const OTHER: Uid = Uid(1001);
const GROUP: Gid = Gid(50);

fn job(user: Uid, outer: Option<JobId>, reserve: u64, waits: bool) -> Job {
    Job { outer, reserve: Some(Bytes(reserve)), waits, ..Job::new(user) }
}

fn stand(usage: u64, hard: u64) -> Stand {
    Stand { usage: Bytes(usage), hard: Some(Bytes(hard)) }
}

/// With a line of 100 for the user, and more than that free.
fn with_line(usage: u64) -> Turns {
    let accounts = BTreeMap::from([(USER.into(), stand(usage, 100))]);
    Turns { accounts, available: Bytes(1000), ..Turns::default() }
}

#[test]
fn as_many_begin_as_fit_and_the_next_when_one_has_ended() {
    let (mut jobs, mut turns) = (Jobs::default(), with_line(0));
    let all: Vec<JobId> = (0..6).map(|_| jobs.add(job(USER, None, 25, true))).collect();
    assert_eq!(jobs.turns(&turns), all[..4]);
    for id in &all[..4] {
        jobs.begin(*id);
    }
    assert_eq!(jobs.turns(&turns), []);
    turns.over.insert(all[1]);
    assert_eq!(jobs.turns(&turns), [all[4]]);
    // What is used is not to be kept free besides; and what goes beyond the promise counts.
    turns.over.clear();
    turns.accounts.insert(all[0].into(), Stand { usage: Bytes(25), hard: None });
    turns.accounts.insert(USER.into(), stand(25, 100));
    assert_eq!(jobs.turns(&turns), []);
    jobs.remove(all[1]);
    assert_eq!(jobs.turns(&turns), [all[4]]);
    turns.accounts.insert(all[0].into(), Stand { usage: Bytes(26), hard: None });
    turns.accounts.insert(USER.into(), stand(26, 100));
    assert_eq!(jobs.turns(&turns), []);
}

#[test]
fn nobody_overtakes_who_waits_for_more() {
    let mut jobs = Jobs::default();
    let large = jobs.add(job(USER, None, 80, true));
    jobs.add(job(USER, None, 10, true));
    assert_eq!(jobs.turns(&with_line(30)), []);
    assert_eq!(jobs.turns(&with_line(0)).first(), Some(&large));
}

#[test]
fn who_has_gone_or_can_never_begin_holds_up_nobody() {
    let (mut jobs, mut turns) = (Jobs::default(), with_line(50));
    let large = jobs.add(job(USER, None, 80, true));
    let small = jobs.add(job(USER, None, 10, true));
    assert_eq!(jobs.turns(&turns), []);
    turns.over.insert(large);
    assert_eq!(jobs.turns(&turns), [small]);
    turns.over.clear();
    turns.accounts.insert(USER.into(), stand(50, 79));
    assert_eq!(jobs.turns(&turns), [small], "the line was lowered");
}

#[test]
fn one_in_a_job_has_its_part_of_what_that_was_promised() {
    let mut jobs = Jobs::default();
    let outer = jobs.add(job(USER, None, 100, false));
    jobs.add(job(USER, None, 10, true));
    let inner = jobs.add(job(USER, Some(outer), 60, true));
    let beside = jobs.add(job(USER, Some(outer), 50, true));
    assert_eq!(
        jobs.turns(&with_line(0)),
        [inner],
        "who waits outside waits for the job, which may wait for it"
    );
    jobs.begin(inner);
    assert_eq!(jobs.promised(|_| true), Bytes(100));
    assert_eq!(jobs.promised(|id| id != outer), Bytes(60));
    jobs.remove(beside);
    jobs.add(job(USER, Some(outer), 40, true));
    assert_eq!(jobs.turns(&with_line(0)).len(), 1);
}

#[test]
fn what_others_are_promised_is_not_missing_but_what_the_machine_lacks_is() {
    let (mut jobs, mut turns) = (Jobs::default(), Turns { available: Bytes(50), ..Turns::default() });
    jobs.add(job(OTHER, None, 50, false));
    let first = jobs.add(job(USER, None, 30, true));
    jobs.add(job(USER, None, 30, true));
    assert_eq!(jobs.turns(&turns), [first]);
    turns.available = Bytes(60);
    assert_eq!(jobs.turns(&turns).len(), 2);
}

#[test]
fn all_members_of_a_group_have_its_line_together() {
    let mut jobs = Jobs::default();
    jobs.add(job(OTHER, None, 70, false));
    let mine = jobs.add(job(USER, None, 40, true));
    let groups = [USER, OTHER].map(|uid| (uid, vec![GROUP])).into();
    let mut turns = Turns {
        accounts: [(GROUP.into(), stand(0, 100))].into(),
        groups,
        available: Bytes(1000),
        ..Turns::default()
    };
    assert_eq!(jobs.turns(&turns), []);
    turns.accounts.insert(GROUP.into(), stand(0, 110));
    assert_eq!(jobs.turns(&turns), [mine]);
}

/// What a job is to have free for what it and those in it are promised, told again from the beginning.
fn unused(jobs: &Jobs, turns: &Turns, id: JobId) -> u64 {
    let job = jobs.get(id).unwrap();
    let inner: u64 = inside(jobs, turns, |_, job| job.outer == Some(id));
    let usage = turns.accounts.get(&id.into()).map_or(0, |stand| stand.usage.0);
    let is_promised = !job.waits && !turns.over.contains(&id);
    let own = if is_promised { job.reserve.unwrap_or_default().0.saturating_sub(usage) } else { 0 };
    own.max(inner)
}

fn inside(jobs: &Jobs, turns: &Turns, is_inside: impl Fn(JobId, &Job) -> bool) -> u64 {
    jobs.iter().filter(|(id, job)| is_inside(*id, job)).map(|(id, _)| unused(jobs, turns, id)).sum()
}

/// By how much each account with a line, and each user on this machine, is promised more than there is.
fn excess(jobs: &Jobs, turns: &Turns) -> BTreeMap<(Counted, bool), u64> {
    let mut all = BTreeMap::new();
    for (whose, Stand { usage, hard }) in &turns.accounts {
        let promised = match *whose {
            Counted::User(uid) => inside(jobs, turns, |_, job| job.outer.is_none() && job.user == uid),
            Counted::Job(id) => inside(jobs, turns, |_, job| job.outer == Some(id)),
            Counted::Group(gid) => inside(jobs, turns, |_, job| {
                job.outer.is_none() && turns.groups.get(&job.user).is_some_and(|groups| groups.contains(&gid))
            }),
        };
        if let Some(hard) = hard {
            all.insert((*whose, false), (usage.0 + promised).saturating_sub(hard.0));
        }
        if whose.user().is_some() {
            all.insert((*whose, true), promised.saturating_sub(turns.available.0));
        }
    }
    all
}

/// Another's, in which of the jobs before it, promised, waits, usage, line, over.
type Shape = (bool, usize, u64, bool, u64, u64, bool);

fn shape() -> impl Strategy<Value = Shape> {
    (any::<bool>(), 0..8_usize, 0..30_u64, any::<bool>(), 0..20_u64, 0..80_u64, any::<bool>())
}

prop_compose! {
    fn worlds()(
        shapes in prop::collection::vec(shape(), 1..12),
        users in [(0..60_u64, 20..120_u64), (0..60_u64, 20..120_u64)],
        group in (0..60_u64, 20..200_u64),
        available in 0..200_u64,
    ) -> (Jobs, Turns) {
        let (mut jobs, mut turns) = (Jobs::default(), Turns { available: Bytes(available), ..Turns::default() });
        for (is_other, outer, reserve, waits, usage, hard, is_over) in shapes {
            let user = if is_other { OTHER } else { USER };
            // One that waits has started nothing.
            let outer = jobs.iter().filter(|(_, job)| job.user == user && !job.waits).map(|(id, _)| id).nth(outer);
            let id = jobs.add(job(user, outer, reserve, waits));
            turns.accounts.insert(id.into(), Stand { usage: Bytes(usage), hard: (hard > 20).then_some(Bytes(hard)) });
            if is_over {
                turns.over.insert(id);
            }
        }
        for (uid, (usage, hard)) in [USER, OTHER].into_iter().zip(users) {
            turns.accounts.insert(uid.into(), stand(usage, hard));
            turns.groups.insert(uid, vec![GROUP]);
        }
        turns.accounts.insert(GROUP.into(), stand(group.0, group.1));
        (jobs, turns)
    }
}

fn is_below_all_lines(jobs: &Jobs, turns: &Turns, id: JobId) -> bool {
    let job = jobs.get(id).unwrap();
    let around = jobs.around(id).into_iter().map(Counted::from).chain([job.user.into(), GROUP.into()]);
    let lines = around.filter_map(|whose| turns.accounts.get(&whose)?.hard);
    lines.min().is_none_or(|lowest| job.reserve.unwrap() <= lowest)
}

proptest! {
    #[test]
    fn no_more_is_promised_than_there_is_and_nobody_waits_or_is_overtaken_for_nothing((jobs, turns) in worlds()) {
        let (mut now, before) = (jobs.clone(), excess(&jobs, &turns));
        let mut held_up = BTreeSet::new();
        let begun = jobs.turns(&turns);
        prop_assert!(begun.is_sorted());
        for (id, job) in jobs.iter().filter(|(id, job)| job.waits && !turns.over.contains(id)) {
            let mut next = now.clone();
            next.begin(id);
            let (was, is) = (excess(&now, &turns), excess(&next, &turns));
            let fits = is.iter().all(|(account, excess)| *excess == 0 || was.get(account) == Some(excess));
            let place = (job.user, job.outer);
            let has_turn = fits && !held_up.contains(&place);
            prop_assert_eq!(begun.contains(&id), has_turn, "{} of {:?} in {:?}", id, begun, turns);
            if has_turn {
                now = next;
            } else if is_below_all_lines(&jobs, &turns, id) {
                held_up.insert(place);
            }
        }
        for (account, excess) in excess(&now, &turns) {
            prop_assert!(excess <= before[&account]);
        }
    }
}
