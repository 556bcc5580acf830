//! Which processes of a job go on, and how many more may begin, so that what they come to fits under its line.
//!
//! `plimsoll run --jobserver` looks at its job's processes again and again, holds some, and issues tokens. What a process
//! will come to is a guess: as much as its program came to before; of a program that is not known, a part of the line or
//! twice what it has. One that has not grown for a while, waits, or has started others is taken to stay as it is. The
//! oldest that may grow goes on.

use crate::{
    units::{Bytes, Nanos, Pid},
    victim::VictimId,
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// A process of a program that is not known is taken to come to this part of the line, or to twice what it has, whichever
/// is more. So four that begin together and come to half of the line each take turns in time.
const UNKNOWN_PART: u64 = 4;
/// What is kept for one to grow becomes half as much with each so long that it does not grow: most have most of it early.
const HALVED_EACH: Nanos = Nanos(2_000_000_000);
/// One that comes to no more than this part of the line is never held, though it counts. Nor is growth by so little growth.
const SMALL_PART: u64 = 256;
/// One that exceeds what is known of its program by more than this part has the program forgotten.
const ABOUT_PART: u64 = 4;
/// Up to there so much of what it has is kept for it to grow.
const MORE_PART: u64 = 16;
/// Who has not run for so long waits for something.
const IDLE_AFTER: Nanos = Nanos(1_000_000_000);
/// Where for so long nobody who goes on grows or ends, the oldest that is held goes on: they may spin while they wait for it.
const STUCK_AFTER: Nanos = Nanos(10_000_000_000);
/// What is known of a program falls by this part with each process that came to less.
const FORGOTTEN_PART: u64 = 32;
/// So many programs are known.
const PROGRAMS_MAX: usize = 1024;

/// An executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Its file system's number.
    pub device: u64,
    /// Its file's number there.
    pub inode: u64,
}

/// A living process of the job, as it was just seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Which it is.
    pub id: VictimId,
    /// Who started it, or took it over.
    pub parent: Pid,
    /// What it runs.
    pub program: Program,
    /// Its anonymous memory, swapped out or not.
    pub usage: Bytes,
    /// Processor time that it has used.
    pub cpu: Nanos,
    /// It may be stopped: it is the user's, and not the program that the job is about.
    pub may_be_held: bool,
}

/// What comes of a look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turns {
    /// Those that are stopped for now. All others go on.
    pub held: BTreeSet<VictimId>,
    /// What is left below the line when all that go on have come to what they are taken to.
    pub room: Bytes,
    /// As much as one more is taken to come to.
    pub each: Bytes,
}

impl Turns {
    /// How many more may begin.
    #[must_use]
    pub fn may_begin(&self) -> u64 {
        if self.held.is_empty() { self.room.0.checked_div(self.each.0).unwrap_or(0) } else { 0 }
    }
}

/// What is known of a process.
#[derive(Debug, Clone, Copy)]
struct Known {
    program: Program,
    /// The most that it had since it runs this program.
    most: Bytes,
    /// As much as that was when it last changed by more than a little, and when.
    noted: Bytes,
    grew: Nanos,
    cpu: Nanos,
    ran: Nanos,
    /// It waits for something, or did, and has not grown since: it is taken to stay as it is.
    has_settled: bool,
    is_held: bool,
    /// It goes on until it grows, whatever it may come to: see [`STUCK_AFTER`].
    is_freed: bool,
    /// The look that saw it last.
    look: u64,
}

/// One that may grow.
#[derive(Debug, Clone, Copy)]
struct Growing {
    id: VictimId,
    usage: Bytes,
    comes_to: Bytes,
    may_be_held: bool,
}

/// What processes of a program come to, and at which look that was learned.
#[derive(Debug, Clone, Copy)]
struct Learned {
    most: Bytes,
    look: u64,
}

/// All that is known of a job's processes.
#[derive(Debug, Default)]
pub struct Jobserver {
    looks: u64,
    last: Nanos,
    there: BTreeMap<VictimId, Known>,
    learned: BTreeMap<Program, Learned>,
    /// When one last grew, or one that was not small ended.
    moved: Nanos,
}

impl Jobserver {
    /// Takes in who is there, all of them, and says who goes on. `line`: what they may have together.
    pub fn look(&mut self, now: Nanos, line: Bytes, seen: &[Seen]) -> Turns {
        self.pass_over_gap(now);
        let starters: BTreeSet<Pid> = seen.iter().map(|one| one.parent).collect();
        for one in seen {
            self.see(now, line, one, starters.contains(&one.id.pid));
        }
        self.learn_from_the_gone(now, part(line, SMALL_PART));
        let mut growing: Vec<Growing> = seen.iter().filter_map(|one| self.growing(now, line, one)).collect();
        growing.sort_by_key(|one| (one.id.start_ns, one.id.pid));
        let turns = turns(line, seen.iter().map(|one| one.usage).sum(), &growing);
        for (id, known) in &mut self.there {
            let is_held = turns.held.contains(id);
            if known.is_held && !is_held {
                (known.ran, known.grew) = (now, now);
            }
            known.is_held = is_held;
        }
        self.let_one_go_on_where_none_moves(now, &turns);
        turns
    }

    /// Where nobody looked for long, nobody may have run either.
    fn pass_over_gap(&mut self, now: Nanos) {
        let gap = now.saturating_sub(self.last);
        if gap >= IDLE_AFTER {
            // Looks may be so far apart each time.
            let gap = gap.saturating_sub(Nanos(IDLE_AFTER.0 / 2));
            for known in self.there.values_mut() {
                (known.ran, known.grew) = (known.ran.saturating_add(gap), known.grew.saturating_add(gap));
            }
            self.moved = self.moved.saturating_add(gap);
        }
        self.last = now;
        self.looks = self.looks.wrapping_add(1);
    }

