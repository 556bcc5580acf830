//! What is going on in one account: who waits, who is about to be refused, which recall is under way.

use super::{refusals::Pace, soft::Soft};
use plimsoll_policy::units::{Nanos, Pages, Pid};
use plimsoll_wire::tmalloc::Patience;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long clients may take to give idle memory back before a refusal goes out without them.
pub(super) const RECALL_PATIENCE: Nanos = Nanos(50_000_000);
/// From one recall to the next in the long run.
const RECALL_PAUSE: Nanos = Nanos(10_000_000);
/// So many may follow each other at once before that counts: processes that come to the line together are not kept waiting
/// in turn.
const RECALLS_AT_ONCE: u64 = 8;
/// Between recalls for the same request that waits.
const RECALL_AGAIN: Nanos = Nanos(500_000_000);
/// Between two looks whether there is room for who waits: at first, and later.
const TRY_PAUSE: Nanos = Nanos(10_000_000);
const TRY_PAUSE_MAX: Nanos = Nanos(100_000_000);

/// One connection, by the number its descriptor was given here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// Whether idle memory was asked back before a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recalled {
    /// Not yet.
    No,
    /// The recall of this number is for it, too.
    In(u64),
    /// It was asked back.
    Yes,
}

/// Requests of one account that are not answered yet.
const QUEUE_MAX: usize = 1024;

/// A request that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingRequest {
    pub(super) connection: ConnectionId,
    pub(super) pid: Pid,
    pub(super) seq: u32,
    pub(super) pages: Pages,
    /// Waits for room, in its turn.
    pub(super) patient: bool,
    /// Until then; `None`: for ever.
    pub(super) until: Option<Nanos>,
    pub(super) recalled: Recalled,
    /// It was over the line when it was tried: not again before the recall for it has ended.
    pub(super) tried: bool,
    /// When it is refused if the account could not be counted exactly by then.
    pub(super) exact_by: Option<Nanos>,
}

impl PendingRequest {
    /// Over the line, and nothing was recalled for it.
    fn wants_recall(&self) -> bool {
        self.recalled == Recalled::No && self.exact_by.is_none()
    }

    pub(super) fn new(
        (connection, pid): (ConnectionId, Pid),
        seq: u32,
        pages: Pages,
        patience: Patience,
        now: Nanos,
    ) -> Self {
        let until = match patience {
            Patience::Milliseconds(span) => Some(now.saturating_add(Nanos(span.saturating_mul(1_000_000)))),
            Patience::None | Patience::Endless => None,
        };
        let patient = patience != Patience::None;
        Self {
            connection,
            pid,
            seq,
            pages,
            patient,
            until,
            recalled: Recalled::No,
            tried: false,
            exact_by: None,
        }
    }
}

/// A recall under way.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) seq: u32,
    /// Whose answers are waited for.
    pub(super) asked: BTreeSet<Pid>,
    pub(super) ends: Nanos,
    /// Somebody gave something back.
    pub(super) brought: bool,
}

/// One account.
#[derive(Debug, Default)]
pub(super) struct AccountQueue {
    /// First come, first served.
    pub(super) waiting: VecDeque<PendingRequest>,
    /// Answered as soon as a recall has brought what it brings.
    pub(super) urgent: Vec<PendingRequest>,
    /// Connections that hear of recalls and of the soft limit.
    pub(super) watchers: BTreeMap<ConnectionId, Pid>,
    pub(super) round: Option<Round>,
    pub(super) soft: Soft,
    pub(super) pace: Pace,
    /// What was over the line last: usage, and how far grants may go.
    pub(super) over: (Pages, Pages),
    rounds: u64,
    last_seq: Option<u32>,
    round_ended: Option<Nanos>,
    /// Until then it is known that nobody has anything to give back: all said so when they were asked.
    barren_until: Option<Nanos>,
    /// When all recalls so far would have ended, each having taken its pause.
    rounds_paid: Nanos,
    tried: Option<Nanos>,
    try_at: Option<Nanos>,
    try_pause: Nanos,
    /// When this queue is looked at next, as the timers have it.
    pub(super) timer: Option<Nanos>,
}

