//! Command lines for rules that ask for them: a thread of its own waits for those who read them.

use crate::{
    guard::{Caller, Program, Request},
    patient::PatientReaders,
};
use plimsoll_policy::victim::VictimId;
use plimsoll_sys::process::ProcRoot;
use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

/// Whose line is asked for, and what it ran then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) id: VictimId,
    pub(crate) program: Program,
}

/// What was read. The line is of this program or of a later one: asked for first, read afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) id: VictimId,
    pub(crate) program: Program,
    pub(crate) text: String,
}

/// Has command lines read, one list at a time.
#[derive(Debug)]
pub(crate) struct CommandLines {
    requests: SyncSender<Vec<Wanted>>,
}

/// A line for each process that has one.
pub(crate) type Found = Vec<Line>;

impl CommandLines {
    /// Starts the thread; it sleeps until it is asked, and tells `caller` what it found.
    pub(crate) fn start(mut proc: ProcRoot, readers: PatientReaders, caller: Caller) -> io::Result<Self> {
        let (requests, queue): (_, Receiver<Vec<Wanted>>) = sync_channel(1);
        thread::Builder::new().name("cmdlines".into()).spawn(move || {
            for wanted in queue {
                let line = |Wanted { id, program }| {
                    let user = proc.process(id.pid).ok()?.uid;
                    Some(Line { id, program, text: readers.command_line(id, user)? })
                };
                let found = wanted.into_iter().filter_map(line).collect();
                caller.deliver(Request::CommandLines(found));
            }
        })?;
        Ok(Self { requests })
    }

    /// One that answers nothing.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self { requests: sync_channel(0).0 }
    }

    /// Asks for the lines of these; false while others are being read. Never waits.
    pub(crate) fn ask(&self, wanted: Vec<Wanted>) -> bool {
        self.requests.try_send(wanted).is_ok()
    }
}
