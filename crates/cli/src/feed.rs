//! News of the daemon for a command that goes on until it is stopped.
//!
//! The daemon is asked in a thread of its own: one that answers late, or not at all, holds up neither keys nor signals.

use plimsoll_api::client::{CallError, Client};
use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Asks at once, whenever something else is wanted, and else once in an interval; one connection is kept as long as it
/// lasts.
#[derive(Debug)]
pub(crate) struct Feed<W> {
    /// Where the daemon serves.
    pub(crate) socket: PathBuf,
    /// From an answer to the next question.
    pub(crate) interval: Duration,
    /// What is asked for first.
    pub(crate) first: W,
    /// What is asked for from then on. The feed ends when nobody can send any more.
    pub(crate) wanted: Receiver<W>,
}

impl<W: Send + 'static> Feed<W> {
    /// Starts to ask. `tell` takes each answer, and says whether there is still somebody for the next.
    pub(crate) fn start<T>(
        self,
        mut ask: impl FnMut(&mut Client, &W) -> Result<T, CallError> + Send + 'static,
        mut tell: impl FnMut(Result<T, CallError>) -> bool + Send + 'static,
    ) {
        let Self { socket, interval, mut first, wanted } = self;
        let mut line = Line { socket, client: None };
        thread::spawn(move || {
            while tell(line.ask(|client| ask(client, &first))) {
                match wanted.recv_timeout(interval) {
                    // What was wanted in between is wanted no more.
                    Ok(next) => first = wanted.try_iter().last().unwrap_or(next),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
    }
}

/// The connection, where there is one.
#[derive(Debug)]
struct Line {
    socket: PathBuf,
    client: Option<Client>,
}

impl Line {
    /// One question. A connection that broke since the last is made anew: the daemon may have been started again.
    fn ask<T>(&mut self, mut ask: impl FnMut(&mut Client) -> Result<T, CallError>) -> Result<T, CallError> {
        if let Some(mut client) = self.client.take() {
            match ask(&mut client) {
                Err(CallError::NoAnswer { .. }) => {}
                answer => {
                    self.client = Some(client);
                    return answer;
                }
            }
        }
        let mut client = Client::connect(&self.socket)?;
        let answer = ask(&mut client);
        if !matches!(answer, Err(CallError::NoAnswer { .. })) {
            self.client = Some(client);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
