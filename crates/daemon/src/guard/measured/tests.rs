use super::*;
use crate::{
    facts::meter::Meter,
    guard::{
        Ledger, Workers,
        kill::cgroups::CgroupKiller,
        machine::tests::town::{Town, id},
    },
    history::Recorded,
    journal::{Journal, Notices},
    offload::Offload,
};
use plimsoll_policy::{
    account::Action,
    lines::{Line, Place, UidRange},
    size::Size,
    victim::{KILL_DEADLINE, TERM_GRACE},
};
use plimsoll_sys::process::{ReaperHandle, page_size};
use std::sync::mpsc::Receiver;

const SECOND: u64 = 1_000_000_000;

/// Lines of a town, and what was asked about.
struct Lines {
    measured: Measured,
    book: LineBook,
    context: Context<Town>,
    asked: Receiver<Vec<Order>>,
    recorded: Recorded,
}

fn cgroup(path: &str) -> Target {
    Target::Cgroup(path.parse().unwrap())
}

impl Lines {
    fn of(town: &Town) -> Self {
        let (writer, recorded) = Recorded::by_a_writer(1000);
        let (journal, _) = Journal::gather();
        let groups =
            CgroupKiller::new(&Offload::start().unwrap(), &journal, &ReaperHandle::default()).unwrap();
        let ledger = Ledger::new(writer, 1, page_size());
        let mute = Context::mute(town.clone(), town.clone(), ledger, Notices::new(journal));
        let (meter, asked) = Meter::by_another();
        Self {
            measured: Measured::default(),
            book: LineBook::new(UidRange::default()),
            context: Context { workers: Workers { groups, meter, ..Workers::mute() }, ..mute },
            asked,
            recorded,
        }
    }

    /// Draws a line of so many pages.
    fn draw(&mut self, target: &Target, pages: u64, action: Action, now: bool) {
        let hard = Size::Bytes(page_size().to_bytes(Pages(pages)));
        let place = Place::Administrator(target.clone());
        self.book.set(place.clone(), Line { hard, soft: None, action });
        self.redraw(&Change::One { place, now });
    }

    fn redraw(&mut self, change: &Change) {
        let now = self.context.now();
        self.measured.draw(&self.book, change, (Bytes(8 << 30), page_size()), now);
    }

    /// It is time to look: what is asked about.
    fn orders(&mut self) -> Vec<Order> {
        let due = self.measured.due().unwrap();
        let wait = due.0.saturating_sub(self.context.now().0);
        self.context.kernel.passes(wait);
        self.measured.tend(&mut self.context);
        self.asked.try_recv().unwrap_or_default()
    }

    /// Looks once: of each it is seen what programs hold there, in pages, and who is in it.
    fn look(&mut self, seen: &[(&str, u64, &[u32])]) {
        let orders = self.orders();
        let began = self.context.now();
        let looks = orders.into_iter().map(|order| {
            let of = |(account, ..): &&(&str, u64, &[u32])| *account == order.account.to_string();
            let found = seen.iter().find(of);
            let usage = found.map_or(Reading::Absent, |(_, pages, _)| {
                let usage = page_size().to_bytes(Pages(*pages));
                Reading::Known(Programs { usage, settled: usage, mapped: Bytes(0) })
            });
            let over = usage.known().is_some_and(|programs| programs.usage > order.line);
            let members =
                found.filter(|_| over).map(|(_, _, pids)| pids.iter().map(|pid| Pid(*pid)).collect());
            Look { key: order.key, usage, members, inherited: None }
        });
        let looked = Looked { looks: looks.collect(), began, took: Nanos(50_000), cpus: None };
        self.measured.take(looked, &mut self.context);
    }

    /// Looks as often as it takes for a decision.
    fn looks(&mut self, seen: &[(&str, u64, &[u32])]) {
        self.look(seen);
        self.look(seen);
    }

    /// A victim is gone, and its memory back.
    fn ends(&mut self, pid: u32) {
        self.context.kernel.gone(pid);
        let now = self.context.now();
        let mut gone = Vec::new();
        self.context
            .pending
            .settle(&self.context.ledger, now, |flight| gone.push((flight.owner, flight.victim)));
        for (owner, victim) in gone {
            let Owner::Measured(key) = owner else { panic!("{owner:?}") };
            self.measured.freed(key, victim, now);
        }
    }

