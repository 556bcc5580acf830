use super::{
    Candidate, Doubt, PEERS_MAX, Protection, Standing, VICTIMS_MAX, Weight, company, own_share, rank, select,
    select_for,
};
use crate::{
    reading::Reading,
    reservation::Tier,
    units::{Pages, Pid, Uid},
    victim::VictimId,
};
use proptest::{prelude::any, prop_assert, prop_assert_eq, prop_oneof, proptest, strategy::Strategy};
use std::vec::Vec;

/// A process of 1000 with an address space of its own.
pub(crate) fn candidate(pid: u32, pages: u64) -> Candidate {
    let id = VictimId { pid: Pid(pid), start_ns: 100 };
    let usage = Reading::Known(Pages(pages));
    Candidate { mm: u64::from(pid), usage, ..Candidate::of(id, Uid(1000)) }
}

pub(super) fn pids(candidates: &[Candidate]) -> Vec<u32> {
    candidates.iter().map(|one| one.pid.0).collect()
}

#[test]
fn who_keeps_to_its_grants_comes_after_everybody_else_however_much_it_has() {
    let lower = |pid, pages| Candidate { tier: Tier::Lower, ..candidate(pid, pages) };
    let candidates = [lower(10, 9000), candidate(11, 1), lower(12, 9001), candidate(13, 5)];
    assert_eq!(pids(&rank(&candidates)), [13, 11, 12, 10]);
    // As in the programs, whatever rules make of it.
    let heavy = Candidate { weight: Weight::MAX, ..lower(14, 9000) };
    let light = Candidate { weight: Weight::MIN, ..candidate(15, 1) };
    assert_eq!(pids(&rank(&[heavy, light])), [15, 14]);
}

#[test]
fn the_largest_comes_first() {
    assert_eq!(pids(&rank(&[candidate(10, 5), candidate(11, 9), candidate(12, 7)])), [11, 12, 10]);
}

#[test]
fn forks_of_a_large_process_go_before_small_ones_beside_them_and_by_what_their_ends_give_back() {
    let fork = |pid, pages, own| Candidate { gives_back: Pages(own), ..candidate(pid, pages) };
    let first = |all: &[Candidate]| select_for(all, Pages(1), |_| false).victims[0].pid.0;
    // Workers that have copied some of what they inherited; whoever has less of its own than eight times that lives.
    let workers = [fork(10, 10_100, 100), fork(11, 10_090, 90)];
    assert_eq!(first(&[workers[0], workers[1], candidate(12, 799)]), 10);
    assert_eq!(first(&[workers[0], workers[1], candidate(12, 801)]), 12);
    // Who they are forks of gives nothing back.
    assert_eq!(first(&[fork(9, 12_000, 10), workers[0], workers[1]]), 10);
}

#[test]
fn with_the_first_go_those_holders_only_who_could_have_been_selected_as_it_was() {
    let standing = |pid, standing| Candidate { standing, ..candidate(pid, 5) };
    let protected = standing(13, Standing::Protected(Protection::Executable));
    let all = [
        candidate(10, 9),
        Candidate { mm: 10, ..candidate(11, 9) },
        candidate(12, 5),
        protected,
        Candidate { mm: 13, ..candidate(14, 5) },
        standing(15, Standing::Dying),
        Candidate { tier: Tier::Session, ..candidate(16, 5) },
        Candidate { doubt: Doubt { unjudged: true, ..Doubt::default() }, ..candidate(17, 5) },
        candidate(18, 5),
    ];
    let of = |first: &Candidate| -> Vec<u32> {
        company(&all, first, |one| one.pid != Pid(18)).map(|one| one.pid.0).collect()
    };
    assert_eq!(of(&all[0]), [12]);
    assert_eq!(of(&all[6]), [10, 11, 12], "what a session stands on, with another such");
}

#[test]
fn of_equal_size_the_youngest_comes_first_then_the_higher_number() {
    let old = Candidate { start_ns: 1, ..candidate(20, 5) };
    assert_eq!(pids(&rank(&[old, candidate(10, 5), candidate(12, 5)])), [12, 10, 20]);
}

