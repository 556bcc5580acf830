pub(in crate::guard) mod town;

use crate::guard::selection::census::TREE_MAX;
use plimsoll_policy::{
    machine::MachineConfig,
    preference::{Effect, Pattern, Rule, Rules, Scope},
    selection::Weight,
    units::{Bytes, Nanos, Pages},
    victim::Signal,
};
use town::{Guarded, Incidents, Town, id};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// Of 1 GiB in programs: about to run short, at the SIGTERM threshold, at the SIGKILL threshold.
const NEAR: Bytes = Bytes(165 * MIB);
const SHORT: Bytes = Bytes(90 * MIB);
const DIRE: Bytes = Bytes(30 * MIB);
const PLENTY: Bytes = Bytes(6000 * MIB);

fn quiet(dry_run: bool) -> MachineConfig {
    MachineConfig { notice: None, reclaim: false, spike: Nanos(0), dry_run, ..MachineConfig::default() }
}

/// A rule by which a job goes as a tree: it weighs all but what it did.
fn trees_of(comm: &str) -> Rules {
    let effect = Effect::Weight(Weight::from_permille(1001).unwrap());
    let rule =
        Rule { comm: vec![Pattern::new(comm).unwrap()], scope: Some(Scope::Tree), ..Rule::new(effect) };
    Rules::new(vec![rule]).unwrap()
}

#[test]
fn two_in_a_row_are_chosen_from_the_ready_list_and_the_second_is_right_after_the_world_changed() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second"), (12, 1, 3000, "third")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    assert_eq!((town.listed(), town.sent().len()), (1, 0));
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    // The second one shrinks, the third outgrows it, and somebody comes who is larger than it was.
    town.set(11, 100);
    town.grows(12, 8000);
    town.comes(13, 1, 6000, "newcomer");
    for (gone, next) in [(10, 12), (12, 13), (13, 11)] {
        town.gone(gone);
        guarded.freed(gone);
        guarded.tend();
        assert_eq!(town.sent().last(), Some(&(id(next), Signal::Kill)));
    }
    assert_eq!(town.sent().len(), 4);
    assert_eq!(town.listed(), 1, "nobody was listed a second time");
    assert!(guarded.effort().processes >= 4 && guarded.effort().looks <= 4, "{:?}", guarded.effort());
}

#[test]
fn the_ready_list_outlives_a_configuration_that_is_read_again_and_not_other_rules() {
    for (other_rules, lists) in [(false, 1), (true, 2)] {
        let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second")]);
        let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
        town.has(NEAR);
        guarded.tend();
        guarded.configure(quiet(false));
        if other_rules {
            guarded.judge_anew();
        }
        town.has(DIRE);
        guarded.tend();
        assert_eq!((town.sent(), town.listed()), (vec![(id(10), Signal::Kill)], lists));
    }
}

#[test]
fn a_list_that_is_too_old_or_missed_somebody_is_made_anew() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second"), (12, 1, 100, "small")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    town.has(DIRE);
    // It shrinks, which nothing notes; some notes were lost.
    town.set(10, 50);
    town.lose_notes();
    guarded.tend();
    assert_eq!((town.sent(), town.listed()), (vec![(id(11), Signal::Kill)], 2));
}

#[test]
fn while_a_victims_end_is_awaited_pages_that_are_taken_back_do_not_hurry_the_guard() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 100));
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    guarded.tend();
    assert_eq!((town.sent().len(), town.pressed()), (1, Nanos(town.now() + SECOND / 10)));
    town.gone(10);
    guarded.freed(10);
    guarded.tend();
    assert_eq!(town.sent().len(), 2);
}

#[test]
fn pages_that_are_taken_back_for_long_hurry_the_guard_less_and_less() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    for hundredths in [1, 2, 4, 8] {
        assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 100 * hundredths));
        guarded.pages_are_taken_back();
    }
    assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 10));
    // The next look is due then in any case, which says nothing about pages.
    guarded.tend();
    assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 10));
}

