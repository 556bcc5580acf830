//! `memory.max` of the slices of users with a line: set through systemd, watched, put back.

use super::{
    messages::{ArrangedKill, LineFacts},
    record::{Record, Seen, SliceEntry},
    systemctl::Systemd,
};
use plimsoll_policy::{
    account::Action,
    last_defence::{
        Headroom, MemoryMaxState, Needs, memory_max,
        slice::{Max, Ours, Present, Step, Wanted, plan},
    },
    reason::Reason,
    units::{Bytes, Pages, Uid},
    victim::VictimId,
};
use plimsoll_sys::slice::{SliceEvents, UserSlice};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

/// systemd answers before it has written to the kernel; this is longer than that takes.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(1);

/// After a call that failed, systemd is left alone for so long.
const PAUSE: Duration = Duration::from_secs(30);

/// One incident for each kill, and no more than this many for one look: a fork storm in a slice is one story.
const DEEDS_MAX: u64 = 8;

/// A slice that is listened to.
#[derive(Debug)]
struct Watched {
    events: SliceEvents,
    seen: Seen,
}

/// All slices that we set.
#[derive(Debug)]
pub(super) struct Slices {
    systemd: Systemd,
    mem_total: Bytes,
    watched: BTreeMap<Uid, Watched>,
    /// Until then systemd is not asked again.
    paused: Option<Instant>,
}

impl Slices {
    pub(super) fn new(systemd: Systemd, mem_total: Bytes) -> Self {
        Self { systemd, mem_total, watched: BTreeMap::new(), paused: None }
    }

