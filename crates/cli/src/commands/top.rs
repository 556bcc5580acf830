//! `plimsoll top`: a live view in the terminal.
//!
//! [`state`] is what is shown and which key does what, [`view`] is the frame of a state: both are pure. This file waits for
//! answers, keys and signals in one place, and draws when one came: nothing is drawn, or asked, in between.

mod ask;
mod keys;
mod screen;
mod state;
mod view;

use crate::{
    commands::status::interval,
    exit::{Ending, Exit, Failure},
    feed::Feed,
    interrupt::Interrupt,
};
use ask::{Asker, News, Wanted};
use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use keys::{Input, Key};
use nix::sys::signal::Signal;
use plimsoll_api::client::{CallError, Client};
use screen::Screen;
use state::State;
use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    sync::mpsc::{self, Receiver, Sender, SyncSender},
    thread,
    time::Duration,
};
use view::Ink;

/// Keys and answers that wait to be taken; who brings more waits.
const WAITING: usize = 16;

/// How often it looks.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The seconds from one look to the next.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,
}

/// What the loop waits for.
enum Event {
    News(Box<Result<News, CallError>>),
    Input(Input),
    Signal(Signal),
}

/// Shows, until it is told to leave.
pub(crate) fn run(arguments: &Arguments, socket: &Path, out: &mut dyn Write) -> Ending {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::usage(
            "top needs a terminal for its input and its output; for pipes use 'plimsoll status --follow'",
        ));
    }
    // Before there is another thread: all of them hold the signals back.
    let interrupt = Interrupt::and(&[Signal::SIGTSTP, Signal::SIGCONT])?;
    let (events, arriving) = mpsc::sync_channel(WAITING);
    let (wanting, wanted) = mpsc::channel();
    let state = State::new(TimeZone::system(), Timestamp::now());
    let first = state.wanted();
    let mut screen = Screen::enter(out)?;
    listen(interrupt, &events);
    let mut asker = Asker::new(arguments.interval);
    Feed { socket: socket.to_owned(), interval: arguments.interval, first, wanted }.start(
        move |client: &mut Client, wanted: &Wanted| asker.ask(client, wanted),
        move |news| events.send(Event::News(Box::new(news))).is_ok(),
    );
    show(&mut screen, state, &arriving, &wanting)?;
    Ok(Exit::Done)
}

/// Has signals and keys told, each from a thread that waits for them.
fn listen(interrupt: Interrupt, events: &SyncSender<Event>) {
    let signals = events.clone();
    interrupt.watch(move |signal| signals.send(Event::Signal(signal)).is_ok());
    let keys = events.clone();
    thread::spawn(move || while keys.send(Event::Input(keys::next())).is_ok() {});
}

/// Draws, waits, and does what came, over and over.
fn show(
    screen: &mut Screen<'_>,
    mut state: State,
    arriving: &Receiver<Event>,
    wanting: &Sender<Wanted>,
) -> Result<(), Failure> {
    let ink = Ink::of_terminal();
    let mut asked = state.wanted();
    loop {
        screen.draw(|frame| view::draw(frame, &state, ink))?;
        match arriving.recv() {
            Ok(Event::News(news)) => state = state.heard(*news, Timestamp::now()),
            Ok(Event::Input(Input::Key(Key::Suspend)) | Event::Signal(Signal::SIGTSTP)) => {
                screen.suspend()?
            }
            Ok(Event::Input(Input::Key(key))) => state = state.after(key),
            // It may come from a shell that set the terminal otherwise.
            Ok(Event::Signal(Signal::SIGCONT)) => screen.resume()?,
            Ok(Event::Input(Input::Other)) => {}
            Ok(Event::Input(Input::Gone) | Event::Signal(_)) | Err(_) => return Ok(()),
        }
        if state.is_left() {
            return Ok(());
        }
        let wanted = state.wanted();
        if wanted != asked && wanting.send(wanted.clone()).is_ok() {
            asked = wanted;
        }
    }
}
