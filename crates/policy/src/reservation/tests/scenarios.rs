//! Every order of a few steps of a few processes: what the programs count against what is so.

use super::super::fits;
use crate::units::Pages;
use proptest::{collection::vec, prop_assert, prop_assert_eq, prop_oneof, proptest, strategy::Strategy};
use std::{collections::BTreeSet, vec::Vec};

const LINE: u64 = 6;
const MARGIN: u64 = 1;

/// As `bpf/limits` keeps it of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Counted {
    pages: u64,
    reserved: u64,
}

/// One process as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Process {
    /// What it was granted and has not touched.
    untouched: u64,
    /// What it has touched, of its grants and beside them.
    touched: u64,
    counted: Counted,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scenario {
    processes: Vec<Process>,
    /// As the programs keep it, step by step.
    usage: u64,
    line: u64,
    margin: u64,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(u64),
    /// A page of a grant.
    Touch,
    /// A page that nobody granted.
    Take,
    Free,
    Settle,
    Exit,
}

impl Scenario {
    fn new(processes: usize, line: u64, margin: u64) -> Self {
        Self { processes: [Process::default()].repeat(processes), usage: 0, line, margin }
    }

    /// Pages that are in use, and those that were promised.
    fn truth(&self) -> u64 {
        self.processes.iter().map(|one| one.touched + one.untouched).sum()
    }

    /// `charge_as` of one page that was touched.
    fn charge(&mut self, who: usize) {
        let Counted { pages, reserved } = &mut self.processes[who].counted;
        *pages += 1;
        if *reserved > 0 {
            *reserved -= 1;
        } else {
            self.usage += 1;
        }
    }

    /// Does it if it can be done; whether a request was granted.
    fn step(&mut self, who: usize, step: Step) -> Option<bool> {
        let one = self.processes[who];
        match step {
            Step::Ask(pages) => {
                let granted = fits(Pages(self.usage), Pages(pages), Pages(self.margin), Pages(self.line));
                if granted {
                    self.usage += pages;
                    self.processes[who].counted.reserved += pages;
                    self.processes[who].untouched += pages;
                }
                return Some(granted);
            }
            Step::Touch if one.untouched > 0 => {
                self.processes[who].untouched -= 1;
                self.processes[who].touched += 1;
                self.charge(who);
            }
            Step::Take => {
                self.processes[who].touched += 1;
                self.charge(who);
            }
            Step::Free if one.touched > 0 => {
                self.processes[who].touched -= 1;
                self.processes[who].counted.pages -= 1;
                self.usage -= 1;
            }
            Step::Settle => {
                self.usage -= one.counted.reserved;
                self.processes[who].counted.reserved = 0;
                self.processes[who].untouched = 0;
            }
            Step::Exit => {
                self.usage -= one.counted.pages + one.counted.reserved;
                self.processes[who] = Process::default();
            }
            Step::Touch | Step::Free => {}
        }
        None
    }

    /// What holds after each step, whatever it was.
    fn is_sound(&self) -> Result<(), &'static str> {
        let counted: u64 = self.processes.iter().map(|one| one.counted.pages + one.counted.reserved).sum();
        if counted != self.usage {
            return Err("an account is not the sum of its processes");
        }
        for one in &self.processes {
            if one.counted.pages != one.touched {
                return Err("a page is counted that is not there");
            }
            if one.counted.reserved > one.untouched {
                return Err("more is reserved than can be touched");
            }
        }
        if self.usage > self.truth() { Err("more is counted than is used or promised") } else { Ok(()) }
    }

    /// A request that fits beside all that is used and promised is granted.
    fn is_false_refusal(&self, pages: u64, answer: Option<bool>) -> bool {
        answer == Some(false) && self.truth() + pages + self.margin <= self.line
    }
}

fn steps(take: bool) -> Vec<Step> {
    let mut steps =
        Vec::from([Step::Ask(1), Step::Ask(3), Step::Touch, Step::Free, Step::Settle, Step::Exit]);
    steps.extend(take.then_some(Step::Take));
    steps
}

/// All scenarios that so many processes can bring about, each once; nobody takes more than `most` pages without asking.
fn every_scenario(processes: usize, take: bool, most: u64, mut look: impl FnMut(&Scenario)) -> usize {
    let mut seen = BTreeSet::new();
    let mut ahead = Vec::from([Scenario::new(processes, LINE, MARGIN)]);
    while let Some(scenario) = ahead.pop() {
        if scenario.truth() > most || !seen.insert(scenario.clone()) {
            continue;
        }
        look(&scenario);
        for who in 0..processes {
            for step in steps(take) {
                let mut next = scenario.clone();
                let answer = next.step(who, step);
                if let Step::Ask(pages) = step {
                    assert!(!scenario.is_false_refusal(pages, answer), "{scenario:?} refused {pages}");
                }
                ahead.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn whoever_only_asks_never_passes_the_line_and_is_never_refused_what_fits() {
    let scenarios = every_scenario(3, false, u64::MAX, |scenario| {
        scenario.is_sound().unwrap();
        assert_eq!(scenario.usage, scenario.truth(), "{scenario:?}");
        assert!(scenario.truth() + MARGIN <= LINE, "{scenario:?}");
    });
    assert!(scenarios > 300, "{scenarios}");
}

#[test]
fn whoever_takes_besides_moves_a_page_from_reserved_to_used_once() {
    let scenarios = every_scenario(2, true, LINE + 3, |scenario| {
        scenario.is_sound().unwrap();
        // Whatever the order: once all is touched or given back, usage is what is there.
        let mut rest = scenario.clone();
        for who in 0..rest.processes.len() {
            while rest.processes[who].untouched > 0 {
                rest.step(who, Step::Touch);
            }
            rest.step(who, Step::Settle);
        }
        assert_eq!(rest.usage, rest.processes.iter().map(|one| one.touched).sum::<u64>(), "{scenario:?}");
        for who in 0..rest.processes.len() {
            rest.step(who, Step::Exit);
        }
        assert_eq!(rest.usage, 0, "{scenario:?}");
    });
    assert!(scenarios > 300, "{scenarios}");
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_u64..400).prop_map(Step::Ask),
        proptest::strategy::Just(Step::Touch),
        proptest::strategy::Just(Step::Take),
        proptest::strategy::Just(Step::Free),
        proptest::strategy::Just(Step::Settle),
        proptest::strategy::Just(Step::Exit),
    ]
}

proptest! {
    #[test]
    fn in_a_larger_world_too(walk in vec((0_usize..8, 1_u64..200, some_step()), 1..200)) {
        let mut scenario = Scenario::new(8, 1000, 50);
        for (who, times, step) in walk {
            let times = if matches!(step, Step::Touch | Step::Take | Step::Free) { times } else { 1 };
            for _ in 0..times {
                let before = scenario.clone();
                let answer = scenario.step(who, step);
                if let Step::Ask(pages) = step {
                    prop_assert!(!before.is_false_refusal(pages, answer));
                    prop_assert!(answer == Some(false) || scenario.usage + 50 <= 1000);
                }
                prop_assert_eq!(scenario.is_sound(), Ok(()));
            }
        }
    }
}
