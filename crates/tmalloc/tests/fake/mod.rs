//! A coordinator of one account, for tests: keeps to docs/tmalloc-protocol.md and to a budget, and can be told to misbehave.
//!
//! The library's state is the process's, so each scenario is a process of its own: the test binary again, running one test.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::multiple_unsafe_ops_per_block,
    dead_code,
    unsafe_code,
    reason = "each test file uses its own part of this, all of it is a test's, and std has no sockets of packets"
)]

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::c_int,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    ptr,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};
use tmalloc::message::{
    CANCEL, GAVE_BACK, GRANTED, HEADROOM, HEADROOM_IS, HELLO, HELLO_WATCHES, MESSAGE_BYTES, Message, RECALL,
    RECALLED, REFUSED, RESERVE, SETTLED, SOFT, VERSION, WELCOME,
};

/// How long anything may take before a test has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The coordinator's own is 50 ms: on a machine under load an answer comes later, and a test is refused what it could have.
const RECALL_PATIENCE: Duration = Duration::from_secs(1);
const SCENARIO: &str = "TMALLOC_TEST_SCENARIO";
const SOCKET: &str = "PLIMSOLL_TMALLOC_SOCKET";

/// What the coordinator knows, in bytes by process.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) budget: u64,
    pub(crate) held: HashMap<i32, u64>,
    pub(crate) asked: HashSet<i32>,
    pub(crate) grants: usize,
    pub(crate) unsettled: HashMap<i32, usize>,
    pub(crate) refusals: usize,
    pub(crate) recalled: u64,
    /// So many requests are refused as too many.
    pub(crate) busy: usize,
    /// Nobody hears of recalls, as before a process's watcher has connected.
    pub(crate) unheard: bool,
    /// The most that was ever held.
    pub(crate) peak: u64,
    watchers: Vec<c_int>,
    connections: Vec<c_int>,
    waiting: VecDeque<(c_int, u32)>,
    answered_recalls: usize,
    /// How many connections there are, those that have not said HELLO among them.
    served: usize,
    closed: bool,
}

impl Books {
    pub(crate) fn total(&self) -> u64 {
        self.held.values().sum()
    }

    fn grant(&mut self, pid: i32, bytes: u64) -> bool {
        let fits = self.total() + bytes <= self.budget;
        if fits {
            *self.held.entry(pid).or_default() += bytes;
            self.asked.insert(pid);
            self.grants += 1;
            *self.unsettled.entry(pid).or_default() += 1;
            self.peak = self.peak.max(self.total());
        }
        fits
    }

    fn unsettled(&self, pid: i32) -> usize {
        self.unsettled.get(&pid).copied().unwrap_or_default()
    }

    pub(crate) fn all_settled(&self) -> bool {
        self.unsettled.values().all(|count| *count == 0)
    }

    fn lower(&mut self, pid: i32, bytes: u64) {
        // What it said before it ended may be read after its end was seen on its other connection.
        // SAFETY: asks whether a process exists.
        if bytes == 0 || !self.held.contains_key(&pid) && unsafe { libc::kill(pid, 0) } != 0 {
            return;
        }
        let held = self.held.entry(pid).or_default();
        assert!(*held >= bytes, "process {pid} gave back {bytes} of {held} bytes");
        *held -= bytes;
    }
}

type Shared = Arc<(Mutex<Books>, Condvar)>;

pub(crate) struct Coordinator {
    folder: tempfile::TempDir,
    shared: Shared,
    /// Open for as long as anybody has its number: other tests' sockets have numbers in the same process.
    listener: Arc<OwnedFd>,
}

impl Coordinator {
    pub(crate) fn start(budget: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared::default();
        shared.0.lock().unwrap().budget = budget;
        let listener = listen(&folder.path().join("socket"), &shared);
        Self { folder, shared, listener }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.0.lock().unwrap()
    }

