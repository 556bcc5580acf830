//! Accounts that count as the programs do, clients that do as they are told, and a clock that stands still.

use crate::guard::account;
use crate::tmalloc::{
    account::ConnectionId,
    grantor::Grantor,
    refusals::Refused,
    state::{Coordinator, Effect, Fault, Hello, Terms},
};
use plimsoll_policy::units::{Bytes, Nanos, PageSize, Pages, Pid, Uid};
use plimsoll_sys::bpf::{AccountFacts, BpfError, OverLine, Reserved, Space};
use plimsoll_wire::tmalloc::{Patience, Refusal, Reply, Request};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

pub(super) const PAGE: u64 = 4096;
pub(super) const USER: Uid = Uid(1000);
/// Grants leave this free.
pub(super) const HEADROOM: u64 = 10;

pub(super) fn page_size() -> PageSize {
    PageSize::from_bytes(PAGE).unwrap()
}

/// One process, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) space: Space,
    pub(super) used: u64,
    pub(super) reserved: u64,
    pub(super) granted: u64,
    /// Granted since nothing was reserved.
    pub(super) open: u64,
    /// Granted, and this process is still going to touch it, whatever it does besides.
    pub(super) due: u64,
    /// Pages that it has come to use meanwhile without asking, those that it freed again left out: they may be counted as
    /// granted ones until the last of these are touched.
    pub(super) beside: u64,
}

impl Held {
    /// It has so many pages more, or fewer, as the programs count them: out of the reservation first, and back into it as
    /// far as they may have come from there.
    fn charge(&mut self, pages: i64) {
        let used = self.used.checked_add_signed(pages).unwrap();
        let moved = if pages > 0 {
            self.reserved - pages.unsigned_abs().min(self.reserved)
        } else {
            self.reserved + pages.unsigned_abs().min(self.open.saturating_sub(self.reserved))
        };
        (self.used, self.reserved) = (used, moved);
    }
}

/// The accounts.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) lines: BTreeMap<Uid, u64>,
    pub(super) held: BTreeMap<Pid, Held>,
    /// So many questions are answered with 'not known exactly'.
    pub(super) inexact: u32,
    pub(super) settled: u32,
    /// Attempts to reserve.
    pub(super) tried: u32,
    /// Signalled, and not gone yet: nothing is reserved for them.
    pub(super) dying: BTreeSet<Pid>,
    mms: u64,
}

impl Books {
    /// What a user's processes have, and what they were promised and are going to touch, but for what they took beside.
    pub(super) fn promised(&self, user: Uid) -> u64 {
        let of_user = self.held.values().filter(|one| one.space.user == user);
        of_user.map(|one| one.used + one.due.saturating_sub(one.beside)).sum()
    }

    pub(super) fn usage(&self, user: Uid) -> u64 {
        self.held.values().filter(|one| one.space.user == user).map(|one| one.used + one.reserved).sum()
    }

    /// A process is born, or runs another program.
    pub(super) fn run(&mut self, pid: Pid, user: Uid) {
        self.mms += 1;
        let space = Space { mm: self.mms, pid, start_ns: u64::from(pid.0), uid: user, user };
        self.held.insert(pid, Held { space, used: 0, reserved: 0, granted: 0, open: 0, due: 0, beside: 0 });
    }

    fn of(&mut self, space: &Space) -> Option<&mut Held> {
        self.held
            .get_mut(&space.pid)
            .filter(|one| (one.space.mm, one.space.start_ns) == (space.mm, space.start_ns))
    }
}

/// A handle on the accounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake(pub(super) Rc<RefCell<Books>>);

impl Grantor for Fake {
    fn find(&mut self, pid: Pid) -> Result<Option<Space>, BpfError> {
        let books = self.0.borrow();
        let held = books.held.get(&pid).filter(|one| books.lines.contains_key(&one.space.user));
        Ok(held.map(|one| one.space))
    }

