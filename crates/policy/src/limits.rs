//! The daemon's side of one account's line: when to select, when to escalate, when to say something, when to wait.
//!
//! One victim at a time: the next is selected only when usage without what is dying still exceeds the line in force, or
//! when a victim did not die before its deadline. Nobody is one whose end leaves usage past the line while another's does
//! not. [`decide`] marks nothing as dying; only a signal that was sent does ([`LimitState::outcome`]). The caller carries an
//! action out, reports its outcome, and then decides again.

use crate::{
    account::Action,
    reading::Reading,
    reason::Reason,
    selection::{Candidate, Decision, Selection, Shortlist, select_for},
    units::{Nanos, Pages},
    victim::{KILL_DEADLINE, TERM_GRACE, VictimId},
};

mod coarse;
mod spacing;
mod state;
pub use coarse::look_after;
pub use spacing::apart;
pub use state::{IN_FLIGHT_MAX, InFlight, LimitState};

/// How patient the ladder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitConfig {
    /// From SIGKILL until the victim's memory is no longer counted on.
    pub kill_deadline: Nanos,
    /// From SIGTERM to SIGKILL.
    pub term_grace: Nanos,
    /// Decide and tell, and send nothing.
    pub dry_run: bool,
    /// Which triggers act.
    pub triggers: TriggerSet,
    /// Shared memory is charged to who owns it.
    pub charges_shared: bool,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            kill_deadline: KILL_DEADLINE,
            term_grace: TERM_GRACE,
            dry_run: false,
            triggers: TriggerSet::default(),
            charges_shared: true,
        }
    }
}

/// The triggers that may act. Each works when the others are dead; switching one off is for proving that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerSet {
    /// The event that crosses the line, in the kernel.
    pub kernel: bool,
    /// The daemon, asked by the kernel side or by its own periodic look.
    pub daemon: bool,
    /// The kernel's own OOM killer, pointed at the right process.
    pub last_defence: bool,
}

impl Default for TriggerSet {
    fn default() -> Self {
        Self { kernel: true, daemon: true, last_defence: true }
    }
}

/// What is known of the account now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// What it is charged.
    pub usage: Reading<Pages>,
    /// The line in force: [`effective`].
    pub effective_hard: Pages,
    /// The hard limit that was asked for.
    pub hard: Pages,
    /// The soft limit.
    pub soft: Pages,
    /// The part of the usage that belongs to processes marked as dying, as the accounting has it.
    pub dying: Pages,
    /// No more than this of what is dying is left out of the usage: what is held and does not go makes no room without end.
    pub dying_most: Pages,
    /// Of the usage, what may come back with those on their way out, besides `dying`: shared memory that they hold, and what is
    /// not known of them.
    pub may_leave: Pages,
    /// What crossing does. `deny` is carried out where allocations are made; here it only notifies.
    pub action: Action,
    /// The account's processes, dying and protected ones included. A list that could not be read is an error of the
    /// caller's to report, not an empty list.
    pub candidates: &'a [Candidate],
    /// When the kernel asked for a selection, if it did.
    pub kernel_asked_at: Option<Nanos>,
}

impl Snapshot<'_> {
    /// How far past the line in force `usage` is without what is on its way out.
    fn past(&self, usage: Pages, leaving: Pages) -> Pages {
        usage.saturating_sub(leaving).saturating_sub(self.effective_hard)
    }
}

/// The one thing to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitAction {
    /// Nothing.
    None,
    /// SIGKILL the first victim (and those it shares memory with).
    Kill(Decision),
    /// SIGTERM the first victim. Where no more of its account is left alone it is [`LimitAction::Kill`], though the action is
    /// [`Action::Term`].
    Term(Decision),
    /// SIGKILL this one, which was sent SIGTERM: the grace period is over, or others need its place among those
    /// who are asked.
    Escalate {
        /// Who.
        victim: VictimId,
        /// When SIGTERM was sent.
        since: Nanos,
        /// [`Reason::TermDeadlinePassed`] or [`Reason::OverHardLimitNoGrace`].
        reason: Reason,
    },
    /// Record the crossing; given once per crossing.
    Notify(Decision),
    /// Over the line, and nobody can be killed: say so, once, and leave it to the last defence.
    NothingKillable(Decision),
    /// Usage reached the soft limit.
    Near {
        /// Usage now.
        usage: Pages,
        /// The hard limit ahead.
        hard: Pages,
    },
    /// Usage is under the soft limit again.
    Far {
        /// Usage now.
        usage: Pages,
    },
    /// Usage could not be read: nothing is decided from it. Given once, until a reading succeeds.
    UsageUnknown,
}

/// The line in force after a change of line or of usage.
///
/// Lowering a line below present usage kills nothing: the line in force is the larger of the new one and the usage, and
/// falls with the usage until it meets the new one. It rises only to a raised `hard`. For an account that had no line,
/// `previous` is `Pages(u64::MAX)`; `--now` is not to ask here but to use `hard` itself.
#[must_use]
pub fn effective(previous: Pages, hard: Pages, usage: Pages) -> Pages {
    previous.min(usage).max(hard)
}