#[test]
fn unreadable_usage_ranks_last_and_is_said() {
    let unread = Candidate { usage: Reading::Unreadable, ..candidate(30, 0) };
    assert_eq!(pids(&rank(&[unread, candidate(10, 1)])), [10, 30]);
    let alone = select(&[unread], |_| false);
    assert_eq!(pids(&alone.victims), [30]);
    let decision = super::Decision {
        reason: crate::reason::Reason::OverHardLimitSelected,
        victims: alone.victims,
        peers: alone.peers,
        usage: Pages(9),
        hard: Pages(1),
        dying: Pages(0),
        asked_at: None,
        dry_run: false,
    };
    assert!(decision.selected_unread());
}

#[test]
fn stale_usage_ranks_as_it_was() {
    let stale = Candidate { usage: Reading::Stale { value: Pages(8), age_ns: 1 }, ..candidate(30, 0) };
    assert_eq!(pids(&rank(&[candidate(10, 7), stale, candidate(11, 9)])), [11, 30, 10]);
}

#[test]
fn whoever_frees_nothing_is_not_selected() {
    let absent = Candidate { usage: Reading::Absent, ..candidate(30, 0) };
    assert!(rank(&[absent, candidate(31, 0)]).is_empty());
}

#[test]
fn the_protected_and_the_dying_are_never_selected() {
    let all = [
        Protection::Init,
        Protection::Daemon,
        Protection::KernelThread,
        Protection::LoginPath,
        Protection::Executable,
        Protection::Unit,
        Protection::Cgroup,
    ];
    for protection in all {
        let one = Candidate { standing: Standing::Protected(protection), ..candidate(30, 9) };
        assert!(rank(&[one]).is_empty());
        assert!(select(&[one], |_| false).protected);
    }
    let dying = Candidate { standing: Standing::Dying, ..candidate(30, 9) };
    assert!(rank(&[dying]).is_empty());
    assert!(!select(&[dying], |_| false).protected);
}

#[test]
fn process_one_is_protected_whatever_its_standing_says() {
    assert!(rank(&[candidate(1, 9), candidate(0, 9)]).is_empty());
}

#[test]
fn whoever_shares_memory_with_the_protected_is_shielded() {
    let mut shielded: Vec<Candidate> =
        (10..30).map(|pid| Candidate { mm: 7, ..candidate(pid, 100) }).collect();
    shielded.push(Candidate {
        mm: 7,
        weight: Weight::NEUTRAL,
        tier: Tier::Upper,
        doubt: Doubt::NONE,
        standing: Standing::Protected(Protection::Executable),
        ..candidate(40, 100)
    });
    shielded.extend([candidate(50, 3), candidate(51, 4)]);
    assert_eq!(pids(&rank(&shielded)), [51, 50]);
}

#[test]
fn an_unknown_address_space_is_shared_with_nobody() {
    let unknown = |pid| Candidate { mm: 0, ..candidate(pid, 5) };
    let protected = Candidate { standing: Standing::Protected(Protection::Unit), ..unknown(9) };
    assert_eq!(pids(&rank(&[protected, unknown(10), unknown(11)])), [11, 10]);
}

#[test]
fn those_who_share_the_victims_memory_go_with_it() {
    let shared = |pid| Candidate { mm: 7, ..candidate(pid, 5) };
    let selection =
        select(&[shared(10), candidate(20, 4), shared(12), candidate(21, 9)], |victim| victim.pid == Pid(21));
    let decision = super::Decision {
        reason: crate::reason::Reason::OverHardLimitSelected,
        victims: selection.victims,
        peers: selection.peers,
        usage: Pages(0),
        hard: Pages(0),
        dying: Pages(0),
        asked_at: None,
        dry_run: false,
    };
    assert_eq!(decision.together().map(|one| one.pid.0).collect::<Vec<_>>(), [12, 10]);
    assert_eq!(pids(&decision.peers), [21, 20]);
}