#[test]
fn pages_that_are_taken_back_once_hurry_the_guard_the_next_time_too() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    guarded.pages_are_taken_back();
    assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 50));
    guarded.tend();
    assert_eq!(town.pressed(), Nanos(town.now() + SECOND / 100));
}

#[test]
fn one_that_became_another_program_since_it_was_judged_is_judged_again() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second")]);
    let avoid = Rule {
        comm: vec![Pattern::new("calm").unwrap()],
        ..Rule::new(Effect::Weight(Weight::from_permille(250).unwrap()))
    };
    let mut guarded = Guarded::new(&town, quiet(false), Rules::new(vec![avoid]).unwrap());
    town.has(NEAR);
    guarded.tend();
    let portraits = town.portraits();
    town.executes(10, "calm");
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
    assert_eq!(town.portraits() - portraits, 1, "the one that changed, and nobody else");
}

#[test]
fn a_victim_is_portrayed_once_before_its_signal() {
    for prepared in [true, false] {
        let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 50, "small")]);
        let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
        if prepared {
            town.has(NEAR);
            guarded.tend();
        }
        town.has(DIRE);
        guarded.tend();
        assert_eq!((town.sent(), town.portraits()), (vec![(id(10), Signal::Kill)], 1));
    }
}

#[test]
fn of_a_tree_those_go_too_who_were_started_after_the_list_was_made() {
    let town = Town::of(&[
        (10, 1, 500, "tmux: server"),
        (20, 10, 40, "make"),
        (21, 20, 9000, "cc1"),
        (22, 20, 300, "cc1"),
        (30, 10, 800, "sh"),
    ]);
    let mut guarded = Guarded::new(&town, quiet(false), trees_of("make"));
    town.has(NEAR);
    guarded.tend();
    town.comes(23, 22, 10, "as");
    town.has(DIRE);
    guarded.tend();
    let mut sent: Vec<_> = town.sent().iter().map(|(victim, _)| victim.pid.0).collect();
    assert_eq!(sent.first(), Some(&21), "the victim itself first");
    sent.sort_unstable();
    assert_eq!(sent, [20, 21, 22, 23], "neither the server nor its other pane");
}

#[test]
fn a_number_that_is_anothers_by_now_brings_nobody_into_a_tree() {
    let town = Town::of(&[(20, 1, 40, "make"), (21, 20, 9000, "cc1"), (22, 20, 30, "sh")]);
    let mut guarded = Guarded::new(&town, quiet(false), trees_of("make"));
    town.has(NEAR);
    guarded.tend();
    // One of the job has gone, and a stranger has its number and a child.
    town.gone(22);
    town.comes_again(22, 1, 70, "stranger");
    town.comes(50, 22, 60, "child");
    town.has(DIRE);
    guarded.tend();
    let mut sent: Vec<_> = town.sent().iter().map(|(victim, _)| (victim.pid.0, victim.start_ns)).collect();
    sent.sort_unstable();
    assert_eq!(sent, [(20, 1), (21, 1)]);
}

#[test]
fn a_tree_of_more_than_there_is_room_for_is_ended_as_far_as_that_and_told() {
    let most = u32::try_from(TREE_MAX).unwrap();
    let mut people = vec![(20, 1, 40, "make"), (21, 20, 90_000, "ld")];
    people.extend((100..100 + most).map(|pid| (pid, 20, 5, "cc1")));
    let town = Town::of(&people);
    let mut guarded = Guarded::new(&town, quiet(false), trees_of("make"));
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent().len(), TREE_MAX);
    assert!(guarded.said().iter().any(|line| line.contains("2 more were not")), "{:?}", guarded.said());
}

