//! Settings of the kernel that are changed for a while, and put back after it: how long the multi-generational LRU keeps what
//! was used last and what keeps the kernel from swapping, while the working set is protected; how much kcompactd does ahead of
//! need, while large blocks run out.

mod record;

use crate::{
    journal::{Journal, Notices},
    undo::Leftovers,
};
use plimsoll_sys::workingset::{
    KnobError, LruGen, PutBack, SwapHold, SwapKnobs, Undo, plan_knob, read_knob, write_knob,
};
use record::Record;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// How long the multi-generational LRU keeps what was used last, in milliseconds, where that is its to keep and nobody has set
/// it: a program that does something every second stays. Where that cannot be kept the kernel's OOM killer comes, before the
/// machine stands still; with more it would come when nothing is wrong.
const MIN_TTL_MS: u64 = 1000;

/// Its name, which no other setting changed here has.
const MIN_TTL: &str = "min_ttl_ms";

/// How much kcompactd does ahead of need (since 5.9): it works on until no more is scattered than this says, in percent, and
/// looks at it after each pageblock (`__compact_finished`, `fragmentation_score_wmark`, mm/compaction.c, 6.1 to 7.2).
/// Who writes it has it look at once (since 5.15).
const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";

/// It works for as long as there is anything to do.
const MOST: &str = "100";

/// Where they are.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) lru_gen: Option<LruGen>,
    pub(crate) swap: SwapKnobs,
    pub(crate) proactiveness: PathBuf,
}

impl Places {
    /// Of this machine.
    fn find() -> Self {
        Self { lru_gen: LruGen::find(), swap: SwapKnobs::find(), proactiveness: PROACTIVENESS.into() }
    }
}

/// The settings, and the record of what was changed.
#[derive(Debug)]
pub(crate) struct Knobs {
    places: Places,
    record: Record,
    notices: Notices,
    /// Protection set it once, and does not again: who changes it after that means it.
    lru_gen_done: bool,
    means: Option<SwapHold>,
    closed: bool,
}

/// Puts back what a daemon with this state folder had set.
pub(crate) fn undo_leftovers(state: &Path) -> Leftovers {
    let (journal, said) = Journal::gather();
    let mut knobs = Knobs::at(state, Places::find(), journal);
    let any = !knobs.record.is_empty();
    knobs.put_all_back();
    match (knobs.record.is_empty(), said.try_iter().last()) {
        (true, None) if any => Leftovers::PutBack,
        (true, None) => Leftovers::Nothing,
        (_, why) => Leftovers::Some(why.unwrap_or_default()),
    }
}

impl Knobs {
    /// With what an earlier daemon has left put back.
    pub(crate) fn open(state: &Path, journal: Journal) -> Self {
        let mut knobs = Self::at(state, Places::find(), journal);
        knobs.put_all_back();
        knobs
    }

    fn at(state: &Path, places: Places, journal: Journal) -> Self {
        let mut notices = Notices::new(journal);
        let (record, read) = Record::load(state);
        if let Err(error) = read {
            notices.say(format_args!(
                "the settings of the kernel from before they were changed are not known: {error}"
            ));
        }
        Self { places, record, notices, lru_gen_done: false, means: None, closed: false }
    }

    /// Has the multi-generational LRU keep what was used last, where it is in use and nobody has said for how long.
    pub(crate) fn keep_last_used(&mut self) {
        let Some(lru_gen) = self.places.lru_gen.clone().filter(|_| !self.lru_gen_done) else { return };
        let plan = || match lru_gen.is_enabled()? {
            true => lru_gen.plan_min_ttl_ms(MIN_TTL_MS).map(Some),
            false => Ok(None),
        };
        match plan() {
            // It may be switched on later.
            Ok(None) => {}
            Ok(Some(change)) => {
                // Once: whether it could be is in the record.
                self.lru_gen_done = true;
                let _made = self.make(change.into_iter().collect());
            }
            Err(error) => {
                self.lru_gen_done = true;
                self.notices.once("working set", &error);
            }
        }
    }

    /// Says so where somebody has it keep what was used last while files are locked: the kernel's OOM killer may come for
    /// that while nothing is short ([`plimsoll_policy::workingset::Tunables::keeps_last_used`]).
    pub(crate) fn warn_of_last_used(&mut self) {
        let Some(lru_gen) = self.places.lru_gen.clone() else { return };
        // What cannot be read is told where it is to be set.
        let (Ok(true), Ok(milliseconds @ 1..)) = (lru_gen.is_enabled(), lru_gen.min_ttl_ms()) else { return };
        self.notices.once(
            "working set",
            &format_args!(
                "min_ttl_ms of the multi-generational LRU is {milliseconds}: while files are locked the kernel's OOM killer \
                 may come for it though there is swap; 0 is safe"
            ),
        );
    }

