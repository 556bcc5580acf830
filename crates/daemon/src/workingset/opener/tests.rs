use super::*;
use crate::workingset::tests::until;
use std::sync::mpsc::channel;

fn file(inode: u64) -> FileId {
    FileId { device: 1 << 20, inode, generation: 0 }
}

/// What was heard of so far, and now.
fn heard(opener: &mut Opener, so_far: &mut Vec<FileId>) -> usize {
    so_far.extend(opener.take().into_iter().map(|(file, _)| file));
    so_far.len()
}

#[test]
fn a_file_that_takes_for_ever_holds_up_nobody_but_those_behind_it() {
    let mut opener = Opener::new(&Offload::start().unwrap()).unwrap();
    let (let_go, waits) = channel::<()>();
    opener
        .ask_for(file(1), Box::new(move || waits.recv().map_or(Err(Refusal::Gone), |()| Err(Refusal::Gone))));
    opener.ask_for(file(2), Box::new(|| Err(Refusal::Leased)));
    assert!(opener.is_asked(file(1)) && opener.is_asked(file(2)));
    assert_eq!((opener.take().len(), opener.waiting()), (0, 2));
    let_go.send(()).unwrap();
    let mut taken = Vec::new();
    until("both are heard of", || heard(&mut opener, &mut taken) == 2);
    assert_eq!(taken, [file(1), file(2)]);
    assert_eq!(opener.waiting(), 0);
}

#[test]
fn no_more_wait_than_there_is_room_for() {
    let mut opener = Opener::new(&Offload::start().unwrap()).unwrap();
    let (begun, begins) = channel::<()>();
    let (let_go, waits) = channel::<()>();
    let waiting = move || {
        begun.send(()).unwrap();
        waits.recv().map_or(Err(Refusal::Gone), |()| Err(Refusal::Gone))
    };
    opener.ask_for(file(0), Box::new(waiting));
    begins.recv().unwrap();
    for inode in 1..200 {
        opener.ask_for(file(inode), Box::new(|| Err(Refusal::Gone)));
    }
    assert_eq!((opener.waiting(), opener.has_room()), (QUEUE_MAX, false));
    drop(let_go);
    let mut taken = Vec::new();
    until("all are heard of", || heard(&mut opener, &mut taken) == QUEUE_MAX);
    assert!(opener.has_room());
}

#[test]
fn what_was_asked_for_on_a_device_that_went_is_not_taken_and_may_be_asked_for_again() {
    let mut opener = Opener::new(&Offload::start().unwrap()).unwrap();
    let (let_go, waits) = channel::<()>();
    opener
        .ask_for(file(1), Box::new(move || waits.recv().map_or(Err(Refusal::Gone), |()| Err(Refusal::Gone))));
    opener.forget_device(file(1).device);
    assert!(!opener.is_asked(file(1)));
    opener.ask_for(file(1), Box::new(|| Err(Refusal::Leased)));
    let_go.send(()).unwrap();
    let mut taken = Vec::new();
    until("the second is heard of", || {
        taken.extend(opener.take());
        !taken.is_empty()
    });
    assert!(matches!(taken.as_slice(), [(_, Err(Refusal::Leased))]));
}
