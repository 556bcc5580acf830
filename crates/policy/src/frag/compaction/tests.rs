use super::*;
use alloc::{vec, vec::Vec};
use proptest::prelude::*;

/// 1 GiB.
const MEMORY: Pages = Pages(262_144);
const SECOND: u64 = 1_000_000_000;

/// A machine that is looked at.
struct Machine {
    compaction: Compaction,
    look: Look,
}

impl Machine {
    /// With so much free, in MiB, all of it in single pages.
    fn scattered(free_mib: u64) -> Self {
        let look = Look {
            at: Nanos(SECOND),
            memory: MEMORY,
            blocks: Blocks::new(vec![free_mib << 8, 0, 0, 0]),
            spare: Pages(free_mib << 8),
            spent: Some(Nanos(0)),
            ..Look::default()
        };
        let mut machine = Self { compaction: Compaction::default(), look };
        assert_eq!(machine.looks().0, Deed::Rest);
        machine
    }

    fn rests(&self, works: Option<u64>) -> (Deed, Wait) {
        (Deed::Rest, Wait::Until { missed: Nanos(self.look.at.0 + SECOND / 10), works: works.map(Nanos) })
    }

    fn looks(&mut self) -> (Deed, Wait) {
        self.compaction.look(self.look.clone())
    }

    fn after_ms(&mut self, milliseconds: u64) -> (Deed, Wait) {
        self.look.at.0 += milliseconds * 1_000_000;
        self.looks()
    }

    fn misses(&mut self, order: usize) -> (Deed, Wait) {
        self.look.missed[order] += 1;
        self.looks()
    }

    /// So many blocks of order 3, made of single pages.
    fn has(&mut self, blocks: u64) {
        let free = self.look.blocks.free().0;
        self.look.blocks = Blocks::new(vec![free - 8 * blocks, 0, 0, blocks]);
    }

    fn works_ms(&mut self, milliseconds: u64) {
        self.works(milliseconds * 1_000_000);
    }

    fn works(&mut self, nanos: u64) {
        self.look.spent = self.look.spent.map(|spent| Nanos(spent.0 + nanos));
    }
}

fn outcome(step: (Deed, Wait)) -> Outcome {
    let (Deed::End(outcome), _) = step else { panic!("{step:?}") };
    outcome
}

#[test]
fn nothing_is_done_where_nobody_misses_a_block_and_none_is_kept_for_it() {
    let mut machine = Machine::scattered(300);
    for _ in 0..10 {
        assert_eq!(machine.after_ms(1000), machine.rests(None));
    }
    assert_eq!(machine.compaction.in_use().count(), 0);
}

#[test]
fn where_requests_had_to_compact_before_blocks_are_made_at_once_and_nobody_is_said_to_have_missed_one() {
    let look = Machine::scattered(300).look;
    let mut machine = Machine { compaction: Compaction::default(), look: Look { stalled: true, ..look } };
    assert_eq!(machine.looks().0, Deed::Begin(COSTLY_ORDER));
    assert_eq!(machine.compaction.in_use().count(), 0);
    machine.has(4096);
    assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Enough);
    // Nobody missed one in ten minutes.
    machine.has(0);
    machine.look.at.0 += 600 * SECOND;
    assert_eq!(machine.looks(), machine.rests(None));
}

#[test]
fn where_requests_had_to_compact_before_and_blocks_are_there_nobody_looks_on() {
    let look = Machine::scattered(300).look;
    let mut machine = Machine { compaction: Compaction::default(), look: Look { stalled: true, ..look } };
    machine.has(1536);
    assert_eq!(machine.looks(), machine.rests(None));
    machine.has(0);
    assert_eq!(machine.after_ms(1000), machine.rests(None));
}

#[test]
fn who_misses_a_block_has_them_made_until_a_sixteenth_of_memory_is_in_them() {
    let mut machine = Machine::scattered(300);
    let step = machine.misses(3);
    assert_eq!(step, (Deed::Begin(3), Wait::At(Nanos(SECOND + AT_WORK.0))));
    machine.has(1000);
    machine.works_ms(40);
    assert_eq!(machine.after_ms(50).0, Deed::GoOn);
    machine.has(2048);
    machine.works_ms(40);
    let outcome = outcome(machine.after_ms(50));
    assert_eq!((outcome.ended, outcome.before, outcome.after), (Ended::Enough, 0, 2048));
    assert_eq!((outcome.cost, outcome.useful), (Nanos(80_000_000), true));
    // A look a second, for as long as the order is in use.
    assert_eq!(machine.after_ms(1000), machine.rests(Some(machine.look.at.0 + SECOND)));
    machine.has(1536);
    assert_eq!(machine.after_ms(1000), machine.rests(Some(machine.look.at.0 + SECOND)));
    // Before somebody misses one again.
    machine.has(1535);
    assert_eq!(machine.after_ms(1000).0, Deed::Begin(3));
}

