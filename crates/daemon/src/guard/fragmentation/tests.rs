use super::*;
use crate::{
    compactor::Compactor,
    guard::{Workers, machine::tests::town::Town},
    history::Recorded,
    journal::{Journal, Notices},
};
use plimsoll_policy::frag::compaction::Ended;
use plimsoll_sys::process::page_size;
use std::sync::mpsc::Receiver;

const SECOND: u64 = 1_000_000_000;

/// The guard of a town's large blocks, and what was asked of who looks.
struct Blocks {
    guard: Fragmentation,
    context: Context<Town>,
    asked: Receiver<Order>,
    recorded: Recorded,
}

impl Blocks {
    fn on(town: &Town) -> Self {
        let (writer, recorded) = Recorded::by_a_writer(100);
        let ledger = Ledger::new(writer, 1, page_size());
        let mute = Context::mute(town.clone(), town.clone(), ledger, Notices::new(Journal::mute()));
        let (compactor, asked) = Compactor::by_another();
        let context = Context { workers: Workers { compactor, ..Workers::mute() }, ..mute };
        Self { guard: Fragmentation::new(true), context, asked, recorded }
    }

    /// One turn of the guard thread: what was asked of who looks.
    fn turn(&mut self, missed: bool) -> Option<Order> {
        self.guard.plan(&mut self.context);
        self.guard.tend(missed, &mut self.context);
        self.asked.try_recv().ok()
    }

    fn looked(&mut self, wait: Wait, ended: Option<(Compacted, bool)>) {
        let report = Report { wait, compacting: matches!(wait, Wait::At(_)), orders: Vec::new(), ended };
        self.guard.take(Ok(report), &mut self.context);
    }

    fn compacts(&mut self, useful: bool) {
        let compacted = Compacted {
            order: 3,
            block_bytes: 32 << 10,
            before: 1,
            after: 2000,
            kept: 1900,
            free_bytes: 1 << 28,
            took_ns: SECOND,
            cost_ns: 500_000_000,
            ended: Ended::Enough,
        };
        let wait = self.until_missed();
        self.looked(wait, Some((compacted, useful)));
    }

    fn until_missed(&self) -> Wait {
        Wait::Until { missed: Nanos(self.context.now().0 + SECOND), works: None }
    }
}

fn is_look(order: Option<Order>) -> bool {
    matches!(order, Some(Order::Look(_)))
}

#[test]
fn without_programs_nobody_looks_and_the_state_says_so() {
    let town = Town::of(&[]);
    let mut blocks = Blocks::on(&town);
    assert_eq!((blocks.turn(false), blocks.guard.due()), (None, None));
    let state = blocks.guard.view(&blocks.context.ledger).state;
    assert_eq!(state, "off: no programs tell who finds no block");
    // They are loaded later.
    town.tells(true);
    assert!(is_look(blocks.turn(false)));
    assert_eq!(blocks.guard.view(&blocks.context.ledger).state, "on");
}

#[test]
fn who_finds_no_block_has_it_looked_once_and_nobody_else_does() {
    let town = Town::of(&[]);
    town.tells(true);
    let mut blocks = Blocks::on(&town);
    assert!(is_look(blocks.turn(false)), "how many have missed one so far");
    let wait = blocks.until_missed();
    blocks.looked(wait, None);
    assert_eq!((blocks.turn(false), blocks.guard.due()), (None, None));
    assert_eq!(town.awaited(), Some(Nanos(town.now() + SECOND)));
    town.passes(3600 * SECOND);
    assert_eq!(blocks.turn(false), None);
    assert!(is_look(blocks.turn(true)));
    assert_eq!(blocks.turn(true), None, "somebody is looking");
    // While memory is compacted it is looked by the clock.
    let next = Nanos(town.now() + 50_000_000);
    blocks.looked(Wait::At(next), None);
    assert_eq!((blocks.turn(false), blocks.guard.due()), (None, Some(next)));
    town.passes(50_000_000);
    assert!(is_look(blocks.turn(false)));
}

#[test]
fn who_switches_it_off_has_compaction_stopped_whether_somebody_looks_or_not() {
    let town = Town::of(&[]);
    town.tells(true);
    let mut blocks = Blocks::on(&town);
    assert!(is_look(blocks.turn(false)));
    blocks.guard.switch(false, &blocks.context);
    assert_eq!(blocks.turn(true), None, "who looks is not interrupted");
    blocks.looked(Wait::At(Nanos(0)), None);
    assert_eq!(blocks.turn(true), Some(Order::Stop));
    assert_eq!(blocks.guard.view(&blocks.context.ledger).state, "off");

    blocks.guard.switch(true, &blocks.context);
    assert!(is_look(blocks.turn(false)));
    blocks.looked(Wait::At(Nanos(town.now() + SECOND)), None);
    blocks.guard.switch(false, &blocks.context);
    assert_eq!(blocks.turn(false), Some(Order::Stop));
    assert_eq!((blocks.turn(true), blocks.guard.due()), (None, None));
}

#[test]
fn compactions_that_go_alike_have_one_incident_in_ten_minutes() {
    let town = Town::of(&[]);
    town.tells(true);
    let mut blocks = Blocks::on(&town);
    for _ in 0..9 {
        blocks.compacts(true);
        town.passes(60 * SECOND);
    }
    let told = blocks.recorded.next_incident().unwrap();
    assert_eq!((told.guard, told.reason.as_str()), (Guard::Fragmentation, Reason::MemoryCompacted.text()));
    assert_eq!(told.compaction.unwrap().after, 2000);
    assert!(blocks.recorded.next_incident().is_none());
    blocks.compacts(false);
    assert_eq!(blocks.recorded.next_incident().unwrap().reason, Reason::CompactionInVain.text());
    // Ever in turns.
    for useful in [true, false] {
        blocks.compacts(useful);
    }
    assert!(blocks.recorded.next_incident().is_none());
    town.passes(600 * SECOND);
    blocks.compacts(false);
    assert!(blocks.recorded.next_incident().is_some());
    let view = blocks.guard.view(&blocks.context.ledger);
    assert_eq!((view.compactions, view.incidents, view.cost_ns), (13, 3, 6_500_000_000));
}

#[test]
fn programs_that_are_lost_end_what_goes_on_and_nobody_waits_for_them() {
    let town = Town::of(&[]);
    town.tells(true);
    let mut blocks = Blocks::on(&town);
    assert!(is_look(blocks.turn(false)));
    blocks.looked(Wait::At(Nanos(town.now() + 1)), None);
    assert_eq!(blocks.turn(false), None);
    town.tells(false);
    town.passes(1);
    assert_eq!(blocks.turn(false), Some(Order::Stop));
    assert_eq!((blocks.turn(false), blocks.guard.due()), (None, None));
}

#[test]
fn a_look_that_fails_is_told_and_tried_again_after_a_minute() {
    let town = Town::of(&[]);
    town.tells(true);
    let mut blocks = Blocks::on(&town);
    assert!(is_look(blocks.turn(false)));
    blocks.guard.take(Err("no kcompactd".to_owned()), &mut blocks.context);
    assert_eq!(blocks.turn(false), None);
    assert_eq!(blocks.guard.view(&blocks.context.ledger).state, "off: no kcompactd");
    assert_eq!(town.awaited(), Some(Nanos(town.now() + 60 * SECOND)));
    assert!(is_look(blocks.turn(true)));
}
