use super::Feed;
use plimsoll_api::client::CallError;
use std::{os::unix::net::UnixListener, sync::mpsc, time::Duration};

const LONG: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_is_wanted_is_asked_for_at_once_and_a_broken_connection_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (wanting, wanted) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let mut broken = true;
    let ask = move |_: &mut _, which: &u8| {
        // The first connection breaks at its second question.
        if *which == 2 && std::mem::take(&mut broken) {
            let socket = "s".into();
            return Err(CallError::NoAnswer { socket, why: "it closed the connection".to_owned() });
        }
        Ok(*which)
    };
    Feed { socket, interval: LONG, first: 1, wanted }.start(ask, move |answer| answers.send(answer).is_ok());
    assert_eq!(answered.recv_timeout(SOON).unwrap().unwrap(), 1);
    wanting.send(2).unwrap();
    assert_eq!(answered.recv_timeout(SOON).unwrap().unwrap(), 2);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 2);
    drop(wanting);
    // It has ended: nobody holds the other end any more.
    answered.recv_timeout(SOON).unwrap_err();
}

#[test]
fn without_a_daemon_that_is_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (_wanting, wanted) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let feed = Feed { socket: folder.path().join("nobody"), interval: LONG, first: (), wanted };
    feed.start(|_, ()| Ok(()), move |answer| answers.send(answer).is_ok());
    assert!(matches!(answered.recv_timeout(SOON).unwrap(), Err(CallError::NotRunning { .. })));
}
