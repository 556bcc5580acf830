//! Which files must not be held, and until when that is believed.

use super::{Barred, FileId};
use crate::units::Nanos;
use alloc::{collections::BTreeMap, vec::Vec};

/// How many are remembered. When there are more, those go first that end first: they are found out anew.
const BARS_MAX: usize = 4096;

/// How long what the kernel side saw is believed when the file is not seen again.
const SEEN: Nanos = Nanos(60_000_000_000);

#[derive(Debug, Clone, Copy)]
struct Bar {
    why: Barred,
    until: Nanos,
    /// When the kernel side saw it; `None`: somebody tried to hold the file and could not.
    seen: Option<Nanos>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Bars(BTreeMap<FileId, Bar>);

impl Bars {
    /// What the kernel side saw of a file just now. A look that found nothing ends an earlier one that found
    /// something, not one of the same moment: a file is told in pieces, each as it was when that piece was used.
    pub(super) fn look(&mut self, file: FileId, found: Option<Barred>, now: Nanos) {
        match found {
            Some(why) => self.put(file, Bar { why, until: now.saturating_add(SEEN), seen: Some(now) }),
            None => {
                if self.0.get(&file).is_some_and(|bar| bar.seen.is_some_and(|seen| seen < now)) {
                    self.0.remove(&file);
                }
            }
        }
    }

    /// What whoever tried to hold it found out.
    pub(super) fn bar(&mut self, file: FileId, why: Barred, until: Nanos) {
        self.put(file, Bar { why, until, seen: None });
    }

    pub(super) fn get(&self, file: FileId, now: Nanos) -> Option<Barred> {
        self.0.get(&file).filter(|bar| lasts(bar.until, now)).map(|bar| bar.why)
    }

    pub(super) fn forget_device(&mut self, device: u32) {
        self.0.retain(|file, _| file.device != device);
    }

    /// How many files are barred, by reason; reasons without any are left out.
    pub(super) fn counts(&self, now: Nanos) -> Vec<(Barred, u64)> {
        let mut counts = BTreeMap::<Barred, u64>::new();
        for bar in self.0.values().filter(|bar| lasts(bar.until, now)) {
            let count = counts.entry(bar.why).or_default();
            *count = count.saturating_add(1);
        }
        counts.into_iter().collect()
    }

    fn put(&mut self, file: FileId, bar: Bar) {
        if self.0.len() >= BARS_MAX && !self.0.contains_key(&file) {
            self.make_room();
        }
        self.0.insert(file, bar);
    }

    /// An eighth goes at a time, so that this is rare.
    fn make_room(&mut self) {
        let mut ends: Vec<Nanos> = self.0.values().map(|bar| bar.until).collect();
        let (_, &mut last, _) = ends.select_nth_unstable(BARS_MAX >> 3);
        let mut going = BARS_MAX >> 3;
        self.0.retain(|_, bar| {
            let goes = going > 0 && bar.until <= last;
            going = going.saturating_sub(usize::from(goes));
            !goes
        });
    }
}

/// Whether `until` has not come yet.
pub(super) const fn lasts(until: Nanos, now: Nanos) -> bool {
    until.0 > now.0
}