    /// Whose line, why, and who, of each incident.
    fn incidents(&self) -> Vec<(String, String, Vec<u32>)> {
        let mut all = Vec::new();
        while let Some(incident) = self.recorded.next_incident() {
            let victims = incident.victims.iter().map(|victim| victim.pid.0).collect();
            all.push((incident.account.unwrap().to_string(), incident.reason.to_string(), victims));
        }
        all
    }

    fn in_force(&self) -> Vec<Option<u64>> {
        self.measured.views(page_size()).map(|view| view.effective_bytes.map(|bytes| bytes / 4096)).collect()
    }
}

/// Three below /a and one larger outside.
fn town() -> Town {
    Town::of(&[
        (10, 1, 5000, "hog"),
        (11, 1, 3000, "second"),
        (12, 1, 1200, "third"),
        (20, 1, 90_000, "outside"),
    ])
}

const INSIDE: &[u32] = &[10, 11, 12];

#[test]
fn only_those_below_the_cgroup_go_one_at_a_time_until_usage_is_under_the_line() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 4000, Action::Kill, true);
    lines.looks(&[("cgroup:/a", 9000, INSIDE)]);
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    // While it is dying nobody else goes, however often it is looked at.
    for _ in 0..5 {
        lines.looks(&[("cgroup:/a", 9000, INSIDE)]);
    }
    assert_eq!(town.sent().len(), 1);
    lines.ends(10);
    lines.looks(&[("cgroup:/a", 4100, &[11, 12])]);
    assert_eq!(town.sent(), [(id(10), Signal::Kill), (id(11), Signal::Kill)]);
    lines.ends(11);
    lines.looks(&[("cgroup:/a", 1000, &[12])]);
    assert_eq!(town.sent().len(), 2);
    let reason = "over-hard-limit-selected".to_owned();
    let account = "cgroup:/a".to_owned();
    assert_eq!(lines.incidents(), [(account.clone(), reason.clone(), vec![10]), (account, reason, vec![11])]);
}

#[test]
fn a_line_below_usage_kills_nobody_falls_with_it_and_then_holds() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 4000, Action::Kill, false);
    for usage in [9100, 9100, 8000, 8000] {
        lines.looks(&[("cgroup:/a", usage, INSIDE)]);
    }
    assert_eq!((lines.in_force(), town.sent().len()), (vec![Some(8000)], 0));
    // A reload changes nothing of it, and a higher line that usage is under is in force at once.
    lines.redraw(&Change::All);
    lines.looks(&[("cgroup:/a", 8000, INSIDE)]);
    assert_eq!(lines.in_force(), [Some(8000)]);
    lines.looks(&[("cgroup:/a", 8100, INSIDE)]);
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
}

#[test]
fn who_has_gone_between_the_reading_and_the_list_costs_nobody_else() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 4500, Action::Kill, true);
    lines.look(&[("cgroup:/a", 9000, INSIDE)]);
    // It ended by itself. What files grew by is in the reading still.
    town.gone(10);
    lines.look(&[("cgroup:/a", 4000, &[11, 12])]);
    assert!(town.sent().is_empty());
    lines.looks(&[("cgroup:/a", 9000, &[11, 12])]);
    assert!(town.sent().is_empty(), "all of them hold 4200");
}

#[test]
fn who_is_asked_to_end_is_ended_after_the_grace_period_whoever_leaves_the_cgroup() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 8000, Action::Term, true);
    lines.looks(&[("cgroup:/a", 9000, INSIDE)]);
    assert_eq!(town.sent(), [(id(10), Signal::Term)]);
    // It was moved out; what it has is charged where it was.
    for _ in 0..3 {
        lines.looks(&[("cgroup:/a", 9000, &[11, 12])]);
    }
    assert_eq!(town.sent().len(), 1);
    lines.context.kernel.passes(TERM_GRACE.0);
    lines.looks(&[("cgroup:/a", 9000, &[11, 12])]);
    assert_eq!(town.sent(), [(id(10), Signal::Term), (id(10), Signal::Kill)]);
    let reasons: Vec<_> = lines.incidents().into_iter().map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, ["over-hard-limit-term", "term-deadline-passed"]);
}

#[test]
fn the_next_goes_when_a_victim_does_not_end_in_time() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&Target::System, 4000, Action::Kill, true);
    lines.looks(&[("system", 99_000, &[])]);
    lines.context.kernel.passes(KILL_DEADLINE.0);
    lines.looks(&[("system", 99_000, &[])]);
    assert_eq!(town.sent(), [(id(20), Signal::Kill), (id(10), Signal::Kill)]);
}

