//! What the workloads have in common: lines, watchdogs, users.

use crate::error::BenchError;
use nix::unistd::{self, Gid, Uid, alarm};
use rustix::{
    io::Errno,
    process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal},
    thread::{ClockId, clock_nanosleep_absolute, disable_transparent_huge_pages},
    time::Timespec,
};
use std::{
    io::{self, BufRead, StdinLock, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// The test uids that a workload may become; nothing else, whatever it is asked.
pub(crate) const UIDS: std::ops::RangeInclusive<u32> = 60_010..=60_040;

/// Those of `tmalloc`, whose many processes stay apart from the users of the other benches.
const ALLOCATING_UIDS: std::ops::RangeInclusive<u32> = 60_400..=60_449;

/// The demo's.
const DEMO_UID: u32 = 60_999;

/// A process that hears nothing for this long ends itself: longer than any case lasts.
pub(crate) const SILENCE_SECONDS: u32 = 300;

/// The error for arguments that are missing or wrong.
pub(crate) fn usage(text: &str) -> BenchError {
    BenchError::malformed("arguments of bench-workload", text)
}

/// Takes the argument at `index` as a number.
pub(crate) fn number<T: std::str::FromStr>(arguments: &[String], index: usize) -> Result<T, BenchError> {
    arguments.get(index).and_then(|argument| argument.parse().ok()).ok_or_else(|| usage(&arguments.join(" ")))
}

/// Says one line.
pub(crate) fn say(line: &str) -> Result<(), BenchError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(BenchError::io("write to the bench"))
}

/// Sleeps until that moment of CLOCK_MONOTONIC; not at all when it has passed.
pub(crate) fn sleep_until_ns(moment_ns: u64) -> Result<(), BenchError> {
    let moment = Timespec::try_from(Duration::from_nanos(moment_ns)).unwrap_or_default();
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &moment) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(BenchError::io("clock_nanosleep")(errno)),
        }
    }
}

/// Commands of the bench, one line each.
#[derive(Debug)]
pub(crate) struct Commands {
    input: StdinLock<'static>,
    line: String,
}

impl Commands {
    /// Opens standard input; the line has room before the first command, so that hearing one touches no new page.
    pub(crate) fn open() -> Self {
        Self { input: io::stdin().lock(), line: String::with_capacity(4096) }
    }

    /// [`Self::open`] for a process that becomes that user, and says that it is ready.
    pub(crate) fn open_as(uid: u32) -> Result<Self, BenchError> {
        let commands = Self::open();
        become_user(uid)?;
        say("ready")?;
        Ok(commands)
    }

    /// The next command as its word and its numbers; `None` when the bench has closed the input. Renews the alarm.
    pub(crate) fn next(&mut self) -> Result<Option<(String, Vec<u64>)>, BenchError> {
        alarm::set(SILENCE_SECONDS);
        self.line.clear();
        let count = self.input.read_line(&mut self.line).map_err(BenchError::io("read from the bench"))?;
        if count == 0 {
            return Ok(None);
        }
        let mut fields = self.line.split_ascii_whitespace();
        let word = fields.next().unwrap_or("").to_owned();
        let numbers: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
        numbers.map(|numbers| Some((word, numbers))).ok_or_else(|| usage(&self.line))
    }
}

/// Works in a thread of its own until the input closes; the work sees that by its argument.
pub(crate) fn until_input_ends(
    work: impl FnOnce(&AtomicBool) -> Result<(), BenchError> + Send,
) -> Result<(), BenchError> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&over));
        let mut commands = Commands::open();
        let heard = loop {
            match commands.next() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        over.store(true, Ordering::Relaxed);
        heard.and(worker.join().unwrap_or_else(|_panic| Err(usage("the work of a thread"))))
    })
}

/// Arms the watchdogs of a process that may be killed at any time.
pub(crate) fn arm_watchdogs() -> Result<(), BenchError> {
    alarm::set(SILENCE_SECONDS);
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(BenchError::io("PR_SET_PDEATHSIG"))
}

/// Has this process get small pages alone, which the benches count in.
pub(crate) fn forbid_huge_pages() -> Result<(), BenchError> {
    disable_transparent_huge_pages(true).map_err(BenchError::io("PR_SET_THP_DISABLE"))
}

/// Lets the owner of this process's /proc folder be the user it belongs to, after it has become another's.
pub(crate) fn stay_dumpable() -> Result<(), BenchError> {
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(BenchError::io("PR_SET_DUMPABLE"))
}

/// Gives up root for the test user `uid`, for good, where it was not started as that one, and arms the watchdogs (a
/// change of user disarms the signal of the parent's death).
pub(crate) fn become_user(uid: u32) -> Result<(), BenchError> {
    if !UIDS.contains(&uid) && !ALLOCATING_UIDS.contains(&uid) && uid != DEMO_UID {
        return Err(usage(&format!("uid {uid} is not a test user's")));
    }
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    if unistd::getuid() == user && unistd::geteuid() == user {
        return arm_watchdogs();
    }
    unistd::setgroups(&[]).map_err(BenchError::io("setgroups"))?;
    unistd::setresgid(group, group, group).map_err(BenchError::io(format!("setresgid {uid}")))?;
    unistd::setresuid(user, user, user).map_err(BenchError::io(format!("setresuid {uid}")))?;
    stay_dumpable()?;
    arm_watchdogs()
}
