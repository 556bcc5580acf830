//! What the guard tells the service, without ever waiting for it, and what the service shows of itself.

use crate::message::{Receiver, Sender, Standing, queue};
use plimsoll_api::status::PressureSocketView;
use plimsoll_policy::units::{JobId, Uid};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Messages waiting at once. What finds no room is told again at the guard's next turn.
const QUEUE_MAX: usize = 64;

/// What a connection listens for: the lines of whoever connected, or of a job of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    pub(crate) owner: Uid,
    pub(crate) job: Option<JobId>,
}

impl From<Uid> for Topic {
    fn from(owner: Uid) -> Self {
        Self { owner, job: None }
    }
}

/// What the guard tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Message {
    /// An account is near its line.
    Near(Topic),
    /// It is near no more.
    Far(Topic),
    /// Something was done in a job.
    Incident(Topic),
    /// A job that waited has its turn.
    Turn(Topic),
}

#[derive(Debug, Default)]
struct Shared {
    standing: Standing<PressureSocketView>,
    /// Even while nobody listens, and then nobody has to be told of anything; it changes each time that somebody begins to, or
    /// the last one ends.
    audience: AtomicU64,
}

/// For whoever stops it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    queue: Sender<Message>,
    shared: Arc<Shared>,
}

/// The service's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(super) queue: Receiver<Message>,
    shared: Arc<Shared>,
}

/// Both ends.
///
/// # Errors
/// There is no descriptor to be had.
pub(crate) fn link() -> io::Result<(Link, Inbox)> {
    let (sender, receiver) = queue(QUEUE_MAX)?;
    let shared = Arc::<Shared>::default();
    shared.standing.show(PressureSocketView { state: "starting".into(), ..PressureSocketView::default() });
    Ok((Link { queue: sender, shared: Arc::clone(&shared) }, Inbox { queue: receiver, shared }))
}

impl Link {
    /// Ends the service. Never waits.
    pub(super) fn stop(&self) {
        self.shared.standing.stop();
        self.queue.wake();
    }

    /// It could not be started.
    pub(crate) fn give_up(&self, why: &str) {
        let view = PressureSocketView { state: format!("off: {why}"), ..PressureSocketView::default() };
        self.shared.standing.show(view);
    }
}

impl Inbox {
    /// Whether it is to end.
    pub(super) fn stopped(&self) -> bool {
        self.shared.standing.stopped()
    }

    /// Somebody listens from now on, or nobody does.
    pub(super) fn audience(&self, any: bool) {
        let before = self.shared.audience.load(Ordering::Acquire);
        if before.is_multiple_of(2) == any {
            self.shared.audience.store(before.wrapping_add(1), Ordering::Release);
        }
    }

    /// Shows how it stands.
    pub(super) fn show(&self, view: PressureSocketView) {
        self.shared.standing.show(view);
    }
}

/// The guard's end.
#[derive(Debug)]
pub(crate) struct Teller {
    link: Link,
    /// Which accounts the service takes for near.
    told: BTreeSet<Topic>,
    /// What is to be told of jobs.
    of_jobs: BTreeSet<Message>,
    audience: u64,
}

impl Teller {
    pub(crate) const fn new(link: Link) -> Self {
        Self { link, told: BTreeSet::new(), of_jobs: BTreeSet::new(), audience: 0 }
    }

