//! A process that the bench started: talked to in lines, held by pidfd, ended when dropped.

use crate::error::BenchError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_sys::process::clock_monotonic_ns;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    ffi::{OsStr, OsString},
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// Long enough for any single step on a loaded machine; a step that takes longer is a failure, not a figure.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// A running workload or comparator. It ends when its standard input closes; dropping it makes sure.
#[derive(Debug)]
pub(crate) struct Workload {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    heard: Vec<u8>,
}

impl Workload {
    /// Starts `BINARY bench-workload ARGUMENTS` and waits for its `ready`.
    ///
    /// # Errors
    /// It does not start, or fails before it is ready.
    pub(crate) fn start(binary: &Path, arguments: &[String]) -> Result<Self, BenchError> {
        Self::start_command(Command::new(binary), arguments)
    }

    /// [`Self::start`] as a user's process from its first page on, with these variables added to its environment.
    ///
    /// # Errors
    /// As [`Self::start`]; the user may not execute the binary.
    pub(crate) fn start_as(
        uid: u32,
        binary: &Path,
        arguments: &[String],
        environment: &[(&str, OsString)],
    ) -> Result<Self, BenchError> {
        let mut command = Command::new(binary);
        command.uid(uid).gid(uid).envs(environment.iter().map(|(name, value)| (name, value)));
        Self::start_command(command, arguments)
    }

    fn start_command(mut command: Command, arguments: &[String]) -> Result<Self, BenchError> {
        command.arg("bench-workload").args(arguments);
        let mut workload = Self::spawn(command, &arguments.join(" "))?;
        workload.expect("ready")?;
        Ok(workload)
    }

    /// Starts any command under the same protocol, without waiting for it.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn spawn(mut command: Command, name: &str) -> Result<Self, BenchError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(BenchError::io(format!("start {:?}", command.get_program())))?;
        // Our own child that nobody waited for yet: its number cannot have been given to another process.
        let pidfd = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or_else(|| BenchError::malformed("a process number", &child.id().to_string()))
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(BenchError::io("pidfd_open")))?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            return Err(BenchError::malformed("standard output of", name));
        };
        Ok(Self { name: name.to_owned(), child, pidfd, stdin, stdout, heard: Vec::new() })
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line.
    ///
    /// # Errors
    /// It has ended.
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

    /// The next line it says.
    ///
    /// # Errors
    /// None within the time, it ended, or the line is its own `error ...`.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<String, BenchError> {
        let until = Instant::now() + within;
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                return match line.strip_prefix("error ") {
                    Some(problem) => Err(self.failure(problem.to_owned())),
                    None => Ok(line),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait_readable(self.stdout.as_fd(), left)? {
                return Err(BenchError::Deadline { awaited: format!("answer of '{}'", self.name), within });
            }
            let mut chunk = [0_u8; 4096];
            let count = self.stdout.read(&mut chunk).map_err(BenchError::io("read from a workload"))?;
            if count == 0 {
                return Err(self.failure("ended before it answered".to_owned()));
            }
            self.heard.extend(chunk.iter().take(count));
        }
    }

    /// Hears one line and wants it to begin with `word`; gives the numbers behind it.
    ///
    /// # Errors
    /// As [`Self::hear`], or another line.
    pub(crate) fn expect(&mut self, word: &str) -> Result<Vec<u64>, BenchError> {
        let line = self.hear(STEP)?;
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next();
        let numbers: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
        match numbers {
            Some(numbers) if first == Some(word) => Ok(numbers),
            _ => Err(self.failure(format!("said '{line}' instead of '{word}'"))),
        }
    }

    /// [`Self::expect`] with exactly `N` numbers.
    ///
    /// # Errors
    /// As [`Self::expect`], or another count.
    pub(crate) fn expect_numbers<const N: usize>(&mut self, word: &str) -> Result<[u64; N], BenchError> {
        let numbers = self.expect(word)?;
        <[u64; N]>::try_from(numbers)
            .map_err(|got| self.failure(format!("said {} numbers instead of {N}", got.len())))
    }

    /// Waits until the process is dead; the monotonic time at which its pidfd was readable, `None` when it lives on.
    ///
    /// # Errors
    /// The pidfd cannot be polled.
    pub(crate) fn wait_dead_ns(&self, within: Duration) -> Result<Option<u64>, BenchError> {
        if wait_readable(self.pidfd.as_fd(), within)? { Ok(Some(clock_monotonic_ns())) } else { Ok(None) }
    }

    /// Waits until the process has ended by itself; its exit status, `None` where a signal ended it.
    ///
    /// # Errors
    /// It did not end within the time; dropping it then kills it.
    pub(crate) fn exit_status(&mut self, within: Duration) -> Result<Option<i32>, BenchError> {
        if self.wait_dead_ns(within)?.is_none() {
            return Err(BenchError::Deadline { awaited: format!("end of '{}'", self.name), within });
        }
        let status = self.child.wait().map_err(BenchError::io(format!("wait for '{}'", self.name)))?;
        Ok(status.code())
    }

    /// Kills it and waits until it is dead.
    ///
    /// # Errors
    /// As [`Self::exit_status`].
    pub(crate) fn kill(mut self) -> Result<(), BenchError> {
        signal_if_alive(&self.pidfd, Signal::KILL);
        self.exit_status(STEP).map(drop)
    }

    /// Lets the process end by itself (its input closes) and waits for it.
    ///
    /// # Errors
    /// It did not end within the time; dropping it then kills it.
    pub(crate) fn finish(mut self, within: Duration) -> Result<(), BenchError> {
        self.stdin = None;
        match self.wait_dead_ns(within)? {
            Some(_) => Ok(()),
            None => Err(BenchError::Deadline { awaited: format!("end of '{}'", self.name), within }),
        }
    }

    fn failure(&self, problem: String) -> BenchError {
        BenchError::Workload { workload: self.name.clone(), problem }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // A comparator takes its trace instance down when its input closes; a second is plenty for that.
        self.stdin = None;
        let ended = wait_readable(self.pidfd.as_fd(), Duration::from_secs(1));
        if !matches!(ended, Ok(true)) {
            signal_if_alive(&self.pidfd, Signal::KILL);
        }
        // Nothing to do about a child that cannot be waited for; it is killed already.
        drop(self.child.wait());
    }
}

/// Sends a signal to a process of ours, if there is still one: that it is dead already is the only way to fail.
pub(crate) fn signal_if_alive(pidfd: &OwnedFd, signal: Signal) {
    match pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(_) => {}
    }
}

/// Waits until the descriptor is readable (a pidfd: until the process is dead, a pipe: also when it is closed).
///
/// # Errors
/// `poll` fails.
pub(crate) fn wait_readable(fd: std::os::fd::BorrowedFd<'_>, within: Duration) -> Result<bool, BenchError> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: a wait that ends early would spin.
        let milliseconds = i32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(BenchError::io("poll")(errno)),
        }
    }
}

/// Runs a command to its end and gives its standard output; a failure carries the last line of its standard error.
///
/// # Errors
/// It does not start, or ends with another status than 0.
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
