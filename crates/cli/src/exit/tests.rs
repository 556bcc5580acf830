use super::{Exit, Failure};
use plimsoll_api::client::CallError;
use std::{io, process::ExitCode};

fn exit_of(failure: Failure) -> Exit {
    match failure {
        Failure::Told { exit, .. } => exit,
        Failure::ReaderGone => Exit::Done,
    }
}

#[test]
fn the_statuses_are_the_documented_numbers() {
    let documented = [
        (Exit::Done, 0),
        (Exit::Failed, 1),
        (Exit::Usage, 2),
        (Exit::NotRunning, 3),
        (Exit::NotPermitted, 4),
    ];
    for (exit, number) in documented {
        assert_eq!(exit as u8, number);
        assert_eq!(format!("{:?}", ExitCode::from(exit)), format!("{:?}", ExitCode::from(number)));
    }
}

#[test]
fn each_kind_of_refusal_has_its_status() {
    let text = || "why".to_owned();
    let socket = || "/x".into();
    for (error, exit) in [
        (CallError::NotRunning { socket: socket() }, Exit::NotRunning),
        (CallError::NotPermitted(text()), Exit::NotPermitted),
        (CallError::Invalid(text()), Exit::Usage),
        (CallError::NotFound(text()), Exit::Failed),
        (CallError::Refused(text()), Exit::Failed),
        (CallError::NoAnswer { socket: socket(), why: text() }, Exit::Failed),
    ] {
        assert_eq!(exit_of(error.into()), exit);
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::ReaderGone));
    let as_json = serde_json::Error::io(io::ErrorKind::BrokenPipe.into());
    assert!(matches!(Failure::from(as_json), Failure::ReaderGone));
    assert_eq!(exit_of(io::Error::from(io::ErrorKind::StorageFull).into()), Exit::Failed);
}
