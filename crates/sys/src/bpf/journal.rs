//! What the daemon is about to do and has done, where its death does not reach it and no disk is waited for: the pages of a
//! pinned map, written through a mapping.
//!
//! Each slot holds one note. A note that was let go of keeps its bytes until the slot is taken again, oldest first.

use super::{error::BpfError, pins::Pins, shared::Shared};
use libbpf_rs::{MapCore as _, MapHandle, MapType, libbpf_sys};
use std::{
    fs, io,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// As many as the history's queue holds, and more than the ring buffer: what piled up while no daemon was there is taken
/// in at once.
const SLOTS: u32 = 1024;
const SLOT_BYTES: u32 = 768;
/// State and length.
const HEADER_BYTES: usize = 16;

/// The longest note.
pub const NOTE_MAX_BYTES: usize = SLOT_BYTES as usize - HEADER_BYTES;

/// What the first word of a slot says.
const FREE: u64 = 0;
const WRITING: u64 = 1;
const INTENDED: u64 = 2;
const DONE: u64 = 3;
const LET_GO: u64 = 4;

/// How far a note has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// About to be done. Let go of, nothing is left of it.
    Intended,
    /// Done, and not in safer hands yet.
    Done,
    /// Done, and let go of.
    LetGo,
}

#[derive(Debug)]
struct Memory {
    shared: Shared,
    next: AtomicUsize,
}

impl Memory {
    fn state(&self, slot: usize) -> Option<&AtomicU64> {
        self.shared.word(slot.checked_mul(SLOT_BYTES as usize)?)
    }
}

/// A note in the journal; dropped, it is let go of.
#[derive(Debug)]
pub struct Note {
    memory: Arc<Memory>,
    slot: usize,
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(state) = self.memory.state(self.slot) {
            let done = state.load(Ordering::Relaxed) == DONE;
            state.store(if done { LET_GO } else { FREE }, Ordering::Release);
        }
    }
}

/// What a slot held when the journal was opened.
#[derive(Debug)]
pub struct Found {
    /// How far it had come.
    pub standing: Standing,
    /// What was written.
    pub bytes: Vec<u8>,
    /// The note itself, unless it was let go of.
    pub note: Option<Note>,
}

/// The journal, to be written; clone it for each thread that does.
#[derive(Debug, Clone)]
pub struct Journal {
    memory: Arc<Memory>,
}

fn pin_error(path: &Path, operation: &'static str, error: &dyn std::fmt::Display) -> BpfError {
    BpfError::Pin { path: path.to_path_buf(), operation, cause: error.to_string() }
}

/// The pinned map, if it is one that this version reads.
fn pinned(path: &Path) -> Option<MapHandle> {
    let map = MapHandle::from_pinned_path(path).ok()?;
    (map.map_type() == MapType::Array && map.value_size() == SLOT_BYTES && map.max_entries() == SLOTS)
        .then_some(map)
}

fn create(path: &Path) -> Result<MapHandle, BpfError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(pin_error(path, "remove", &error));
        }
        Ok(()) | Err(_) => {}
    }
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let mut map = MapHandle::create(MapType::Array, Some("plimsoll_notes"), 4, SLOT_BYTES, SLOTS, &options)
        .map_err(|error| pin_error(path, "create", &error))?;
    map.pin(path).map_err(|error| pin_error(path, "pin", &error))?;
    Ok(map)
}

impl Journal {
    /// Opens the journal beside the pins, or makes an empty one; what an earlier daemon left in it comes along, in no
    /// order. One that another version made otherwise is begun anew.
    ///
    /// # Errors
    /// [`BpfError::Pin`] when it can be neither opened nor made.
    pub fn open(pins: &Pins) -> Result<(Self, Vec<Found>), BpfError> {
        let path = pins.journal();
        let map = pinned(&path).map_or_else(|| create(&path), Ok)?;
        let length = (SLOTS as usize).saturating_mul(SLOT_BYTES as usize);
        let shared = Shared::map(map.as_fd(), 0, length, true)
            .map_err(|error| pin_error(&path, "map into memory", &error))?;
        let memory = Arc::new(Memory { shared, next: AtomicUsize::new(0) });
        let found = (0..SLOTS as usize).filter_map(|slot| read(&memory, slot)).collect();
        Ok((Self { memory }, found))
    }

    /// Writes a note of what is done, or else intended; allocates nothing and waits for nothing. `None`: it is too long,
    /// or there is no room.
    #[must_use]
    pub fn note(&self, done: bool, bytes: &[u8]) -> Option<Note> {
        if bytes.len() > NOTE_MAX_BYTES {
            return None;
        }
        for _ in 0..SLOTS {
            let slot = self.memory.next.fetch_add(1, Ordering::Relaxed) % SLOTS as usize;
            let state = self.memory.state(slot)?;
            let free = state.load(Ordering::Relaxed);
            if !matches!(free, FREE | LET_GO)
                || state.compare_exchange(free, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            let note = Note { memory: Arc::clone(&self.memory), slot };
            let start = slot.checked_mul(SLOT_BYTES as usize)?;
            let length = self.memory.shared.word(start.checked_add(8)?)?;
            self.memory.shared.write(start.checked_add(HEADER_BYTES)?, bytes).then_some(())?;
            length.store(bytes.len() as u64, Ordering::Release);
            state.store(if done { DONE } else { INTENDED }, Ordering::Release);
            return Some(note);
        }
        None
    }
}

fn read(memory: &Arc<Memory>, slot: usize) -> Option<Found> {
    let start = slot.checked_mul(SLOT_BYTES as usize)?;
    let state = memory.state(slot)?;
    let standing = match state.load(Ordering::Acquire) {
        INTENDED => Standing::Intended,
        DONE => Standing::Done,
        LET_GO => Standing::LetGo,
        FREE => return None,
        // Its writer died over it.
        _ => {
            state.store(FREE, Ordering::Release);
            return None;
        }
    };
    let length = usize::try_from(memory.shared.word(start.checked_add(8)?)?.load(Ordering::Acquire)).ok()?;
    let note = (standing != Standing::LetGo).then(|| Note { memory: Arc::clone(memory), slot });
    if length == 0 || length > NOTE_MAX_BYTES {
        return None;
    }
    let mut bytes = vec![0; length];
    memory.shared.read(start.checked_add(HEADER_BYTES)?, &mut bytes).then_some(())?;
    Some(Found { standing, bytes, note })
}
