//! The coordinator against accounts that count as the programs do.

mod random;
mod world;

use super::{
    shares::{TOTAL_MAX, USER_MAX},
    state::{ASKS_MAX, Fault, Hello, PROCESS_MAX},
};
use plimsoll_policy::units::{Bytes, Pages, Pid, Uid};
use plimsoll_wire::tmalloc::{Patience, Refusal, Reply, Request};
use world::{HEADROOM, PAGE, USER, World};

#[test]
fn what_fits_is_granted_to_the_page_and_what_does_not_is_refused_with_its_numbers() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    assert_eq!(
        world.ask(client, 1, 1000 - HEADROOM, Patience::None),
        Some(Reply::Granted { seq: 1, bytes: Bytes((1000 - HEADROOM) * PAGE) })
    );
    let refused = Reply::Refused {
        seq: 2,
        refusal: Refusal::OverLine,
        usage: Bytes((1000 - HEADROOM) * PAGE),
        line: Bytes((1000 - HEADROOM) * PAGE),
    };
    assert_eq!(world.ask(client, 2, 1, Patience::None), Some(refused));
    let [recorded] = world.recorded[..] else { panic!("{:?}", world.recorded) };
    assert_eq!((recorded.pid, recorded.requested, recorded.hard), (Pid(1), Pages(1), Pages(1000)));
}

#[test]
fn without_a_line_everything_is_granted() {
    let mut world = World::without_lines();
    let client = world.client(1, false);
    assert!(matches!(world.said[&client][..], [Reply::Welcome { line: false, .. }]));
    assert!(matches!(world.ask(client, 1, 1 << 40, Patience::None), Some(Reply::Granted { .. })));
    world.send(client, Request::Headroom { seq: 2 });
    assert_eq!(world.answer(client, 2), Some(Reply::HeadroomIs { seq: 2, bytes: None }));
    world.send(client, Request::Settled);
    // A line is drawn: from then on it counts.
    world.books.0.borrow_mut().lines.insert(USER, 100);
    world.coordinator.adopt(Some(world.books.clone()), world.now);
    assert!(matches!(world.ask(client, 3, 200, Patience::None), Some(Reply::Refused { .. })));
}

#[test]
fn a_settled_grant_leaves_nothing_reserved() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.ask(client, 1, 100, Patience::None);
    world.settle(client, 1);
    assert_eq!(world.usage(), 100);
    // Of two grants at once the first to be settled does not take the other's reservation.
    world.ask(client, 2, 100, Patience::None);
    world.ask(client, 3, 100, Patience::None);
    world.send(client, Request::Settled);
    assert_eq!(world.usage(), 300);
    world.send(client, Request::Settled);
    assert_eq!(world.usage(), 100);
}

#[test]
fn a_grant_that_nobody_settles_is_settled_after_ten_seconds() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.ask(client, 1, 100, Patience::None);
    world.pass(9_999);
    assert_eq!(world.usage(), 100);
    world.pass(1);
    assert_eq!(world.usage(), 0);
    // Also when its connection is gone while it lives.
    world.ask(client, 2, 100, Patience::None);
    world.coordinator.disconnect(client, world.now);
    world.pass(10_000);
    assert_eq!(world.usage(), 0);
    assert_eq!(world.coordinator.next_deadline(), None);
}

#[test]
fn reservations_of_an_earlier_daemon_wait_for_their_processes() {
    let mut world = World::without_lines();
    {
        let mut books = world.books.0.borrow_mut();
        books.lines.insert(USER, 1000);
        for pid in 1..=3 {
            books.run(Pid(pid), USER);
            let held = books.held.get_mut(&Pid(pid)).unwrap();
            (held.reserved, held.granted, held.open, held.due) = (50, 50, 50, 50);
        }
    }
    world.coordinator.adopt(Some(world.books.clone()), world.now);
    // One comes back and settles, one comes back and does not, one does not come back.
    let client = world.client(1, false);
    world.settle(client, 1);
    assert_eq!(world.usage(), 150);
    world.client(2, false);
    // What the first is granted now is not taken from it when the time of the others is over.
    world.pass(9_000);
    world.ask(client, 1, 10, Patience::None);
    world.pass(1_001);
    assert_eq!(world.usage(), 50 + 10);
    world.pass(10_000);
    assert_eq!(world.usage(), 50);
}

