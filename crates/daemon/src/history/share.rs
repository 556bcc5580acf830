//! What a rotation keeps of the file that goes: the newest incidents of each account, up to its share, so that nobody pushes
//! others out. What goes is folded into one record for each account, which says how many it stands for.

use super::{
    HistoryError,
    log::{self, Lines},
    record::{self, Checked, Kind},
};
use jiff::Timestamp;
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Incident, Outcome, Trigger},
    reason::Reason,
    units::Uid,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::Path,
};

/// Of a file, the part that may be filled with what is kept of the one before: a quarter, in parts of the whole.
const KEPT_PARTS: u64 = 4;

/// What is kept at most, however large the files: some ten thousand incidents, which are found in memory.
const KEPT_MAX_BYTES: u64 = 8 << 20;

/// What the log does not hold any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forgotten {
    /// No incident up to this id,
    pub(super) up_to: u64,
    /// but these.
    pub(super) kept: BTreeSet<u64>,
}

/// What of an incident decides.
#[derive(Debug, Deserialize)]
struct Brief {
    time: Timestamp,
    account: Option<Account>,
    guard: Guard,
    trigger: Trigger,
    action: Outcome,
    victims: Vec<Payer>,
    reason: String,
    unrecorded: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Payer {
    uid: Uid,
}

impl Brief {
    fn of(line: &Checked<'_>) -> Option<Self> {
        // One that cannot be understood is nobody's: it goes.
        if line.kind == Kind::Incident { serde_json::from_slice(line.json).ok() } else { None }
    }

    /// Whose share it is in. A kill that no line was the reason of is in the share of who paid: anybody can have the kernel
    /// kill again and again.
    fn account(&self) -> Option<Account> {
        self.account.or_else(|| self.victims.first().map(|payer| Account::User(payer.uid)))
    }

    /// How many incidents it stands for.
    fn count(&self) -> u64 {
        let folded = self.unrecorded.filter(|_| self.reason == Reason::IncidentsFolded.text());
        folded.unwrap_or(1)
    }
}

/// The incidents of one file, by id: whose, and how large with all that became known of them.
type Sizes = BTreeMap<u64, (Option<Account>, u64)>;

/// Two files of the log, and what stays of the older one.
#[derive(Debug)]
pub(super) struct Share<'a> {
    previous: &'a Path,
    current: &'a Path,
    kept: BTreeSet<u64>,
    forgotten: Forgotten,
}

impl<'a> Share<'a> {
    /// Decides what stays: no more than a part of `file_max_bytes`, and nothing from before `oldest`.
    pub(super) fn of(
        (previous, current): (&'a Path, &'a Path),
        file_max_bytes: u64,
        oldest: Timestamp,
    ) -> Result<Self, HistoryError> {
        let mut old = Sizes::new();
        each_line(previous, |line, bytes| {
            add(&mut old, line, bytes, oldest);
            Ok(())
        })?;
        let up_to = old.last_key_value().map_or(0, |(id, _)| *id);
        let mut new = Sizes::new();
        each_line(current, |line, bytes| {
            let of = if old.contains_key(&line.id) { &mut old } else { &mut new };
            add(of, line, bytes, oldest);
            Ok(())
        })?;
        let accounts: BTreeSet<Option<Account>> = old.values().map(|(account, _)| *account).collect();
        let budget = KEPT_MAX_BYTES.min(file_max_bytes / KEPT_PARTS);
        let share = budget.checked_div(accounts.len() as u64).unwrap_or_default();
        let mut room: BTreeMap<_, u64> = accounts.into_iter().map(|account| (account, share)).collect();
        for (account, bytes) in new.values() {
            room.entry(*account).and_modify(|room| *room = room.saturating_sub(*bytes));
        }
        let mut kept = BTreeSet::new();
        for (id, (account, bytes)) in old.iter().rev() {
            let Some(room) = room.get_mut(account) else { continue };
            // The newest that fit, and none that is older than one that does not.
            match room.checked_sub(*bytes) {
                Some(rest) => {
                    *room = rest;
                    kept.insert(*id);
                }
                None => *room = 0,
            }
        }
        let stay = new.range(..=up_to).map(|(id, _)| *id).chain(kept.iter().copied()).collect();
        Ok(Self { previous, current, kept, forgotten: Forgotten { up_to, kept: stay } })
    }

    /// Writes what stays, and one record for each account of whom something goes.
    pub(super) fn write(self, to: &mut impl Write) -> Result<Forgotten, HistoryError> {
        let Self { previous, current, kept, mut forgotten } = self;
        let mut folds: BTreeMap<Option<Account>, Incident> = BTreeMap::new();
        each_line(previous, |line, _| {
            if let Some(brief) = Brief::of(line).filter(|_| !kept.contains(&line.id)) {
                let account = brief.account();
                let before = folds.get(&account).and_then(|fold| fold.unrecorded).unwrap_or_default();
                folds.insert(account, fold(line.id, &brief, before));
            }
            Ok(())
        })?;
        let mut text = Vec::new();
        for fold in folds.values_mut() {
            record::encode_incident(&mut text, fold).map_err(HistoryError::io("fold", previous))?;
            forgotten.kept.insert(fold.id);
        }
        to.write_all(&text).map_err(HistoryError::io("write what is kept of", previous))?;
        let mut copy = |line: &Checked<'_>| {
            let mut text = Vec::new();
            record::push_line(&mut text, line.kind, line.id, line.json)?;
            to.write_all(&text)
        };
        each_line(previous, |line, _| if kept.contains(&line.id) { copy(line) } else { Ok(()) })?;
        // What became known since.
        each_line(current, |line, _| {
            if line.kind == Kind::Outcome && kept.contains(&line.id) { copy(line) } else { Ok(()) }
        })?;
        Ok(forgotten)
    }
}

fn add(sizes: &mut Sizes, line: &Checked<'_>, bytes: u64, oldest: Timestamp) {
    match Brief::of(line) {
        // As large as no share: what is too old goes.
        Some(brief) if brief.time < oldest => drop(sizes.insert(line.id, (brief.account(), u64::MAX))),
        Some(brief) => drop(sizes.insert(line.id, (brief.account(), bytes))),
        None => {
            sizes.entry(line.id).and_modify(|(_, sum)| *sum = sum.saturating_add(bytes));
        }
    }
}

/// The record that stands for this incident and `before` earlier ones of its account.
fn fold(id: u64, brief: &Brief, before: u64) -> Incident {
    Incident {
        id,
        time: brief.time,
        account: brief.account(),
        guard: brief.guard,
        trigger: brief.trigger,
        action: brief.action,
        victims: Vec::new(),
        usage_bytes: 0,
        hard_bytes: None,
        overshoot_bytes: 0,
        requested_bytes: None,
        unrecorded: Some(before.saturating_add(brief.count())),
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: Reason::IncidentsFolded.to_string(),
        peers: Vec::new(),
        origin: None,
        course: None,
    }
}

/// Shows each whole record of a file, and how long its line is; a file that is not there has none.
fn each_line(
    path: &Path,
    mut show: impl FnMut(&Checked<'_>, u64) -> io::Result<()>,
) -> Result<(), HistoryError> {
    let Some(file) = log::open_to_read(path)? else { return Ok(()) };
    let mut lines = Lines::new(file, 0);
    while let Some(line) = lines.next_line().map_err(HistoryError::io("read", path))? {
        if let Ok(checked) = record::check(line.bytes) {
            let bytes = (line.bytes.len() as u64).saturating_add(1);
            show(&checked, bytes).map_err(HistoryError::io("keep the newest of", path))?;
        }
    }
    Ok(())
}
