use super::{CGROUPS_GONE_MAX, CgroupLimit, Charge, Owner, excess, share};
use crate::{
    units::{Nanos, Pages},
    workingset::{Barred, ChunkId, FileId, Ratio, Tunables},
};
use proptest::{prop_assert, proptest};
use std::{collections::BTreeMap, vec, vec::Vec};

fn on() -> Tunables {
    Tunables { workingset_protection: true, ..Tunables::default() }
}

fn charge(inode: u64, chunk: u32, cgroup: u64, pages: u64) -> Charge {
    let file = FileId { device: 1, inode, generation: 0 };
    Charge { chunk: ChunkId { file, chunk }, cgroup, pages: Pages(pages), since: Nanos(0) }
}

/// Cgroup 1 with a limit of so many pages, and cgroup 2 in it, which has none of its own.
fn limited(pages: u64) -> BTreeMap<u64, Owner> {
    let limit = CgroupLimit { cgroup: 1, limit: Pages(pages) };
    BTreeMap::from([(1, Owner::There(vec![limit])), (2, Owner::There(vec![limit]))])
}

#[test]
fn of_a_limit_no_more_is_locked_than_the_ratios_allow_of_a_machine() {
    // 15 % less an eighth of that.
    assert_eq!(share(&on(), Pages(1024)), Pages(134));
    assert_eq!(share(&Tunables::default(), Pages(1024)), Pages(0));
    let much = Tunables {
        clean_min_ratio: Ratio::new(60).unwrap(),
        clean_low_ratio: Ratio::new(40).unwrap(),
        ..on()
    };
    assert_eq!(share(&much, Pages(1024)), Pages(512), "half of it in any case");
}

#[test]
fn what_is_over_the_share_goes_from_the_end_of_files_and_what_came_last_goes_first() {
    let mut charges: Vec<Charge> = (0..4).map(|chunk| charge(7, chunk, 2, 40)).collect();
    charges.push(Charge { since: Nanos(9), ..charge(3, 0, 1, 1) });
    let going = excess(&charges, &limited(1024), &on(), None);
    let chunks: Vec<(u64, u32)> = going.iter().map(|(chunk, _)| (chunk.file.inode, chunk.chunk)).collect();
    assert_eq!(chunks, [(3, 0), (7, 3)]);
    assert!(going.iter().all(|(_, why)| *why == Barred::CgroupShare));
    assert_eq!(excess(&charges, &limited(2048), &on(), None), []);
}

#[test]
fn the_cgroup_that_is_protected_and_unlimited_or_unknown_ones_bound_nothing() {
    let charges = [charge(7, 0, 1, 5000)];
    assert_eq!(excess(&charges, &limited(1024), &on(), None).len(), 1);
    assert_eq!(excess(&charges, &limited(1024), &on(), Some(1)), []);
    let unlimited = BTreeMap::from([(1, Owner::There(Vec::new()))]);
    assert_eq!(excess(&charges, &unlimited, &on(), None), []);
    assert_eq!(excess(&charges, &BTreeMap::new(), &on(), None), []);
}

#[test]
fn of_too_many_removed_cgroups_those_with_the_fewest_pages_are_let_go() {
    let max = u64::try_from(CGROUPS_GONE_MAX).unwrap();
    // Number 0 has one page, number 1 two, and so on; each in two chunks but for the first.
    let charges = |count: u64| -> Vec<Charge> {
        (0..count)
            .flat_map(|one| [charge(one, 0, one, 1), charge(one, 1, one, one)])
            .filter(|charge| charge.pages > Pages(0))
            .collect()
    };
    let owners: BTreeMap<u64, Owner> = (0..max + 2).map(|one| (one, Owner::Gone)).collect();
    assert_eq!(excess(&charges(max), &owners, &on(), None), []);
    let going = excess(&charges(max + 2), &owners, &on(), None);
    let files: Vec<u64> = going.iter().map(|(chunk, _)| chunk.file.inode).collect();
    assert_eq!(files, [0, 1, 1]);
    assert!(going.iter().all(|(_, why)| *why == Barred::CgroupGone));
}

proptest! {
    #[test]
    fn what_stays_is_within_every_share(
        pages in proptest::collection::vec((0_u64..600, 1_u64..=2, 0_u64..5), 0..60), limit in 0_u64..20_000,
    ) {
        let charges: Vec<Charge> = pages
            .iter()
            .zip(0..)
            .map(|(&(pages, cgroup, since), chunk)| {
                Charge { since: Nanos(since), ..charge(1, chunk, cgroup, pages) }
            })
            .collect();
        let going = excess(&charges, &limited(limit), &on(), None);
        let stays = charges.iter().filter(|one| going.iter().all(|(chunk, _)| *chunk != one.chunk));
        prop_assert!(stays.map(|one| one.pages.0).sum::<u64>() <= share(&on(), Pages(limit)).0);
    }
}