    fn see(&mut self, now: Nanos, line: Bytes, one: &Seen, has_started_others: bool) {
        let Seen { id, program, usage, cpu, .. } = *one;
        let new = Known {
            program,
            most: usage,
            noted: usage,
            grew: now,
            cpu,
            ran: now,
            has_settled: false,
            is_held: false,
            is_freed: false,
            look: self.looks,
        };
        let Some(known) = self.there.get_mut(&id) else {
            self.there.insert(id, Known { has_settled: has_started_others, ..new });
            return;
        };
        if known.program != program {
            let before = *known;
            *known = Known { is_held: before.is_held, ..new };
            self.learn(before);
            return;
        }
        if known.cpu != cpu {
            (known.cpu, known.ran) = (cpu, now);
        }
        known.most = known.most.max(usage);
        known.look = self.looks;
        if known.most > known.noted.saturating_add(part(line, SMALL_PART)) {
            (known.noted, known.grew) = (known.most, now);
            (known.has_settled, known.is_freed) = (false, false);
            self.moved = now;
        } else if has_started_others || now.saturating_sub(known.ran) >= IDLE_AFTER {
            known.has_settled = !known.is_held;
        }
        // What was known of it is wrong, and so it is of all others that run it.
        let most = known.most;
        if self.learned.get(&program).is_some_and(|learned| most > more(learned.most, ABOUT_PART)) {
            self.learned.remove(&program);
        }
    }

    fn learn_from_the_gone(&mut self, now: Nanos, small: Bytes) {
        let look = self.looks;
        let mut gone = Vec::new();
        self.there.retain(|_, known| {
            let is_there = known.look == look;
            if !is_there {
                gone.push(*known);
            }
            is_there
        });
        if gone.iter().any(|known| known.most > small) {
            self.moved = now;
        }
        gone.into_iter().for_each(|known| self.learn(known));
    }

    fn learn(&mut self, known: Known) {
        // Who was held to its end has not come to what it would have; what has nothing is about to execute something.
        if known.is_held || known.most == Bytes(0) {
            return;
        }
        let before = self.learned.get(&known.program).map_or(Bytes(0), |learned| learned.most);
        if self.learned.len() >= PROGRAMS_MAX && before == Bytes(0) {
            let oldest =
                self.learned.iter().min_by_key(|(_, learned)| learned.look).map(|(program, _)| *program);
            oldest.and_then(|program| self.learned.remove(&program));
        }
        let fallen = before.saturating_sub(Bytes(before.0.div_ceil(FORGOTTEN_PART)));
        self.learned.insert(known.program, Learned { most: known.most.max(fallen), look: self.looks });
    }

    /// `None`: it is taken to stay as it is.
    fn growing(&self, now: Nanos, line: Bytes, one: &Seen) -> Option<Growing> {
        let known = self.there.get(&one.id).filter(|known| !known.has_settled)?;
        let guess = self.guess(line, known);
        let since = if known.is_held { Nanos(0) } else { now.saturating_sub(known.grew) };
        let halvings = since.0.checked_div(HALVED_EACH.0).and_then(|times| u32::try_from(times).ok());
        let yet = guess.saturating_sub(known.most).0.checked_shr(halvings.unwrap_or(u32::MAX)).unwrap_or(0);
        let comes_to = known.most.saturating_add(Bytes(yet)).max(one.usage);
        let may_be_held = one.may_be_held && !known.is_freed;
        Some(Growing { id: one.id, usage: one.usage, comes_to, may_be_held })
    }

    fn guess(&self, line: Bytes, known: &Known) -> Bytes {
        match self.learned.get(&known.program) {
            Some(learned) if known.most <= learned.most => learned.most,
            Some(_) => more(known.most, MORE_PART),
            None => Bytes(known.most.0.saturating_mul(2)).max(part(line, UNKNOWN_PART)),
        }
    }

    fn let_one_go_on_where_none_moves(&mut self, now: Nanos, turns: &Turns) {
        if now.saturating_sub(self.moved) < STUCK_AFTER {
            return;
        }
        self.moved = now;
        let oldest = turns.held.iter().min_by_key(|id| (id.start_ns, id.pid));
        if let Some(known) = oldest.and_then(|id| self.there.get_mut(id)) {
            known.is_freed = true;
        }
    }
}

/// The oldest goes on; of the others those that fit, as long as nobody older waits.
fn turns(line: Bytes, usage: Bytes, growing: &[Growing]) -> Turns {
    let (mut together, mut held) = (usage, BTreeSet::new());
    let (mut any_goes_on, small) = (false, part(line, SMALL_PART));
    for one in growing {
        let after = together.saturating_add(one.comes_to.saturating_sub(one.usage));
        let is_small = one.comes_to <= small;
        let has_turn = !any_goes_on || (after <= line && held.is_empty());
        if is_small || has_turn || !one.may_be_held {
            together = after;
            any_goes_on |= !is_small;
        } else {
            held.insert(one.id);
        }
    }
    let largest = growing.iter().map(|one| one.comes_to).max();
    let each = largest.unwrap_or(part(line, UNKNOWN_PART)).max(small).max(Bytes(1));
    Turns { held, room: line.saturating_sub(together), each }
}

fn part(size: Bytes, of: u64) -> Bytes {
    Bytes(size.0.checked_div(of).unwrap_or(0))
}

fn more(size: Bytes, by: u64) -> Bytes {
    size.saturating_add(part(size, by))
}

#[cfg(test)]
mod tests;