/// A process becomes another user's, who has a line too.
fn change_user(world: &World, pid: u32, user: Uid) {
    let mut books = world.books.0.borrow_mut();
    books.lines.insert(user, 1000);
    let space = &mut books.held.get_mut(&Pid(pid)).unwrap().space;
    (space.uid, space.user) = (user, user);
}

#[test]
fn nobody_has_to_help_for_a_reservation_to_go_back() {
    let mut world = World::new(1000);
    // Before this daemon, by a process that is another user's when it comes back.
    let mut before = World::without_lines();
    {
        let mut books = before.books.0.borrow_mut();
        books.lines.insert(USER, 1000);
        books.run(Pid(1), USER);
        let held = books.held.get_mut(&Pid(1)).unwrap();
        (held.reserved, held.granted, held.open, held.due) = (50, 50, 50, 50);
    }
    before.coordinator.adopt(Some(before.books.clone()), before.now);
    change_user(&before, 1, Uid(1001));
    before.client(1, false);
    before.pass(10_000);
    assert_eq!(before.books.0.borrow().usage(Uid(1001)), 0);
    // By a process that ended, while another runs on in its memory.
    let client = world.client(1, false);
    world.ask(client, 1, 100, Patience::None);
    world.coordinator.process_ended(Pid(1), world.now);
    assert_eq!(world.usage(), 0);
}

#[test]
fn a_refusal_is_told_of_the_user_that_a_process_has_then() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.ask(client, 1, 100, Patience::None);
    world.settle(client, 1);
    change_user(&world, 1, Uid(1001));
    assert!(matches!(world.ask(client, 2, 5000, Patience::None), Some(Reply::Refused { .. })));
    let [recorded] = world.recorded[..] else { panic!("{:?}", world.recorded) };
    assert_eq!((recorded.user, recorded.uid), (Uid(1001), Uid(1001)));
}

#[test]
fn idle_memory_is_called_back_before_anybody_is_refused() {
    let mut world = World::new(1000);
    let (idle, watch) = (world.client(1, false), world.client(1, true));
    world.ask(idle, 1, 900, Patience::None);
    world.settle(idle, 1);
    let asker = world.client(2, false);
    assert_eq!(world.ask(asker, 1, 200, Patience::None), None);
    let recalls = world.recalls(watch);
    let [(seq, wanted)] = recalls[..] else { panic!("{recalls:?}") };
    assert_eq!(wanted, 900 + 200 - (1000 - HEADROOM));
    world.use_plainly(1, -110);
    world.send(watch, Request::Recalled { seq, bytes: Bytes(110 * PAGE) });
    assert!(world.is_granted(asker, 1));
    assert_eq!(world.books.0.borrow().held[&Pid(1)].granted, 790);
}

#[test]
fn who_does_not_answer_a_recall_delays_a_refusal_once() {
    let mut world = World::new(1000);
    let (idle, watch) = (world.client(1, false), world.client(1, true));
    world.ask(idle, 1, 990, Patience::None);
    world.settle(idle, 1);
    let asker = world.client(2, false);
    assert_eq!(world.ask(asker, 1, 200, Patience::None), None);
    world.pass(49);
    assert_eq!(world.answer(asker, 1), None);
    world.pass(1);
    assert_eq!(world.refusal(asker, 1), Some(Refusal::OverLine));
    world.pass(10);
    // Asked all the same, but not waited for.
    assert!(world.ask(asker, 2, 200, Patience::None).is_some());
    assert_eq!(world.recalls(watch).len(), 2);
    // What nobody asked for is no answer.
    world.send(watch, Request::Recalled { seq: 4711, bytes: Bytes(0) });
    world.pass(10);
    assert!(world.ask(asker, 4, 200, Patience::None).is_some());
    // One that answers again, late as it is, is waited for again.
    let (seq, _) = world.recalls(watch)[2];
    world.send(watch, Request::Recalled { seq, bytes: Bytes(0) });
    world.pass(10);
    assert_eq!(world.ask(asker, 3, 200, Patience::None), None);
}

#[test]
fn one_that_lies_about_a_recall_gets_nobody_granted_and_loses_its_tier() {
    let mut world = World::new(1000);
    let (liar, watch) = (world.client(1, false), world.client(1, true));
    world.ask(liar, 1, 990, Patience::None);
    world.settle(liar, 1);
    let asker = world.client(2, false);
    world.ask(asker, 1, 200, Patience::None);
    let (seq, _) = world.recalls(watch)[0];
    world.send(watch, Request::Recalled { seq, bytes: Bytes(u64::MAX) });
    assert_eq!(world.refusal(asker, 1), Some(Refusal::OverLine));
    assert_eq!(world.books.0.borrow().held[&Pid(1)].granted, 0);
}