#[test]
fn the_largest_five_others_are_kept_protected_ones_included() {
    let mut all: Vec<Candidate> = (10..20).map(|pid| candidate(pid, u64::from(pid))).collect();
    all.push(Candidate { standing: Standing::Protected(Protection::Unit), ..candidate(30, 99) });
    let selection = select(&all, |_| false);
    assert_eq!(selection.victims[0].pid, Pid(19));
    assert_eq!(pids(&selection.peers), [30, 18, 17, 16, 15]);
    assert_eq!(selection.peers.len(), PEERS_MAX);
}

#[test]
fn nobody_to_select_still_shows_who_was_there() {
    let one = Candidate { standing: Standing::Protected(Protection::LoginPath), ..candidate(30, 9) };
    let selection = select(&[one], |_| false);
    assert!(selection.victims.is_empty());
    assert_eq!(pids(&selection.peers), [30]);
}

#[test]
fn shared_memory_counts_by_its_part_of_what_there_is() {
    // A hundred workers of a database, each with all of 8 GiB mapped, beside a hog of 1 GiB.
    let (each, all) = (Pages(2 << 20), Pages(100 * (2 << 20)));
    assert_eq!(own_share(each, Some(Pages(2 << 20)), all), Pages((2 << 20) / 100));
    assert_eq!(own_share(each, Some(each), each), each);
    assert_eq!(own_share(each, None, all), each);
    assert_eq!(own_share(Pages(0), Some(Pages(0)), Pages(0)), Pages(0));
    assert_eq!(own_share(Pages(5), Some(Pages(0)), Pages(5)), Pages(0));
}

/// The rule again, written without a thought for speed.
fn plainly(candidates: &[Candidate]) -> Vec<u32> {
    let protected = |one: &Candidate| one.pid.0 <= 1 || matches!(one.standing, Standing::Protected(_));
    let mut left: Vec<&Candidate> = candidates
        .iter()
        .filter(|one| !protected(one) && one.standing != Standing::Dying)
        .filter(|one| !candidates.iter().any(|other| protected(other) && one.mm != 0 && one.mm == other.mm))
        .filter(|one| !matches!(one.usage, Reading::Absent | Reading::Known(Pages(0))))
        .filter(|one| !matches!(one.usage, Reading::Stale { value: Pages(0), .. }))
        .collect();
    left.sort_by_key(|one| {
        let pages = match one.usage {
            Reading::Known(Pages(pages)) | Reading::Stale { value: Pages(pages), .. } => Some(pages),
            Reading::Absent | Reading::Unreadable => None,
        };
        core::cmp::Reverse((pages, one.start_ns, one.pid))
    });
    left.iter().take(VICTIMS_MAX).map(|one| one.pid.0).collect()
}

fn any_usage() -> impl Strategy<Value = Reading<Pages>> {
    prop_oneof![
        6 => (0_u64..6).prop_map(|pages| Reading::Known(Pages(pages))),
        1 => (0_u64..6).prop_map(|pages| Reading::Stale { value: Pages(pages), age_ns: 1 }),
        1 => proptest::strategy::Just(Reading::Absent),
        1 => proptest::strategy::Just(Reading::Unreadable),
    ]
}

fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let standing = prop_oneof![
        8 => proptest::strategy::Just(Standing::Free),
        1 => proptest::strategy::Just(Standing::Dying),
        1 => proptest::strategy::Just(Standing::Protected(Protection::Executable)),
    ];
    let one = (0_u64..3, 0_u64..8, any_usage(), standing);
    proptest::collection::vec(one, 0..40).prop_map(|all| {
        let numbered = (0_u32..).zip(all);
        numbered
            .map(|(pid, (start_ns, mm, usage, standing))| Candidate {
                start_ns,
                mm,
                usage,
                weight: Weight::NEUTRAL,
                tier: Tier::Upper,
                doubt: Doubt::NONE,
                standing,
                ..candidate(pid, 0)
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn ranking_follows_the_rule(candidates in any_candidates()) {
        prop_assert_eq!(pids(&rank(&candidates)), plainly(&candidates));
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(candidates in any_candidates(), turn in any::<usize>()) {
        let mut turned = candidates.clone();
        turned.rotate_left(turn % candidates.len().max(1));
        prop_assert_eq!(select(&turned, |_| false), select(&candidates, |_| false));
    }

    #[test]
    fn what_a_session_stands_on_goes_when_nobody_else_is_left_and_is_told_of(
        candidates in any_candidates(),
        facts in proptest::collection::vec((0_u64..4, any::<bool>()), 40),
        needed in 0_u64..5,
    ) {
        let all: Vec<Candidate> = candidates
            .iter()
            .zip(facts)
            .map(|(one, (gives_back, session))| Candidate {
                gives_back: Pages(gives_back),
                tier: if session { Tier::Session } else { Tier::Upper },
                ..*one
            })
            .collect();
        let selection = select_for(&all, Pages(needed), |_| false);
        let others: Vec<Candidate> = all
            .iter()
            .map(|one| match (one.tier, one.standing) {
                (Tier::Session, Standing::Free) => Candidate { standing: Standing::Dying, ..*one },
                _ => *one,
            })
            .collect();
        let without = select_for(&others, Pages(needed), |_| false);
        if !without.victims.is_empty() {
            prop_assert_eq!(pids(&selection.victims), pids(&without.victims));
            let together: Vec<Pid> = selection.victims.iter().map(|one| one.pid).collect();
            let told = |one: &Candidate| one.tier == Tier::Session && !together.contains(&one.pid);
            let held = |one: &Candidate| one.usage.latest().is_some_and(|usage| usage > Pages(0));
            let shares = |one: &Candidate| selection.victims[0].shares_memory_with(one);
            if all.iter().any(|one| told(one) && held(one) && !shares(one)) {
                prop_assert!(selection.peers.iter().any(|one| one.tier == Tier::Session));
            }
        }
    }

    #[test]
    fn nobody_goes_whose_end_is_not_enough_while_anothers_is(
        candidates in any_candidates(),
        facts in proptest::collection::vec((0_u64..4, any::<bool>(), 1_u16..4), 40),
        needed in 0_u64..5,
    ) {
        let judged = candidates.iter().zip(facts).map(|(one, (gives_back, asked, times))| Candidate {
            gives_back: Pages(gives_back),
            tier: if asked { Tier::Lower } else { Tier::Upper },
            weight: Weight::from_permille(times * 1000).unwrap(),
            ..*one
        });
        let all: Vec<Candidate> = judged.collect();
        // As if all others were gone already; they protect whom they protected.
        let alone = |one: &Candidate| match one.standing {
            Standing::Free if one.gives_back < Pages(needed) => Candidate { standing: Standing::Dying, ..*one },
            Standing::Free | Standing::Protected(_) | Standing::Dying => *one,
        };
        let enough = rank(&all.iter().map(alone).collect::<Vec<_>>());
        let expected = if enough.is_empty() { rank(&all) } else { enough };
        prop_assert_eq!(pids(&select_for(&all, Pages(needed), |_| false).victims), pids(&expected));
    }

    #[test]
    fn whoever_is_skipped_is_not_selected(candidates in any_candidates(), skipped in 0_u32..40) {
        let selection = select(&candidates, |victim| victim.pid == Pid(skipped));
        prop_assert!(!pids(&selection.victims).contains(&skipped));
        let first: Vec<Candidate> = selection.victims.first().into_iter().copied().collect();
        prop_assert!(selection.peers.iter().all(|peer| !first.contains(peer)));
    }
}

#[test]
fn ten_thousand_processes_are_ranked() {
    let all: Vec<Candidate> = (2..10_002).map(|pid| candidate(pid, u64::from(pid))).collect();
    let expected: Vec<u32> = (9_994..10_002).rev().collect();
    assert_eq!(pids(&rank(&all)), expected);
    assert!(rank(&[]).is_empty());
}