    fn reserve(&mut self, space: &Space, pages: Pages, headroom: Pages) -> Result<Reserved, BpfError> {
        let mut books = self.0.borrow_mut();
        books.tried += 1;
        if books.inexact > 0 {
            books.inexact -= 1;
            return Ok(Reserved::Inexact);
        }
        let usage = books.usage(space.user);
        let Some(hard) = books.lines.get(&space.user).copied() else { return Ok(Reserved::NoLine) };
        if books.dying.contains(&space.pid) {
            return Ok(Reserved::Gone);
        }
        let Some(held) = books.of(space) else { return Ok(Reserved::Gone) };
        if usage + pages.0 + headroom.0 > hard {
            return Ok(Reserved::Over(OverLine {
                whose: space.user.into(),
                usage: Pages(usage),
                hard: Pages(hard),
            }));
        }
        held.reserved += pages.0;
        held.open += pages.0;
        held.due += pages.0;
        held.granted += pages.0;
        Ok(Reserved::Granted { usage: Pages(usage + pages.0) })
    }

    fn settle(&mut self, space: &Space) -> Result<Pages, BpfError> {
        let mut books = self.0.borrow_mut();
        books.settled += 1;
        let left = books.of(space).map_or(0, |held| {
            held.granted = held.granted.saturating_sub(held.reserved);
            (held.open, held.due, held.beside) = (0, 0, 0);
            core::mem::take(&mut held.reserved)
        });
        Ok(Pages(left))
    }

    fn give_up(&mut self, space: &Space, pages: Pages) -> Result<(), BpfError> {
        if let Some(held) = self.0.borrow_mut().of(space) {
            held.granted = held.granted.saturating_sub(pages.0);
        }
        Ok(())
    }

    fn accounts(&mut self, uid: Uid) -> Result<Vec<AccountFacts>, BpfError> {
        let books = self.0.borrow();
        let account = |hard: &u64| AccountFacts {
            whose: uid.into(),
            soft: Pages(hard * 9 / 10),
            hard: Pages(*hard),
            processes: 0,
            ..account(books.usage(uid), 0)
        };
        Ok(books.lines.get(&uid).map(account).into_iter().collect())
    }

    fn outstanding(&mut self) -> Result<Vec<Space>, BpfError> {
        let books = self.0.borrow();
        Ok(books.held.values().filter(|one| one.reserved > 0).map(|one| one.space).collect())
    }
}

/// The coordinator with what is around it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) coordinator: Coordinator<Fake>,
    pub(super) books: Fake,
    pub(super) now: Nanos,
    pub(super) said: BTreeMap<ConnectionId, Vec<Reply>>,
    pub(super) closed: BTreeMap<ConnectionId, Option<Fault>>,
    pub(super) recorded: Vec<Refused>,
    pub(super) walks: u32,
    next_id: u64,
}

impl World {
    /// With one line, in pages.
    pub(super) fn new(line: u64) -> Self {
        let mut world = Self::without_lines();
        world.books.0.borrow_mut().lines.insert(USER, line);
        world.coordinator.adopt(Some(world.books.clone()), world.now);
        world
    }

    pub(super) fn without_lines() -> Self {
        let terms = Terms { headroom: Bytes(HEADROOM * PAGE), page_size: page_size() };
        Self {
            coordinator: Coordinator::new(terms),
            books: Fake::default(),
            now: Nanos(1_000_000_000),
            said: BTreeMap::new(),
            closed: BTreeMap::new(),
            recorded: Vec::new(),
            walks: 0,
            next_id: 0,
        }
    }

    /// A new process says HELLO; its connection.
    pub(super) fn client(&mut self, pid: u32, watch: bool) -> ConnectionId {
        if !self.books.0.borrow().held.contains_key(&Pid(pid)) {
            self.books.0.borrow_mut().run(Pid(pid), USER);
        }
        self.greet(pid, watch)
    }

    /// One that is in no account yet.
    pub(super) fn unseen(&mut self, pid: u32) -> ConnectionId {
        self.greet(pid, false)
    }

    fn greet(&mut self, pid: u32, watch: bool) -> ConnectionId {
        let id = self.connect(USER).unwrap();
        self.coordinator.hello(id, Hello { pid: Pid(pid), watch, doubtful: false }, self.now);
        self.gather();
        id
    }

    pub(super) fn connect(&mut self, owner: Uid) -> Result<ConnectionId, Fault> {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        self.coordinator.connect(id, owner, self.now).map(|()| id)
    }

