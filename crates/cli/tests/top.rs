//! `plimsoll top` in a terminal, against a daemon without a machine: what becomes of the terminal.
#![cfg(test)]

mod fake_daemon;

use fake_daemon::FakeDaemon;
use nix::{
    pty::{OpenptyResult, Winsize, openpty},
    sys::termios::{LocalFlags, tcgetattr},
};
use plimsoll_daemon::api::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(10);

/// A terminal with `top` in it.
struct Seat {
    child: Child,
    terminal: File,
    keyboard: File,
    printed: String,
}

impl Seat {
    fn take(socket: &Path) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        let terminal = File::from(slave);
        let seat = || Stdio::from(terminal.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["top", "--interval", "0.1"])
            .env("PLIMSOLL_SOCKET", socket)
            .env("TERM", "xterm")
            .stdin(seat())
            .stdout(seat())
            .spawn()
            .unwrap();
        Self { child, terminal, keyboard: File::from(master), printed: String::new() }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO)
    }

    fn until(&mut self, text: &str) {
        let mut some = [0; 4096];
        let end = Instant::now() + SOON;
        while !self.printed.contains(text) {
            assert!(Instant::now() < end, "waited in vain for {text:?}: {:?}", self.printed);
            let count = self.keyboard.read(&mut some).unwrap();
            self.printed.push_str(&String::from_utf8_lossy(&some[..count]));
        }
    }

    /// Once it has ended by itself.
    fn ended(mut self) {
        self.until("\u{1b}[?1049l");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.is_raw());
    }
}

#[test]
fn the_terminal_is_given_back_however_it_ends_and_a_daemon_that_goes_and_comes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let server = Server::start(&socket, Arc::new(FakeDaemon::new(3))).unwrap();
    let mut seat = Seat::take(&socket);
    seat.until("dying");
    assert!(seat.is_raw());
    seat.keyboard.write_all(b"h").unwrap();
    seat.until("Why");
    drop(server);
    seat.until("ANSWER,");
    seat.printed.clear();
    let _server = Server::start(&socket, Arc::new(FakeDaemon::new(3))).unwrap();
    seat.until("Plimsoll");
    seat.keyboard.write_all(b"q").unwrap();
    seat.ended();
    for signal in [Signal::TERM, Signal::HUP] {
        let mut seat = Seat::take(&socket);
        seat.until("dying");
        kill_process(Pid::from_child(&seat.child), signal).unwrap();
        seat.ended();
    }
    let mut seat = Seat::take(&socket);
    seat.until("dying");
    seat.keyboard.write_all(b"\x03").unwrap();
    seat.ended();
}

#[test]
fn without_a_terminal_it_ends_with_2_and_names_what_is_for_pipes() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("top").stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(told.contains("status --follow") && told.matches('\n').count() == 1, "{told:?}");
}