    /// One that nobody listens to.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self::new(Link { queue: Sender::closed(), shared: Arc::default() })
    }

    /// These are near now. Costs nothing while nobody listens. What finds no room in the queue is told the
    /// next time, which comes within a second while anybody is near.
    pub(crate) fn settle(&mut self, near: impl FnOnce() -> BTreeSet<Topic>) {
        let audience = self.link.shared.audience.load(Ordering::Acquire);
        if core::mem::replace(&mut self.audience, audience) != audience {
            // Whoever listens now knows of nobody.
            self.told.clear();
        }
        let of_jobs = core::mem::take(&mut self.of_jobs);
        if audience.is_multiple_of(2) {
            return;
        }
        let near = near();
        let came = near.difference(&self.told).copied().map(Message::Near);
        let left = self.told.difference(&near).copied().map(Message::Far);
        let messages = in_turns(came.chain(left).chain(of_jobs));
        let mut has_room = true;
        for message in messages {
            has_room = has_room && self.link.queue.try_send(message).is_ok();
            match message {
                Message::Near(_) | Message::Far(_) if !has_room => false,
                Message::Near(topic) => self.told.insert(topic),
                Message::Far(topic) => self.told.remove(&topic),
                Message::Incident(_) | Message::Turn(_) => !has_room && self.of_jobs.insert(message),
            };
        }
    }

    /// Whether there is something left to tell that no later turn of the guard's brings by itself.
    pub(crate) fn is_behind(&self) -> bool {
        !self.of_jobs.is_empty()
    }

    /// Something was done in these jobs, which is told the next time. It need not be in the history yet.
    pub(crate) fn done_in(&mut self, jobs: impl Iterator<Item = Topic>) {
        self.of_jobs.extend(jobs.map(Message::Incident));
    }

    /// These jobs waited, and have their turn.
    pub(crate) fn have_turns(&mut self, jobs: impl Iterator<Item = Topic>) {
        self.of_jobs.extend(jobs.map(Message::Turn));
    }

    /// What there is to show.
    pub(crate) fn shown(&self) -> PressureSocketView {
        self.link.shared.standing.shown()
    }
}

/// First one of each owner, then another: whoever has much to be told leaves room for everybody.
fn in_turns(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let mut counts = BTreeMap::<Uid, usize>::new();
    let turn = |message: Message| {
        let (Message::Near(topic) | Message::Far(topic) | Message::Incident(topic) | Message::Turn(topic)) =
            message;
        let count = counts.entry(topic.owner).or_default();
        *count = count.saturating_add(1);
        (*count, message)
    };
    let mut messages: Vec<(usize, Message)> = messages.map(turn).collect();
    messages.sort_by_key(|(turn, _)| *turn);
    messages.into_iter().map(|(_, message)| message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(inbox: &Inbox) -> Vec<Message> {
        std::iter::from_fn(|| inbox.queue.next().ok()).collect()
    }

    #[test]
    fn changes_are_told_once_and_only_while_somebody_listens() {
        let (link, inbox) = link().unwrap();
        let mut teller = Teller::new(link);
        let near = BTreeSet::from([Uid(1).into(), Uid(2).into()]);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), [], "nobody listens");
        inbox.audience(true);
        inbox.audience(true);
        teller.settle(|| near.clone());
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), [1, 2].map(|uid| Message::Near(Uid(uid).into())));
        teller.settle(|| BTreeSet::from([Uid(2).into()]));
        assert_eq!(heard(&inbox), [Message::Far(Uid(1).into())]);
        // The last one goes and another comes, before the guard's next turn.
        inbox.audience(false);
        inbox.audience(true);
        teller.settle(|| near.clone());
        assert_eq!(
            heard(&inbox),
            [1, 2].map(|uid| Message::Near(Uid(uid).into())),
            "the newcomer knows nothing"
        );
        teller.settle(BTreeSet::new);
        assert_eq!(heard(&inbox), [1, 2].map(|uid| Message::Far(Uid(uid).into())), "no line is left");
    }

    #[test]
    fn what_finds_no_room_is_told_at_the_next_turn() {
        let (link, inbox) = link().unwrap();
        let mut teller = Teller::new(link);
        inbox.audience(true);
        let near: BTreeSet<Topic> = (0..100).map(|uid| Uid(uid).into()).collect();
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox).len(), QUEUE_MAX);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox).len(), 100 - QUEUE_MAX);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), []);
        let jobs: Vec<Topic> = (0..100).map(|id| Topic { owner: Uid(1), job: Some(JobId(id)) }).collect();
        teller.done_in(jobs.iter().chain(&jobs).copied());
        teller.settle(|| near.clone());
        let first = heard(&inbox);
        teller.settle(|| near.clone());
        let told: Vec<Message> = first.into_iter().chain(heard(&inbox)).collect();
        assert_eq!(told, jobs.iter().copied().map(Message::Incident).collect::<Vec<_>>(), "each once");
        teller.have_turns(jobs.iter().take(1).copied());
        assert!(teller.is_behind());
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), [Message::Turn(jobs[0])]);
    }
}