/// Decides what to do for one account; at most one thing per step.
#[must_use]
pub fn decide(
    snapshot: &Snapshot<'_>,
    config: &LimitConfig,
    mut state: LimitState,
    now: Nanos,
) -> (LimitState, LimitAction) {
    state.observe(snapshot.candidates, config, now);
    if let Some(due) = state.term_overdue(config, now) {
        let reason = Reason::TermDeadlinePassed;
        return (state, LimitAction::Escalate { victim: due.victim, since: due.since, reason });
    }
    let Some(usage) = snapshot.usage.known() else {
        let first = !core::mem::replace(&mut state.unread, true);
        return (state, if first { LimitAction::UsageUnknown } else { LimitAction::None });
    };
    state.unread = false;
    if usage < snapshot.soft {
        state.told = None;
    }
    let action = match state.dying(snapshot) {
        // What of it comes back with whoever is on the way out is known when they are gone.
        Some(dying)
            if snapshot.past(usage, dying.saturating_add(snapshot.may_leave)) == Pages(0)
                && state.waiting() =>
        {
            LimitAction::None
        }
        Some(dying) if snapshot.past(usage, dying) > Pages(0) => {
            over(snapshot, config, &mut state, (usage, dying))
        }
        // How much is on its way out may not be known: wait for it, its deadline is running.
        Some(_) | None => LimitAction::None,
    };
    let action = if action == LimitAction::None { notice(snapshot, &mut state, usage) } else { action };
    (state, action)
}

/// The account is over its line, not counting what is dying.
fn over(
    snapshot: &Snapshot<'_>,
    config: &LimitConfig,
    state: &mut LimitState,
    (usage, dying): (Pages, Pages),
) -> LimitAction {
    let needed = snapshot.past(usage, dying);
    let selection = select_for(snapshot.candidates, needed, |victim| state.skipped(victim));
    let has_grace =
        snapshot.action == Action::Term && is_left_alone(&selection.victims, dying, snapshot.dying_most);
    let (acts, reason) = match snapshot.action {
        Action::Kill => (true, Reason::OverHardLimitSelected),
        Action::Term if has_grace => (true, Reason::OverHardLimitTerm),
        Action::Term => (true, Reason::OverHardLimitNoGrace),
        Action::Notify | Action::Deny => (false, Reason::OverHardLimitNotify),
    };
    if acts && let Some(InFlight { victim, since, .. }) = state.grace_ends(snapshot) {
        return LimitAction::Escalate { victim, since, reason: Reason::OverHardLimitNoGrace };
    }
    // Nobody goes for what was killed because it held too much, while that is on its way.
    if snapshot.action == Action::Term
        && let Some((leaving, _overdue)) = state.leaving_and_overdue(snapshot)
        && snapshot.past(usage, leaving) == Pages(0)
    {
        return LimitAction::None;
    }
    let reason = if acts && (selection.victims.is_empty() || state.has_no_place()) {
        if state.waiting() {
            return LimitAction::None;
        }
        stuck(state, &selection, snapshot.candidates)
    } else {
        reason
    };
    let sends = acts && !selection.victims.is_empty() && !config.dry_run;
    if !sends && state.told.replace(reason) == Some(reason) {
        return LimitAction::None;
    }
    let decision = Decision {
        reason,
        victims: if acts { selection.victims } else { Shortlist::EMPTY },
        peers: selection.peers,
        usage,
        hard: snapshot.effective_hard,
        dying,
        asked_at: snapshot.kernel_asked_at,
        dry_run: config.dry_run,
    };
    match (acts, decision.victims.is_empty(), snapshot.action) {
        (false, _, _) => LimitAction::Notify(decision),
        (true, true, _) => LimitAction::NothingKillable(decision),
        (true, false, Action::Term) if has_grace => LimitAction::Term(decision),
        (true, false, _) => LimitAction::Kill(decision),
    }
}

/// Whether the first victim may be asked to end and left alone: with what is dying already it is no more than is left out of
/// the usage. The first of all is, however much it holds.
fn is_left_alone(victims: &[Candidate], dying: Pages, most: Pages) -> bool {
    let held = victims.first().map_or(0, |one| one.usage.latest().unwrap_or_default().min(one.gives_back).0);
    dying == Pages(0) || held <= most.saturating_sub(dying).0
}

/// Why nobody can be selected.
fn stuck(state: &LimitState, selection: &Selection, candidates: &[Candidate]) -> Reason {
    if candidates.iter().any(|one| state.failed(one.id())) {
        Reason::SignalFailed
    } else if selection.protected {
        Reason::OverHardLimitOnlyProtectedLeft
    } else {
        Reason::OverHardLimitNothingToFree
    }
}

/// Tells, once per change, that the account came near its line or left it.
fn notice(snapshot: &Snapshot<'_>, state: &mut LimitState, usage: Pages) -> LimitAction {
    let near = usage >= snapshot.soft;
    match (core::mem::replace(&mut state.near, near), near) {
        (false, true) => LimitAction::Near { usage, hard: snapshot.hard },
        (true, false) => LimitAction::Far { usage },
        (true, true) | (false, false) => LimitAction::None,
    }
}

#[cfg(test)]
mod tests;