/// What a guard did in each of these situations, or in a dry run says it would have done: whom it named and what it said.
fn run(
    dry_run: bool,
    config: &MachineConfig,
    rules: &Rules,
    prepare: impl Fn(&Town),
) -> (Town, Vec<String>, Incidents) {
    let town = Town::of(&[
        (10, 1, 500, "tmux: server"),
        (20, 10, 40, "make"),
        (21, 20, 9000, "cc1"),
        (22, 20, 300, "cc1"),
        (30, 1, 7000, "service"),
    ]);
    prepare(&town);
    let mut guarded = Guarded::new(&town, MachineConfig { dry_run, ..*config }, rules.clone());
    for memory in [NEAR, SHORT, DIRE] {
        town.has(memory);
        guarded.tend();
        town.passes(30 * SECOND);
    }
    let mut told: Vec<_> = guarded.incidents();
    told.dedup();
    (town, guarded.said(), told)
}

#[test]
fn a_dry_run_names_whom_a_real_one_signals_and_signals_nobody() {
    type Prepare = fn(&Town);
    let one = |config: &MachineConfig, rules: &Rules, prepare: Prepare| {
        let (town, _, real) = run(false, config, rules, prepare);
        let (dry_town, said, dry) = run(true, config, rules, prepare);
        assert_eq!(dry_town.sent(), [], "{said:?}");
        // Those who are named first, with the same reason; the dry run's do not end, so that what comes later differs.
        assert_eq!(real.first(), dry.first());
        let signalled: Vec<u32> = town.sent().iter().map(|(victim, _)| victim.pid.0).collect();
        assert!(!signalled.is_empty());
        (said, dry)
    };
    let kills_only = MachineConfig { term: MachineConfig::default().kill, ..quiet(false) };
    // One alone.
    let (_, dry) = one(&kills_only, &Rules::default(), |_| ());
    assert_eq!(dry[0], ("machine-low-memory-kill".into(), vec![21]));
    // A tree.
    let (_, dry) = one(&kills_only, &trees_of("make"), |_| ());
    assert_eq!(dry[0], ("machine-low-memory-kill".into(), vec![21, 20, 22]));
    // SIGTERM first.
    let (_, dry) = one(&quiet(false), &trees_of("make"), |_| ());
    assert_eq!(dry[0], ("machine-low-memory-term".into(), vec![21]));
    // A service's main process, whose unit would be marked.
    let (said, dry) = one(&kills_only, &Rules::default(), |town| town.set(30, 20_000));
    assert_eq!(dry[0].1, [30]);
    assert!(said.iter().any(|line| line.contains("would have marked the unit of")), "{said:?}");
    // A cgroup that goes whole: what would be done to it is told by the thread that would do it.
    let (said, dry) = one(&kills_only, &Rules::default(), Town::kills_by_cgroup);
    assert_eq!(dry[0].1, [21]);
    assert!(said.iter().any(|line| line.contains("cgroup")), "{said:?}");
}

#[test]
fn a_dry_run_tells_the_milder_steps_too() {
    let config = MachineConfig { notice: MachineConfig::default().notice, reclaim: true, ..quiet(true) };
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, config, Rules::default());
    town.has_with_swap(SHORT, Bytes(1024 * MIB));
    for _ in 0..3 {
        guarded.tend();
        town.passes(3 * SECOND);
    }
    assert!(guarded.said().iter().any(|line| line.contains("would reclaim")), "{:?}", guarded.said());
    town.has(NEAR);
    town.passes(3 * SECOND);
    town.has(Bytes(150 * MIB));
    guarded.tend();
    assert!(guarded.incidents().iter().any(|(reason, _)| reason == "machine-low-memory-notice"));
    assert_eq!(town.sent(), []);
}

#[test]
fn with_plenty_of_memory_nothing_is_listed_and_nobody_is_noted() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(NEAR);
    guarded.tend();
    assert!(town.watched());
    town.has(PLENTY);
    town.passes(SECOND);
    guarded.tend();
    assert!(!town.watched() && guarded.ready(Nanos(town.now())).is_none());
    assert_eq!(town.listed(), 1);
}