#[test]
fn processes_that_are_held_are_counted_for_their_user_without_connections_too() {
    let mut world = World::new(1000);
    let most = u32::try_from(USER_MAX).unwrap();
    for pid in 1..=most {
        let client = world.client(pid, false);
        world.ask(client, 1, 1, Patience::None);
        world.coordinator.disconnect(client, world.now);
    }
    let one_more = world.client(most + 1, false);
    assert_eq!(world.closed.get(&one_more), Some(&Some(Fault::TooMany)));
    // Its grant is settled for each of them in the end.
    world.pass(10_000);
    let later = world.client(most + 2, false);
    assert!(!world.closed.contains_key(&later));
}

#[test]
fn connections_that_come_and_go_without_a_word_leave_no_timer() {
    let mut world = World::new(1000);
    for _ in 0..1000 {
        let id = world.connect(USER).unwrap();
        world.coordinator.disconnect(id, world.now);
    }
    assert_eq!(world.coordinator.next_deadline(), None);
}

#[test]
fn those_who_come_to_the_line_together_do_not_wait_for_each_other() {
    let mut world = World::new(1000);
    let (idle, watch) = (world.client(1, false), world.client(1, true));
    world.ask(idle, 1, 990, Patience::None);
    world.settle(idle, 1);
    let asker = world.client(2, false);
    for seq in 1..=9 {
        let asked = world.ask(asker, seq, 100, Patience::None);
        assert_eq!(asked, None);
        if seq <= 8 {
            let (number, _) = *world.recalls(watch).last().unwrap();
            world.send(watch, Request::Recalled { seq: number, bytes: Bytes(1) });
            assert_eq!(world.refusal(asker, seq), Some(Refusal::OverLine));
        }
    }
    // One too many has to wait for its recall.
    assert_eq!(world.recalls(watch).len(), 8);
    world.pass(10);
    assert_eq!(world.recalls(watch).len(), 9);
}

#[test]
fn who_asks_after_a_recall_that_brought_nothing_is_refused_at_once() {
    let mut world = World::new(1000);
    let (idle, watch) = (world.client(1, false), world.client(1, true));
    world.ask(idle, 1, 990, Patience::None);
    world.settle(idle, 1);
    let asker = world.client(2, false);
    for seq in 1..=30 {
        let answered = world.ask(asker, seq, 100, Patience::None).is_some();
        assert_eq!(answered, seq != 1);
        if !answered {
            let (number, _) = world.recalls(watch)[0];
            world.send(watch, Request::Recalled { seq: number, bytes: Bytes(0) });
        }
        assert_eq!(world.refusal(asker, seq), Some(Refusal::OverLine));
    }
    assert_eq!(world.recalls(watch).len(), 1);
    // That holds for a moment only.
    world.pass(10);
    assert_eq!(world.ask(asker, 31, 100, Patience::None), None);
    assert_eq!(world.recalls(watch).len(), 2);
    // One that lets it pass may have something.
    world.pass(50);
    assert_eq!(world.refusal(asker, 31), Some(Refusal::OverLine));
    world.ask(asker, 32, 100, Patience::None);
    assert_eq!(world.recalls(watch).len(), 3);
}

#[test]
fn recalls_of_one_account_keep_a_distance() {
    let mut world = World::new(1000);
    let (idle, watch) = (world.client(1, false), world.client(1, true));
    world.ask(idle, 1, 990, Patience::None);
    world.settle(idle, 1);
    let asker = world.client(2, false);
    for seq in 0..1000 {
        world.ask(asker, seq, 100, Patience::None);
        if let Some((number, _)) = world.recalls(watch).last().copied() {
            world.send(watch, Request::Recalled { seq: number, bytes: Bytes(0) });
        }
        world.pass(1);
    }
    world.pass(2_000);
    assert!(world.recalls(watch).len() <= 108, "{} recalls in a second", world.recalls(watch).len());
    assert!((0..1000).all(|seq| world.refusal(asker, seq) == Some(Refusal::OverLine)));
    assert!(world.recorded.len() <= 3, "{} incidents in a second", world.recorded.len());
    assert_eq!(world.recorded.iter().map(|one| one.suppressed + 1).sum::<u64>(), 1000);
}

