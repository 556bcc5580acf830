//! Shared memory: charged to who owns it, as walks find it. No event tells of it: while lines are drawn the machine's own
//! count is read each second in which a CPU works, and a walk made where that has changed.

use super::attached::Attached;
use crate::{
    facts::shared::{Found, Walked},
    guard::{
        context::Context,
        kernel::{Kernel, Programs as _},
        kill::ledger::Entry,
    },
};
use plimsoll_policy::{
    account::Counted,
    human,
    incident::Trigger,
    reason::Reason,
    selection::Standing,
    shared::{Held, Identity, Kind, NAMED_MAX, Owned},
    units::{Bytes, Nanos, Pages, Uid},
};
use plimsoll_sys::bpf::{AccountFacts, Awaited, BpfError, SharedPages};
use plimsoll_wire::{abi, shared::SharedName, text::Meminfo};
use std::collections::{BTreeMap, BTreeSet};

/// The machine's count is read so often.
const EVERY: Nanos = Nanos(900_000_000);

/// A walk is made at the latest after so long while anybody's is charged: what one gives back another may take.
const AT_LATEST: Nanos = Nanos(8_000_000_000);

/// Between two walks there is at least this many times as long as one takes of a CPU, and no more than [`REST_MOST`] or, where
/// that is more, [`REST_LEAST`] times as long: a fifth of a CPU is what users can make walks cost.
const REST: u64 = 16;
const REST_LEAST: u64 = 4;
const REST_MOST: Nanos = Nanos(800_000_000);

/// A walk that takes longer is told of.
const LATE: Nanos = Nanos(5_000_000_000);

/// What a walk found is asked for again after this long at the earliest, however often it is wanted.
const APART: Nanos = Nanos(20_000_000);

/// Not until somebody asks for it.
const NEVER: Nanos = Nanos(u64::MAX);

/// For so long shared memory that nobody holds may be of one who ends just now.
const ENDING: Nanos = Nanos(500_000_000);

/// That lines are passed by what nobody ends for is said of one user so often at most.
const TOLD_APART: Nanos = Nanos(600_000_000_000);

/// Less is not walked for: of shared memory, of what is in swap, and of what no line of `/proc/meminfo` has, where drivers'
/// buffers and lists of single CPUs come and go beside what lies in pipes.
const CHANGES: [Bytes; 3] = [Bytes(256 << 10), Bytes(256 << 10), Bytes(8 << 20)];

/// What is known of shared memory.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    due: Nanos,
    /// The next look as it was planned last, and whether a CPU has to work before there is a timer for it.
    planned: Option<(Nanos, bool)>,
    /// None sooner.
    rested: Nanos,
    /// When root drew lines last.
    drawn: Nanos,
    /// When the walk under way was asked for, and from when on it is late.
    asked: Option<(Nanos, Nanos)>,
    /// Somebody may have to end for what it finds.
    wanted: bool,
    /// When the lines changed last: nobody ends for what a walk before that found.
    not_before: Nanos,
    /// Likewise of one user: when somebody of theirs went last, or they drew their own line.
    not_before_of: BTreeMap<Counted, Nanos>,
    /// It is decided by what was found just now.
    pub(super) is_fresh: bool,
    /// When the last one was made, and the machine's counts then.
    walked: Option<(Nanos, [Bytes; 3])>,
    held: BTreeMap<u64, Held>,
    /// Files that several have in common, and one of whom was ended for the line.
    pub(super) bereft: BTreeSet<Identity>,
    /// Since when an account is past its line with what lasts, and whether that was said.
    past: BTreeMap<Counted, (Nanos, bool)>,
    /// When that was said last.
    said: BTreeMap<Counted, Nanos>,
    /// What each user owns, with a line or without.
    pub(crate) owned: BTreeMap<Uid, Owned<SharedName>>,
    /// What each account used besides, before each of the last two walks.
    own: BTreeMap<Counted, [Pages; 2]>,
    /// Users of whom not all was looked at.
    pub(crate) partly: BTreeSet<Uid>,
    /// Users who may have more files than were found.
    unlisted: BTreeSet<Uid>,
    /// What of the machine's shared memory no file explains; `None` before it was walked.
    pub(crate) unexplained: Option<Bytes>,
}

