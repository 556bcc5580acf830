//! The daemon's side of a look-up: starts the child, takes what it says until it is done or its time is over, ends it.

use super::lookup::{Fact, Job, SUBCOMMAND};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::memfd::{MFdFlags, memfd_create},
};
use plimsoll_policy::{
    lines::Answer,
    units::{Gid, Uid},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::AsFd as _,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long the name services may take. Whoever draws a line for a group waits for it, and their client for 10 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How long a killed child may take to be gone before it is left behind and looked for the next time.
const LAST_MOMENT: Duration = Duration::from_millis(200);
/// What the child may say: about 150,000 members.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The longest line of it that means anything: names have 255 bytes, escaped six times that.
const LINE_BYTES_MAX: usize = 4096;

/// What the name services said of one group, and how sure that is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupAnswer {
    pub(super) answer: Answer,
    /// They said that there is no such group.
    pub(super) unknown: bool,
    /// Names in it that belong to no user.
    pub(super) strays: u32,
}

/// Everything they said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// `None`: no user has this name.
    pub(super) users: BTreeMap<String, Option<Uid>>,
    /// `None`: no group has this name.
    pub(super) groups: BTreeMap<String, Option<Gid>>,
    pub(super) of_groups: BTreeMap<Gid, GroupAnswer>,
    /// The first thing that could not be found out.
    pub(super) trouble: Option<String>,
    /// Why this is not all; `None`: it is.
    pub(super) unfinished: Option<String>,
}

impl Answers {
    fn nothing(why: impl ToString) -> Self {
        Self { unfinished: Some(why.to_string()), ..Self::default() }
    }

    /// Takes in one fact; true for the last.
    pub(super) fn take(&mut self, fact: Fact) -> bool {
        match fact {
            Fact::User(name, uid) => {
                self.users.insert(name, Some(uid));
            }
            Fact::NoUser(name) => {
                self.users.insert(name, None);
            }
            Fact::Group(name, gid) => {
                self.groups.insert(name, Some(gid));
            }
            Fact::NoGroup(name) => {
                self.groups.insert(name, None);
            }
            Fact::Known(gid) => self.of(gid).answer.knows_group = true,
            Fact::Unknown(gid) => self.of(gid).unknown = true,
            Fact::Member(gid, uid) => {
                self.of(gid).answer.members.insert(uid);
            }
            Fact::Other(gid, uid) => {
                self.of(gid).answer.others.insert(uid);
            }
            Fact::Strays(gid, number) => self.of(gid).strays = number,
            Fact::Trouble(text) => {
                self.trouble.get_or_insert(text);
            }
            Fact::End => return true,
        }
        false
    }

    fn of(&mut self, gid: Gid) -> &mut GroupAnswer {
        self.of_groups.entry(gid).or_default()
    }
}

/// Asks, one child at a time.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// One that was killed and did not end: it waits in the kernel, as for a dead NFS server.
    stuck: Option<Child>,
}

impl Asking {
    /// What the name services say within [`PATIENCE`].
    pub(super) fn ask(&mut self, job: &Job) -> Answers {
        if let Some(child) = &mut self.stuck
            && matches!(child.try_wait(), Ok(None))
        {
            return Answers::nothing("an earlier question to the name services has not ended");
        }
        self.stuck = None;
        let deadline = Instant::now() + PATIENCE;
        let mut child = match spawn(job) {
            Ok(child) => child,
            Err(error) => {
                return Answers::nothing(format_args!("the name services could not be asked: {error}"));
            }
        };
        let answers = match child.stdout.take() {
            Some(output) => listen(output, deadline),
            None => Answers::nothing("the name services could not be asked: no pipe"),
        };
        self.end(child);
        answers
    }

    fn end(&mut self, mut child: Child) {
        // Ended by itself already, most times; then this does nothing.
        drop(child.kill());
        let last = Instant::now() + LAST_MOMENT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= last {
                self.stuck = Some(child);
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn spawn(job: &Job) -> io::Result<Child> {
    // In memory, not in a pipe: a large job would not fit one, and the child must not be waited for.
    let mut told = File::from(memfd_create(c"plimsoll-names", MFdFlags::MFD_CLOEXEC)?);
    told.write_all(&serde_json::to_vec(job)?)?;
    told.rewind()?;
    Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .stdin(told)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
}

/// Takes facts until the last, the end of the pipe, the deadline, or too much.
fn listen(mut output: ChildStdout, deadline: Instant) -> Answers {
    let mut answers = Answers::default();
    let (mut line, mut taken, mut buffer) = (Vec::new(), 0_usize, vec![0_u8; 64 << 10]);
    let why = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: 0 would not wait for the last millisecond.
        let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        let ready = poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout);
        if left.is_zero() || matches!(ready, Ok(0)) {
            break format!("the name services did not answer within {} s", PATIENCE.as_secs());
        }
        let read = match output.read(&mut buffer) {
            Ok(0) => break "the question to the name services ended without an answer".to_owned(),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break format!("what the name services say cannot be read: {error}"),
        };
        taken = taken.saturating_add(read);
        if taken > ANSWER_BYTES_MAX {
            break format!("the name services say more than the {ANSWER_BYTES_MAX} bytes that are read");
        }
        for byte in buffer.iter().take(read) {
            if *byte != b'\n' {
                // Longer than anything that is meant: it will not be understood.
                if line.len() < LINE_BYTES_MAX {
                    line.push(*byte);
                }
                continue;
            }
            // A service may itself write to standard output; that is no fact and is left out.
            if serde_json::from_slice(&line).is_ok_and(|fact| answers.take(fact)) {
                return answers;
            }
            line.clear();
        }
    };
    answers.unfinished = Some(why);
    answers
}
