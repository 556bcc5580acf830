//! A process that the bench started: talked to in lines, held by pidfd, ended when dropped.

use crate::error::BenchError;
use plimsoll_policy::{units::Pid, victim::Signal};
use plimsoll_sys::process::{PidFd, clock_monotonic_ns};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fmt::Display,
    io::{Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Long enough for any single step on a loaded machine; a step that takes longer is a failure, not a figure.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// A running workload or comparator. It ends when its standard input closes; dropping it makes sure.
#[derive(Debug)]
pub struct Workload {
    name: String,
    child: Child,
    pidfd: PidFd,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    heard: Vec<u8>,
}

impl Workload {
    /// Starts `BINARY bench-workload WORD...` and waits for its `ready`.
    ///
    /// # Errors
    /// It does not start, or fails before it is ready.
    pub fn start(binary: &Path, words: &[&dyn Display]) -> Result<Self, BenchError> {
        Self::start_prepared(Command::new(binary), words)
    }

    /// [`Self::start`] with a command that has its user or its environment already.
    pub(crate) fn start_prepared(mut command: Command, words: &[&dyn Display]) -> Result<Self, BenchError> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        // A Ctrl-C is for the bench alone: its workloads see that it has gone. Other programs may not.
        command.arg("bench-workload").args(&words).process_group(0);
        let mut workload = Self::spawn(command, &words.join(" "))?;
        workload.expect("ready")?;
        Ok(workload)
    }

    /// Starts any command under the same protocol, without waiting for it.
    pub(crate) fn spawn(mut command: Command, name: &str) -> Result<Self, BenchError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(BenchError::io(format!("start {:?}", command.get_program())))?;
        let pidfd = hold(&mut child)?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(BenchError::malformed("standard output of", name));
        };
        Ok(Self { name: name.to_owned(), child, pidfd, stdin, stdout, heard: Vec::new() })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        let problem = match self.stdin.as_mut() {
            None => "its input is closed".to_owned(),
            Some(stdin) => match stdin.write_all(format!("{line}\n").as_bytes()) {
                Ok(()) => return Ok(()),
                Err(error) => format!("does not take '{line}': {error}"),
            },
        };
        Err(self.failure(problem))
    }

    /// The next line it says, `None` where it ends instead.
    fn hear_if_alive(&mut self, within: Duration) -> Result<Option<String>, BenchError> {
        let until = Instant::now() + within;
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                return match line.strip_prefix("error ") {
                    Some(problem) => Err(self.failure(problem.to_owned())),
                    None => Ok(Some(line)),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait_readable(self.stdout.as_fd(), left)? {
                return Err(BenchError::Deadline { awaited: format!("answer of '{}'", self.name), within });
            }
            let mut chunk = [0_u8; 4096];
            let count = self.stdout.read(&mut chunk).map_err(BenchError::io("read from a workload"))?;
            if count == 0 {
                return Ok(None);
            }
            self.heard.extend(chunk.iter().take(count));
        }
    }

    /// The next line it says. Fails where it ends instead, and where it says `error ...`.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<String, BenchError> {
        let line = self.hear_if_alive(within)?;
        line.ok_or_else(|| self.failure("ended before it answered".to_owned()))
    }

    /// Hears lines until it says what is wanted; the monotonic time at which that was heard.
    pub(crate) fn hear_until(&mut self, wanted: impl Fn(&str) -> bool) -> Result<u64, BenchError> {
        loop {
            let line = self.hear(STEP)?;
            let now_ns = clock_monotonic_ns();
            if wanted(&line) {
                return Ok(now_ns);
            }
        }
    }

    /// Hears one line and wants it to begin with `word`; gives the numbers behind it.
    pub(crate) fn expect(&mut self, word: &str) -> Result<Vec<u64>, BenchError> {
        self.expect_within(STEP, word)
    }

    /// [`Self::expect`] with a patience of its own.
    pub(crate) fn expect_within(&mut self, within: Duration, word: &str) -> Result<Vec<u64>, BenchError> {
        let line = self.hear(within)?;
        self.numbers_of(&line, word)
    }

    fn numbers_of(&self, line: &str, word: &str) -> Result<Vec<u64>, BenchError> {
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next();
        let numbers: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
        match numbers {
            Some(numbers) if first == Some(word) => Ok(numbers),
            _ => Err(self.failure(format!("said '{line}' instead of '{word}'"))),
        }
    }

    /// [`Self::expect`] with exactly `N` numbers.
    pub(crate) fn expect_numbers<const N: usize>(&mut self, word: &str) -> Result<[u64; N], BenchError> {
        let numbers = self.expect(word)?;
        <[u64; N]>::try_from(numbers)
            .map_err(|got| self.failure(format!("said {} numbers instead of {N}", got.len())))
    }

    /// Tells a process of the workload `hold` to take so many bytes more; what it holds then, `None` where it was killed
    /// over it.
    ///
    /// # Errors
    /// It neither answers nor ends, or fails.
    pub fn take(&mut self, bytes: u64) -> Result<Option<u64>, BenchError> {
        let told = self.tell(&format!("take {bytes}"));
        if told.is_ok()
            && let Some(line) = self.hear_if_alive(STEP)?
        {
            return Ok(self.numbers_of(&line, "holds")?.first().copied());
        }
        // Its output closes a little before all of it is gone.
        self.death_ns(STEP).map(|_died_ns| None)
    }

    /// Waits until the process is dead; the monotonic time at which its pidfd was readable, `None` when it lives on.
    ///
    /// # Errors
    /// The pidfd cannot be polled.
    pub fn wait_dead_ns(&self, within: Duration) -> Result<Option<u64>, BenchError> {
        Ok(wait_readable(self.pidfd.as_fd(), within)?.then(clock_monotonic_ns))
    }

    /// [`Self::wait_dead_ns`] of a process that has to die.
    pub(crate) fn death_ns(&self, within: Duration) -> Result<u64, BenchError> {
        let awaited = || BenchError::Deadline { awaited: format!("end of '{}'", self.name), within };
        self.wait_dead_ns(within)?.ok_or_else(awaited)
    }

    /// Waits until the process has ended by itself; its exit status, `None` where a signal ended it.
    pub(crate) fn exit_status(&mut self, within: Duration) -> Result<Option<i32>, BenchError> {
        self.death_ns(within)?;
        let status = self.child.wait().map_err(BenchError::io(format!("wait for '{}'", self.name)))?;
        Ok(status.code())
    }

    /// Kills it and waits until it is dead.
    pub(crate) fn kill(mut self) -> Result<(), BenchError> {
        self.pidfd.send_signal(Signal::Kill).ok();
        self.exit_status(STEP).map(drop)
    }

    /// Lets the process end by itself (its input closes) and waits for it.
    pub(crate) fn finish(mut self, within: Duration) -> Result<(), BenchError> {
        self.stdin = None;
        self.death_ns(within).map(drop)
    }

    fn failure(&self, problem: String) -> BenchError {
        BenchError::Workload { workload: self.name.clone(), problem }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // A comparator takes its trace instance down when its input closes; a second is plenty for that.
        self.stdin = None;
        end(&mut self.child, &self.pidfd, Duration::from_secs(1));
    }
}

