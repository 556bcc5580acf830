//! systemd, asked through `systemctl`: a child of the daemon's, bounded in time and in what it may say.
//!
//! `systemctl` rather than D-Bus spoken here: see docs/adr/0005.

use plimsoll_policy::{
    last_defence::{MemoryMaxState, slice::Max},
    units::{Bytes, Pid, Uid},
};
use plimsoll_sys::{
    process::PidFd,
    slice::{UserSlices, unit},
};
use std::{
    fs,
    io::{self, Read as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long one call may take: systemd answers in milliseconds, and a manager that is stuck for longer is not to be
/// waited for.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What is read of an answer: one value, or one error.
const ANSWER_MAX_BYTES: u64 = 4096;

/// Where distributions have it. Nothing is looked up along a path that somebody may have set.
const PROGRAMS: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];

/// systemd and the tree it keeps.
#[derive(Debug, Clone)]
pub(crate) struct Systemd {
    program: Option<PathBuf>,
    /// There while systemd is the init (`sd_booted(3)`).
    running: PathBuf,
    /// Where `set-property --runtime` writes.
    drop_ins: PathBuf,
    slices: Option<UserSlices>,
}

impl Systemd {
    /// The machine's own.
    pub(crate) fn of_machine() -> Self {
        Self {
            program: PROGRAMS.map(PathBuf::from).into_iter().find(|program| program.exists()),
            running: "/run/systemd/system".into(),
            drop_ins: "/run/systemd/system.control".into(),
            slices: UserSlices::find(),
        }
    }

    /// One that a test made: `program` in the place of systemctl, `root` in the place of / with `run` and `cgroup` in it.
    #[cfg(test)]
    pub(crate) fn pretended(program: PathBuf, root: &Path) -> Self {
        Self {
            program: Some(program),
            running: root.join("run/system"),
            drop_ins: root.join("run/system.control"),
            slices: UserSlices::at(root.join("cgroup")),
        }
    }

    /// Whether `memory.max` can be set through it.
    pub(crate) fn probe(&self) -> MemoryMaxState {
        if !self.running.is_dir() {
            MemoryMaxState::NoSystemd
        } else if self.slices.is_none() {
            MemoryMaxState::NoController
        } else if self.program.is_none() {
            MemoryMaxState::NoAnswer
        } else {
            MemoryMaxState::Possible
        }
    }

    pub(crate) fn slices(&self) -> Option<&UserSlices> {
        self.slices.as_ref()
    }

    /// The slice's `MemoryMax`, as systemd has it.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn memory_max(&self, user: Uid) -> Result<Max, String> {
        let unit = unit(user);
        let said = self.ask(&["show", "--property=MemoryMax", "--value", &unit])?;
        match said.trim() {
            "infinity" => Ok(Max::Unlimited),
            digits => digits.parse().map(|bytes| Max::At(Bytes(bytes))).map_err(|_not_a_number| {
                format!("systemctl says that MemoryMax of {unit} is '{}'", digits.escape_debug())
            }),
        }
    }

    /// Sets it until the next boot.
    ///
    /// # Errors
    /// One line; nothing was set then, unless systemd is slower than it is waited for.
    pub(crate) fn set_memory_max(&self, user: Uid, max: Max) -> Result<(), String> {
        let value = match max {
            Max::Unlimited => "MemoryMax=infinity".to_owned(),
            Max::At(Bytes(bytes)) => format!("MemoryMax={bytes}"),
        };
        self.ask(&["set-property", "--runtime", &unit(user), &value]).map(|_| ())
    }

    fn drop_in(&self, user: Uid) -> PathBuf {
        self.drop_ins.join(format!("{}.d", unit(user))).join("50-MemoryMax.conf")
    }

    /// Whether somebody set it at run time already.
    pub(crate) fn has_drop_in(&self, user: Uid) -> bool {
        self.drop_in(user).exists()
    }

    /// Removes the file that setting and putting back left: what it says is what systemd has in memory, and what the
    /// unit says without it. There was none before.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn remove_drop_in(&self, user: Uid) -> Result<(), String> {
        let path = self.drop_in(user);
        match fs::remove_file(&path) {
            Ok(()) => {
                // It stays where somebody else has a file in it.
                drop(path.parent().map(fs::remove_dir));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                Err(format!("cannot remove {}: {error}; it says what was there before", path.display()))
            }
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let program = self.program.as_deref().ok_or("there is no systemctl")?;
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            format!("{} {}: {what}: {error}", program.display(), arguments.join(" "))
        };
        let mut child =
            command(program, arguments).spawn().map_err(|error| failed("cannot start", &error))?;
        let ended = PidFd::open(Pid(child.id())).and_then(|pidfd| wait_for(&pidfd));
        match ended {
            Ok(true) => {}
            Ok(false) => {
                bury(&mut child);
                return Err(failed("given up", &format_args!("no answer within {} s", ANSWER_MAX.as_secs())));
            }
            Err(error) => {
                bury(&mut child);
                return Err(failed("cannot wait", &error));
            }
        }
        let status = child.wait().map_err(|error| failed("cannot wait", &error))?;
        if status.success() {
            return Ok(read(child.stdout.take()));
        }
        let said = read(child.stderr.take());
        let first = said.lines().next().unwrap_or_default();
        Err(failed(&status.to_string(), &first.escape_debug()))
    }
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-pager", "--no-ask-password"]).args(arguments);
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
    command
}

/// Waits again when a signal cut the wait short, which is rare enough not to count how much is left.
fn wait_for(pidfd: &PidFd) -> Result<bool, plimsoll_sys::process::ProcessError> {
    Ok(pidfd.wait_exit(ANSWER_MAX)? || pidfd.has_exited()?)
}

/// What it said fits a pipe, and it has ended: all of it is there. Without waiting, because a child of its own may hold
/// the pipe open.
fn read(stream: Option<impl io::Read + AsFd>) -> String {
    let mut text = Vec::new();
    if let Some(stream) = stream
        && rustix::io::ioctl_fionbio(&stream, true).is_ok()
    {
        // At the end of what is there it fails with EAGAIN, and what was read before is in the text. What could not be
        // read is not understood by whoever asked, who says so.
        drop(stream.take(ANSWER_MAX_BYTES).read_to_end(&mut text));
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn bury(child: &mut Child) {
    // It may have ended in this very moment, which is what is wanted.
    drop(child.kill());
    drop(child.wait());
}