#[test]
fn of_nested_lines_one_kill_is_enough_for_both() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 8000, Action::Kill, true);
    lines.draw(&cgroup("/a/b"), 4000, Action::Kill, true);
    let seen: &[(&str, u64, &[u32])] = &[("cgroup:/a", 9000, INSIDE), ("cgroup:/a/b", 5000, &[10])];
    for _ in 0..4 {
        lines.looks(seen);
    }
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
}

#[test]
fn for_a_little_that_a_victim_of_another_line_may_hold_nobody_else_goes() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 8000, Action::Kill, true);
    lines.draw(&cgroup("/a/b"), 1190, Action::Kill, true);
    // Of 6200 pages below /a/b, 5000 go with the victim of /a. Whether 1200 are left is seen when it is gone.
    let seen: &[(&str, u64, &[u32])] = &[("cgroup:/a", 9000, INSIDE), ("cgroup:/a/b", 6200, &[10, 12])];
    for _ in 0..4 {
        lines.looks(seen);
    }
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    lines.ends(10);
    for _ in 0..4 {
        lines.looks(&[("cgroup:/a", 4200, &[11, 12]), ("cgroup:/a/b", 1190, &[12])]);
    }
    assert_eq!(town.sent().len(), 1);
    lines.looks(&[("cgroup:/a", 4200, &[11, 12]), ("cgroup:/a/b", 1200, &[12])]);
    assert_eq!(town.sent().last(), Some(&(id(12), Signal::Kill)));
}

#[test]
fn a_line_that_only_notifies_tells_once_and_one_of_nobody_kills_nobody() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 4000, Action::Notify, true);
    for _ in 0..3 {
        lines.looks(&[("cgroup:/a", 9000, INSIDE)]);
    }
    assert_eq!((town.sent().len(), lines.incidents().len()), (0, 1));
    lines.draw(&cgroup("/a"), 4000, Action::Kill, true);
    // Not there: nobody is in it.
    for _ in 0..3 {
        lines.looks(&[]);
    }
    assert_eq!((town.sent().len(), lines.incidents().len()), (0, 0));
    assert_eq!(lines.measured.views(page_size()).next().unwrap().usage_bytes, 0);
}

#[test]
fn a_cgroup_goes_whole_for_its_own_line_and_not_for_that_of_one_below_it() {
    // All of them are in /no/such.service, which goes whole.
    for (target, whole) in
        [(cgroup("/no"), true), (cgroup("/no/such.service/x"), false), (Target::System, true)]
    {
        let town = town();
        town.kills_by_cgroup();
        let mut lines = Lines::of(&town);
        lines.draw(&target, 4000, Action::Kill, true);
        lines.looks(&[(&target.to_string(), 9000, INSIDE)]);
        assert_eq!(town.sent().len(), 1);
        let ending = lines.measured.watched.values().all(|watch| watch.ending);
        assert_eq!(ending, whole, "{target}");
    }
}

#[test]
fn looks_are_asked_for_together_once_and_none_where_no_line_is() {
    let town = town();
    let mut lines = Lines::of(&town);
    assert_eq!(lines.measured.due(), None);
    for number in 0..100 {
        lines.draw(&cgroup(&format!("/{number}")), 4000, Action::Kill, false);
    }
    assert_eq!(lines.orders().len(), 100);
    // Nothing more is asked until that is answered, and it is told that it is late.
    lines.measured.tend(&mut lines.context);
    lines.asked.try_recv().unwrap_err();
    assert_eq!(lines.measured.due(), Some(lines.context.now().saturating_add(LATE)));
    let looked = Looked { looks: Vec::new(), began: lines.context.now(), took: Nanos(0), cpus: None };
    lines.measured.take(looked, &mut lines.context);
    for number in 0..100 {
        lines.book.clear(Place::Administrator(cgroup(&format!("/{number}"))));
    }
    lines.redraw(&Change::All);
    assert!(lines.measured.is_empty() && lines.measured.due().is_none() && !lines.measured.any_near());
}