impl Shared {
    /// When to look next; `None`: not until somebody asks for it, or a walk is over.
    fn next(&self) -> Option<Nanos> {
        let due = self.due.max(self.rested);
        (self.asked.is_none() && due != NEVER).then_some(due)
    }

    /// When to by a timer; `None`: no CPU has worked since the last look, and nobody may have to end.
    pub(crate) fn timer(&self) -> Option<Nanos> {
        let next = self.next().filter(|next| self.wanted || self.planned != Some((*next, true)));
        self.asked.map_or(next, |(_, late)| Some(late))
    }

    /// Sleeps after a look until a CPU works, which programs tell of: once woken there is a timer. To be called each time the
    /// guard was awake, whatever for.
    pub(crate) fn plan(&mut self, kernel: &mut impl Kernel) {
        let Some(next) = self.next() else { return };
        let was_planned = self.planned.is_some_and(|(planned, _)| planned == next);
        let sleeps = !was_planned && kernel.ask_look(Awaited::Shared, kernel.now());
        self.planned = Some((next, sleeps));
    }

    /// What an address space holds of it, while it is decided by that.
    pub(super) fn held(&self, mm: u64) -> Held {
        if self.is_fresh { self.held.get(&mm).copied().unwrap_or_default() } else { Held::default() }
    }

    /// The largest file that an address space has in common with others, while it is decided by that.
    pub(super) fn in_common(&self, mm: u64) -> Option<Identity> {
        self.held(mm).in_common.map(|common| common.file)
    }

    /// Has it walked at once: somebody may have to end for it.
    pub(crate) const fn want(&mut self) {
        self.wanted = true;
        self.due = Nanos(0);
    }

    /// Somebody of a user's has gone, or the own line is another: what an earlier walk found may be gone.
    pub(crate) fn doubt_of(&mut self, accounts: &[Counted], now: Nanos) {
        self.not_before_of.extend(accounts.iter().map(|whose| (*whose, now)));
        self.want();
    }

    /// The lines are others: what an earlier walk found may be gone.
    pub(crate) const fn doubt(&mut self, now: Nanos) {
        self.not_before = now;
        self.want();
    }

    /// Lines were drawn: what is there already is to be known before there is more. But who draws the `own` line may do so as
    /// often as they like.
    pub(crate) fn drawn(&mut self, own: Option<Uid>, now: Nanos) {
        if let Some(uid) = own {
            return self.doubt_of(&[uid.into()], now);
        }
        (self.rested, self.drawn) = (Nanos(0), now);
        self.doubt(now);
    }

    /// Whether there is reason for a walk.
    fn calls_for_walk(&self, counts: [Bytes; 3], now: Nanos) -> bool {
        let Some((walked, before)) = self.walked else { return true };
        let changed = |((one, other), change): ((Bytes, Bytes), Bytes)| one.0.abs_diff(other.0) >= change.0;
        self.wanted
            || before.into_iter().zip(counts).zip(CHANGES).any(changed)
            || (!self.owned.is_empty() && now.0.saturating_sub(walked.0) >= AT_LATEST.0)
    }

    /// Notes what accounts use besides, before a walk.
    fn note_own(&mut self, accounts: &[AccountFacts]) {
        let before = |whose| self.own.get(whose).map_or(Pages(0), |[_, last]| *last);
        self.own = accounts.iter().map(|one| (one.whose, [before(&one.whose), own_usage(one)])).collect();
    }

    /// Whether somebody of an account may end for what was found just now: it was over its line with what the last two walks
    /// both found, and with the least that it used besides, before each of them and now. One walk is of no moment: whoever
    /// moves memory from one place to another has it counted in both, or what was there a second ago with what is there now.
    /// `users`: whose processes are charged to it. `leaving`: of that, what goes with those who are on their way out.
    fn is_surely_over(&self, account: &AccountFacts, users: &[Uid], leaving: Pages) -> bool {
        let [earlier, last] = self.own.get(&account.whose).copied().unwrap_or_default();
        let own = own_usage(account).min(earlier).min(last);
        let sure: Pages = users.iter().filter_map(|uid| Some(self.owned.get(uid)?.sure)).sum();
        let sure = sure.saturating_sub(leaving);
        let is_fresh = self.is_fresh && !self.not_before_of.contains_key(&account.whose);
        is_fresh && account.effective.is_some_and(|line| own.saturating_add(sure) > line)
    }

