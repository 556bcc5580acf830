//! Command lines for rules that ask for them: read by a thread of its own, because the kernel waits for the process's address
//! space to read one, and a stuck process holds that for ever.
//!
//! Pages of files are not read for it since Linux 4.17 (commit 7f7ccc2ccc2e), so arguments that lie in a file of a FUSE server
//! are no line; but whoever has the address space locked for writing, as in the middle of an `mmap`, is waited for. So a
//! thread that does not come back is left to its process, and another takes its place.

use crate::guard::{Caller, Program, Request};
use plimsoll_policy::victim::VictimId;
use plimsoll_sys::process::{HeldFolder, ProcRoot};
use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long one line may take: reading one takes microseconds, or, where it was swapped out, as long as the disk does.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threads that are left to stuck processes at most. When so many are, no line is read until one comes back.
const LEFT_MAX: usize = 4;

/// Stuck processes that are remembered, so that no second thread is lost to one.
const STUCK_MAX: usize = 64;

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

/// Reads one line, and may never come back.
type Read = dyn FnMut(VictimId) -> Option<String> + Send;

/// Makes one that reads, for each thread anew.
type MakeRead = dyn Fn() -> Option<Box<Read>> + Send;

impl CommandLines {
    /// Starts the thread; it sleeps until it is asked, and tells `caller` what it found.
    pub(crate) fn start(caller: Caller) -> io::Result<Self> {
        let (requests, queue): (_, Receiver<Vec<Wanted>>) = sync_channel(1);
        let make = move || {
            let mut proc = ProcRoot::open(Path::new("/proc")).ok()?;
            let read: Box<Read> = Box::new(move |id| read(&mut proc, id));
            Some(read)
        };
        let mut readers = Readers::new(Box::new(make), PATIENCE);
        thread::Builder::new().name("cmdlines".into()).spawn(move || {
            for wanted in queue {
                if caller.send(Request::CommandLines(readers.lines(wanted))).is_err() {
                    // The guard is busy: it asks again.
                }
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

/// The thread that reads now, and those that were left to stuck processes.
struct Readers {
    make: Box<MakeRead>,
    patience: Duration,
    reader: Option<Reader>,
    /// Held by each thread as long as it lives.
    alive: Arc<()>,
    stuck: VecDeque<VictimId>,
}

struct Reader {
    ids: SyncSender<VictimId>,
    texts: Receiver<Option<String>>,
}

impl Readers {
    fn new(make: Box<MakeRead>, patience: Duration) -> Self {
        Self { make, patience, reader: None, alive: Arc::new(()), stuck: VecDeque::new() }
    }

    fn lines(&mut self, wanted: Vec<Wanted>) -> Found {
        let line = |Wanted { id, program }| Some(Line { id, program, text: self.line(id)? });
        wanted.into_iter().filter_map(line).collect()
    }

    fn line(&mut self, id: VictimId) -> Option<String> {
        if self.stuck.contains(&id) {
            return None;
        }
        if self.reader.is_none() {
            self.reader = self.another();
        }
        let reader = self.reader.as_ref()?;
        if reader.ids.send(id).is_err() {
            self.reader = None;
            return None;
        }
        match reader.texts.recv_timeout(self.patience) {
            Ok(text) => text,
            Err(RecvTimeoutError::Timeout) => {
                self.reader = None;
                if self.stuck.len() >= STUCK_MAX {
                    self.stuck.pop_front();
                }
                self.stuck.push_back(id);
                None
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.reader = None;
                None
            }
        }
    }

    /// A thread that reads until it finds itself left.
    fn another(&self) -> Option<Reader> {
        if Arc::strong_count(&self.alive) > LEFT_MAX {
            return None;
        }
        let mut read = (self.make)()?;
        let alive = Arc::clone(&self.alive);
        let (ids, queue) = sync_channel::<VictimId>(1);
        let (answers, texts) = sync_channel(1);
        let reading = move || {
            for id in queue {
                if answers.send(read(id)).is_err() {
                    break;
                }
            }
            drop(alive);
        };
        thread::Builder::new().name("cmdline".into()).spawn(reading).ok()?;
        Some(Reader { ids, texts })
    }
}

/// The line of the process that is held: its number cannot have changed hands between two looks at its start.
fn read(proc: &mut ProcRoot, id: VictimId) -> Option<String> {
    let held = HeldFolder::open(proc, id).ok()?;
    let line = proc.cmdline(id.pid).ok()??;
    held.oom_score_adj().ok()?;
    Some(line)
}

#[cfg(test)]
mod tests;
