//! The terminal: taken over, and given back whatever happens.

use crate::exit::Failure;
use nix::{
    sys::signal::{SigSet, Signal, raise},
    unistd::write,
};
use ratatui::{
    Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        Command as _, cursor, execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use std::{
    io::{self, Write},
    panic,
};

/// The terminal in raw mode, with a screen of ours. It is given back when this is dropped, and before a panic is told.
pub(super) struct Screen<'a> {
    terminal: Terminal<CrosstermBackend<&'a mut dyn Write>>,
}

impl<'a> Screen<'a> {
    /// Takes the terminal over.
    pub(super) fn enter(out: &'a mut dyn Write) -> Result<Self, Failure> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            restore();
            before(panicked);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(out)).map_err(failed)?;
        let mut screen = Self { terminal };
        screen.take()?;
        Ok(screen)
    }

    fn take(&mut self) -> Result<(), Failure> {
        enable_raw_mode().map_err(failed)?;
        execute!(self.terminal.backend_mut(), EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        // What is on it is not known: it is cleared, and drawn whole. Terminal::clear would ask the terminal where its
        // cursor is, and wait for the answer.
        let size = self.terminal.size().map_err(failed)?;
        self.terminal.resize(size.into()).map_err(failed)
    }

    /// Draws a frame: what differs from the last one is written.
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        self.terminal.draw(frame).map(drop).map_err(failed)
    }

    /// Gives it back and stops, as Ctrl-Z does elsewhere, until somebody continues us.
    pub(super) fn suspend(&mut self) -> Result<(), Failure> {
        restore();
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTSTP);
        // To this thread alone, or the one that waits for signals could take it. Where nobody could continue us, the kernel
        // lets it pass, and we go on.
        let stopped = stop.thread_unblock().and_then(|()| raise(Signal::SIGTSTP));
        let again = stopped.and_then(|()| stop.thread_block());
        again.map_err(|errno| Failure::failed(format_args!("cannot stop: {errno}")))?;
        self.take()
    }

    /// Takes it over once more, as if nothing were known of it.
    pub(super) fn resume(&mut self) -> Result<(), Failure> {
        restore();
        self.take()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. It writes by itself: the thread that draws holds the lock of standard output.
fn restore() {
    let mut text = String::new();
    let made = LeaveAlternateScreen.write_ansi(&mut text).and_then(|()| cursor::Show.write_ansi(&mut text));
    if made.is_ok() {
        // Nobody is left to tell when this fails, here and below: the terminal is gone.
        write(io::stdout(), text.as_bytes()).ok();
    }
    disable_raw_mode().ok();
}

fn failed(error: io::Error) -> Failure {
    Failure::failed(format_args!(
        "cannot use the terminal: {error}; for pipes use 'plimsoll status --follow'"
    ))
}