#[test]
fn while_some_cannot_be_looked_at_it_is_not_said_that_only_the_protected_are_left() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.blind(true);
    town.has(DIRE);
    for _ in 0..10 {
        guarded.tend();
        town.passes(SECOND / 40);
    }
    assert_eq!((town.sent(), guarded.incidents()), (vec![], vec![]));
    town.blind(false);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    // For ever it is not.
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.blind(true);
    town.has(DIRE);
    for _ in 0..100 {
        guarded.tend();
        town.passes(SECOND / 40);
    }
    assert_eq!(guarded.incidents(), [("machine-only-protected-left".to_owned(), vec![])]);
}

#[test]
fn nobody_dies_at_once_in_the_place_of_a_larger_one_that_could_not_be_looked_at() {
    let people = [(10, 1, 9000, "hog"), (11, 1, 5000, "desktop"), (12, 1, 100, "small")];
    let hiding = |pid| {
        let town = Town::of(&people);
        town.hides(Some(pid));
        town.has(DIRE);
        (Guarded::new(&town, quiet(false), Rules::default()), town)
    };
    let (mut guarded, town) = hiding(10);
    for _ in 0..5 {
        guarded.tend();
    }
    assert_eq!((town.sent(), guarded.incidents()), (vec![], vec![]));
    town.hides(None);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    // For ever it is not: memory runs out.
    let (mut guarded, town) = hiding(10);
    let began = town.now();
    while town.sent().is_empty() {
        guarded.tend();
        assert!(town.now() - began <= SECOND / 2, "of the town's own clock");
    }
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
    // Nobody waits for one that is smaller.
    let (mut guarded, town) = hiding(11);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
}

#[test]
fn nobody_is_named_at_the_floor_for_a_while_in_the_place_of_one_that_could_not_be_looked_at() {
    let people = [(10, 1, 9000, "hog"), (11, 1, 5000, "desktop")];
    let town = Town::of(&people);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.hides(Some(10));
    assert!(guarded.foremost().is_empty());
    town.hides(None);
    assert_eq!(guarded.foremost(), [10, 11]);
    // For ever it is not: memory runs out. And what was waited for long ago is waited for again.
    town.hides(Some(10));
    for _ in 0..2 {
        town.passes(10 * SECOND);
        assert!(guarded.foremost().is_empty());
        town.passes(SECOND / 4);
        assert_eq!(guarded.foremost(), [11]);
    }
    guarded.falls_below_floor();
    assert_eq!(town.sent().first(), Some(&(id(11), Signal::Kill)));
}

#[test]
fn at_the_floor_it_is_not_said_at_once_that_only_the_protected_are_left() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.blind(true);
    guarded.falls_below_floor();
    assert_eq!((town.sent(), guarded.incidents()), (vec![], vec![]));
    for _ in 0..5 {
        town.passes(SECOND / 4);
        guarded.falls_below_floor();
    }
    assert_eq!(guarded.incidents()[0].0, "workingset-floor-only-protected-left");
    town.blind(false);
    guarded.falls_below_floor();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
}

#[test]
fn nobody_goes_for_what_one_gives_back_who_has_gone_since_memory_was_read() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "desktop")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.leaves(10);
    town.has(DIRE);
    guarded.tend();
    assert_eq!((town.sent(), guarded.incidents().len()), (vec![], 0));
    town.has(PLENTY);
    guarded.tend();
    assert_eq!(town.sent(), []);
    // It is found to be short again, and whoever is left goes.
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
}

#[test]
fn who_leaves_in_the_last_moment_one_after_the_other_holds_nothing_up_for_long() {
    let people: Vec<(u32, u32, u64, &str)> = (10..40).map(|pid| (pid, 1, 9000, "relay")).collect();
    let town = Town::of(&people);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(DIRE);
    for look in 1.. {
        // The youngest of the same size comes first.
        town.leaves(40 - look);
        guarded.tend();
        if !town.sent().is_empty() {
            assert_eq!(look, super::CONFIRM_TRIES + 1);
            break;
        }
    }
}

