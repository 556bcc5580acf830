//! Random runs: clients that grant, touch, idle, give back, wait, lie and die at every step. No grant ever goes over the line,
//! nothing that fits is refused, every question is answered once, and at rest nothing is left.

use super::world::{HEADROOM, PAGE, World};
use crate::tmalloc::account::ConnectionId;
use plimsoll_policy::units::{Bytes, Nanos, Pid};
use plimsoll_wire::tmalloc::{Patience, Refusal, Reply, Request};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LINE: u64 = 1000;

/// What a client does next.
#[derive(Debug, Clone)]
enum Step {
    Request {
        pages: u64,
        patience: Patience,
    },
    Touch,
    /// Keeps so much idle in its arenas, to be called back.
    Idle(u64),
    GiveBack(u64),
    Plain(i64),
    /// Says that it gave back what it did not.
    Lie(u64),
    Cancel,
    /// Its connections are cut, and made again.
    Reconnect,
    Die,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let patience = prop_oneof![
        3 => Just(Patience::None),
        1 => (1_u64..300).prop_map(Patience::Milliseconds),
        1 => Just(Patience::Endless),
    ];
    prop_oneof![
        8 => (1_u64..400, patience).prop_map(|(pages, patience)| Step::Request { pages, patience }),
        6 => Just(Step::Touch),
        3 => (1_u64..200).prop_map(Step::Idle),
        3 => (1_u64..200).prop_map(Step::GiveBack),
        2 => (-50_i64..50).prop_map(Step::Plain),
        1 => any::<u64>().prop_map(Step::Lie),
        1 => Just(Step::Cancel),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Die),
        4 => (0_u64..120).prop_map(Step::Wait),
    ]
}

#[derive(Debug)]
struct Client {
    ask: ConnectionId,
    watch: ConnectionId,
    /// Populated and unused: what a recall brings.
    idle: u64,
    plain: u64,
    /// Since when it has been idle.
    idle_from: Nanos,
    /// Grants that were not settled.
    unsettled: u64,
    heard: usize,
    answered_recalls: usize,
}

struct Run {
    world: World,
    clients: BTreeMap<u32, Client>,
    next_pid: u32,
    next_seq: u32,
    /// Requests without an answer: whose, pages, and whether they wait.
    open: BTreeMap<(ConnectionId, u32), (u64, bool)>,
}

impl Run {
    fn new(count: u32) -> Self {
        let world = World::new(LINE);
        let mut run =
            Self { world, clients: BTreeMap::new(), next_pid: 1, next_seq: 1, open: BTreeMap::new() };
        (0..count).for_each(|_| run.be_born());
        run
    }

    fn be_born(&mut self) {
        let pid = self.next_pid;
        self.next_pid += 1;
        let (ask, watch) = (self.world.client(pid, false), self.world.client(pid, true));
        let client = Client {
            ask,
            watch,
            idle: 0,
            idle_from: self.world.now,
            plain: 0,
            unsettled: 0,
            heard: 0,
            answered_recalls: 0,
        };
        self.clients.insert(pid, client);
    }

    fn used(&self, pid: u32) -> u64 {
        self.world.books.0.borrow().held[&Pid(pid)].used
    }