#[test]
fn no_minute_costs_more_than_its_share_and_the_next_begins_with_half_of_it_left() {
    let mut machine = Machine::scattered(300);
    let costs = |machine: &mut Machine, milliseconds| {
        machine.has(0);
        assert_eq!(machine.after_ms(1000).0, Deed::Begin(3));
        machine.works_ms(milliseconds);
        machine.has(1000);
        machine.after_ms(50)
    };
    machine.has(0);
    machine.misses(3);
    machine.works_ms(500);
    machine.has(2048);
    assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Enough);
    assert_eq!(costs(&mut machine, 699).0, Deed::GoOn);
    machine.works_ms(1);
    let second = outcome(machine.after_ms(50));
    assert_eq!((second.ended, second.cost), (Ended::Cost, Nanos(700_000_000)));
    // The first half second was over at 1.05 s, the next 0.699 s at 2.1 s.
    machine.has(0);
    let due = Nanos(62 * SECOND + 100_000_000);
    assert_eq!(machine.after_ms(1000), (Deed::Rest, Wait::Until { missed: due, works: Some(due) }));
    assert_eq!(machine.after_ms(58_900).0, Deed::Rest);
    assert_eq!(machine.after_ms(50).0, Deed::Begin(3));
}

#[test]
fn what_kcompactd_did_before_keeps_nobody_from_the_first_block() {
    let mut machine = Machine::scattered(300);
    machine.works_ms(5000);
    machine.after_ms(1000);
    machine.works_ms(800);
    assert_eq!(machine.misses(3).0, Deed::Begin(3));
    machine.works_ms(1200);
    assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Cost);
    // From here on it counts, whoever has it work.
    machine.works_ms(1200);
    assert_eq!(machine.after_ms(1000).0, Deed::Rest);
    assert_eq!(machine.after_ms(59_000).0, Deed::Rest);
    assert_eq!(machine.after_ms(2000).0, Deed::Begin(3));
}

#[test]
fn what_kcompactd_does_after_it_counts_as_well() {
    let mut machine = Machine::scattered(300);
    machine.misses(3);
    machine.works_ms(100);
    machine.has(2048);
    assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Enough);
    // It went on, for ten times what a minute may cost.
    machine.works_ms(12_000);
    machine.has(0);
    assert_eq!(machine.after_ms(1000).0, Deed::Rest);
    assert_eq!(machine.misses(3).0, Deed::Rest);
    assert_eq!(machine.after_ms(599_000).0, Deed::Rest);
    machine.after_ms(1000);
    // Somebody has to miss one again.
    assert_eq!(machine.misses(3).0, Deed::Begin(3));
    // Of an hour in which nobody looked, its share does not count.
    let mut machine = Machine::scattered(300);
    machine.works_ms(72_000);
    machine.look.at.0 += 3600 * SECOND;
    assert_eq!(machine.misses(3).0, Deed::Begin(3));
}

#[test]
fn what_others_take_meanwhile_was_made_all_the_same() {
    let mut machine = Machine::scattered(300);
    machine.misses(3);
    for blocks in [100, 0].into_iter().cycle().take(40) {
        machine.works_ms(10);
        machine.has(blocks);
        assert_eq!(machine.after_ms(50).0, Deed::GoOn);
    }
    machine.after_ms(1000);
    machine.look.missed[3] += 1;
    assert_eq!(machine.after_ms(1000).0, Deed::Begin(3), "it does not rest");
}

#[test]
fn of_several_orders_each_has_its_turn() {
    let mut machine = Machine::scattered(300);
    machine.look.missed[2] += 1;
    let mut turns = Vec::new();
    machine.look.missed[3] += 1;
    let mut step = machine.looks();
    for _ in 0..4 {
        let Deed::Begin(order) = step.0 else { panic!("{step:?}") };
        turns.push(order);
        machine.works_ms(10);
        machine.has(2048);
        assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Enough);
        machine.has(0);
        step = machine.after_ms(1000);
    }
    assert_eq!(turns, [2, 3, 2, 3]);
}

#[test]
fn it_ends_after_a_minute_whatever_it_has_cost() {
    let mut machine = Machine::scattered(300);
    machine.misses(3);
    for blocks in 1..60 {
        machine.has(blocks);
        assert_eq!(machine.after_ms(1000).0, Deed::GoOn);
    }
    machine.has(60);
    assert_eq!(outcome(machine.after_ms(1000)).ended, Ended::Cost);
}