#[test]
fn of_many_small_ones_as_many_go_as_it_takes_and_of_large_ones_one() {
    // 5 % of what there is are 52 MiB, of which 22 are missing: 5,811 pages.
    for (pages, count) in [(1_500, 4), (3_000, 2), (6_000, 1)] {
        let people: Vec<(u32, u32, u64, &str)> = (10..40).map(|pid| (pid, 1, pages, "worker")).collect();
        let town = Town::of(&people);
        let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
        town.has(DIRE);
        for _ in 0..10 {
            guarded.tend();
        }
        assert_eq!(town.sent().len(), count, "of {pages} pages");
    }
}

#[test]
fn what_a_victim_has_given_back_is_not_awaited_any_more() {
    for (left, count) in [(Some(3_000), 2), (Some(500), 3), (None, 2)] {
        let people: Vec<(u32, u32, u64, &str)> = (10..40).map(|pid| (pid, 1, 3_000, "worker")).collect();
        let town = Town::of(&people);
        let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
        town.has(DIRE);
        for _ in 0..10 {
            guarded.tend();
        }
        let (first, _) = town.sent()[0];
        match left {
            Some(pages) => town.set(first.pid.0, pages),
            // It has let go of its address space, and nobody sees what is left of that.
            None => town.gone(first.pid.0),
        }
        town.passes(100_000_000);
        for _ in 0..10 {
            guarded.tend();
        }
        assert_eq!(town.sent().len(), count, "{left:?} left");
    }
}

#[test]
fn nobody_is_ended_at_the_floor_while_somebody_larger_is_on_the_way_out() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "desktop")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    assert_eq!(guarded.foremost(), [10, 11]);
    // By the kernel, or by another guard. The list is older than that.
    town.dies(10);
    guarded.falls_below_floor();
    assert_eq!((town.sent(), guarded.foremost()), (vec![], vec![]));
    town.gone(10);
    assert_eq!(guarded.foremost(), [11]);
    // One that gives back less than half as much is not waited for, nor one that does not end.
    for (pid, pages) in [(20, 2000), (21, 5000)] {
        town.comes(pid, 1, pages, "hog");
        town.dies(pid);
        town.passes(10 * SECOND);
        assert_eq!(guarded.foremost().is_empty(), pages == 5000);
    }
    town.passes(SECOND);
    assert!(guarded.foremost().is_empty());
    town.passes(SECOND);
    guarded.falls_below_floor();
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
}

