use super::{IDLE_AFTER, Jobserver, Program, Seen, Turns};
use crate::{
    units::{Bytes, Nanos, Pid},
    victim::VictimId,
};
use std::{collections::BTreeMap, vec::Vec};

const MIB: u64 = 1 << 20;
const LINE: Bytes = Bytes(1 << 30);
const LOOK: u64 = 10_000_000;

const fn program(inode: u64) -> Program {
    Program { device: 1, inode }
}

/// A process that has used so much of a CPU.
fn seen(pid: u32, parent: u32, inode: u64, usage: u64, cpu: u64) -> Seen {
    Seen {
        id: VictimId { pid: Pid(pid), start_ns: pid.into() },
        parent: Pid(parent),
        program: program(inode),
        usage: Bytes(usage),
        cpu: Nanos(cpu),
        may_be_held: pid != 1,
    }
}

fn held(turns: &Turns) -> Vec<u32> {
    turns.held.iter().map(|id| id.pid.0).collect()
}

/// One of the program came to so much.
fn knows(inode: u64, most: u64) -> Jobserver {
    let mut jobserver = Jobserver::default();
    jobserver.look(Nanos(0), LINE, &[seen(99, 0, inode, most, 0)]);
    jobserver.look(Nanos(LOOK), LINE, &[]);
    jobserver
}

#[test]
fn of_an_unknown_program_four_begin_and_each_is_taken_to_grow_as_much_again() {
    let mut jobserver = Jobserver::default();
    let all = |usage: u64| (2..8).map(|pid| seen(pid, 1, 5, usage, 0)).collect::<Vec<_>>();
    let turns = jobserver.look(Nanos(0), LINE, &all(0));
    assert_eq!(held(&turns), [6, 7]);
    assert_eq!((turns.room, turns.may_begin()), (Bytes(0), 0));
    // What those that are held have counts as well.
    let turns = jobserver.look(Nanos(LOOK), LINE, &all(120 * MIB));
    assert_eq!(held(&turns), [4, 5, 6, 7]);
    // The first goes on, whatever it comes to.
    let turns = jobserver.look(Nanos(2 * LOOK), LINE, &all(300 * MIB));
    assert_eq!(held(&turns), [3, 4, 5, 6, 7]);
}

#[test]
fn what_a_program_came_to_is_what_the_next_is_taken_to_come_to_and_falls_slowly() {
    let mut jobserver = knows(5, 400 * MIB);
    let three = [seen(2, 1, 5, 0, 0), seen(3, 1, 5, 0, 0), seen(4, 1, 5, 0, 0)];
    let turns = jobserver.look(Nanos(2 * LOOK), LINE, &three);
    assert_eq!((held(&turns), turns.each), (Vec::from([4]), Bytes(400 * MIB)));
    // What one that never had its turn came to says nothing.
    let turns = jobserver.look(Nanos(3 * LOOK), LINE, &three[..1]);
    assert_eq!((turns.room, turns.each, turns.may_begin()), (Bytes(624 * MIB), Bytes(400 * MIB), 1));
    let mut room =
        |usage: u64| jobserver.look(Nanos(4 * LOOK), LINE, &[seen(2, 1, 5, usage, 0)]).room.0 / MIB;
    assert_eq!(room(100 * MIB), 624);
    // One that came to less.
    jobserver.look(Nanos(5 * LOOK), LINE, &[]);
    let mut room =
        |usage: u64| jobserver.look(Nanos(6 * LOOK), LINE, &[seen(3, 1, 5, usage, 0)]).room.0 / MIB;
    assert_eq!(room(MIB), 636);
    // A little more than is known; and much more.
    assert_eq!(room(448 * MIB), 1024 - 448 - 28);
    assert_eq!(room(500 * MIB), 24);
    jobserver.look(Nanos(7 * LOOK), LINE, &[]);
    assert_eq!(jobserver.look(Nanos(8 * LOOK), LINE, &[seen(7, 1, 5, 0, 0)]).room, Bytes(524 * MIB));
}

