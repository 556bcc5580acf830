//! The guard's part in keeping the minutes before: after a turn's work is done, what is known anyway is put into the book.
//!
//! There is no timer for it, but for ten seconds after an incident. While an account is near, or the machine about to run
//! short, the guard wakes up once a second as it is; what else wakes it up (the machine guard's own look) is used as well.

use super::{
    Guard,
    kernel::{Kernel, Programs as _},
    machine::MachineGuard,
};
use plimsoll_policy::{
    lines::NO_LINE,
    recorder::AccountNow,
    units::{Nanos, PageSize},
};
use plimsoll_sys::bpf::AccountFacts;

impl<K: Kernel> Guard<K> {
    /// Samples what there is to sample, if the last time is long enough ago.
    pub(super) fn sample(&mut self) {
        let now = self.context.kernel.now();
        self.context.ledger.date_trails(now);
        if !self.sampler.is_time(now) {
            return;
        }
        let machine = self.machine.as_ref();
        let unguarded = self.attached.is_none() && self.measured.is_empty() && machine.is_none();
        if unguarded && self.context.ledger.trails().is_empty() {
            // Nothing is guarded: there are no incidents to come.
            return;
        }
        let near = self.attached.as_ref().is_some_and(|attached| !attached.near.is_empty());
        let tense = near || self.measured.any_near() || machine.is_some_and(MachineGuard::is_pressed);
        let trails = self.context.ledger.trails();
        let following = tense || !trails.is_empty();
        // An incident that is nobody's here has the machine looked at, which costs the same however many accounts there are.
        let looks = tense || trails.follows_any() || self.sampler.has_rested(now);
        let facts = match self.attached.as_mut().filter(|_| looks).map(|attached| attached.limits.accounts())
        {
            Some(Ok(facts)) => facts,
            Some(Err(error)) => {
                self.context.notices.once("minutes before", &error);
                Vec::new()
            }
            None => Vec::new(),
        };
        if looks {
            self.sampler.looked(now, Nanos(self.context.kernel.now().0.saturating_sub(now.0)));
        }
        let (page_size, trails) = (self.context.ledger.page_size(), self.context.ledger.trails());
        let users = facts.iter().map(|one| account_now(one, page_size));
        let accounts = users.chain(self.measured.accounts_now(page_size)).map(|mut one| {
            one.followed |= trails.follows(&one.account);
            one
        });
        // With stalls where it matters, by a thread that may wait for them.
        let reading = self.machine.as_ref().and_then(MachineGuard::last).filter(|_| !following);
        self.sampler.take(now, accounts, reading);
        if following {
            self.sampler.look_at_machine();
        }
        self.conclude(now);
    }

    /// Incidents whose ten seconds are over.
    fn conclude(&mut self, now: Nanos) {
        while let Some(trail) = self.context.ledger.next_over(now) {
            self.sampler.conclude(trail);
        }
    }
}

fn account_now(facts: &AccountFacts, page_size: PageSize) -> AccountNow {
    AccountNow {
        account: facts.whose.into(),
        usage: page_size.to_bytes(facts.usage),
        line: facts.effective.filter(|line| *line < NO_LINE).map(|line| page_size.to_bytes(line)),
        near: facts.near,
        followed: facts.near,
    }
}
