//! Opens files. That may wait for a disk that does not answer, or for a scanner that has to permit it; what is held already is
//! captured and let go meanwhile.

use crate::{
    message::{Receiver, queue},
    offload::{Haste, Lane, Offload},
};
use plimsoll_policy::workingset::FileId;
use plimsoll_sys::workingset::{HotFile, Refusal, Way};
use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
    path::PathBuf,
};

/// Files that wait to be opened. One that does not fit is asked for again by the next plan.
const QUEUE_MAX: usize = 64;

/// A file that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: HotFile,
    pub(super) path: Option<PathBuf>,
}

/// What became of one that was to be.
#[derive(Debug)]
struct Outcome {
    file: FileId,
    ticket: u64,
    opened: Result<Opened, Refusal>,
}

type Work = Box<dyn FnOnce() -> Result<Opened, Refusal> + Send>;

/// The worker's end.
#[derive(Debug)]
pub(super) struct Opener {
    requests: Lane<Request>,
    outcomes: Receiver<Outcome>,
    /// What is waited for, by number of the request: a file that was forgotten and asked for again is another one.
    asked: BTreeMap<FileId, u64>,
    tickets: u64,
    /// Requests that nothing was heard of yet.
    out: usize,
}

struct Request {
    file: FileId,
    ticket: u64,
    work: Work,
}

impl Opener {
    /// # Errors
    /// One line: why there can be no bell.
    pub(super) fn new(offload: &Offload) -> Result<Self, String> {
        // Never full: nobody asks while so many are out.
        let (sender, outcomes) =
            queue(QUEUE_MAX).map_err(|error| format!("cannot make an eventfd: {error}"))?;
        let open = move |Request { file, ticket, work }| {
            if sender.is_heard() {
                sender.send(Outcome { file, ticket, opened: work() }).ok();
            }
        };
        let requests = offload.lane(Haste::Ordinary, QUEUE_MAX, open);
        Ok(Self { requests, outcomes, asked: BTreeMap::new(), tickets: 0, out: 0 })
    }

    /// Whether a file is being opened.
    pub(super) fn is_asked(&self, file: FileId) -> bool {
        self.asked.contains_key(&file)
    }

    /// Files that are waited for.
    pub(super) fn waiting(&self) -> usize {
        self.asked.len()
    }

    /// Whether there is room for another request.
    pub(super) const fn has_room(&self) -> bool {
        self.out < QUEUE_MAX
    }

    /// Has a file opened, if there is room.
    pub(super) fn ask(&mut self, way: Way) {
        self.ask_for(way.file(), Box::new(move || open(way)));
    }

    fn ask_for(&mut self, file: FileId, work: Work) {
        let ticket = self.tickets.saturating_add(1);
        if self.has_room() && self.requests.hand(Request { file, ticket, work }) {
            self.tickets = ticket;
            self.out = self.out.saturating_add(1);
            self.asked.insert(file, ticket);
        }
    }

    /// Rings when something was opened or refused.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.outcomes.as_fd()
    }

    /// What was opened or refused since, of what is still wanted.
    pub(super) fn take(&mut self) -> Vec<(FileId, Result<Opened, Refusal>)> {
        let mut taken = Vec::new();
        while let Ok(Outcome { file, ticket, opened }) = self.outcomes.next() {
            self.out = self.out.saturating_sub(1);
            if self.asked.get(&file) == Some(&ticket) {
                self.asked.remove(&file);
                taken.push((file, opened));
            }
        }
        taken
    }

    /// Forgets what was asked for on a device: it is gone.
    pub(super) fn forget_device(&mut self, device: u32) {
        self.asked.retain(|file, _| file.device != device);
    }
}

/// The way is given up with that: it keeps a file system in use.
fn open(way: Way) -> Result<Opened, Refusal> {
    let file = way.open()?;
    drop(way);
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).ok();
    Ok(Opened { file, path })
}

#[cfg(test)]
mod tests;
