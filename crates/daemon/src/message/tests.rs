use super::{Receiver, queue};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    os::fd::AsFd as _,
    sync::mpsc::{TryRecvError, TrySendError},
};

fn rings<T>(receiver: &Receiver<T>) -> bool {
    let mut polled = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn it_can_be_read_until_all_was_taken() {
    let (sender, receiver) = queue(2).unwrap();
    assert!(!rings(&receiver));
    sender.try_send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!((receiver.next(), rings(&receiver)), (Ok(1), true));
    assert_eq!((receiver.next(), rings(&receiver)), (Ok(2), true));
    assert_eq!((receiver.next(), rings(&receiver)), (Err(TryRecvError::Empty), false));
    sender.wake();
    assert!(rings(&receiver));
}

#[test]
fn what_was_sent_before_the_sender_went_is_taken() {
    let (sender, receiver) = queue(2).unwrap();
    sender.try_send(1).unwrap();
    drop(sender);
    assert_eq!((receiver.next(), receiver.next()), (Ok(1), Err(TryRecvError::Disconnected)));
}

#[test]
fn nobody_waits_for_a_receiver_that_is_closed_or_gone() {
    let (sender, mut receiver) = queue(1).unwrap();
    sender.try_send(1).unwrap();
    receiver.close();
    assert!(sender.send(2).is_err());
    assert!(sender.is_heard());
    drop(receiver);
    assert!(!sender.is_heard());
    assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
}
