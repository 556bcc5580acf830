//! The processes that a bench starts: small programs inside the same binary, behind a hidden subcommand.
//!
//! Each speaks lines on its standard input and output, says `ready` first, and ends when its input closes. Each fails where
//! its arguments are bad, where it is not root, and where the kernel refuses what it asks for. Each is bounded in size and
//! under two watchdogs: an alarm, renewed with each command, and the death of its parent. Only `leash` becomes another
//! program.
//!
//! The benches and the demo use these, for they have to be in `plimsoll` itself. The workloads of the tests are in
//! `lab/workloads`, in C.

mod allocate;
mod broom;
mod busy;
mod files;
mod hold;
mod leash;
pub(crate) mod memory;
mod random;
mod storm;
mod timer;
mod touch;
mod trace;
mod victim;

pub(crate) use memory::HUGE_PAGE_BYTES;
pub(crate) use random::Random;
pub(crate) use victim::UNITS_MAX;

use crate::error::BenchError;
use nix::{
    errno::Errno,
    sys::{prctl, signal::Signal},
    time::{ClockId, ClockNanosleepFlags, clock_nanosleep},
    unistd::{self, Gid, Uid, alarm},
};
use std::{
    io::{self, BufRead, StdinLock, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// The test uids that a workload may become; nothing else, whatever it is asked.
const UIDS: std::ops::RangeInclusive<u32> = 60_010..=60_040;

/// Those of `tmalloc`, whose many processes stay apart from the users of the other benches.
const ALLOCATING_UIDS: std::ops::RangeInclusive<u32> = 60_400..=60_449;

/// The demo's.
const DEMO_UID: u32 = 60_999;

/// A process that hears nothing for this long ends itself: longer than any case lasts.
pub(crate) const SILENCE_SECONDS: u32 = 300;

/// Runs the workload that `arguments` names (`touch 60010 0`, ...) and gives its exit status: 0 done, 1 failed, 2 usage.
///
/// This is what the hidden subcommand `plimsoll bench-workload` calls. A failure is said on standard output, as
/// `error ...`, where the bench hears it.
#[must_use]
pub fn workload_main(arguments: &[String]) -> i32 {
    let Some((name, rest)) = arguments.split_first() else { return 2 };
    let outcome = match name.as_str() {
        "touch" => touch::run(rest),
        "busy" => busy::run(rest),
        "hold" => hold::hold(rest),
        "victim" => victim::run(rest),
        "storm" => storm::run(rest),
        "broom" => broom::run(rest),
        "leash" => leash::run(rest),
        "hog" => hold::hog(rest),
        "stream" => files::stream(rest),
        "read" => files::read(rest),
        "start" => files::start(rest),
        "churn" => allocate::churn::run(rest),
        "grow" => allocate::grow::run(rest),
        "ask" => allocate::ask::run(rest),
        "grab" => allocate::grab::run(rest),
        "probe" => allocate::probe::run(rest),
        "exit" => Ok(()),
        "timer" => timer::run(rest),
        "trace" => trace::run(rest),
        _ => Err(usage(name)),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            // The bench may have gone; then nobody is left to hear it.
            drop(say(&format!("error {error}")));
            if matches!(error, BenchError::Malformed { .. }) { 2 } else { 1 }
        }
    }
}

/// The error for arguments that are missing or wrong.
pub(crate) fn usage(text: &str) -> BenchError {
    BenchError::malformed("arguments of bench-workload", text)
}

/// Takes the argument at `index` as a number.
///
/// # Errors
/// Missing or not a number.
pub(crate) fn number<T: std::str::FromStr>(arguments: &[String], index: usize) -> Result<T, BenchError> {
    arguments.get(index).and_then(|argument| argument.parse().ok()).ok_or_else(|| usage(&arguments.join(" ")))
}

/// Says one line.
///
/// # Errors
/// The bench has gone.
pub(crate) fn say(line: &str) -> Result<(), BenchError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(BenchError::io("write to the bench"))
}

/// Sleeps until that moment of CLOCK_MONOTONIC; not at all when it has passed.
fn sleep_until_ns(moment_ns: u64) -> Result<(), BenchError> {
    let moment = Duration::from_nanos(moment_ns).into();
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &moment) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
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
    fn open_as(uid: u32) -> Result<Self, BenchError> {
        let commands = Self::open();
        become_user(uid)?;
        say("ready")?;
        Ok(commands)
    }

    /// The next command as its word and its numbers; `None` when the bench has closed the input. Renews the alarm.
    ///
    /// # Errors
    /// The input cannot be read, or holds something else.
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
fn until_input_ends(
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
///
/// # Errors
/// The kernel refuses.
pub(crate) fn arm_watchdogs() -> Result<(), BenchError> {
    alarm::set(SILENCE_SECONDS);
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(BenchError::io("PR_SET_PDEATHSIG"))
}

/// Gives up root for the test user `uid`, for good, where it was not started as that one, and arms the watchdogs (a
/// change of user disarms the signal of the parent's death). The process stays dumpable, so that the owner of its /proc
/// folder is the user it belongs to.
///
/// # Errors
/// Not a test uid, or not root.
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
    prctl::set_dumpable(true).map_err(BenchError::io("PR_SET_DUMPABLE"))?;
    arm_watchdogs()
}