    pub(super) fn gather(&mut self) {
        for effect in self.coordinator.take_effects() {
            match effect {
                Effect::Send(id, reply) => self.said.entry(id).or_default().push(reply),
                Effect::Close(id, fault) => {
                    self.closed.insert(id, fault);
                }
                Effect::Record(refused) => self.recorded.push(refused),
                Effect::Walk => self.walks += 1,
                Effect::Forget(_) => {}
                Effect::Trouble(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn send(&mut self, id: ConnectionId, request: Request) {
        self.coordinator.message(id, request, self.now);
        self.gather();
    }

    /// Asks for pages; the answer, if there is one at once.
    pub(super) fn ask(
        &mut self,
        id: ConnectionId,
        seq: u32,
        pages: u64,
        patience: Patience,
    ) -> Option<Reply> {
        self.send(id, Request::Reserve { seq, bytes: Bytes(pages * PAGE), patience });
        self.answer(id, seq)
    }

    /// What was answered to a request.
    pub(super) fn answer(&self, id: ConnectionId, wanted: u32) -> Option<Reply> {
        let mut all = self.said.get(&id).into_iter().flatten().copied();
        all.find(|reply| match reply {
            Reply::Granted { seq, .. } | Reply::Refused { seq, .. } | Reply::HeadroomIs { seq, .. } => {
                *seq == wanted
            }
            Reply::Welcome { .. } | Reply::Recall { .. } | Reply::Soft { .. } | Reply::Fault { .. } => false,
        })
    }

    pub(super) fn is_granted(&self, id: ConnectionId, seq: u32) -> bool {
        matches!(self.answer(id, seq), Some(Reply::Granted { .. }))
    }

    pub(super) fn refusal(&self, id: ConnectionId, seq: u32) -> Option<Refusal> {
        let Some(Reply::Refused { refusal, .. }) = self.answer(id, seq) else { return None };
        Some(refusal)
    }

    /// The recalls that a connection heard of: number and pages.
    pub(super) fn recalls(&self, id: ConnectionId) -> Vec<(u32, u64)> {
        let mut recalls = Vec::new();
        for reply in self.said.get(&id).into_iter().flatten() {
            if let Reply::Recall { seq, bytes } = reply {
                recalls.push((*seq, bytes.0 / PAGE));
            }
        }
        recalls
    }

    /// What it was told of the soft limit.
    pub(super) fn soft(&self, id: ConnectionId) -> Vec<bool> {
        let mut told = Vec::new();
        for reply in self.said.get(&id).into_iter().flatten() {
            if let Reply::Soft { reached, .. } = reply {
                told.push(*reached);
            }
        }
        told
    }

    /// A process touches what it was granted, and says so.
    pub(super) fn settle(&mut self, id: ConnectionId, pid: u32) {
        self.touch(pid);
        self.send(id, Request::Settled);
    }

    /// A process touches all it was granted.
    pub(super) fn touch(&mut self, pid: u32) {
        let mut books = self.books.0.borrow_mut();
        let held = books.held.get_mut(&Pid(pid)).unwrap();
        let due = core::mem::take(&mut held.due);
        held.charge(i64::try_from(due).unwrap());
    }

    /// A process uses so much more, or less, without asking.
    pub(super) fn use_plainly(&mut self, pid: u32, pages: i64) {
        let mut books = self.books.0.borrow_mut();
        let held = books.held.get_mut(&Pid(pid)).unwrap();
        held.charge(pages);
        held.beside = match held.open {
            0 => 0,
            _ => held.beside.saturating_add_signed(pages),
        };
    }

    /// A process ends.
    pub(super) fn end(&mut self, pid: u32) {
        self.books.0.borrow_mut().held.remove(&Pid(pid));
        self.coordinator.process_ended(Pid(pid), self.now);
        self.gather();
    }

    /// Time passes, and everything that is due happens.
    pub(super) fn pass(&mut self, milliseconds: u64) {
        let end = self.now.saturating_add(Nanos(milliseconds * 1_000_000));
        let mut turns = 0;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| *due <= end) {
            assert!(turns < 100_000, "it does not come to rest");
            turns += 1;
            self.now = self.now.max(due);
            self.coordinator.tick(self.now);
            self.gather();
        }
        self.now = end;
    }

    /// What processes have and are going to touch of their grants.
    pub(super) fn promised(&self) -> u64 {
        self.books.0.borrow().promised(USER)
    }

    pub(super) fn usage(&self) -> u64 {
        self.books.0.borrow().usage(USER)
    }
}
