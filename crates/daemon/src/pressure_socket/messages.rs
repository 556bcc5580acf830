//! What the guard tells the service, without ever waiting for it, and what the service shows of itself.

use crate::message::{Receiver, Sender, Standing, queue};
use plimsoll_api::status::PressureSocketView;
use plimsoll_policy::units::Uid;
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Messages waiting at once. What finds no room is told again at the guard's next turn.
const QUEUE_MAX: usize = 64;

/// What the guard tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// An account is near its line.
    Near(Uid),
    /// It is near no more.
    Far(Uid),
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
    told: BTreeSet<Uid>,
    audience: u64,
}

impl Teller {
    pub(crate) const fn new(link: Link) -> Self {
        Self { link, told: BTreeSet::new(), audience: 0 }
    }

    /// One that nobody listens to.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self::new(Link { queue: Sender::closed(), shared: Arc::default() })
    }

    /// These are near now. Costs nothing while nobody listens. What finds no room in the queue is told the
    /// next time, which comes within a second while anybody is near.
    pub(crate) fn settle(&mut self, near: impl FnOnce() -> BTreeSet<Uid>) {
        let audience = self.link.shared.audience.load(Ordering::Acquire);
        if core::mem::replace(&mut self.audience, audience) != audience {
            // Whoever listens now knows of nobody.
            self.told.clear();
        }
        if audience.is_multiple_of(2) {
            return;
        }
        let near = near();
        let came = near.difference(&self.told).map(|uid| Message::Near(*uid));
        let left = self.told.difference(&near).map(|uid| Message::Far(*uid));
        let messages: Vec<Message> = came.chain(left).collect();
        for message in messages {
            if self.link.queue.try_send(message).is_err() {
                return;
            }
            match message {
                Message::Near(uid) => self.told.insert(uid),
                Message::Far(uid) => self.told.remove(&uid),
            };
        }
    }

    /// What there is to show.
    pub(crate) fn shown(&self) -> PressureSocketView {
        self.link.shared.standing.shown()
    }
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
        let near = BTreeSet::from([Uid(1), Uid(2)]);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), [], "nobody listens");
        inbox.audience(true);
        inbox.audience(true);
        teller.settle(|| near.clone());
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), [Message::Near(Uid(1)), Message::Near(Uid(2))]);
        teller.settle(|| BTreeSet::from([Uid(2)]));
        assert_eq!(heard(&inbox), [Message::Far(Uid(1))]);
        // The last one goes and another comes, before the guard's next turn.
        inbox.audience(false);
        inbox.audience(true);
        teller.settle(|| near.clone());
        assert_eq!(
            heard(&inbox),
            [Message::Near(Uid(1)), Message::Near(Uid(2))],
            "the newcomer knows nothing"
        );
        teller.settle(BTreeSet::new);
        assert_eq!(heard(&inbox), [Message::Far(Uid(1)), Message::Far(Uid(2))], "no line is left");
    }

    #[test]
    fn what_finds_no_room_is_told_at_the_next_turn() {
        let (link, inbox) = link().unwrap();
        let mut teller = Teller::new(link);
        inbox.audience(true);
        let near: BTreeSet<Uid> = (0..100).map(Uid).collect();
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox).len(), QUEUE_MAX);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox).len(), 100 - QUEUE_MAX);
        teller.settle(|| near.clone());
        assert_eq!(heard(&inbox), []);
    }
}
