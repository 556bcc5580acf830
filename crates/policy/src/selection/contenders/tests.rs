use super::unresolved;
use crate::{
    reading::Reading,
    selection::{
        Candidate, Doubt, Protection, RESOLVE_MAX, Standing, Weight, WeightRange, select,
        tests::{candidate, pids},
    },
    units::{Pages, Pid},
};
use proptest::{prelude::any, prop_assert, prop_assert_eq, proptest, strategy::Strategy};
use std::vec::Vec;

const NOBODY_SKIPPED: fn(super::VictimId) -> bool = |_| false;

/// A candidate as a rough look shows it, and as it is.
#[derive(Debug, Clone)]
struct Twofold {
    rough: Candidate,
    real: Candidate,
}

/// Finds out about those named until nobody is; how many that were.
fn resolve(candidates: &[Twofold], range: WeightRange, skipped: u32) -> (Vec<Candidate>, usize) {
    let skip = |victim: super::VictimId| victim.pid == Pid(skipped);
    let mut known: Vec<Candidate> = candidates.iter().map(|one| one.rough).collect();
    let mut asked = 0;
    loop {
        let batch = unresolved(&known, range, skip);
        if batch.is_empty() {
            return (known, asked);
        }
        for one in &batch {
            let index = known.iter().position(|other| other.id() == one.id()).unwrap();
            assert!(known[index].is_doubtful(), "asked twice about {one:?}");
            known[index] = candidates[index].real;
            asked += 1;
        }
    }
}

fn rough(pid: u32, pages: u64, error: u64) -> Candidate {
    Candidate { doubt: Doubt { error: Pages(error), ..Doubt::NONE }, ..candidate(pid, pages) }
}

#[test]
fn whoever_cannot_be_the_heaviest_is_left_alone() {
    let candidates = [rough(10, 100, 20), rough(11, 140, 20), rough(12, 300, 20), rough(13, 270, 20)];
    assert_eq!(pids(&unresolved(&candidates, WeightRange::NEUTRAL, NOBODY_SKIPPED)), [12, 13]);
}

#[test]
fn a_small_address_space_cannot_hide_a_large_usage() {
    let small = |pid| {
        let doubt = Doubt { error: Pages(130_816), ceiling: Pages(2_000), unjudged: false };
        Candidate { doubt, ..candidate(pid, 500) }
    };
    let candidates = [small(10), small(11), rough(12, 140_000, 130_816)];
    assert_eq!(pids(&unresolved(&candidates, WeightRange::NEUTRAL, NOBODY_SKIPPED)), [12]);
}

#[test]
fn a_light_one_that_rules_may_prefer_is_asked_about() {
    let unjudged =
        |pid, pages| Candidate { doubt: Doubt { unjudged: true, ..Doubt::NONE }, ..candidate(pid, pages) };
    let range = WeightRange::NEUTRAL.with(Weight::from_permille(4000).unwrap());
    let candidates = [candidate(10, 1000), unjudged(11, 251), unjudged(12, 249)];
    assert_eq!(pids(&unresolved(&candidates, range, NOBODY_SKIPPED)), [11]);
    assert!(unresolved(&candidates, WeightRange::NEUTRAL, NOBODY_SKIPPED).is_empty());
}

#[test]
fn the_unjudged_are_not_selected() {
    let unjudged = Candidate { doubt: Doubt { unjudged: true, ..Doubt::NONE }, ..candidate(10, 1000) };
    assert_eq!(pids(&select(&[unjudged, candidate(11, 1)], NOBODY_SKIPPED).victims), [11]);
}

#[test]
fn those_who_share_the_victims_memory_are_asked_about_with_it() {
    let light = Candidate {
        mm: 10,
        weight: Weight::from_permille(250).unwrap(),
        doubt: Doubt { unjudged: true, ..Doubt::NONE },
        ..candidate(11, 1000)
    };
    assert_eq!(pids(&unresolved(&[candidate(10, 1000), light], WeightRange::NEUTRAL, NOBODY_SKIPPED)), [11]);
}

#[test]
fn when_the_heaviest_turns_out_protected_the_next_are_asked_about() {
    let protected = Candidate { standing: Standing::Protected(Protection::Executable), ..candidate(12, 900) };
    let candidates: Vec<Twofold> = [
        (rough(10, 500, 0), candidate(10, 500)),
        (rough(11, 490, 20), candidate(11, 505)),
        (rough(12, 900, 20), protected),
    ]
    .map(|(rough, real)| Twofold { rough, real })
    .into();
    let (known, asked) = resolve(&candidates, WeightRange::NEUTRAL, 0);
    assert_eq!((pids(&select(&known, NOBODY_SKIPPED).victims), asked), ([11, 10].to_vec(), 2));
}

#[test]
fn a_weight_multiplies_and_never_adds() {
    // A browser's tab of 79 MiB at 300, beside a hog of 3 GB (earlyoom issue 344); a pod at 1000 beside it (issue 230).
    let tab = Candidate { weight: Weight::from_permille(1300).unwrap(), ..candidate(10, 20_224) };
    let pod = Candidate { weight: Weight::from_permille(2000).unwrap(), ..candidate(11, 12_800) };
    let hog = candidate(12, 732_421);
    assert_eq!(pids(&select(&[tab, pod, hog], NOBODY_SKIPPED).victims), [12, 10, 11]);
}