    /// Whether it is to be said now that a line is passed by memory for which nobody is killed: once it has been so for a
    /// while, and not again soon, however often the user is under the line in between.
    fn is_to_be_told(&mut self, account: &AccountFacts, now: Nanos) -> bool {
        let is_past = |usage: Pages| account.effective.is_some_and(|line| usage > line);
        if is_past(account.usage) || !is_past(account.usage.saturating_add(account.lasting)) {
            self.past.remove(&account.whose);
            return false;
        }
        self.said.retain(|_, said| now.0.saturating_sub(said.0) < TOLD_APART.0);
        let (since, told) = self.past.entry(account.whose).or_insert((now, false));
        if *told || self.said.contains_key(&account.whose) {
            return false;
        }
        *told = now.0.saturating_sub(since.0) >= ENDING.0;
        if *told {
            self.said.insert(account.whose, now);
        }
        // Else another walk tells.
        self.wanted |= !*told;
        *told
    }

    /// The largest of what lasts of what these users own, the largest first.
    pub(crate) fn largest_of(&self, users: &[Uid]) -> Vec<(SharedName, Pages)> {
        let owned = users.iter().filter_map(|uid| self.owned.get(uid));
        let mut largest: Vec<_> = owned.flat_map(|owned| owned.largest.iter().cloned()).collect();
        largest.sort_by_key(|(_, pages)| core::cmp::Reverse(*pages));
        largest.truncate(NAMED_MAX);
        largest
    }

    /// Says that a line is passed by memory for which nobody is killed.
    fn tell<K: Kernel>(&mut self, account: &AccountFacts, users: &[Uid], context: &mut Context<K>) {
        if !self.is_to_be_told(account, context.now()) {
            return;
        }
        let total = account.usage.saturating_add(account.lasting);
        let size = |pages| human::bytes(context.ledger.page_size().to_bytes(pages));
        let largest = self.largest_of(users);
        let largest: Vec<String> =
            largest.iter().map(|(name, pages)| format!("{} ({})", named(name), size(*pages))).collect();
        let told = format!(
            "{} is over the line with {} of shared memory that stays when processes end, that others may have filled, \
             or whose holders are not known; nobody is killed for it. The largest: {}",
            account.whose,
            size(account.lasting),
            largest.join(", "),
        );
        context.notices.say(told);
        context.ledger.record(Entry {
            usage: total,
            hard: account.effective,
            ..Entry::of_line(account.whose, Trigger::Daemon, Reason::OverHardLimitSharedLasts)
        });
    }
}

/// What tells that shared memory has changed, or what lies in pipes: what of it is in memory, what of anything is in swap, and
/// what of memory nothing else explains.
fn counts(meminfo: &Meminfo) -> Option<[Bytes; 3]> {
    let swapped = meminfo.swap_total?.saturating_sub(meminfo.swap_free?);
    Some([meminfo.shared?, swapped, meminfo.unseen().unwrap_or_default()])
}

/// What an account uses besides the shared memory that its user owns.
const fn own_usage(account: &AccountFacts) -> Pages {
    account.usage.saturating_sub(account.shared).saturating_sub(account.dying)
}

/// Whether an account is over its line only with the shared memory that its user owns.
pub(super) fn is_over_by_shared(account: &AccountFacts) -> bool {
    let past =
        |usage: Pages| account.effective.is_some_and(|line| usage.saturating_sub(account.dying) > line);
    past(account.usage) && !past(account.usage.saturating_sub(account.shared))
}