#[test]
fn who_waits_is_served_in_turn() {
    let mut world = World::new(1000);
    let holder = world.client(1, false);
    world.ask(holder, 1, 990, Patience::None);
    world.settle(holder, 1);
    let (large, small) = (world.client(2, false), world.client(3, false));
    assert_eq!(world.ask(large, 1, 500, Patience::Endless), None);
    assert_eq!(world.ask(small, 1, 10, Patience::Endless), None);
    // Room for the small one: it came second, and waits.
    world.use_plainly(1, -100);
    world.send(holder, Request::GaveBack { bytes: Bytes(100 * PAGE) });
    world.pass(1_000);
    assert!(!world.is_granted(large, 1) && !world.is_granted(small, 1));
    // One that does not wait is granted what fits.
    let third = world.client(4, false);
    assert!(matches!(world.ask(third, 1, 10, Patience::None), Some(Reply::Granted { .. })));
    world.use_plainly(1, -450);
    world.pass(100);
    assert!(world.is_granted(large, 1) && world.is_granted(small, 1));
    world.pass(20_000);
    assert_eq!(world.coordinator.next_deadline(), None, "idle costs nothing");
}

#[test]
fn a_request_that_waits_is_woken_soon_by_whatever_frees_memory() {
    let cases: [fn(&mut World); 3] = [
        |world| world.end(1),
        |world| {
            world.use_plainly(1, -990);
            let id = world.client(1, false);
            world.send(id, Request::GaveBack { bytes: Bytes(990 * PAGE) });
        },
        |world| {
            world.use_plainly(1, -990);
            world.coordinator.moved(USER, world.now);
        },
    ];
    for free in cases {
        let mut world = World::new(1000);
        let holder = world.client(1, false);
        world.ask(holder, 1, 990, Patience::None);
        world.settle(holder, 1);
        let waiter = world.client(2, false);
        assert_eq!(world.ask(waiter, 1, 500, Patience::Endless), None);
        world.pass(5_000);
        free(&mut world);
        world.pass(10);
        assert!(world.is_granted(waiter, 1));
    }
}

#[test]
fn waiting_ends_when_its_time_is_over_or_it_is_cancelled() {
    let mut world = World::new(1000);
    let holder = world.client(1, false);
    world.ask(holder, 1, 990, Patience::None);
    let waiter = world.client(2, false);
    world.ask(waiter, 1, 500, Patience::Milliseconds(200));
    world.ask(waiter, 2, 500, Patience::Endless);
    world.pass(199);
    assert_eq!(world.answer(waiter, 1), None);
    world.pass(1);
    assert_eq!(world.refusal(waiter, 1), Some(Refusal::TimedOut));
    assert_eq!(world.recorded.len(), 1);
    world.send(waiter, Request::Cancel { seq: 2 });
    assert_eq!(world.refusal(waiter, 2), Some(Refusal::TimedOut));
    // One that was answered is not answered again.
    world.send(waiter, Request::Cancel { seq: 2 });
    assert_eq!(world.said[&waiter].len(), 3);
    assert_eq!(world.recorded.len(), 1, "nobody refused what was cancelled");
}

#[test]
fn at_the_end_of_its_time_a_request_gets_what_there_is() {
    let mut world = World::new(1000);
    let holder = world.client(1, false);
    world.ask(holder, 1, 900, Patience::None);
    let (first, second) = (world.client(2, false), world.client(3, false));
    world.ask(first, 1, 500, Patience::Endless);
    world.ask(second, 1, 50, Patience::Milliseconds(100));
    world.pass(100);
    assert!(world.is_granted(second, 1));
}

#[test]
fn what_no_line_allows_is_refused_at_once_however_patient() {
    let mut world = World::new(1000);
    let (client, watch) = (world.client(1, false), world.client(1, true));
    world.ask(client, 1, 1000 - HEADROOM + 1, Patience::Endless);
    assert_eq!(world.refusal(client, 1), Some(Refusal::OverLine));
    world.ask(client, 2, u64::MAX / PAGE, Patience::None);
    assert_eq!(world.refusal(client, 2), Some(Refusal::OverLine));
    assert!(world.recalls(watch).is_empty());
}