#[test]
fn who_has_started_others_waits_for_them_and_who_executes_another_program_is_another() {
    let mut jobserver = knows(6, 600 * MIB);
    // A shell that waits for what it started; another that has become what it was to start.
    let all = [seen(2, 1, 5, MIB, 0), seen(3, 2, 6, 0, 0), seen(4, 1, 5, MIB, 0)];
    let turns = jobserver.look(Nanos(2 * LOOK), LINE, &all);
    assert_eq!(
        (held(&turns), turns.room),
        (Vec::<u32>::new(), Bytes(1024 * MIB - 2 * MIB - 600 * MIB - 255 * MIB))
    );
    let all = [seen(2, 1, 5, MIB, 0), seen(3, 2, 6, 0, 0), seen(4, 1, 6, 0, 0)];
    let turns = jobserver.look(Nanos(3 * LOOK), LINE, &all);
    assert_eq!(held(&turns), [4]);
    // And a shell is known as small from then on: one more begins though somebody waits.
    let all = [seen(3, 2, 6, 0, 0), seen(4, 1, 6, 0, 0), seen(5, 1, 5, MIB, 0)];
    let turns = jobserver.look(Nanos(4 * LOOK), LINE, &all);
    assert_eq!(held(&turns), [4]);
}

/// Looks until then, twice a second.
fn look_until(jobserver: &mut Jobserver, from: u64, until: u64, seen: &[Seen]) -> Turns {
    let mut turns = Turns::default();
    for at in (from..=until).step_by(500_000_000) {
        // Each of them runs all the time.
        let run: Vec<Seen> = seen.iter().map(|one| Seen { cpu: Nanos(one.cpu.0 + at), ..*one }).collect();
        turns = jobserver.look(Nanos(at), LINE, &run);
    }
    turns
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn one_that_has_no_more_for_long_is_taken_to_stay_as_it_is() {
    let mut jobserver = Jobserver::default();
    let one = [seen(2, 1, 5, MIB, 0)];
    assert_eq!(look_until(&mut jobserver, 0, 0, &one).room.0 / MIB, 768);
    assert_eq!(look_until(&mut jobserver, SECOND / 2, 2 * SECOND, &one).room.0 / MIB, 895);
    assert_eq!(look_until(&mut jobserver, 2 * SECOND, 4 * SECOND, &one).room.0 / MIB, 959);
    assert_eq!(look_until(&mut jobserver, 4 * SECOND, 90 * SECOND, &one).room.0 / MIB, 1023);
    // It has more.
    let one = [seen(2, 1, 5, 6 * MIB, 0)];
    assert_eq!(look_until(&mut jobserver, 90 * SECOND, 90 * SECOND, &one).room.0 / MIB, 768);
}

#[test]
fn where_the_oldest_waits_for_one_that_is_held_that_one_goes_on_until_it_has_more() {
    let mut jobserver = knows(5, 600 * MIB);
    let both = |cpu, usage| [seen(2, 1, 5, usage, cpu), seen(3, 1, 5, 100 * MIB, 0)];
    let mut at = 2 * LOOK;
    assert_eq!(held(&jobserver.look(Nanos(at), LINE, &both(5, 100 * MIB))), [3]);
    at += IDLE_AFTER.0 - 1;
    assert_eq!(held(&jobserver.look(Nanos(at), LINE, &both(5, 100 * MIB))), [3]);
    assert_eq!(held(&jobserver.look(Nanos(at + 1), LINE, &both(5, 100 * MIB))), Vec::<u32>::new());
    // It runs again; and has more.
    assert_eq!(held(&jobserver.look(Nanos(at + 2), LINE, &both(6, 100 * MIB))), Vec::<u32>::new());
    assert_eq!(held(&jobserver.look(Nanos(at + 3), LINE, &both(7, 150 * MIB))), [3]);
    // Whoever has its turn back has as long as all others.
    assert_eq!(held(&jobserver.look(Nanos(at + 4), LINE, &both(7, 0)[1..])), Vec::<u32>::new());
    assert_eq!(held(&jobserver.look(Nanos(at + 5), LINE, &[both(7, 0)[1], seen(9, 1, 5, 0, 0)])), [9]);
}

/// They wait for each other, and none of them sleeps; small ones come and go meanwhile, or looks are far apart.
#[test]
fn processes_that_spin_while_they_wait_for_one_that_is_held_have_an_end() {
    for (each, known) in [(175, 0), (200, 400), (240, 0), (150, 900)] {
        for apart in [SECOND / 2, SECOND, 3 * SECOND] {
            let mut jobserver = knows(7, MIB);
            if known > 0 {
                jobserver.look(Nanos(LOOK), LINE, &[seen(99, 0, 5, known * MIB, 0)]);
                jobserver.look(Nanos(LOOK), LINE, &[]);
            }
            let mut at = SECOND;
            let mut look = |at: u64| {
                let spins = |pid| seen(pid, 1, 5, each * MIB, at);
                let passes = seen(u32::try_from(at / apart).unwrap() + 10, 1, 7, MIB, 0);
                let all: Vec<Seen> = (2..6).map(spins).chain([passes]).collect();
                jobserver.look(Nanos(at), LINE, &all)
            };
            assert_ne!(held(&look(at)), Vec::<u32>::new());
            loop {
                at += apart;
                if look(at).held.is_empty() {
                    break;
                }
                assert!(at < 200 * SECOND, "{each} MiB each, {known} known, each {apart} ns");
            }
        }
    }
}

/// Long work without growth is no reason to let others grow as well.
#[test]
fn one_that_goes_on_because_none_moves_is_held_again_as_it_grows() {
    for plateau in [1200, 6000, 12_000] {
        let jobs = (0..4).map(|_| Job {
            arrives: 0,
            program: 5,
            most: 600 * MIB,
            grows: 6 * MIB,
            keeps: plateau,
            usage: 0,
            cpu: 0,
        });
        let told = run(Some(&mut knows(5, 600 * MIB)), LINE, jobs.collect());
        assert!(told.highest < 700 * MIB, "{plateau} looks: {told:?}");
    }
}

#[test]
fn who_may_not_be_held_goes_on_and_counts() {
    let mut jobserver = knows(5, 600 * MIB);
    let mut all = [seen(2, 1, 5, 0, 0), seen(3, 1, 5, 0, 0), seen(4, 1, 5, 0, 0)];
    all[1].may_be_held = false;
    let turns = jobserver.look(Nanos(2 * LOOK), LINE, &all);
    assert_eq!((held(&turns), turns.room), (Vec::from([4]), Bytes(0)));
}

#[test]
fn a_line_of_nothing_holds_all_but_one_and_programs_that_come_and_go_are_forgotten() {
    let mut jobserver = Jobserver::default();
    let turns = jobserver.look(Nanos(0), Bytes(0), &[seen(2, 1, 5, 1, 0), seen(3, 1, 5, 1, 0)]);
    assert_eq!((held(&turns), turns.may_begin()), (Vec::from([3]), 0));
    for inode in 0..5000 {
        jobserver.look(Nanos(0), LINE, &[seen(2, 1, inode, 1, 0)]);
    }
    assert!(jobserver.learned.len() <= super::PROGRAMS_MAX);
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// One that grows to `most`, keeps that for a while, and ends.
#[derive(Clone)]
struct Job {
    arrives: u64,
    program: u64,
    most: u64,
    grows: u64,
    keeps: u64,
    usage: u64,
    cpu: u64,
}

/// What came of a round.
#[derive(Debug, Default)]
struct Round {
    highest: u64,
    /// Looks at which somebody was held, and what was in use then, of the line.
    waited: u64,
    used: u64,
    overtaken: u64,
    looks: u64,
}

/// `None`: nobody is held.
fn run(mut jobserver: Option<&mut Jobserver>, line: Bytes, jobs: Vec<Job>) -> Round {
    let mut round = Round::default();
    let mut there: BTreeMap<u32, Job> = (2..).zip(jobs).collect();
    let mut overtaken: BTreeMap<u32, u64> = BTreeMap::new();
    let mut running: Vec<u32> = Vec::new();
    while !there.is_empty() {
        let at = round.looks;
        let all: Vec<Seen> = there
            .iter()
            .filter(|(_, job)| job.arrives <= at)
            .map(|(pid, job)| Seen {
                id: VictimId { pid: Pid(*pid), start_ns: job.arrives * LOOK },
                ..seen(*pid, 1, job.program, job.usage, job.cpu)
            })
            .collect();
        let turns = jobserver.as_mut().map(|jobserver| jobserver.look(Nanos(at * LOOK), line, &all));
        let held_now = held(&turns.unwrap_or_default());
        let goes_on: Vec<u32> =
            all.iter().map(|one| one.id.pid.0).filter(|pid| !held_now.contains(pid)).collect();
        for begins in goes_on.iter().filter(|pid| !running.contains(pid)) {
            let older = |pid: &u32| there[pid].arrives < there[begins].arrives;
            held_now.iter().filter(|pid| older(pid)).for_each(|pid| *overtaken.entry(*pid).or_default() += 1);
        }
        running = goes_on.clone();
        for pid in goes_on {
            let job = there.get_mut(&pid).unwrap();
            job.cpu += LOOK;
            if job.usage < job.most {
                job.usage = (job.usage + job.grows).min(job.most);
            } else if job.keeps > 0 {
                job.keeps -= 1;
            } else {
                there.remove(&pid);
            }
        }
        let usage: u64 = there.values().map(|job| job.usage).sum();
        round.highest = round.highest.max(usage);
        if !held_now.is_empty() {
            round.waited += 1;
            round.used += usage / MIB;
        }
        round.looks += 1;
        assert!(round.looks < 100_000, "it has no end");
    }
    round.overtaken = overtaken.values().copied().max().unwrap_or(0);
    round
}

/// 16 that need nearly a quarter of the line each come when they will, in a build that knows nothing of them: nothing is
/// killed, all end, nobody is overtaken more than once, and memory is used. As in the command, a part of the line stays free.
#[test]
fn sixteen_that_do_not_fit_together_take_turns_and_use_the_line() {
    let mut random = Random(22);
    let (line, mut waited, mut used) = (Bytes(LINE.0 / 64 * 63), 0, 0);
    for round in 0..200 {
        let jobs = (0..16).map(|_| Job {
            arrives: random.below(300),
            program: 5,
            most: (230 + random.below(20)) * MIB,
            grows: (10 + random.below(30)) * MIB,
            keeps: 20 + random.below(80),
            usage: 0,
            cpu: 0,
        });
        let told = run(Some(&mut Jobserver::default()), line, jobs.collect());
        assert!(told.highest <= line.0, "round {round}: {told:?}");
        assert!(told.overtaken <= 1, "round {round}: {told:?}");
        (waited, used) = (waited + told.waited, used + told.used);
    }
    let part = used * 100 / (waited * (LINE.0 / MIB));
    std::println!("{part} % of the line is used while somebody is held");
    assert!(part >= 75, "{part} %");
}

/// All at once, of programs that nobody knows and that come to different sizes: how many of 500 rounds cross the line, and
/// how many would if nobody was held.
fn crossed(seed: u64, size: fn(u64, &mut Random) -> u64) -> (u64, u64) {
    let (mut random, mut crossed) = (Random(seed), (0, 0));
    for _ in 0..500 {
        let count = 2 + random.below(30);
        let jobs = (0..count).map(|_| {
            let program = random.below(4);
            Job {
                arrives: random.below(3),
                program,
                most: size(program, &mut random) * MIB,
                grows: (1 + random.below(10)) * MIB,
                keeps: random.below(50),
                usage: 0,
                cpu: 0,
            }
        });
        let jobs: Vec<Job> = jobs.collect();
        crossed.1 += u64::from(run(None, LINE, jobs.clone()).highest > LINE.0);
        crossed.0 += u64::from(run(Some(&mut Jobserver::default()), LINE, jobs).highest > LINE.0);
    }
    std::println!("{crossed:?} of 500 rounds cross the line");
    crossed
}

#[test]
fn programs_that_come_to_about_the_same_each_time_hardly_ever_cross_the_line() {
    let about = |program, random: &mut Random| {
        [3, 40, 180, 450][usize::try_from(program).unwrap()] * (100 + random.below(10)) / 100
    };
    let (held, free) = crossed(7, about);
    assert!(held <= 5 && free > 350, "{held}, {free}");
}

/// Nobody could tell what these come to.
#[test]
fn programs_that_come_to_anything_cross_it_seldom() {
    let anything = |program, random: &mut Random| 1 + random.below(if program == 0 { 500 } else { 200 });
    let (held, free) = crossed(7, anything);
    assert!(held <= 10 && free > 300, "{held}, {free}");
}
