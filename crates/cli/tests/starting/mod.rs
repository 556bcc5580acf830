//! Daemons that are expected not to start, or to start besides a fixture's own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use crate::support::{Fixture, SOON, remove_pins};
use std::{
    fs,
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

/// The users of these tests. Others than those of the suites that load the machine, whose cleaning up ends every process
/// of a user, whoever started it.
pub const ALICE: u32 = 60_150;
/// Another.
pub const BOB: u32 = 60_151;
/// One without a line.
pub const CAROL: u32 = 60_152;

/// The places of a daemon; those of a fixture's own unless changed.
#[derive(Debug, Clone)]
pub struct Places {
    pub config: PathBuf,
    pub state: PathBuf,
    pub socket: PathBuf,
    pub pin: PathBuf,
    /// Removes what is left of the pins; not for the fixture's own, which sees to that itself.
    pub cleanup: Option<Arc<Cleanup>>,
}

/// Removes what a daemon beside the fixture's own should have removed itself, where a test failed.
#[derive(Debug)]
pub struct Cleanup(PathBuf);

impl Drop for Cleanup {
    fn drop(&mut self) {
        remove_pins(&self.0);
    }
}

impl Places {
    /// Those of the fixture's own daemon.
    pub fn of(fixture: &Fixture) -> Self {
        Self {
            config: fixture.path("plimsoll.toml"),
            state: fixture.path("state"),
            socket: fixture.path("socket"),
            pin: fixture.pin().to_path_buf(),
            cleanup: None,
        }
    }

    /// None of the fixture's own daemon's.
    pub fn beside(fixture: &Fixture) -> Self {
        let name = fixture.pin().file_name().unwrap().to_string_lossy();
        let pin = fixture.pin().with_file_name(format!("{name}-other"));
        Self {
            config: fixture.path("plimsoll.toml"),
            state: fixture.path("other-state"),
            socket: fixture.path("other-socket"),
            cleanup: Some(Arc::new(Cleanup(pin.clone()))),
            pin,
        }
    }

    /// `plimsoll daemon` with these.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        self.add_to(&mut command);
        command
    }

    /// The same as arguments of a command that runs `plimsoll`.
    pub fn add_to(&self, command: &mut Command) {
        command.arg("daemon").arg("--config").arg(&self.config).arg("--state").arg(&self.state);
        command.arg("--socket").arg(&self.socket).arg("--pin").arg(&self.pin);
    }
}

/// Runs a daemon that must not start: its exit status and what it said.
#[track_caller]
pub fn refused(mut command: Command) -> (i32, String) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + SOON;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it runs: {command:?}");
            }
            None => std::thread::sleep(SOON / 1000),
        }
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.code().expect("it was not killed"), said)
}

/// A daemon that must not start says so in one line, with this in it, and ends with status 1.
#[track_caller]
pub fn assert_refused(command: Command, named: &str) {
    let (code, said) = refused(command);
    assert_eq!(code, 1, "{said}");
    assert_one_line(&said);
    assert!(said.contains(named), "'{named}' is not in: {said}");
}

/// What every refusal looks like.
#[track_caller]
pub fn assert_one_line(said: &str) {
    assert!(
        said.starts_with("plimsoll: ") && said.matches('\n').count() == 1 && said.ends_with('\n'),
        "{said:?}"
    );
}

/// What a failed attempt must leave as it was.
#[derive(Debug, PartialEq)]
pub struct Kept {
    shown: serde_json::Value,
    file: Option<String>,
}

impl Kept {
    /// The lines that are drawn, but for what changes by itself, and the file that they are saved in.
    pub fn of(fixture: &Fixture) -> Self {
        let mut shown = fixture.json(&["limit", "show"]);
        for account in shown.as_array_mut().unwrap() {
            account["usage_bytes"] = 0.into();
            account["processes"] = 0.into();
            account["peak_bytes"] = 0.into();
            // None until the first walk of shared memory, which the line's drawing only begins.
            account["shared_bytes"] = 0.into();
        }
        Self { shown, file: fs::read_to_string(fixture.path("state").join("limits.json")).ok() }
    }
}