    /// What happens to the slices; an exceptional condition on one of these.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.values().map(|watched| watched.events.as_fd())
    }

    pub(super) fn is_watched(&self, uid: Uid) -> bool {
        self.watched.contains_key(&uid)
    }

    pub(super) fn count(record: &Record) -> usize {
        record.slices.iter().filter(|one| matches!(one.ours, Ours::Set { .. })).count()
    }

    /// Whether `memory.max` can be set now.
    pub(super) fn state(&self) -> MemoryMaxState {
        if self.is_paused() { MemoryMaxState::NoAnswer } else { self.systemd.probe() }
    }

    fn is_paused(&self) -> bool {
        self.paused.is_some_and(|until| Instant::now() < until)
    }

    /// Brings one user's slice to what the line asks for; `None`: there is no line (any more).
    pub(super) fn apply(&mut self, uid: Uid, line: Option<(&LineFacts, Headroom)>, record: &mut Record) {
        let known = record.slice(uid).copied();
        if (line.is_none() && known.is_none()) || self.state() != MemoryMaxState::Possible {
            return;
        }
        if let Err(error) = self.try_apply(uid, line, known, record) {
            self.paused = Instant::now().checked_add(PAUSE);
            record.notices.once("last defence", &error);
        }
    }

    fn try_apply(
        &mut self,
        uid: Uid,
        line: Option<(&LineFacts, Headroom)>,
        known: Option<SliceEntry>,
        record: &mut Record,
    ) -> Result<(), String> {
        let slice = self.systemd.slices().and_then(|slices| slices.slice(uid));
        // Without a slice there is nothing to defend; what was set stays until it comes back, or the line goes.
        if slice.is_none() && (known.is_none() || line.is_some()) {
            self.watched.remove(&uid);
            return Ok(());
        }
        let in_force =
            slice.as_ref().map(UserSlice::memory_max).transpose().map_err(|error| error.to_string())?;
        let wanted = match line {
            Some(line) => self.wanted(line, known, slice.as_ref())?,
            None => None,
        };
        if is_as_wanted(known, in_force, wanted) {
            self.watch(uid, slice.as_ref(), record);
            return Ok(());
        }
        let present = Present { property: self.systemd.memory_max(uid)?, in_force };
        match plan(present, known.map(|entry| entry.ours), wanted) {
            Step::Keep => {}
            Step::Set { value, before } => {
                let had_drop_in =
                    known.map_or_else(|| self.systemd.has_drop_in(uid), |entry| entry.had_drop_in);
                // First, so that no kill is missed that setting it leads to.
                self.watch(uid, slice.as_ref(), record);
                let seen = self.watched.get(&uid).map(|watched| watched.seen);
                let entry = SliceEntry { uid, ours: Ours::Set { before, set: value }, had_drop_in, seen };
                self.set(entry, value, slice.as_ref(), record)?;
            }
            Step::PutBack(before) => self.put_back(uid, before, record)?,
            Step::Yield => {
                record.notices.say(format_args!(
                    "MemoryMax of the slice of uid {uid} was changed by somebody else: it is left as it is until the \
                     user's line is drawn anew"
                ));
                let line = wanted.map_or(Bytes(0), |wanted| wanted.line);
                record
                    .put_slice(uid, known.map(|entry| SliceEntry { ours: Ours::Yielded { line }, ..entry }));
                record.save();
                self.watched.remove(&uid);
            }
            Step::Forget => {
                if let Some(Ours::Set { .. }) = known.map(|entry| entry.ours) {
                    record.notices.say(format_args!("MemoryMax of the slice of uid {uid} was changed by somebody else: it is left as it is"));
                }
                record.put_slice(uid, None);
                record.save();
                self.watched.remove(&uid);
            }
        }
        if record.slice(uid).is_some_and(|entry| matches!(entry.ours, Ours::Set { .. })) {
            self.watch(uid, slice.as_ref(), record);
        }
        Ok(())
    }

    /// What the line asks for: nothing for one that kills nobody, for root, and while it is not in force yet.
    fn wanted(
        &self,
        (line, headroom): (&LineFacts, Headroom),
        known: Option<SliceEntry>,
        slice: Option<&UserSlice>,
    ) -> Result<Option<Wanted>, String> {
        let kills = matches!(line.action, Action::Kill | Action::Term);
        let Some(effective) = line.effective.filter(|_| kills && line.uid != Uid(0)) else {
            return Ok(None);
        };
        let held = slice.map_or(Ok(Bytes(0)), UserSlice::held).map_err(|error| error.to_string())?;
        let set = match known.map(|entry| entry.ours) {
            Some(Ours::Set { set, .. }) => Some(set),
            Some(Ours::Yielded { .. }) | None => None,
        };
        let needs = Needs { line: effective.max(line.hard), held, set };
        Ok(memory_max(headroom, needs, self.mem_total).map(|value| Wanted { line: line.hard, value }))
    }

    fn set(
        &self,
        entry: SliceEntry,
        value: Bytes,
        slice: Option<&UserSlice>,
        record: &mut Record,
    ) -> Result<(), String> {
        let uid = entry.uid;
        let before = record.slice(uid).copied();
        record.put_slice(uid, Some(entry));
        let done = if record.save() { self.systemd.set_memory_max(uid, Max::At(value)) } else { Ok(()) };
        if let Err(error) = done {
            // It may have been set all the same, by a systemd that was late: then it is as we wrote down, and put back.
            let unchanged = self.systemd.memory_max(uid).is_ok_and(|now| now != Max::At(value));
            if unchanged {
                record.put_slice(uid, before);
                record.save();
            }
            return Err(error);
        }
        if let Some(slice) = slice
            && !is_in_force(slice, value)
        {
            record.notices.once(
                "last defence",
                &format_args!("systemd has not made memory.max of the slice of uid {uid} what it was told"),
            );
        }
        Ok(())
    }

    fn put_back(&mut self, uid: Uid, before: Max, record: &mut Record) -> Result<(), String> {
        self.systemd.set_memory_max(uid, before)?;
        if record.slice(uid).is_some_and(|entry| !entry.had_drop_in)
            && let Err(error) = self.systemd.remove_drop_in(uid)
        {
            record.notices.once("last defence", &error);
        }
        record.put_slice(uid, None);
        record.save();
        self.watched.remove(&uid);
        Ok(())
    }

    /// Puts everything back that is written down and that nobody else changed since.
    pub(super) fn put_all_back(&mut self, record: &mut Record) {
        self.paused = None;
        let users: Vec<Uid> = record.slices.iter().map(|one| one.uid).collect();
        for uid in users {
            self.apply(uid, None, record);
        }
    }

    /// Listens to a slice, from where an earlier daemon left off.
    fn watch(&mut self, uid: Uid, slice: Option<&UserSlice>, record: &mut Record) {
        let Some(slice) = slice.filter(|_| !self.watched.contains_key(&uid)) else {
            return;
        };
        let opened = slice.events().and_then(|mut events| {
            let now = Seen::from(events.read()?);
            let before =
                record.slice(uid).and_then(|entry| entry.seen).filter(|seen| seen.slice == now.slice);
            Ok(Watched { events, seen: before.unwrap_or(now) })
        });
        match opened {
            Ok(watched) => _ = self.watched.insert(uid, watched),
            Err(error) if error.is_gone() => {}
            Err(error) => record.notices.once("last defence", &error),
        }
    }

    /// What happened to the slices since the last look. `dying` tells which raised process is on its way out.
    pub(super) fn look(
        &mut self,
        record: &mut Record,
        mut dying: impl FnMut(Uid) -> Option<(VictimId, Pages)>,
    ) -> Vec<ArrangedKill> {
        let mut deeds = Vec::new();
        self.watched.retain(|uid, watched| {
            let Ok(now) = watched.events.read() else {
                // The slice is gone, or cannot be listened to: either way it would be readable for ever.
                return false;
            };
            let kills = now.oom_kill.saturating_sub(watched.seen.oom_kill);
            if kills > 0 {
                let ours = now.own_oom > watched.seen.own_oom;
                let reason = if ours { Reason::LastDefenceMemoryMax } else { Reason::LastDefenceOutOfMemory };
                for _ in 0..kills.min(DEEDS_MAX) {
                    deeds.push(ArrangedKill { uid: *uid, reason, victim: dying(*uid) });
                }
                // The limit is at fault first, and kills then: what it was at fault for counts until the kill is seen.
                watched.seen = now.into();
                if let Some(entry) = record.slices.iter_mut().find(|entry| entry.uid == *uid) {
                    entry.seen = Some(watched.seen);
                }
            }
            true
        });
        if !deeds.is_empty() {
            record.save();
        }
        deeds
    }
}

/// Nothing is to be asked of systemd: what we set is what is wanted, and what the kernel has.
fn is_as_wanted(known: Option<SliceEntry>, in_force: Option<Max>, wanted: Option<Wanted>) -> bool {
    match (known.map(|entry| entry.ours), wanted) {
        (Some(Ours::Set { set, .. }), Some(wanted)) => wanted.value == set && in_force == Some(Max::At(set)),
        _ => false,
    }
}

/// Waits until the kernel has it: what is read before that would look like somebody else's.
fn is_in_force(slice: &UserSlice, value: Bytes) -> bool {
    let deadline = Instant::now().checked_add(IN_FORCE_WITHIN);
    loop {
        match slice.memory_max() {
            Ok(now) if now == Max::At(value) => return true,
            // Gone in the meantime: with it, what could be changed behind us.
            Err(error) if error.is_gone() => return true,
            Ok(_) | Err(_) => {}
        }
        if deadline.is_none_or(|deadline| Instant::now() > deadline) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
