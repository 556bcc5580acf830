//! What the worker is told, and what it shows.

use super::kill::KillFacts;
use crate::{guard::ArrangedKill, message::Sender};
use plimsoll_sys::bpf::OomKills;
use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool};

/// What the worker is told.
#[derive(Debug)]
pub(super) enum Message {
    /// The program is there.
    Equip(Box<OomKills>),
    /// The last defence has seen that the kernel took somebody.
    ArrangedKill(ArrangedKill),
    /// Another killer took somebody.
    Foreign(Box<KillFacts>),
}

/// What is in force, in words, for `status`.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Victims are told by the kernel.
    pub(super) told: AtomicBool,
    pub(super) kernel: Mutex<String>,
    pub(super) programs: Mutex<String>,
    /// The guard ends.
    pub(super) stopping: AtomicBool,
}

impl Shared {
    pub(super) fn set(place: &Mutex<String>, words: String) {
        *place.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(super) fn get(place: &Mutex<String>) -> String {
        place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How to reach the worker; clone it for each place that has something to tell it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(super) messages: Sender<Message>,
    pub(super) shared: Arc<Shared>,
}

impl Link {
    /// Hands over the program, once it is loaded.
    pub(crate) fn equip(&self, kills: OomKills) {
        self.messages.send(Message::Equip(Box::new(kills))).ok();
    }

    /// Says why there is no program.
    pub(crate) fn cannot(&self, why: &str) {
        Shared::set(&self.shared.kernel, format!("not heard of: {why}"));
    }

    /// Tells of what another killer did. Waits for room.
    pub(super) fn foreign(&self, facts: KillFacts) {
        self.messages.send(Message::Foreign(Box::new(facts))).ok();
    }

    pub(super) fn say_programs(&self, words: String) {
        Shared::set(&self.shared.programs, words);
    }
}