#[test]
fn of_many_small_ones_several_go_for_one_look_and_no_more_than_a_quarter_of_what_is_missing() {
    let people: Vec<(u32, u32, u64, &str)> = (100..2_000).map(|pid| (pid, 1, 100, "small")).collect();
    let town = Town::of(&people);
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 20_000, Action::Kill, true);
    let all: Vec<u32> = (100..2_000).collect();
    lines.looks(&[("cgroup:/a", 50_000, &all)]);
    assert_eq!(town.sent().len(), STEPS_MAX);
    let portraits = town.portraits();
    assert!(portraits <= LOOKS_MAX + STEPS_MAX, "{portraits}: all of them for each");
    lines.draw(&cgroup("/a"), 49_700, Action::Kill, true);
    let before = town.sent().len();
    for (victim, _) in town.sent() {
        lines.ends(victim.pid.0);
    }
    let left: Vec<u32> =
        all.into_iter().filter(|pid| !town.sent().iter().any(|(id, _)| id.pid.0 == *pid)).collect();
    lines.looks(&[("cgroup:/a", 50_000, &left)]);
    assert!(town.sent().len() <= before + 2, "{:?}", town.sent().len());
}

#[test]
fn nobody_goes_for_what_one_after_the_other_hands_on_before_it_is_gone() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 5000, Action::Kill, true);
    lines.looks(&[("cgroup:/a", 5200, INSIDE)]);
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    // While the first is dying, another is found to be that holds far more.
    town.comes(13, 1, 9000, "next");
    town.dies(13);
    for _ in 0..4 {
        lines.looks(&[("cgroup:/a", 14_200, &[10, 11, 12, 13])]);
    }
    assert_eq!(town.sent().len(), 1);
}

#[test]
fn where_programs_tell_of_working_cpus_no_timer_wakes_an_idle_machine() {
    let town = town();
    town.tells(true);
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 5000, Action::Kill, false);
    lines.look(&[("cgroup:/a", 1000, &[10, 11, 12])]);
    assert!(lines.measured.due().is_some(), "they were not asked");
    lines.measured.plan(&mut lines.context);
    assert_eq!(lines.measured.due(), None);
    // A CPU works when it is time.
    let wait = town.awaited().unwrap().saturating_sub(lines.context.now());
    assert!(wait > Nanos(0) && wait <= Nanos(SECOND), "{wait:?}");
    town.passes(wait.0);
    lines.measured.tend(&mut lines.context);
    assert_eq!(lines.asked.try_recv().unwrap().len(), 1);
    assert!(lines.measured.due().is_some(), "an answer is waited for");
    // They go.
    let looked = Looked { looks: Vec::new(), began: lines.context.now(), took: Nanos(0), cpus: None };
    lines.measured.take(looked, &mut lines.context);
    town.tells(false);
    lines.measured.plan(&mut lines.context);
    assert!(lines.measured.due().is_some());
}

#[test]
fn what_was_begun_goes_on_though_all_cpus_idle() {
    let town = town();
    town.tells(true);
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 5000, Action::Term, true);
    lines.looks(&[("cgroup:/a", 9200, &[10, 11, 12])]);
    assert_eq!(town.sent(), [(id(10), Signal::Term)]);
    lines.measured.plan(&mut lines.context);
    let now = lines.context.now();
    assert_eq!(lines.measured.due(), Some(now.saturating_add(TERM_GRACE)));
    // It is gone, and so is what it held: nothing is left to be done.
    lines.ends(10);
    lines.look(&[("cgroup:/a", 4200, &[11, 12])]);
    lines.measured.plan(&mut lines.context);
    assert_eq!(lines.measured.due(), None);
}

#[test]
fn a_look_that_began_before_a_victim_was_gone_ends_nobody() {
    let town = town();
    let mut lines = Lines::of(&town);
    lines.draw(&cgroup("/a"), 5000, Action::Kill, true);
    lines.looks(&[("cgroup:/a", 9200, &[10, 11, 12])]);
    assert_eq!(town.sent(), [(id(10), Signal::Kill)]);
    let orders = lines.orders();
    let (began, key) = (lines.context.now(), orders[0].key);
    town.passes(1);
    lines.ends(10);
    let usage = page_size().to_bytes(Pages(9200));
    let usage = Reading::Known(Programs { usage, settled: usage, mapped: Bytes(0) });
    let members = Some([11, 12].map(Pid).into());
    let looks = vec![Look { key, usage, members, inherited: None }];
    lines.measured.take(Looked { looks, began, took: Nanos(50_000), cpus: None }, &mut lines.context);
    lines.looks(&[("cgroup:/a", 4200, &[11, 12])]);
    assert_eq!(town.sent().len(), 1);
    assert_eq!(lines.incidents().len(), 1);
}