#[test]
fn an_account_that_is_not_known_exactly_is_walked_once() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.books.0.borrow_mut().inexact = 1;
    assert_eq!(world.ask(client, 1, 10, Patience::None), None);
    assert_eq!(world.walks, 1);
    world.coordinator.walked(world.now);
    world.gather();
    assert!(world.is_granted(client, 1));
    // One that cannot be counted is told to come again.
    world.books.0.borrow_mut().inexact = u32::MAX;
    world.ask(client, 2, 10, Patience::None);
    let mut walked = 1;
    for _ in 0..60 {
        if world.walks > walked {
            walked = world.walks;
            world.coordinator.walked(world.now);
            world.gather();
        }
        world.pass(1);
    }
    assert_eq!(world.refusal(client, 2), Some(Refusal::Busy));
    assert!(world.walks <= 5, "{} walks in 50 ms", world.walks);
}

#[test]
fn who_became_a_user_with_a_line_unseen_is_looked_for_before_it_is_granted_anything() {
    let mut world = World::new(1000);
    let client = world.unseen(1);
    assert_eq!(world.ask(client, 1, 10, Patience::None), None);
    assert_eq!(world.walks, 1);
    world.books.0.borrow_mut().run(Pid(1), USER);
    world.coordinator.walked(world.now);
    world.gather();
    assert!(world.is_granted(client, 1));
    assert_eq!(world.usage(), 10);
}

#[test]
fn a_program_that_runs_another_one_is_found_again() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.books.0.borrow_mut().run(Pid(1), USER);
    assert!(matches!(world.ask(client, 1, 10, Patience::None), Some(Reply::Granted { .. })));
    assert_eq!(world.usage(), 10);
}

#[test]
fn watchers_hear_of_the_soft_limit_after_their_welcome() {
    let mut world = World::new(1000);
    world.client(1, false);
    world.use_plainly(1, 950);
    let watch = world.client(2, true);
    assert!(matches!(world.said[&watch][..], [Reply::Welcome { .. }, Reply::Soft { reached: true, .. }]));
    let late = world.client(3, true);
    assert_eq!(world.soft(late), [true]);
    world.use_plainly(1, -500);
    world.pass(200);
    world.coordinator.moved(USER, world.now);
    world.gather();
    assert_eq!(world.soft(watch), [true, false]);
    world.pass(5_000);
    assert_eq!(world.coordinator.next_deadline(), None);
}

#[test]
fn who_floods_is_told_to_stop_and_others_are_served() {
    let mut world = World::new(1000);
    let holder = world.client(1, false);
    world.ask(holder, 1, 990, Patience::None);
    let flood = world.client(2, false);
    let most = u32::try_from(ASKS_MAX).unwrap();
    for seq in 0..most {
        assert_eq!(world.ask(flood, seq, 1, Patience::Endless), None);
    }
    world.ask(flood, most, 1, Patience::Endless);
    assert_eq!(world.refusal(flood, most), Some(Refusal::Busy));
    let other = world.client(3, false);
    assert_eq!(world.ask(other, 1, 1, Patience::Endless), None);
    world.end(2);
    world.use_plainly(1, 0);
    world.end(1);
    world.pass(20);
    assert!(world.is_granted(other, 1));
}

#[test]
fn a_user_who_asks_too_much_at_once_is_told_to_come_again_and_what_is_over_the_line_is_tried_once() {
    let mut world = World::new(1000);
    let (holder, _watch) = (world.client(1, false), world.client(1, true));
    world.ask(holder, 1, 990, Patience::None);
    world.settle(holder, 1);
    let askers: Vec<_> = (0..40).map(|number| world.client(100 + number, false)).collect();
    let mut busy = 0;
    for asker in &askers {
        for seq in 0..30 {
            world.ask(*asker, seq, 200, Patience::None);
            busy += u32::from(world.refusal(*asker, seq) == Some(Refusal::Busy));
        }
    }
    assert_eq!(busy, 40 * 30 - 1024);
    let tried = world.books.0.borrow().tried;
    assert!(tried <= 1024 + 2, "{tried} tries for 1024 requests");
    world.pass(60);
    assert_eq!(world.refusal(askers[0], 0), Some(Refusal::OverLine));
}

#[test]
fn nothing_is_promised_to_a_dying_process() {
    let mut world = World::new(1000);
    let client = world.client(1, false);
    world.books.0.borrow_mut().dying.insert(Pid(1));
    world.ask(client, 1, 10, Patience::None);
    assert_eq!(world.refusal(client, 1), Some(Refusal::NotPermitted));
    assert_eq!(world.usage(), 0);
}

