//! What the guard saw and was told lately, as a trace: in a ring of two halves, each of which begins with what the guard
//! remembered then. So a trace replays to the same decisions wherever it begins.
//!
//! A line is written before the guard takes it in. Nothing here waits or allocates, but for the ring when it is first used, and
//! for what goes with incidents, which is there before it is needed: a page that is taken while memory is short can keep the
//! guard for seconds (0.8 to 7.4 s were seen on Linux 6.12).

use plimsoll_policy::{
    machine::{
        MachineConfig, MachineState,
        trace::{Begin, Line, VERSION},
    },
    units::{Bytes, Nanos},
};
use plimsoll_sys::process::{online_cpus, page_size};
use std::{
    borrow::Cow,
    io::{self, Write},
    mem,
};

/// Of each half. Looks every 100 ms fill it in some 15 s.
const HALF_BYTES: usize = 32 << 10;

/// So many incidents in a row have a trace; one more each time that the guard has nothing to do.
const COPIES: usize = 8;

/// The ring.
#[derive(Debug)]
pub(super) struct Recording {
    older: Vec<u8>,
    newer: Vec<u8>,
    /// Room for what goes with incidents.
    copies: Vec<Vec<u8>>,
    /// `newer` has a beginning, and the configuration in it is in force.
    has_begun: bool,
    cpus: Option<u32>,
    mem_total: Option<Bytes>,
}

/// What a half begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present<'a> {
    pub(super) at: Nanos,
    pub(super) config: &'a MachineConfig,
    pub(super) state: &'a MachineState,
}

impl Recording {
    /// An empty one.
    pub(super) const fn new() -> Self {
        Self {
            older: Vec::new(),
            newer: Vec::new(),
            copies: Vec::new(),
            has_begun: false,
            cpus: None,
            mem_total: None,
        }
    }

    /// The next line begins another half.
    pub(super) const fn begin_anew(&mut self) {
        self.has_begun = false;
    }

    /// How much memory the machine has.
    pub(super) const fn has(&mut self, mem_total: Option<Bytes>) {
        self.mem_total = mem_total;
    }

    /// Writes a line that is about to be taken in.
    pub(super) fn write(&mut self, line: &Line<'_>, present: Present<'_>) {
        if self.has_begun && push(&mut self.newer, line).is_ok() {
            return;
        }
        self.begin(present);
        if push(&mut self.newer, line).is_err() {
            // Longer than a half, which no line is: what follows does not follow from what is there.
            self.newer.clear();
            self.has_begun = false;
        }
    }

    fn begin(&mut self, present: Present<'_>) {
        let Present { at, config, state } = present;
        mem::swap(&mut self.older, &mut self.newer);
        self.newer.clear();
        for half in [&mut self.older, &mut self.newer] {
            half.reserve_exact(HALF_BYTES.saturating_sub(half.len()));
        }
        if self.copies.capacity() == 0 {
            self.copies.reserve_exact(COPIES);
            self.copies.extend((0..COPIES).map(|_| copy()));
        }
        let begin = Begin {
            version: VERSION,
            at,
            time: Some(jiff::Timestamp::now()),
            mem_total: self.mem_total,
            page_size: page_size().bytes().0,
            cpus: *self.cpus.get_or_insert_with(|| online_cpus().unwrap_or(1)),
            config: Some(Cow::Borrowed(config)),
            state: Some(Cow::Borrowed(state)),
        };
        self.has_begun = push(&mut self.newer, &Line::Begin(begin)).is_ok();
    }

    /// Has room for one incident more.
    pub(super) fn make_ready(&mut self) {
        if self.has_begun && self.copies.len() < COPIES {
            self.copies.push(copy());
        }
    }

    /// All that is remembered; `None` where so many were asked for that there is no room.
    pub(super) fn text(&mut self) -> Option<String> {
        let mut whole = self.copies.pop()?;
        whole.extend_from_slice(&self.older);
        whole.extend_from_slice(&self.newer);
        String::from_utf8(whole).ok()
    }
}

/// Room for both halves, with its pages: they were written to.
fn copy() -> Vec<u8> {
    let mut copy = vec![b'\n'; HALF_BYTES * 2];
    copy.clear();
    copy
}

/// Writes a line into the room that is left; nothing of it, where that is too little.
fn push(half: &mut Vec<u8>, line: &Line<'_>) -> io::Result<()> {
    let before = half.len();
    let mut room = Room(half);
    let written =
        serde_json::to_writer(&mut room, line).map_err(io::Error::from).and_then(|()| room.write_all(b"\n"));
    if written.is_err() {
        half.truncate(before);
    }
    written
}

/// A half that does not grow.
struct Room<'a>(&'a mut Vec<u8>);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > HALF_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