impl<K: Kernel> Attached<K> {
    /// Looks whether there is more shared memory, or less, and has it walked then.
    pub(super) fn look_at_shared(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        let now = context.now();
        if let Some((_, late)) = self.shared_memory.asked.as_mut().filter(|(_, late)| *late <= now) {
            *late = now.saturating_add(LATE);
            let why =
                "its walk has not ended for 5 s: it is charged as it was before, and nobody ends for it";
            context.notices.once("shared memory", &why);
        }
        if self.shared_memory.next().is_none_or(|next| next > now) {
            return Ok(());
        }
        self.shared_memory.due = now.saturating_add(EVERY);
        if !context.config.charges_shared {
            self.shared_memory = Shared { due: NEVER, ..Shared::default() };
            return self.charge_no_shared();
        }
        let Ok(meminfo) = context.kernel.read_meminfo() else { return Ok(()) };
        let Some(counts) = counts(&meminfo) else {
            // Nor will it be told later.
            self.shared_memory.due = NEVER;
            return Ok(());
        };
        if !self.shared_memory.calls_for_walk(counts, now) {
            return Ok(());
        }
        if !context.workers.shared.ask(now) {
            // The machine guard asked for one.
            self.shared_memory.due = now.saturating_add(APART);
        } else {
            self.shared_memory.note_own(&self.limits.accounts()?);
            self.shared_memory.asked = Some((now, now.saturating_add(LATE)));
            self.shared_memory.wanted = false;
            self.shared_memory.walked = Some((now, counts));
        }
        Ok(())
    }

    /// What an earlier configuration charged, or daemon.
    pub(crate) fn charge_no_shared(&mut self) -> Result<(), BpfError> {
        for account in self.users_first()? {
            let _is_its_still: bool = self.limits.set_shared(account.index, account.whose, None)?;
        }
        Ok(())
    }

    /// Takes in what a walk found, and decides by it.
    pub(crate) fn take_shared(&mut self, walked: Walked, context: &mut Context<K>) -> Result<(), BpfError> {
        let now = context.now();
        if self.shared_memory.asked.is_none_or(|(asked, _)| asked != walked.asked) {
            // The next is compared with this one, before which nobody's own usage was noted.
            self.shared_memory.not_before = now;
            return Ok(());
        }
        self.shared_memory.not_before_of.retain(|_, doubted| *doubted > walked.asked);
        self.shared_memory.asked = None;
        let times = |times: u64| Nanos(walked.took.0.saturating_mul(times));
        let rest = times(REST).min(times(REST_LEAST).max(REST_MOST)).max(APART);
        // What was there when lines were drawn is to be known first.
        let is_due = walked.asked < self.shared_memory.drawn;
        self.shared_memory.rested = if is_due { now } else { now.saturating_add(rest) };
        if !context.config.charges_shared {
            return Ok(());
        }
        let found = match walked.found {
            Ok(Some(found)) => found,
            Ok(None) => {
                let why = "files are freed all the time where it is walked: it is charged as it was before";
                context.notices.once("shared memory", &why);
                self.shared_memory.wanted = true;
                return Ok(());
            }
            Err(error) => {
                self.shared_memory.walked = None;
                // Else they are being loaded; whoever loads them says where they cannot be.
                if !matches!(error, BpfError::Pin { .. }) {
                    context.notices.once("shared memory is not charged", &error);
                }
                return Ok(());
            }
        };
        let is_whole = found.is_whole;
        tell_what_is_missing(&found, context);
        // Whom the programs ended meanwhile is to be known.
        self.take_records(context);
        self.charge_shared(found, walked.asked, context)?;
        self.find_near(context)?;
        self.shared_memory.is_fresh = is_whole && walked.asked >= self.shared_memory.not_before;
        let judged = self.judge_by_shared(context);
        self.shared_memory.is_fresh = false;
        judged
    }

    fn charge_shared(
        &mut self,
        found: Found,
        begun: Nanos,
        context: &mut Context<K>,
    ) -> Result<(), BpfError> {
        let page_size = context.ledger.page_size();
        let memory = &mut self.shared_memory;
        memory.unexplained = memory
            .walked
            .map(|(_, [in_memory, ..])| in_memory.saturating_sub(page_size.to_bytes(found.explained)));
        memory.held = found.owned.spaces;
        let common: BTreeSet<_> =
            memory.held.values().filter_map(|held| Some(held.in_common?.file)).collect();
        memory.bereft.retain(|file| common.contains(file));
        memory.owned = found.owned.users;
        memory.partly = found.partly;
        memory.unlisted = found.unlisted;
        for account in self.users_first()? {
            let uid = account.whose.user();
            let is_listed = uid.is_none_or(|uid| !self.shared_memory.unlisted.contains(&uid));
            let owned = uid.and_then(|uid| self.shared_memory.owned.get(&uid));
            let (ending, lasting) = charged(owned, &account, found.is_whole && is_listed);
            let pages = SharedPages { ending, lasting, begun };
            let charged = self.limits.set_shared(account.index, account.whose, Some(pages))?;
            if let (true, Some(account)) = (charged, self.limits.account(account.whose)?) {
                self.shared_memory.tell(&account, &self.groups.users_of(account.whose), context);
            }
        }
        Ok(())
    }

