use super::{
    Simulation, Told, simulate, simulate_quietly,
    world::{DAEMON, Process},
};
use plimsoll_policy::{
    selection::Weight,
    units::{Nanos, Pages, Pid, Uid},
};
use plimsoll_testkit::FakeKernel;
use plimsoll_wire::record::{Record, RecordKind, RecordProcess};
use std::{panic::resume_unwind, thread};

/// Seeds of one run, and steps of each. `PLIMSOLL_SIM_SEEDS` for more; `PLIMSOLL_SIM_SEED` for one, which shows all that
/// happens.
const SEEDS: u64 = 140;
const STEPS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: '{text}' is no number")))
}

/// Quietly where there are several: what each said as it failed is shown, and all that happened when it is run alone. The
/// seeds that failed come back as well.
fn simulate_all(seeds: &[u64], steps: u64) -> (Told, Vec<u64>) {
    let kernel = FakeKernel::open(FakeKernel::of_this_tree()).unwrap();
    let (mut all, mut failed) = (Told::default(), Vec::new());
    for seed in seeds {
        let told = match seeds {
            [_] => Ok(simulate(*seed, steps, &kernel)),
            _ => simulate_quietly(*seed, steps, &kernel),
        };
        let Ok(told) = told else {
            eprintln!("simulator: PLIMSOLL_SIM_SEED={seed} PLIMSOLL_SIM_STEPS={steps} shows this again");
            failed.push(*seed);
            continue;
        };
        all.signals += told.signals;
        all.crashes += told.crashes;
        all.fingerprint = all.fingerprint.rotate_left(1) ^ told.fingerprint;
    }
    (all, failed)
}

#[test]
fn whatever_happens_the_guard_kills_who_it_must_and_nobody_else() {
    let steps = number("PLIMSOLL_SIM_STEPS").unwrap_or(STEPS);
    let seeds = number("PLIMSOLL_SIM_SEEDS").unwrap_or(SEEDS);
    let seeds: Vec<u64> = number("PLIMSOLL_SIM_SEED").map_or(1..seeds + 1, |seed| seed..seed + 1).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut failed = Vec::new();
    thread::scope(|scope| {
        let parts = seeds.chunks(seeds.len().div_ceil(workers));
        let all: Vec<_> = parts.map(|part| scope.spawn(move || simulate_all(part, steps))).collect();
        for one in all {
            match one.join() {
                Ok((told, its)) => {
                    println!("{told:?}");
                    failed.extend(its);
                }
                Err(cause) => resume_unwind(cause),
            }
        }
    });
    assert!(failed.is_empty(), "seeds {failed:?} failed");
}

/// The programs' own kill of a process that counts more than its size.
fn acted(pid: u32, process: &Process) -> Record {
    let mm = process.mm.unwrap();
    Record {
        kind: RecordKind::Acted,
        time: Nanos(1),
        signal_time: Some(Nanos(2)),
        whose: Uid(process.uid).into(),
        usage: Pages(9000),
        hard: Pages(8000),
        effective: Pages(8000),
        dying: Pages(0),
        charged: Pages(1),
        process: RecordProcess {
            uid: Uid(process.uid),
            mm,
            pid: Pid(pid),
            start_ns: process.start_ns,
            pages: Pages(100),
            weight: Weight::from_permille(4000).unwrap(),
            job: None,
            cgroup_id: None,
            comm: None,
            cmdline: None,
        },
        signal: 9,
        signal_errno: None,
        largest: true,
        other: true,
        unanswered: false,
        mm_shared: false,
        turned_away: false,
        no_grace: false,
    }
}

#[test]
fn a_victim_of_the_programs_is_reaped_before_its_peers_are_listed_and_those_of_a_storm_are_listed_once() {
    let mut simulation = Simulation::new(7, &FakeKernel::open(FakeKernel::of_this_tree()).unwrap());
    simulation.world().faults.reaper_full = 0;
    simulation.start_daemon();
    // They start others; nobody but the daemon runs from here on.
    for _ in 0..300 {
        simulation.machine.happen();
    }
    simulation.world().faults.between = 0;
    simulation.machine.finish_all();
    simulation.world().calm = true;
    let mut guard = simulation.guard.take().unwrap();
    guard.take_records();
    {
        let mut world = simulation.world();
        let known = super::Maps::read(&world.kernel).by_uid;
        let is_victim = |pid: &u32, one: &Process| {
            *pid > DAEMON && known.contains_key(&one.uid) && one.mm.is_some() && !one.killed
        };
        let victims = world.processes.iter().filter(|(pid, one)| is_victim(pid, one)).take(3);
        let records: Vec<Record> = victims.map(|(pid, one)| acted(*pid, one)).collect();
        assert_eq!(records.len(), 3, "too few run");
        world.forged.extend(records);
        world.listings = 0;
        world.handed_over.clear();
    }
    guard.take_records();
    let world = simulation.world();
    assert_eq!((world.handed_over.len(), world.handed_over[0]), (3, 0), "listings before each");
    assert_eq!(world.listings, 1);
}
