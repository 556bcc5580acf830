use super::{Change, Reply, Request, mailbox};
use crate::api::control::Refusal;
use std::{sync::Arc, thread, time::Duration};

const SHORT: Duration = Duration::from_millis(20);

fn lines(reply: Reply<Result<(), Refusal>>) -> Request {
    Request::Lines { book: Arc::default(), change: Change::All, reply }
}

#[test]
fn what_its_caller_gave_up_is_not_done() {
    let (mailbox, caller) = mailbox().unwrap();
    let answer = caller.ask_within(SHORT, lines);
    assert!(matches!(answer, Err(Refusal::Unavailable(_))), "{answer:?}");
    let Ok(Request::Lines { reply, .. }) = mailbox.next() else { panic!("it is gone") };
    assert!(!reply.begin());
}

#[test]
fn what_is_being_done_is_waited_for() {
    let (mailbox, caller) = mailbox().unwrap();
    let asks = thread::spawn(move || caller.ask_within(SHORT, lines));
    let reply = loop {
        if let Ok(Request::Lines { reply, .. }) = mailbox.next() {
            break reply;
        }
    };
    let awaited = reply.begin();
    thread::sleep(SHORT * 5);
    reply.send(Ok(()));
    // On a slow machine it may have given up before it was looked at.
    assert_eq!(asks.join().unwrap().is_ok(), awaited);
}

#[test]
fn a_guard_that_ends_in_the_middle_answers_nobody() {
    let (mailbox, caller) = mailbox().unwrap();
    let asks = thread::spawn(move || caller.ask(lines));
    while mailbox.next().is_err() {}
    assert!(asks.join().unwrap().is_err());
}
