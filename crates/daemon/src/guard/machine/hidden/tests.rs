use super::*;
use crate::{
    facts::shared::Found,
    guard::machine::tests::town::{Guarded, Town, id},
};
use plimsoll_policy::{
    machine::MachineConfig,
    preference::Rules,
    shared::Ownership,
    units::{Pid, Uid},
    victim::Signal,
};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

fn meminfo(unseen: u64) -> Meminfo {
    let none = Some(Bytes(0));
    Meminfo {
        mem_total: Some(Bytes(1000)),
        mem_free: Some(Bytes(600 - unseen)),
        buffers: none,
        cached: Some(Bytes(200)),
        swap_cached: none,
        anonymous: Some(Bytes(200)),
        slab: none,
        kernel_stack: none,
        page_tables: none,
        ..Meminfo::default()
    }
}

#[test]
fn a_twentieth_of_memory_that_nothing_explains_is_looked_for() {
    let mut hidden = Hidden::default();
    for (unseen, expected) in [(0, None), (50, None), (51, Some(Bytes(51)))] {
        hidden.measure(&meminfo(unseen));
        assert_eq!(hidden.unexplained, expected, "{unseen}");
    }
    hidden.measure(&Meminfo { slab: None, ..meminfo(51) });
    assert_eq!(hidden.unexplained, None, "not all is known");
}

fn walked(asked: Nanos, hidden: &[((u64, u32), u64)]) -> Walked {
    let hidden = hidden.iter().map(|((mm, pid), pages)| ((*mm, Pid(*pid)), Pages(*pages))).collect();
    let found = Found {
        owned: Ownership { hidden, ..Ownership::default() },
        is_whole: true,
        partly: BTreeSet::<Uid>::new(),
        unlisted: BTreeSet::new(),
        explained: Pages(0),
        tells_handed: true,
    };
    Walked { asked, took: Nanos(0), found: Ok(Some(found)) }
}

/// Two of whom the second has more of its own, in a town that is about to run short and then is short.
fn selected(hidden: &[((u64, u32), u64)], after: Nanos) -> u32 {
    let town = Town::of(&[(10, 1, 3000, "hider"), (11, 1, 5000, "other")]);
    let config = MachineConfig { notice: None, reclaim: false, spike: Nanos(0), ..MachineConfig::default() };
    let mut guarded = Guarded::new(&town, config, Rules::default());
    town.has(Bytes(165 * MIB));
    guarded.tend();
    guarded.learns_of_hidden(&walked(Nanos(town.now()), hidden));
    town.passes(after.0);
    town.has(Bytes(30 * MIB));
    guarded.tend();
    let sent = town.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].1, Signal::Kill);
    [10, 11].into_iter().find(|pid| id(*pid) == sent[0].0).unwrap()
}

#[test]
fn who_hides_more_is_selected_by_what_was_found_lately_of_that_very_process() {
    // As the town numbers them.
    let mm = |pid: u64| pid << 8 | 1;
    assert_eq!(selected(&[], Nanos(0)), 11);
    assert_eq!(selected(&[((mm(10), 10), 4000)], Nanos(0)), 10);
    assert_eq!(selected(&[((mm(10), 10), 1000)], Nanos(0)), 11);
    assert_eq!(selected(&[((mm(10), 9), 4000)], Nanos(0)), 11, "another process had that memory");
    assert_eq!(selected(&[((mm(10) + 1, 10), 4000)], Nanos(0)), 11, "it is another program by now");
    assert_eq!(selected(&[((mm(10), 10), 4000)], Nanos(AGE_MAX.0 + 1)), 11);
}