#[test]
fn an_order_that_nobody_misses_any_more_is_out_of_use_and_costs_no_look() {
    let mut machine = Machine::scattered(300);
    machine.has(2048);
    assert!(matches!(machine.misses(3), (Deed::Rest, Wait::Until { works: Some(_), .. })));
    assert!(matches!(machine.after_ms(599_000), (Deed::Rest, Wait::Until { works: Some(_), .. })));
    assert_eq!(machine.after_ms(1000), machine.rests(None));
}

#[test]
fn without_free_memory_there_is_nothing_to_make_blocks_of() {
    let mut machine = Machine::scattered(10);
    let later = Nanos(machine.look.at.0 + SECOND);
    assert_eq!(machine.misses(3), (Deed::Rest, Wait::Until { missed: later, works: None }));
    let mut machine = Machine::scattered(300);
    assert_eq!(machine.misses(3).0, Deed::Begin(3));
    machine.look.spare = Pages(100);
    assert_eq!(outcome(machine.after_ms(50)).ended, Ended::Short);
    // That says nothing of the next time, which is soon.
    machine.look.spare = Pages(300 << 8);
    assert_eq!(machine.after_ms(8_000).0, Deed::Rest);
    assert_eq!(machine.after_ms(2000).0, Deed::Begin(3));
}

#[test]
fn what_is_of_no_use_is_tried_ever_less_often_and_another_order_does_not_wait_for_it() {
    let mut machine = Machine::scattered(300);
    let (mut began, mut spans) = (Vec::new(), Vec::new());
    machine.misses(3);
    while began.len() < 9 {
        if machine.compaction.is_on() {
            began.push(machine.look.at.0);
            machine.works_ms(1);
            machine.after_ms(50);
            assert!(!outcome(machine.after_ms(1000)).useful);
        }
        machine.look.missed[3] += 1;
        machine.after_ms(1000);
    }
    spans.extend(began.windows(2).map(|pair| (pair[1] - pair[0]) / SECOND));
    assert!(
        spans
            .iter()
            .zip([60, 120, 240, 480, 960, 1920, 3600, 3600])
            .all(|(had, want)| had.abs_diff(want) < 3),
        "{spans:?}"
    );
    let soon = Nanos(machine.look.at.0 + 2 * SECOND);
    let waits = Wait::Until { missed: soon, works: Some(soon) };
    assert_eq!(machine.after_ms(1000), (Deed::Rest, waits), "others are not waited for");
    assert_eq!(machine.misses(2).0, Deed::Begin(2));
}

#[test]
fn how_fast_blocks_go_is_told() {
    let mut machine = Machine::scattered(300);
    machine.has(2000);
    machine.misses(3);
    machine.has(1800);
    machine.after_ms(1000);
    let [order] = machine.compaction.in_use().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!((order.order, order.blocks, order.kept, order.missed), (3, 1800, 2048, 1));
    assert_eq!(order.gone_in, Some(Nanos(9 * SECOND)));
    assert_eq!(order.of_no_use, Pages((300 << 8) - 8 * 1800));
}

proptest! {
    /// Whatever is seen, what it has kcompactd do within any minute costs its share, and what it does until the next look.
    #[test]
    fn no_minute_costs_more_than_its_share(
        turns in prop::collection::vec((1_u64..2000, 0_u64..=100, 0_u64..4096, 0_usize..6), 1..400)
    ) {
        let mut machine = Machine::scattered(300);
        let mut costs = Vec::<(u64, u64)>::new();
        for (milliseconds, busy_percent, blocks, order) in turns {
            let was_on = machine.compaction.is_on();
            // It is looked at as often as it asked for.
            let milliseconds = if was_on { milliseconds.min(50) } else { milliseconds };
            machine.has(blocks);
            if was_on {
                let spent = milliseconds * busy_percent * 10_000;
                machine.works(spent);
                costs.push((machine.look.at.0 + milliseconds * 1_000_000, spent));
            }
            machine.look.missed[order] += 1;
            machine.after_ms(milliseconds);
        }
        for (index, (first, _)) in costs.iter().enumerate() {
            let within = costs[index..].iter().take_while(|(at, _)| *at < first + MINUTE.0);
            let cost = within.map(|(_, cost)| cost).sum::<u64>();
            prop_assert!(cost < COST_MAX.0 + AT_WORK.0, "{}", cost);
        }
    }
}
