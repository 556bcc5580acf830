//! Refusals are written down, the coordinator's and those to strict jobs; and what else the coordinator asks of the guard: to
//! have accounts counted exactly.

use super::{Guard, kernel::Kernel};
use crate::tmalloc::{Message, Refused};
use plimsoll_policy::{account::Counted, incident::Victim, units::Pages};
use plimsoll_sys::process::tick_ns;
use plimsoll_wire::text::Comm;

impl<K: Kernel> Guard<K> {
    /// Writes a refusal down, with what the process is called and holds as far as `/proc` tells.
    /// `comm`: what its thread was called, where that was told.
    pub(super) fn record_refusal(&mut self, refused: &Refused, comm: Option<Comm>) {
        let page_size = self.page_size();
        // One tells starts in clock ticks, the other to the nanosecond.
        let is_same = |start_ns: u64| {
            start_ns <= refused.start_ns && refused.start_ns < start_ns.saturating_add(tick_ns())
        };
        let process =
            self.context.kernel.process(refused.pid).ok().filter(|process| is_same(process.start_ns));
        let held = process.and_then(|process| process.usage().known());
        let mut victim = Victim {
            pid: refused.pid,
            start_ns: refused.start_ns,
            uid: refused.uid,
            comm: process
                .map(|process| process.comm)
                .or(comm)
                .map_or_else(String::new, |comm| comm.to_string()),
            cmdline: None,
            cgroup: None,
            usage_bytes: page_size.to_bytes(held.unwrap_or(Pages(0))).0,
            weight_permille: None,
            session: false,
            jobs: Vec::new(),
        };
        self.context.ledger.find_job(&mut victim);
        if let (true, Counted::Job(id)) = (victim.jobs.is_empty(), refused.whose) {
            victim.jobs.push(id);
        }
        self.context.ledger.record_refusal(refused, victim);
    }

    /// Walks all tasks, so that every counter is settled, and tells the coordinator. Where a walk takes long, the last one
    /// has to do for a while.
    pub(super) fn walk_for_grants(&mut self) {
        let now = self.context.kernel.now();
        if let Some(attached) = self.attached.as_mut().filter(|attached| attached.has_rested(now))
            && let Err(error) = attached.scan(&self.context.kernel)
        {
            self.context.notices.once("limits", &error);
        }
        self.context.tmalloc.tell(Message::Walked);
    }
}