    /// All accounts: those of groups have what those before them are charged.
    fn users_first(&mut self) -> Result<Vec<AccountFacts>, BpfError> {
        let mut accounts = self.limits.accounts()?;
        accounts.sort_unstable_by_key(|one| one.whose);
        Ok(accounts)
    }

    /// Whether an account, whose processes are listed, is over its line with shared memory, and nobody is sure to have to end
    /// for it.
    pub(super) fn is_unsure(&self, account: &AccountFacts, context: &Context<K>) -> bool {
        if !is_over_by_shared(account) {
            return false;
        }
        let dying = self.candidates.iter().filter(|one| one.standing == Standing::Dying).map(|one| one.mm);
        let leaving: BTreeSet<u64> = dying.chain(context.pending.killed_spaces()).collect();
        let leaving = leaving.into_iter().map(|mm| self.shared_memory.held(mm).part).sum();
        let users = self.groups.users_of(account.whose);
        !self.shared_memory.is_surely_over(account, &users, leaving)
    }

    fn judge_by_shared(&mut self, context: &mut Context<K>) -> Result<(), BpfError> {
        for account in self.limits.accounts()?.iter().filter(|account| is_over_by_shared(account)) {
            let users = self.groups.users_of(account.whose);
            if self.shared_memory.is_surely_over(account, &users, Pages(0)) {
                self.judge(account.whose, None, context)?;
            } else {
                self.shared_memory.want();
            }
        }
        Ok(())
    }
}

/// What an account is charged that ends with its processes, and what lasts. Where not all files were found it is no less than
/// it was, and what was found besides lasts: nobody ends for it.
fn charged(owned: Option<&Owned<SharedName>>, account: &AccountFacts, is_all: bool) -> (Pages, Pages) {
    let of = |pages: fn(&Owned<SharedName>) -> Pages| owned.map_or(Pages(0), pages);
    if is_all {
        return (of(|its| its.ending), of(|its| its.lasting));
    }
    let more = of(Owned::total).saturating_sub(account.shared);
    (account.shared, account.lasting.max(more))
}

fn tell_what_is_missing<K: Kernel>(found: &Found, context: &mut Context<K>) {
    if !found.is_whole {
        context.notices.once("shared memory", &"there is more of it than is looked at: nobody ends for it");
    }
    if !found.tells_handed {
        let why =
            "this kernel does not tell who is handed a file: nobody ends for memfd, files in tmpfs and pipes";
        context.notices.once("shared memory", &why);
    }
    if let Some(user) = found.partly.first() {
        let is_contained = *user == Uid(abi::PLIMSOLL_NO_UID);
        let who = if is_contained { "a container".to_owned() } else { format!("user:{user}") };
        context.notices.once("shared memory", &format_args!("{who} is {NOT_FULLY_KNOWN}"));
    }
}

/// Said of a user of whom not all was looked at.
pub(crate) const NOT_FULLY_KNOWN: &str = "not fully known, since there are more open files, mappings, or files, than are looked at: nobody else ends for deleted files in tmpfs";

/// What a file of shared memory is called.
pub(crate) fn named(name: &SharedName) -> String {
    match name.kind {
        Kind::Anonymous => "shared anonymous memory".into(),
        Kind::Small => "many small files".into(),
        Kind::Memfd => name.text.clone(),
        Kind::Pipe => format!("pipe:[{}]", name.number),
        Kind::Segment => format!("System V segment {}", name.number),
        Kind::File if name.is_unlinked => format!("{} (deleted)", name.text),
        Kind::File => name.text.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