    /// Waits until the books are as wanted.
    pub(crate) fn await_books(&self, what: &str, wanted: impl Fn(&Books) -> bool) {
        let began = Instant::now();
        loop {
            let books = self.books();
            if wanted(&books) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{what}: {books:?}");
            drop(books);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends without a word, as a daemon that is killed; what was granted stays in the kernel's books.
    pub(crate) fn die(&mut self) {
        let mut books = self.books();
        books.closed = true;
        for socket in books.connections.drain(..).collect::<Vec<_>>() {
            // SAFETY: ends a connection, whose thread closes it.
            unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
        }
        books.watchers.clear();
        books.waiting.clear();
        drop(books);
        shut_down(&self.listener);
        std::fs::remove_file(self.path()).unwrap();
        // What it was told before is in its books.
        self.await_books("its connections' ends", |books| books.served == 0);
    }

    pub(crate) fn live_again(&mut self) {
        let held = self.books().held.clone();
        let budget = self.books().budget;
        self.shared = Shared::default();
        *self.books() = Books { budget, held, ..Books::default() };
        self.listener = listen(&self.path(), &self.shared);
    }

    /// Waits until a process hears of recalls and of the soft limit.
    pub(crate) fn await_watcher(&self) {
        self.await_books("its watcher", |books| !books.watchers.is_empty());
    }

    pub(crate) fn recall(&self, bytes: u64) {
        let mut books = self.books();
        recall(&mut books, bytes);
        let wanted = books.answered_recalls + books.watchers.len();
        drop(books);
        self.await_books("the answers to a recall", |books| books.answered_recalls >= wanted);
    }

    pub(crate) fn tell_soft(&self, reached: bool) {
        for watcher in &self.books().watchers {
            send(*watcher, Message::new(SOFT).a(u64::from(reached)));
        }
    }

    /// Runs a scenario of this test binary, and expects it to succeed. All it said is in the books then.
    pub(crate) fn run(&self, scenario: &str) -> Output {
        let output = finish(self.begin(scenario));
        self.await_books("the last words", |books| books.served == 0);
        output
    }

    pub(crate) fn begin(&self, scenario: &str) -> Child {
        self.command(scenario).spawn().unwrap()
    }

    pub(crate) fn command(&self, scenario: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "scenario", "--nocapture", "--test-threads=1"])
            .env(SCENARIO, scenario)
            .env(SOCKET, self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        shut_down(&self.listener);
    }
}

/// Nobody is accepted any more.
fn shut_down(listener: &OwnedFd) {
    // SAFETY: takes two numbers.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Waits for a scenario, and expects it to have succeeded.
pub(crate) fn finish(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    // Its totals are not to be taken for those of the test.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\n', "\n  ");
    assert!(
        output.status.success(),
        "{:?}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// The scenario this process is to run; `None` in the test runner itself.
pub(crate) fn scenario() -> Option<String> {
    let name = std::env::var(SCENARIO).ok()?;
    // A scenario that hangs ends by SIGALRM.
    // SAFETY: takes a number.
    unsafe { libc::alarm(u32::try_from(DEADLINE.as_secs()).unwrap() + 20) };
    Some(name)
}

/// The calling process's anonymous memory, in bytes.
pub(crate) fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn listen(path: &Path, shared: &Shared) -> Arc<OwnedFd> {
    // SAFETY: a plain C structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = from.cast_signed();
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: a socket of our own, and an address as long as is said.
    let listener = unsafe {
        let listener = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert_eq!(libc::bind(listener, ptr::from_ref(&address).cast(), length), 0);
        assert_eq!(libc::listen(listener, 128), 0);
        Arc::new(OwnedFd::from_raw_fd(listener))
    };
    let (accepting, shared) = (Arc::clone(&listener), shared.clone());
    thread::spawn(move || {
        loop {
            // SAFETY: the listener is open for as long as this has it.
            let socket = unsafe {
                libc::accept4(accepting.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC)
            };
            if socket < 0 {
                return;
            }
            shared.0.lock().unwrap().served += 1;
            let shared = shared.clone();
            thread::spawn(move || serve(socket, &shared));
        }
    });
    listener
}

fn send(socket: c_int, message: Message) {
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: a message is as long as is said.
    unsafe { libc::send(socket, ptr::from_ref(&message).cast(), MESSAGE_BYTES, flags) };
}

fn receive(socket: c_int) -> Option<Message> {
    let mut message = Message::default();
    // SAFETY: there is room for as much as is said.
    let got = unsafe { libc::recv(socket, ptr::from_mut(&mut message).cast(), MESSAGE_BYTES, 0) };
    (got == MESSAGE_BYTES as isize).then_some(message)
}

fn peer(socket: c_int) -> i32 {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: there is room for as much as is said.
    unsafe {
        let into = peer.as_mut_ptr().cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length);
        peer.assume_init().pid
    }
}

fn serve(socket: c_int, shared: &Shared) {
    let pid = peer(socket);
    // A program may end while its watcher connects.
    if let Some(hello) = receive(socket) {
        welcome(socket, hello, shared);
        while let Some(message) = receive(socket) {
            handle(socket, pid, message, shared);
            shared.1.notify_all();
        }
    }
    let mut books = shared.0.lock().unwrap();
    books.watchers.retain(|watcher| *watcher != socket);
    books.connections.retain(|connection| *connection != socket);
    books.waiting.retain(|(waiter, _)| *waiter != socket);
    // A process that lives may come back with what it holds; one that is gone holds nothing.
    // SAFETY: asks whether a process exists.
    if !books.closed && unsafe { libc::kill(pid, 0) } != 0 {
        books.held.remove(&pid);
    }
    books.served -= 1;
    drop(books);
    shared.1.notify_all();
    // SAFETY: the last use of it.
    unsafe { libc::close(socket) };
}

fn welcome(socket: c_int, hello: Message, shared: &Shared) {
    assert_eq!((hello.kind, hello.a), (HELLO, VERSION));
    let mut books = shared.0.lock().unwrap();
    if books.closed {
        // SAFETY: as in `Coordinator::die`, which came before this was among the connections.
        unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
        return;
    }
    books.connections.push(socket);
    send(socket, Message::new(WELCOME).a(VERSION).b(4096).c(1));
    if hello.b & HELLO_WATCHES != 0 && !books.unheard {
        books.watchers.push(socket);
    }
}

fn handle(socket: c_int, pid: i32, message: Message, shared: &Shared) {
    let mut books = shared.0.lock().unwrap();
    match message.kind {
        RESERVE => {
            assert!(message.a > 0 && message.a.is_multiple_of(4096), "{message:?}");
            if books.busy > 0 {
                books.busy -= 1;
                send(socket, Message::new(REFUSED).seq(message.seq).a(3));
                return;
            }
            books.waiting.push_back((socket, message.seq));
            let shared = shared.clone();
            drop(books);
            thread::spawn(move || reserve(socket, pid, message, &shared));
        }
        // One that comes first on a connection is about what another coordinator granted.
        SETTLED => *books.unsettled.entry(pid).or_default() = books.unsettled(pid).saturating_sub(1),
        GAVE_BACK => books.lower(pid, message.a),
        RECALLED => {
            books.lower(pid, message.a);
            books.recalled += message.a;
            books.answered_recalls += 1;
        }
        CANCEL => books.waiting.retain(|waiter| *waiter != (socket, message.seq)),
        HEADROOM => {
            let left = books.budget.saturating_sub(books.total());
            send(socket, Message::new(HEADROOM_IS).seq(message.seq).a(left));
        }
        other => panic!("a message of kind {other}"),
    }
}

fn recall(books: &mut Books, bytes: u64) {
    for watcher in &books.watchers {
        send(*watcher, Message::new(RECALL).seq(7).a(bytes));
    }
}

/// First come, first served among those who wait.
fn reserve(socket: c_int, pid: i32, message: Message, shared: &Shared) {
    let began = Instant::now();
    let recalled_by = began + RECALL_PATIENCE;
    let patience = if message.b == u64::MAX { DEADLINE } else { Duration::from_millis(message.b) };
    let end = recalled_by.max(began + patience);
    let ticket = (socket, message.seq);
    let mut books = shared.0.lock().unwrap();
    let mut asked = None;
    let answer = loop {
        let turn = message.b == 0 || books.waiting.front() == Some(&ticket);
        if turn && books.grant(pid, message.a) {
            break GRANTED;
        }
        let now = Instant::now();
        if asked.is_none() {
            asked = Some(books.answered_recalls + books.watchers.len());
            recall(&mut books, message.a);
        }
        let done = message.b == 0 && asked.is_some_and(|wanted| books.answered_recalls >= wanted);
        if now >= end || done || !books.waiting.contains(&ticket) {
            break REFUSED;
        }
        books = shared.1.wait_timeout(books, Duration::from_millis(5)).unwrap().0;
    };
    books.waiting.retain(|waiter| *waiter != ticket);
    if answer == REFUSED {
        books.refusals += 1;
    }
    let reason = if message.b == 0 { 1 } else { 2 };
    let a = if answer == GRANTED { message.a } else { reason };
    // Who is gone has left a number that another test may have.
    if books.connections.contains(&socket) {
        send(socket, Message::new(answer).seq(message.seq).a(a).b(books.total()).c(books.budget));
    }
    drop(books);
    shared.1.notify_all();
}