#[test]
fn connections_of_a_process_are_counted() {
    let mut world = World::new(1000);
    for _ in 0..PROCESS_MAX {
        world.client(1, false);
    }
    let fifth = world.client(1, false);
    assert_eq!(world.closed.get(&fifth), Some(&Some(Fault::TooMany)));
}

#[test]
fn a_user_has_a_share_of_the_connections_and_the_idle_ones_of_it_give_way() {
    let mut world = World::new(1000);
    let most = u32::try_from(USER_MAX).unwrap();
    let clients: Vec<_> = (1..=most).map(|pid| world.client(pid, false)).collect();
    // The first has been used since, the second has asked and waits, the third has not settled what it was granted.
    world.ask(clients[2], 1, 10, Patience::None);
    world.ask(clients[1], 1, 985, Patience::Endless);
    world.send(clients[0], Request::Headroom { seq: 1 });
    for more in 1..most - 2 {
        world.client(most + more, false);
        assert_eq!(world.closed.len(), usize::try_from(more).unwrap());
    }
    let open = clients.iter().filter(|id| !world.closed.contains_key(id)).copied().collect::<Vec<_>>();
    assert_eq!(open, [clients[0], clients[1], clients[2]]);
    assert!(world.closed.values().all(|fault| *fault == Some(Fault::TooMany)));
    world.client(1000, false);
    assert!(world.closed.contains_key(&clients[0]));
    assert_eq!(world.coordinator.tally().connections, u64::from(most));
    // Who holds something keeps it without a connection, and comes back for more.
    let back = world.client(1, false);
    assert!(matches!(world.ask(back, 2, 10, Patience::None), Some(Reply::Granted { .. })));
}

#[test]
fn who_has_its_share_in_use_is_turned_away_alone() {
    let mut world = World::new(100_000);
    for pid in 1..=u32::try_from(USER_MAX).unwrap() {
        let client = world.client(pid, false);
        assert!(matches!(world.ask(client, 1, 1, Patience::None), Some(Reply::Granted { .. })));
    }
    assert_eq!(world.connect(USER), Err(Fault::TooMany));
    world.connect(Uid(2000)).unwrap();
    assert!(world.closed.is_empty());
}

#[test]
fn no_number_of_users_keeps_another_one_out() {
    let mut world = World::new(1000);
    let user = |number: usize| Uid(2000 + u32::try_from(number / USER_MAX).unwrap());
    // None has said whose it is: none is idle.
    for number in 0..TOTAL_MAX {
        world.connect(user(number)).unwrap();
    }
    for _ in 0..200 {
        world.connect(USER).unwrap();
    }
    world.gather();
    assert_eq!(world.coordinator.tally().connections, u64::try_from(TOTAL_MAX).unwrap());
    assert_eq!(world.closed.len(), 200);
    // Of those who have most, one after the other: all have about as many in the end, and who asks for more than that has
    // none of the others'.
    let taken = (0..USER_MAX).filter(|_| world.connect(USER).is_ok()).count();
    assert!((30..50).contains(&taken), "{taken}");
    // Whoever says nothing goes.
    world.pass(5_000);
    assert_eq!(world.coordinator.tally().connections, 0);
}

#[test]
fn a_connection_that_does_not_keep_to_the_protocol_is_closed() {
    let mut world = World::new(1000);
    let mute = world.connect(USER).unwrap();
    world.send(mute, Request::Settled);
    assert_eq!(world.closed.get(&mute), Some(&Some(Fault::Protocol)));
    let client = world.client(1, false);
    world.send(client, Request::Hello { watch: false });
    assert_eq!(world.closed.get(&client), Some(&Some(Fault::Protocol)));
    assert_eq!(world.coordinator.tally().connections, 0);
}

#[test]
fn a_process_that_cannot_be_told_from_another_is_granted_nothing() {
    let mut world = World::new(1000);
    world.books.0.borrow_mut().run(Pid(1), USER);
    let id = world.connect(USER).unwrap();
    world.coordinator.hello(id, Hello { pid: Pid(1), watch: false, doubtful: true }, world.now);
    world.ask(id, 1, 1, Patience::None);
    assert_eq!(world.refusal(id, 1), Some(Refusal::NotPermitted));
    assert_eq!(world.usage(), 0);
}