    fn take(&mut self, pid: u32, step: &Step) {
        let client = self.clients.get_mut(&pid).unwrap();
        let (ask, watch) = (client.ask, client.watch);
        match *step {
            Step::Request { pages, patience } => {
                let seq = self.next_seq;
                self.next_seq += 1;
                self.open.insert((ask, seq), (pages, patience != Patience::None));
                self.world.ask(ask, seq, pages, patience);
            }
            Step::Touch => {
                let count = core::mem::take(&mut client.unsettled);
                self.world.touch(pid);
                (0..count).for_each(|_| self.world.send(ask, Request::Settled));
            }
            Step::Idle(pages) => {
                let (plain, idle) = (client.plain, client.idle);
                let free = self.used(pid) - plain - idle;
                let client = self.clients.get_mut(&pid).unwrap();
                if client.idle == 0 {
                    client.idle_from = self.world.now;
                }
                client.idle += pages.min(free);
            }
            Step::GiveBack(pages) => {
                let given = pages.min(client.idle);
                client.idle -= given;
                self.world.use_plainly(pid, -i64::try_from(given).unwrap());
                self.world.send(ask, Request::GaveBack { bytes: Bytes(given * PAGE) });
            }
            Step::Plain(pages) => {
                let room = i64::try_from(LINE.saturating_sub(self.world.usage())).unwrap();
                let pages = pages.clamp(-i64::try_from(client.plain).unwrap(), room);
                client.plain = client.plain.checked_add_signed(pages).unwrap();
                self.world.use_plainly(pid, pages);
            }
            Step::Lie(bytes) => self.world.send(ask, Request::GaveBack { bytes: Bytes(bytes) }),
            Step::Cancel => {
                if let Some((_, seq)) = self.open.keys().find(|(id, _)| *id == ask).copied() {
                    self.world.send(ask, Request::Cancel { seq });
                }
            }
            Step::Reconnect => {
                for id in [ask, watch] {
                    self.world.coordinator.disconnect(id, self.world.now);
                }
                self.open.retain(|(id, _), _| *id != ask);
                let (ask, watch) = (self.world.client(pid, false), self.world.client(pid, true));
                let client = self.clients.get_mut(&pid).unwrap();
                (client.ask, client.watch, client.heard, client.answered_recalls) = (ask, watch, 0, 0);
                (0..=core::mem::take(&mut client.unsettled)).for_each(|_| {
                    self.world.touch(pid);
                    self.world.send(ask, Request::Settled);
                });
            }
            Step::Die => {
                self.open.retain(|(id, _), _| *id != ask);
                self.clients.remove(&pid);
                self.world.end(pid);
                self.be_born();
            }
            Step::Wait(milliseconds) => self.pass(milliseconds),
        }
        self.hear();
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.world.pass(1);
            self.hear();
        }
    }

    /// Clients take what came, and give idle memory back where they are asked to.
    fn hear(&mut self) {
        let mut again = true;
        while core::mem::take(&mut again) {
            let pids: Vec<u32> = self.clients.keys().copied().collect();
            for pid in pids {
                again |= self.hear_replies(pid);
                again |= self.answer_recalls(pid);
            }
        }
        let (usage, promised) = (self.world.usage(), self.world.promised());
        // What was used without asking may have been counted as what was granted, until that is touched.
        let plain: u64 = self.clients.values().map(|one| one.plain).sum();
        assert!(usage <= LINE + plain, "over the line");
        assert!(promised <= usage, "{promised} pages are used and promised, and {usage} are counted");
    }

    fn hear_replies(&mut self, pid: u32) -> bool {
        let client = self.clients.get_mut(&pid).unwrap();
        let ask = client.ask;
        let said = self.world.said.get(&client.ask).cloned().unwrap_or_default();
        let new = said[client.heard..].to_vec();
        client.heard = said.len();
        for reply in &new {
            match *reply {
                Reply::Granted { seq, bytes } => {
                    let (pages, _) = self.open.remove(&(ask, seq)).expect("answered once");
                    assert_eq!(bytes.0, pages * PAGE);
                    self.clients.get_mut(&pid).unwrap().unsettled += 1;
                }
                Reply::Refused { seq, refusal, usage, line } => {
                    let (pages, _) = self.open.remove(&(ask, seq)).expect("answered once");
                    // Nobody is asked again for a moment after all said that they had nothing.
                    let asked = |one: &&Client| one.idle_from.0 + 10_000_000 <= self.world.now.0;
                    let idle: u64 = self.clients.values().filter(asked).map(|one| one.idle).sum();
                    if refusal == Refusal::OverLine {
                        let (usage, line) = (usage.0 / PAGE, line.0 / PAGE);
                        assert!(usage + pages > line, "refused {pages} at {usage} of {line}");
                        assert_eq!(idle, 0, "refused with {idle} pages idle");
                    }
                }
                Reply::Welcome { .. }
                | Reply::Recall { .. }
                | Reply::Soft { .. }
                | Reply::HeadroomIs { .. }
                | Reply::Fault { .. } => {}
            }
        }
        !new.is_empty()
    }

    fn answer_recalls(&mut self, pid: u32) -> bool {
        let client = self.clients.get_mut(&pid).unwrap();
        let recalls = self.world.recalls(client.watch);
        let new = recalls[client.answered_recalls..].to_vec();
        client.answered_recalls = recalls.len();
        for (seq, _) in &new {
            let client = self.clients.get_mut(&pid).unwrap();
            let (given, watch) = (core::mem::take(&mut client.idle), client.watch);
            self.world.use_plainly(pid, -i64::try_from(given).unwrap());
            self.world.send(watch, Request::Recalled { seq: *seq, bytes: Bytes(given * PAGE) });
        }
        !new.is_empty()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_that_fits_is_refused_and_nothing_is_left(
        steps in proptest::collection::vec((0_u32..6, step()), 1..120),
    ) {
        let mut run = Run::new(6);
        for (which, step) in &steps {
            let pid = *run.clients.keys().nth(usize::try_from(*which).unwrap()).unwrap();
            run.take(pid, step);
        }
        // Everybody ends what it does: then nobody is left waiting, and nothing reserved.
        let pids: Vec<u32> = run.clients.keys().copied().collect();
        for pid in &pids {
            run.take(*pid, &Step::Touch);
        }
        for _ in 0..40 {
            run.pass(20);
            for pid in &pids {
                run.take(*pid, &Step::Touch);
                let client = run.clients.get_mut(pid).unwrap();
                client.plain = 0;
                let used = run.used(*pid);
                run.world.use_plainly(*pid, -i64::try_from(used).unwrap());
                run.clients.get_mut(pid).unwrap().idle = 0;
            }
        }
        run.pass(400);
        for ((_, _), (pages, waits)) in &run.open {
            prop_assert!(*pages > LINE - HEADROOM || !waits, "one that fits still waits");
        }
        prop_assert!(run.open.is_empty(), "unanswered: {:?}", run.open);
        run.world.pass(11_000);
        prop_assert_eq!(run.world.books.0.borrow().held.values().map(|one| one.reserved).sum::<u64>(), 0);
        prop_assert_eq!(run.world.coordinator.next_deadline(), None);
    }
}