impl AccountQueue {
    /// Whether there is nothing here that has to be kept.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.urgent.is_empty()
            && self.watchers.is_empty()
            && self.pace.free_at().is_none()
    }

    /// When it has to be looked at again.
    pub(super) fn due(&self) -> Option<Nanos> {
        let expiry = self.waiting.iter().filter_map(|ask| ask.until).min();
        let exact = self.urgent.iter().filter_map(|ask| ask.exact_by).min();
        let next_round = self.round_wanted().then(|| self.round_from()).flatten();
        let round = self.round.as_ref().map(|round| round.ends).or(next_round);
        [self.try_at, expiry, exact, round, self.soft.due(), self.pace.free_at()].into_iter().flatten().min()
    }

    /// Whether somebody may be refused, or waits first, for whom nothing was recalled.
    pub(super) fn round_wanted(&self) -> bool {
        self.urgent.iter().chain(self.waiting.front()).any(PendingRequest::wants_recall)
    }

    /// From when on the next recall may begin; `None`: at once.
    fn round_from(&self) -> Option<Nanos> {
        let ahead = RECALL_PAUSE.0.saturating_mul(RECALLS_AT_ONCE.saturating_sub(1));
        self.round_ended.map(|ended| Nanos(self.rounds_paid.0.saturating_sub(ahead)).max(ended))
    }

    /// Whether a recall may begin now.
    pub(super) fn may_recall(&self, now: Nanos) -> bool {
        self.round.is_none() && self.round_from().is_none_or(|from| from <= now)
    }

    /// Begins a recall for all that have had none; how much is wanted.
    pub(super) fn begin_round(&mut self, seq: u32, asked: BTreeSet<Pid>, now: Nanos) -> Pages {
        self.rounds = self.rounds.saturating_add(1);
        let number = self.rounds;
        let mut wanted = Pages(0);
        for ask in self.urgent.iter_mut().chain(self.waiting.front_mut()) {
            if ask.wants_recall() {
                ask.recalled = Recalled::In(number);
                wanted = Pages(wanted.0.saturating_add(ask.pages.0));
            }
        }
        let ends = now.saturating_add(RECALL_PATIENCE);
        self.round = Some(Round { number, seq, asked, ends, brought: false });
        let (usage, line) = self.over;
        Pages(wanted.0.saturating_add(usage.0).saturating_sub(line.0))
    }

    /// Ends the recall: whoever it was for can be refused now. Gives who has not answered.
    pub(super) fn end_round(&mut self, now: Nanos) -> BTreeSet<Pid> {
        let Some(round) = self.round.take() else {
            return BTreeSet::new();
        };
        self.round_ended = Some(now);
        let barren = round.asked.is_empty() && !round.brought;
        self.barren_until = barren.then(|| now.saturating_add(RECALL_PAUSE));
        self.rounds_paid = self.rounds_paid.max(now).saturating_add(RECALL_PAUSE);
        self.last_seq = Some(round.seq);
        for ask in self.urgent.iter_mut().chain(self.waiting.iter_mut()) {
            if ask.recalled == Recalled::In(round.number) {
                ask.recalled = Recalled::Yes;
            }
        }
        round.asked
    }

    /// Whether this is an answer to the recall under way, or to the one before.
    pub(super) fn has_asked(&self, seq: u32) -> bool {
        self.last_seq == Some(seq) || self.round.as_ref().is_some_and(|round| round.seq == seq)
    }

    /// Whether a recall would bring nothing, as one a moment ago did.
    pub(super) fn is_barren(&self, now: Nanos) -> bool {
        self.barren_until.is_some_and(|until| now < until)
    }

    /// Whether no more requests are taken: each of them is looked at with every recall.
    pub(super) fn is_full(&self) -> bool {
        self.urgent.len().saturating_add(self.waiting.len()) >= QUEUE_MAX
    }

    /// Nobody is there to give anything back, or has any.
    pub(super) fn skip_round(&mut self, now: Nanos) {
        self.round_ended = Some(now);
        for ask in self.urgent.iter_mut().chain(self.waiting.front_mut()).filter(|ask| ask.wants_recall()) {
            ask.recalled = Recalled::Yes;
        }
    }

    /// Something was given back or has ended: whoever waits is looked after soon, though not each time.
    pub(super) fn wake(&mut self, now: Nanos) {
        if self.waiting.is_empty() {
            return;
        }
        self.try_pause = TRY_PAUSE;
        let free = self.tried.map_or(now, |tried| tried.saturating_add(TRY_PAUSE)).max(now);
        self.try_at = Some(self.try_at.map_or(free, |planned| planned.min(free)));
    }

    /// After a look at those who wait: when the next is due. `progress`: one was granted.
    pub(super) fn plan_try(&mut self, progress: bool, now: Nanos) {
        if self.waiting.is_empty() {
            self.try_at = None;
            return;
        }
        let planned = self.try_at.is_some_and(|planned| planned > now);
        if progress || self.try_at.is_none() {
            self.try_pause = TRY_PAUSE;
        } else if !planned {
            self.try_pause = Nanos(self.try_pause.0.saturating_mul(2)).min(TRY_PAUSE_MAX);
        }
        self.tried = Some(now);
        if !planned || progress {
            self.try_at = Some(now.saturating_add(self.try_pause));
        }
        // What others have put by since then can be had back as well.
        if self.round_ended.is_some_and(|ended| now >= ended.saturating_add(RECALL_AGAIN))
            && let Some(head) = self.waiting.front_mut()
            && head.recalled == Recalled::Yes
        {
            head.recalled = Recalled::No;
        }
    }

    /// Takes every request out that is one of these.
    pub(super) fn withdraw(&mut self, mut which: impl FnMut(&PendingRequest) -> bool) -> Vec<PendingRequest> {
        let mut taken = Vec::new();
        self.urgent.retain(|ask| {
            let is = which(ask);
            taken.extend(is.then_some(*ask));
            !is
        });
        self.waiting.retain(|ask| {
            let is = which(ask);
            taken.extend(is.then_some(*ask));
            !is
        });
        taken
    }
}