/// Holds a child that nobody waited for yet: its number cannot have been given to another process.
pub(crate) fn hold(child: &mut Child) -> Result<PidFd, BenchError> {
    PidFd::open(Pid(child.id())).map_err(|error| {
        drop(child.kill().and_then(|()| child.wait()));
        error.into()
    })
}

/// Waits for the end of a child, which is to come by itself; kills it when it does not.
pub(crate) fn end(child: &mut Child, pidfd: &PidFd, within: Duration) {
    if !matches!(wait_readable(pidfd.as_fd(), within), Ok(true)) {
        pidfd.send_signal(Signal::Kill).ok();
    }
    // Nothing to do about a child that cannot be waited for; it is killed already.
    drop(child.wait());
}

/// Waits until the descriptor is readable (a pidfd: until the process is dead, a pipe: also when it is closed).
///
/// # Errors
/// It cannot be polled.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, within: Duration) -> Result<bool, BenchError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(BenchError::io("poll")(errno)),
        }
    }
}

/// Looks again and again, `every` so often, until there is something; `None` when there is nothing `within` that time.
pub(crate) fn look_until<T>(
    within: Duration,
    every: Duration,
    mut look: impl FnMut() -> Result<Option<T>, BenchError>,
) -> Result<Option<T>, BenchError> {
    let until = Instant::now() + within;
    loop {
        let found = look()?;
        if found.is_some() || Instant::now() > until {
            return Ok(found);
        }
        thread::sleep(every);
    }
}

/// [`look_until`] for ten seconds; an error that says what was awaited when there is nothing.
pub(crate) fn wait_for<T>(
    awaited: &str,
    every: Duration,
    look: impl FnMut() -> Result<Option<T>, BenchError>,
) -> Result<T, BenchError> {
    let within = Duration::from_secs(10);
    look_until(within, every, look)?
        .ok_or_else(|| BenchError::Deadline { awaited: awaited.to_owned(), within })
}

/// Runs a command to its end and gives its standard output; a failure carries the last line of its standard error.
pub(crate) fn run<S: AsRef<OsStr>>(command: &mut Command, arguments: &[S]) -> Result<String, BenchError> {
    let described =
        arguments.iter().map(|argument| argument.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(BenchError::io(format!("start {:?}", command.get_program())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let problem = said.lines().last().map_or_else(|| output.status.to_string(), str::to_owned);
    Err(BenchError::Guard { command: described, problem })
}
