//! `plimsoll run --jobserver`: looks at the job's processes again and again, issues tokens for as many more as fit under
//! the lines that hold for the job, and stops those that began at once and do not fit together.

mod holds;
mod limits;
mod members;
mod tokens;

use holds::Holds;
use limits::Limits;
use members::Members;
use plimsoll_policy::{
    jobserver,
    units::{Bytes, JobId, Nanos, Pid},
};
use plimsoll_sys::process::{ProcRoot, clock_monotonic_ns, thread_cpu_time};
use std::{
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) use holds::{HAVE_GO_ON, have_go_on};
pub(super) use tokens::Tokens;

/// From one look to the next: where it is close or somebody is held, otherwise, and while nobody runs.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_millis(250);
/// The kernel counts processor time in ticks of 10 ms.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// After a look so many times its own time passes before the next: a sixth of a processor at most.
const COST_PART: u32 = 5;
/// Tokens of which nobody is left who could hold them are issued anew after so long.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// The thread that does so. When it goes, all that are held go on.
#[derive(Debug)]
pub(super) struct Jobserver {
    thread: Option<JoinHandle<()>>,
    over: Option<Sender<()>>,
}

impl Jobserver {
    /// For the job that this process began with.
    pub(super) fn begin(tokens: Tokens, socket: &Path, id: JobId, first: Pid) -> anyhow::Result<Self> {
        let (over, is_over) = channel();
        let proc = Path::new("/proc");
        let members = Members::below(first, ProcRoot::open(proc)?);
        let limits = Limits::of(socket, id, ProcRoot::open(proc)?);
        let root = ProcRoot::open(proc)?;
        let looking = Looking {
            members,
            limits,
            tokens,
            policy: jobserver::Jobserver::default(),
            holds: Holds::new(root),
            lost_since: None,
            used: (Nanos(0), Bytes(0)),
            changed: Instant::now(),
        };
        let thread = thread::Builder::new().spawn(move || looking.run(&is_over))?;
        Ok(Self { thread: Some(thread), over: Some(over) })
    }
}

impl Drop for Jobserver {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // It ends after the look that it is at.
            thread.join().ok();
        }
    }
}

#[derive(Debug)]
struct Looking {
    members: Members,
    limits: Limits,
    tokens: Tokens,
    policy: jobserver::Jobserver,
    holds: Holds,
    /// More tokens are taken than there are threads that could have them.
    lost_since: Option<Instant>,
    /// Processor time and memory that all of them had used at the last look, and since when.
    used: (Nanos, Bytes),
    changed: Instant,
}

impl Looking {
    fn run(mut self, is_over: &Receiver<()>) {
        loop {
            let before = thread_cpu_time();
            let pause = self.look();
            let took = thread_cpu_time().saturating_sub(before);
            let pause = pause.max(took.saturating_mul(COST_PART));
            if is_over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Returns when to look again.
    fn look(&mut self) -> Duration {
        // What cannot be listed now can be later.
        let Ok(mut members) = self.members.look() else {
            self.holds.let_all_go_on();
            return LATER;
        };
        self.holds.leave_others_alone(&mut members);
        let usage = Bytes(members.iter().map(|member| member.seen.usage.0).fold(0, u64::saturating_add));
        let line = self.limits.line(usage);
        let seen: Vec<jobserver::Seen> = members.iter().map(|member| member.seen).collect();
        let turns = self.policy.look(Nanos(clock_monotonic_ns()), line, &seen);
        self.holds.hold(&turns.held, &members);
        self.tokens.offer(turns.may_begin());
        // Each token is taken for a process that the program started, or a thread of one.
        let others = members.iter().filter(|member| member.seen.id.pid != self.members.first);
        let threads = others.map(|member| member.threads).fold(0, u64::saturating_add);
        if self.tokens.taken() <= threads {
            self.lost_since = None;
        } else if self.lost_since.get_or_insert_with(Instant::now).elapsed() >= LOST_AFTER {
            self.tokens.forget_lost(threads);
        }
        let used = Nanos(members.iter().map(|member| member.seen.cpu.0).fold(0, u64::saturating_add));
        if self.used != (used, usage) {
            (self.used, self.changed) = ((used, usage), Instant::now());
        }
        match turns.held.is_empty() {
            true if self.changed.elapsed() >= QUIET_AFTER => QUIET,
            true if turns.room.0 > line.0 / 2 => LATER,
            true | false => SOON,
        }
    }
}