#[test]
fn each_that_is_on_the_way_out_has_its_own_time() {
    let town = Town::of(&[(10, 1, 9000, "stuck"), (11, 1, 5000, "desktop"), (12, 1, 8000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.dies(10);
    assert!(guarded.foremost().is_empty());
    for quarter in 1..8 {
        town.passes(SECOND / 4);
        if quarter == 7 {
            town.dies(12);
        }
        assert!(guarded.foremost().is_empty());
    }
    // The first had its two seconds, the other had not.
    town.passes(SECOND);
    assert!(guarded.foremost().is_empty());
    town.passes(2 * SECOND);
    assert_eq!(guarded.foremost(), [11]);
}

#[test]
fn the_machine_guard_waits_for_whom_the_floor_has_ended() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "desktop")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    guarded.programs_take(10);
    town.has(DIRE);
    guarded.tend();
    guarded.tend();
    assert_eq!((town.sent(), guarded.incidents().len()), (vec![], 1));
    town.gone(10);
    guarded.settle();
    guarded.tend();
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
}

#[test]
fn who_is_held_on_the_way_out_does_not_hold_the_guard_while_memory_is_used_up() {
    let town = Town::of(&[(10, 1, 9000, "held"), (11, 1, 8000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.dies(10);
    town.has(DIRE);
    let began = town.now();
    while town.sent().is_empty() && town.now() < began + 3 * SECOND {
        guarded.tend();
    }
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
    assert!(town.now() < began + SECOND, "{} ms", (town.now() - began) / 1_000_000);
}

#[test]
fn whom_the_programs_asked_for_and_then_took_is_told_once() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "desktop")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    guarded.falls_below_floor();
    guarded.programs_take(10);
    assert_eq!((town.sent(), guarded.incidents().len()), (vec![(id(10), Signal::Kill)], 1));
}

#[test]
fn each_decision_has_its_own_time_to_wait_for_answers() {
    let town = Town::of(&[(10, 1, 9000, "hog")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    for memory in [NEAR, DIRE] {
        town.has(memory);
        guarded.tend();
    }
    assert_eq!(town.decisions(), 2);
    // Those at the floor, too: where the machine has no guard there are no others.
    assert_eq!((guarded.foremost(), town.decisions()), (vec![], 3));
    guarded.falls_below_floor();
    assert_eq!(town.decisions(), 4);
}

#[test]
fn those_of_a_tree_who_could_not_be_looked_at_are_told() {
    let town = Town::of(&[(20, 1, 40, "make"), (21, 20, 9000, "cc1"), (22, 20, 30, "cc1")]);
    let mut guarded = Guarded::new(&town, quiet(false), trees_of("make"));
    town.hides(Some(22));
    town.has(DIRE);
    guarded.tend();
    let mut sent: Vec<_> = town.sent().iter().map(|(victim, _)| victim.pid.0).collect();
    sent.sort_unstable();
    assert_eq!(sent, [20, 21]);
    let told = guarded.said();
    assert!(told.iter().any(|line| line.contains("1 processes could not be looked at")), "{told:?}");
}

#[test]
fn where_the_victim_has_just_ended_its_cgroup_lives_and_the_next_is_selected() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second")]);
    town.kills_by_cgroup();
    town.slips_away(10);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(DIRE);
    guarded.tend();
    assert_eq!((town.sent(), guarded.said()), (vec![], vec![]));
    guarded.tend();
    assert_eq!(town.sent(), [(id(11), Signal::Kill)]);
    let said = guarded.said();
    assert!(said.len() == 1 && said[0].contains("cgroup"), "{said:?}");
}

#[test]
fn the_next_is_selected_as_soon_as_the_cgroup_of_the_one_before_has_ended() {
    let town = Town::of(&[(10, 1, 9000, "hog"), (11, 1, 5000, "second")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(DIRE);
    guarded.tend();
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    guarded.is_ending(true);
    town.gone(10);
    guarded.freed(10);
    let gone = town.now();
    while town.now() < gone + SECOND / 2 {
        guarded.tend();
        assert_eq!(town.sent().len(), 1, "some of the cgroup are left");
    }
    guarded.is_ending(false);
    let ended = town.now();
    while town.sent().len() < 2 {
        guarded.tend();
    }
    assert_eq!(town.sent().last(), Some(&(id(11), Signal::Kill)));
    assert!(town.now() - ended <= SECOND / 50, "after {} ns", town.now() - ended);
}

#[test]
fn a_large_victim_is_announced_to_the_reaper_before_its_signal_and_a_small_one_is_not() {
    // 64 MiB and one page less, of any page size.
    let large = (64 * MIB) / plimsoll_sys::process::page_size().to_bytes(Pages(1)).0;
    let town = Town::of(&[(10, 1, large, "large"), (11, 1, large - 1, "small")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(DIRE);
    guarded.tend();
    assert_eq!((town.announced(), town.sent()), (vec![(id(10), 0)], vec![(id(10), Signal::Kill)]));
    town.gone(10);
    guarded.freed(10);
    guarded.tend();
    assert_eq!((town.announced().len(), town.sent().last()), (1, Some(&(id(11), Signal::Kill))));
    // One that was asked to end, and does not.
    let town = Town::of(&[(10, 1, large, "large")]);
    let mut guarded = Guarded::new(&town, quiet(false), Rules::default());
    town.has(SHORT);
    guarded.tend();
    assert_eq!((town.announced(), town.sent()), (vec![], vec![(id(10), Signal::Term)]));
    town.has(DIRE);
    while town.sent().len() < 2 {
        guarded.tend();
    }
    assert_eq!((town.announced(), town.sent().last()), (vec![(id(10), 1)], Some(&(id(10), Signal::Kill))));
}