    /// Has it keep what it kept before.
    pub(crate) fn forget_last_used(&mut self) {
        self.lru_gen_done = false;
        self.put_back(is_min_ttl);
    }

    /// For how long it was set to, in milliseconds; `None`: it was not.
    pub(crate) fn min_ttl_ms(&self) -> Option<u64> {
        self.record.undos().iter().any(is_min_ttl).then_some(MIN_TTL_MS)
    }

    /// Holds swapping back, also of cgroups that came since the last call.
    pub(crate) fn hold_swap(&mut self) {
        match self.places.swap.plan() {
            // What cannot be set holds nothing back; what was set before does.
            Ok((means, changes)) => {
                if self.make(changes) {
                    self.means = Some(means);
                }
            }
            Err(error) => self.notices.once("anonymous memory", &error),
        }
    }

    /// By what swapping is held back; `None`: it is not.
    pub(crate) const fn means(&self) -> Option<SwapHold> {
        self.means
    }

    /// Lets the kernel swap again.
    pub(crate) fn let_swap(&mut self) {
        self.means = None;
        self.put_back(|undo| !is_min_ttl(undo) && !is_proactiveness(undo));
    }

    /// Has kcompactd work until there is little left that it could do.
    ///
    /// # Errors
    /// One line: this kernel has no such setting, or it cannot be changed.
    pub(crate) fn compact(&mut self) -> Result<(), String> {
        let change = plan_knob(&self.places.proactiveness, MOST).map_err(|error| error.to_string())?;
        if self.make(change.into_iter().collect()) {
            Ok(())
        } else {
            Err(format!("{} is not changed: see above", self.places.proactiveness.display()))
        }
    }

    /// Has it begin once more, should it have come to an end: it does at each write, and by itself only half a minute after a
    /// round that freed no whole pageblock (kcompactd, mm/compaction.c, 6.1 to 7.2). What somebody else has set stays.
    pub(crate) fn go_on_compacting(&self) {
        let path = &self.places.proactiveness;
        if !self.closed && read_knob(path).is_ok_and(|value| *value == *MOST) {
            // Where that fails, it ends as it would have.
            let _written = write_knob(path, MOST);
        }
    }

    /// Has it do what it did before.
    pub(crate) fn stop_compacting(&mut self) {
        self.put_back(is_proactiveness);
    }

    /// Puts back what the protection of the working set had set. What is begun after that is another protection.
    pub(crate) fn end_protection(&mut self) {
        self.means = None;
        self.lru_gen_done = false;
        self.put_back(|undo| !is_proactiveness(undo));
    }

    /// Puts everything back, for good: nothing is set after it.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.put_all_back();
    }

    /// Puts everything back.
    pub(crate) fn put_all_back(&mut self) {
        self.means = None;
        self.lru_gen_done = false;
        self.put_back(|_| true);
    }

    /// Writes down what is about to be changed, and changes it. Whether any of it is, or was so before.
    fn make(&mut self, changes: Vec<Undo>) -> bool {
        if changes.is_empty() {
            return true;
        }
        if self.closed {
            return false;
        }
        // Where somebody has changed what was changed here before, theirs is what is put back from now on.
        if let Err(error) = self.record.put(&changes) {
            self.notices.once("settings of the kernel", &error);
            return false;
        }
        let mut made = Vec::new();
        for mut change in changes {
            match change.apply() {
                Ok(()) => made.push(change),
                // Nothing was changed, or only reading it back failed: that is found out when it is put back.
                Err(error) => self.say(&error),
            }
        }
        // As the kernel has them now, which is what is looked for when they are put back.
        if let Err(error) = self.record.put(&made) {
            self.notices.once("settings of the kernel", &error);
        }
        !made.is_empty()
    }

    fn put_back(&mut self, which: impl Fn(&Undo) -> bool) {
        let undos: Vec<Undo> = self.record.undos().iter().filter(|undo| which(undo)).cloned().collect();
        if undos.is_empty() {
            return;
        }
        for undo in undos {
            match undo.put_back() {
                Ok(PutBack::Done | PutBack::NotOurs | PutBack::Gone) => self.record.forget(undo.path()),
                Err(error) => self.say(&error),
            }
        }
        if let Err(error) = self.record.save() {
            self.notices.once("settings of the kernel", &error);
        }
    }

    fn say(&mut self, error: &KnobError) {
        // A cgroup that is gone has nothing to be put back.
        if !error.is_absent() {
            self.notices.once("settings of the kernel", error);
        }
    }
}

fn is_proactiveness(undo: &Undo) -> bool {
    undo.path().file_name() == Path::new(PROACTIVENESS).file_name()
}

fn is_min_ttl(undo: &Undo) -> bool {
    undo.path().file_name() == Some(OsStr::new(MIN_TTL))
}

#[cfg(test)]
mod tests;
