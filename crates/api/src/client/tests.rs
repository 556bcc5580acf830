use super::{CallError, Client};
use crate::message::HistoryCall;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    thread::{self, JoinHandle},
};
use tempfile::TempDir;

/// A server that answers each request of one connection with the next of `replies`, then closes.
fn canned(replies: Vec<Vec<u8>>) -> (TempDir, PathBuf, JoinHandle<Vec<Value>>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut requests = Vec::new();
        let mut reader = BufReader::new(&stream);
        for reply in replies {
            let mut request = Vec::new();
            reader.read_until(0, &mut request).unwrap();
            request.pop();
            requests.push(serde_json::from_slice(&request).unwrap());
            let mut writer = &stream;
            writer.write_all(&reply).unwrap();
        }
        requests
    });
    (folder, socket, server)
}

fn message(reply: &Value) -> Vec<u8> {
    let mut bytes = reply.to_string().into_bytes();
    bytes.push(0);
    bytes
}

fn error_from(reply: Vec<u8>) -> CallError {
    let (_folder, socket, server) = canned(vec![reply]);
    let error = Client::connect(&socket).unwrap().status().unwrap_err();
    server.join().unwrap();
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn nobody_behind_the_socket_and_no_socket_are_both_not_running() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    assert!(matches!(Client::connect(&socket), Err(CallError::NotRunning { .. })));
    drop(UnixListener::bind(&socket).unwrap());
    let error = Client::connect(&socket).unwrap_err();
    assert!(matches!(error, CallError::NotRunning { .. }));
    assert!(error.to_string().contains("plimsoll daemon"), "{error}");
}

#[test]
fn each_error_reply_is_told_by_its_kind() {
    let refused =
        |name: &str| error_from(message(&json!({"error": name, "parameters": {"message": "because"}})));
    assert!(matches!(refused("io.plimsoll.NotPermitted"), CallError::NotPermitted(why) if why == "because"));
    assert!(matches!(refused("io.plimsoll.NotFound"), CallError::NotFound(why) if why == "because"));
    assert!(matches!(refused("io.plimsoll.Invalid"), CallError::Invalid(why) if why == "because"));
    assert!(matches!(refused("io.plimsoll.Unavailable"), CallError::Refused(why) if why == "because"));
    let bare = error_from(message(&json!({"error": "org.varlink.service.MethodNotFound"})));
    assert!(matches!(bare, CallError::Refused(why) if why == "org.varlink.service.MethodNotFound"));
}

#[test]
fn what_cannot_be_understood_is_no_answer() {
    for reply in [
        b"\0".to_vec(),
        b"nonsense\0".to_vec(),
        b"{\"parameters\":{}}\0".to_vec(),
        b"{\"par".to_vec(),
        Vec::new(),
    ] {
        assert!(matches!(error_from(reply), CallError::NoAnswer { .. }));
    }
}

#[test]
fn a_daemon_whose_pages_never_end_does_not_hold_the_client() {
    let page = message(&json!({"parameters": {"incidents": [], "next_before_id": 5}}));
    let (_folder, socket, server) = canned(vec![page.clone(), page]);
    assert_eq!(Client::connect(&socket).unwrap().history(HistoryCall::default()).unwrap(), []);
    let requests = server.join().unwrap();
    assert_eq!(requests[1]["parameters"]["before_id"], 5);
}

#[test]
fn no_page_is_asked_for_once_enough_incidents_are_let_through() {
    let sample: Value =
        serde_json::from_str(include_str!("../../../policy/src/incident/sample.json")).unwrap();
    let page = |ids: [u64; 2], next: u64| {
        let incidents = ids.map(|id| {
            let mut incident = sample.clone();
            incident["id"] = json!(id);
            incident
        });
        message(&json!({"parameters": {"incidents": incidents, "next_before_id": next}}))
    };
    let (_folder, socket, server) = canned(vec![page([7, 8], 7), page([5, 6], 5)]);
    let query = HistoryCall { limit: Some(2), ..HistoryCall::default() };
    let mut client = Client::connect(&socket).unwrap();
    let even = client.history_where(query, |incident| incident.id % 2 == 0).unwrap();
    assert_eq!(even.iter().map(|incident| incident.id).collect::<Vec<_>>(), [6, 8]);
    // A third question would have had no answer.
    assert_eq!(server.join().unwrap().len(), 2);
}