/// Free, dying and protected ones, some sharing memory, each as a rough look and as found out.
fn any_twofold() -> impl Strategy<Value = Vec<Twofold>> {
    let one = (
        (0_u64..40, 0_u64..12, 0_u64..12, 0_u64..6),
        (0_u64..9, 0_u64..3, 0_usize..4, any::<bool>()),
        (0_u8..14, 0_u8..10),
    );
    let candidates = proptest::collection::vec(one, 0..24);
    candidates.prop_map(|all| {
        let numbered = (2_u32..).zip(all);
        numbered.map(|(pid, parts)| twofold(pid, parts)).collect()
    })
}

/// In order: usage, what it is off by, how far it may be off, how much its address space has to spare; address space,
/// start, weight, whether it is judged; standing and fate.
type Parts = ((u64, u64, u64, u64), (u64, u64, usize, bool), (u8, u8));

fn twofold(pid: u32, parts: Parts) -> Twofold {
    let ((usage, off, error, spare), (mm, start_ns, weight, unjudged), (standing, fate)) = parts;
    let weight = Weight::from_permille([250, 1000, 1300, 4000][weight]).unwrap();
    let off = off.min(error);
    let seen = if pid.is_multiple_of(2) { usage + off } else { usage.saturating_sub(off) };
    let real = Candidate {
        start_ns,
        mm,
        weight,
        standing: match standing {
            0 => Standing::Dying,
            1 | 2 => Standing::Protected(Protection::Unit),
            _ => Standing::Free,
        },
        usage: if fate == 0 { Reading::Absent } else { Reading::Known(Pages(usage)) },
        ..candidate(pid, usage)
    };
    let known_standing =
        if unjudged && real.standing != Standing::Dying { Standing::Free } else { real.standing };
    let rough = Candidate {
        usage: Reading::Known(Pages(seen)),
        weight: if unjudged { Weight::NEUTRAL } else { weight },
        doubt: Doubt { error: Pages(error), ceiling: Pages(usage + spare), unjudged },
        standing: known_standing,
        ..real
    };
    // Who is known already is what they are.
    if rough.is_doubtful() { Twofold { rough, real } } else { Twofold { rough: real, real } }
}

fn all_weights() -> WeightRange {
    let weights = [250, 4000].map(|permille| Weight::from_permille(permille).unwrap());
    weights.into_iter().fold(WeightRange::NEUTRAL, WeightRange::with)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(10_000))]

    #[test]
    fn two_passes_find_the_victim_of_an_exact_look_at_all(candidates in any_twofold(), skipped in 0_u32..30) {
        let skip = |victim: super::VictimId| victim.pid == Pid(skipped);
        let (known, _) = resolve(&candidates, all_weights(), skipped);
        let exact: Vec<Candidate> = candidates.iter().map(|one| one.real).collect();
        let (found, right) = (select(&known, skip), select(&exact, skip));
        prop_assert_eq!(found.victims.first(), right.victims.first());
        // Nobody protected shares its memory, whether or not a rough look at them was enough.
        if let Some(victim) = found.victims.first() {
            prop_assert!(!victim.is_shielded(&exact));
        }
    }
}

/// The seed's machine: 256 CPUs. A counter is off by up to `percpu_counter_batch - 1` pages on each of them, which is
/// `2 * 256 - 1` (lib/percpu_counter.c, 6.2 to 7.2); three counters are added.
const ERROR_256_CPUS: u64 = 3 * (2 * 256 - 1) * 256;

/// Ten thousand processes as on a busy server: most small in small address spaces, some with address spaces far larger
/// than what they use (Go, Java, browsers).
fn server(seed: u64, hog_pages: u64) -> Vec<Twofold> {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let one = |pid: u32| {
        let (usage, space) = match random(100) {
            _ if pid == 5_000 => (hog_pages, hog_pages + 4_000),
            0 => (random(40_000), 300_000 + random(200_000)),
            1..=9 => (random(20_000), 40_000),
            _ => (random(1_000), 3_000),
        };
        let seen = (usage + random(2 * ERROR_256_CPUS)).saturating_sub(ERROR_256_CPUS).min(space);
        let doubt = Doubt { error: Pages(ERROR_256_CPUS), ceiling: Pages(space), unjudged: false };
        Twofold { rough: Candidate { doubt, ..candidate(pid, seen) }, real: candidate(pid, usage) }
    };
    (2..10_002).map(one).collect()
}

#[test]
fn with_256_cpus_one_process_in_a_hundred_is_summed_exactly() {
    for (seed, hog_pages) in (1..).zip([330_000, 400_000, 600_000, 1_000_000, 4_000_000, 40_000_000]) {
        let candidates = server(seed, hog_pages);
        let (known, asked) = resolve(&candidates, WeightRange::NEUTRAL, 0);
        assert_eq!(select(&known, NOBODY_SKIPPED).victims[0].pid, Pid(5_000), "{hog_pages}");
        assert!(asked <= candidates.len() / 100, "{asked} exact sums for a hog of {hog_pages} pages");
    }
}

#[test]
fn a_batch_is_never_larger_than_its_room() {
    let candidates: Vec<Candidate> = (10..100).map(|pid| rough(pid, 50, 10)).collect();
    assert_eq!(unresolved(&candidates, WeightRange::NEUTRAL, NOBODY_SKIPPED).len(), RESOLVE_MAX);
}
